//! What a contestant runs on: an emulated disk with a kernel file system on it, a memory group of
//! the stated size, and, for Weir, a mount of that file system.
//!
//! Owns all of these. The contestants of a stage share the disk, and therefore the files, and take
//! turns: [`Stage::round`] is one turn of one of them.
//!
//! Invariants:
//! 1. The disk is paced while, and only while, a round's closure runs. Preparing, mounting, writing
//!    home what is left, and verifying take the machine's own time and are no part of the figures.
//! 2. A round begins cold: the file system freshly mounted, nothing of it in memory.
//! 3. All a contestant's memory is in one group: the load's processes, the page cache they fill,
//!    and Weir's daemon. The emulated disk's server is in none. Memory groups of this kind have no
//!    bound of their own on dirty pages, and the machine's is that of all its memory, so the disk is
//!    given the bound that a machine of the contestant's memory has: the kernel throttles writers at
//!    a fifth of it.
//! 4. What is made is in the run's ledger before it is made.

mod cgroup;
pub mod clean;
mod counters;
mod emulated;
mod file_system;
pub mod hold;
mod ledger;
mod load;
mod machine;
pub mod over_time;
mod process;
mod remote;
mod run;
mod served;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use serde::de::DeserializeOwned;
use strum::{Display, VariantArray};

use self::cgroup::Group;
use self::over_time::OverTime;
use crate::cleanup::{Undo, undo};
use crate::disk::{Counts, Model};
use crate::error::{Doing, Error, Result};
use crate::mount::WeirMount;

pub use self::counters::Counters;
pub use self::emulated::{Emulated, Pace};
pub use self::ledger::{Listed, Thing};
pub use self::load::run_by as load_by;
pub use self::machine::{require, require_root};
pub use self::process::{Process, wait_for_end};
pub use self::remote::{Remote, require as require_remote};
pub use self::run::Run;
pub use self::served::Served;

/// The kernel's default vm.dirty_ratio: percent of memory that may be dirty before writers are
/// throttled. Write-back begins at half of it, as by vm.dirty_background_ratio.
const DIRTY_PERCENT: u64 = 20;
/// What is set aside of a contestant's memory for processes: the daemon's code and threads, and a
/// load that needs no more.
const PROCESS_BYTES: u64 = 16 << 20;
/// The least `--memory`.
const ENGINE_BYTES_MIN: u64 = 16 << 20;

/// Weir's own default size of a redo log.
pub const LOG_BYTES: u64 = 64 << 20;

/// When Weir reads a page that is written in part; see `weir mount --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Fetch {
    /// The writer waits.
    Blocking,
    /// The writer submits the read.
    AsyncFg,
    /// A worker submits the read.
    AsyncBg,
    /// When something needs the page whole.
    Lazy,
    /// Weir's choice.
    Auto,
}

/// When Weir writes home; see `weir mount --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, ValueEnum)]
#[strum(serialize_all = "kebab-case")]
pub enum WriteBack {
    /// From a fixed share of memory on.
    Static,
    /// Between watermarks that follow the load.
    Adaptive,
}

/// A setting of adaptive write-back that is not its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// How often it looks at the load.
    IntervalMs(u32),
    /// The most it lets become dirty, percent: the paper's h_max.
    DirtyMaxPercent(u8),
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contestant {
    /// ext4 with the kernel's page cache, whose partial writes wait for their page.
    Ext4,
    /// Weir in front of the same ext4.
    Weir(Fetch),
    /// The same with its redo log, beside the files it serves.
    WeirLog,
    /// Weir as it is by default, told when to write home.
    WeirWriteBack(WriteBack),
    /// The same with adaptive write-back and one setting of it.
    WeirAdaptive(Setting),
    /// The same with static write-back that begins at this percentage of memory.
    WeirStatic(u8),
}

impl Contestant {
    /// `ext4`, `weir-lazy`, ...
    pub fn name(self) -> String {
        match self {
            Contestant::Ext4 => "ext4".into(),
            Contestant::Weir(fetch) => format!("weir-{fetch}"),
            Contestant::WeirLog => "weir-log".into(),
            Contestant::WeirWriteBack(policy) => format!("weir-{policy}"),
            Contestant::WeirAdaptive(Setting::IntervalMs(ms)) => format!("weir-every-{ms}-ms"),
            Contestant::WeirAdaptive(Setting::DirtyMaxPercent(most)) => {
                format!("weir-dirty-{most}")
            }
            Contestant::WeirStatic(percent) => format!("weir-background-{percent}"),
        }
    }

