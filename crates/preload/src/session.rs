//! Sessions (`weir run --sync external`): what of the supervisor's work a member can do itself, without being stopped ([`weir_lane::door`]).
//!
//! A member knows from the counts that it has in memory whether anything was promised that is not durable. If not, no call needs to wait. If
//! so, a call that changes a file or names on the mount that has the promise stays inside, which the kernel says of a descriptor or path;
//! and a sync there is one more promise. All other calls are made as ever: the filter stops them, and the supervisor decides.
//!
//! Owns: the memories that the supervisor gave to this process; processes that it forks have them, too. Nothing is changed after the library
//! was loaded: a session that gets another mount later is one whose door is closed to this process.
//!
//! Where a write leaves the session the process commits itself, without waking the supervisor. If its syncs are followed by such writes each time,
//! as those of a server are, it commits instead of promising: a promise would have others wait, too, and gain nothing.
//!
//! Invariants:
//! - a call that is not known to be inside is not made here;
//! - the counts are looked at after what the call sends was decided, so that it depends on no later promise;
//! - what passes descriptors on, or names processes, is not made here: the supervisor must see it.

#![allow(
    improper_ctypes_definitions,
    reason = "called from Rust: `extern \"C\"` lets no panic unwind"
)]

use std::arch::asm;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use weir_lane::door::{ADDRESS, ASK, ASK_OUTSIDE, ASK_PAGE, CODE, MOUNTS_MAX, Page};
use weir_lane::promises::{Promises, Side};
use weir_lane::wire::{COMMIT, MESSAGE_BYTES};

use crate::sys::{self, Errno};

/// What the supervisor gave.
struct Session {
    page: Page,
    mounts: usize,
    promises: [MaybeUninit<Promises>; MOUNTS_MAX],
}

struct Place(UnsafeCell<MaybeUninit<Session>>);

// SAFETY: written once, before `IS_MEMBER` is set, and only shared after that.
unsafe impl Sync for Place {}

static SESSION: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));
static IS_MEMBER: AtomicBool = AtomicBool::new(false);

/// Which promises are not durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promised {
    Nothing,
    /// Those of one mount.
    On((u32, u32)),
    /// Of more, or it is not known.
    More,
}

/// Called when the library is loaded: asks for the session's memory, if there is a session. Returns whether there is one.
pub(crate) fn begin() -> bool {
    let Ok(first) = sys::ask_supervisor(ASK, [ASK_PAGE, 0]) else { return false };
    if sys::executable_page(ADDRESS, &CODE).is_err() {
        sys::close(first);
        return true;
    }
    let Ok(page) = map(first, |fd| Page::open(fd)) else { return true };
    let mounts = page.mounts();
    let mut promises = [const { MaybeUninit::uninit() }; MOUNTS_MAX];
    for (index, place) in promises[..mounts].iter_mut().enumerate() {
        let given = sys::ask_supervisor(ASK, [index as u64, 0]);
        let counts = given.map(|fd| map(fd, |fd| Promises::open(fd, Side::Member)));
        let Ok(Ok(counts)) = counts else { return true };
        place.write(counts);
    }
    // SAFETY: no other thread runs this, and none reads it before the next line.
    unsafe { (*SESSION.0.get()).write(Session { page, mounts, promises }) };
    IS_MEMBER.store(true, Ordering::Release);
    true
}

