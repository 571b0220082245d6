//! The FUSE file systems files were found on, and the daemons that have a lane for them.
//!
//! A daemon is asked for its name when the first file of its device is found, and connected to when the first
//! description is to be put into the lane, or the process forks. Several threads may want that at once: one does it, the
//! others go by the kernel meanwhile.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use weir_lane::board::View;
use weir_lane::client::{Attached, Client};
use weir_lane::region::Region;
use weir_lane::tally::Count;
use weir_lane::wire::{
    ATTACH, Attach, Attachment, FIND, Found, MESSAGE_BYTES, WELCOME_BYTES, Welcome,
};

use crate::description::{self, Description};
use crate::leave::{leave, use_cache};
use crate::sys::{self, Errno};
use crate::{data, history, home, position, report, table};

/// Daemons a process can be a client of.
pub(crate) const CLIENTS: usize = 4;
/// File systems without a device of their own that are remembered; those above are not looked at.
const DEVICES: usize = 32;
/// Of FUSE (statfs(2)).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
/// How long a daemon may take to send what it sends at once.
const WELCOME_S: i64 = 2;
/// Our sockets' descriptors are the highest free ones below this: few programs use those, and the kernel's table
/// does not grow for them.
const SOCKETS_BELOW: u64 = 1024;

/// States of a device. From [`CLIENT`] on: it is that client's.
const UNKNOWN: u32 = 0;
const OTHER: u32 = 1;
const LANE: u32 = 2;
const NO_LANE: u32 = 3;
const CLIENT: u32 = 4;

struct Device {
    /// stat(2)'s, plus one; 0: the place is free.
    number: AtomicU64,
    state: AtomicU32,
    /// Of the daemon's socket, its length first.
    name: [AtomicU8; MESSAGE_BYTES],
    /// What the daemon proves itself by.
    proof: AtomicU64,
    /// It could not be connected to before a fork, by a name that may be old.
    is_unreachable: AtomicBool,
}

static DEVICES_ALL: [Device; DEVICES] = [const {
    Device {
        number: AtomicU64::new(0),
        state: AtomicU32::new(UNKNOWN),
        name: [const { AtomicU8::new(0) }; MESSAGE_BYTES],
        proof: AtomicU64::new(0),
        is_unreachable: AtomicBool::new(false),
    }
}; DEVICES];

/// What a connection consists of.
struct Connection {
    /// Written once, before `state` is [`THERE`]; never dropped.
    client: UnsafeCell<MaybeUninit<Client>>,
    token: AtomicU64,
    socket: AtomicI32,
    socket_inode: AtomicU64,
    state: AtomicU32,
}

/// States of a connection.
const FREE: u32 = 0;
const THERE: u32 = 1;
/// The process left the lane. The client is not dropped, since other threads may be using it; its memories
/// are zeros.
const LEFT: u32 = 2;

// SAFETY: `client` is written by the holder of `ATTACHING` before `state` is `THERE`, and only shared
// after that.
unsafe impl Sync for Connection {}

static CONNECTIONS: [Connection; CLIENTS] = [const {
    Connection {
        client: UnsafeCell::new(MaybeUninit::uninit()),
        token: AtomicU64::new(0),
        socket: AtomicI32::new(-1),
        socket_inode: AtomicU64::new(0),
        state: AtomicU32::new(FREE),
    }
}; CLIENTS];

/// A lock: the thread (gettid(2)) that attaches a description, revokes it, or leaves the lane; 0 if none.
/// Reads and writes try to take it once or a few times at most; calls that change credentials wait for it.
static ATTACHING: AtomicU32 = AtomicU32::new(0);

/// The process left the lane for good ([`crate::credentials`]).
static HAS_DEPARTED: AtomicBool = AtomicBool::new(false);

/// Tries to take [`ATTACHING`]. False if a thread holds it, possibly this one, below a signal handler.
pub(crate) fn try_lock() -> bool {
    let tid = sys::gettid();
    ATTACHING.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Takes [`ATTACHING`], waiting at most 5 s for its holder: longer than a connection takes. False if the time
/// is over, or if this thread holds it, below a signal handler.
pub(crate) fn lock() -> bool {
    const YIELDS: i64 = 100;
    const SLEEP_NS: i64 = 200_000;
    let tid = sys::gettid();
    for turn in 0..YIELDS + 5_000_000_000 / SLEEP_NS {
        match ATTACHING.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(holder) if holder == tid => return false,
            Err(_) if turn < YIELDS => sys::sched_yield(),
            Err(_) => sys::sleep(SLEEP_NS),
        }
    }
    false
}

