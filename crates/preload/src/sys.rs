//! System calls by the instruction: they do not set `errno`, are no cancellation points, and call no name that this
//! library interposes.

use std::arch::asm;
use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_lane::door::ADDRESS;

/// A system call's error number (errno(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Makes a system call.
///
/// # Safety
/// As for the call.
#[inline]
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: by this function's contract; the registers are those of syscall(2), and the kernel keeps all others
    // but rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    match result {
        -4095..=-1 => Err(Errno(-result as c_int)),
        result => Ok(result as usize),
    }
}

/// A call without pointers, or whose pointers are to live objects of the right type.
macro_rules! plain {
    ($number:expr $(, $argument:expr)*) => {{
        let mut arguments = [0_usize; 6];
        let given = [$($argument as usize),*];
        arguments[..given.len()].copy_from_slice(&given);
        // SAFETY: the arguments are numbers, or pointers to live objects of the types that the call expects.
        unsafe { call($number, arguments) }
    }};
}

/// The door's code is at its address ([`weir_lane::door`]).
static HAS_DOOR: AtomicBool = AtomicBool::new(false);

/// The process is a member of a session, and has the door's code: calls of which nobody outside can know are made by it from now on.
pub(crate) fn use_door() {
    HAS_DOOR.store(true, Ordering::Release);
}

/// Makes a system call by the door of a session, and returns what the kernel does.
///
/// # Safety
/// As for the call; the door's code is there.
#[inline]
pub(crate) unsafe fn by_door(number: c_long, arguments: [usize; 6]) -> isize {
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

/// Makes a system call of which nobody outside a session can know.
///
/// # Safety
/// As for the call.
unsafe fn call_inside(number: c_long, arguments: [usize; 6]) -> Result<usize> {
    if !HAS_DOOR.load(Ordering::Acquire) {
        // SAFETY: by this function's contract.
        return unsafe { call(number, arguments) };
    }
    // SAFETY: by this function's contract.
    match unsafe { by_door(number, arguments) } {
        result @ -4095..=-1 => Err(Errno(-result as c_int)),
        result => Ok(result as usize),
    }
}

/// As [`plain`], of which nobody outside a session can know.
macro_rules! inside {
    ($number:expr $(, $argument:expr)*) => {{
        let mut arguments = [0_usize; 6];
        let given = [$($argument as usize),*];
        arguments[..given.len()].copy_from_slice(&given);
        // SAFETY: as for `plain`.
        unsafe { call_inside($number, arguments) }
    }};
}

pub(crate) fn getpid() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

pub(crate) fn gettid() -> u32 {
    // SAFETY: as above.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Whether the process is root's, or may become another user's (capabilities(7)).
pub(crate) fn may_change_user() -> bool {
    // `_LINUX_CAPABILITY_VERSION_3`: the low 32 bits of the effective, permitted and inheritable sets, then the high 32 bits.
    let (header, mut sets) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    const SETUID: u32 = 1 << 7;
    let mut users = [0_u32; 3];
    let [real, effective, saved] = &mut users;
    let asked = plain!(libc::SYS_getresuid, &raw mut *real, &raw mut *effective, &raw mut *saved)
        .and_then(|_| plain!(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()));
    let is_one = users.iter().all(|user| *user == users[0] && *user != 0);
    asked.is_err() || !is_one || (sets[0] | sets[1]) & SETUID != 0
}

/// Milliseconds of a monotonic clock (clock_gettime(2), CLOCK_MONOTONIC_COARSE).
pub(crate) fn milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = plain!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC_COARSE, &raw mut time);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Microseconds of a monotonic clock (clock_gettime(2), CLOCK_MONOTONIC).
pub(crate) fn microseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = plain!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Random bits (getrandom(2)).
pub(crate) fn random() -> Result<u32> {
    let mut bits = 0_u32;
    plain!(libc::SYS_getrandom, &raw mut bits, size_of_val(&bits), 0).map(|_| bits)
}

/// Yields the CPU (sched_yield(2)).
pub(crate) fn sched_yield() {
    let _ = plain!(libc::SYS_sched_yield);
}

/// Sleeps for less than a second, or until a signal comes (nanosleep(2)).
pub(crate) fn sleep(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let _ = plain!(libc::SYS_nanosleep, &raw const time, 0);
}

/// Whether a thread of that number exists (tkill(2), signal 0).
pub(crate) fn is_alive(id: u32) -> bool {
    plain!(libc::SYS_tkill, id, 0) != Err(Errno(libc::ESRCH))
}

#[inline]
pub(crate) fn lseek(fd: c_int, offset: i64, whence: c_int) -> Result<u64> {
    plain!(libc::SYS_lseek, fd, offset, whence).map(|position| position as u64)
}

pub(crate) fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int> {
    plain!(libc::SYS_fcntl, fd, command, argument).map(|result| result as c_int)
}

/// Closes a descriptor of this library's own.
pub(crate) fn close(fd: c_int) {
    let _ = inside!(libc::SYS_close, fd);
}

pub(crate) fn fstat(fd: c_int) -> Result<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    plain!(libc::SYS_fstat, fd, stat.as_mut_ptr())?;
    // SAFETY: the kernel filled it.
    Ok(unsafe { stat.assume_init() })
}