/// Maps what the supervisor put into this process, and closes the descriptor. By the door: the filter would take it for the end of a file
/// that somebody else may watch.
fn map<T>(fd: c_int, map: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<T>) -> std::io::Result<T> {
    // SAFETY: it is open until it is closed below.
    let mapped = map(unsafe { BorrowedFd::borrow_raw(fd) });
    // SAFETY: the door's code is there; the arguments are numbers.
    unsafe { by_door(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    mapped
}

/// The session, if the door is open.
#[inline]
fn session() -> Option<&'static Session> {
    if !IS_MEMBER.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: written before `IS_MEMBER` was set, and never changed.
    let session = unsafe { (*SESSION.0.get()).assume_init_ref() };
    (!session.page.is_closed() && session.page.mounts() == session.mounts).then_some(session)
}

impl Session {
    fn promises(&self, index: usize) -> &Promises {
        // SAFETY: the first `mounts` were written.
        unsafe { self.promises[..self.mounts][index].assume_init_ref() }
    }

    #[inline]
    fn promised(&self) -> Promised {
        let mut promised = Promised::Nothing;
        for index in 0..self.mounts {
            if self.promises(index).is_pending() {
                promised = match (promised, self.page.device(index)) {
                    (Promised::Nothing, Some(device)) => Promised::On(device),
                    _ => return Promised::More,
                };
            }
        }
        promised
    }

    /// Makes durable what was promised on a mount so far; returns whether it did.
    fn commit(&self, device: (u32, u32)) -> bool {
        let Some(index) = self.index_of(device) else { return false };
        let Some((number, path)) = self.page.place(index) else { return false };
        HAS_SENT.store(true, Ordering::Relaxed);
        let began = sys::microseconds();
        let promises = self.promises(index);
        let made = promises.made();
        if promises.durable().covers(made) {
            return true;
        }
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
        let Ok(root) = sys::open(path, libc::O_RDONLY | libc::O_DIRECTORY) else { return false };
        let is_it = sys::mount_number(root) == Ok(number);
        let committed = is_it && commit_by(root);
        // SAFETY: opened above.
        unsafe { by_door(libc::SYS_close, [root as usize, 0, 0, 0, 0, 0]) };
        if committed {
            promises.set_durable(made);
            self.page.count_wait(sys::microseconds().saturating_sub(began));
        }
        committed
    }

    /// The counts of the mount with this device.
    fn of(&self, device: (u32, u32)) -> Option<&Promises> {
        Some(self.promises(self.index_of(device)?))
    }

    /// The number of a mount that is gone is used again: the last one has it.
    fn index_of(&self, device: (u32, u32)) -> Option<usize> {
        (0..self.mounts).rev().find(|at| self.page.device(*at) == Some(device))
    }
}

/// Where a call on a descriptor may be made.
enum Way {
    /// Where the filter sees it.
    Stopped,
    /// By the door: its file's kind lets nobody wait for long.
    Door,
    /// By the door, if it need not wait: a thread cannot be cancelled there (pthread_cancel(3)).
    DoorWithoutWaiting,
}

/// What was done of a write.
pub(crate) enum Written {
    /// All of it, with this result; `errno` is set if it is -1.
    Done(isize),
    /// So many bytes; the rest is to be written as ever.
    Begun(usize),
}

/// Whether the process is a member of a session, and its door is open.
#[inline]
pub(crate) fn is_member() -> bool {
    session().is_some()
}

fn way(fd: c_int) -> Way {
    let (Some(session), Ok(place)) = (session(), sys::place(fd)) else { return Way::Stopped };
    match session.promised() {
        Promised::Nothing if place.is_file() => Way::Door,
        Promised::Nothing if place.is_pipe_or_socket() => {
            HAS_SENT.store(true, Ordering::Relaxed);
            Way::DoorWithoutWaiting
        }
        Promised::On(device) if place.is_file_on(device) => Way::Door,
        Promised::On(device) if place.is_pipe_or_socket() => {
            match leads_outside(fd, place) && session.commit(device) {
                true => Way::DoorWithoutWaiting,
                false => Way::Stopped,
            }
        }
        _ => Way::Stopped,
    }
}

/// Pipes and sockets of which the supervisor has said that they lead outside, by number: they always will.
static OUTSIDE: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

fn leads_outside(fd: c_int, place: sys::Place) -> bool {
    let number = place.number();
    let kept = &OUTSIDE[number as usize % OUTSIDE.len()];
    if kept.load(Ordering::Relaxed) == number {
        return true;
    }
    let is_outside = sys::ask_supervisor(ASK, [ASK_OUTSIDE, fd as u64]) == Ok(1);
    if is_outside {
        kept.store(number, Ordering::Relaxed);
    }
    is_outside
}

/// A call on a file's descriptor, the first argument; `None`: it is to be made as ever.
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe extern "C" fn on_file(
    number: c_long,
    fd: c_int,
    rest: [usize; 5],
) -> Option<isize> {
    let [a, b, c, d, e] = rest;
    // SAFETY: by this function's contract.
    matches!(way(fd), Way::Door).then(|| unsafe { call(number, [fd as usize, a, b, c, d, e]) })
}

/// write(2), also to pipes and sockets.
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> Written {
    let piece = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    let at = [fd as usize, (&raw const piece).addr(), 1, usize::MAX, usize::MAX];
    // SAFETY: by this function's contract; the piece lives as long as the call.
    unsafe {
        match way(fd) {
            Way::Stopped => Written::Begun(0),
            Way::Door => {
                Written::Done(call(libc::SYS_write, [fd as usize, from.addr(), len, 0, 0, 0]))
            }
            Way::DoorWithoutWaiting => {
                let [fd, pieces, count, low, high] = at;
                let flags = libc::RWF_NOWAIT as usize;
                begun(len, by_door(libc::SYS_pwritev2, [fd, pieces, count, low, high, flags]))
            }
        }
    }
}

/// send(2) and sendto(2).
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe extern "C" fn send(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    to: [usize; 2],
) -> Written {
    if !matches!(way(fd), Way::DoorWithoutWaiting) {
        return Written::Begun(0);
    }
    let flags = (flags | libc::MSG_DONTWAIT) as usize;
    // SAFETY: by this function's contract.
    let sent =
        unsafe { by_door(libc::SYS_sendto, [fd as usize, from.addr(), len, flags, to[0], to[1]]) };
    begun(len, sent)
}

/// What a call that did not wait has done. What it refused, the call that waits is told.
fn begun(len: usize, result: isize) -> Written {
    match usize::try_from(result) {
        Ok(done) if done < len => Written::Begun(done),
        Ok(_) => Written::Done(result),
        Err(_) => Written::Begun(0),
    }
}

/// close(2).
pub(crate) extern "C" fn close(fd: c_int) -> Option<c_int> {
    let session = session()?;
    let is_unnoticed = match session.promised() {
        Promised::Nothing => true,
        Promised::On(device) => sys::place(fd).is_ok_and(|place| place.is_file_on(device)),
        Promised::More => false,
    };
    // SAFETY: the arguments are numbers.
    is_unnoticed.then(|| unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) as c_int })
}