/// Releases [`ATTACHING`]. Also in a forked child, which does not have the thread that held it.
pub(crate) fn unlock() {
    ATTACHING.store(0, Ordering::Release);
}

/// Whether this thread holds [`ATTACHING`].
fn is_locked_here() -> bool {
    ATTACHING.load(Ordering::Relaxed) == sys::gettid()
}

/// The device a regular file is on, if it is FUSE's.
pub(crate) fn of(fd: c_int, number: u64) -> Option<u32> {
    if libc::major(number) != 0 {
        return None;
    }
    let index = place(number + 1)?;
    let device = &DEVICES_ALL[index];
    if device.state.load(Ordering::Relaxed) == UNKNOWN {
        let is_fuse = sys::file_system(fd) == Ok(FUSE_SUPER_MAGIC);
        if is_fuse {
            report::begin();
        }
        let state = match is_fuse.then(|| device.find(fd)) {
            None => OTHER,
            Some(Ok(())) => LANE,
            Some(Err(_)) => NO_LANE,
        };
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        let _ = device.state.compare_exchange(UNKNOWN, state, success, failure);
    }
    match device.state.load(Ordering::Relaxed) {
        OTHER => None,
        // Nothing to do but to count.
        NO_LANE if report::program().is_none() => None,
        _ => Some(index as u32),
    }
}

fn place(number: u64) -> Option<usize> {
    DEVICES_ALL.iter().position(|device| {
        let kept = device.number.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        kept.is_ok() || kept == Err(number)
    })
}

/// A daemon's client.
#[inline]
pub(crate) fn client(index: usize) -> Option<&'static Client> {
    let connection = &CONNECTIONS[index];
    if connection.state.load(Ordering::Acquire) != THERE {
        return None;
    }
    // SAFETY: written before `state` became `THERE`, and never changed after that.
    Some(unsafe { (*connection.client.get()).assume_init_ref() })
}

/// Whether it is one of any.
#[inline]
pub(crate) fn is_client() -> bool {
    // Connections are made in order, and closed together.
    client(0).is_some()
}

/// Whether the process is or was a client, so that lane memory may be mapped. A process that was forked while
/// its parent left the lane has the memory that the parent had not yet unmapped.
pub(crate) fn was_client() -> bool {
    CONNECTIONS[0].state.load(Ordering::Acquire) != FREE
}

/// From now on no daemon is connected to, and calls that begin use no client.
pub(crate) fn set_departed() {
    HAS_DEPARTED.store(true, Ordering::SeqCst);
    for connection in &CONNECTIONS {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = connection.state.compare_exchange(THERE, LEFT, success, failure);
    }
    for device in &DEVICES_ALL {
        // Other processes can still use its lane.
        if device.state.load(Ordering::Relaxed) >= CLIENT {
            device.state.store(LANE, Ordering::Relaxed);
        }
    }
}

/// Unmaps the memory of the lanes that the process left. Can be repeated.
pub(crate) fn unmap() -> std::io::Result<()> {
    let mut result = Ok(());
    for connection in &CONNECTIONS {
        if connection.state.load(Ordering::Acquire) != FREE {
            // SAFETY: written before `state` changed from `FREE`, and never changed after that.
            let client = unsafe { (*connection.client.get()).assume_init_ref() };
            result = client.unmap().and(result);
        }
    }
    result
}

/// Closes the sockets of the lanes that the process left.
pub(crate) fn disconnect() {
    for connection in &CONNECTIONS {
        let socket = connection.socket.swap(-1, Ordering::Relaxed);
        if socket != -1 && is_socket_of(connection, socket) {
            table::disclaim(socket);
            sys::close(socket);
        }
    }
}

/// Whether a descriptor is still the connection's socket: a program that closes descriptors by the `syscall`
/// instruction may have reused the number.
fn is_socket_of(connection: &Connection, socket: c_int) -> bool {
    let is_it = |stat: libc::stat| {
        stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
            && stat.st_ino == connection.socket_inode.load(Ordering::Relaxed)
    };
    sys::fstat(socket).is_ok_and(is_it)
}

/// Whether this process is a client of the device's daemon.
#[inline]
pub(crate) fn is_connected(device: u32) -> bool {
    DEVICES_ALL[device as usize].state.load(Ordering::Relaxed) >= CLIENT
}

/// Whether the device has a lane.
pub(crate) fn has_lane(device: u32) -> bool {
    DEVICES_ALL[device as usize].state.load(Ordering::Relaxed) != NO_LANE
}

