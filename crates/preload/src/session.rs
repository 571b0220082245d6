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
//! - what passes descriptors on is not made here: the supervisor must see it;
//! - nothing waits at the door for long, since threads cannot be cancelled there, and what the kernel refuses there is not tried again;
//! - a mount is known by the number that no other one has, never by its device;
//! - a descriptor of this module's own is there only while the process has one thread, and no signal handler can run.

#![allow(
    improper_ctypes_definitions,
    reason = "called from Rust: `extern \"C\"` lets no panic unwind"
)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use weir_lane::aio::{self, Request};
use weir_lane::commits::Reason;
use weir_lane::door::{self, ADDRESS, ASK, ASK_OUTSIDE, ASK_PAGE, CODE, MOUNTS_MAX, Page};
use weir_lane::promises::{Promises, Side};
use weir_lane::wire::{COMMIT, MESSAGE_BYTES};

use crate::sys::{self, Errno, by_door};

pub(crate) mod posts;

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
    /// Those of one mount, the one with this index.
    On(usize),
    /// Of more.
    More,
}

/// The C library's word on whether the process has one thread (sys/single_threaded.h); null if it has none.
static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// Syncs may be promised here. Before Linux 6.16 sync_file_range(2) returns while a FUSE mount's pages are on their way.
static MAY_PROMISE: AtomicBool = AtomicBool::new(false);

/// What the process is to a session when the library was loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// There is none, or it has no memory for members.
    WithoutSession,
    /// A member that makes its calls as if the library was not there.
    WithoutDoor,
    Member,
}

/// Called when the library is loaded: asks for the session's memory, if there is a session.
pub(crate) fn begin() -> Begun {
    let Ok(first) = sys::ask_supervisor(ASK, [ASK_PAGE, 0]) else { return Begun::WithoutSession };
    if sys::executable_page(ADDRESS, &CODE).is_err() {
        sys::close(first);
        return Begun::WithoutDoor;
    }
    sys::use_door();
    let Ok(page) = map(first, |fd| Page::open(fd)) else { return Begun::WithoutDoor };
    let mounts = page.mounts();
    let mut promises = [const { MaybeUninit::uninit() }; MOUNTS_MAX];
    for (index, place) in promises[..mounts].iter_mut().enumerate() {
        let given = sys::ask_supervisor(ASK, [index as u64, 0]);
        let counts = given.map(|fd| map(fd, |fd| Promises::open(fd, Side::Member)));
        let Ok(Ok(counts)) = counts else { return Begun::WithoutDoor };
        place.write(counts);
    }
    MAY_PROMISE.store(sys::is_kernel_at_least(6, 16), Ordering::Relaxed);
    // SAFETY: the name is terminated by a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
    // SAFETY: no other thread runs this, and none reads it before the next line.
    unsafe { (*SESSION.0.get()).write(Session { page, mounts, promises }) };
    IS_MEMBER.store(true, Ordering::Release);
    Begun::Member
}

/// Maps what the supervisor put into this process, and closes the descriptor.
fn map<T>(fd: c_int, map: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<T>) -> std::io::Result<T> {
    // SAFETY: it is open until it is closed below.
    let mapped = map(unsafe { BorrowedFd::borrow_raw(fd) });
    sys::close(fd);
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
    (!session.page.is_closed() && session.page.has_only(session.mounts)).then_some(session)
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
                if promised != Promised::Nothing {
                    return Promised::More;
                }
                promised = Promised::On(index);
            }
        }
        promised
    }

    /// Makes durable what was promised on a mount so far; returns whether it did.
    fn commit(&self, index: usize) -> bool {
        let Some((number, path)) = self.page.place(index) else { return false };
        HAS_SENT.store(true, Ordering::Relaxed);
        let began = sys::microseconds();
        let promises = self.promises(index);
        let made = promises.made();
        if promises.durable().covers(made) {
            return true;
        }
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
        let committed = unobserved(|| {
            let root = open_root(path, number)?;
            let committed = commit_by(root);
            sys::close(root);
            Some(committed)
        });
        let is_durable = committed == Some(true) && promises.set_durable(made);
        if is_durable {
            promises.commits().count(Reason::Output);
            promises.commits().count_wait(sys::microseconds().saturating_sub(began));
        }
        is_durable
    }

    /// Whether it is a regular file or a directory on a mount.
    fn has(&self, index: usize, place: sys::Place) -> bool {
        self.page.number(index).is_some_and(|number| place.is_file_on(number))
    }
}

