//! Clients of the lane that keep to nothing. They connect as a program under `weir run` does; what they do then must
//! harm nobody else.

#![allow(unsafe_code)] // It writes memory that it shares.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use memmap2::MmapOptions;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use weir_lane::board::View;
use weir_lane::client::{Attached, Client, Miss, To};
use weir_lane::region::Region;
use weir_lane::wire::{
    ATTACH, Attach, Attachment, FIND, Found, LEAVE, Leave, Message, WELCOME_BYTES, Welcome,
};

use crate::content::Random;
use crate::error::{Doing, Error, Result};

/// How long the daemon may take to say welcome.
const WELCOME_TIME: Duration = Duration::from_secs(2);
/// Sockets opened at once.
const SOCKETS: usize = 2000;
/// Of the user nobody.
const NOBODY: u32 = 65534;
/// Bytes of a write that is posted and never announced.
const POSTED_BYTES: usize = 500;
/// Of the file that is written so: more than a ring holds.
const FILE_BYTES: usize = 2 << 20;

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Writes garbage all over the memory it may write, and connects again when it is cut off.
    Garbage,
    /// Posts writes, wakes nobody, and sleeps: they must be seen all the same.
    Silent,
    /// Opens as many connections as it gets.
    Sockets,
    /// Connects as another user, and must be turned away.
    Uid,
    /// Connects and goes at once, sends messages of any length, and asks for what it has no right to.
    Chatter,
    /// Tries to write what it may only read, and to change sizes.
    Forbidden,
}

#[derive(clap::Args)]
pub struct Arguments {
    /// What it does.
    #[arg(value_enum)]
    kind: Kind,
    /// A file of the mount, which is its own.
    file: PathBuf,
    /// For how long.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// What it draws follows from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&self.file).doing("open", &self.file)?;
        let mut adversary = Adversary {
            file,
            path: self.file,
            random: Random::new(self.seed),
            until: Instant::now() + Duration::from_secs_f64(self.seconds),
            done: 0,
        };
        match self.kind {
            Kind::Garbage => adversary.garbage(),
            Kind::Silent => adversary.silent(),
            Kind::Sockets => adversary.sockets(),
            Kind::Uid => adversary.uid(),
            Kind::Chatter => adversary.chatter(),
            Kind::Forbidden => adversary.forbidden(),
        }?;
        println!("{}", adversary.done);
        Ok(())
    }
}

/// A connection as the daemon made it.
struct Connection {
    socket: OwnedFd,
    welcome: Welcome,
    board: OwnedFd,
    frames: OwnedFd,
    region: OwnedFd,
}

struct Adversary {
    file: File,
    path: PathBuf,
    random: Random,
    until: Instant,
    /// Of whatever it does.
    done: u64,
}