/// A file's identity, and its size as the kernel has it cached, which may be old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// As in `st_dev` of stat(2).
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) is_regular: bool,
    pub(crate) size: u64,
}

/// A file's cached attributes (statx(2), AT_STATX_DONT_SYNC): no request is sent to the file system. On FUSE, fstat(2) after a
/// write sends a GETATTR, and its answer makes the next write send a GETXATTR: the kernel then forgets that the file has no
/// `security.capability`.
pub(crate) fn identity(fd: c_int) -> Result<Identity> {
    let mut statx = MaybeUninit::<libc::statx>::uninit();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let (path, mask) = (c"".as_ptr(), libc::STATX_TYPE | libc::STATX_INO | libc::STATX_SIZE);
    plain!(libc::SYS_statx, fd, path, flags, mask, statx.as_mut_ptr())?;
    // SAFETY: the kernel filled it.
    let statx = unsafe { statx.assume_init() };
    Ok(Identity {
        device: libc::makedev(statx.stx_dev_major, statx.stx_dev_minor),
        inode: statx.stx_ino,
        is_regular: u32::from(statx.stx_mode) & libc::S_IFMT == libc::S_IFREG,
        size: statx.stx_size,
    })
}

/// What a descriptor or path leads to, as the kernel knows it: no request is sent to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The kernel's number for its mount, which no other one has (statx(2), STATX_MNT_ID_UNIQUE); 0 before Linux 6.8.
    mount: u64,
    /// Minor number of its device.
    minor: u32,
    inode: u64,
    /// As `st_mode`.
    mode: u32,
    /// The device's major number is not 0: no pipe or socket but a FIFO.
    has_major: bool,
    /// It has no name any more.
    is_removed: bool,
    /// It is a device of the kernel's memory, as /dev/null is (mem(4), null(4)).
    is_memory: bool,
}

impl Place {
    /// Whether it is a regular file or a directory.
    pub(crate) fn is_file(self) -> bool {
        matches!(self.mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR)
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Whether it is one, and on the mount with this number.
    pub(crate) fn is_file_on(self, mount: u64) -> bool {
        self.is_file() && self.mount == mount && mount != 0
    }

    /// Whether it is a FIFO or a pipe.
    pub(crate) fn is_pipe(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFIFO
    }

    /// A number of 48 bits that no other pipe or socket has at the same time, if there is one.
    pub(crate) fn number(self) -> Option<u64> {
        let is_small = !self.has_major && self.minor < 1 << 16 && self.inode < 1 << 32;
        is_small.then_some(u64::from(self.minor) << 32 | self.inode)
    }

    /// Whether it has no name any more: with its last description it is gone.
    pub(crate) fn is_removed(self) -> bool {
        self.is_removed
    }

    /// Whether it is a device like /dev/null.
    pub(crate) fn is_memory(self) -> bool {
        self.is_memory
    }

    /// Whether it is a FIFO, a pipe or a socket.
    pub(crate) fn is_pipe_or_socket(self) -> bool {
        matches!(self.mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK)
    }
}

/// What a descriptor leads to.
pub(crate) fn place(fd: c_int) -> Result<Place> {
    place_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH)
}

