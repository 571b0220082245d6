//! The daemon's side of the lane: programs that use files by memory shared with the daemon (EvFS; `weir_lane`).
//!
//! Every file in the lane is also open by FUSE. [`opens`] counts how a file's open descriptions are used, [`lease`] decides from
//! that which client may post to it, and [`grants`] executes the decisions on the state in [`lane_state`]. [`drain`] takes out
//! the writes that clients posted, [`calls`] answers the ioctls, [`server`] accepts and removes clients.
//!
//! One order for all writes: before a request on a file is served, everything posted to the file before the request is applied
//! ([`FileSystem::settled`]). The lease's holder is in the inode: for files that are not in the lane the check costs one load.
//!
//! Invariants: those of [`lease`].
//!
//! Lock order: an inode's lane state, then a client's inbox, then its descriptions, then the shard's locks.

pub(crate) mod calls;
pub(crate) mod clients;
pub(crate) mod drain;
mod grants;
pub(crate) mod lane_state;
mod lease;
mod opens;
pub(crate) mod server;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::geteuid;
use weir_lane::board::{Board, FILES};
use weir_lane::memory;
use weir_shard::{Posted, Shard};

use self::clients::Clients;

/// The lane of a mount: the state that its files and clients share.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) board: Arc<Board>,
    /// Read-only descriptors of the board and the frames, for clients.
    board_fd: OwnedFd,
    frames_fd: OwnedFd,
    pub(crate) clients: Clients,
    /// The users that may use the lane, besides the daemon's own.
    users: Vec<u32>,
    slots: Mutex<Slots>,
    /// The name of the socket, in the abstract namespace.
    pub(crate) socket: String,
    /// Proves the daemon to clients: only users that may use the lane are told it ([`weir_lane::wire::FIND`]).
    pub(crate) proof: u64,
    pub(crate) counts: Counts,
}

/// Events since the mount.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Times a file was put into the lane.
    pub(crate) entered: AtomicU64,
    /// Leases granted, and revoked.
    pub(crate) granted: AtomicU64,
    pub(crate) revoked: AtomicU64,
    /// Connections refused.
    pub(crate) refused: AtomicU64,
}

/// The status of a mount's lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// Programs, with the processes each forked.
    pub clients: u64,
    /// Files in the lane.
    pub files: u64,
    /// Writes taken from rings since the mount.
    pub posted_writes: u64,
    /// Bytes of these.
    pub posted_bytes: u64,
    /// Times a file was put into the lane.
    pub entered: u64,
    /// Leases granted: the right of one program to write a file.
    pub granted: u64,
    /// Leases revoked because others opened the file, or closed it.
    pub revoked: u64,
    /// Connections refused.
    pub refused: u64,
}

/// The allocation of places on the board.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    next: u32,
}

impl Lane {
    /// The lane of a shard, for the daemon's own user and `users`; `None` if the shard was started without a lane.
    pub(crate) fn new(shard: &Shard, users: Vec<u32>) -> io::Result<Option<Lane>> {
        let (Some(board), Some(frames)) = (shard.board(), shard.frames_fd()) else {
            return Ok(None);
        };
        Ok(Some(Lane {
            board: Arc::clone(board),
            board_fd: memory::read_only(board.fd())?,
            frames_fd: memory::read_only(frames)?,
            clients: Clients::default(),
            users,
            slots: Mutex::default(),
            socket: format!("weir-lane-{:016x}", random()?),
            proof: random()?,
            counts: Counts::default(),
        }))
    }

    /// Removes consumed ring pages from the daemon's resident memory if there are too many.
    pub(crate) fn bound_resident(&self) {
        if let Err(error) = self.board.bound_resident() {
            tracing::debug!("cannot unmap a client's region: {error}");
        }
    }

    /// Whether a user's programs may use the lane.
    pub(crate) fn is_for(&self, uid: u32) -> bool {
        uid == geteuid().as_raw() || self.users.contains(&uid)
    }

    /// A place on the board, unless all are taken.
    fn take_slot(&self) -> Option<u32> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.pop().or_else(|| {
            let slot = slots.next;
            ((slot as usize) < FILES).then(|| {
                slots.next += 1;
                slot
            })
        })
    }

    fn give_slot_back(&self, slot: u32) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).free.push(slot);
    }

    /// Its status.
    pub(crate) fn status(&self, posted: Posted) -> LaneStatus {
        let files = {
            let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            u64::from(slots.next) - slots.free.len() as u64
        };
        LaneStatus {
            clients: self.clients.len() as u64,
            files,
            posted_writes: posted.writes,
            posted_bytes: posted.bytes,
            entered: self.counts.entered.load(Ordering::Relaxed),
            granted: self.counts.granted.load(Ordering::Relaxed),
            revoked: self.counts.revoked.load(Ordering::Relaxed),
            refused: self.counts.refused.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn refuse(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A random number.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got < bytes.len() {
        return Err(io::Error::other("getrandom(2) returned too little"));
    }
    Ok(u64::from_ne_bytes(bytes))
}
