//! Calls that change what the process is allowed to reach: its users, groups and capabilities, its root and
//! its namespaces (credentials(7), namespaces(7)).
//!
//! The mapped memory of a lane shows what the daemon has in memory of any file, and lets the process write
//! the files that its client has open. The daemon granted that to the user who connected. So before such a
//! call the process leaves the lane for good: the kernel takes over its descriptions, its shared memories are
//! replaced by zeros ([`Client::unmap`]), and its sockets are closed. A process that is not in a lane stays
//! as it is, and the daemon checks its new user when it connects.
//!
//! Invariants:
//! - when such a call begins, no lane memory is mapped in the process; none is mapped until the call has returned, since
//!   the lock for connecting to daemons is held;
//! - the call is made with the program's arguments in every case, and its `errno` is unchanged.
//!
//! Not covered: a child of vfork(2), which runs in its parent's memory anyway, and a program that makes such
//! a call by the `syscall` instruction, which is not seen here.
//!
//! [`Client::unmap`]: weir_lane::client::Client::unmap

use crate::{connection, description, history, home, leave, lock, position, sys, table, thread};

/// Leaves the lane. Pass the result to [`after`].
pub(crate) extern "C" fn before() -> bool {
    if !home::notices_forks() || !home::is_ours() {
        return false;
    }
    let locked = lock::lock();
    if connection::was_client() || !locked {
        depart();
    }
    locked
}

/// Call after the hooked call.
pub(crate) extern "C" fn after(locked: bool) {
    if locked {
        lock::unlock();
    }
}

/// Leaves the lane for good.
#[cold]
pub(crate) fn depart() {
    thread::give_rings_back();
    // Before the descriptions are taken out: calls that begin now use no client, and no daemon is connected
    // to.
    connection::set_departed();
    for fd in table::noted(0, u32::MAX) {
        let Some(description) = table::known(fd) else { continue };
        if description.attached().is_some() && description.flags() & description::PASSED == 0 {
            leave::pass(fd, description);
        }
    }
    // Positions are set by now, so no wrong ones are shared with other processes of the client.
    let unmapped = connection::unmap().and(position::unmap()).and(history::unmap());
    if unmapped.is_err() {
        sys::write(2, b"weir: cannot unmap the lane's memory (munmap(2) fails) before this program changes its user or \
            what it may reach; it is ended, so that others' files are not shown to the new user\n");
        // SAFETY: takes no arguments.
        unsafe { libc::abort() };
    }
    connection::disconnect();
}