/// A call that nobody outside can notice if nothing was promised.
///
/// # Safety
/// As for the call.
pub(crate) unsafe extern "C" fn if_nothing_is_promised(
    number: c_long,
    arguments: [usize; 6],
) -> Option<isize> {
    let is_free = session()?.promised() == Promised::Nothing;
    // SAFETY: by this function's contract.
    is_free.then(|| unsafe { call(number, arguments) })
}

/// A call that changes what one or two paths name, each from a directory's descriptor.
///
/// # Safety
/// As for the call.
pub(crate) unsafe extern "C" fn names(
    number: c_long,
    paths: [Option<(c_int, *const c_char)>; 2],
    arguments: [usize; 6],
) -> Option<isize> {
    let session = session()?;
    let stays_inside = match session.promised() {
        Promised::Nothing => true,
        Promised::On(device) => paths.into_iter().flatten().all(|(at, path)| {
            // SAFETY: by this function's contract the path is one, or an address that the kernel refuses.
            unsafe { is_inside(at, path, device) }
        }),
        Promised::More => false,
    };
    // SAFETY: by this function's contract.
    stays_inside.then(|| unsafe { call(number, arguments) })
}

/// fsync(2) and fdatasync(2), as a promise.
pub(crate) extern "C" fn sync(fd: c_int) -> Option<c_int> {
    let session = session()?;
    let place = sys::place(fd).ok()?;
    let promises = session.of(place.device).filter(|_| place.is_file_on(place.device))?;
    if promises.is_waited_for() {
        return None;
    }
    // What was written by mappings gets its place in the order.
    const FLAGS: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: all arguments are numbers.
    let written =
        unsafe { call(libc::SYS_sync_file_range, [fd as usize, 0, 0, FLAGS as usize, 0, 0]) };
    if written < 0 {
        return Some(-1);
    }
    if is_followed_by_output() {
        let made = promises.made();
        if commit_by(fd) {
            promises.set_durable(made);
            return Some(0);
        }
    }
    promises.promise();
    Some(0)
}

