//! Counts of the kernel's requests by kind, and of the notifications sent to it.
//!
//! Both transports count requests as they read them. Calls that the kernel answers from its caches are not counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of requests in `enum fuse_opcode` are below this.
const OPCODES: usize = 64;

/// The kinds of requests, and their names in `enum fuse_opcode`, in lower case.
const NAMES: [(u32, &str); 48] = [
    (1, "lookup"),
    (2, "forget"),
    (3, "getattr"),
    (4, "setattr"),
    (5, "readlink"),
    (6, "symlink"),
    (8, "mknod"),
    (9, "mkdir"),
    (10, "unlink"),
    (11, "rmdir"),
    (12, "rename"),
    (13, "link"),
    (14, "open"),
    (15, "read"),
    (16, "write"),
    (17, "statfs"),
    (18, "release"),
    (20, "fsync"),
    (21, "setxattr"),
    (22, "getxattr"),
    (23, "listxattr"),
    (24, "removexattr"),
    (25, "flush"),
    (26, "init"),
    (27, "opendir"),
    (28, "readdir"),
    (29, "releasedir"),
    (30, "fsyncdir"),
    (31, "getlk"),
    (32, "setlk"),
    (33, "setlkw"),
    (34, "access"),
    (35, "create"),
    (36, "interrupt"),
    (37, "bmap"),
    (38, "destroy"),
    (39, "ioctl"),
    (40, "poll"),
    (41, "notify_reply"),
    (42, "batch_forget"),
    (43, "fallocate"),
    (44, "readdirplus"),
    (45, "rename2"),
    (46, "lseek"),
    (47, "copy_file_range"),
    (48, "setupmapping"),
    (52, "statx"),
    (53, "copy_file_range_64"),
];

/// The counters of one mount.
#[derive(Debug)]
pub(crate) struct Requests {
    by_opcode: [AtomicU64; OPCODES],
    other: AtomicU64,
    notifications: AtomicU64,
}

/// How many requests of each kind were read since the mount was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Kinds of which there were any, by name.
    pub by_name: Vec<(&'static str, u64)>,
    /// Notifications sent to the kernel: what it is to drop from its caches.
    pub notifications: u64,
}

impl Requests {
    /// All zero.
    pub(crate) fn new() -> Requests {
        Requests {
            by_opcode: std::array::from_fn(|_| AtomicU64::new(0)),
            other: AtomicU64::new(0),
            notifications: AtomicU64::new(0),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, opcode: u32) {
        let counter = self.by_opcode.get(opcode as usize).unwrap_or(&self.other);
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a notification.
    pub(crate) fn count_notification(&self) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far. A kind without a name counts as `other`.
    pub(crate) fn counts(&self) -> RequestCounts {
        let mut by_name = Vec::new();
        let mut other = self.other.load(Ordering::Relaxed);
        for (opcode, counter) in (0..).zip(&self.by_opcode) {
            let count = counter.load(Ordering::Relaxed);
            match NAMES.iter().find(|(named, _)| *named == opcode) {
                Some(&(_, name)) if count > 0 => by_name.push((name, count)),
                Some(_) => {}
                None => other += count,
            }
        }
        if other > 0 {
            by_name.push(("other", other));
        }
        RequestCounts { by_name, notifications: self.notifications.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_name() {
        let requests = Requests::new();
        for opcode in [1, 44, 1, 0, 63, 64, 4096] {
            requests.count(opcode);
        }
        requests.count_notification();
        let counts = requests.counts();
        assert_eq!(counts.by_name, [("lookup", 2), ("readdirplus", 1), ("other", 4)]);
        assert_eq!(counts.notifications, 1);
    }
}
