//! The messages of the control socket. Fields are only added: an older command may meet a newer daemon,
//! and a newer command an older daemon.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
#[cfg(feature = "daemon")]
use weir_engine::Stats;

use super::conversation::Deadline;

/// Longest line; a longer one is refused.
const LINE_BYTES_MAX: u64 = 256 << 10;

/// A request to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Send the status.
    Status,
    /// Write everything home and make it durable.
    Sync,
    /// The process that asks supervises a session: syncs by processes that come from it are promises, as long as the connection is open.
    Session {
        /// Their other changes, too.
        every_write: bool,
        /// A secret: processes that know it may join.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// What comes from the process that asks belongs to the session with this secret, as long as the connection is open.
    JoinSession {
        /// As above.
        group: String,
    },
    /// Write everything home, unmount and exit.
    Unmount {
        /// Even if programs use the mount, or data cannot be written home.
        force: bool,
    },
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status {
        /// The status.
        status: Box<Status>,
    },
    /// To [`Request::Session`], with a descriptor of the memory in which promises are counted ([`weir_lane::promises`]).
    Session,
    /// It was done.
    Done,
    /// It could not be done.
    Failed {
        /// What failed, why, and what to do.
        message: String,
    },
}

/// The status of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The daemon's version.
    pub weir_version: String,
    /// The daemon's process.
    pub pid: u32,
    /// SOURCE; a byte that is not UTF-8 is written `\xff`, as [`crate::mounts::shown`] does.
    pub source: String,
    /// MOUNTPOINT, likewise.
    pub mountpoint: String,
    /// How long it has been mounted.
    pub uptime_ms: u64,
    /// The fetch policy's name.
    pub fetch_policy: String,
    /// The write-back policy's name.
    pub write_back: String,
    /// Whether nothing may be changed through the mount.
    pub read_only: bool,
    /// Whether it was mounted read-only: then the daemon refuses all changes, even if the kernel
    /// does not.
    pub mounted_read_only: bool,
    /// Whether files are transferred with O_DIRECT, as far as is known.
    pub direct: bool,
    /// How files are transferred: `ring` or `threads`.
    pub transfer: String,
    /// How requests come from the kernel: `io-uring` or `device`; empty if a daemon does not say.
    pub transport: String,
    /// What becomes durable in the order in which it was changed: `sync` or `all`; empty if a daemon does not say.
    pub order: String,
    /// Where metrics are served, such as `127.0.0.1:9338`; empty if nowhere.
    pub metrics: String,
    /// Memory of the daemon as the kernel counts it.
    pub resident_bytes: u64,
    /// Whether the daemon is ending.
    pub stopping: bool,
    /// The lane's clients and counters; absent without a lane.
    pub lane: Option<LaneReport>,
    /// Names that do not wait for SOURCE; absent with `--names sync`.
    pub names: Option<NamesReport>,
    /// Sessions of programs (`weir run --sync external`).
    pub sessions: Vec<SessionReport>,
    /// FUSE requests that the kernel sent, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Notifications sent to the kernel: entries that it must drop from its caches.
    pub notifications: u64,
    /// The engine's counters and gauges.
    pub stats: StatsReport,
    /// How long requests took.
    pub latency: LatencyReport,
    /// Requests that wait now; absent if a daemon does not say.
    pub waiting: Option<WaitingReport>,
    /// The files whose requests waited longest, and files on which requests wait now.
    pub slow_files: Vec<SlowFileReport>,
    /// What the bucket that is SOURCE was asked for, a second ago at most; absent where SOURCE is a directory,
    /// and when the program that serves it has ended.
    pub bucket: Option<BucketReport>,
}

/// What a bucket was asked for, and what it lacks. It is what `weir-bucket` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketReport {
    /// All `requests`, those of each kind, those that `failed`, and bytes of content: `bytes_up` and `bytes_down`.
    pub store: BTreeMap<String, u64>,
    /// Files and directories that it lacks, or has of before.
    pub files: BucketFilesReport,
    /// What was fetched and is kept on this machine's disk; absent without `--cache`.
    pub cache: Option<BucketCacheReport>,
}

