//! The command line's commands and options, and their help.

mod advise;
pub mod dashboard;
mod doctor;
mod documents;
mod manual;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::Level;
use weir_engine::{FetchPolicy, Order, WriteBackPolicy};

pub use self::advise::{AdviseArguments, ReplayArguments, TraceFormat};
use crate::bucket::BucketOptions;
use crate::config_file::{self, ConfigFileError};
use crate::failure::Failure;
use crate::http::ListenAddress;
use crate::lane_users::LaneUsers;
use crate::options::{self, Unknown};
use crate::quantity::{self, Size};
use crate::run::group_name::Name;
use crate::settings::{Layer, LogChoice, NamesChoice, TransportChoice};

pub use doctor::DoctorArguments;
pub use documents::{DocumentsArguments, mount_helper};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    about = "A write path in front of any directory: small writes and syncs do not wait for its disk",
    long_about = manual::ABOUT,
    after_long_help = manual::AFTER,
    disable_help_subcommand = false,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve SOURCE at MOUNTPOINT
    #[command(long_about = manual::MOUNT, after_long_help = manual::MOUNT_AFTER, allow_missing_positional = true)]
    Mount(Box<MountArguments>),
    /// Write everything home, then unmount
    #[command(visible_alias = "unmount", long_about = manual::UMOUNT,
        after_long_help = manual::UMOUNT_AFTER)]
    Umount(UmountArguments),
    /// Write everything home and make it durable
    #[command(long_about = manual::SYNC, after_long_help = manual::SYNC_AFTER)]
    Sync(SyncArguments),
    /// Show what a mount, or every mount, is doing, or where a file is
    #[command(long_about = manual::STATUS, after_long_help = manual::STATUS_AFTER)]
    Status(StatusArguments),
    /// Watch what mounts are doing, in the terminal
    #[command(long_about = manual::TOP, after_long_help = manual::TOP_AFTER)]
    Top(TopArguments),
    /// Show all mounts on a web page of this machine
    #[command(long_about = manual::DASHBOARD, after_long_help = manual::DASHBOARD_AFTER)]
    Dashboard(dashboard::DashboardArguments),
    /// Bring home what a redo log holds, without mounting
    #[command(long_about = manual::RECOVER, after_long_help = manual::RECOVER_AFTER)]
    Recover(RecoverArguments),
    /// Show what is in a redo log
    #[command(long_about = manual::LOG, after_long_help = manual::LOG_AFTER)]
    Log(LogArguments),
    /// Run a program that reads and writes files of mounts without the kernel
    #[command(long_about = manual::RUN, after_long_help = manual::RUN_AFTER)]
    Run(RunArguments),
    /// Say what this machine has and lacks for a mount, and how to mend it
    #[command(long_about = doctor::DOCTOR, after_long_help = doctor::DOCTOR_AFTER)]
    Doctor(DoctorArguments),
    /// Write man pages and shell completions
    #[command(hide = true)]
    Documents(DocumentsArguments),
    /// Say whether Weir would help a program
    #[command(long_about = manual::ADVISE, after_long_help = manual::ADVISE_AFTER)]
    Advise(Box<AdviseArguments>),
    /// Do a plan's calls again; for 'weir advise'
    #[command(hide = true)]
    AdviseReplay(ReplayArguments),
}

pub use top::TopArguments;

/// When a sync returns under `weir run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SyncMode {
    /// When it is done.
    #[default]
    Kernel,
    /// At once; output waits for it.
    External,
    /// At once; output waits for all changes before it, synced or not.
    EveryWrite,
}

/// Arguments of `weir run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Report reads and writes at the end, on standard error or in FILE
    ///
    /// For each program and in total: how many went by the lane, how many by the kernel, and why. A FILE that ends in .json is JSON.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub report: Option<Option<PathBuf>>,
    /// The report as JSON
    #[arg(long)]
    pub report_json: bool,
    /// When syncs return: kernel, external or every-write
    ///
    /// kernel, the default: when they are done. external: at once, and what leaves the program and all that it starts (output, signals,
    /// the exit status) waits until what was synced before is durable. It holds on mounts with --order all; elsewhere syncs are done at
    /// once. every-write: as external, and what leaves waits for every change before it, also if nothing was synced. Programs then read
    /// and write by the kernel alone.
    #[arg(long, value_name = "WHEN", default_value = "kernel", hide_default_value = true)]
    pub sync: SyncMode,
    /// With --sync external or every-write: one session with other 'weir run' of this user that give the same name
    ///
    /// What these programs send each other does not wait, and what leaves one of them waits for what was promised to any.
    #[arg(long, value_name = "NAME")]
    pub group: Option<Name>,
    /// The program, and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `weir recover`.
