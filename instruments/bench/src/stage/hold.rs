//! `weir-bench hold`: one short verified round, then a round that lasts until it is killed, with
//! all that a run ever makes up and in use. For tests of rounds, and of what a killed run leaves.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use strum::VariantArray;

use super::{Arena, Contestant, Fetch, LOG_BYTES, Run, Stage, Terms};
use crate::disk::Model;
use crate::error::{Doing, Error, Result};
use crate::page::PAGE;
use crate::workload::{Kind, Outcome, Personality, Workload};

const FILE_BYTES: u64 = 64 << 20;

/// Holds a round of the contestant of that name. Prints what the short round came to, and then
/// `holding` once everything is up.
pub fn run(weir: PathBuf, dir: &Path, disk: Model, contestant: &str) -> Result<()> {
    let contestant = find(contestant)?;
    let terms = Terms {
        disk,
        disk_bytes: 256 << 20,
        memory_bytes: 96 << 20,
        process_bytes: 0,
        patch_bytes: 4 << 20,
        log_bytes: LOG_BYTES,
        other_users: false,
        weir,
        over_time: false,
        limit: Duration::from_secs(60),
    };
    let run = Run::new(dir, terms.disk_bytes)?;
    let stage = Stage::new(&run, terms)?;
    rehearse(&stage, contestant)?;
    let home = stage.home().join("held");
    let file = File::create(&home).doing("create", &home)?;
    file.set_len(FILE_BYTES).doing("make", &home)?;
    // Nobody may have a file of the disk open when a round begins.
    drop(file);
    stage.round(contestant, hold).map(drop)
}

fn find(name: &str) -> Result<Contestant> {
    let policies = Fetch::VARIANTS.iter().map(|fetch| Contestant::Weir(*fetch));
    std::iter::once(Contestant::Ext4)
        .chain(policies)
        .find(|contestant| contestant.name() == name)
        .ok_or_else(|| Error::Missing {
            what: format!("there is no contestant '{name}'"),
            remedy: "name ext4, or weir-blocking, -async-fg, -async-bg, -lazy or -auto".into(),
        })
}

fn rehearse(stage: &Stage, contestant: Contestant) -> Result<()> {
    let workload = Workload::Personality(Personality {
        kind: Kind::RandomReadwrite,
        io_bytes: 512,
        file_bytes: FILE_BYTES,
        seconds: 0.5,
        seed: 1,
    });
    workload.prepare(stage.home())?;
    let (outcome, observed) =
        stage.round(contestant, |arena| arena.load::<_, Outcome>(&workload))?;
    workload.verify(stage.home(), &outcome)?;
    let weir = observed.weir.unwrap_or_default();
    println!(
        "{}: {} operations verified, {} device reads, {} device writes, {} fetches, {} blocked \
         writes, peak {} MiB",
        contestant.name(),
        outcome.class("all").map_or(0, |all| all.ops),
        observed.device.reads,
        observed.device.writes,
        weir.fetched_pages,
        weir.blocked_writes(),
        observed.peak_bytes >> 20
    );
    Ok(())
}

fn hold(arena: &Arena<'_>) -> Result<()> {
    let path = arena.directory().join("held");
    let file = File::options().write(true).open(&path).doing("open", &path)?;
    for page in 0..1024 {
        file.write_all_at(b"dirty", page * PAGE).doing("write", &path)?;
    }
    let mut command = Command::new("sleep");
    arena.group.admit(command.arg("3600"))?;
    let mut child = command.spawn().doing("run", Path::new("sleep"))?;
    println!("holding");
    io::stdout().flush().doing("write", Path::new("standard output"))?;
    child.wait().doing("wait for", Path::new("sleep"))?;
    Err(Error::Missing {
        what: "the load of the held round was killed".into(),
        remedy: "kill weir-bench instead".into(),
    })
}