/// The cache of a bucket, in units of 128 KiB or less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketCacheReport {
    /// Units that were found.
    pub hits: u64,
    /// Units that were not.
    pub misses: u64,
    /// What all units take on the disk, bytes.
    pub bytes: u64,
    /// Units that were fetched and not kept: the disk had no room, or was too slow.
    pub skipped: u64,
    /// Units that were not as they had been written.
    pub damaged: u64,
}

/// The files of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketFilesReport {
    /// How many files and directories are to be uploaded.
    pub pending_nodes: u64,
    /// Bytes of them, as far as they are in the spool.
    pub pending_bytes: u64,
    /// How often somebody else had changed an object, and both were kept.
    pub conflicts: u64,
    /// Uploads that failed; they are tried again.
    pub uploads_failed: u64,
    /// Another machine has the prefix: nothing is uploaded any more.
    pub lease_lost: bool,
}

impl BucketReport {
    /// A number of [`BucketReport::store`].
    pub fn count(&self, name: &str) -> u64 {
        self.store.get(name).copied().unwrap_or_default()
    }

    /// Bytes of content that were moved, up and down.
    pub fn bytes(&self) -> u64 {
        self.count("bytes_up").saturating_add(self.count("bytes_down"))
    }

    /// Requests of each kind of which there were any.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, u64)> {
        let kinds = self.store.iter().map(|(name, count)| (name.as_str(), *count));
        kinds.filter(|(name, count)| {
            *count > 0 && !["requests", "failed", "bytes_up", "bytes_down"].contains(name)
        })
    }
}

/// What `weir status --requests --json` shows of a [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestsReport {
    /// MOUNTPOINT.
    pub mountpoint: String,
    /// Requests by kind.
    pub requests: BTreeMap<String, u64>,
    /// All of them.
    pub total: u64,
    /// Notifications.
    pub notifications: u64,
}

impl From<&Status> for RequestsReport {
    fn from(status: &Status) -> RequestsReport {
        RequestsReport {
            mountpoint: status.mountpoint.clone(),
            requests: status.requests.clone(),
            total: status.requests.values().sum(),
            notifications: status.notifications,
        }
    }
}

/// [`weir_fuse::LaneStatus`], for the status message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneReport {
    pub clients: u64,
    pub files: u64,
    pub posted_writes: u64,
    pub posted_bytes: u64,
    pub entered: u64,
    pub granted: u64,
    pub revoked: u64,
    pub refused: u64,
}

#[cfg(feature = "daemon")]
impl From<weir_fuse::LaneStatus> for LaneReport {
    fn from(from: weir_fuse::LaneStatus) -> LaneReport {
        let weir_fuse::LaneStatus {
            clients,
            files,
            posted_writes,
            posted_bytes,
            entered,
            granted,
            revoked,
            refused,
        } = from;
        LaneReport {
            clients,
            files,
            posted_writes,
            posted_bytes,
            entered,
            granted,
            revoked,
            refused,
        }
    }
}

/// Changes of names and attributes that do not wait for SOURCE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamesReport {
    /// Changes that SOURCE does not have yet.
    pub pending: u64,
    /// Of these, changes that SOURCE refused.
    pub refused: u64,
    /// The first of these, each with the reason.
    pub refused_paths: Vec<String>,
    /// Names that another program took in SOURCE since the mount was made.
    pub conflicts: u64,
    /// The last of these.
    pub conflict_paths: Vec<String>,
}