impl Device {
    /// Learns the name of the daemon's socket.
    fn find(&self, fd: c_int) -> sys::Result<()> {
        let mut message = [0; MESSAGE_BYTES];
        sys::ioctl(fd, FIND, &mut message)?;
        let name = Found::socket_in(&message).ok_or(Errno(libc::EPROTO))?;
        self.proof.store(Found::proof_in(&message), Ordering::Relaxed);
        self.name[0].store(name.len() as u8, Ordering::Relaxed);
        for (to, from) in self.name[1..].iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Connects to its daemon, which was found just now.
    fn connect(&self) -> sys::Result<usize> {
        let connected = self.try_connect();
        if connected.is_err() {
            self.state.store(NO_LANE, Ordering::Relaxed);
        }
        connected
    }

    /// Connects to the daemon of the name that is known.
    fn try_connect(&self) -> sys::Result<usize> {
        let name: [u8; MESSAGE_BYTES] =
            std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed));
        let len = usize::from(name[0]).min(MESSAGE_BYTES - 1);
        let connected = connect(&name[1..=len], self.proof.load(Ordering::Relaxed));
        if let Ok(index) = connected {
            self.state.store(CLIENT + index as u32, Ordering::Relaxed);
        }
        connected
    }
}

/// Puts a description into the lane, or notes that it is not for it.
#[cold]
pub(crate) fn attach(fd: c_int, description: &Description) {
    if !home::notices_forks() || !home::is_ours() || !try_lock() {
        return;
    }
    if HAS_DEPARTED.load(Ordering::Relaxed) {
        description.set(description::REFUSED);
        return unlock();
    }
    let device = &DEVICES_ALL[description.device() as usize];
    let attached = connected(fd, device).and_then(|index| attach_to(fd, index, description));
    if attached.is_err() {
        description.set(description::REFUSED);
    }
    unlock();
}

/// Call before fork(2). A process that has seen files of a lane's mount connects now, so that it is one client
/// with the child: files that several clients use are written by the kernel, and servers that fork for each
/// connection use most files in their children. A process that may become another user connects only to the
/// lanes of files it has open now: its children must not keep access that they are not entitled to.
///
/// Pass the result to [`after_fork`]. No child is forked while a thread connects to a daemon: it would
/// inherit lane memory that it does not know of.
pub(crate) extern "C" fn before_fork() -> bool {
    let is_here = home::notices_forks() && home::is_ours();
    let locked = is_here && table::has_noted() && lock();
    if locked {
        connect_before_fork();
    }
    locked
}

/// Call after fork(2), in the parent and in the child.
pub(crate) extern "C" fn after_fork(locked: bool) {
    // The child releases the lock that the parent's thread took.
    home::settle();
    if locked && is_locked_here() {
        unlock();
    }
}

fn connect_before_fork() {
    let is_left_out = |device: &Device| {
        device.state.load(Ordering::Acquire) == LANE
            && !device.is_unreachable.load(Ordering::Relaxed)
    };
    if HAS_DEPARTED.load(Ordering::Relaxed) || !DEVICES_ALL.iter().any(is_left_out) {
        return;
    }
    let stays = !sys::may_change_user();
    let is_open = |index: usize| {
        let mut known = table::noted(0, u32::MAX).filter_map(table::known);
        known.any(|description| description.device() as usize == index)
    };
    for (index, device) in DEVICES_ALL.iter().enumerate() {
        if is_left_out(device) && (stays || is_open(index)) && device.try_connect().is_err() {
            // Not tried again at each fork. Who uses a file finds the daemon anew.
            device.is_unreachable.store(true, Ordering::Relaxed);
        }
    }
}

/// The client of a device, made if there is none.
fn connected(fd: c_int, device: &Device) -> sys::Result<usize> {
    let state = device.state.load(Ordering::Relaxed);
    if state == NO_LANE {
        return Err(Errno(libc::ENOTTY));
    }
    if let Some(index) = state.checked_sub(CLIENT).map(|index| index as usize)
        && client(index).is_some_and(|client| client.view.is_alive() && !client.region.is_closed())
    {
        return Ok(index);
    }
    // A mount of a new daemon may have the number of one before.
    device.find(fd).and_then(|()| device.connect())
}

