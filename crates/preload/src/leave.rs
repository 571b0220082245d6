//! Descriptions that leave the lane: what is done with them from now on the lane cannot do, or does not see.

use std::ffi::c_int;

use weir_lane::wire::{LEAVE, Leave};

use crate::description::{self, Description};
use crate::{connection, device, home, lock, position, sys, table, thread};

/// So often who gives way looks whether somebody else is done with it.
const LOCK_YIELDS: u32 = 100;

/// A descriptor is about to be mapped. Shared mappings are served by the kernel's page cache, and the daemon does not see
/// that there are any: it is told, also by programs that have nothing in the lane.
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
        // A child of vfork(2) gives it to the program that it becomes, or uses it meanwhile.
        pass(old, description);
    }
}

/// A descriptor is about to be given to another program, which knows nothing of the lane, or will ask itself.
pub(crate) fn pass(fd: c_int, description: &Description) {
    if let Some((client, file)) = description.attached() {
        position::settle(fd, client, file);
        leave(fd, description, description::PASSED);
    }
}

/// Others use the file by the kernel, and may have it mapped: a page that they store to is written back whole, over what
/// is written past the kernel's page cache beside them. So this description uses that cache, too, for a while.
#[cold]
pub(crate) fn give_way(fd: c_int, description: &Description) {
    // Nobody puts it into the lane in the middle of this; or it leaves for good.
    let locked = home::is_ours() && try_lock();
    match description.attached() {
        _ if !locked => pass(fd, description),
        Some((client, file)) if !description.gave_way() => {
            position::settle(fd, client, file);
            description.give_way();
            tell(fd, Leave { process: home::number() });
        }
        _ => {}
    }
    use_cache(fd, description);
    if locked {
        lock::unlock();
    }
}

/// Has the kernel use its page cache again, if it was told here to bypass it.
pub(crate) fn use_cache(fd: c_int, description: &Description) {
    if description.flags() & description::SHOWS_DIRECT == 0
        && let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0)
    {
        description.clear(description::BYPASSES);
        let _ = sys::fcntl(fd, libc::F_SETFL, (flags & !libc::O_DIRECT) as usize);
    }
}

/// A process gave way with it from which this one was forked, and may have put it into the lane again: it leaves for good.
#[cold]
pub(crate) fn disown(fd: c_int, description: &Description) {
    if !home::is_guest() {
        pass(fd, description);
        use_cache(fd, description);
    }
}

/// Waits a little for who holds the device's lock. False if he goes on holding it, or is this thread itself, below a signal
/// handler.
fn try_lock() -> bool {
    (0..LOCK_YIELDS).any(|_| {
        let locked = lock::try_lock();
        if !locked {
            sys::sched_yield();
        }
        locked
    })
}

/// The program is about to set the description's flags (fcntl(2), F_SETFL), which gave way: whoever has it attached again
/// meanwhile, perhaps another process, would not bypass the kernel's page cache any more.
pub(crate) fn before_flags(fd: c_int, description: &Description) {
    if description.gave_way() {
        pass(fd, description);
    }
}

/// Another program is about to be run, in this process's place or beside it: it has what is not closed then.
pub(crate) extern "C" fn before_program() {
    before(false);
}

/// As [`before_program`], by posix_spawn(3), whose actions may pass on what is to be closed.
pub(crate) fn before_spawn(has_actions: bool) {
    before(has_actions);
}

fn before(all: bool) {
    if connection::is_client() && home::is_ours() {
        // By its ring the daemon takes the thread for the client's, which it is not after exec.
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
            position::settle(fd, client, file);
        }
    }
}

/// A description is the kernel's from now on, for that reason (a flag).
pub(crate) fn leave(fd: c_int, description: &Description, reason: u32) {
    // Before the daemon is told: nothing is posted any more by calls that begin now, and the daemon takes the right away from
    // those that began before.
    description.set(reason);
    tell(fd, Leave::FOR_GOOD);
}

fn tell(fd: c_int, leave: Leave) {
    let _ = sys::ioctl(fd, LEAVE, &mut leave.encode());
    // What was posted may have moved the file's end without the kernel, for whom mappings end where it knows it to be.
    let _ = sys::served_size(fd);
}

/// The kernel is about to do something as far as it knows the file to reach, which may have been posted to: it is told.
pub(crate) fn tell_size(fd: c_int) {
    if find_connected(fd).is_some() {
        let _ = sys::served_size(fd);
    }
}

/// The kernel is about to move a file's bytes elsewhere by itself, from its page cache if need be.
pub(crate) fn transfer(fd: c_int) {
    let Some(description) = find_connected(fd) else { return };
    match description.attached() {
        // It bypasses the cache (O_DIRECT), or is the kernel's since.
        Some((client, file)) => {
            position::settle(fd, client, file);
            let _ = sys::served_size(fd);
        }
        // What the daemon has the kernel bypass it for is spliced by way of it all the same (fuse_splice_read), and others
        // of the client's may post over that: not beside one that is the kernel's.
        None if !description.is_kernels() => leave(fd, description, description::SPLICED),
        None => {}
    }
}

fn find_connected(fd: c_int) -> Option<&'static Description> {
    if !connection::is_client() {
        return None;
    }
    table::find(fd).filter(|description| device::is_connected(description.device()))
}
