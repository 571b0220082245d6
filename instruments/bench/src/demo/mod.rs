//! The demo: the same programs straight on a directory and through a mount of one, side by side,
//! then every byte compared. The second scene ([`network`]) is in a directory behind a network, the third ([`session`])
//! is a program that syncs.
//!
//! Both directories are on the same disk and start equal and cold. The sides take turns, so that
//! whatever else the machine does meets both. Nothing is read from the mount when comparing: what
//! counts is what is in SOURCE once it is unmounted.

mod comparison;
mod network;
mod screen;
mod session;
mod sqlite;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use strum::VariantArray;

use crate::cold::{free_bytes, make_cold, make_file};
use crate::error::{Doing, Error, Result};
use crate::measure::turn;
use crate::mount::{Status, WeirMount, require_fuse};
use crate::page::PAGE;
use crate::sqlite_shell::{self, Shell};
use crate::updates::Plan;
use crate::workspace::Workspace;

use self::comparison::{Comparison, ROUNDS};
use self::sqlite::Journal;

const SEED: u64 = 2024;
const FILE_BYTES: u64 = 512 << 20;
const FILE_BYTES_SMALL: u64 = 128 << 20;
const DATABASE_BYTES: u64 = 128 << 20;
const STEPS_A_ROUND_MAX: u32 = 6000;
const ROUND_TIME: Duration = Duration::from_secs(2);
const TRANSACTIONS_A_ROUND: u64 = 60;

/// A part of the demo, with a directory of its own that is gone before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, VariantArray)]
pub enum Scene {
    /// Small writes and SQLite on files that are not in memory.
    Cold,
    /// Files made and saved behind a network.
    Network,
    /// A program that syncs, in a session.
    Session,
}

/// Runs the demo, or one scene of it, with its files in `dir`. An error if anything failed or a byte differs.
pub fn run(weir: &Path, dir: &Path, only: Option<Scene>) -> Result<()> {
    check_needs(weir)?;
    for scene in Scene::VARIANTS.iter().filter(|scene| only.is_none_or(|only| only == **scene)) {
        match scene {
            Scene::Cold => cold(weir, dir),
            Scene::Network => network::run(weir, dir),
            Scene::Session => session::run(weir, dir),
        }?;
    }
    Ok(())
}

fn cold(weir: &Path, dir: &Path) -> Result<()> {
    let start = Instant::now();
    fs::create_dir_all(dir).doing("create", dir)?;
    let bytes_of = |file_bytes| 2 * (file_bytes + DATABASE_BYTES);
    let roomy = free_bytes(dir)? > bytes_of(FILE_BYTES) + (1 << 30);
    let file_bytes = if roomy { FILE_BYTES } else { FILE_BYTES_SMALL };
    let space = Workspace::new(dir, bytes_of(file_bytes))?;
    let files = Files::make(&space, file_bytes)?;
    screen::introduction(file_bytes, fs::metadata(&files.plain.database), start.elapsed());

    let mount = WeirMount::start(weir, &files.source, &space.path().join("mount"), &[])?;
    let plan = Plan::new(SEED, (file_bytes / PAGE) as u32);
    let (updates, steps) = compare_updates(&plan, &files, &mount)?;
    screen::updates(&updates);
    let mut shells = Shells::start(&files, &mount)?;
    let [memory, write_ahead] = [Journal::Memory, Journal::WriteAhead];
    screen::sqlite(
        &shells.compare(&files, &mount, memory)?,
        u64::from(ROUNDS) * TRANSACTIONS_A_ROUND,
    );
    screen::sqlite_write_ahead(&shells.compare(&files, &mount, write_ahead)?);
    shells.end()?;
    mount.unmount()?;

    make_cold(&files.all())?;
    let mut compared = plan.verify(&files.plain.data, steps)?;
    compared += plan.verify(&files.home.data, steps)?;
    compared += sqlite::verify(&files.plain.database, &files.home.database)?;
    screen::verdict(compared, start.elapsed());
    Ok(())
}

fn check_needs(weir: &Path) -> Result<()> {
    if !weir.is_file() {
        return Err(Error::Missing {
            what: format!("there is no weir program at {}", weir.display()),
            remedy: "build it with 'cargo build --release'".into(),
        });
    }
    require_fuse()?;
    sqlite_shell::require()
}

/// The two files of one side.
struct Pair {
    data: PathBuf,
    database: PathBuf,
}

impl Pair {
    fn of(directory: &Path) -> Pair {
        Pair { data: directory.join("records"), database: directory.join("accounts.db") }
    }
}

struct Files {
    /// What Weir serves.
    source: PathBuf,
    /// The files in it.
    home: Pair,
    /// Where SQLite's scripts are.
    scripts: PathBuf,
    /// The files of the side without Weir.
    plain: Pair,
}

