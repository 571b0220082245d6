//! Promises of a session, counted in memory that the daemon shares with the session's supervisor, and with its members.
//!
//! A *promise* is a sync that has returned although what it covers is not durable: nothing may leave the session before it is (output
//! commit; xsyncfs, OSDI'06, section 3). The daemon counts those that it makes itself, for syncs that reach it by the kernel; the supervisor
//! those that it makes for system calls that it has stopped; the library in members ([`crate::door`]) those that it makes itself. Daemon and
//! supervisor say how many of all are durable.
//!
//! Invariants:
//! - a side adds to its own count alone, and before what it promised is answered;
//! - what is durable only grows. A side that lies harms its own session.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::commits::Commits;
use crate::memory::{Access, Memory, create};
use crate::post_order::PostOrder;

/// Bytes of the memory: a page.
const BYTES: usize = crate::PAGE_BYTES;

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The daemon of a mount.
    Daemon,
    /// The supervisor of a session.
    Supervisor,
    /// A member of a session.
    Member,
}

/// How many sides there are.
const SIDES: usize = 3;

/// How many promises were made, or are durable, by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// By the daemon.
    pub by_daemon: u64,
    /// By the supervisor.
    pub by_supervisor: u64,
    /// By members.
    pub by_members: u64,
}

impl Made {
    /// All of them.
    pub fn total(self) -> u64 {
        self.by_daemon.saturating_add(self.by_supervisor).saturating_add(self.by_members)
    }

    /// Whether it holds all that `made` does.
    pub fn covers(self, made: Made) -> bool {
        self.by_daemon >= made.by_daemon
            && self.by_supervisor >= made.by_supervisor
            && self.by_members >= made.by_members
    }
}

/// What both sides see.
#[repr(C)]
struct Shared {
    made: [AtomicU64; SIDES],
    durable: [AtomicU64; SIDES],
    /// Not zero: members have changed the mount, or may have. By the daemon.
    changed: AtomicU64,
    /// How many outsiders wait. By the daemon.
    waiting: AtomicU64,
    /// Open descriptions of files that processes outside have. By the daemon.
    opened_outside: AtomicU64,
    posts: PostOrder,
    commits: Commits,
    /// Not zero: the mount has ended, and everything is durable. By the daemon.
    ended: AtomicU64,
    /// Not zero: something that members had written was lost. By the daemon.
    lost: AtomicU64,
}

/// The counts of one session on one mount.
#[derive(Debug)]
pub struct Promises {
    memory: Memory,
    side: Side,
}

impl Promises {
    /// Makes counts, all zero, for the daemon; the descriptor is for the supervisor.
    ///
    /// # Errors
    /// Those of making and mapping memory.
    pub fn create() -> io::Result<(Promises, OwnedFd)> {
        let fd = create("weir-promises", BYTES)?;
        Ok((Promises::map(&fd, Side::Daemon)?, fd))
    }

    /// Those that the daemon has made, for one of the other sides.
    ///
    /// # Errors
    /// Those of mapping; `InvalidData` if the memory is too small.
    pub fn open(fd: impl AsFd, side: Side) -> io::Result<Promises> {
        Promises::map(fd, side)
    }

    fn map(fd: impl AsFd, side: Side) -> io::Result<Promises> {
        const { assert!(size_of::<Shared>() <= BYTES) };
        Ok(Promises { memory: Memory::map(fd, BYTES, Access::ReadWrite)?, side })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it consists of atomics, and every bit pattern is a number.
        unsafe { self.memory.at(0) }
    }

    /// The order of what members post by the lane.
    pub fn posts(&self) -> &PostOrder {
        &self.shared().posts
    }

    /// What commits there were.
    pub fn commits(&self) -> &Commits {
        &self.shared().commits
    }

