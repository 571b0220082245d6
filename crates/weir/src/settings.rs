//! The settings of a mount: layers (command line, configuration files) that are merged and checked once.

use std::path::PathBuf;
use std::time::Duration;

use tracing::Level;
use weir_engine::{Config, FetchPolicy, Order, WriteBackPolicy};
use weir_fuse::Transport;

use crate::bucket::BucketOptions;
use crate::http::ListenAddress;
use crate::lane_users::LaneUsers;
use crate::machine;
use crate::quantity::Size;

/// The default write-back policy. The engine's own default is the baseline of comparisons.
const WRITE_BACK_DEFAULT: WriteBackPolicy = WriteBackPolicy::Adaptive;

/// Default size of a redo log, bytes.
const LOG_BYTES_DEFAULT: u64 = 64 << 20;

/// The smallest useful redo log, bytes.
pub const LOG_BYTES_MIN: u64 = 1 << 20;

/// The smallest redo log of a mount that logs everything, bytes.
pub const ORDERED_LOG_BYTES_MIN: u64 = 16 << 20;

/// The place of the redo log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogChoice {
    /// In SOURCE if a log can be made there, otherwise none.
    #[default]
    Auto,
    /// No log: every fsync brings its file home.
    None,
    /// In SOURCE, while it is mounted.
    Source,
    /// In a file or on a block device of its own.
    At(PathBuf),
}

impl std::str::FromStr for LogChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<LogChoice, String> {
        match text {
            "auto" => Ok(LogChoice::Auto),
            "none" => Ok(LogChoice::None),
            "source" => Ok(LogChoice::Source),
            path if path.starts_with('/') => Ok(LogChoice::At(path.into())),
            _ => Err("give 'auto', 'none', 'source', or the absolute path of a file or device"
                .to_owned()),
        }
    }
}

/// The transport; `None` takes the best that the kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportChoice(pub Option<Transport>);

impl std::str::FromStr for TransportChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<TransportChoice, &'static str> {
        match text {
            "auto" => Ok(TransportChoice(None)),
            "device" => Ok(TransportChoice(Some(Transport::Device))),
            "io-uring" => Ok(TransportChoice(Some(Transport::IoUring))),
            _ => Err("give 'auto', 'device' or 'io-uring'"),
        }
    }
}

/// What a change of a name or an attribute waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesChoice {
    /// Home.
    Sync,
    /// Nothing: home gets it in the background.
    Behind,
    /// As `Behind`, and changes are in the redo log: a sync does not wait for home. On a mount without a log, `Sync`.
    Log,
}

impl std::str::FromStr for NamesChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<NamesChoice, &'static str> {
        match text {
            "sync" => Ok(NamesChoice::Sync),
            "behind" => Ok(NamesChoice::Behind),
            "log" => Ok(NamesChoice::Log),
            _ => Err("give 'sync', 'behind' or 'log'"),
        }
    }
}

/// One layer of settings; `None` leaves a setting to the layers below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// SOURCE, of a mount point's table in a configuration file.
    pub source: Option<PathBuf>,
    /// `--fetch`.
    pub fetch: Option<FetchPolicy>,
    /// `--memory`.
    pub memory: Option<Size>,
    /// `--patch-memory`.
    pub patch_memory: Option<Size>,
    /// `--dirty-expire`.
    pub dirty_expire: Option<Duration>,
    /// `--write-back`.
    pub write_back: Option<WriteBackPolicy>,
    /// `--write-back-interval`.
    pub write_back_interval: Option<Duration>,
    /// `--lane`.
    pub lane: Option<bool>,
    /// `--lane-users`.
    pub lane_users: Option<LaneUsers>,
    /// `--dirty-max`, percent.
    pub dirty_max: Option<u8>,
    /// `--dirty-background`, percent.
    pub dirty_background: Option<u8>,
    /// `--allow-other`.
    pub allow_other: Option<bool>,
    /// `--read-only`.
    pub read_only: Option<bool>,
    /// `--no-recovery`.
    pub no_recovery: Option<bool>,
    /// `-o direct_io`.
    pub direct_io: Option<bool>,
    /// `-o fsname=`.
    pub fsname: Option<String>,
    /// `-o entry_timeout=`.
    pub entry_timeout: Option<Duration>,
    /// `-o negative_timeout=`.
    pub negative_timeout: Option<Duration>,
    /// `-o attr_timeout=`.
    pub attr_timeout: Option<Duration>,
    /// `-o dev`, `nodev`.
    pub dev: Option<bool>,
    /// `-o suid`, `nosuid`.
    pub suid: Option<bool>,
    /// `-o exec`, `noexec`.
    pub exec: Option<bool>,
    /// `-o atime`, `noatime`.
    pub atime: Option<bool>,
    /// `--transport`.
    pub transport: Option<TransportChoice>,
    /// `--names`.
    pub names: Option<NamesChoice>,
    /// `--order`.
    pub order: Option<Order>,
    /// `--commit`.
    pub commit: Option<Duration>,
    /// `--log`.
    pub log: Option<LogChoice>,
    /// `--log-size`.
    pub log_size: Option<Size>,
    /// `--log-level`.
    pub log_level: Option<Level>,
    /// `--log-file`.
    pub log_file: Option<PathBuf>,
    /// `--record`.
    pub record: Option<PathBuf>,
    /// `--metrics`.
    pub metrics: Option<ListenAddress>,
    /// `--endpoint` and the others of a bucket.
    pub bucket: BucketOptions,
}