impl Files {
    /// Makes them: equal on both sides, on the disk, and not in memory.
    fn make(space: &Workspace, file_bytes: u64) -> Result<Files> {
        let source = space.directory("source")?;
        let plain = Pair::of(&space.directory("plain")?);
        let home = Pair::of(&source);
        for path in [&plain.data, &home.data] {
            make_file(path, SEED, file_bytes / PAGE)?;
        }
        sqlite::make_database(&plain.database)?;
        fs::copy(&plain.database, &home.database).doing("copy to", &home.database)?;
        let scripts = space.directory("scripts")?;
        let files = Files { source, scripts, home, plain };
        make_cold(&files.all())?;
        Ok(files)
    }

    fn all(&self) -> [&Path; 4] {
        [&self.plain.data, &self.home.data, &self.plain.database, &self.home.database]
    }
}

/// Runs the update program on both sides in turn; also how many of the plan's steps were run.
fn compare_updates(plan: &Plan, files: &Files, mount: &WeirMount) -> Result<(Comparison, u32)> {
    let mounted = Pair::of(mount.path());
    let open = |path: &Path| OpenOptions::new().write(true).open(path).doing("open", path);
    let (plain, through) = (open(&files.plain.data)?, open(&mounted.data)?);
    let most = (plan.steps() / ROUNDS - 200).min(STEPS_A_ROUND_MAX);
    let (mut at, steps) = plan.calibrate(&plain, &files.plain.data, 0, ROUND_TIME, most)?;
    plan.run(&through, &mounted.data, 0..at)?;

    let mut comparison = Comparison::default();
    for round in 0..ROUNDS {
        let range = at..at + steps;
        for side in turn(round, 2) {
            if side == 0 {
                let run = plan.run(&plain, &files.plain.data, range.clone())?;
                let side = &mut comparison.straight;
                side.operations.add(&run.writes);
                side.waited += run.pages_read;
                side.syncs.push(seconds(|| plain.sync_data()).doing("sync", &files.plain.data)?);
            } else {
                let before = Counters::of(&mount.status()?)?;
                let run = plan.run(&through, &mounted.data, range.clone())?;
                let after = Counters::of(&mount.status()?)?;
                let side = &mut comparison.through;
                side.operations.add(&run.writes);
                side.waited += after.waited - before.waited;
                comparison.blocked += after.blocked - before.blocked;
                side.syncs.push(seconds(|| through.sync_data()).doing("sync", &mounted.data)?);
                side.avoided += Counters::of(&mount.status()?)?.avoided - before.avoided;
            }
        }
        at += steps;
    }
    Ok((comparison, at))
}

/// SQLite's shell on either side, and the number of the next transaction.
struct Shells {
    plain: Shell,
    through: Shell,
    next: u64,
}

impl Shells {
    fn start(files: &Files, mount: &WeirMount) -> Result<Shells> {
        let plain = Shell::start(&files.plain.database)?;
        let through = Shell::start(&Pair::of(mount.path()).database)?;
        Ok(Shells { plain, through, next: 0 })
    }

    /// Runs transactions on both sides in turn.
    fn compare(
        &mut self,
        files: &Files,
        mount: &WeirMount,
        journal: Journal,
    ) -> Result<Comparison> {
        for shell in [&mut self.plain, &mut self.through] {
            shell.tell(journal.pragmas())?;
            shell.tell("PRAGMA cache_size = -2000;")?;
        }
        let before = Counters::of(&mount.status()?)?;
        let read_before = self.plain.pages_read();
        let mut comparison = Comparison::default();
        for round in 0..ROUNDS {
            let numbers = self.next..self.next + TRANSACTIONS_A_ROUND;
            self.next = numbers.end;
            // A file of its own: a shell may still be about to meet the end of the last one.
            let script = files.scripts.join(format!("from-{}.sql", numbers.start));
            sqlite::write_script(&script, SEED, numbers)?;
            for side in turn(round, 2) {
                let (shell, side) = match side {
                    0 => (&mut self.plain, &mut comparison.straight),
                    _ => (&mut self.through, &mut comparison.through),
                };
                let note = |latency| side.operations.note(latency);
                shell.run_script(&script, TRANSACTIONS_A_ROUND, note)?;
            }
        }
        let after = Counters::of(&mount.status()?)?;
        comparison.straight.waited = self.plain.pages_read() - read_before;
        comparison.through.waited = after.waited - before.waited;
        comparison.through.avoided = after.avoided - before.avoided;
        comparison.blocked = after.blocked - before.blocked;
        Ok(comparison)
    }

    fn end(self) -> Result<()> {
        self.plain.end()?;
        self.through.end()
    }
}

/// What Weir counts that the demo shows.
struct Counters {
    waited: u64,
    avoided: u64,
    blocked: u64,
}

impl Counters {
    fn of(status: &Status) -> Result<Counters> {
        Ok(Counters {
            waited: status.get("fetches_waited")?,
            avoided: status.get("fetches_avoided")?,
            blocked: status.get("writers_blocked_fetch")?,
        })
    }
}

fn seconds<E>(
    operation: impl FnOnce() -> std::result::Result<(), E>,
) -> std::result::Result<f64, E> {
    let start = Instant::now();
    operation()?;
    Ok(start.elapsed().as_secs_f64())
}