/// Does something for which descriptors are opened, if nobody in this process can see them: there is one thread, and signals are held back.
pub(crate) fn unobserved<T>(act: impl FnOnce() -> Option<T>) -> Option<T> {
    let single = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: the C library's variable, which stays.
    if single.is_null() || unsafe { single.read_volatile() } == 0 {
        return None;
    }
    let signals = sys::block_signals().ok()?;
    let result = act();
    sys::set_signals(signals);
    result
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
        Promised::On(index) if session.has(index, place) => Way::Door,
        Promised::On(index) if place.is_pipe_or_socket() => {
            match session.is_inside(fd, place) || session.commit(index) {
                true => Way::DoorWithoutWaiting,
                false => Way::Stopped,
            }
        }
        _ => Way::Stopped,
    }
}

/// Whether a sendfile(2) that has just failed did because a session gives pipes and sockets no pages of files, which may be changed before somebody
/// reads them.
pub(crate) fn refuses_pages(to: c_int) -> bool {
    sys::errno() == libc::EINVAL
        && IS_MEMBER.load(Ordering::Acquire)
        && sys::place(to).is_ok_and(sys::Place::is_pipe_or_socket)
}

/// What the supervisor has said of pipes and sockets, each with its number: in the first bits [`OUTSIDE`], or the page's changes when it said that
/// they are inside.
static SAID: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// It leads outside, and always will. After as many changes nothing inside is remembered any more.
const OUTSIDE: u64 = 0x7fff;
const SAID_SHIFT: u32 = 48;

impl Session {
    /// Whether what is written to a pipe or socket stays inside.
    fn is_inside(&self, fd: c_int, place: sys::Place) -> bool {
        // First: what it says is not older.
        let now = self.page.changes();
        let keeps = now < OUTSIDE;
        let ask = || sys::ask_supervisor(ASK, [ASK_OUTSIDE, fd as u64]);
        let Some(number) = place.number() else { return ask() == Ok(0) };
        let said = |what: u64| number | (what + 1) << SAID_SHIFT;
        let kept = &SAID[number as usize % SAID.len()];
        let before = kept.load(Ordering::Relaxed);
        if before == said(OUTSIDE) {
            return false;
        }
        if keeps && before == said(now) {
            return true;
        }
        match ask() {
            Ok(0) => {
                if keeps {
                    kept.store(said(now), Ordering::Relaxed);
                }
                true
            }
            Ok(1) => {
                kept.store(said(OUTSIDE), Ordering::Relaxed);
                false
            }
            _ => false,
        }
    }
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
    unsafe { into_file(number, fd, [fd as usize, a, b, c, d, e]) }
}

/// A call that changes the file of descriptor `fd`, which need not be its first argument. `None`: the caller makes the call by the C library.
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe extern "C" fn into_file(
    number: c_long,
    fd: c_int,
    arguments: [usize; 6],
) -> Option<isize> {
    // SAFETY: by this function's contract.
    matches!(way(fd), Way::Door).then(|| unsafe { call(number, arguments) })
}

/// pwritev(2) to a file, if it may be made by the door.
pub(crate) fn pwritev(fd: c_int, pieces: &[libc::iovec], at: u64) -> Option<sys::Result<usize>> {
    if !matches!(way(fd), Way::Door) {
        return None;
    }
    let arguments = [fd as usize, pieces.as_ptr().addr(), pieces.len(), at as usize, 0, 0];
    // SAFETY: the pieces are live; the kernel checks their addresses.
    let written = unsafe { by_door(libc::SYS_pwritev, arguments) };
    Some(usize::try_from(written).map_err(|_| Errno(-written as c_int)))
}