impl Adversary {
    fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    fn ioctl(&self, command: u32, message: &mut Message) -> io::Result<()> {
        // SAFETY: the command says how long the message is, and it is that long.
        let done =
            unsafe { libc::ioctl(self.file.as_raw_fd(), command.into(), message.as_mut_ptr()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn find(&self) -> io::Result<Found> {
        let mut message = [0; 64];
        self.ioctl(FIND, &mut message)?;
        Found::decode(&message).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn dial(found: &Found) -> io::Result<OwnedFd> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(found.socket.as_bytes())?)?;
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(WELCOME_TIME),
        )?;
        Ok(socket)
    }

    fn connect(&self) -> io::Result<Connection> {
        Adversary::connect_to(&self.find()?)
    }

    fn connect_to(found: &Found) -> io::Result<Connection> {
        let socket = Adversary::dial(found)?;
        let mut message = [0; WELCOME_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut vectors = [io::IoSliceMut::new(&mut message)];
        let received = recvmsg(&socket, &mut vectors, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let descriptors: Vec<OwnedFd> = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        let welcome = Welcome::decode(&message).filter(|_| received.bytes == WELCOME_BYTES);
        let welcome = welcome.ok_or(io::ErrorKind::ConnectionRefused)?;
        let [board, frames, region] = <[OwnedFd; 3]>::try_from(descriptors)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Connection { socket, welcome, board, frames, region })
    }

    fn attach(&self, welcome: Welcome) -> io::Result<Attachment> {
        let mut message =
            Attach { client: welcome.client, token: welcome.token, process: 1, keeps_order: false }
                .encode();
        self.ioctl(ATTACH, &mut message)?;
        Attachment::decode(&message).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Once more, as long as there is time: the daemon need not let it in at any moment.
    fn connected(&self) -> Result<Option<Connection>> {
        let mut refused = None;
        while self.has_time() {
            match self.connect() {
                Ok(connection) => return Ok(Some(connection)),
                Err(error) => refused = Some(error),
            }
            thread::sleep(Duration::from_millis(5));
        }
        match refused {
            Some(error) if self.done == 0 => Err(error).doing("join the lane of", &self.path),
            _ => Ok(None),
        }
    }

    fn garbage(&mut self) -> Result<()> {
        while let Some(connection) = self.connected()? {
            // Before or after, or not at all.
            let attached = self.random.below(4) > 0 && self.attach(connection.welcome).is_ok();
            let memory = MmapOptions::new().map_raw(connection.region.as_raw_fd());
            let memory = memory.doing("map the region of", &self.path)?;
            let words = (memory.len() / 8) as u64;
            for turn in 0..100_000u64 {
                // The heads are at the beginning; what rings hold is the rest.
                let bound = if self.random.below(3) > 0 { words.min(8192) } else { words };
                let value = match self.random.below(4) {
                    0 => self.random.next(),
                    1 => self.random.below(1 << 20),
                    2 => self.random.below(64),
                    _ => self.random.below(1 << 20) * 32,
                };
                let word = self.random.below(bound) as usize;
                // SAFETY: inside the mapping, which begins at a page, and so aligned.
                unsafe { memory.as_mut_ptr().cast::<u64>().add(word).write_volatile(value) };
                self.done += 1;
                if turn % 256 == 0 {
                    let sent =
                        send(&connection.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                    // By the kernel's way too, to a file in whatever state.
                    if attached && turn % 4096 == 0 {
                        let _ = self.file.write_at(b"garbage", self.random.below(1 << 16));
                    }
                    let cut_off = sent.is_err_and(|error| error != rustix::io::Errno::AGAIN);
                    if cut_off || !self.has_time() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Posts byte 0x55 to the start of its file, as far as it gets, and says how far that is.
    fn silent(&mut self) -> Result<()> {
        // There by the kernel's way, so that home has room for what is posted.
        self.file.write_all_at(&vec![0x33; FILE_BYTES], 0).doing("write", &self.path)?;
        let connection = self.connected()?.ok_or_else(|| self.late())?;
        let attachment = self.attach(connection.welcome).doing("attach", &self.path)?;
        let mapped = View::map(&connection.board, &connection.frames).and_then(|view| {
            let region = Region::map(connection.region.as_fd(), connection.welcome.frames)?;
            Ok(Client { id: connection.welcome.client, view, region })
        });
        let client = mapped.doing("map the lane of", &self.path)?;
        let file = Attached { slot: attachment.slot, description: attachment.description };
        let ring = client
            .take_ring(weir_lane::owner::Owner::here(std::process::id()), |_| true)
            .ok_or_else(|| self.late())?;
        let bytes = [0x55; POSTED_BYTES];
        let mut offset = 0;
        loop {
            // SAFETY: the bytes are there, and the ring is used by this thread alone.
            let posted = unsafe {
                client.post(&ring, file, To::Offset(offset), bytes.as_ptr(), bytes.len())
            };
            match posted {
                Ok(_) => offset += bytes.len() as u64,
                Err(Miss::Mode) if offset == 0 && self.has_time() => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(_) => break,
            }
        }
        println!("posted {offset}");
        while self.has_time() {
            thread::sleep(Duration::from_millis(20));
        }
        self.done = offset;
        Ok(())
    }

    fn late(&self) -> Error {
        Error::Missing {
            what: format!("{} is not to be had by the lane", self.path.display()),
            remedy: "mount it with a lane".into(),
        }
    }

    fn sockets(&mut self) -> Result<()> {
        let limit = rustix::process::Rlimit { current: Some(8192), maximum: Some(8192) };
        // Only root may raise it; with less it opens less.
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
        let found = self.find().doing("find the lane of", &self.path)?;
        let mut held = Vec::new();
        while self.has_time() {
            if held.len() < SOCKETS
                && let Ok(socket) = Adversary::dial(&found)
            {
                held.push(socket);
                self.done += 1;
            } else {
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    fn uid(&mut self) -> Result<()> {
        let found = self.find().doing("find the lane of", &self.path)?;
        // SAFETY: a system call on this thread, the only one, with numbers.
        let changed = unsafe { libc::setuid(NOBODY) };
        if changed != 0 {
            return Err(io::Error::last_os_error()).doing("become another user for", &self.path);
        }
        match Adversary::connect_to(&found) {
            Err(_) => Ok(()),
            Ok(_) => Err(Error::Different("another user was let into the lane".into())),
        }
    }

    fn chatter(&mut self) -> Result<()> {
        let noise = vec![7; 70_000];
        let found = self.find().doing("find the lane of", &self.path)?;
        while self.has_time() {
            let Ok(socket) = Adversary::dial(&found) else { continue };
            for _ in 0..self.random.below(20) {
                let len = 1 + self.random.below(noise.len() as u64) as usize;
                let _ = send(&socket, &noise[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            // Somebody else's number, or nobody's, and a token that was never given.
            let client = self.random.below(40) as u32;
            let token = self.random.next();
            let mut message = Attach { client, token, process: 1, keeps_order: false }.encode();
            if self.ioctl(ATTACH, &mut message).is_ok() {
                return Err(Error::Different("a token that was made up is accepted".into()));
            }
            let mut message = [0; 64];
            self.random.fill(&mut message);
            let command = [ATTACH, FIND, LEAVE][self.random.below(3) as usize];
            if command == LEAVE && self.random.below(2) == 0 {
                message = Leave { process: self.random.below(3) as u32 }.encode();
            }
            let _ = self.ioctl(command, &mut message);
            self.done += 1;
        }
        Ok(())
    }

    fn forbidden(&mut self) -> Result<()> {
        let connection = self.connected()?.ok_or_else(|| self.late())?;
        let refuse = |what: &str| Err(Error::Different(format!("a client can {what}")));
        for (fd, name) in [(&connection.board, "board"), (&connection.frames, "frames")] {
            if MmapOptions::new().map_raw(fd.as_raw_fd()).is_ok() {
                return refuse(&format!("map the {name} to write"));
            }
            // SAFETY: nothing is read by it.
            let readable = unsafe { MmapOptions::new().map(fd.as_raw_fd()) };
            if readable.doing("map", Path::new(name))?.make_mut().is_ok() {
                return refuse(&format!("make the {name} writable"));
            }
            let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let opened = OpenOptions::new().read(true).write(true).open(&again);
            if opened.and_then(|file| MmapOptions::new().map_raw(&file)).is_ok() {
                return refuse(&format!("open the {name} again to write"));
            }
            if rustix::io::write(fd, b"x").is_ok() {
                return refuse(&format!("write the {name}"));
            }
        }
        for fd in [&connection.board, &connection.frames, &connection.region] {
            let len = rustix::fs::fstat(fd)
                .map_err(io::Error::from)
                .doing("look at", &self.path)?
                .st_size as u64;
            if rustix::fs::ftruncate(fd, 4096).is_ok()
                || rustix::fs::ftruncate(fd, len + 4096).is_ok()
            {
                return refuse("change the size of what is shared");
            }
        }
        self.done = 1;
        Ok(())
    }
}