/// [`weir_fuse::SessionStatus`], for the status message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionReport {
    /// The process of its supervisor, as the daemon sees it.
    pub supervisor: u32,
    /// Every change is a promise, not only syncs.
    pub every_write: bool,
    /// Promises made on this mount.
    pub promises: u64,
    /// Some of them are not durable.
    pub pending: bool,
    /// Commits, by their reasons.
    pub commits: SessionCommitsReport,
    /// How long what left waited for them.
    pub waits: SessionWaitsReport,
}

/// [`weir_lane::commits::Made`], for the status message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionCommitsReport {
    /// Something waited to leave the session.
    pub for_output: u64,
    /// It took as long to judge whether calls leave.
    pub for_judging: u64,
    /// A promise was 5 s old.
    pub by_time: u64,
    /// A program had ended.
    pub at_end: u64,
    /// Syncs that output would probably follow.
    pub by_syncs: u64,
    /// Somebody outside looked at the mount.
    pub for_outsiders: u64,
}

/// [`weir_lane::commits::Waits`], for the status message. Microseconds; all but the longest within a quarter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionWaitsReport {
    /// How many there were.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_us: u64,
    /// 99 % of them took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
    /// All together, within a quarter.
    pub sum_us: u64,
}

#[cfg(feature = "daemon")]
impl From<weir_fuse::SessionStatus> for SessionReport {
    fn from(from: weir_fuse::SessionStatus) -> SessionReport {
        let weir_fuse::SessionStatus {
            supervisor,
            every_change,
            promises,
            is_pending,
            commits,
            waits,
        } = from;
        let commits = SessionCommitsReport {
            for_output: commits.for_output,
            for_judging: commits.for_judging,
            by_time: commits.by_time,
            at_end: commits.at_end,
            by_syncs: commits.by_syncs,
            for_outsiders: commits.for_outsiders,
        };
        let waits = SessionWaitsReport {
            count: waits.count(),
            p50_us: waits.percentile_us(50),
            p99_us: waits.percentile_us(99),
            max_us: waits.longest_us(),
            sum_us: waits.total_us(),
        };
        let (every_write, pending) = (every_change, is_pending);
        SessionReport { supervisor, every_write, promises, pending, commits, waits }
    }
}

/// [`weir_shard::WaitingNow`], for the status message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingReport {
    pub writes: u64,
    pub reads: u64,
    pub syncs: u64,
    pub others: u64,
    pub oldest_ns: u64,
}

#[cfg(feature = "daemon")]
impl From<weir_shard::WaitingNow> for WaitingReport {
    fn from(from: weir_shard::WaitingNow) -> WaitingReport {
        let weir_shard::WaitingNow { writes, reads, syncs, others, oldest_ns } = from;
        WaitingReport { writes, reads, syncs, others, oldest_ns }
    }
}

/// [`weir_shard::SlowFile`], for the status message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowFileReport {
    /// Its number, as stat(2) shows it in the mount.
    pub node: u64,
    /// Its path below the mount, the end of a long one; absent if it is not known without asking SOURCE.
    pub path: Option<String>,
    /// Writes that waited.
    pub write: LateReport,
    /// Reads.
    pub read: LateReport,
    /// Syncs.
    pub sync: LateReport,
    /// At most so long its requests waited before these.
    pub unseen_ns: u64,
    /// Its requests that wait now.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub oldest_ns: u64,
}

/// [`weir_shard::LateAnswers`], for the status message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LateReport {
    pub count: u64,
    pub total_ns: u64,
    pub max_ns: u64,
}

#[cfg(feature = "daemon")]
impl From<weir_shard::LateAnswers> for LateReport {
    fn from(from: weir_shard::LateAnswers) -> LateReport {
        let weir_shard::LateAnswers { count, total_ns, max_ns } = from;
        LateReport { count, total_ns, max_ns }
    }
}