/// Something was sent since the last sync.
static HAS_SENT: AtomicBool = AtomicBool::new(false);
/// How many syncs in a row were followed by something sent; not counted above [`TIMES`].
static FOLLOWED: AtomicU32 = AtomicU32::new(0);
/// After so many it is taken to go on so.
const TIMES: u32 = 3;

/// To be called at each sync: whether what is promised now would probably be waited for next.
fn is_followed_by_output() -> bool {
    let followed = match HAS_SENT.swap(false, Ordering::Relaxed) {
        true => (FOLLOWED.load(Ordering::Relaxed) + 1).min(TIMES),
        false => 0,
    };
    FOLLOWED.store(followed, Ordering::Relaxed);
    followed == TIMES
}

/// Makes all that was changed on the mount of this descriptor so far durable; returns whether it did.
fn commit_by(fd: c_int) -> bool {
    let mut message = [0_u8; MESSAGE_BYTES];
    let arguments = [fd as usize, COMMIT as usize, (&raw mut message).addr(), 0, 0, 0];
    // SAFETY: the message is of the size that the number has in it.
    unsafe { by_door(libc::SYS_ioctl, arguments) == 0 }
}

/// Whether a path, followed as the kernel does it, leads to a place on this device, and names nothing there but a file or directory of it.
///
/// # Safety
/// The path ends with a zero, or is an address that the kernel refuses.
unsafe fn is_inside(at: c_int, path: *const c_char, device: (u32, u32)) -> bool {
    // The kernel reads the path first.
    let is_unseen = match sys::place_at(at, path, libc::AT_SYMLINK_NOFOLLOW) {
        Ok(target) => target.is_file_on(device),
        Err(Errno(errno)) => errno == libc::ENOENT,
    };
    if !is_unseen {
        return false;
    }
    // SAFETY: by this function's contract, and the kernel has read it.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let begin = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut directory = [0_u8; PATH_BYTES];
    // "." and "..", also with slashes after them, are the supervisor's.
    if begin >= PATH_BYTES || matches!(&bytes[begin..], b"" | b"." | b"..") {
        return false;
    }
    directory[..begin].copy_from_slice(&bytes[..begin]);
    let parent = match begin {
        0 => sys::place_at(at, c".".as_ptr(), 0),
        _ => sys::place_at(at, directory.as_ptr().cast(), 0),
    };
    parent.is_ok_and(|parent| parent.is_file_on(device))
}

/// Longer paths of directories are the supervisor's.
const PATH_BYTES: usize = 512;

/// Makes a system call by the door, and sets `errno` as the C library does.
///
/// # Safety
/// As for the call.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: by this function's contract.
    match unsafe { by_door(number, arguments) } {
        result @ -4095..=-1 => {
            // SAFETY: the thread's own.
            unsafe { *libc::__errno_location() = -result as c_int };
            -1
        }
        result => result,
    }
}

/// # Safety
/// As for the call; the door's code is there.
#[inline]
unsafe fn by_door(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: by this function's contract. The code makes the system call and returns; the registers are those of syscall(2),
    // and the kernel keeps all others but rcx and r11.
    unsafe {
        asm!(
            "call {door}",
            door = in(reg) ADDRESS,
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}
