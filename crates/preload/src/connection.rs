//! The daemons that this process is a client of: the memories they sent, mapped, and the sockets to them.
//!
//! Owns the connections. Invariant: none is made after the process left the lane for good.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use weir_lane::board::View;
use weir_lane::client::Client;
use weir_lane::region::Region;
use weir_lane::wire::{WELCOME_BYTES, Welcome};

use crate::sys::{self, Errno};
use crate::{device, history, home, limit, position, table};

/// Most daemons that a process can be a client of.
pub(crate) const CLIENTS: usize = 4;
/// Longest wait for a daemon's [`Welcome`], seconds.
const WELCOME_S: i64 = 2;
/// The sockets' descriptors are the highest free ones below this: few programs use these numbers, and the kernel's
/// descriptor table does not grow for them.
const SOCKETS_BELOW: u64 = 1024;

/// A connection to a daemon.
struct Connection {
    /// Written once, before `state` is [`CONNECTED`]; never dropped.
    client: UnsafeCell<MaybeUninit<Client>>,
    token: AtomicU64,
    socket: AtomicI32,
    socket_inode: AtomicU64,
    state: AtomicU32,
}

/// States of a connection.
const FREE: u32 = 0;
const CONNECTED: u32 = 1;
/// The process left the lane. The client is not dropped, since other threads may be using it; its memories
/// are zeros.
const LEFT: u32 = 2;

// SAFETY: `client` is written by the holder of the `lock` before `state` is `CONNECTED`, and only shared
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

/// The process left the lane for good ([`crate::credentials`]).
static HAS_DEPARTED: AtomicBool = AtomicBool::new(false);

/// The client of a connection, while it is connected.
#[inline]
pub(crate) fn client(index: usize) -> Option<&'static Client> {
    let connection = &CONNECTIONS[index];
    if connection.state.load(Ordering::Acquire) != CONNECTED {
        return None;
    }
    // SAFETY: written before `state` became `CONNECTED`, and never changed after that.
    Some(unsafe { (*connection.client.get()).assume_init_ref() })
}

/// Whether the process is a client of any daemon.
#[inline]
pub(crate) fn is_client() -> bool {
    // Connections are made in order of their index, and closed together.
    client(0).is_some()
}

/// Whether the process is or was a client, so that lane memory may be mapped. A process that was forked while
/// its parent left the lane has the memory that the parent had not yet unmapped.
pub(crate) fn was_client() -> bool {
    CONNECTIONS[0].state.load(Ordering::Acquire) != FREE
}

/// Whether the process left the lane for good.
pub(crate) fn has_departed() -> bool {
    HAS_DEPARTED.load(Ordering::SeqCst)
}

/// The token by which the daemon knows the client.
pub(crate) fn token(index: usize) -> u64 {
    CONNECTIONS[index].token.load(Ordering::Relaxed)
}

/// From now on no connection is made, and calls that begin use no client.
pub(crate) fn set_departed() {
    HAS_DEPARTED.store(true, Ordering::SeqCst);
    for connection in &CONNECTIONS {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = connection.state.compare_exchange(CONNECTED, LEFT, success, failure);
    }
    for (_, device) in device::all() {
        device.disconnect();
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

/// Connects to the daemon's socket `name`. The daemon must send `proof`: its mount may have ended, and another program may
/// listen by that name. The caller holds the [`crate::lock`], and checks whether the process [`has_departed`] meanwhile.
pub(crate) fn connect(name: &[u8], proof: u64) -> sys::Result<usize> {
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
    // SAFETY: this thread holds the `lock`, and no thread reads the client before the next line.
    unsafe { (*connection.client.get()).write(client) };
    connection.state.store(CONNECTED, Ordering::Release);
    limit::update();
    Ok(index)
}

/// Receives the [`Welcome`] and maps the memories.
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
        // SAFETY: received above, and closed only below.
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

/// A duplicate with a high number: some programs rely on low numbers being free.
fn move_high(fd: c_int) -> sys::Result<c_int> {
    let limit = sys::limit(libc::RLIMIT_NOFILE)?.min(SOCKETS_BELOW);
    let lowest = limit.saturating_sub(4 * CLIENTS as u64);
    sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as usize)
}

/// The program is about to reuse the number of a connection's socket (dup2(2)): moves the socket to another number.
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
pub(crate) fn ring_doorbell(index: usize) {
    let connection = &CONNECTIONS[index];
    let socket = connection.socket.load(Ordering::Relaxed);
    if is_socket_of(connection, socket) {
        sys::ring_doorbell(socket);
    }
}
