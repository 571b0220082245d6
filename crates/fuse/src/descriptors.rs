//! The process's descriptors: how many are left, and how many a program may use.
//!
//! For each file that a program holds open, the daemon needs descriptors, and all programs of a mount share the daemon's
//! limit. So a program may open another file or directory only while it holds fewer descriptors than are left: a single
//! program gets at most half of them, and other programs always find some. A reserve is left for the control socket,
//! the transport, the log and syncs.
//!
//! Owns the count of open descriptions by the thread that opened them. Lock order: taken alone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::credentials::Caller;

/// Upper bound of held inodes while some are idle: files whose data is cached, above all. Each costs one
/// descriptor and about 600 bytes of memory.
const INODES_MAX: usize = 48 << 10;

/// Bounds on idle inodes that are held because they were used recently, one descriptor each.
const IDLE_MIN: usize = 32;
const IDLE_MAX: usize = 4096;

/// Upper bound of files kept open at home because they were dirty when they were closed.
const CLOSING_MAX: usize = 32 << 10;

/// Descriptors reserved for purposes other than programs' files: a sixteenth, within these bounds.
const RESERVE_MIN: usize = 32;
const RESERVE_MAX: usize = 1024;

/// Descriptors for an open file: one with `O_PATH`, and one for data.
pub(crate) const PER_DESCRIPTION: usize = 2;

/// The descriptors of the process.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The process's limit.
    limit: usize,
    /// Descriptors reserved for purposes other than programs' files.
    pub(crate) reserve: usize,
    /// Open descriptions by the thread that opened them.
    opened: Mutex<HashMap<u32, usize>>,
    opened_total: AtomicUsize,
    /// Descriptors that were in use before any program had opened a file.
    at_start: usize,
}

impl Descriptors {
    /// The descriptors of a process with a limit of `limit`.
    pub(crate) fn new(limit: usize) -> Descriptors {
        let reserve = (limit / 16).clamp(RESERVE_MIN, RESERVE_MAX);
        Descriptors {
            limit,
            reserve,
            opened: Mutex::default(),
            opened_total: AtomicUsize::new(0),
            at_start: in_use(),
        }
    }

    /// Inodes that may be held open while some of them are idle; one descriptor each.
    pub(crate) fn inodes_max(&self) -> usize {
        INODES_MAX.min(self.limit / 2)
    }

    /// Idle inodes that may be held because they were used recently.
    pub(crate) fn idle_max(&self) -> usize {
        (self.limit / 8).clamp(IDLE_MIN, IDLE_MAX)
    }

    /// Files that may stay open at home because they are dirty; up to two descriptors each.
    pub(crate) fn closing_max(&self) -> usize {
        CLOSING_MAX.min(self.limit / 4)
    }

    /// Counts one more description that a program holds.
    pub(crate) fn opened(&self, opener: &Caller) {
        *self.lock().entry(opener.pid).or_default() += 1;
        self.opened_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the closing of a description that `opener` opened.
    pub(crate) fn closed(&self, opener: &Caller) {
        let mut opened = self.lock();
        if let Some(count) = opened.get_mut(&opener.pid) {
            *count -= 1;
            if *count == 0 {
                opened.remove(&opener.pid);
            }
        }
        self.opened_total.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there are certainly enough descriptors, judged only by counters: `inodes` are held open, and `closing`
    /// files wait to be closed.
    pub(crate) fn are_plenty(&self, inodes: usize, closing: usize) -> bool {
        let opened = self.opened_total.load(Ordering::Relaxed);
        inodes + PER_DESCRIPTION * (opened + closing) < self.limit / 2
    }

    /// Nodes that may wait, made at home, until the log names them: they have at most the reserve.
    pub(crate) fn unnamed_max(&self) -> usize {
        self.reserve / PER_DESCRIPTION
    }

    /// Descriptors left, also when home will have got all new files that are open: they need none before.
    pub(crate) fn left(&self) -> usize {
        let opened = self.opened_total.load(Ordering::Relaxed);
        self.limit.saturating_sub(in_use().max(self.at_start + PER_DESCRIPTION * opened))
    }

    /// Descriptors in use for the open files of the program that a thread belongs to.
    pub(crate) fn held_by(&self, thread: u32) -> usize {
        let threads: Vec<(u32, usize)> =
            self.lock().iter().map(|(&thread, &count)| (thread, count)).collect();
        let program = program_of(thread);
        let is_its = |other: u32| {
            other == thread
                || program.is_some_and(|program| {
                    Path::new(&format!("/proc/{program}/task/{other}")).exists()
                })
        };
        let held = threads.iter().filter(|&&(other, _)| is_its(other));
        PER_DESCRIPTION * held.map(|&(_, count)| count).sum::<usize>()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptors this process has open.
fn in_use() -> usize {
    const DIRECTORY: &str = "/proc/self/fd";
    // Since Linux 6.2 the directory's size is their number.
    match std::fs::metadata(DIRECTORY) {
        Ok(status) if status.len() > 0 => usize::try_from(status.len()).unwrap_or(usize::MAX),
        _ => std::fs::read_dir(DIRECTORY).map_or(0, Iterator::count),
    }
}

/// The thread group of a thread; `None` if it is gone, or in another PID namespace.
fn program_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pid: u32) -> Caller {
        Caller { uid: 0, gid: 0, pid }
    }

    #[test]
    fn all_threads_of_a_program_are_counted_together() {
        let descriptors = Descriptors::new(1024);
        let own = std::process::id();
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = stopped.recv();
        });
        let other = receiver.recv().unwrap();
        descriptors.opened(&caller(own));
        descriptors.opened(&caller(other));
        descriptors.opened(&caller(1));
        assert_eq!(descriptors.held_by(own), 2 * PER_DESCRIPTION);
        assert_eq!(descriptors.held_by(other), 2 * PER_DESCRIPTION);
        descriptors.closed(&caller(other));
        assert_eq!(descriptors.held_by(own), PER_DESCRIPTION);
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn descriptors_in_use_are_counted() {
        let before = in_use();
        let held: Vec<_> = (0..100).map(|_| std::fs::File::open("/").unwrap()).collect();
        assert!(in_use() >= before.max(held.len()));
        assert!(Descriptors::new(100_000).are_plenty(49_000, 0));
        assert!(!Descriptors::new(100_000).are_plenty(49_000, 500));
    }
}
