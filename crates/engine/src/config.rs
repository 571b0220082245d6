//! The engine's bounds and policies. They are checked when the engine is made.

use std::str::FromStr;
use std::time::Duration;

/// Most bytes in one read or write: a small part of the least memory of an engine.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// When the page under a partial write to a page that is not up to date is fetched
/// (NBW section 3.3, with *auto* added).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FetchPolicy {
    /// The writer waits for the fetch: the baseline, and what a kernel page cache does.
    Blocking,
    /// The fetch is submitted in the writer's context; the writer does not wait for it.
    AsyncForeground,
    /// The fetch is submitted by a worker, so that the submission cannot block the writer either. Only a few are in
    /// flight at a time, in the order of the file, so that readers do not queue behind all of them.
    AsyncBackground,
    /// The page is fetched only when a read, a sync or a destage needs it, or patch memory fills.
    Lazy,
    /// Lazy, but on a slow device the pages of a file that is being read are fetched in the
    /// background.
    #[default]
    Auto,
}

impl FetchPolicy {
    /// Every policy, in the order they are documented.
    pub const ALL: [FetchPolicy; 5] = [
        FetchPolicy::Blocking,
        FetchPolicy::AsyncForeground,
        FetchPolicy::AsyncBackground,
        FetchPolicy::Lazy,
        FetchPolicy::Auto,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FetchPolicy::Blocking => "blocking",
            FetchPolicy::AsyncForeground => "async-fg",
            FetchPolicy::AsyncBackground => "async-bg",
            FetchPolicy::Lazy => "lazy",
            FetchPolicy::Auto => "auto",
        }
    }
}

impl FromStr for FetchPolicy {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| ConfigError::UnknownPolicy(name.to_owned()))
    }
}

/// When dirty data goes home before it is old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteBackPolicy {
    /// When a fixed share of memory is dirty, as in a kernel: the baseline.
    #[default]
    Static,
    /// Between watermarks that follow the rates of writing and of write-back, below a ceiling that follows the memory
    /// that readers need (AWOL, FAST'08, section 3). Writers are paced before they have to wait.
    Adaptive,
}

impl WriteBackPolicy {
    /// Every policy, in the order they are documented.
    pub const ALL: [WriteBackPolicy; 2] = [WriteBackPolicy::Static, WriteBackPolicy::Adaptive];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            WriteBackPolicy::Static => "static",
            WriteBackPolicy::Adaptive => "adaptive",
        }
    }
}

impl FromStr for WriteBackPolicy {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| ConfigError::UnknownWriteBack(name.to_owned()))
    }
}

/// Which changes are logged before they go home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// What is synced, and what supersedes live records. The rest goes home in any order.
    #[default]
    Sync,
    /// All of them: a commit takes everything that is not logged, of all files, and home gets nothing before it is durable.
    /// So the files after a crash are as at one moment.
    All,
}

impl Order {
    /// Every order, in the order they are documented.
    pub const ALL: [Order; 2] = [Order::Sync, Order::All];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Sync => "sync",
            Order::All => "all",
        }
    }
}

impl FromStr for Order {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|order| order.name() == name)
            .ok_or_else(|| ConfigError::UnknownOrder(name.to_owned()))
    }
}

/// Safeguards that tests can switch off, one by one, to show that the simulator detects their absence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Home is written without waiting for the records that supersede older ones in the log.
    pub supersede: bool,
    /// Files are truncated and rearranged at home while the log has records of them.
    pub cut: bool,
    /// Contents that a failed sync of home covered may be settled by a later sync without being rewritten.
    pub home_sync: bool,
    /// With [`Order::All`], data goes home before it is durable in the log.
    pub ahead: bool,
    /// With [`Order::All`], a commit takes only what a sync asks for.
    pub moment: bool,
}

