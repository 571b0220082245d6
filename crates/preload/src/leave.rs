//! Taking descriptions out of the lane, before a call that the lane cannot do or does not see.

use std::ffi::{c_int, c_long};

use weir_lane::aio::{self, Request};
use weir_lane::wire::{LEAVE, Leave};

use crate::description::{self, Description};
use crate::{connection, device, home, lock, position, sys, table, thread};

/// How often [`revoke`] yields and tries the lock again.
const LOCK_YIELDS: u32 = 100;

/// A descriptor is about to be mapped. Shared mappings use the kernel's page cache, and the daemon does not see them. So
/// the daemon is told of each, also by programs that have nothing in the lane.
pub(crate) fn map(fd: c_int, is_shared: bool) {
    let description = if is_shared { table::find(fd) } else { table::known(fd) };
    match description {
        Some(description)
            if description.attached().is_some()
                || is_shared && device::has_lane(description.device()) =>
        {
            leave(fd, description, description::MAPPED);
        }
        // Another process of the client may have posted to it.
        _ => tell_size(fd),
    }
}

/// `new` is a duplicate of `old`.
pub(crate) fn duplicated(old: c_int, new: c_int) {
    if let Some(description) = table::duplicated(old, new) {
        // A child of vfork(2) uses the duplicate, or passes it to the program that it executes.
        pass(old, description);
    }
}

/// A descriptor is about to be passed to another program, which does not use the lane, or will attach its own description.
pub(crate) fn pass(fd: c_int, description: &Description) {
    if description.attached().is_some() {
        leave_with_cache(fd, description);
    }
}

fn leave_with_cache(fd: c_int, description: &Description) {
    if let Some((client, file)) = description.attached() {
        position::set_if_noted(fd, client, file);
    }
    let has_left = leave(fd, description, description::PASSED);
    // The other program knows nothing of O_DIRECT: the kernel sends a long append past its page cache as several requests at once. In
    // a child of vfork(2) the descriptor may be another one than the table says.
    if has_left && home::is_ours() {
        use_cache(fd, description);
    }
}

/// The kernel is about to append to the file's end as it knows that (RWF_APPEND): the daemon is not told that it is an append. From
/// here on it knows the end, since nobody posts beside a description that is the kernel's.
#[cold]
pub(crate) fn before_append(fd: c_int) {
    if let Some(description) = find_connected(fd).filter(|description| !description.is_kernels()) {
        leave_with_cache(fd, description);
    }
}

/// Requests are about to be made by io_submit(2). Of those past its page cache the kernel makes several at once, and each part of an
/// append is applied at the end that the file has when it arrives.
pub(crate) fn before_submit(count: c_long, list: *const usize) {
    if !connection::is_client() || !table::has_noted() {
        return;
    }
    for index in 0..usize::try_from(count).unwrap_or(0) {
        let (mut address, mut bytes) = ([0_usize], [[0_u8; aio::BYTES]]);
        let read = sys::read_own_memory(list.wrapping_add(index).addr(), &mut address)
            .and_then(|()| sys::read_own_memory(address[0], &mut bytes));
        // The kernel ends there, too.
        let Some(()) = read else { return };
        let request = Request::of(&bytes[0]);
        let appends = |description: &Description| {
            description.attached().is_some() && description.flags() & description::APPENDS != 0
        };
        let is_append = request.appends || table::known(request.fd).is_some_and(appends);
        if request.changes && is_append {
            before_append(request.fd);
        }
    }
}

/// Revokes a description whose file other programs use by the kernel: it uses the kernel's page cache, as theirs do, until
/// it rejoins. They may have the file mapped; the kernel writes back whole pages that they store to, and would overwrite
/// what was written past its page cache.
#[cold]
pub(crate) fn revoke(fd: c_int, description: &Description) {
    // The lock keeps other threads from attaching it meanwhile. Without the lock it leaves for good.
    let locked = home::is_ours() && try_lock();
    match description.attached() {
        _ if !locked => pass(fd, description),
        Some((client, file)) if !description.is_revoked() => {
            position::set_if_noted(fd, client, file);
            description.revoke();
            tell(fd, Leave { process: home::number() });
        }
        _ => {}
    }
    use_cache(fd, description);
    if locked {
        lock::unlock();
    }
}

