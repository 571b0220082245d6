//! The second scene: files made and saved in a directory behind a network, which here is sshfs on this machine with a delay.
//!
//! As in the first scene the sides take turns, and what is compared at the end is what the server has.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};
use crate::measure::{show_us, turn};
use crate::mount::WeirMount;
use crate::stage::{Remote, Run, require_remote};

use super::figures::{Outcome, ROUNDS, Shown, Sides};

const TITLE: &str = "2. A home behind a network: files made and saved over sshfs";

/// Half of the round trip.
const DELAY: Duration = Duration::from_micros(500);
/// In each round.
const FILES: u32 = 40;
const FILE_BYTES: usize = 1024;
const SPACE_BYTES: u64 = 16 << 20;

/// Runs it with its files in `dir`.
pub fn run(weir: &Path, dir: &Path) -> Result<Outcome> {
    if let Err(error) = require_remote() {
        return Ok(Outcome::LeftOut { title: TITLE.into(), why: error.to_string() });
    }
    let begin = Instant::now();
    let space = Run::begin(dir, SPACE_BYTES)?;
    let home = Remote::start(space.ledger(), &space.directory("home")?, DELAY)?;
    let [plain, source] = ["plain", "source"].map(|name| home.mountpoint().join(name));
    for directory in [&plain, &source] {
        fs::create_dir(directory).doing("create", directory)?;
    }
    let mount = WeirMount::start(weir, &source, &space.directory("mount")?, &[])?;
    let (mut made, mut saved) = (Sides::default(), Sides::default());
    for round in 0..ROUNDS {
        for side in turn(round, 2) {
            let (directory, made, saved) = match side {
                0 => (plain.as_path(), &mut made.straight, &mut saved.straight),
                _ => (mount.path(), &mut made.through, &mut saved.through),
            };
            for number in 0..FILES {
                let path = directory.join(format!("file-{round}-{number}"));
                made.time(|| make(&path, round, false))?;
            }
            for number in 0..FILES {
                let path = directory.join(format!("file-{round}-{number}"));
                let new = directory.join("new");
                saved.time(|| {
                    make(&new, round + 1, true)?;
                    fs::rename(&new, &path).doing("rename", &new)
                })?;
            }
        }
    }
    let start = Instant::now();
    mount.unmount()?;
    let unmounting = start.elapsed();
    let files = home.files();
    let [plain, source] = ["plain", "source"].map(|name| contents(&files.join(name)));
    let (plain, source) = (plain?, source?);
    if plain != source {
        return Err(Error::Missing {
            what: "the server has other files from Weir than directly".into(),
            remedy: "report this, with the output of 'weir --version'".into(),
        });
    }
    Ok(Outcome::Shown(Shown {
        title: TITLE.into(),
        what: format!(
            "The round trip takes {}. A saved file is written under another name, synced, and renamed. Weir's sync is durable on this \
             machine; the server gets files and names in the background.",
            show_us(2.0 * DELAY.as_secs_f64() * 1e6)
        ),
        pairs: [made.pairs("new file"), saved.pairs("saved file")].concat(),
        proof: format!(
            "The rest went to the server at the unmount ({:.1} s). The server has the same {} files from both sides.",
            unmounting.as_secs_f64(),
            plain.len()
        ),
        took: begin.elapsed(),
    }))
}

/// Makes a file, and syncs it if `durable`.
fn make(path: &Path, seed: u32, durable: bool) -> Result<()> {
    let mut file = File::create(path).doing("create", path)?;
    file.write_all(&[seed as u8; FILE_BYTES]).doing("write", path)?;
    if durable { file.sync_all().doing("sync", path) } else { Ok(()) }
}

/// Every file of a directory, by its name. What begins with a point is not a program's.
fn contents(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).doing("list", directory)? {
        let entry = entry.doing("list", directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            let content = fs::read(entry.path()).doing("read", &entry.path())?;
            found.insert(name, content);
        }
    }
    Ok(found)
}
