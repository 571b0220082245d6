//! The reclaimer: a thread that closes files that have become clean, and has the kernel drop cached objects. Threads
//! that serve requests must not do this.
//!
//! A notification to the kernel can wait for a lock that a program holds while it waits for an answer from the daemon.
//! It is therefore sent from the reclaimer's own thread, which holds no lock at that time and on which no request waits.
//!
//! Owns that thread's queue, whose sending half the file system holds. What the thread does is in
//! [`crate::ops::reclaim`].

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::inode::NodeId;

/// A job for the thread.
pub(crate) enum Job {
    WatchClosing,
    WatchListings,
    DropAttributes(NodeId),
    /// A name in a directory.
    DropName(NodeId, OsString),
    /// Drops the inode's attributes and these pages, then calls the function.
    Forget(NodeId, Pages, Box<dyn FnOnce() + Send>),
    Reclaim,
    Stop,
}

/// Cached pages of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    None,
    /// Those that a range touches: offset and length, bytes.
    Range(u64, u64),
    All,
}

/// Work for the reclaimer's thread.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    jobs: Sender<Job>,
    /// Upper bound of inodes held open before some are reclaimed.
    pub(crate) inodes_max: usize,
    /// The number of inodes at which reclaiming is tried next: more than `inodes_max` if not enough could be released the
    /// last time.
    next_reclaim: AtomicUsize,
    reclaiming: AtomicBool,
}

/// The receiving half of the reclaimer's queue, until its thread starts.
pub(crate) struct ReclaimerQueue(pub(crate) Receiver<Job>);

impl Reclaimer {
    /// A queue. Above `inodes_max` inodes some are reclaimed.
    pub(crate) fn new(inodes_max: usize) -> (Reclaimer, ReclaimerQueue) {
        let (jobs, queue) = channel();
        let reclaimer = Reclaimer {
            jobs,
            inodes_max,
            next_reclaim: AtomicUsize::new(inodes_max),
            reclaiming: AtomicBool::new(false),
        };
        (reclaimer, ReclaimerQueue(queue))
    }

    /// Closes files that were dirty when they were closed once they are clean, until none is left.
    pub(crate) fn watch_closing(&self) {
        self.send(Job::WatchClosing);
    }

    /// Has the kernel drop listings when they are due, until none is left.
    pub(crate) fn watch_listings(&self) {
        self.send(Job::WatchListings);
    }

    /// Has the kernel ask again for an inode's attributes, which changed in a way it cannot know.
    pub(crate) fn drop_attributes(&self, node: NodeId) {
        self.send(Job::DropAttributes(node));
    }

    /// Has the kernel look up a name again: it was made, but the kernel got an error.
    pub(crate) fn drop_name(&self, directory: NodeId, name: &OsStr) {
        self.send(Job::DropName(directory, name.to_owned()));
    }

    /// Has the kernel drop an inode's attributes, then runs `then` on the reclaimer's thread. `then` does not run if the
    /// mount ends before.
    pub(crate) fn forget_attributes(&self, node: NodeId, then: impl FnOnce() + Send + 'static) {
        self.forget_pages(node, Pages::None, then);
    }

    /// As [`Reclaimer::forget_attributes`], and cached pages of the inode's data too.
    pub(crate) fn forget_pages(
        &self,
        node: NodeId,
        pages: Pages,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.send(Job::Forget(node, pages, Box::new(then)));
    }

    /// Releases files that no program has open, if too many inodes are held.
    pub(crate) fn inodes_grew(&self, held: usize) {
        if held > self.next_reclaim.load(Ordering::Relaxed) {
            self.reclaim();
        }
    }

    /// Releases files that no program has open, because no descriptors are left.
    pub(crate) fn reclaim(&self) {
        if !self.reclaiming.swap(true, Ordering::AcqRel) {
            self.send(Job::Reclaim);
        }
    }

    /// Ends the thread after the jobs sent before.
    pub(crate) fn stop(&self) {
        self.send(Job::Stop);
    }

    /// Sends a job. After the reclaimer has stopped, jobs are dropped: the mount has ended.
    fn send(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    /// Notes that `held` inodes are held after some were reclaimed.
    pub(crate) fn reclaimed(&self, held: usize) {
        let next =
            if held > self.inodes_max { held + self.inodes_max / 16 } else { self.inodes_max };
        self.next_reclaim.store(next, Ordering::Relaxed);
        self.reclaiming.store(false, Ordering::Release);
    }
}