#[derive(Debug, Args)]
pub struct RecoverArguments {
    /// The directory or s3://BUCKET/PREFIX that was served; it must not be mounted
    pub source: PathBuf,
    /// The log, if it is not where SOURCE's notes say
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Replay the log given by --log, even if it is not the one in use or belongs to another SOURCE
    ///
    /// Its contents may be older than what is in SOURCE, and overwrite it.
    #[arg(long, requires = "log")]
    pub force: bool,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub bucket: BucketOptions,
}

/// Arguments of `weir log`.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// The directory that was served, or the log itself
    pub path: PathBuf,
    /// The directory that was served, if the log is not in it; used to show file names
    #[arg(long, value_name = "DIRECTORY")]
    pub source: Option<PathBuf>,
    /// Make PATH, a file or a block device, an empty log for 'weir mount --log'
    ///
    /// Refused if PATH is not blank, unless --force is given.
    #[arg(long)]
    pub format: bool,
    /// With --format: erase the present contents
    #[arg(long, requires = "format")]
    pub force: bool,
}

/// Arguments of `weir mount`.
#[derive(Debug, Args)]
pub struct MountArguments {
    /// The directory to serve, or s3://BUCKET/PREFIX; if left out, the one that the configuration file has for MOUNTPOINT
    pub source: Option<PathBuf>,
    /// The empty directory it appears at
    pub mountpoint: PathBuf,
    /// Stay in the foreground and log to the terminal
    ///
    /// The command ends with the mount: after 'weir umount', SIGTERM, SIGINT or SIGHUP.
    #[arg(short, long)]
    pub foreground: bool,
    /// When a page under a partial write is read: blocking, async-fg, async-bg, lazy or auto
    ///
    /// blocking: the writer waits for the page, as with the kernel's page cache. async-fg: the
    /// writer's thread submits the read, and the write does not wait. async-bg: pages are read in the
    /// background, in the order of the file, a few at a time. lazy: a page is read only when something
    /// needs all of it, or when patch memory is short. auto, the default, chooses for each write from
    /// the device's latency and whether the file is being read.
    #[arg(long, value_name = "POLICY")]
    pub fetch: Option<FetchPolicy>,
    /// Memory for cached pages and pending writes, at least 16M
    ///
    /// Written like 64M or 1GiB: K, M, G, T, or KiB, MiB, GiB, TiB, all powers of 1024; a number
    /// alone is bytes. The default is an eighth of the machine's memory or of the cgroup's limit,
    /// whichever is less, but at least 64M and at most 4G. The daemon as a whole stays within
    /// this plus 48M.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Memory for writes to pages that are not in memory, at most half of --memory
    ///
    /// What does not fit goes to the redo log. Without a log, or when it is full, such writes wait until
    /// patch memory is free. The default is 64M or a quarter of --memory, whichever is less.
    #[arg(long, value_name = "SIZE")]
    pub patch_memory: Option<Size>,
    /// Age at which written data goes home by itself, 30s by default
    ///
    /// A number with ms, s, m or h: from 100ms to 24h.
    #[arg(long, value_name = "DURATION", value_parser = quantity::parse_dirty_expire)]
    pub dirty_expire: Option<Duration>,
    /// When younger data goes home: adaptive (the default) or static
    ///
    /// adaptive: between two watermarks, which follow how fast programs write and how fast the disk takes it,
    /// and which leave readers the memory that they use. Writers are slowed down gradually, and wait when four
    /// fifths of the memory for pages are dirty. Readers keep a share of a rotational disk. static: when a fifth
    /// of the memory for pages (--dirty-background) is dirty; writers wait when half of it is.
    #[arg(long, value_name = "POLICY")]
    pub write_back: Option<WriteBackPolicy>,
    /// Whether programs under 'weir run' may use memory shared with the daemon (the lane): on (the default) or off
    ///
    /// The program's user must be the daemon's own or one of --lane-users. It can then read everything that the
    /// daemon has in memory.
    #[arg(long, value_name = "on|off", value_parser = clap::builder::BoolishValueParser::new())]
    pub lane: Option<bool>,
    /// Users besides the daemon's own whose programs may use the lane
    ///
    /// Names or numbers, separated by commas or colons. These users can read what the daemon has in memory of any
    /// file, whatever its permissions: name only users who may read everything. Needs --allow-other.
    #[arg(long, value_name = "USER[,USER...]")]
    pub lane_users: Option<LaneUsers>,
    /// How often adaptive write-back samples the load, 1s by default
    ///
    /// From 10ms to 60s. A short interval follows the load sooner, and also follows every burst.
    #[arg(long, value_name = "DURATION", value_parser = quantity::parse_write_back_interval)]
    pub write_back_interval: Option<Duration>,
    /// Share of the memory for pages that adaptive write-back lets become dirty, 40 by default
    ///
    /// In percent, from 1 to 50. The actual bound may be lower. Writers that are faster than the disk exceed it,
    /// and are slowed down from halfway between this share and all of the memory.
    #[arg(long, value_name = "PERCENT", value_parser = quantity::parse_dirty_max)]
    pub dirty_max: Option<u8>,
    /// Share of the memory for pages at which static write-back begins, 20 by default
    ///
    /// In percent, from 1 to 49; writers wait at 50. A low share spreads the disk's work, a high share lets more
    /// data be overwritten before it goes home.
    #[arg(long, value_name = "PERCENT", value_parser = quantity::parse_dirty_background)]
    pub dirty_background: Option<u8>,
    /// How requests reach the daemon: auto (the default), device or io-uring
    ///
    /// io-uring: with a queue and a thread for each CPU; a small write takes about half the time. Needs Linux
    /// 6.14 or later with fuse.enable_uring set. device: over /dev/fuse. auto: io-uring if the kernel has it
    /// turned on, otherwise device.
    #[arg(long, value_name = "TRANSPORT")]
    pub transport: Option<TransportChoice>,
    /// What changes of names and attributes wait for: log (the default) for nothing, sync for SOURCE
    ///
    /// log: creating, renaming, linking, deleting and changes of modes, owners and times return at once. They are in the redo
    /// log, and SOURCE gets them in the background, many at a time: 'weir sync' waits for that. fsync does not wait for SOURCE.
    /// sync: SOURCE gets each change before the call returns; so it is on every mount without a log, and by default where the
    /// daemon cannot find files of a local SOURCE by handle (overlays; if it is not root): there, with log, a power cut can
    /// lose synced data. behind: as log, but the changes are not in the log, and fsync waits until SOURCE has the names.
    /// Experimental.
    #[arg(long, value_name = "WHEN")]
    pub names: Option<NamesChoice>,
    /// What is in the redo log before SOURCE gets it: sync (the default) for what is synced, or all for everything
    ///
    /// all: every write, new size and change of a name is logged first, and a crash leaves all files and names as they were at
    /// one moment: --commit before it at the most, and not before the last fsync. For programs that never call fsync but rely on
    /// the order of their writes. Everything is written twice. Needs --names log and a log of at least 16M; holes cannot be
    /// punched, and copy_file_range copies by reading and writing. sync: what is not synced goes to SOURCE in any order.
    #[arg(long, value_name = "CHANGES")]
    pub order: Option<Order>,
    /// With --order all: commit what is not in the log for this long, 100ms to 5m; 5s by default
    #[arg(long, value_name = "DURATION", value_parser = quantity::parse_commit)]
    pub commit: Option<Duration>,
    /// Where the redo log is: auto (the default), source, none, or the path of a file or block device
    ///
    /// With a log an fsync costs one write and fetches nothing, and small writes continue when patch memory is
    /// full. Synced data survives the daemon's death and a power cut; the next mount or 'weir recover' brings
    /// it home. source: in SOURCE/.weir while it is mounted. auto: the same, or none if no log can be made
    /// there; but where SOURCE is a mount of another machine (sshfs, cifs and others) and names are in the log, in /var/lib/weir
    /// (root) or $XDG_STATE_HOME/weir of this machine, so that fsync does not wait for the network: what is synced is durable
    /// here, and there after 'weir sync'. A path must be absolute, and may be on a faster device; a missing file is made, and kept.
    #[arg(long, value_name = "PLACE")]
    pub log: Option<LogChoice>,
    /// Size of a new redo log, at least 1M; 64M by default, or a sixteenth of the free space if that is less
    #[arg(long, value_name = "SIZE")]
    pub log_size: Option<Size>,
    /// Let other users use the mount, with the permissions of the files
    ///
    /// Ordinary users may give it only if /etc/fuse.conf has the line user_allow_other.
    #[arg(long)]
    pub allow_other: bool,
    /// Refuse every change through the mount
    #[arg(long)]
    pub read_only: bool,
    /// Do not replay the redo log: show SOURCE as it is; only with --read-only
    ///
    /// For a SOURCE that cannot be written, or whose log is lost. Files may lack the data synced last.
    #[arg(long)]
    pub no_recovery: bool,
    /// Mount options, comma-separated, as for mount(8); may be repeated
    #[arg(short = 'o', value_name = "OPT[,OPT...]")]
    pub options: Vec<String>,
    /// How much to log: error, warn, info, debug or trace; info by default
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// Where to log, instead of the terminal or the default file
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Record write-back over time in FILE, as lines of JSON
    ///
    /// A header with names and units; then a line when the mount begins, one each second (or each
    /// --write-back-interval), and one when it ends: watermarks, dirty memory, hits and misses of reads, requests,
    /// waiting writers. The file must be new, or a former record, which is replaced, and lie outside SOURCE and
    /// MOUNTPOINT. A record ends at 512M or when its disk is full; the mount continues.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Serve the mount's metrics for Prometheus at http://ADDR/metrics, off by default
    ///
    /// A port, which is then on 127.0.0.1, or an IP address and a port, such as 192.0.2.1:9338 or [::1]:9338. Port 0 is any
    /// that is free; 'weir status' shows it. Who can reach the address can read the figures of 'weir status' and the paths of
    /// SOURCE and MOUNTPOINT, and nothing else: no names of files.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<ListenAddress>,
    #[command(flatten)]
    pub bucket: BucketOptions,
    /// Read this configuration file and no other
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Flags that mount(8) gave to its helper.
    #[arg(skip)]
    pub helper: HelperRequest,
}

