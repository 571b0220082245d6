//! The first scene: small writes and SQLite on files that are not in memory, on an emulated hard disk.
//!
//! Both directories are on the same disk and start equal and cold. Nothing is read from the mount when comparing: what counts is
//! what the disk has once the mount has ended.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cold::{make_cold, make_file};
use crate::error::{Doing, Result};
use crate::measure::turn;
use crate::mount::{Status, WeirMount};
use crate::page::PAGE;
use crate::sqlite_shell::{self, Shell};
use crate::stage::{Run, Served, require as require_disks};
use crate::updates::Plan;

use super::figures::{Outcome, Pair, ROUNDS, Shown, Sides, Unit};
use super::hard_disk::hard_disk;
use super::sqlite;

const TITLE: &str = "1. A hard disk: records and SQLite, none of it in memory";
const SEED: u64 = 2024;
const FILE_BYTES: u64 = 64 << 20;
const SPACE_BYTES: u64 = 512 << 20;
const STEPS_A_ROUND_MAX: u32 = 400;
const ROUND_TIME: Duration = Duration::from_millis(1200);
const TRANSACTIONS_A_ROUND: u64 = 8;

/// Runs it with its files in `dir`.
pub fn run(weir: &Path, dir: &Path) -> Result<Outcome> {
    if let Err(error) = require_disks().and_then(|()| sqlite_shell::require()) {
        return Ok(Outcome::LeftOut { title: TITLE.into(), why: error.to_string() });
    }
    let start = Instant::now();
    let space = Run::new(dir, SPACE_BYTES)?;
    let disk = hard_disk(&space)?;
    let files = Files::make(disk.mountpoint(), space.directory("scripts")?)?;
    disk.make_cold()?;
    let paced = disk.pace()?;
    let served = Served::start(
        space.ledger(),
        weir,
        &files.source,
        &space.directory("mount")?,
        &[],
        |_| Ok(()),
    )?;
    let mount = served.mount();

    let plan = Plan::new(SEED, (FILE_BYTES / PAGE) as u32);
    let (records, waited, steps) = compare_updates(&plan, &files, mount)?;
    let mut shells = Shells::start(&files, mount)?;
    let transactions = shells.compare(&files)?;
    shells.end()?;
    let unmounting = Instant::now();
    served.unmount()?;
    let unmounting = unmounting.elapsed();
    drop(paced);

    make_cold(&files.all())?;
    let mut compared = plan.verify(&files.plain.data, steps)?;
    compared += plan.verify(&files.home.data, steps)?;
    compared += sqlite::verify(&files.plain.database, &files.home.database)?;

    let mut pairs = Vec::from(records.pairs("small write"));
    pairs.push(waited);
    // There are too few for a percentile.
    let [median, _] = transactions.pairs("SQLite transaction");
    pairs.push(median);
    Ok(Outcome::Shown(Shown {
        title: TITLE.into(),
        what: format!(
            "A program changes a few bytes in pages that it has not met; SQLite runs transactions of {} UPDATEs and {} INSERTs, its \
             journal in memory. The kernel reads each page before it takes the bytes; Weir keeps them as a patch and reads later.",
            sqlite::UPDATES,
            sqlite::INSERTS
        ),
        pairs,
        proof: format!(
            "Unmounted in {:.1} s, {} MiB compared with what was written, straight from the disk: every byte is there, and SQLite \
             finds its databases sound and equal.",
            unmounting.as_secs_f64(),
            compared >> 20
        ),
        took: start.elapsed(),
    }))
}

/// The two files of one side.
struct Two {
    data: PathBuf,
    database: PathBuf,
}

impl Two {
    fn of(directory: &Path) -> Two {
        Two { data: directory.join("records"), database: directory.join("accounts.db") }
    }
}

struct Files {
    /// What Weir serves.
    source: PathBuf,
    /// The files in it.
    home: Two,
    /// Where SQLite's scripts are.
    scripts: PathBuf,
    /// The files of the side without Weir.
    plain: Two,
}

