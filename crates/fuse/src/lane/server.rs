//! The lane's thread: accepts clients, notices when they end, and takes out posts that no request has taken out.
//!
//! While a client posts, its rings are scanned every millisecond, and more often right after a scan found something. When
//! the client has not posted for [`QUIET`], it is told that the daemon sleeps; it then wakes the daemon by a byte over its
//! socket. All rings are scanned every second, because a process may be killed between deciding to wake the daemon and
//! doing so.
//!
//! The thread holds the daemon's life on the board ([`Life`]): when the thread ends, for whatever reason, clients see that.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno as HomeErrno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, socket_with,
};
use rustix::process::{geteuid, setpriority_process};
use rustix::thread::gettid;
use weir_engine::PAGE_BYTES;
use weir_lane::region::Region;
use weir_lane::server::Life;
use weir_lane::wire::Welcome;

use crate::file_system::FileSystem;
use crate::lane::clients::{CLIENTS_MAX, Client};
use crate::lane::opens::ClientId;
use crate::lane::{Lane, random};

/// How often the rings of a client that posts are scanned.
const INTERVAL: Duration = Duration::from_millis(1);
/// Busy poll: how long the thread polls after a scan found something, without sleeping. A program that fills its ring would
/// otherwise wake the thread again and again; across CPUs one wake-up costs both sides more than many writes.
const BUSY_POLL: Duration = Duration::from_micros(60);
/// Pause between the scans of a busy poll: with constant scans, a ring's tail would never stay in the poster's cache.
const BUSY_POLL_PAUSE: Duration = Duration::from_micros(15);
/// The thread's nice value (setpriority(2), for a thread).
const PRIORITY: i32 = -10;
/// How often all rings are scanned.
const INTERVAL_ALL: Duration = Duration::from_secs(1);
/// After this time without a post, a client must wake the thread.
const QUIET: Duration = Duration::from_millis(50);

/// The fixed parts of all clients' regions ([`Region::fixed_bytes`]) may take one part in this many of the memory for
/// frames, in addition to it. This bounds the number of clients.
const FIXED_SHARE: usize = 8;
/// This many refused connections within [`REFUSALS_IN`] suspend accepting for the rest of that time. A peer's
/// user is known only after accept(2), and refusals must not take this thread's time.
const REFUSALS_MAX: u32 = 50;
const REFUSALS_IN: Duration = Duration::from_millis(100);

const STOP: u64 = 0;
const LISTEN: u64 = 1;
/// Clients' ids come after the two above.
const CLIENT: u64 = 2;

/// The thread, running.
#[derive(Debug)]
pub(crate) struct Server {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

impl Server {
    /// Starts the thread, if the mount has a lane.
    ///
    /// # Errors
    /// The socket could not be made, or the thread not started.
    pub(crate) fn start(fs: &Arc<FileSystem>) -> io::Result<Option<Server>> {
        let Some(lane) = &fs.lane else { return Ok(None) };
        let socket = listen_at(&lane.socket)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&epoll, stop.as_fd(), STOP)?;
        watch(&epoll, socket.as_fd(), LISTEN)?;
        let refusals = Refusals { count: 0, since: Instant::now(), suspended: false };
        let (fs, busy) = (Arc::clone(fs), HashMap::new());
        let serving = Serving { fs, epoll, socket, refusals, busy };
        let thread = Builder::new().name("weir-lane".to_owned()).spawn(move || serving.run())?;
        Ok(Some(Server { stop, thread }))
    }

    /// Ends the thread; what was posted is applied.
    pub(crate) fn stop(self) {
        let written = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(written.is_ok());
        if self.thread.join().is_err() {
            tracing::error!("the lane's thread panicked");
        }
    }
}

/// Yields the CPU to other threads, for at least `time`.
fn yield_cpu(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Maximum number of clients, for a board of `frames` frames.
fn clients_max(frames: u32) -> usize {
    let bytes = frames as usize * PAGE_BYTES / FIXED_SHARE;
    (bytes / Region::fixed_bytes(frames)).min(CLIENTS_MAX)
}

fn listen_at(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, 128)?;
    Ok(socket)
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(data), EventFlags::IN)?)
}

struct Serving {
    fs: Arc<FileSystem>,
    epoll: OwnedFd,
    socket: OwnedFd,
    refusals: Refusals,
    /// Clients that posted lately, and when they will count as quiet.
    busy: HashMap<ClientId, Instant>,
}

/// Counts recently refused connections.
struct Refusals {
    count: u32,
    since: Instant,
    /// Accepting is suspended.
    suspended: bool,
}