/// Bounds and policies of one engine. Validated by [`crate::Engine::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// For tests of the simulator; otherwise unused.
    #[doc(hidden)]
    pub undone: Undone,
    /// Bytes for page frames, patches and their descriptors together.
    pub memory_bytes_max: u64,
    /// Bytes for patches, their overhead counted, within `memory_bytes_max`. Below this bound, patches spill to the redo
    /// log, if there is one. At the bound, a partial write to a page that is not in memory waits until patch memory is
    /// free; a write that would never fit behaves as under [`FetchPolicy::Blocking`].
    pub patch_bytes_max: u64,
    /// When pages under patches are fetched.
    pub fetch_policy: FetchPolicy,
    /// Dirty data older than this is destaged.
    pub dirty_expire: Duration,
    /// What is logged before it goes home. [`Order::All`] needs a log with groups of at least [`Config::ORDERED_GROUP_MIN`]
    /// bytes for requests of any length.
    pub order: Order,
    /// With [`Order::All`], what was not logged for this long is committed.
    pub commit_age: Duration,
    /// When dirty data is destaged before it is old.
    pub write_back: WriteBackPolicy,
    /// How often adaptive write-back samples the load: 10 ms to a minute. The paper recommends a second (section 5.2);
    /// with a much shorter interval the watermarks follow every burst.
    pub write_back_interval: Duration,
    /// h_max: the dirty share of the memory for frames, in percent, that adaptive write-back's high
    /// watermark never exceeds; at most `dirty_hard_percent`. Writers are paced above the point halfway between it
    /// and 100, or, if they would wait before that, halfway between it and `dirty_hard_percent`.
    pub dirty_max_percent: u8,
    /// Dirty share of `memory_bytes_max`, in percent, above which destaging starts. Adaptive write-back's
    /// high watermark begins there.
    pub dirty_background_percent: u8,
    /// Dirty share of `memory_bytes_max`, in percent, at which writers wait for destages.
    pub dirty_hard_percent: u8,
    /// Most pages in one transfer to or from the back end.
    pub transfer_pages_max: u32,
    /// Most destages in flight at once.
    pub destages_in_flight_max: u32,
    /// Most pages fetched ahead of a sequential reader; 0 turns read-ahead off.
    pub readahead_pages_max: u32,
    /// Pause before a failed destage or background fetch is tried again.
    pub retry_delay: Duration,
    /// The back end is known to be rotational, even if its cache makes it look fast.
    pub rotational: bool,
    /// Home keeps what a sync could not make durable, and its next sync makes that durable, too: a failed sync is an error, and loses
    /// nothing. So it is with a bucket, of which `weir-bucket` keeps what the store did not take. A local file system may drop it.
    pub keeps_unsynced: bool,
    /// Dirty pages that the disk arm is about to pass are written together with the next request (AWOL, section 4). No
    /// effect on a device that is not rotational.
    pub opportunistic: bool,
    /// Most sync transfers in flight, and most async ones. A rotational device never gets more sync ones than its own
    /// queue holds, and no device gets more async ones than keep it busy, which the cost model measures.
    pub requests_in_flight_max: u32,
}

impl Config {
    /// Least memory an engine can work in: a few of the largest requests at once.
    pub const MEMORY_BYTES_MIN: u64 = 16 << 20;
    /// With [`Order::All`], the longest group of the log must have at least these bytes: a commit is one group, and has the
    /// bytes of the largest write.
    pub const ORDERED_GROUP_MIN: usize = 2 * REQUEST_BYTES_MAX;
    /// Default of `patch_bytes_max`.
    pub const PATCH_BYTES_DEFAULT: u64 = 64 << 20;
    /// The value of `dirty_hard_percent` for adaptive write-back: it leaves room to pace writers below it, for every
    /// `dirty_max_percent` up to [`Config::DIRTY_MAX_PERCENT_MOST`].
    pub const DIRTY_HARD_PERCENT_ADAPTIVE: u8 = 80;
    /// Largest sensible `dirty_max_percent`: the pressure point is then at 75 %.
    pub const DIRTY_MAX_PERCENT_MOST: u8 = 50;
    /// Shortest `write_back_interval`.
    pub const WRITE_BACK_INTERVAL_MIN: Duration = Duration::from_millis(10);
    /// Longest `write_back_interval`.
    pub const WRITE_BACK_INTERVAL_MAX: Duration = Duration::from_secs(60);
}