    /// When static write-back begins, percent, where that is the contestant's own.
    pub fn background_percent(self) -> Option<u8> {
        match self {
            Contestant::WeirStatic(percent) => Some(percent),
            _ => None,
        }
    }

    /// The options of `weir mount` that only this contestant has; `None` if it is not Weir.
    pub fn mount_options(self) -> Option<Vec<String>> {
        let options =
            |fetch: Fetch, log: &str| vec![format!("--fetch={fetch}"), format!("--log={log}")];
        match self {
            Contestant::Ext4 => None,
            Contestant::Weir(fetch) => Some(options(fetch, "none")),
            Contestant::WeirLog => Some(options(Fetch::Auto, "source")),
            Contestant::WeirWriteBack(policy) => {
                let mut all = options(Fetch::Auto, "auto");
                all.push(format!("--write-back={policy}"));
                Some(all)
            }
            Contestant::WeirAdaptive(setting) => {
                let mut all = Contestant::WeirWriteBack(WriteBack::Adaptive).mount_options()?;
                all.push(match setting {
                    Setting::IntervalMs(ms) => format!("--write-back-interval={ms}ms"),
                    Setting::DirtyMaxPercent(most) => format!("--dirty-max={most}"),
                });
                Some(all)
            }
            Contestant::WeirStatic(percent) => {
                let mut all = Contestant::WeirWriteBack(WriteBack::Static).mount_options()?;
                all.push(format!("--dirty-background={percent}"));
                Some(all)
            }
        }
    }
}

/// The `--memory` that Weir gets where a contestant gets so much.
///
/// Three quarters of what the processes leave; the page cache of the mount gets the rest, and
/// gives way. What programs write is kept by Weir alone, so all that may be dirty is in its
/// share. What they read is kept by both, and the page cache answers without the daemon.
pub fn engine_bytes(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_sub(PROCESS_BYTES) / 4 * 3
}

/// What all contestants of a stage get alike.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The disk.
    pub disk: Model,
    /// Its size.
    pub disk_bytes: u64,
    /// Memory of a contestant, everything in it.
    pub memory_bytes: u64,
    /// What the load's processes take of it, if that is much.
    pub process_bytes: u64,
    /// Of Weir's memory, what patches may use.
    pub patch_bytes: u64,
    /// Size of Weir's redo log, for the contestant that has one.
    pub log_bytes: u64,
    /// Whether other users than root must get at the files.
    pub other_users: bool,
    /// The weir program.
    pub weir: PathBuf,
    /// Whether what happens over the time of a round is kept.
    pub over_time: bool,
    /// How long one load may take.
    pub limit: Duration,
}

impl Terms {
    /// The `--memory` that Weir gets of the contestant's memory.
    pub fn engine_bytes(&self) -> u64 {
        engine_bytes(self.memory_bytes.saturating_sub(self.process_bytes))
    }

    /// Fails if Weir cannot run on them.
    fn check(&self) -> Result<()> {
        if self.engine_bytes() < ENGINE_BYTES_MIN {
            let least = PROCESS_BYTES + self.process_bytes + ENGINE_BYTES_MIN.div_ceil(3) * 4;
            return Err(Error::Missing {
                what: format!("{} MiB of memory are too few for Weir", self.memory_bytes >> 20),
                remedy: format!("give the contestants at least {} MiB", (least >> 20) + 1),
            });
        }
        if self.patch_bytes > self.engine_bytes() / 2 {
            return Err(Error::Missing {
                what: format!("{} KiB of patch memory are too many", self.patch_bytes >> 10),
                remedy: format!("give at most {} KiB", self.engine_bytes() >> 11),
            });
        }
        Ok(())
    }
}

/// What was seen of one round.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Requests to the disk during the closure.
    pub device: Counts,
    /// Requests to the disk after it, until everything was home: what the closure left to be
    /// written, and the file system's unmounting and mounting.
    pub left: Counts,
    /// Weir's counts during the closure.
    pub weir: Option<Counters>,
    /// The most memory the contestant held, page cache included.
    pub peak_bytes: u64,
    /// If [`Terms::over_time`] says so.
    pub over_time: Option<OverTime>,
}