/// What a path leads to; `flags` are those of statx(2).
pub(crate) fn place_at(at: c_int, path: *const libc::c_char, flags: c_int) -> Result<Place> {
    let mut statx = MaybeUninit::<libc::statx>::uninit();
    let flags = flags | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    const MOUNT: u32 = 0x4000;
    /// `MEM_MAJOR` (linux/major.h).
    const MEMORY_MAJOR: u32 = 1;
    let mask = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_NLINK | MOUNT;
    plain!(libc::SYS_statx, at, path, flags, mask, statx.as_mut_ptr())?;
    // SAFETY: the kernel filled it.
    let statx = unsafe { statx.assume_init() };
    Ok(Place {
        mount: if statx.stx_mask & MOUNT != 0 { statx.stx_mnt_id } else { 0 },
        minor: statx.stx_dev_minor,
        inode: statx.stx_ino,
        mode: u32::from(statx.stx_mode),
        has_major: statx.stx_dev_major != 0,
        is_removed: statx.stx_nlink == 0,
        is_memory: u32::from(statx.stx_mode) & libc::S_IFMT == libc::S_IFCHR
            && statx.stx_rdev_major == MEMORY_MAJOR,
    })
}

/// The type of the file system a descriptor is on (fstatfs(2)).
pub(crate) fn file_system(fd: c_int) -> Result<i64> {
    let mut statfs = MaybeUninit::<libc::statfs>::uninit();
    plain!(libc::SYS_fstatfs, fd, statfs.as_mut_ptr())?;
    // SAFETY: the kernel filled it.
    Ok(unsafe { statfs.assume_init() }.f_type)
}

/// The size as the file system's server reports it, not as the kernel has it cached (statx(2), AT_STATX_FORCE_SYNC).
pub(crate) fn served_size(fd: c_int) -> Result<u64> {
    let mut statx = MaybeUninit::<libc::statx>::uninit();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
    let path = c"".as_ptr();
    plain!(libc::SYS_statx, fd, path, flags, libc::STATX_SIZE, statx.as_mut_ptr())?;
    // SAFETY: the kernel filled it.
    Ok(unsafe { statx.assume_init() }.stx_size)
}

/// An ioctl of the lane's: a message goes in, another comes out. In a session only to daemons of its mounts.
pub(crate) fn ioctl(fd: c_int, number: u32, message: &mut weir_lane::wire::Message) -> Result<()> {
    inside!(libc::SYS_ioctl, fd, number, message.as_mut_ptr()).map(drop)
}

/// preadv(2).
///
/// # Safety
/// The pieces' memory is overwritten. The kernel checks the addresses.
pub(crate) unsafe fn preadv(fd: c_int, pieces: &[libc::iovec], offset: u64) -> Result<usize> {
    plain!(libc::SYS_preadv, fd, pieces.as_ptr(), pieces.len(), offset)
}

/// pwritev(2).
pub(crate) fn pwritev(fd: c_int, pieces: &[libc::iovec], offset: u64) -> Result<usize> {
    plain!(libc::SYS_pwritev, fd, pieces.as_ptr(), pieces.len(), offset)
}

/// The size of a page (sysconf(3)).
pub(crate) fn page_bytes() -> usize {
    // SAFETY: it only reads.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Memory of its own mapping, which begins at a page.
pub(crate) struct Memory {
    begin: *mut u8,
    len: usize,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Result<Memory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let begin = plain!(libc::SYS_mmap, 0, len, access, flags, -1_isize, 0)?;
        Ok(Memory { begin: begin as *mut u8, len })
    }

    /// pread(2) into it; what was read.
    pub(crate) fn read(&mut self, fd: c_int, len: usize, offset: u64) -> Result<&[u8]> {
        let len = len.min(self.len);
        let read = plain!(libc::SYS_pread64, fd, self.begin, len, offset)?;
        // SAFETY: the memory is this one's, and the kernel has written so much of it.
        Ok(unsafe { std::slice::from_raw_parts(self.begin, read) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = plain!(libc::SYS_munmap, self.begin, self.len);
    }
}

/// The C library's error number of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether a write need not wait, or fails (poll(2)).
pub(crate) fn is_ready_to_write(fd: c_int) -> Result<bool> {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    Ok(plain!(libc::SYS_poll, &raw mut poll, 1, 0)? > 0)
}

/// sendfile(2).
///
/// # Safety
/// The place is written to. The kernel checks its address.
pub(crate) unsafe fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> Result<usize> {
    plain!(libc::SYS_sendfile, to, from, at, len)
}

/// write(2).
pub(crate) fn write_some(fd: c_int, bytes: &[u8]) -> Result<usize> {
    plain!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len())
}

/// Writes what does not have to wait (pwritev2(2), RWF_NOWAIT).
pub(crate) fn write_at_once(fd: c_int, bytes: &[u8]) -> Result<usize> {
    let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let (one, no_offset) = (1, -1);
    plain!(libc::SYS_pwritev2, fd, &raw const piece, one, no_offset, 0, libc::RWF_NOWAIT)
}

/// The soft limit of a resource (getrlimit(2)).
pub(crate) fn limit(resource: u32) -> Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    plain!(libc::SYS_prlimit64, 0, resource, 0, &raw mut limit)?;
    Ok(limit.rlim_cur)
}