/// write(2), also to pipes and sockets.
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> Written {
    // SAFETY: by this function's contract.
    unsafe {
        match way(fd) {
            // An empty datagram is sent by write(2) alone.
            Way::DoorWithoutWaiting if len == 0 => Written::Begun(0),
            Way::Stopped => Written::Begun(0),
            Way::Door => {
                Written::Done(call(libc::SYS_write, [fd as usize, from.addr(), len, 0, 0, 0]))
            }
            Way::DoorWithoutWaiting => write_without_waiting(fd, from, len),
        }
    }
}

/// write(2) of the bytes that can be written without waiting (RWF_NOWAIT).
///
/// # Safety
/// As for the call.
unsafe fn write_without_waiting(fd: c_int, from: *const c_void, len: usize) -> Written {
    let piece = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    let flags = libc::RWF_NOWAIT as usize;
    let arguments = [fd as usize, (&raw const piece).addr(), 1, usize::MAX, usize::MAX, flags];
    // SAFETY: by this function's contract; the piece lives as long as the call.
    begun(len, unsafe { by_door(libc::SYS_pwritev2, arguments) })
}

/// Writes the buffer of a stream to a file, or to a pipe if it is at most PIPE_BUF bytes, which a pipe takes at once or not at all (pipe(7)). A larger buffer is left to
/// the C library: if only a part were written here and a signal interrupted the C library's write of the rest, it would drop the rest.
///
/// # Safety
/// As for write(2).
pub(crate) unsafe extern "C" fn write_buffered(
    fd: c_int,
    from: *const c_void,
    len: usize,
) -> Written {
    let arguments = [fd as usize, from.addr(), len, 0, 0, 0];
    let is_atomic = || len <= libc::PIPE_BUF && sys::place(fd).is_ok_and(sys::Place::is_pipe);
    // SAFETY: by this function's contract.
    unsafe {
        match way(fd) {
            Way::Door => begun(len, by_door(libc::SYS_write, arguments)),
            Way::DoorWithoutWaiting if is_atomic() => write_without_waiting(fd, from, len),
            Way::Stopped | Way::DoorWithoutWaiting => Written::Begun(0),
        }
    }
}

/// Most requests of one io_submit(2) that are looked at here.
const REQUESTS_MAX: usize = 64;

/// io_submit(2), if it only reads, syncs, and writes to files where that stays inside. Returns what the kernel does: a negative error number, as libaio's
/// function of this name.
///
/// # Safety
/// As for the call.
pub(crate) unsafe extern "C" fn submit(
    context: usize,
    count: c_long,
    list: *const usize,
) -> Option<isize> {
    session()?;
    let count = usize::try_from(count).ok().filter(|count| (1..=REQUESTS_MAX).contains(count))?;
    let mut addresses = [0_usize; REQUESTS_MAX];
    sys::read_own_memory(list.addr(), &mut addresses[..count])?;
    for address in &addresses[..count] {
        let mut bytes = [[0_u8; aio::BYTES]];
        sys::read_own_memory(*address, &mut bytes)?;
        let request = Request::of(&bytes[0]);
        let may_be_noticed = request.changes || request.syncs;
        if request.tells.is_some() || may_be_noticed && !matches!(way(request.fd), Way::Door) {
            return None;
        }
    }
    // SAFETY: by this function's contract.
    Some(unsafe { by_door(libc::SYS_io_submit, [context, count, list.addr(), 0, 0, 0]) })
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
    // With MSG_FASTOPEN the call connects first, and does not say of what it could not wait.
    if flags & libc::MSG_FASTOPEN != 0 || !matches!(way(fd), Way::DoorWithoutWaiting) {
        return Written::Begun(0);
    }
    let flags = (flags | libc::MSG_DONTWAIT) as usize;
    // SAFETY: by this function's contract.
    let sent =
        unsafe { by_door(libc::SYS_sendto, [fd as usize, from.addr(), len, flags, to[0], to[1]]) };
    begun(len, sent)
}

