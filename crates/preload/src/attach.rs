//! Attaches descriptions to the lane, and connects to daemons, when a description is attached or before the process forks.
//!
//! If several threads want to attach at once, one does, and the others' calls go by the kernel meanwhile.

use std::ffi::c_int;

use weir_lane::client::Attached;
use weir_lane::tally::Count;
use weir_lane::wire::{ATTACH, Attach, Attachment, MESSAGE_BYTES};

use crate::connection::{self, client};
use crate::description::{self, Description};
use crate::device::{self, Device};
use crate::leave::{leave, use_cache};
use crate::lock::{self, try_lock, unlock};
use crate::session::posts;
use crate::sys::{self, Errno};
use crate::{credentials, home, position, report, table};

/// A new file that may be posted to grows at least by so much, bytes.
const ROOM: u64 = 64 << 10;

/// Puts a description into the lane, or marks it as refused.
#[cold]
pub(crate) fn attach(fd: c_int, description: &Description) {
    if !home::notices_forks() || !home::is_ours() || !try_lock() {
        return;
    }
    if connection::has_departed() {
        description.set(description::REFUSED);
        return unlock();
    }
    let device = device::at(description.device());
    let attached = connected(fd, device).and_then(|index| {
        // By another path to the mount than the session's, or of another mount by now.
        if posts::is_in_session() && device.mount_in_session(fd).is_none() {
            return Err(Errno(libc::EPERM));
        }
        attach_to(fd, index, description)
    });
    if attached.is_err() {
        description.set(description::REFUSED);
    }
    unlock();
}

/// Call before fork(2). A process that has used files of a lane's mount connects now, so that it is one client
/// with the child: files that several clients use are written by the kernel, and servers that fork for each
/// connection use most files in their children. A process that may become another user connects only to the
/// lanes of files that it has open now: its children must not keep access that they are not entitled to.
///
/// Pass the result to [`after_fork`]. No child is forked while a thread connects to a daemon: the child would
/// inherit lane memory without a record of it.
pub(crate) extern "C" fn before_fork() -> bool {
    let is_here = home::notices_forks() && home::is_ours();
    let locked = is_here && table::has_noted() && lock::lock();
    if locked {
        connect_before_fork();
    }
    locked
}

/// Call after fork(2), in the parent and in the child.
pub(crate) extern "C" fn after_fork(locked: bool) {
    // The child releases the lock that the parent's thread took.
    home::adopt_if_forked();
    if locked && lock::is_held_here() {
        unlock();
    }
}

fn connect_before_fork() {
    if connection::has_departed() || !device::all().any(|(_, device)| device.is_unconnected()) {
        return;
    }
    let stays = !sys::may_change_user();
    let is_open = |index: u32| {
        let mut known = table::noted(0, u32::MAX).filter_map(table::known);
        known.any(|description| description.device() == index)
    };
    for (index, device) in device::all() {
        if device.is_unconnected() && (stays || is_open(index)) && connect(device).is_err() {
            device.set_unreachable();
        }
    }
}

/// The client of a device, made if there is none.
fn connected(fd: c_int, device: &Device) -> sys::Result<usize> {
    if let Some(index) = device.client()?
        && client(index).is_some_and(|client| client.view.is_alive() && !client.region.is_closed())
    {
        return Ok(index);
    }
    // A new daemon's mount may have the device number of an earlier mount.
    device.find(fd)?;
    connect(device).inspect_err(|_| device.set_without_lane())
}

/// Connects to the daemon by the name that the device holds.
fn connect(device: &Device) -> sys::Result<usize> {
    let (name, proof) = device.daemon();
    let len = usize::from(name[0]).min(MESSAGE_BYTES - 1);
    let index = connection::connect(&name[1..=len], proof)?;
    if connection::has_departed() {
        // A signal handler that interrupted this thread changed its user.
        credentials::depart();
        return Err(Errno(libc::EPERM));
    }
    device.set_client(index);
    Ok(index)
}

fn attach_to(fd: c_int, index: usize, description: &Description) -> sys::Result<()> {
    let client = client(index).ok_or(Errno(libc::ENOTCONN))?;
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)?;
    if flags & libc::O_PATH != 0 {
        description.set(description::DIRECT);
        return Ok(());
    }
    let was_direct = flags & libc::O_DIRECT != 0;
    if !was_direct {
        // O_DIRECT is set before the description is in the lane: calls by the kernel must bypass its page cache, which knows
        // nothing of the lane. BYPASSES is set before O_DIRECT: the program may set flags meanwhile, and would clear O_DIRECT.
        description.set(description::BYPASSES);
        if let Err(error) = sys::fcntl(fd, libc::F_SETFL, (flags | libc::O_DIRECT) as usize) {
            description.clear(description::BYPASSES);
            return Err(error);
        }
    }
    let token = connection::token(index);
    let keeps_order = posts::is_in_session();
    let asked = Attach { client: client.id, token, process: home::number(), keeps_order };
    let mut message = asked.encode();
    let attached = sys::ioctl(fd, ATTACH, &mut message).and_then(|_| {
        Attachment::decode(&message)
            .filter(|attachment| (attachment.slot as usize) < weir_lane::board::FILES)
            .ok_or(Errno(libc::EPROTO))
    });
    let attachment = match attached {
        Ok(attachment) => attachment,
        Err(error) => {
            if !was_direct {
                use_cache(fd, description);
            }
            return Err(error);
        }
    };
    if was_direct && !attachment.was_attached {
        // The program set O_DIRECT itself.
        leave(fd, description, description::DIRECT);
        return Ok(());
    }
    let flags = flags & !libc::O_DIRECT;
    let file = Attached { slot: attachment.slot, description: attachment.description };
    if flags & libc::O_APPEND == 0 {
        position::forget(index, file);
    }
    match description::find(index, file) {
        Some(place) => {
            let known = description::at(place);
            if known.is_revoked() {
                known.rejoin(flags);
            }
            if !std::ptr::eq(known, description) {
                table::unite(fd, place);
            }
        }
        // A revoked description that rejoins must be known by its number.
        None if description.is_revoked() => {
            leave(fd, description, description::PASSED);
        }
        None => {
            description.attach(index, file, flags);
            if description.was_empty() {
                let device = device::at(description.device());
                let (grant, size) = (client.view.grant(file.slot), client.view.size(file.slot));
                device.set_reserves(grant < size.saturating_add(ROOM));
            }
        }
    }
    // The current flags: the program may have set them meanwhile.
    let attached = table::known(fd).unwrap_or(description);
    let mut flags = flags;
    while let Ok(now) = sys::fcntl(fd, libc::F_GETFL, 0)
        && (now ^ flags) & libc::O_APPEND != 0
    {
        flags = now;
        attached.note_append(flags);
    }
    if attached.is_kernels() {
        // It left the lane meanwhile.
        use_cache(fd, attached);
    }
    report::add(Count::Attached, 1);
    Ok(())
}