    /// Counts a promise. To be called after what it covers was applied, and before it is answered.
    pub fn promise(&self) {
        self.shared().made[self.side as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// A member is about to change the mount.
    pub fn note_change(&self) {
        let changed = &self.shared().changed;
        if changed.load(Ordering::SeqCst) == 0 {
            changed.store(1, Ordering::SeqCst);
        }
    }

    /// Whether members may have changed the mount since the daemon counts.
    pub fn has_changes(&self) -> bool {
        self.shared().changed.load(Ordering::SeqCst) != 0
    }

    /// The mount has ended, and everything is durable, unless something was lost.
    pub fn end(&self) {
        if self.set_durable(self.made()) {
            self.shared().ended.store(1, Ordering::SeqCst);
        }
    }

    /// Something that a member had written is lost: nothing that is promised from now on, or is not durable yet, ever will be. Says whether
    /// it is the first.
    pub fn lose(&self) -> bool {
        self.shared().lost.swap(1, Ordering::SeqCst) == 0
    }

    /// Whether it has. A daemon that is gone without that has died.
    pub fn has_ended(&self) -> bool {
        self.shared().ended.load(Ordering::SeqCst) != 0
    }

    /// A process outside begins to wait for what was promised. Until [`Promises::end_wait`] nothing more is to be promised: it would have to wait for that, too.
    pub fn begin_wait(&self) {
        self.shared().waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// It need not wait any more.
    pub fn end_wait(&self) {
        self.shared().waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        self.shared().waiting.load(Ordering::SeqCst) != 0
    }

    /// Processes outside have this many more open descriptions of files.
    pub fn add_opened_outside(&self, descriptions: u64) {
        self.shared().opened_outside.fetch_add(descriptions, Ordering::SeqCst);
    }

    /// They have one less.
    pub fn closed_outside(&self) {
        self.shared().opened_outside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether they have any: then they may wait for a lock that a member has.
    pub fn is_open_outside(&self) -> bool {
        self.shared().opened_outside.load(Ordering::SeqCst) != 0
    }

    /// Whether something was lost.
    pub fn is_lost(&self) -> bool {
        self.shared().lost.load(Ordering::SeqCst) != 0
    }

    /// The promises made so far.
    pub fn made(&self) -> Made {
        read(&self.shared().made)
    }

    /// Whether one of them is not durable, as far as is known.
    pub fn is_pending(&self) -> bool {
        // Read first: what is made after that is seen, or was made after this call began.
        let durable = self.durable();
        !durable.covers(self.made())
    }

    /// What is durable, as far as is known.
    pub fn durable(&self) -> Made {
        read(&self.shared().durable)
    }

    /// Says that these are durable: a commit that began after they were made has succeeded. False if they are not, since something was lost
    /// ([`Promises::lose`]).
    #[must_use]
    pub fn set_durable(&self, made: Made) -> bool {
        if self.is_lost() {
            return false;
        }
        let durable = &self.shared().durable;
        durable[Side::Daemon as usize].fetch_max(made.by_daemon, Ordering::SeqCst);
        durable[Side::Supervisor as usize].fetch_max(made.by_supervisor, Ordering::SeqCst);
        durable[Side::Member as usize].fetch_max(made.by_members, Ordering::SeqCst);
        true
    }
}

fn read(counts: &[AtomicU64; SIDES]) -> Made {
    let of = |side: Side| counts[side as usize].load(Ordering::SeqCst);
    Made {
        by_daemon: of(Side::Daemon),
        by_supervisor: of(Side::Supervisor),
        by_members: of(Side::Member),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_promises_is_pending_for_all_until_a_commit_covers_it() {
        let (daemon, fd) = Promises::create().unwrap();
        let supervisor = Promises::open(&fd, Side::Supervisor).unwrap();
        let member = Promises::open(&fd, Side::Member).unwrap();
        assert!(!daemon.is_pending());
        assert!(!supervisor.has_changes());
        daemon.note_change();
        assert!(supervisor.has_changes());
        daemon.begin_wait();
        assert!(supervisor.is_waited_for());
        daemon.end_wait();
        assert!(!supervisor.is_waited_for());
        daemon.add_opened_outside(2);
        daemon.closed_outside();
        assert!(member.is_open_outside());
        daemon.closed_outside();
        assert!(!member.is_open_outside());
        daemon.promise();
        supervisor.promise();
        let begun = supervisor.made();
        assert_eq!(begun, Made { by_daemon: 1, by_supervisor: 1, by_members: 0 });
        assert!(daemon.is_pending() && supervisor.is_pending());
        daemon.promise();
        assert!(supervisor.set_durable(begun));
        assert!(daemon.is_pending() && supervisor.is_pending());
        assert!(daemon.set_durable(daemon.made()));
        // An older commit ends later.
        assert!(supervisor.set_durable(begun));
        assert!(!daemon.is_pending() && !supervisor.is_pending() && !member.is_pending());
        member.promise();
        assert!(daemon.is_pending() && supervisor.is_pending() && member.is_pending());
        assert!(supervisor.set_durable(daemon.made()));
        assert!(!member.is_pending());
        assert_eq!(daemon.made().total(), 4);
        member.promise();
        assert!(!supervisor.has_ended());
        daemon.end();
        assert!(supervisor.has_ended() && !supervisor.is_pending());
    }

    #[test]
    fn after_a_loss_nothing_becomes_durable() {
        let (daemon, fd) = Promises::create().unwrap();
        let supervisor = Promises::open(&fd, Side::Supervisor).unwrap();
        supervisor.promise();
        assert!(daemon.lose() && !daemon.lose());
        assert!(!supervisor.set_durable(supervisor.made()));
        assert!(supervisor.is_pending());
        daemon.end();
        assert!(supervisor.is_pending() && !supervisor.has_ended());
    }
}