/// An emulated disk, prepared for rounds. Everything is taken down when this goes.
pub struct Stage {
    emulated: Emulated,
    home: PathBuf,
    work: PathBuf,
    scratch: PathBuf,
    ledger: ledger::Ledger,
    terms: Terms,
    rounds: Cell<u32>,
}

impl Stage {
    /// Makes the disk, unpaced, and an empty ext4 on it.
    pub fn new(run: &Run, terms: Terms) -> Result<Stage> {
        terms.check()?;
        let ledger = run.ledger().clone();
        let work = run.directory(&format!("stage-{}", run.next_stage()))?;
        let dirty_bytes = terms.memory_bytes / 100 * DIRTY_PERCENT;
        let emulated =
            Emulated::start(&ledger, terms.disk, terms.disk_bytes, Some(dirty_bytes), &work)?;
        let (home, scratch) = (emulated.mountpoint().join("home"), work.join("scratch"));
        for path in [&home, &scratch] {
            fs::create_dir(path).doing("create", path)?;
        }
        Ok(Stage { emulated, home, scratch, work, ledger, terms, rounds: Cell::new(0) })
    }

    /// The directory, on the emulated disk's file system, that the contestants share.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// One turn of one contestant: everything cold, the contestant ready, the disk paced, then
    /// `act`; then everything written home and taken down, without delays.
    pub fn round<T>(
        &self,
        contestant: Contestant,
        act: impl FnOnce(&Arena<'_>) -> Result<T>,
    ) -> Result<(T, Observed)> {
        let arena = self.enter(contestant)?;
        let earlier = arena.counters()?;
        let before = self.emulated.disk().counts()?;
        let pace = self.emulated.pace()?;
        let (acted, seen) = match self.terms.over_time {
            true => {
                let (acted, seen) = over_time::watched(self.emulated.disk(), || act(&arena));
                (acted, Some(seen))
            }
            false => (act(&arena), None),
        };
        let after = self.emulated.disk().counts();
        drop(pace);
        let value = arena.judge(acted)?;
        let weir = match (arena.counters()?, earlier) {
            (Some(later), Some(earlier)) => Some(later - earlier),
            _ => None,
        };
        if let Some(failed) = weir.map(|counts| counts.errors()).filter(|errors| *errors > 0) {
            return Err(Error::Different(format!("{failed} of Weir's requests home failed")));
        }
        let peak_bytes = arena.group.peak_bytes();
        arena.leave()?;
        let recorded = seen.is_some() && weir.is_some();
        let record = recorded.then(|| over_time::read(&self.record())).transpose()?;
        let over_time = seen.map(|seen| OverTime { weir: record.unwrap_or_default(), ..seen });
        let after = after?;
        let left = self.emulated.disk().counts()? - after;
        Ok((value, Observed { device: after - before, left, weir, peak_bytes, over_time }))
    }

    fn enter(&self, contestant: Contestant) -> Result<Arena<'_>> {
        self.emulated.make_cold()?;
        self.rounds.set(self.rounds.get() + 1);
        let name = format!("{}-{}", contestant.name(), self.rounds.get());
        let group = Group::new(&self.ledger, &name, self.terms.memory_bytes)?;
        let options = contestant.mount_options();
        let weir = options.map(|options| self.mount(options, &group)).transpose()?;
        // After the mount: a signal has the newest undone first, and what is not home is not worth
        // waiting for.
        let abandon = {
            let (disk, group) = (self.emulated.disk().clone(), group.path().to_owned());
            undo(move || {
                let _ = disk.set_paced(false);
                cgroup::kill_all_in(&group);
            })
        };
        Ok(Arena { abandon, weir, group, stage: self })
    }

    /// Where Weir's mounts are recorded, one after the other.
    fn record(&self) -> PathBuf {
        self.work.join("record.jsonl")
    }

    fn mount(&self, own: Vec<String>, group: &Group) -> Result<Served> {
        let log = self.work.join("weir.log");
        let options = [
            format!("--memory={}", self.terms.engine_bytes()),
            format!("--patch-memory={}", self.terms.patch_bytes),
            format!("--log-size={}", self.terms.log_bytes),
            format!("--log-file={}", log.display()),
        ];
        let mut options: Vec<_> = options.iter().chain(&own).map(String::as_str).collect();
        if self.terms.other_users {
            options.push("--allow-other");
        }
        let record = format!("--record={}", self.record().display());
        if self.terms.over_time {
            options.push(&record);
        }
        let (weir, mountpoint) = (&self.terms.weir, self.work.join("weir"));
        Served::start(&self.ledger, weir, &self.home, &mountpoint, &options, |command| {
            group.admit(command)
        })
    }
}