/// Memory of zeros that is shared with processes forked from now on.
pub(crate) fn shared_memory(len: usize) -> Result<*mut u8> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    plain!(libc::SYS_mmap, 0, len, access, flags, -1_isize, 0).map(|address| address as *mut u8)
}

/// Replaces memory from [`shared_memory`] by private zeros.
pub(crate) fn replace_by_zeros(memory: *mut u8, len: usize) -> Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    plain!(libc::SYS_mmap, memory, len, access, flags, -1_isize, 0).map(drop)
}

/// A page at this address that begins with this code, if nothing else is there.
pub(crate) fn executable_page(address: usize, code: &[u8]) -> Result<()> {
    const BYTES: usize = 4096;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let mapped = plain!(libc::SYS_mmap, address, BYTES, access, flags, -1_isize, 0)?;
    let written = if mapped == address {
        // SAFETY: mapped just now, of a page, for this.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), mapped as *mut u8, code.len()) };
        plain!(libc::SYS_mprotect, mapped, BYTES, libc::PROT_READ | libc::PROT_EXEC).map(drop)
    } else {
        Err(Errno(libc::EEXIST))
    };
    if written.is_err() {
        let _ = plain!(libc::SYS_munmap, mapped, BYTES);
    }
    written
}

/// Writes code over other code.
///
/// # Safety
/// The bytes at `at` are mapped code. No thread or signal handler runs them during the call, and the new code is correct for every later caller.
pub(crate) unsafe fn replace_code(at: *mut u8, code: &[u8]) -> Result<()> {
    const BYTES: usize = 4096;
    const READ: c_int = libc::PROT_READ | libc::PROT_EXEC;
    let first = at.addr() / BYTES * BYTES;
    let len = (at.addr() + code.len()).next_multiple_of(BYTES) - first;
    plain!(libc::SYS_mprotect, first, len, READ | libc::PROT_WRITE)?;
    // SAFETY: it may be written now; the rest is this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
    plain!(libc::SYS_mprotect, first, len, READ).map(drop)
}

/// Holds back all signals of the thread that can be; gives back those that were held back before (rt_sigprocmask(2)).
pub(crate) fn block_signals() -> Result<u64> {
    let (all, mut before) = (u64::MAX, 0_u64);
    let bytes = size_of::<u64>();
    plain!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, bytes)?;
    Ok(before)
}

/// Holds back these signals, and no others.
pub(crate) fn set_signals(held: u64) {
    let bytes = size_of::<u64>();
    let _ = plain!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const held, 0, bytes);
}

/// Holds back these signals of the thread, too; gives back those that were held back before.
pub(crate) fn hold_signals(signals: u64) -> Result<u64> {
    let mut before = 0_u64;
    let bytes = size_of::<u64>();
    plain!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const signals, &raw mut before, bytes)?;
    Ok(before)
}

/// `struct sigaction` of the kernel (asm/signal.h).
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// A signal's handler without SA_RESTART, if it has one now (sigaction(2)).
fn interrupting_action(signal: c_int) -> Option<Action> {
    let mut action = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    plain!(libc::SYS_rt_sigaction, signal, 0, &raw mut action, size_of::<u64>()).ok()?;
    let is_handled = !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN);
    (is_handled && action.flags & libc::SA_RESTART as u64 == 0).then_some(action)
}

/// Whether a signal's handler interrupts calls.
pub(crate) fn interrupts(signal: c_int) -> bool {
    interrupting_action(signal).is_some()
}

/// Has calls go on after a signal's handler from now on.
pub(crate) fn restart_after(signal: c_int) {
    if let Some(mut action) = interrupting_action(signal) {
        action.flags |= libc::SA_RESTART as u64;
        let _ = plain!(libc::SYS_rt_sigaction, signal, &raw const action, 0, size_of::<u64>());
    }
}