/// What a call that did not wait has done. An error is told once: the next call may not get it, or a signal comes with it.
fn begun(len: usize, result: isize) -> Written {
    match usize::try_from(result) {
        Ok(done) if done < len => Written::Begun(done),
        Ok(_) => Written::Done(result),
        Err(_)
            if matches!(-result as c_int, libc::EAGAIN | libc::EOPNOTSUPP | libc::EINPROGRESS) =>
        {
            Written::Begun(0)
        }
        Err(_) => Written::Done(returned(result)),
    }
}

/// close(2).
pub(crate) extern "C" fn close(fd: c_int) -> Option<c_int> {
    let session = session()?;
    let place = sys::place(fd).ok()?;
    let is_unnoticed = match session.promised() {
        // Closing a socket may wait (SO_LINGER).
        Promised::Nothing => place.is_file() || place.is_pipe(),
        Promised::On(index) if session.has(index, place) => match place.is_directory() {
            true => has_no_locks(fd),
            false => session.hides_locks(index),
        },
        Promised::On(_) | Promised::More => {
            place.is_file()
                && (place.is_directory() || is_only_read(fd))
                && hides_end(fd, place)
                && nobody_has_locks(fd)
                && has_no_locks(fd)
        }
    };
    // SAFETY: the arguments are numbers.
    is_unnoticed.then(|| unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) as c_int })
}

/// close(2), where the filter sees it.
pub(crate) fn close_stopped(fd: c_int) -> c_int {
    // SAFETY: the arguments are numbers.
    let closed = unsafe { sys::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    returned(closed.map_or_else(|Errno(errno)| -(errno as isize), |_| 0)) as c_int
}

/// Whether closing a description that was only read has no effect outside: its file system is a plain one, and the file keeps a name.
fn hides_end(fd: c_int, place: sys::Place) -> bool {
    !place.is_removed() && sys::file_system(fd).is_ok_and(door::hides_ends)
}

/// Whether a descriptor is open for reading alone: nobody is told that it is closed (IN_CLOSE_WRITE, inotify(7)).
fn is_only_read(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFL, 0)
        .is_ok_and(|flags| flags & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDONLY)
}

/// Whether no process has a record lock on a file. A process gives back its own when it closes any descriptor of the file (fcntl_locking(2)). The query is for a lock
/// of the open description, with which the process's own locks conflict as well.
fn nobody_has_locks(fd: c_int) -> bool {
    // SAFETY: of plain numbers, for which zero is a value: from the begin to the end.
    let mut lock = unsafe { std::mem::zeroed::<libc::flock>() };
    lock.l_type = libc::F_WRLCK as i16;
    sys::fcntl(fd, libc::F_OFD_GETLK, (&raw mut lock).addr()).is_ok()
        && lock.l_type == libc::F_UNLCK as i16
}

impl Session {
    /// Whether nobody outside can wait for a lock of a file on a mount: for that the file must be open there.
    fn hides_locks(&self, index: usize) -> bool {
        !self.promises(index).is_open_outside() && self.page.distrusts() == 0
    }
}

/// Whether a descriptor's description has no lock, by which somebody outside would notice its end (proc_pid_fdinfo(5)). In doubt not.
fn has_no_locks(fd: c_int) -> bool {
    let facts = unobserved(|| {
        let opened = sys::open_facts(fd).ok()?;
        let mut facts = [0; 1024];
        let read = sys::read(opened, &mut facts);
        sys::close(opened);
        read.ok().filter(|read| *read < facts.len()).map(|read| (facts, read))
    });
    facts.is_some_and(|(facts, read)| {
        !facts[..read].split(|byte| *byte == b'\n').any(|line| line.starts_with(b"lock:"))
    })
}