impl Layer {
    /// This layer's settings, and those of `below` where it has none.
    ///
    /// A layer that chooses a write-back policy drops the settings of the other policy from below.
    pub fn over(self, below: Layer) -> Layer {
        let below = match self.write_back {
            Some(WriteBackPolicy::Static) => {
                Layer { write_back_interval: None, dirty_max: None, ..below }
            }
            Some(WriteBackPolicy::Adaptive) => Layer { dirty_background: None, ..below },
            None => below,
        };
        Layer {
            source: self.source.or(below.source),
            fetch: self.fetch.or(below.fetch),
            memory: self.memory.or(below.memory),
            patch_memory: self.patch_memory.or(below.patch_memory),
            dirty_expire: self.dirty_expire.or(below.dirty_expire),
            write_back: self.write_back.or(below.write_back),
            write_back_interval: self.write_back_interval.or(below.write_back_interval),
            lane: self.lane.or(below.lane),
            lane_users: self.lane_users.or(below.lane_users),
            dirty_max: self.dirty_max.or(below.dirty_max),
            dirty_background: self.dirty_background.or(below.dirty_background),
            allow_other: self.allow_other.or(below.allow_other),
            read_only: self.read_only.or(below.read_only),
            no_recovery: self.no_recovery.or(below.no_recovery),
            direct_io: self.direct_io.or(below.direct_io),
            fsname: self.fsname.or(below.fsname),
            entry_timeout: self.entry_timeout.or(below.entry_timeout),
            negative_timeout: self.negative_timeout.or(below.negative_timeout),
            attr_timeout: self.attr_timeout.or(below.attr_timeout),
            dev: self.dev.or(below.dev),
            suid: self.suid.or(below.suid),
            exec: self.exec.or(below.exec),
            atime: self.atime.or(below.atime),
            transport: self.transport.or(below.transport),
            names: self.names.or(below.names),
            order: self.order.or(below.order),
            commit: self.commit.or(below.commit),
            log: self.log.or(below.log),
            log_size: self.log_size.or(below.log_size),
            log_level: self.log_level.or(below.log_level),
            log_file: self.log_file.or(below.log_file),
            record: self.record.or(below.record),
            metrics: self.metrics.or(below.metrics),
            bucket: self.bucket.over(below.bucket),
        }
    }