/// An option of a socket (getsockopt(2)).
fn option<T: Copy>(fd: c_int, level: c_int, name: c_int, mut value: T) -> Result<T> {
    let mut len = size_of::<T>() as u32;
    plain!(libc::SYS_getsockopt, fd, level, name, &raw mut value, &raw mut len)?;
    Ok(value)
}

/// Whether closing a descriptor may wait until what a socket was given is sent (SO_LINGER, socket(7)).
pub(crate) fn lingers(fd: c_int) -> bool {
    let none = libc::linger { l_onoff: 0, l_linger: 0 };
    option(fd, libc::SOL_SOCKET, libc::SO_LINGER, none)
        .is_ok_and(|linger| linger.l_onoff != 0 && linger.l_linger != 0)
}

/// Whether connect(2) waits for nobody: the socket does not block, or has no connections.
pub(crate) fn connects_at_once(fd: c_int) -> bool {
    fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
        || option(fd, libc::SOL_SOCKET, libc::SO_TYPE, 0) == Ok(libc::SOCK_DGRAM)
}

/// Whether a socket of TCP is not connected, nor on its way to be (TCP_INFO, tcp(7)).
pub(crate) fn is_closed_tcp(fd: c_int) -> bool {
    /// `TCP_CLOSE` (net/tcp_states.h).
    const CLOSE: u8 = 7;
    // The first byte is the state.
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0_u8; 8]).is_ok_and(|info| info[0] == CLOSE)
}

/// Whether the kernel is of this version or a later one (uname(2)).
pub(crate) fn is_kernel_at_least(major: u32, minor: u32) -> bool {
    let mut names = MaybeUninit::<libc::utsname>::uninit();
    if plain!(libc::SYS_uname, names.as_mut_ptr()).is_err() {
        return false;
    }
    // SAFETY: the kernel filled it.
    let release = unsafe { names.assume_init() }.release.map(|byte| byte as u8);
    let mut numbers = release.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        digits.iter().fold(0_u32, |number, digit| {
            number.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        })
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Asks the supervisor of a session ([`weir_lane::door`]).
pub(crate) fn ask_supervisor(number: i64, what: [u64; 2]) -> Result<c_int> {
    plain!(number, what[0], what[1]).map(|answer| answer as c_int)
}

/// Makes a page all zeros in processes forked from now on (madvise(2), MADV_WIPEONFORK).
pub(crate) fn wipe_on_fork(page: *const u8, len: usize) -> Result<()> {
    plain!(libc::SYS_madvise, page, len, libc::MADV_WIPEONFORK).map(drop)
}

/// io_submit(2); a negative error number if it fails.
pub(crate) fn submit(context: usize, count: c_long, list: *const usize) -> isize {
    match plain!(libc::SYS_io_submit, context, count, list) {
        Ok(submitted) => submitted as isize,
        Err(Errno(errno)) => -(errno as isize),
    }
}

/// Copies from this process's memory, which may not be there (process_vm_readv(2)). `None`: some of it cannot be read.
pub(crate) fn read_own_memory<T: Copy>(address: usize, to: &mut [T]) -> Option<()> {
    let len = size_of_val(to);
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: len };
    let (own, one) = (getpid(), 1);
    let read =
        plain!(libc::SYS_process_vm_readv, own, &raw const local, one, &raw const remote, one, 0);
    (read == Ok(len)).then_some(())
}

/// Opens an existing file, close-on-exec.
pub(crate) fn open(path: &std::ffi::CStr, flags: c_int) -> Result<c_int> {
    open_at(libc::AT_FDCWD, path, flags)
}

/// The same, from a directory.
pub(crate) fn open_at(at: c_int, path: &std::ffi::CStr, flags: c_int) -> Result<c_int> {
    plain!(libc::SYS_openat, at, path.as_ptr(), flags | libc::O_CLOEXEC, 0).map(|fd| fd as c_int)
}