/// Connects to the daemon of that name and proof: its mount may be gone, and the name be taken by another.
fn connect(name: &[u8], proof: u64) -> sys::Result<usize> {
    let is_free = |connection: &Connection| connection.state.load(Ordering::Relaxed) == FREE;
    let index = CONNECTIONS.iter().position(is_free).ok_or(Errno(libc::EMFILE))?;
    if !position::begin() {
        return Err(Errno(libc::ENOMEM));
    }
    history::begin();
    let low = sys::connect(name, WELCOME_S)?;
    let received = receive(low, proof);
    let socket = received.and_then(|received| Ok((received, move_high(low)?)));
    sys::close(low);
    let ((welcome, client), socket) = socket?;
    let inode = sys::fstat(socket).map(|stat| stat.st_ino);
    if inode.is_err() || !table::claim(socket) {
        sys::close(socket);
        return Err(Errno(libc::EMFILE));
    }
    let connection = &CONNECTIONS[index];
    connection.token.store(welcome.token, Ordering::Relaxed);
    connection.socket.store(socket, Ordering::Relaxed);
    connection.socket_inode.store(inode.unwrap_or(0), Ordering::Relaxed);
    // SAFETY: this thread holds `ATTACHING`, and no thread reads the client before the next line.
    unsafe { (*connection.client.get()).write(client) };
    connection.state.store(THERE, Ordering::Release);
    if HAS_DEPARTED.load(Ordering::SeqCst) {
        // A signal handler that interrupted this thread changed its user.
        crate::credentials::depart();
        return Err(Errno(libc::EPERM));
    }
    data::look_at_limit();
    Ok(index)
}

/// What the daemon says first, mapped.
fn receive(socket: c_int, proof: u64) -> sys::Result<(Welcome, Client)> {
    let mut message = [0; WELCOME_BYTES];
    let (len, descriptors) = sys::receive(socket, &mut message, WELCOME_S)?;
    let mapped = (|| {
        let is_right = |welcome: &Welcome| len == WELCOME_BYTES && welcome.proof == proof;
        let welcome = Welcome::decode(&message).filter(is_right)?;
        let [board, frames, region] = descriptors;
        if descriptors.contains(&-1) {
            return None;
        }
        // SAFETY: received just now, and open until they are closed below.
        let borrow = |fd| unsafe { BorrowedFd::borrow_raw(fd) };
        let view = View::map(borrow(board), borrow(frames)).ok()?;
        let region = Region::map(borrow(region), welcome.frames).ok()?;
        if view.frames() != welcome.frames {
            return None;
        }
        Some((welcome, Client { id: welcome.client, view, region }))
    })();
    for fd in descriptors.into_iter().filter(|fd| *fd != -1) {
        sys::close(fd);
    }
    mapped.ok_or(Errno(libc::EPROTO))
}

/// A duplicate out of the way of programs that count on low numbers.
fn move_high(fd: c_int) -> sys::Result<c_int> {
    let limit = sys::limit(libc::RLIMIT_NOFILE)?.min(SOCKETS_BELOW);
    let lowest = limit.saturating_sub(4 * CLIENTS as u64);
    sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as usize)
}

/// The program is about to put something else in place of a socket of ours: moves ours away.
pub(crate) fn evade(fd: c_int) {
    let is_it = |connection: &&Connection| connection.socket.load(Ordering::Relaxed) == fd;
    let Some(connection) = CONNECTIONS.iter().find(is_it) else { return };
    if !home::is_ours() {
        return;
    }
    let moved = move_high(fd).ok().filter(|moved| table::claim(*moved));
    connection.socket.store(moved.unwrap_or(-1), Ordering::Relaxed);
    table::disclaim(fd);
}

/// Wakes a daemon.
#[cold]
pub(crate) fn ring_bell(index: usize) {
    let connection = &CONNECTIONS[index];
    let socket = connection.socket.load(Ordering::Relaxed);
    if is_socket_of(connection, socket) {
        sys::ring_bell(socket);
    }
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
        // Before it is in the lane: what goes by the kernel then bypasses its page cache, which knows nothing of the lane. And
        // before that, lest the program sets flags without it meanwhile.
        description.set(description::BYPASSES);
        if let Err(error) = sys::fcntl(fd, libc::F_SETFL, (flags | libc::O_DIRECT) as usize) {
            description.clear(description::BYPASSES);
            return Err(error);
        }
    }
    let token = CONNECTIONS[index].token.load(Ordering::Relaxed);
    let mut message = Attach { client: client.id, token, process: home::number() }.encode();
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
        // The program's own wish.
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
            if known.gave_way() {
                known.attach_again(flags);
            }
            if !std::ptr::eq(known, description) {
                table::unite(fd, place);
            }
        }
        // What a client attaches again it knows.
        None if description.gave_way() => leave(fd, description, description::PASSED),
        None => description.attach(index, file, flags),
    }
    // As they are by now: the program may have set them meanwhile.
    let attached = table::known(fd).unwrap_or(description);
    let mut flags = flags;
    while let Ok(now) = sys::fcntl(fd, libc::F_GETFL, 0)
        && (now ^ flags) & libc::O_APPEND != 0
    {
        flags = now;
        attached.note_append(flags);
    }
    if attached.is_kernels() {
        // It left meanwhile.
        use_cache(fd, attached);
    }
    report::add(Count::Attached, 1);
    Ok(())
}
