//! Posting by the lane in a session ([`weir_lane::post_order`]): a write may be posted if nobody outside can tell, as by the door, and if this
//! process is the session's poster.
//!
//! A process that is not asks the daemon to become it. That takes a request, as a write by the kernel does, so processes that write in turn
//! wait longer each time before they ask again.
//!
//! Invariant: a call that has posted returns only if this process still was the poster then, or the daemon has applied what was posted.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weir_lane::post_order::PostOrder;
use weir_lane::wire::{Attach, TAKE};

use super::{IS_MEMBER, Promised, SESSION, Session, session};
use crate::home;
use crate::sys::{self, Errno};

/// Writes that the kernel made since this process last asked to be the poster.
static MISSED: AtomicU32 = AtomicU32::new(0);
/// After so many it asks.
static PATIENCE: AtomicU32 = AtomicU32::new(1);
const PATIENCE_MAX: u32 = 256;
/// When it asked, by [`sys::milliseconds`].
static ASKED: AtomicU64 = AtomicU64::new(0);
/// After this time it is patient no longer.
const FORGET_MS: u64 = 100;

/// A client of a mount's daemon, as this process knows it.
#[derive(Clone, Copy)]
pub(crate) struct Poster {
    /// The daemon's number for the client.
    pub(crate) client: u32,
    /// By which the daemon knows it.
    pub(crate) token: u64,
    /// The mount's index in the session; `None` if it is no mount of the session.
    pub(crate) mount: Option<usize>,
}

/// The mount in the session that a descriptor's file is on, if syncs are promises there.
pub(crate) fn mount_of(fd: c_int) -> Option<usize> {
    let session = session()?;
    let place = sys::place(fd).ok()?;
    (0..session.mounts).find(|index| session.has(*index, place))
}

/// Whether the process is a member of a session, with its door open or closed.
#[inline]
pub(crate) fn is_in_session() -> bool {
    IS_MEMBER.load(Ordering::Acquire)
}

/// Whether a write to this file may be posted.
#[inline]
pub(crate) fn may_post(fd: c_int, poster: Poster) -> bool {
    if !is_in_session() {
        return true;
    }
    let (Some(session), Some(mount)) = (session(), poster.mount) else { return false };
    let stays_inside = match session.promised() {
        Promised::Nothing => true,
        Promised::On(index) => index == mount,
        Promised::More => false,
    };
    stays_inside && (session.order(mount).may_post(poster.client) || become_poster(fd, poster))
}

/// A write was posted. To be called before the program's call returns.
#[inline]
pub(crate) fn has_posted(fd: c_int, poster: Poster) {
    if let (true, Some(mount)) = (is_in_session(), poster.mount) {
        // SAFETY: written before `IS_MEMBER` was set. It is the same one if the door was closed meanwhile.
        let session = unsafe { (*SESSION.0.get()).assume_init_ref() };
        if !session.order(mount).has_posted(poster.client) {
            // It is applied when the daemon answers, also if another client has asked meanwhile.
            let _ = ask(fd, poster);
        }
    }
}

impl Session {
    fn order(&self, mount: usize) -> &PostOrder {
        self.promises(mount).posts()
    }
}

#[cold]
fn become_poster(fd: c_int, poster: Poster) -> bool {
    let missed = MISSED.fetch_add(1, Ordering::Relaxed) + 1;
    if missed < PATIENCE.load(Ordering::Relaxed) {
        return false;
    }
    MISSED.store(0, Ordering::Relaxed);
    let now = sys::milliseconds();
    let patience = match now.saturating_sub(ASKED.swap(now, Ordering::Relaxed)) {
        ..FORGET_MS => (2 * PATIENCE.load(Ordering::Relaxed)).min(PATIENCE_MAX),
        _ => 1,
    };
    PATIENCE.store(patience, Ordering::Relaxed);
    ask(fd, poster).is_ok()
}

#[cold]
fn ask(fd: c_int, poster: Poster) -> sys::Result<()> {
    let Poster { client, token, .. } = poster;
    let asked = Attach { client, token, process: home::number(), keeps_order: true };
    loop {
        match sys::ioctl(fd, TAKE, &mut asked.encode()) {
            Err(Errno(libc::EINTR)) => {}
            result => return result,
        }
    }
}