/// Opens /proc/self/fdinfo/FD.
pub(crate) fn open_facts(fd: c_int) -> Result<c_int> {
    const BEGIN: &[u8] = b"/proc/self/fdinfo/";
    let mut path = [0_u8; 40];
    path[..BEGIN.len()].copy_from_slice(BEGIN);
    let (mut at, mut number) = (BEGIN.len() + 10, fd.cast_unsigned());
    let end = at;
    loop {
        at -= 1;
        path[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    path.copy_within(at..end, BEGIN.len());
    path[BEGIN.len() + end - at] = 0;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno(libc::EINVAL))?;
    open(path, libc::O_RDONLY)
}

/// read(2) into a buffer of this library's.
pub(crate) fn read(fd: c_int, to: &mut [u8]) -> Result<usize> {
    plain!(libc::SYS_read, fd, to.as_mut_ptr(), to.len())
}

/// Writes a message with write(2).
pub(crate) fn write(fd: c_int, message: &[u8]) {
    let _ = write_some(fd, message);
}

/// A SOCK_SEQPACKET socket, connected to a name in the abstract namespace (unix(7)), of which a daemon has told. Connecting fails after `seconds`, or after
/// twice as long if signals interrupt it; so does [`receive`].
pub(crate) fn connect(name: &[u8], seconds: i64) -> Result<c_int> {
    // SAFETY: of plain numbers, for which zero is a value.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_un>() };
    address.sun_family = libc::AF_UNIX as u16;
    // The abstract namespace: the first byte is zero.
    let Some(place) = address.sun_path.get_mut(1..1 + name.len()) else {
        return Err(Errno(libc::ENAMETOOLONG));
    };
    for (to, from) in place.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let fd = plain!(libc::SYS_socket, libc::AF_UNIX, kind, 0)? as c_int;
    let connected = set_timeout(fd, libc::SO_SNDTIMEO, seconds)
        .and_then(|()| set_timeout(fd, libc::SO_RCVTIMEO, seconds))
        .and_then(|()| {
            uninterrupted(seconds, || inside!(libc::SYS_connect, fd, &raw const address, len))
        });
    match connected {
        Ok(_) => Ok(fd),
        Err(errno) => {
            close(fd);
            Err(errno)
        }
    }
}

fn set_timeout(fd: c_int, option: c_int, seconds: i64) -> Result<()> {
    let time = libc::timeval { tv_sec: seconds, tv_usec: 0 };
    inside!(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, option, &raw const time, size_of_val(&time))
        .map(drop)
}

/// Repeats a system call that signals interrupt, for at most `seconds`.
fn uninterrupted<T>(seconds: i64, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let began = milliseconds();
    loop {
        match call() {
            Err(Errno(libc::EINTR)) if milliseconds() - began < 1000 * seconds as u64 => {}
            result => return result,
        }
    }
}

/// Receives a message and up to three descriptors with it, close-on-exec. Returns the message's length, and the descriptors;
/// -1 where there was none. Repeats the call if signals interrupt it, for at most `seconds`. The supervisor of a session does not see it: the caller
/// closes the descriptors again.
pub(crate) fn receive(fd: c_int, message: &mut [u8], seconds: i64) -> Result<(usize, [c_int; 3])> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut piece = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: message.len() };
    // SAFETY: of plain numbers and pointers, for which zero is a value.
    let mut header = unsafe { std::mem::zeroed::<libc::msghdr>() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_CMSG_CLOEXEC;
    let len = uninterrupted(seconds, || inside!(libc::SYS_recvmsg, fd, &raw mut header, flags))?;
    let mut descriptors = [-1; 3];
    // SAFETY: the kernel filled `control` as cmsg(3) says; the macros stay inside `msg_controllen`.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const header);
        if !head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*head).cmsg_len - libc::CMSG_LEN(0) as usize;
            let data = libc::CMSG_DATA(head).cast::<c_int>();
            for (index, descriptor) in descriptors.iter_mut().enumerate() {
                if index < bytes / size_of::<c_int>() {
                    *descriptor = data.add(index).read_unaligned();
                }
            }
        }
    }
    Ok((len, descriptors))
}

/// Wakes a daemon: sends one byte, without waiting.
pub(crate) fn ring_doorbell(fd: c_int) {
    let byte = 0_u8;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let _ = inside!(libc::SYS_sendto, fd, &raw const byte, 1, flags);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn an_identity_agrees_with_stat() {
        let path = std::env::temp_dir().join(format!("weir-preload-{}", std::process::id()));
        std::fs::write(&path, b"12345").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let stat = file.metadata().unwrap();
        let identity = identity(file.as_raw_fd()).unwrap();
        let expected =
            Identity { device: stat.dev(), inode: stat.ino(), is_regular: true, size: 5 };
        assert_eq!(identity, expected);

        let directory = std::fs::File::open("/").unwrap();
        assert!(!super::identity(directory.as_raw_fd()).unwrap().is_regular);
        assert_eq!(super::identity(-1), Err(Errno(libc::EBADF)));
    }
}