/// fcntl(2) with a command for a lock of a file.
pub(crate) extern "C" fn lock(fd: c_int, command: c_int, argument: usize) -> Option<isize> {
    let (session, place) = (session()?, sys::place(fd).ok()?);
    let stays_inside = match session.promised() {
        Promised::Nothing => place.is_file(),
        Promised::On(index) => {
            session.has(index, place) && !place.is_directory() && session.hides_locks(index)
        }
        Promised::More => false,
    };
    let arguments = [fd as usize, command as usize, argument, 0, 0, 0];
    // SAFETY: the kernel checks the argument's address.
    stays_inside.then(|| unsafe { call(libc::SYS_fcntl, arguments) })
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

/// A path as a call has it: from the directory of a descriptor, or `AT_FDCWD`.
#[derive(Clone, Copy)]
pub(crate) struct Path(pub(crate) c_int, pub(crate) *const c_char);

/// A call that changes what its paths name, in the form that takes directories' descriptors (openat(2)). `arguments` says the call's arguments for given
/// paths: these ones, or others that name the same. `None`: the program's own call is to be made.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn names<const N: usize>(
    number: c_long,
    paths: [Path; N],
    arguments: impl Fn([Path; N]) -> [usize; 6],
) -> Option<isize> {
    let session = session()?;
    match session.promised() {
        Promised::Nothing => {
            // Opening a FIFO may wait.
            let may_wait = |Path(at, path)| match sys::place_at(at, path, 0) {
                Ok(place) => !place.is_file(),
                Err(Errno(errno)) => errno != libc::ENOENT,
            };
            if number == libc::SYS_openat && paths.into_iter().any(may_wait) {
                return None;
            }
            // SAFETY: by this function's contract.
            Some(unsafe { call(number, arguments(paths)) })
        }
        Promised::On(index) => unobserved(|| {
            let mount = session.page.number(index)?;
            let mut held = [None; N];
            for (place, path) in held.iter_mut().zip(paths) {
                // SAFETY: by this function's contract the path is one, or an address that the kernel refuses.
                *place = unsafe { hold(path, mount) };
            }
            let result = match held.iter().all(Option::is_some) {
                true => {
                    let held = held.map(|path| path.unwrap_or(Path(-1, ptr::null())));
                    // SAFETY: as above; the paths name the same.
                    Some(unsafe { by_door(number, arguments(held)) })
                }
                false => None,
            };
            held.into_iter().flatten().for_each(|Path(directory, _)| sys::close(directory));
            // Somebody has put a symbolic link there.
            let result = result.filter(|result| *result != -(libc::ELOOP as isize));
            result.map(returned)
        }),
        Promised::More => None,
    }
}

/// Finds the directory that a path leads to, if it is on this mount and no symbolic link leads there, and what the path names in it is nothing or a file
/// or directory on the mount: the same path, from a descriptor of that directory. Nobody can make it lead elsewhere.
///
/// # Safety
/// The path ends with a zero, or is an address that the kernel refuses.
unsafe fn hold(Path(at, path): Path, mount: u64) -> Option<Path> {
    // The kernel reads the path first.
    if let Err(Errno(errno)) = sys::place_at(at, path, libc::AT_SYMLINK_NOFOLLOW)
        && errno != libc::ENOENT
    {
        return None;
    }
    // SAFETY: by this function's contract, and the kernel has read it.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let begin = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut directory = [0_u8; PATH_BYTES];
    // "." and "..", also with slashes after them, are the supervisor's.
    if begin >= PATH_BYTES || matches!(&bytes[begin..], b"" | b"." | b"..") {
        return None;
    }
    directory[..begin].copy_from_slice(&bytes[..begin]);
    if begin == 0 {
        directory[0] = b'.';
    }
    let low = open_without_links(at, directory.as_ptr().cast())?;
    // The program's own descriptors have the lowest free numbers.
    let high = sys::fcntl(low, libc::F_DUPFD_CLOEXEC, OWN_FROM);
    sys::close(low);
    let high = high.ok()?;
    // SAFETY: inside the string.
    let name = unsafe { path.add(begin) };
    let is_there = sys::place(high).is_ok_and(|place| place.is_file_on(mount));
    let is_unseen = match sys::place_at(high, name, libc::AT_SYMLINK_NOFOLLOW) {
        Ok(target) => target.is_file_on(mount),
        Err(Errno(errno)) => errno == libc::ENOENT,
    };
    if is_there && is_unseen {
        return Some(Path(high, name));
    }
    sys::close(high);
    None
}