/// Where the contestant whose turn it is runs.
pub struct Arena<'a> {
    // In this order: if the round failed, the daemon is killed and nothing waits for it.
    abandon: Undo,
    weir: Option<Served>,
    group: Group,
    stage: &'a Stage,
}

impl Arena<'_> {
    /// Where the contestant sees the files of [`Stage::home`].
    pub fn directory(&self) -> &Path {
        self.weir.as_ref().map_or(self.stage.home(), |weir| weir.mount().path())
    }

    /// Runs `workload` by `weir-bench load` in the contestant's memory, and returns its outcome.
    pub fn load<W: Serialize, O: DeserializeOwned>(&self, workload: &W) -> Result<O> {
        let (directory, scratch) = (self.directory(), &self.stage.scratch);
        load::run(&self.group, directory, scratch, workload, self.stage.terms.limit)
    }

    /// Weir's mount, if the contestant has one.
    pub fn mount(&self) -> Option<&WeirMount> {
        self.weir.as_ref().map(Served::mount)
    }

    fn counters(&self) -> Result<Option<Counters>> {
        self.weir.as_ref().map(|weir| weir.mount().status()?.part("stats")).transpose()
    }

    /// What the closure said, unless the contestant had been deprived of a process.
    fn judge<T>(&self, acted: Result<T>) -> Result<T> {
        if self.group.killed() > 0 {
            return Err(Error::Missing {
                what: format!("a contestant ran out of its memory ({})", self.group.account()),
                remedy: "give the contestants more memory".into(),
            });
        }
        acted
    }

    /// Has everything written to the disk, and takes the contestant down. Whoever verifies the
    /// files reads them from the disk then, and not from what the contestant left in memory.
    fn leave(self) -> Result<()> {
        if let Some(weir) = self.weir {
            weir.unmount()?;
        }
        self.abandon.disarm();
        self.group.remove()?;
        self.stage.emulated.make_cold()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(memory_bytes: u64, patch_bytes: u64) -> Terms {
        Terms {
            disk: Model::None,
            disk_bytes: 1 << 30,
            memory_bytes,
            process_bytes: 0,
            patch_bytes,
            log_bytes: LOG_BYTES,
            other_users: false,
            weir: "weir".into(),
            over_time: false,
            limit: Duration::from_secs(1),
        }
    }

    #[test]
    fn contestants_have_the_names_of_the_results() {
        let names = [Contestant::Ext4, Contestant::Weir(Fetch::AsyncBg)].map(Contestant::name);
        assert_eq!(names, ["ext4", "weir-async-bg"]);
        let adaptive = Contestant::WeirWriteBack(WriteBack::Adaptive);
        assert_eq!(adaptive.name(), "weir-adaptive");
        let options = adaptive.mount_options().unwrap();
        assert_eq!(options, ["--fetch=auto", "--log=auto", "--write-back=adaptive"]);
        assert!(Contestant::Ext4.mount_options().is_none());
        let often = Contestant::WeirAdaptive(Setting::IntervalMs(100));
        assert_eq!(often.name(), "weir-every-100-ms");
        let options = often.mount_options().unwrap();
        assert_eq!(options[2..], ["--write-back=adaptive", "--write-back-interval=100ms"]);
        let early = Contestant::WeirStatic(5);
        assert_eq!(
            (early.name().as_str(), early.background_percent()),
            ("weir-background-5", Some(5))
        );
        let options = early.mount_options().unwrap();
        assert_eq!(options[2..], ["--write-back=static", "--dirty-background=5"]);
    }

    #[test]
    fn the_daemon_and_the_page_cache_share_what_a_contestant_has() {
        let whole = terms(4 << 30, 64 << 20);
        whole.check().unwrap();
        assert_eq!(whole.engine_bytes(), (3 << 30) - (12 << 20));
        terms(38 << 20, 1 << 20).check().unwrap();
        let compiling = Terms { process_bytes: 192 << 20, ..terms(256 << 20, 1 << 20) };
        assert_eq!(compiling.engine_bytes(), 36 << 20);
        let error = terms(37 << 20, 1 << 20).check().unwrap_err().to_string();
        assert!(error.ends_with("at least 38 MiB"), "{error}");
        assert!(terms(256 << 20, 96 << 20).check().is_err());
    }
}