/// Flags that mount(8) may give to its helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperRequest {
    /// Whether unknown mount options are an error (`-s`: they are not).
    pub unknown: Unknown,
    /// Check everything but do not mount (`-f`).
    pub fake: bool,
}

impl Default for HelperRequest {
    fn default() -> HelperRequest {
        HelperRequest { unknown: Unknown::Refuse, fake: false }
    }
}

impl MountArguments {
    /// Whether this changes an existing mount.
    pub fn is_remount(&self) -> bool {
        self.options.iter().any(|list| options::asks_for_remount(list))
    }

    /// The command line's settings; flags override `-o`.
    pub fn layer(&self) -> Result<Layer, Failure> {
        let mut options = Layer::default();
        let parse = match self.is_remount() {
            true => options::parse_for_remount,
            false => options::parse,
        };
        for list in &self.options {
            parse(list, self.helper.unknown, &mut options)?;
        }
        let flags = Layer {
            fetch: self.fetch,
            memory: self.memory,
            patch_memory: self.patch_memory,
            dirty_expire: self.dirty_expire,
            write_back: self.write_back,
            write_back_interval: self.write_back_interval,
            lane: self.lane,
            lane_users: self.lane_users.clone(),
            dirty_max: self.dirty_max,
            dirty_background: self.dirty_background,
            transport: self.transport,
            names: self.names,
            order: self.order,
            commit: self.commit,
            log: self.log.clone(),
            log_size: self.log_size,
            allow_other: self.allow_other.then_some(true),
            read_only: self.read_only.then_some(true),
            no_recovery: self.no_recovery.then_some(true),
            log_level: self.log_level,
            log_file: self.log_file.clone(),
            record: self.record.clone(),
            metrics: self.metrics,
            bucket: self.bucket.clone(),
            ..Layer::default()
        };
        Ok(flags.over(options))
    }