#[cfg(feature = "daemon")]
impl SlowFileReport {
    /// Of a file at this path.
    pub fn new(file: weir_shard::SlowFile, path: Option<String>) -> SlowFileReport {
        let weir_shard::SlowFile { file, write, read, sync, unseen_ns, waiting, oldest_ns } = file;
        SlowFileReport {
            node: file.0,
            path,
            write: write.into(),
            read: read.into(),
            sync: sync.into(),
            unseen_ns,
            waiting,
            oldest_ns,
        }
    }
}

/// Latencies by kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyReport {
    /// Writes.
    pub write: PercentilesReport,
    /// Reads.
    pub read: PercentilesReport,
    /// Syncs.
    pub sync: PercentilesReport,
}

/// Percentiles of one kind of request; see [`weir_shard::Percentiles`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PercentilesReport {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

#[cfg(feature = "daemon")]
impl From<weir_shard::Percentiles> for PercentilesReport {
    fn from(from: weir_shard::Percentiles) -> PercentilesReport {
        let weir_shard::Percentiles { count, sum_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } =
            from;
        PercentilesReport { count, sum_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns }
    }
}

#[cfg(feature = "daemon")]
impl From<weir_shard::Latencies> for LatencyReport {
    fn from(from: weir_shard::Latencies) -> LatencyReport {
        let weir_shard::Latencies { write, read, sync } = from;
        LatencyReport { write: write.into(), read: read.into(), sync: sync.into() }
    }
}

/// Declares the report with the fields of the engine's [`Stats`]; a field that is added there and
/// not here does not compile.
macro_rules! stats_report {
    ($($field:ident),* $(,)?) => {
        /// [`Stats`], field by field.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct StatsReport { $(pub $field: u64),* }

        #[cfg(feature = "daemon")]
        impl From<Stats> for StatsReport {
            fn from(stats: Stats) -> StatsReport {
                let Stats { $($field),* } = stats;
                StatsReport { $($field),* }
            }
        }
    };
}

stats_report!(
    writes,
    write_bytes,
    reads,
    read_bytes,
    read_hits,
    read_misses,
    patch_writes,
    fetched_pages,
    gap_pages,
    fetch_commands,
    fetches_waited,
    fetches_avoided,
    readahead_pages,
    writers_blocked_fetch,
    writers_throttled,
    writers_paced,
    writers_waiting,
    gap_pages_written,
    destage_commands,
    destage_bytes,
    requests_joined,
    destages_aged,
    destages_pressed,
    destages_synced,
    destages_along,
    pages_along,
    windows,
    sync_requests_waiting,
    async_requests_waiting,
    queue_depth,
    fetch_errors,
    destage_errors,
    sync_errors,
    log_records,
    log_bytes,
    log_groups,
    log_blocks,
    log_errors,
    spilled,
    log_reads,
    log_read_blocks,
    log_read_errors,
    log_redos,
    log_used_bytes,
    log_capacity_bytes,
    evictions,
    files,
    pages,
    frames,
    dirty_pages,
    patched_pages,
    spilled_pages,
    spill_index_bytes,
    patch_bytes,
    fetches_in_flight,
    destages_in_flight,
    oldest_dirty_ms,
    dirtied_pages,
    cleaned_pages,
    ghost_hits,
    ghost_misses,
    dirtied_last_interval,
    cleaned_last_interval,
    dirty_memory_pages,
    watermark_high_pages,
    watermark_low_pages,
    watermark_max_pages,
    pressure_pages,
    dirty_bound_pages,
    cache_pages,
    memory_bytes,
    memory_bytes_max,
    patch_bytes_max,
);