impl Default for Config {
    fn default() -> Config {
        Config {
            undone: Undone::default(),
            memory_bytes_max: 512 << 20,
            patch_bytes_max: Config::PATCH_BYTES_DEFAULT,
            fetch_policy: FetchPolicy::Auto,
            dirty_expire: Duration::from_secs(30),
            order: Order::default(),
            commit_age: Duration::from_secs(5),
            write_back: WriteBackPolicy::default(),
            write_back_interval: Duration::from_secs(1),
            dirty_max_percent: 40,
            dirty_background_percent: 20,
            dirty_hard_percent: 50,
            transfer_pages_max: 256,
            destages_in_flight_max: 64,
            readahead_pages_max: 512,
            retry_delay: Duration::from_secs(1),
            rotational: false,
            keeps_unsynced: false,
            opportunistic: false,
            requests_in_flight_max: 1024,
        }
    }
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Memory below [`Config::MEMORY_BYTES_MIN`].
    #[error(
        "memory of {given} bytes is too small: at least {} bytes are needed",
        Config::MEMORY_BYTES_MIN
    )]
    MemoryTooSmall {
        /// Memory asked for, bytes.
        given: u64,
    },
    /// Patch memory is more than half of all memory.
    #[error("patch memory of {patch} bytes must be at most half of the memory of {memory} bytes")]
    PatchMemoryTooLarge {
        /// Patch memory asked for.
        patch: u64,
        /// Memory asked for.
        memory: u64,
    },
    /// The dirty ratios are not 0 < background < hard <= 80.
    #[error("dirty ratios must satisfy 0 < background < hard <= 80, not {background} and {hard}")]
    DirtyRatios {
        /// Background ratio, percent.
        background: u8,
        /// Hard ratio, percent.
        hard: u8,
    },
    /// h_max is 0, or above the hard ratio.
    #[error("the most dirty share must be from 1 to the hard ratio of {hard}, not {given}")]
    DirtyMax {
        /// h_max asked for, percent.
        given: u8,
        /// Hard ratio, percent.
        hard: u8,
    },
    /// A count that must be at least one is zero, or a transfer is longer than 256 pages.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
    /// No such fetch policy.
    #[error("unknown fetch policy '{0}': use blocking, async-fg, async-bg, lazy or auto")]
    UnknownPolicy(String),
    /// No such order.
    #[error("unknown order '{0}': use sync or all")]
    UnknownOrder(String),
    /// No such write-back policy.
    #[error("unknown write-back policy '{0}': use static or adaptive")]
    UnknownWriteBack(String),
}

impl Config {
    /// Checks the bounds against each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.memory_bytes_max < Config::MEMORY_BYTES_MIN {
            return Err(ConfigError::MemoryTooSmall { given: self.memory_bytes_max });
        }
        if self.patch_bytes_max > self.memory_bytes_max / 2 {
            return Err(ConfigError::PatchMemoryTooLarge {
                patch: self.patch_bytes_max,
                memory: self.memory_bytes_max,
            });
        }
        let (background, hard) = (self.dirty_background_percent, self.dirty_hard_percent);
        if background == 0 || background >= hard || hard > 80 {
            return Err(ConfigError::DirtyRatios { background, hard });
        }
        if self.write_back == WriteBackPolicy::Adaptive {
            let given = self.dirty_max_percent;
            if given == 0 || given > hard {
                return Err(ConfigError::DirtyMax { given, hard });
            }
            let range = Config::WRITE_BACK_INTERVAL_MIN..=Config::WRITE_BACK_INTERVAL_MAX;
            if !range.contains(&self.write_back_interval) {
                return Err(ConfigError::OutOfRange("write_back_interval"));
            }
        }
        if self.transfer_pages_max == 0 || self.transfer_pages_max > 256 {
            return Err(ConfigError::OutOfRange("transfer_pages_max"));
        }
        if self.destages_in_flight_max == 0 {
            return Err(ConfigError::OutOfRange("destages_in_flight_max"));
        }
        if self.requests_in_flight_max == 0 {
            return Err(ConfigError::OutOfRange("requests_in_flight_max"));
        }
        if self.readahead_pages_max > 1024 {
            return Err(ConfigError::OutOfRange("readahead_pages_max"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_found_by_their_names() {
        for policy in WriteBackPolicy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "eager".parse::<WriteBackPolicy>().unwrap_err().to_string();
        assert_eq!(error, "unknown write-back policy 'eager': use static or adaptive");
    }

    #[test]
    fn adaptive_write_backs_bounds_are_checked() {
        let adaptive = Config { write_back: WriteBackPolicy::Adaptive, ..Config::default() };
        assert_eq!(adaptive.validate(), Ok(()));
        for given in [0, 51, 255] {
            let config = Config { dirty_max_percent: given, ..adaptive.clone() };
            assert_eq!(config.validate(), Err(ConfigError::DirtyMax { given, hard: 50 }));
        }
        for interval in [Duration::ZERO, Duration::from_millis(9), Duration::from_secs(61)] {
            let config = Config { write_back_interval: interval, ..adaptive.clone() };
            assert_eq!(config.validate(), Err(ConfigError::OutOfRange("write_back_interval")));
        }
        // The static policy ignores these bounds.
        let config = Config { dirty_max_percent: 0, ..Config::default() };
        assert_eq!(config.validate(), Ok(()));
    }
}