    /// The configuration files' settings for a mount at `mountpoint`.
    pub fn configured(&self, mountpoint: &std::path::Path) -> Result<Layer, ConfigFileError> {
        config_file::load(self.config.as_deref(), mountpoint)
    }
}

/// Arguments of `weir umount`.
#[derive(Debug, Args)]
pub struct UmountArguments {
    /// The mount point, or any path in the mount
    pub mountpoint: PathBuf,
    /// Unmount even if programs use the mount, or data cannot be written home (it is then lost)
    ///
    /// All data that can be written home is written. Programs that use the mount get errors from then on.
    #[arg(short, long)]
    pub force: bool,
}

/// Arguments of `weir sync`.
#[derive(Debug, Args)]
pub struct SyncArguments {
    /// The mount point, or any path in the mount
    pub mountpoint: PathBuf,
}

/// Arguments of `weir status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// A mount point, or a directory in a mount, to show the mount; a file in a mount, to show how far that is on its way home;
    /// all mounts if not given
    pub path: Option<PathBuf>,
    /// Print JSON: an object for one mount, an array for all of them
    #[arg(long)]
    pub json: bool,
    /// Print how many FUSE requests of each kind the kernel sent, and nothing else
    #[arg(long)]
    pub requests: bool,
    /// Print metrics in Prometheus' text format, such as for the textfile collector of its node exporter
    #[arg(long, conflicts_with_all = ["json", "requests"])]
    pub prometheus: bool,
}