/// Makes the kernel use its page cache again, if this library set O_DIRECT.
pub(crate) fn use_cache(fd: c_int, description: &Description) {
    let of_both = description::BYPASSES | description::SHOWS_DIRECT;
    if description.flags() & of_both == description::BYPASSES
        && let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0)
    {
        description.clear(description::BYPASSES);
        let _ = sys::fcntl(fd, libc::F_SETFL, (flags & !libc::O_DIRECT) as usize);
    }
}

/// A description that was revoked by the process from which this one was forked, and may have rejoined since: it leaves for
/// good.
#[cold]
pub(crate) fn disown(fd: c_int, description: &Description) {
    if !home::is_guest() {
        pass(fd, description);
    }
}

/// Tries to take the lock a few times. False if its holder keeps it, or is this thread itself, below a signal handler.
fn try_lock() -> bool {
    (0..LOCK_YIELDS).any(|_| {
        let locked = lock::try_lock();
        if !locked {
            sys::sched_yield();
        }
        locked
    })
}

/// The program is about to set a description's flags (fcntl(2), F_SETFL). A revoked description leaves for good: if it
/// rejoined meanwhile, perhaps by another process, it would no longer bypass the kernel's page cache.
pub(crate) fn before_flags(fd: c_int, description: &Description) {
    if description.is_revoked() {
        pass(fd, description);
    }
}

/// Another program is about to be run, in this process or in a child: it inherits descriptors that are not close-on-exec.
pub(crate) extern "C" fn before_program() {
    before(false);
}

/// As [`before_program`], by posix_spawn(3), whose actions may pass on descriptors that are close-on-exec.
pub(crate) fn before_spawn(has_actions: bool) {
    before(has_actions);
}

fn before(all: bool) {
    if connection::is_client() && home::is_ours() {
        // The daemon takes a thread that owns a ring for one of the client's. After exec it is not.
        thread::give_rings_back();
    }
    if !description::any_attached() {
        return;
    }
    for fd in table::noted(0, u32::MAX) {
        let Some(description) = table::known(fd) else { continue };
        let Ok(flags) = sys::fcntl(fd, libc::F_GETFD, 0) else { continue };
        if all || flags & libc::FD_CLOEXEC == 0 {
            pass(fd, description);
        } else if let Some((client, file)) = description.attached() {
            // A duplicate of it may be passed on.
            position::set_if_noted(fd, client, file);
        }
    }
}

/// A description is the kernel's for good from now on, for `reason` (a flag). Returns whether the daemon knows that.
pub(crate) fn leave(fd: c_int, description: &Description, reason: u32) -> bool {
    // Before the daemon is told: calls that begin now post nothing, and the daemon revokes the right of calls that began
    // before.
    description.set(reason);
    tell(fd, Leave::FOR_GOOD)
}

fn tell(fd: c_int, leave: Leave) -> bool {
    let is_told = sys::ioctl(fd, LEAVE, &mut leave.encode()).is_ok();
    // Posted writes may have moved the file's end without the kernel; mappings end at the size that the kernel knows.
    let _ = sys::served_size(fd);
    is_told
}

/// Makes the kernel ask for the file's size, before a call that depends on it: posted writes may have moved the end.
pub(crate) fn tell_size(fd: c_int) {
    if find_connected(fd).is_some() {
        let _ = sys::served_size(fd);
    }
}

/// The kernel is about to copy a file's bytes elsewhere (splice(2) and similar calls), possibly from its page cache.
pub(crate) fn transfer(fd: c_int) {
    let Some(description) = find_connected(fd) else { return };
    match description.attached() {
        // It bypasses the page cache (O_DIRECT), or has left the lane since.
        Some((client, file)) => {
            position::set_if_noted(fd, client, file);
            let _ = sys::served_size(fd);
        }
        // The kernel splices by its page cache even where the daemon told it to bypass it (fuse_splice_read), and the
        // client's other descriptions may post over the cached pages. They may not beside one that is the kernel's.
        None if !description.is_kernels() => {
            leave(fd, description, description::SPLICED);
        }
        None => {}
    }
}

fn find_connected(fd: c_int) -> Option<&'static Description> {
    if !connection::is_client() {
        return None;
    }
    table::find(fd).filter(|description| device::is_connected(description.device()))
}
