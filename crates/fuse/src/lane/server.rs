//! The lane's thread: lets clients in, notices when they are gone, and takes out what nobody else has taken out.
//!
//! While a client posts, its rings are looked at every millisecond, and again soon after something was found; after
//! some quiet it is told that the daemon sleeps, and then wakes it by a byte over its socket. All rings are looked at
//! every second, for a process may be killed between deciding to wake us and doing so.
//!
//! The thread holds the daemon's life on the board ([`Life`]): when it ends, however it ends, clients see that.

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

/// How often the rings of a client that posts are looked at.
const INTERVAL: Duration = Duration::from_millis(1);
/// For how long after something was found the thread stays on its CPU, and how long it leaves the rings alone
/// meanwhile. A program that fills its ring would have to wake it again and again: across CPUs that costs both of them
/// more than many writes do. Looked at all the time, a ring's tail would never stay in the cache of who posts.
const LINGER: Duration = Duration::from_micros(60);
const BETWEEN_LOOKS: Duration = Duration::from_micros(15);
/// The thread's nice value (setpriority(2), for a thread).
const PRIORITY: i32 = -10;
/// How often all rings are looked at.
const INTERVAL_ALL: Duration = Duration::from_secs(1);
/// After so long without a post the client has to wake us.
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
        let door = Door { refused: 0, since: Instant::now(), shut: false };
        let (fs, busy) = (Arc::clone(fs), HashMap::new());
        let serving = Serving { fs, epoll, socket, door, busy };
        let thread = Builder::new().name("weir-lane".to_owned()).spawn(move || serving.run())?;
        Ok(Some(Server { stop, thread }))
    }

    /// Ends the thread; what was posted is applied.
    pub(crate) fn stop(self) {
        let told = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(told.is_ok());
        if self.thread.join().is_err() {
            tracing::error!("the lane's thread panicked");
        }
    }
}

/// Lets whoever wants this CPU have it, for so long at least.
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
    door: Door,
    /// Clients that posted lately, and when they are taken for quiet.
    busy: HashMap<ClientId, Instant>,
}

/// Counts recently refused connections.
struct Door {
    refused: u32,
    since: Instant,
    shut: bool,
}

impl Door {
    /// Counts a refusal at `now`. Returns whether to suspend accepting until [`Door::opens_at`].
    fn refuse(&mut self, now: Instant) -> bool {
        if now >= self.opens_at() {
            (self.refused, self.since) = (0, now);
        }
        self.refused += 1;
        self.refused >= REFUSALS_MAX
    }

    fn opens_at(&self) -> Instant {
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
        // Who posts runs beside it, and is held up when it does not run. An ordinary user may not ask for that.
        let _ = setpriority_process(Some(gettid()), PRIORITY);
        let mut events = Vec::with_capacity(64);
        let mut looked_at_all = Instant::now();
        let mut lingers_until = None;
        loop {
            if lingers_until.is_some() {
                yield_cpu(BETWEEN_LOOKS);
            }
            let now = Instant::now();
            if self.door.shut && now >= self.door.opens_at() {
                self.set_door(false);
            }
            let interval = match lingers_until {
                Some(_) => Duration::ZERO,
                None if self.door.shut && self.busy.is_empty() => {
                    self.door.opens_at().saturating_duration_since(now).max(INTERVAL)
                }
                None if self.busy.is_empty() => INTERVAL_ALL,
                None => INTERVAL,
            };
            let interval =
                Timespec { tv_sec: interval.as_secs() as _, tv_nsec: interval.subsec_nanos() as _ };
            let timeout = (self.door.shut || lane.clients.len() > 0).then_some(&interval);
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
            if looked_at_all.elapsed() >= INTERVAL_ALL {
                looked_at_all = Instant::now();
                for client in lane.clients.all() {
                    self.busy.entry(client.id).or_insert(looked_at_all);
                }
            }
            let found = self.look();
            // Marks are read even if nothing is posted.
            lane.bound_resident();
            let now = Instant::now();
            lingers_until = match lingers_until {
                _ if found => Some(now + LINGER),
                until => until.filter(|until| now < *until),
            };
        }
        let clients = lane.clients.all();
        for client in &clients {
            self.gone(client.id);
        }
        // What is stuck has closes waiting behind it; all that must be over before the files are closed.
        let (sender, receiver) = mpsc::channel::<()>();
        for client in &clients {
            let sender = sender.clone();
            fs.drained(client, move || drop(sender));
        }
        drop(sender);
        // Nothing is ever sent: it ends when all are gone.
        let _ = receiver.recv();
        drop(life);
    }

    /// Lets in whom the lane is for.
    fn accept(&mut self, lane: &Lane) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match accept_with(&self.socket, flags) {
                Ok(socket) => socket,
                Err(HomeErrno::MFILE | HomeErrno::NFILE | HomeErrno::NOMEM) => {
                    // It stays at the door, and would have us look again at once.
                    self.door.since = Instant::now();
                    return self.set_door(true);
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
                if self.door.refuse(Instant::now()) {
                    return self.set_door(true);
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
    fn set_door(&mut self, shut: bool) {
        let flags = if shut { EventFlags::empty() } else { EventFlags::IN };
        match epoll::modify(&self.epoll, &self.socket, EventData::new_u64(LISTEN), flags) {
            Ok(()) => self.door.shut = shut,
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
        // Known before it is told who it is.
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

    /// A client woke us, or is gone.
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

    /// Applies what busy clients posted. Says whether there was anything.
    fn look(&mut self) -> bool {
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
                    // Looked at again at once: who fills his ring meanwhile need not wake us.
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

    /// A client is gone: applies all it posted, and takes back what it had.
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
        let mut door = Door { refused: 0, since: start, shut: false };
        for _ in 1..REFUSALS_MAX {
            assert!(!door.refuse(start));
        }
        assert!(door.refuse(start));
        assert!(!door.refuse(door.opens_at()), "the count starts anew");
        let now = door.opens_at() + REFUSALS_IN;
        for second in 0..1000 {
            assert!(!door.refuse(now + second * REFUSALS_IN), "occasional refusals are allowed");
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
