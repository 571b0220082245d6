//! A daemon's status: the part that programs may rely on, typed, and all of it as it was sent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use weir_control::protocol;

use crate::Error;

/// Bytes of a page, in which the daemon counts.
const PAGE_BYTES: u64 = 4096;

/// What a daemon says of its mount. What a daemon of an older version does not say is zero or empty; [`Status::message`] has what one of a
/// newer version says beside.
///
/// ```no_run
/// let status = weir::Mount::of("/mnt/data")?.status()?;
/// if status.names_refused > 0 {
///     eprintln!("{}: home refuses some names", status.mount_point.display());
/// }
/// // A counter that this version of the crate has no field for.
/// println!("{}", status.message()["stats"]["patch_writes"]);
/// # Ok::<(), weir::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub process: u32,
    /// SOURCE; bytes that are not UTF-8 are written as `\xff`.
    pub source: PathBuf,
    /// MOUNTPOINT, likewise.
    pub mount_point: PathBuf,
    /// How long it has been mounted.
    pub mounted_for: Duration,
    /// Whether nothing may be changed through the mount.
    pub is_read_only: bool,
    /// Whether the daemon is ending.
    pub is_ending: bool,
    /// What becomes durable in the order in which it was changed.
    pub order: Order,
    /// Data that is not home, in whole pages.
    pub dirty_bytes: u64,
    /// How long the oldest of it has not been home.
    pub oldest_dirty: Duration,
    /// Names and attributes that are not home.
    pub names_pending: u64,
    /// Of these, those that home refused.
    pub names_refused: u64,
    /// Memory that file data and patches occupy.
    pub memory_bytes: u64,
    /// The bound of it.
    pub memory_bytes_max: u64,
    /// The redo log; `None` without one.
    pub log: Option<Log>,
    message: Value,
}

/// What becomes durable in the order in which it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// What is synced, when it is synced.
    Sync,
    /// Everything: `--order all`. There are promises.
    All,
    /// A daemon of another version does not say, or has a word that this one does not know.
    Other(String),
}

/// A redo log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Log {
    /// Bytes that recovery would read.
    pub used_bytes: u64,
    /// All that fit.
    pub capacity_bytes: u64,
}

impl Status {
    /// The status object as the daemon sent it: the same as of `weir status --json` of its version.
    pub fn message(&self) -> &Value {
        &self.message
    }

    /// Of a daemon's reply.
    pub(crate) fn of_message(mut reply: Value, mount_point: &Path) -> Result<Status, Error> {
        let mount_point = mount_point.to_owned();
        let not_understood =
            |reason: String| Error::NotUnderstood { mount_point: mount_point.clone(), reason };
        match reply["reply"].as_str() {
            Some("status") => {}
            Some("failed") => {
                let reason = reply["message"].as_str().unwrap_or("it does not say why").to_owned();
                return Err(Error::Failed { path: mount_point, reason });
            }
            _ => return Err(not_understood("it gave no status".to_owned())),
        }
        let message = reply.get_mut("status").map(Value::take).unwrap_or_default();
        let known = protocol::Status::deserialize(&message)
            .map_err(|error| not_understood(error.to_string()))?;
        let names = known.names.unwrap_or_default();
        let order = match known.order.as_str() {
            "sync" => Order::Sync,
            "all" => Order::All,
            _ => Order::Other(known.order),
        };
        let stats = known.stats;
        let log = (stats.log_capacity_bytes > 0).then_some(Log {
            used_bytes: stats.log_used_bytes,
            capacity_bytes: stats.log_capacity_bytes,
        });
        Ok(Status {
            version: known.weir_version,
            process: known.pid,
            source: known.source.into(),
            mount_point: known.mountpoint.into(),
            mounted_for: Duration::from_millis(known.uptime_ms),
            is_read_only: known.read_only,
            is_ending: known.stopping,
            order,
            dirty_bytes: stats.dirty_pages.saturating_mul(PAGE_BYTES),
            oldest_dirty: Duration::from_millis(stats.oldest_dirty_ms),
            names_pending: names.pending,
            names_refused: names.refused,
            memory_bytes: stats.memory_bytes,
            memory_bytes_max: stats.memory_bytes_max,
            log,
            message,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(reply: Value) -> Result<Status, Error> {
        Status::of_message(reply, Path::new("/m"))
    }

    #[test]
    fn what_a_newer_daemon_says_is_kept_and_what_an_older_one_does_not_is_empty() {
        let status =
            json!({ "pid": 3, "order": "most", "novelty": [1], "stats": { "dirty_pages": 2 } });
        let newer = of(json!({ "reply": "status", "status": status, "more": 1 })).unwrap();
        assert_eq!(newer.message()["novelty"], json!([1]));
        assert_eq!((newer.process, newer.dirty_bytes), (3, 8192));
        assert_eq!(newer.order, Order::Other("most".to_owned()));
        assert_eq!(newer.log, None);
        let older = of(json!({ "reply": "status", "status": {} })).unwrap();
        assert_eq!((older.version.as_str(), older.order), ("", Order::Other(String::new())));
    }

    #[test]
    fn other_answers_are_errors() {
        let strange = [
            json!(null),
            json!([1]),
            json!({}),
            json!({ "reply": "done" }),
            json!({ "reply": 7, "status": {} }),
            json!({ "reply": "status" }),
            json!({ "reply": "status", "status": { "pid": -1 } }),
            json!({ "reply": "status", "status": { "stats": { "dirty_pages": "many" } } }),
        ];
        for reply in strange {
            let answer = of(reply.clone());
            assert!(matches!(answer, Err(Error::NotUnderstood { .. })), "{reply}: {answer:?}");
        }
        let failed = of(json!({ "reply": "failed", "message": "no" })).unwrap_err();
        assert_eq!(failed.to_string(), "/m: no");
    }

    #[test]
    fn no_number_overflows() {
        let status = json!({ "stats": { "dirty_pages": u64::MAX } });
        let status = of(json!({ "reply": "status", "status": status })).unwrap();
        assert_eq!(status.dirty_bytes, u64::MAX);
    }
}