impl Files {
    /// Makes them: equal on both sides, and on the disk.
    fn make(disk: &Path, scripts: PathBuf) -> Result<Files> {
        let [plain, source] = ["plain", "source"].map(|name| disk.join(name));
        for directory in [&plain, &source] {
            fs::create_dir(directory).doing("create", directory)?;
        }
        let (plain, home) = (Two::of(&plain), Two::of(&source));
        for path in [&plain.data, &home.data] {
            make_file(path, SEED, FILE_BYTES / PAGE)?;
        }
        sqlite::make_database(&plain.database)?;
        fs::copy(&plain.database, &home.database).doing("copy to", &home.database)?;
        Ok(Files { source, scripts, home, plain })
    }

    fn all(&self) -> [&Path; 4] {
        [&self.plain.data, &self.home.data, &self.plain.database, &self.home.database]
    }
}

/// Runs the update program on both sides in turn; also how often it waited for a page, and how many of the plan's steps were run.
fn compare_updates(plan: &Plan, files: &Files, mount: &WeirMount) -> Result<(Sides, Pair, u32)> {
    let mounted = Two::of(mount.path());
    let open = |path: &Path| OpenOptions::new().write(true).open(path).doing("open", path);
    let (plain, through) = (open(&files.plain.data)?, open(&mounted.data)?);
    let most = (plan.steps() / ROUNDS - 200).min(STEPS_A_ROUND_MAX);
    let (mut at, steps) = plan.calibrate(&plain, &files.plain.data, 0, ROUND_TIME, most)?;
    plan.run(&through, &mounted.data, 0..at)?;
    let blocked = |status: Status| status.get("writers_blocked_fetch");
    let before = blocked(mount.status()?)?;
    let mut sides = Sides::default();
    let mut waited = 0;
    for round in 0..ROUNDS {
        let range = at..at + steps;
        for side in turn(round, 2) {
            if side == 0 {
                let run = plan.run(&plain, &files.plain.data, range.clone())?;
                sides.straight.add(&run.writes);
                waited += run.pages_read;
            } else {
                let run = plan.run(&through, &mounted.data, range.clone())?;
                sides.through.add(&run.writes);
            }
        }
        at += steps;
    }
    let blocked = blocked(mount.status()?)? - before;
    let waited = Pair::new(
        "page reads that a small write waited for",
        Unit::Count,
        waited as f64,
        blocked as f64,
    );
    Ok((sides, waited, at))
}

/// SQLite's shell on either side.
struct Shells {
    plain: Shell,
    through: Shell,
}

impl Shells {
    fn start(files: &Files, mount: &WeirMount) -> Result<Shells> {
        let plain = Shell::start(&files.plain.database)?;
        let through = Shell::start(&Two::of(mount.path()).database)?;
        Ok(Shells { plain, through })
    }

    /// Runs transactions on both sides in turn.
    fn compare(&mut self, files: &Files) -> Result<Sides> {
        for shell in [&mut self.plain, &mut self.through] {
            shell.tell(sqlite::PRAGMAS)?;
        }
        let mut sides = Sides::default();
        for round in 0..ROUNDS {
            let first = u64::from(round) * TRANSACTIONS_A_ROUND;
            // A file of its own: a shell may still be about to meet the end of the last one.
            let script = files.scripts.join(format!("from-{first}.sql"));
            sqlite::write_script(&script, SEED, first..first + TRANSACTIONS_A_ROUND)?;
            for side in turn(round, 2) {
                let (shell, latencies) = match side {
                    0 => (&mut self.plain, &mut sides.straight),
                    _ => (&mut self.through, &mut sides.through),
                };
                let note = |latency| latencies.note(latency);
                shell.run_script(&script, TRANSACTIONS_A_ROUND, note)?;
            }
        }
        Ok(sides)
    }

    fn end(self) -> Result<()> {
        self.plain.end()?;
        self.through.end()
    }
}