    /// Fills in the defaults and checks the bounds against each other.
    pub fn resolve(self) -> Result<Settings, SettingsError> {
        let memory = self.memory.map_or_else(machine::default_memory_bytes, |size| size.0);
        if memory < Config::MEMORY_BYTES_MIN {
            return Err(SettingsError::MemoryTooSmall {
                given: Size(memory),
                least: Size(Config::MEMORY_BYTES_MIN),
            });
        }
        let patch_default = Config::PATCH_BYTES_DEFAULT.min(memory / 4);
        let patch_memory = self.patch_memory.map_or(patch_default, |size| size.0);
        if patch_memory > memory / 2 {
            return Err(SettingsError::PatchMemoryTooLarge {
                given: Size(patch_memory),
                memory: Size(memory),
                most: Size(memory / 2),
            });
        }
        let log_bytes = self.log_size.map_or(LOG_BYTES_DEFAULT, |size| size.0);
        if log_bytes < LOG_BYTES_MIN {
            let (given, least) = (Size(log_bytes), Size(LOG_BYTES_MIN));
            return Err(SettingsError::LogTooSmall { given, least });
        }
        self.check_order(log_bytes)?;
        self.check_policy()?;
        self.check_lane_users()?;
        if self.no_recovery == Some(true) && self.read_only != Some(true) {
            return Err(SettingsError::NoRecoveryToWrite);
        }
        let defaults = Config::default();
        let write_back = self.write_back.unwrap_or(WRITE_BACK_DEFAULT);
        let dirty_hard_percent = match write_back {
            WriteBackPolicy::Static => defaults.dirty_hard_percent,
            WriteBackPolicy::Adaptive => Config::DIRTY_HARD_PERCENT_ADAPTIVE,
        };
        let engine = Config {
            memory_bytes_max: memory,
            patch_bytes_max: patch_memory,
            fetch_policy: self.fetch.unwrap_or_default(),
            dirty_expire: self.dirty_expire.unwrap_or(defaults.dirty_expire),
            order: self.order.unwrap_or_default(),
            commit_age: self.commit.unwrap_or(defaults.commit_age),
            write_back,
            opportunistic: write_back == WriteBackPolicy::Adaptive,
            write_back_interval: self.write_back_interval.unwrap_or(defaults.write_back_interval),
            dirty_max_percent: self.dirty_max.unwrap_or(defaults.dirty_max_percent),
            dirty_background_percent: self
                .dirty_background
                .unwrap_or(defaults.dirty_background_percent),
            dirty_hard_percent,
            ..defaults
        };
        Ok(Settings {
            engine,
            allow_other: self.allow_other.unwrap_or(false),
            read_only: self.read_only.unwrap_or(false),
            no_recovery: self.no_recovery.unwrap_or(false),
            direct_io: self.direct_io.unwrap_or(false),
            lane: self.lane.unwrap_or(true),
            lane_users: self.lane_users.unwrap_or_default(),
            fsname: self.fsname,
            entry_timeout: self.entry_timeout,
            negative_timeout: self.negative_timeout,
            attr_timeout: self.attr_timeout,
            dev: self.dev.unwrap_or(false),
            suid: self.suid.unwrap_or(false),
            exec: self.exec.unwrap_or(true),
            atime: self.atime.unwrap_or(true),
            transport: self.transport.unwrap_or_default(),
            names: self.names,
            log: self.log.unwrap_or_default(),
            log_bytes,
            log_bytes_by_default: self.log_size.is_none(),
            log_level: self.log_level.unwrap_or(Level::INFO),
            log_file: self.log_file,
            record: self.record,
            metrics: self.metrics,
            bucket: self.bucket,
        })
    }

    /// Checks that everything can be logged if it is to be.
    fn check_order(&self, log_bytes: u64) -> Result<(), SettingsError> {
        if self.order != Some(Order::All) {
            return match self.commit {
                Some(_) => Err(SettingsError::CommitWithoutOrder),
                None => Ok(()),
            };
        }
        if self.log == Some(LogChoice::None) {
            return Err(SettingsError::OrderWithoutLog);
        }
        if matches!(self.names, Some(NamesChoice::Sync | NamesChoice::Behind)) {
            return Err(SettingsError::OrderWithoutNames);
        }
        match log_bytes < ORDERED_LOG_BYTES_MIN {
            true => {
                let (given, least) = (Size(log_bytes), Size(ORDERED_LOG_BYTES_MIN));
                Err(SettingsError::LogTooSmallForOrder { given, least })
            }
            false => Ok(()),
        }
    }

    /// Checks that users of the lane may use the mount.
    fn check_lane_users(&self) -> Result<(), SettingsError> {
        let there_are = self.lane_users.as_ref().is_some_and(|users| !users.0.is_empty());
        if there_are && self.lane != Some(false) && self.allow_other != Some(true) {
            return Err(SettingsError::LaneUsersKeptOut);
        }
        Ok(())
    }

    /// Checks that no setting of the other write-back policy is given.
    fn check_policy(&self) -> Result<(), SettingsError> {
        let chosen = self.write_back.unwrap_or(WRITE_BACK_DEFAULT);
        for (option, said, policy) in [
            (
                "--write-back-interval",
                self.write_back_interval.is_some(),
                WriteBackPolicy::Adaptive,
            ),
            ("--dirty-max", self.dirty_max.is_some(), WriteBackPolicy::Adaptive),
            ("--dirty-background", self.dirty_background.is_some(), WriteBackPolicy::Static),
        ] {
            if said && policy != chosen {
                return Err(SettingsError::OtherPolicy { option, policy: policy.name() });
            }
        }
        Ok(())
    }
}

