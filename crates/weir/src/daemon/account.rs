//! The daemon's status.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weir_backend::Method;
use weir_engine::{FetchPolicy, Order, WriteBackPolicy};
use weir_fuse::{Observer, Transport};
use weir_shard::{Shard, SlowFile};

use crate::bucket;
use crate::control::protocol::{NamesReport, SlowFileReport, Status};
use crate::mounts::{Device, MountTable, shown};

/// Paths of names shown for each kind of trouble.
const PATHS_SHOWN: usize = 5;

/// Longest path shown, characters, and longest path of a slow file: all fit into one message.
const PATH_CHARACTERS_MAX: usize = 500;
const NAME_CHARACTERS_MAX: usize = 200;

/// Sources of the status.
pub struct Account {
    /// The shard that serves SOURCE.
    pub shard: Arc<Shard>,
    /// SOURCE.
    pub source: PathBuf,
    /// MOUNTPOINT.
    pub mountpoint: PathBuf,
    /// The fetch policy.
    pub fetch_policy: FetchPolicy,
    /// The write-back policy.
    pub write_back: WriteBackPolicy,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// What becomes durable in the order in which it was changed.
    pub order: Order,
    /// The mount's device number.
    pub device: Device,
    /// Whether it was mounted read-only.
    pub mounted_read_only: bool,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// When the mount was made.
    pub mounted_at: Instant,
    /// The status of requests and of the lane.
    pub observer: Observer,
    /// What the bucket that is SOURCE says, if it is one.
    pub bucket: Option<bucket::Said>,
    /// Set when the daemon is ending.
    pub stopping: Arc<AtomicBool>,
}

impl Account {
    /// The status now.
    pub fn status(&self) -> Status {
        let directory = self.shard.directory();
        let transfer = match directory.method() {
            Method::Ring => "ring",
            Method::Threads => "threads",
        };
        let requests = self.observer.requests();
        let waits = self.shard.waits();
        Status {
            weir_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            source: shown(&self.source),
            mountpoint: shown(&self.mountpoint),
            uptime_ms: u64::try_from(self.mounted_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            fetch_policy: self.fetch_policy.name().to_owned(),
            write_back: self.write_back.name().to_owned(),
            read_only: self.mounted_read_only || self.is_remounted_read_only(),
            mounted_read_only: self.mounted_read_only,
            direct: directory.is_direct(),
            transfer: transfer.to_owned(),
            transport: self.transport.name().to_owned(),
            order: self.order.name().to_owned(),
            metrics: self.metrics.map_or_else(String::new, |address| address.to_string()),
            resident_bytes: resident_bytes().unwrap_or(0),
            stopping: self.stopping.load(Ordering::Relaxed),
            lane: self.observer.lane().map(Into::into),
            names: self.names(),
            sessions: self.observer.sessions().into_iter().map(Into::into).collect(),
            requests: requests
                .by_name
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            notifications: requests.notifications,
            stats: self.shard.stats().into(),
            latency: self.shard.latencies().into(),
            waiting: Some(waits.now.into()),
            bucket: self.bucket.as_ref().and_then(bucket::Said::report),
            slow_files: waits.files.into_iter().map(|file| self.slow_file(file)).collect(),
        }
    }

    fn slow_file(&self, file: SlowFile) -> SlowFileReport {
        let path = self.observer.path_of(file.file);
        let shown =
            path.map(|path| end_of(path.to_string_lossy().into_owned(), NAME_CHARACTERS_MAX));
        SlowFileReport::new(file, shown)
    }

    fn names(&self) -> Option<NamesReport> {
        let (pending, refused) = self.observer.names_pending()?;
        let (conflicts, conflict_paths) = self.observer.names_taken();
        let shortened = |path| end_of(path, PATH_CHARACTERS_MAX);
        let shown = |paths: Vec<String>| paths.into_iter().map(shortened).collect();
        Some(NamesReport {
            pending: pending as u64,
            refused: refused as u64,
            refused_paths: shown(self.observer.names_refused(PATHS_SHOWN)),
            conflicts,
            conflict_paths: shown(conflict_paths),
        })
    }

    /// Whether the kernel refuses changes (`mount -o remount,ro`).
    fn is_remounted_read_only(&self) -> bool {
        let table = MountTable::read().unwrap_or_default();
        let mount = table.of_device(self.device).filter(|mount| mount.is_weir());
        mount.is_some_and(|mount| mount.super_options.split(',').any(|option| option == "ro"))
    }
}

/// The end of a long path, which tells more than its beginning.
fn end_of(path: String, characters_max: usize) -> String {
    let count = path.chars().count();
    match count > characters_max {
        true => path.chars().skip(count - characters_max).collect(),
        false => path,
    }
}

/// `VmRSS` of /proc/self/status, proc(5).
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn of_a_long_path_the_end_is_shown() {
        assert_eq!(super::end_of("a/b".to_owned(), 3), "a/b");
        let long = format!("{}/end", "x".repeat(4000));
        let shown = super::end_of(long, 9);
        assert_eq!(shown, "xxxxx/end");
    }

    #[test]
    fn resident_memory_is_not_zero() {
        assert!(super::resident_bytes().unwrap() > 100 << 10);
    }
}
