//! What a preloaded library costs a program that does nothing with it: at its start, and with each call on files that
//! are on no mount.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::plan::{Form, calls, wanted};
use super::results::{Case, Figure, Round};
use super::side::{Side, Stand};
use crate::error::{Doing, Error, Result};
use crate::measure::{Latencies, turn};
use crate::mount::run;
use crate::workload::{Call, Calls, Outcome, Where, Workload};

/// The program that does nothing.
const NOTHING: &str = "/bin/true";
/// What a program that uses a mount copies: enough calls that its files are taken up.
const COPY: [&str; 5] = ["if=/dev/zero", "bs=64", "count=32", "conv=notrunc", "status=none"];
/// Rounds that processes are counted in.
const ROUNDS: u32 = 5;

/// Without the library.
pub const PLAIN: &str = "plain";
/// With it.
pub const PRELOADED: &str = "preloaded";
/// Started by `weir run`.
pub const RUN: &str = "weir-run";

/// Measures what of it is asked for.
pub fn measure(
    stand: &Stand,
    form: Form,
    only: &[String],
    mut done: impl FnMut(Case) -> Result<()>,
) -> Result<()> {
    let preloaded = preloaded(stand)?;
    if wanted(only, "start/true") {
        let mut sides = [
            (PLAIN, Command::new(NOTHING)),
            (PRELOADED, Command::new(NOTHING)),
            (RUN, stand.command(Side::Lane, Path::new(NOTHING))),
        ];
        sides[1].1.envs(preloaded.clone());
        done(starts("start/true", form, &mut sides)?)?;
    }
    if wanted(only, "start/copy") {
        fs::write(stand.source().join("copied"), vec![0; 4096])
            .doing("write to", &stand.source())?;
        let mount = stand.mount(None)?;
        let copied = format!("of={}", mount.path().join("copied").display());
        let copy = || {
            let mut command = Command::new("dd");
            command.args(COPY).arg(&copied);
            command
        };
        let mut sides = [(Side::Fuse.name(), copy()), (Side::Lane.name(), copy())];
        sides[1].1.envs(preloaded);
        done(starts("start/copy", form, &mut sides)?)?;
        mount.unmount()?;
    }
    if wanted(only, "off-mount/64") {
        done(off_mount(stand, form)?)?;
    }
    Ok(())
}

/// What `weir run` adds to the environment.
fn preloaded(stand: &Stand) -> Result<Vec<(OsString, OsString)>> {
    let output = run(stand.command(Side::Lane, Path::new("env")).arg("-0"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let added: Vec<(OsString, OsString)> = said
        .split('\0')
        .filter_map(|line| line.split_once('='))
        .filter(|(name, value)| std::env::var_os(name).is_none_or(|own| own != **value))
        .filter(|(name, _)| *name == "LD_PRELOAD" || name.starts_with("WEIR"))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    if added.iter().any(|(name, _)| name == "LD_PRELOAD") {
        return Ok(added);
    }
    Err(Error::answer("weir run -- env", "it sets no LD_PRELOAD"))
}

/// Starts each side's program many times, in turn, and waits for its end.
fn starts(name: &str, form: Form, sides: &mut [(&str, Command)]) -> Result<Case> {
    let mut case = Case::new(name, Figure::Median, sides.iter().map(|(side, _)| *side));
    for (_, command) in &mut *sides {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        start(command)?;
    }
    for _ in 0..ROUNDS {
        let mut latencies = vec![Latencies::new(); sides.len()];
        for round in 0..form.starts / ROUNDS {
            for side in turn(round, sides.len()) {
                latencies[side].note(start(&mut sides[side].1)?);
            }
        }
        for (side, latencies) in case.sides.iter_mut().zip(&latencies) {
            let summary = latencies.summary();
            side.rounds.push(Round {
                ops_per_s: summary.per_second,
                ops: summary.count,
                mean_us: summary.mean_us,
                p50_us: summary.median_us,
                p99_us: summary.p99_us,
                max_us: summary.max_us,
                ..Round::default()
            });
        }
    }
    Ok(case)
}

fn start(command: &mut Command) -> Result<Duration> {
    let program = Path::new(command.get_program()).to_owned();
    let before = Instant::now();
    let status = command.status().doing("run", &program)?;
    let took = before.elapsed();
    if status.success() {
        return Ok(took);
    }
    Err(Error::Command {
        command: program.display().to_string(),
        status: status.to_string(),
        said: "what it said stands above".into(),
    })
}

/// Writes to a file straight on the disk's file system, in memory, with and without the library.
fn off_mount(stand: &Stand, form: Form) -> Result<Case> {
    let workload = Workload::Calls(Calls {
        file_bytes: 16 << 20,
        seconds: form.seconds / 4.0,
        timed_seconds: 0.0,
        seed: 1,
        ..calls(Call::Write, Where::Sequential, 64, form)
    });
    let plain = stand.plain();
    workload.prepare(&plain)?;
    let sides = [(PLAIN, Side::Ext4), (PRELOADED, Side::Lane)];
    let mut case = Case::new("off-mount/64", Figure::Rate, sides.map(|(name, _)| name));
    case.io_bytes = Some(64);
    for round in 0..2 * ROUNDS {
        for side in turn(round, sides.len()) {
            let outcome: Outcome = stand.ask(sides[side].1, "load", &plain, &workload)?;
            case.note(side, &outcome, "write", 0.0)?;
            workload.reset(&plain, &outcome)?;
        }
    }
    Ok(case)
}