impl Refusals {
    /// Counts a refusal at `now`. Returns whether to suspend accepting until [`Refusals::resumes_at`].
    fn add(&mut self, now: Instant) -> bool {
        if now >= self.resumes_at() {
            (self.count, self.since) = (0, now);
        }
        self.count += 1;
        self.count >= REFUSALS_MAX
    }

    fn resumes_at(&self) -> Instant {
        self.since + REFUSALS_IN
    }
}

impl Serving {
    fn run(mut self) {
        let fs = Arc::clone(&self.fs);
        let Some(lane) = &fs.lane else { return };
        let life = Life::hold(Arc::clone(&lane.board));
        if let Err(error) = &life {
            tracing::error!("programs cannot use the lane: {error}");
        }
        // Programs that post wait when this thread does not run. An ordinary user may not raise the priority.
        let _ = setpriority_process(Some(gettid()), PRIORITY);
        let mut events = Vec::with_capacity(64);
        let mut scanned_all = Instant::now();
        let mut polls_until = None;
        loop {
            if polls_until.is_some() {
                yield_cpu(BUSY_POLL_PAUSE);
            }
            let now = Instant::now();
            if self.refusals.suspended && now >= self.refusals.resumes_at() {
                self.set_suspended(false);
            }
            let interval = match polls_until {
                Some(_) => Duration::ZERO,
                None if self.refusals.suspended && self.busy.is_empty() => {
                    self.refusals.resumes_at().saturating_duration_since(now).max(INTERVAL)
                }
                None if self.busy.is_empty() => INTERVAL_ALL,
                None => INTERVAL,
            };
            let interval =
                Timespec { tv_sec: interval.as_secs() as _, tv_nsec: interval.subsec_nanos() as _ };
            let timeout = (self.refusals.suspended || lane.clients.len() > 0).then_some(&interval);
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) | Err(HomeErrno::INTR) => {}
                Err(error) => {
                    tracing::error!("the lane's thread cannot wait: {error}");
                    break;
                }
            }
            let mut stopped = false;
            for event in &events {
                match event.data.u64() {
                    STOP => stopped = true,
                    LISTEN => self.accept(lane),
                    client => self.heard((client - CLIENT) as ClientId),
                }
            }
            if stopped {
                break;
            }
            if scanned_all.elapsed() >= INTERVAL_ALL {
                scanned_all = Instant::now();
                for client in lane.clients.all() {
                    self.busy.entry(client.id).or_insert(scanned_all);
                }
            }
            let found = self.scan_busy();
            // Marks are read even if nothing is posted.
            lane.bound_resident();
            let now = Instant::now();
            polls_until = match polls_until {
                _ if found => Some(now + BUSY_POLL),
                until => until.filter(|until| now < *until),
            };
        }
        let clients = lane.clients.all();
        for client in &clients {
            self.gone(client.id);
        }
        // Closes may wait behind a stuck write; they must finish before the files are closed.
        let (sender, receiver) = mpsc::channel::<()>();
        for client in &clients {
            let sender = sender.clone();
            fs.drained(client, move || drop(sender));
        }
        drop(sender);
        // Nothing is ever sent: this returns when all senders are dropped.
        let _ = receiver.recv();
        drop(life);
    }

    /// Accepts connections of users that may use the lane.
    fn accept(&mut self, lane: &Lane) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match accept_with(&self.socket, flags) {
                Ok(socket) => socket,
                Err(HomeErrno::MFILE | HomeErrno::NFILE | HomeErrno::NOMEM) => {
                    // The connection stays in the backlog, and epoll would report it again at once.
                    self.refusals.since = Instant::now();
                    return self.set_suspended(true);
                }
                Err(HomeErrno::INTR | HomeErrno::CONNABORTED) => continue,
                Err(_) => return,
            };
            let peer = socket_peercred(&socket);
            let uid = peer.map(|peer| peer.uid.as_raw()).ok().filter(|uid| lane.is_for(*uid));
            let owner = geteuid().as_raw();
            let most = clients_max(lane.board.frames());
            let Some(uid) = uid.filter(|&uid| lane.clients.have_room_for(uid, owner, most)) else {
                lane.refuse();
                if self.refusals.add(Instant::now()) {
                    return self.set_suspended(true);
                }
                continue;
            };
            if let Err(error) = self.welcome(lane, socket, uid) {
                tracing::warn!("a program was not let into the lane: {error}");
                lane.refuse();
            }
        }
    }

    /// Suspends accepting connections, or resumes it.
    fn set_suspended(&mut self, suspended: bool) {
        let flags = if suspended { EventFlags::empty() } else { EventFlags::IN };
        match epoll::modify(&self.epoll, &self.socket, EventData::new_u64(LISTEN), flags) {
            Ok(()) => self.refusals.suspended = suspended,
            Err(error) => tracing::error!("cannot watch the lane's socket: {error}"),
        }
    }

    fn welcome(&mut self, lane: &Lane, socket: OwnedFd, uid: u32) -> io::Result<()> {
        let frames = lane.board.frames();
        let (mut region, region_fd) = Region::create(frames)?;
        region.count_in(lane.board.resident());
        let (id, token) = (lane.clients.next_id(), random()?);
        let message = Welcome { client: id, token, frames, proof: lane.proof }.encode();
        let descriptors = [lane.board_fd.as_fd(), lane.frames_fd.as_fd(), region_fd.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let region = Arc::new(region);
        watch(&self.epoll, socket.as_fd(), CLIENT + u64::from(id))?;
        // Added before the client learns its number.
        let client = Arc::new(Client::new(id, uid, token, socket, Arc::clone(&region)));
        if !lane.clients.add(Arc::clone(&client)) {
            return Err(io::Error::other("too many programs use the lane"));
        }
        lane.board.add_client(region);
        let slices = [io::IoSlice::new(&message)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let Err(error) = sendmsg(&client.socket, &slices, &mut control, flags) {
            self.gone(id);
            return Err(error.into());
        }
        Ok(())
    }

    /// A client woke the thread, or has closed its socket.
    fn heard(&mut self, id: ClientId) {
        let Some(lane) = &self.fs.lane else { return };
        let Some(client) = lane.clients.get(id) else { return };
        let mut bytes = [0u8; 16];
        for _ in 0..64 {
            match recv(&client.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.gone(id),
                Ok(_) => {
                    client.inbox().inbox.start_polling();
                    self.busy.insert(id, Instant::now() + QUIET);
                }
                Err(HomeErrno::AGAIN) => return,
                Err(HomeErrno::INTR) => {}
                Err(_) => return self.gone(id),
            }
        }
    }

    /// Applies what busy clients posted. Returns whether any had posted.
    fn scan_busy(&mut self) -> bool {
        let Some(lane) = &self.fs.lane else { return false };
        let fs = &self.fs;
        let mut found = false;
        let now = Instant::now();
        self.busy.retain(|&id, quiet_from| {
            let Some(client) = lane.clients.get(id) else { return false };
            if client.inbox().closed {
                return false;
            }
            if client.inbox().inbox.has_posted() {
                *quiet_from = now + QUIET;
                if fs.drain(&client) {
                    // Scanned again at once: a client that fills its ring meanwhile need not wake the thread.
                    found = true;
                    return true;
                }
            }
            let drain = client.inbox();
            if now >= *quiet_from && drain.inbox.stop_polling() {
                return false;
            }
            drain.inbox.start_polling();
            true
        });
        found
    }

    /// A client has ended: applies all it posted, and revokes its leases.
    fn gone(&mut self, id: ClientId) {
        let Some(lane) = &self.fs.lane else { return };
        self.busy.remove(&id);
        let Some(client) = lane.clients.get(id) else { return };
        if let Err(error) = epoll::delete(&self.epoll, client.socket.as_fd()) {
            tracing::debug!("a client's socket was not watched: {error}");
        }
        self.fs.client_gone(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_is_suspended_after_many_refusals() {
        let start = Instant::now();
        let mut refusals = Refusals { count: 0, since: start, suspended: false };
        for _ in 1..REFUSALS_MAX {
            assert!(!refusals.add(start));
        }
        assert!(refusals.add(start));
        assert!(!refusals.add(refusals.resumes_at()), "the count starts anew");
        let now = refusals.resumes_at() + REFUSALS_IN;
        for second in 0..1000 {
            assert!(!refusals.add(now + second * REFUSALS_IN), "occasional refusals are allowed");
        }
    }

    #[test]
    fn clients_take_a_share_of_the_memory() {
        for mebibytes in [32_usize, 128, 512, 4096] {
            let frames = ((mebibytes << 20) / PAGE_BYTES) as u32;
            let clients = clients_max(frames);
            assert!(clients >= 64, "{clients} with {mebibytes} MiB");
            assert!(clients * Region::fixed_bytes(frames) <= mebibytes << 17);
        }
    }
}