/// Everything a mount needs to know besides SOURCE and MOUNTPOINT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The engine's bounds and policies.
    pub engine: Config,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// Whether nothing may be changed through the mount.
    pub read_only: bool,
    /// Whether the redo log is left as it is, and SOURCE is shown without replaying it.
    pub no_recovery: bool,
    /// Whether every open bypasses the kernel's page cache.
    pub direct_io: bool,
    /// Whether the lane is on.
    pub lane: bool,
    /// Users of the lane besides the daemon's own.
    pub lane_users: LaneUsers,
    /// The source shown by mount(8), if not SOURCE.
    pub fsname: Option<String>,
    /// How long the kernel may keep names, if not the front end's default.
    pub entry_timeout: Option<Duration>,
    /// How long the kernel may rely on a name's absence, if not the front end's default.
    pub negative_timeout: Option<Duration>,
    /// How long the kernel may keep attributes, if not the front end's default.
    pub attr_timeout: Option<Duration>,
    /// Whether device files work.
    pub dev: bool,
    /// Whether set-user-id bits work.
    pub suid: bool,
    /// Whether programs can be run.
    pub exec: bool,
    /// Whether access times are kept.
    pub atime: bool,
    /// How requests reach the daemon.
    pub transport: TransportChoice,
    /// What changes of names and attributes wait for. If nothing is said they are in the log, but where it is SOURCE's file system
    /// on this machine that finds files by path alone.
    pub names: Option<NamesChoice>,
    /// The place of the redo log.
    pub log: LogChoice,
    /// Bytes of a new redo log.
    pub log_bytes: u64,
    /// Whether that size is only the default: then a new log may be smaller.
    pub log_bytes_by_default: bool,
    /// How much is logged.
    pub log_level: Level,
    /// Where the log goes, if not to the default place.
    pub log_file: Option<PathBuf>,
    /// The file of the record of write-back, if any.
    pub record: Option<PathBuf>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<ListenAddress>,
    /// How a bucket is reached, if SOURCE is one.
    pub bucket: BucketOptions,
}