/// Sends one line.
pub fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Receives one line.
///
/// # Errors
/// The error of the read, or a line that is too long, incomplete, or no message.
pub fn receive<T: DeserializeOwned>(from: impl Read) -> io::Result<T> {
    let mut line = Vec::new();
    io::BufReader::new(from.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Sends one line with a descriptor, by one call of sendmsg(2).
///
/// # Errors
/// That of the call, or the line did not fit.
pub fn send_with(
    to: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(to, &[io::IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one line, and the descriptor that came with it, if one did, until the deadline.
///
/// # Errors
/// As for [`receive`]; or it took too long.
pub fn receive_with<T: DeserializeOwned>(
    from: BorrowedFd<'_>,
    deadline: Deadline,
) -> io::Result<(T, Option<OwnedFd>)> {
    let mut line = Vec::new();
    let mut received = None;
    while line.last() != Some(&b'\n') {
        deadline.wait_to_read(from)?;
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [io::IoSliceMut::new(&mut bytes)];
        let got = match recvmsg(from, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => got.bytes,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                received = received.or(descriptors.last());
            }
        }
        if got == 0 || (line.len() + got) as u64 > LINE_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&bytes[..got]);
    }
    Ok((serde_json::from_slice(&line)?, received))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_descriptor_comes_with_its_line() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send_with(here.as_fd(), &Reply::Session, file.as_fd()).unwrap();
        send(&here, &Reply::Done).unwrap();
        let (reply, descriptor) = receive_with::<Reply>(there.as_fd(), Deadline::NEVER).unwrap();
        assert_eq!(reply, Reply::Session);
        assert!(descriptor.is_some());
        let (reply, descriptor) = receive_with::<Reply>(there.as_fd(), Deadline::NEVER).unwrap();
        assert_eq!(reply, Reply::Done);
        assert!(descriptor.is_none());
        drop(here);
        assert!(receive_with::<Reply>(there.as_fd(), Deadline::NEVER).is_err());
    }

    #[test]
    fn messages_arrive_as_sent() {
        let group = "secret".to_owned();
        let session = Request::Session { every_write: true, group: None };
        let join = Request::JoinSession { group };
        let unmount = Request::Unmount { force: true };
        for request in [Request::Status, Request::Sync, session, join, unmount] {
            let mut line = Vec::new();
            send(&mut line, &request).unwrap();
            assert_eq!(receive::<Request>(&line[..]).unwrap(), request);
        }
        let status = Status { pid: 7, source: "/a b".into(), ..Status::default() };
        let reply = Reply::Status { status: Box::new(status) };
        let mut line = Vec::new();
        send(&mut line, &reply).unwrap();
        assert_eq!(receive::<Reply>(&line[..]).unwrap(), reply);
    }

    /// `library/control.c` reads no JSON, and relies on it.
    #[test]
    fn the_kind_comes_first_and_a_status_last() {
        let reply = Reply::Status { status: Box::default() };
        let line = serde_json::to_string(&reply).unwrap();
        let status = serde_json::to_string(&Status::default()).unwrap();
        assert_eq!(line, format!("{{\"reply\":\"status\",\"status\":{status}}}"));
        assert_eq!(serde_json::to_string(&Reply::Done).unwrap(), "{\"reply\":\"done\"}");
        let failed = Reply::Failed { message: String::new() };
        let failed = serde_json::to_string(&failed).unwrap();
        assert!(failed.starts_with("{\"reply\":\"failed\""));
        assert_eq!(serde_json::to_string(&Request::Status).unwrap(), "{\"request\":\"status\"}");
        assert_eq!(serde_json::to_string(&Request::Sync).unwrap(), "{\"request\":\"sync\"}");
    }

    #[test]
    fn a_newer_daemon_is_understood() {
        let line = b"{\"reply\":\"status\",\"status\":{\"pid\":3,\"novelty\":[1]}}\n";
        let Reply::Status { status } = receive(&line[..]).unwrap() else { panic!() };
        assert_eq!(status.pid, 3);
    }

    #[test]
    fn invalid_messages_are_errors() {
        for line in
            [&b""[..], b"{}\n", b"{\"request\":\"status\"}", b"\xff\n", b"{\"request\":\"x\"}\n"]
        {
            assert!(receive::<Request>(line).is_err(), "{line:?}");
        }
        assert!(receive::<Request>(io::repeat(b'x')).is_err());
    }
}
