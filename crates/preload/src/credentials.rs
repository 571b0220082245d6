//! Calls that change who the process is or what it may reach: its users, groups and capabilities, its root and its
//! namespaces (credentials(7), namespaces(7)).
//!
//! What is mapped of a lane shows what the daemon has in memory of any file, and lets its holder write the files that its
//! client has open. The daemon gave it to the user who connected. So before such a call the process leaves the lane: its
//! descriptions are the kernel's from then on, its memories are replaced by zeros ([`Client::unmap`]), its sockets closed,
//! and it does not come back. A process that is not in a lane stays as it is, and the daemon judges it by its new user
//! when it connects.
//!
//! Invariants:
//! - when such a call begins nothing of a lane is mapped in the process, for any of its threads; none is until it
//!   has returned, for the lock is held under which daemons are connected to;
//! - the call itself is made as the program made it, whatever happens here, and its `errno` is its own.
//!
//! Not left: a child of vfork(2), which runs in its parent's memory anyway; and what makes such a call by the instruction,
//! which is not seen here.
//!
//! [`Client::unmap`]: weir_lane::client::Client::unmap

use crate::{description, device, home, leave, position, sys, table, thread};

/// Leaves the lane. What it returns is to be given to [`after`].
pub(crate) extern "C" fn before() -> bool {
    if !home::notices_forks() || !home::is_ours() {
        return false;
    }
    let locked = device::lock();
    if device::was_client() || !locked {
        depart();
    }
    locked
}

/// The call was made.
pub(crate) extern "C" fn after(locked: bool) {
    if locked {
        device::unlock();
    }
}

/// Leaves the lane for good.
#[cold]
pub(crate) fn depart() {
    thread::give_rings_back();
    // Before descriptions are taken out: no call that begins now uses a client, and no daemon is connected to.
    device::set_departed();
    for fd in table::noted(0, u32::MAX) {
        let Some(description) = table::known(fd) else { continue };
        if description.attached().is_some() && description.flags() & description::PASSED == 0 {
            leave::pass(fd, description);
            leave::use_cache(fd, description);
        }
    }
    // Positions are set by now, and other processes of the client may not be told wrong ones.
    let unmapped = device::unmap().and(position::unmap());
    if unmapped.is_err() {
        sys::write(2, b"weir: cannot unmap the lane's memory (munmap(2) fails) before this program changes its user or \
            what it may reach; it is ended, so that others' files are not shown to the new user\n");
        // SAFETY: it takes nothing.
        unsafe { libc::abort() };
    }
    device::disconnect();
}