/// Opens a directory without reading it, if no symbolic link leads there (openat2(2)).
fn open_without_links(at: c_int, path: *const c_char) -> Option<c_int> {
    // SAFETY: of plain numbers, for which zero is a value.
    let mut how = unsafe { std::mem::zeroed::<libc::open_how>() };
    how.flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    let bytes = size_of::<libc::open_how>();
    let arguments = [at as usize, path.addr(), (&raw const how).addr(), bytes, 0, 0];
    // SAFETY: the structure is of the size that is given; the path is as the caller says.
    c_int::try_from(unsafe { by_door(libc::SYS_openat2, arguments) }).ok().filter(|fd| *fd >= 0)
}

/// Opens a mount's root, if it is still there. Only then it is opened for reading: a member's server may be mounted over it, and answer when what waits for
/// the commit goes on.
fn open_root(path: &CStr, mount: u64) -> Option<c_int> {
    let root = sys::open(path, libc::O_PATH | libc::O_DIRECTORY).ok()?;
    let is_it = sys::place(root).is_ok_and(|place| place.is_file_on(mount));
    let opened = is_it.then(|| sys::open_at(root, c".", libc::O_RDONLY | libc::O_DIRECTORY));
    sys::close(root);
    opened?.ok()
}

/// Numbers of this module's own descriptors begin there.
const OWN_FROM: usize = 900;
/// Longer paths of directories are the supervisor's.
const PATH_BYTES: usize = 512;

/// fsync(2) and fdatasync(2), as a promise.
pub(crate) extern "C" fn sync(fd: c_int) -> Option<c_int> {
    let session = session()?;
    let place = sys::place(fd).ok()?;
    let index = (0..session.mounts).find(|index| session.has(*index, place))?;
    let promises = session.promises(index);
    if promises.is_waited_for() || !MAY_PROMISE.load(Ordering::Relaxed) {
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
        if commit_by(fd) && promises.set_durable(made) {
            promises.commits().count(Reason::Sync);
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
/// After so many in a row the next sync is a commit.
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

/// Makes a system call by the door, and sets `errno` as the C library does.
///
/// # Safety
/// As for the call.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: by this function's contract.
    returned(unsafe { by_door(number, arguments) })
}

/// A system call's result as the C library returns it.
fn returned(result: isize) -> isize {
    match result {
        -4095..=-1 => {
            // SAFETY: the thread's own.
            unsafe { *libc::__errno_location() = -result as c_int };
            -1
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn another_mount_at_the_path_is_not_opened() {
        let directory = std::env::temp_dir().join(format!("weir-root-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = CString::new(directory.to_str().unwrap()).unwrap();
        // SAFETY: the argument is a number.
        let notified = unsafe { libc::inotify_init1(libc::IN_NONBLOCK) };
        // SAFETY: the path ends with a zero.
        assert!(unsafe { libc::inotify_add_watch(notified, path.as_ptr(), libc::IN_OPEN) } >= 0);
        let is_opened = || sys::read(notified, &mut [0; 1024]).is_ok();
        std::fs::read_dir(&directory).unwrap();
        assert!(is_opened());
        // No mount has this number.
        assert_eq!(open_root(&path, u64::MAX), None);
        assert!(!is_opened());
        sys::close(notified);
        std::fs::remove_dir(&directory).unwrap();
    }
}