/// Settings that contradict each other or the engine's bounds.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// `--memory` is less than the engine's minimum.
    #[error("memory of {given} is too small: give --memory at least {least}")]
    MemoryTooSmall {
        /// The value given.
        given: Size,
        /// The bound.
        least: Size,
    },
    /// An option of the write-back policy that was not chosen.
    #[error(
        "{option} is for {policy} write-back: give --write-back {policy} as well, or leave it out"
    )]
    OtherPolicy {
        /// The option.
        option: &'static str,
        /// The policy it belongs to.
        policy: &'static str,
    },
    /// Users who may use the lane cannot use the mount.
    #[error("users of --lane-users must be able to use the mount: give --allow-other as well")]
    LaneUsersKeptOut,
    /// Data that is not recovered must not be overwritten.
    #[error(
        "--no-recovery shows a SOURCE that may lack what was synced last, which must not be written to: give \
         --read-only as well"
    )]
    NoRecoveryToWrite,
    /// Everything is to be logged, and nothing.
    #[error(
        "--order all keeps every change in the redo log: leave out --log none, or give --order sync"
    )]
    OrderWithoutLog,
    /// Everything is to be logged but names.
    #[error(
        "--order all keeps changes of names in the redo log, too: give --names log, or leave it out"
    )]
    OrderWithoutNames,
    /// `--commit` has no effect.
    #[error("--commit is for --order all: give that as well, or leave it out")]
    CommitWithoutOrder,
    /// `--log-size` is too small for everything.
    #[error("a log of {given} is too small for --order all: give --log-size at least {least}")]
    LogTooSmallForOrder {
        /// The value given.
        given: Size,
        /// The bound.
        least: Size,
    },
    /// `--log-size` is too small.
    #[error("a log of {given} is too small: give --log-size at least {least}")]
    LogTooSmall {
        /// The value given.
        given: Size,
        /// The bound.
        least: Size,
    },
    /// `--patch-memory` is more than half of `--memory`.
    #[error(
        "patch memory of {given} is too large for a memory of {memory}: \
         give --patch-memory at most {most}, or more --memory"
    )]
    PatchMemoryTooLarge {
        /// The value given.
        given: Size,
        /// The memory it is part of.
        memory: Size,
        /// The bound.
        most: Size,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_layers_win() {
        let top = Layer { memory: Some(Size(1 << 30)), ..Layer::default() };
        let below =
            Layer { memory: Some(Size(2 << 30)), allow_other: Some(true), ..Layer::default() };
        let merged = top.over(below);
        assert_eq!(merged.memory, Some(Size(1 << 30)));
        assert_eq!(merged.allow_other, Some(true));
    }

    #[test]
    fn defaults_are_valid_for_the_engine() {
        let settings = Layer::default().resolve().unwrap();
        settings.engine.validate().unwrap();
        assert!(!settings.dev && !settings.suid && settings.exec && settings.atime);
    }

    #[test]
    fn every_write_back_that_can_be_asked_for_is_valid_for_the_engine() {
        for percent in 1..=Config::DIRTY_MAX_PERCENT_MOST {
            let write_back = Some(WriteBackPolicy::Adaptive);
            let layer = Layer { write_back, dirty_max: Some(percent), ..Layer::default() };
            let engine = layer.resolve().unwrap().engine;
            engine.validate().unwrap();
            assert_eq!(engine.dirty_max_percent, percent);
        }
        for percent in 1..50 {
            let write_back = Some(WriteBackPolicy::Static);
            let layer = Layer { write_back, dirty_background: Some(percent), ..Layer::default() };
            let engine = layer.resolve().unwrap().engine;
            engine.validate().unwrap();
            assert_eq!(engine.dirty_background_percent, percent);
        }
        let engine = Layer::default().resolve().unwrap().engine;
        assert_eq!((engine.write_back, engine.dirty_hard_percent), (WriteBackPolicy::Adaptive, 80));
    }

    #[test]
    fn settings_of_the_other_policy_are_refused() {
        let adaptive = Some(WriteBackPolicy::Adaptive);
        let by_ratios = Layer { write_back: Some(WriteBackPolicy::Static), ..Layer::default() };
        let second = Some(Duration::from_secs(1));
        for (option, layer) in [
            ("--dirty-max", Layer { dirty_max: Some(30), ..by_ratios.clone() }),
            ("--write-back-interval", Layer { write_back_interval: second, ..by_ratios }),
            ("--dirty-background", Layer { dirty_background: Some(5), ..Layer::default() }),
        ] {
            let said = layer.resolve().unwrap_err().to_string();
            assert!(said.starts_with(option) && said.contains("give --write-back "), "{said}");
        }
        // A file's setting for one policy must not prevent the choice of the other.
        let file = Layer { write_back: adaptive, dirty_max: Some(30), ..Layer::default() };
        let chosen = Layer { write_back: Some(WriteBackPolicy::Static), ..Layer::default() };
        let engine = chosen.over(file).resolve().unwrap().engine;
        assert_eq!(engine.write_back, WriteBackPolicy::Static);
    }

    #[test]
    fn patch_memory_follows_a_small_memory() {
        let patch = |memory: u64| {
            let layer = Layer { memory: Some(Size(memory)), ..Layer::default() };
            layer.resolve().unwrap().engine.patch_bytes_max
        };
        assert_eq!(patch(16 << 20), 4 << 20);
        assert_eq!(patch(128 << 20), 32 << 20);
        assert_eq!(patch(1 << 30), 64 << 20);
    }

    #[test]
    fn everything_is_logged_only_where_it_can_be() {
        let all = Layer { order: Some(Order::All), ..Layer::default() };
        let resolved = Layer { commit: Some(Duration::from_secs(1)), ..all.clone() }.resolve();
        let engine = resolved.unwrap().engine;
        assert_eq!((engine.order, engine.commit_age), (Order::All, Duration::from_secs(1)));
        let none = Layer { log: Some(LogChoice::None), ..all.clone() };
        assert_eq!(none.resolve().unwrap_err(), SettingsError::OrderWithoutLog);
        for names in [NamesChoice::Sync, NamesChoice::Behind] {
            let names = Layer { names: Some(names), ..all.clone() };
            assert_eq!(names.resolve().unwrap_err(), SettingsError::OrderWithoutNames);
        }
        let small = Layer { log_size: Some(Size(8 << 20)), ..all };
        let error = small.resolve().unwrap_err().to_string();
        assert!(error.contains("at least 16 MiB"), "{error}");
        let commit = Layer { commit: Some(Duration::from_secs(1)), ..Layer::default() };
        assert_eq!(commit.resolve().unwrap_err(), SettingsError::CommitWithoutOrder);
    }

    #[test]
    fn bounds_are_checked_against_each_other() {
        let small = Layer { memory: Some(Size(8 << 20)), ..Layer::default() };
        let error = small.resolve().unwrap_err().to_string();
        assert_eq!(error, "memory of 8 MiB is too small: give --memory at least 16 MiB");
        let layer = Layer {
            memory: Some(Size(64 << 20)),
            patch_memory: Some(Size(33 << 20)),
            ..Layer::default()
        };
        assert!(layer.resolve().unwrap_err().to_string().contains("at most 32 MiB"));
    }
}
