//! Whether a stopped call can be noticed outside the session, from what its descriptors, paths and targets are.
//!
//! Owns: which pipes only members hold, and what was open when the session began; `tcp` has the connections. Does not own: which mounts have promises
//! that are not durable; the caller says so.
//!
//! Invariant: in doubt a call is outside. An error while it is judged is a doubt.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use weir_lane::aio::{self, Request};

use crate::call::{self, Call};
use crate::kill::descendants;
use crate::listener::{Listener, Stopped};
use crate::memory::members_serve;
use crate::task::{
    Device, NOBODY_READS, Peer, Place, Synced, Task, lives, may_be_connected, option, peer,
};
use crate::tcp::{Connections, OtherEnd, has_socket};

/// More pipes than this are not remembered; the earlier ones are then taken to be outside.
const PIPES_MAX: usize = 1 << 20;
/// Sockets that are remembered to lead outside.
const OUTSIDE_MAX: usize = 1 << 12;
/// Processes between a member and the root of its tree, at most.
const ANCESTORS_MAX: usize = 4096;
/// The devices fuse and cuse (linux/devices.txt). A process that has one open may serve a file system.
const SERVES: [Device; 2] = [(10, 229), (10, 203)];
/// Descriptors without a file whose use only those see who have the descriptor, as proc_pid_fd(5) names them. Others are seen by more, for example
/// an answer to fanotify(7).
const HARMLESS: [&str; 6] = [
    "anon_inode:[eventfd]",
    "anon_inode:[eventpoll]",
    "anon_inode:[timerfd]",
    "anon_inode:[signalfd]",
    "anon_inode:inotify",
    "anon_inode:[pidfd]",
];
/// Most requests of one io_submit(2) that are looked at.
const REQUESTS_MAX: u64 = 1024;
/// Offset of `msg_controllen` in `struct msghdr`.
const CONTROL_BYTES: u64 = 40;

/// Knows what is inside the session.
pub(crate) struct Judge {
    trees: Vec<Tree>,
    /// What the root of a tree has inherited and closed again; that of another tree may have it still, and maybe only the other end of a pipe.
    let_go: HashSet<(Device, u64)>,
    /// Pipes that members made, and that were not passed on.
    pipes: HashSet<(Device, u64)>,
    /// Sockets that lead outside, and always will: somebody outside is at the other end. A number that is used again is taken to be outside,
    /// too.
    outside: RefCell<HashSet<(Device, u64)>>,
    connections: RefCell<Connections>,
    /// Those of the session's mounts, each with a descriptor of the process.
    daemons: Vec<(u32, OwnedFd)>,
    /// A descriptor may be in the hands of a member and of somebody outside: it was sent, received, taken or inherited. Then no pipe, no socket and
    /// no descriptor without a file is inside any more.
    has_shared_descriptors: bool,
}

/// A program of the session, and all that comes from it.
struct Tree {
    /// The parent of the program, which is the reaper of orphans in the tree.
    root: u32,
    /// By it is known that the number is still this process's. `None`: it is this process.
    living: Option<OwnedFd>,
    /// What the program got from outside at its beginning. The root keeps it open: nobody notices that a member closes it.
    inherited: HashMap<(Device, u64), Vec<i32>>,
}

impl Judge {
    /// Of the session that this process is about to begin.
    pub(crate) fn new() -> io::Result<Judge> {
        let mut judge = Judge {
            trees: Vec::new(),
            let_go: HashSet::new(),
            pipes: HashSet::new(),
            outside: RefCell::new(HashSet::new()),
            connections: Connections::new().into(),
            daemons: Vec::new(),
            has_shared_descriptors: false,
        };
        judge.add(std::process::id(), None)?;
        Ok(judge)
    }

    /// Adds the tree of a process that is about to start a program; it must wait for this.
    pub(crate) fn add(&mut self, root: u32, living: Option<OwnedFd>) -> io::Result<()> {
        let task = Task(root);
        let inherited = task.descriptors(0, u32::MAX)?;
        // What was mounted by it already no call will tell.
        if inherited.iter().any(|(_, place)| serves(place)) {
            members_serve();
        }
        // Those of the process itself are closed on execve(2).
        let is_anonymous = |(fd, place): &(i32, Place)| {
            place.kind == FileType::Unknown && !task.closes_on_exec(*fd).unwrap_or(false)
        };
        let sockets = inherited.iter().filter(|(_, place)| place.kind == FileType::Socket);
        self.connections.get_mut().inherit(sockets.map(|(_, place)| place.inode));
        // An epoll that somebody outside has tells of the pipes and sockets in it.
        let is_told_of = inherited.iter().any(is_anonymous);
        // Somebody outside may use a socket that has no other end yet when it has got one.
        let is_shared = |(fd, place): &(i32, Place)| {
            place.kind == FileType::Socket
                && !task.closes_on_exec(*fd).unwrap_or(false)
                && task.socket(*fd).map_or(true, |socket| may_be_connected(socket.as_fd()))
        };
        if is_told_of || inherited.iter().any(is_shared) {
            self.trust_no_descriptor();
        }
        let mut kept = HashMap::<_, Vec<i32>>::new();
        for (fd, place) in inherited {
            kept.entry((place.device, place.inode)).or_default().push(fd);
        }
        self.trees.push(Tree { root, living, inherited: kept });
        Ok(())
    }

    /// The root of a tree closes what it inherited.
    pub(crate) fn forget_inherited(&mut self, root: u32) {
        for tree in self.trees.iter_mut().filter(|tree| tree.root == root) {
            self.let_go.extend(tree.inherited.drain().map(|(number, _)| number));
        }
    }

    /// The root of a tree has ended, or is about to.
    pub(crate) fn remove(&mut self, root: u32) {
        self.forget_inherited(root);
        self.trees.retain(|tree| tree.root != root);
    }

    /// The daemon at the other end of this socket serves a mount of the session: that a member closes its connection to the lane tells it nothing.
    pub(crate) fn note_daemon(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.daemons.retain(|(_, process)| lives(process));
        if let Peer::Process(daemon) = peer(socket)
            && !self.daemons.iter().any(|(known, _)| *known == daemon)
        {
            self.daemons.push((daemon, Task(daemon).pidfd()?));
        }
        Ok(())
    }

    fn is_to_daemon(&self, task: Task, fd: i32, place: Place) -> io::Result<bool> {
        if self.daemons.is_empty() || place.kind != FileType::Socket {
            return Ok(false);
        }
        let Peer::Process(process) = peer(task.socket(fd)?.as_fd()) else { return Ok(false) };
        let mut daemons = self.daemons.iter();
        Ok(daemons.any(|(daemon, living)| *daemon == process && lives(living)))
    }

    fn is_inherited(&self, number: (Device, u64)) -> bool {
        self.trees.iter().any(|tree| tree.inherited.contains_key(&number))
    }

    /// Whether the root of a tree has the description of a descriptor open, too.
    fn shares_description_with_root(&self, task: Task, fd: i32, number: (Device, u64)) -> bool {
        self.trees.iter().any(|tree| {
            let mut kept = tree.inherited.get(&number).into_iter().flatten();
            kept.any(|own| task.shares_description(fd, Task(tree.root), *own))
        })
    }

    fn is_root(&self, process: u32) -> bool {
        let tree = self.trees.iter().find(|tree| tree.root == process);
        tree.is_some_and(|tree| tree.living.as_ref().is_none_or(lives))
    }

    /// Notes descriptors that the call may pass to a process outside or get from there, or for which it may have signals sent there. To be
    /// called for every call. Says whether fewer descriptors are trusted from now on.
    #[must_use]
    pub(crate) fn note(&mut self, stopped: &Stopped) -> bool {
        let before = self.trust();
        self.look_at(stopped);
        self.trust() != before
    }

    fn trust(&mut self) -> [bool; 2] {
        let some = self.connections.get_mut().trusts_some();
        [self.has_shared_descriptors, some]
    }

    fn look_at(&mut self, stopped: &Stopped) {
        let task = Task(stopped.thread);
        match stopped.call {
            Call::Mounts => members_serve(),
            // What a call of another architecture passes on is not looked into.
            Call::Owner | Call::Foreign { .. } => self.trust_no_descriptor(),
            // Somebody outside may have the socket, too, and accept the next connection.
            Call::Listens { fd } if !self.is_own_socket(task, fd) => self.trust_no_descriptor(),
            Call::Takes => self.trust_no_descriptor(),
            Call::Message { fd, header }
                if !self.has_shared_descriptors
                    && may_have_descriptors(task, header)
                    && !self.is_inside(task, fd, &[]).unwrap_or(false) =>
            {
                self.trust_no_descriptor();
            }
            Call::Receives { fd, header }
                if !self.has_shared_descriptors
                    && may_have_descriptors(task, header)
                    && !self.brings_nothing(task, fd).unwrap_or(false) =>
            {
                self.trust_no_descriptor();
            }
            _ => {}
        }
    }

    /// Whether a call takes a socket's other end away, so that it may get another one (connect(2), AF_UNSPEC).
    pub(crate) fn disconnects(&self, stopped: &Stopped) -> bool {
        let Call::Connects { address, .. } = stopped.call else { return false };
        let mut family = [0; 2];
        Task(stopped.thread).read_memory(address, &mut family).is_err()
            || i32::from(u16::from_ne_bytes(family)) == libc::AF_UNSPEC
    }

    fn is_own_socket(&self, task: Task, fd: i32) -> bool {
        task.descriptor(fd).is_ok_and(|place| {
            let number = (place.device, place.inode);
            !self.is_inherited(number) && !self.let_go.contains(&number)
        })
    }

    /// Whether no descriptor from outside can come by a socket: members alone are at the other end, or it is of a kind that carries none.
    fn brings_nothing(&self, task: Task, fd: i32) -> io::Result<bool> {
        match task.descriptor(fd) {
            // The call will fail.
            Err(Errno::NOENT) => return Ok(true),
            Ok(place) if place.kind != FileType::Socket => return Ok(true),
            _ => {}
        }
        let socket = task.socket(fd)?;
        let family = option::<libc::c_int>(socket.as_fd(), libc::SO_DOMAIN);
        Ok(family.is_some_and(|family| family != libc::AF_UNIX) || self.is_inside(task, fd, &[])?)
    }

    fn trust_no_descriptor(&mut self) {
        // One that came may be a FUSE server's.
        members_serve();
        self.pipes.clear();
        self.connections.get_mut().trust_none();
        self.has_shared_descriptors = true;
    }

    /// Whether what is moved to a descriptor leaves, if its file is on no mount with promises.
    pub(crate) fn leads_outside(&self, stopped: &Stopped, into: i32) -> bool {
        !self.is_inside(Task(stopped.thread), into, &[]).unwrap_or(false)
    }

    /// Whether nobody outside can notice the call before the mounts of these devices are committed. `shows_locks`: somebody outside has a file of them
    /// open.
    pub(crate) fn stays_inside(
        &self,
        stopped: &Stopped,
        promised: &[Device],
        shows_locks: bool,
    ) -> bool {
        let task = Task(stopped.thread);
        let shows_locks = shows_locks || self.has_shared_descriptors;
        self.judge(task, stopped.call, promised, shows_locks).unwrap_or(false)
    }

    fn judge(
        &self,
        task: Task,
        call: Call,
        promised: &[Device],
        shows_locks: bool,
    ) -> io::Result<bool> {
        let inside = |fd| self.is_inside(task, fd, promised);
        Ok(match call {
            // Decided by the supervisor.
            Call::Sync { .. }
            | Call::SyncFileSystem { .. }
            | Call::WriteOut { .. }
            | Call::SyncAll => true,
            // Answered by the supervisor.
            Call::Pipe { .. } | Call::AsksForDoor { .. } | Call::AsksWhetherOutside { .. } => true,
            Call::Receives { .. } | Call::Takes => true,
            Call::Output { fd }
            | Call::Sends { fd }
            | Call::Message { fd, .. }
            | Call::Connects { fd, .. }
            | Call::Listens { fd } => inside(fd)?,
            // A directory is opened without the daemon's knowledge.
            Call::Locks { fd } => {
                !shows_locks && self.is_on(task, fd, promised, FileType::is_file)?
            }
            Call::Submits { count, list } => {
                for request in requests(task, count, list)? {
                    let told = request.tells.map_or(Ok(true), inside)?;
                    if !told || request.changes && !inside(request.fd)? {
                        return Ok(false);
                    }
                    if request.syncs
                        && !inside(request.fd)?
                        && task.sync_is_noticed(request.fd, Synced::File)?
                    {
                        return Ok(false);
                    }
                }
                true
            }
            Call::Control { fd } => {
                self.is_on(task, fd, promised, |kind| kind.is_file() || kind.is_dir())?
            }
            Call::Moves { from, into } => inside(from)? && inside(into)?,
            Call::Closes { first, last } => {
                self.closes_nothing_outside(task, first, last, promised, shows_locks)?
            }
            Call::Ends => self.closes_nothing_outside(task, 0, u32::MAX, promised, shows_locks)?,
            Call::Names { first, second } => {
                for path in [Some(first), second].into_iter().flatten() {
                    if !changes_inside(task, path, promised)? {
                        return Ok(false);
                    }
                }
                true
            }
            Call::Opens { path } => {
                changes_inside(task, path, promised)? || opens_what_nobody_reads(task, path)?
            }
            Call::Signal { process } => process > 0 && self.is_member(process as u32, task)?,
            Call::Mounts
            | Call::Binds
            | Call::Employs
            | Call::Owner
            | Call::Foreign { .. }
            | Call::Unknown { .. } => false,
        })
    }

    /// Whether what is written to a descriptor, or done to its file, stays inside.
    fn is_inside(&self, task: Task, fd: i32, promised: &[Device]) -> io::Result<bool> {
        let place = match task.descriptor(fd) {
            // The call will fail.
            Err(Errno::NOENT) => return Ok(true),
            place => place?,
        };
        Ok(match place.kind {
            FileType::RegularFile | FileType::Directory => is_only(promised, place.device),
            // An epoll that somebody outside has may tell of a pipe that was made later.
            FileType::Fifo => {
                !self.has_shared_descriptors && self.pipes.contains(&(place.device, place.inode))
            }
            FileType::Socket => {
                let number = (place.device, place.inode);
                !self.is_inherited(number)
                    && !self.outside.borrow().contains(&number)
                    && self.is_between_members(task, fd, number)?
            }
            FileType::CharacterDevice => NOBODY_READS.contains(&place.represents),
            // What has no type is no file: an eventfd, an epoll, a timerfd.
            FileType::Unknown => {
                !self.has_shared_descriptors && HARMLESS.contains(&task.link(fd)?.as_str())
            }
            _ => false,
        })
    }

    /// Whether a descriptor's file is of a kind, and on the mount with the promises.
    fn is_on(
        &self,
        task: Task,
        fd: i32,
        promised: &[Device],
        is_kind: impl Fn(FileType) -> bool,
    ) -> io::Result<bool> {
        let place = match task.descriptor(fd) {
            // The call will fail.
            Err(Errno::NOENT) => return Ok(true),
            place => place?,
        };
        Ok(is_kind(place.kind) && is_only(promised, place.device))
    }

    fn is_between_members(&self, task: Task, fd: i32, number: (Device, u64)) -> io::Result<bool> {
        if self.has_shared_descriptors {
            return Ok(false);
        }
        let socket = task.socket(fd)?;
        let is_outside = match peer(socket.as_fd()) {
            Peer::Process(process) if self.is_member(process, task)? => return Ok(true),
            Peer::OfConnection => {
                let mut connections = self.connections.borrow_mut();
                match connections.other_end(socket, number.1, |inode| self.is_held(inode, task)) {
                    OtherEnd::Inside => return Ok(true),
                    OtherEnd::Outside => true,
                    OtherEnd::Unknown => false,
                }
            }
            Peer::Process(_) | Peer::OfOtherKind => true,
            Peer::Unknown => false,
        };
        if is_outside {
            let mut outside = self.outside.borrow_mut();
            if outside.len() >= OUTSIDE_MAX {
                outside.clear();
            }
            outside.insert(number);
        }
        Ok(false)
    }

    fn was_between_members(&self, task: Task, fd: i32, place: Place) -> io::Result<bool> {
        Ok(place.kind == FileType::Socket
            && self.connections.borrow().has_ended(task.socket(fd)?.as_fd()))
    }

    /// Whether a member has a socket with this inode.
    fn is_held(&self, inode: u64, caller: Task) -> bool {
        // The number may be given to another process meanwhile, but not while this one lives.
        let has = |process: u32| -> io::Result<bool> {
            let living = Task(process).pidfd()?;
            Ok(self.is_member(process, caller)? && has_socket(process, inode)? && lives(&living))
        };
        let own = caller.process().into_iter();
        let roots = self.trees.iter().map(|tree| tree.root).collect::<Vec<_>>();
        let others = descendants(&roots).into_iter().map(|process| process.as_raw_pid() as u32);
        own.chain(others).any(|process| has(process).unwrap_or(false))
    }

    fn closes_nothing_outside(
        &self,
        task: Task,
        first: u32,
        last: u32,
        promised: &[Device],
        shows_locks: bool,
    ) -> io::Result<bool> {
        for (fd, place) in task.descriptors(first, last)? {
            let number = (place.device, place.inode);
            // The root of a tree has what was inherited open; a member may have opened the same FIFO or device again, but no socket. Not every kernel
            // has kcmp(2).
            let is_kept_open = self.is_inherited(number)
                && !self.let_go.contains(&number)
                && (place.kind == FileType::Socket
                    || self.shares_description_with_root(task, fd, number));
            let is_noticed = match place.kind {
                FileType::RegularFile if is_only(promised, place.device) => {
                    shows_locks && task.has_locks_on(number)?
                }
                FileType::RegularFile => {
                    let is_same = self.shares_description_with_root(task, fd, number);
                    task.closing_is_noticed(fd, is_same)?
                        || task.has_locks_on(number)?
                        || !is_same && task.end_is_noticed(fd, place)?
                }
                FileType::Directory if is_only(promised, place.device) => {
                    task.closing_is_noticed(fd, true)?
                }
                FileType::Directory => {
                    task.closing_is_noticed(fd, true)?
                        || task.has_locks_on(number)?
                        || task.end_is_noticed(fd, place)?
                }
                FileType::CharacterDevice if NOBODY_READS.contains(&place.represents) => {
                    task.closing_is_noticed(fd, true)?
                }
                _ => {
                    !is_kept_open
                        && !self.is_to_daemon(task, fd, place)?
                        && !self.is_inside(task, fd, promised)?
                        && !self.was_between_members(task, fd, place)?
                }
            };
            if is_noticed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a process is the caller's own, or a descendant of a root.
    fn is_member(&self, process: u32, caller: Task) -> io::Result<bool> {
        let mut at = Task(process).process()?;
        if at == caller.process()? {
            return Ok(true);
        }
        for _ in 0..ANCESTORS_MAX {
            match Task(at).parent()? {
                0 | 1 => return Ok(false),
                parent if self.is_root(parent) => return Ok(true),
                parent => at = parent,
            }
        }
        Ok(false)
    }

    /// Carries out pipe(2) for the caller, and remembers that the pipe is inside.
    pub(crate) fn make_pipe(
        &mut self,
        listener: &Listener,
        stopped: &Stopped,
        address: u64,
        flags: i32,
    ) {
        const KNOWN: i32 = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_DIRECT;
        if flags & !KNOWN != 0 {
            // Notification pipes are the kernel's; and it knows what is wrong with others.
            return listener.pass(stopped);
        }
        match self.pipe(listener, stopped, address, flags) {
            Ok(true) => listener.succeed(stopped),
            Ok(false) => listener.pass(stopped),
            Err(error) => listener.fail(stopped, error.raw_os_error().unwrap_or(libc::ENFILE)),
        }
    }

    /// False: the kernel is to do it.
    fn pipe(
        &mut self,
        listener: &Listener,
        stopped: &Stopped,
        address: u64,
        flags: i32,
    ) -> io::Result<bool> {
        let task = Task(stopped.thread);
        let flags_here = PipeFlags::from_bits_retain(flags as u32) | PipeFlags::CLOEXEC;
        // This process may have fewer descriptors than the caller.
        let Ok((reader, writer)) = rustix::pipe::pipe_with(flags_here) else { return Ok(false) };
        let Ok((user, group)) = task.user_and_group() else { return Ok(false) };
        if user != rustix::process::geteuid().as_raw()
            || group != rustix::process::getegid().as_raw()
        {
            // A program may open its pipe again by /dev/stdout, and is then asked for its permission.
            let given = rustix::fs::fchown(
                &reader,
                Some(rustix::fs::Uid::from_raw(user)),
                Some(rustix::fs::Gid::from_raw(group)),
            );
            if given.is_err() {
                return Ok(false);
            }
        }
        // An address that is not the caller's is found out before it has descriptors. A call that fails leaves what was there. If this process may not look
        // into the caller, or a file system would have to be asked for the page, the kernel makes the pipe.
        let mut before = [0; 8];
        let is_read = task.read_memory(address, &mut before).is_ok_and(|read| read == before.len());
        if !is_read || task.write_memory(address, &before).is_err() {
            return Ok(false);
        }
        let place = Place::of_descriptor(reader.as_fd())?;
        if self.pipes.len() >= PIPES_MAX {
            self.pipes.clear();
        }
        self.pipes.insert((place.device, place.inode));
        let add = |end: &OwnedFd| {
            listener.add_descriptor(stopped, end.as_fd(), flags & libc::O_CLOEXEC != 0)
        };
        let numbers = [add(&reader)?, add(&writer)?];
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&numbers[0].to_ne_bytes());
        bytes[4..].copy_from_slice(&numbers[1].to_ne_bytes());
        // If this failed the caller would keep the descriptors.
        task.write_memory_again(address, &bytes)?;
        Ok(true)
    }
}

/// Whether a process that has this open may serve a file system.
fn serves(place: &Place) -> bool {
    place.kind == FileType::CharacterDevice && SERVES.contains(&place.represents)
}

/// What io_submit(2) is asked for.
fn requests(task: Task, count: u64, list: u64) -> io::Result<Vec<Request>> {
    if count > REQUESTS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let request = |index: u64| {
        let (mut address, mut bytes) = ([0; 8], [0; aio::BYTES]);
        task.read_memory(list.wrapping_add(8 * index), &mut address)?;
        task.read_memory(u64::from_ne_bytes(address), &mut bytes)?;
        Ok(Request::of(&bytes))
    };
    (0..count).map(request).collect()
}

/// Whether a message may have descriptors; `None`: several messages, which are not looked into.
fn may_have_descriptors(task: Task, header: Option<u64>) -> bool {
    let Some(address) = header else { return true };
    let mut bytes = [0; 8];
    let read = task.read_memory(address.wrapping_add(CONTROL_BYTES), &mut bytes);
    read.is_err() || u64::from_ne_bytes(bytes) != 0
}

/// Whether every promise that is not durable is of this one mount: what is changed there comes after it in the mount's
/// order.
fn is_only(promised: &[Device], device: Device) -> bool {
    promised.iter().all(|mount| *mount == device) && !promised.is_empty()
}

/// Whether making, removing or changing what a path names changes nothing outside.
fn changes_inside(task: Task, path: call::Path, promised: &[Device]) -> io::Result<bool> {
    let directory = task.directory_of(path, |device| is_only(promised, device))?;
    if !is_only(promised, directory.place.device) {
        return Ok(false);
    }
    // Another file system may be mounted there.
    Ok(match directory.target()? {
        None => true,
        Some(target) => {
            matches!(target.kind, FileType::RegularFile | FileType::Directory)
                && is_only(promised, target.device)
        }
    })
}

/// Whether a path names /dev/null or the like: there is nothing to cut.
fn opens_what_nobody_reads(task: Task, path: call::Path) -> io::Result<bool> {
    let target = task.directory_of(path, |_| false)?.known_target()?;
    Ok(target.kind == FileType::CharacterDevice && NOBODY_READS.contains(&target.represents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_covered_by_promises_of_its_own_mount_alone() {
        let (here, there) = ((0, 40), (0, 41));
        assert!(is_only(&[here], here));
        assert!(!is_only(&[here], there));
        assert!(!is_only(&[here, there], here));
        assert!(!is_only(&[], here));
    }

    #[test]
    fn who_inherits_the_fuse_device_may_serve() {
        let place = |path| Place::of_descriptor(std::fs::File::open(path).unwrap().as_fd());
        assert!(!serves(&place("/dev/null").unwrap()));
        if std::path::Path::new("/dev/fuse").exists() {
            assert!(serves(&place("/dev/fuse").unwrap()));
        }
    }

    #[test]
    fn an_inherited_socket_is_kept_open_also_without_a_comparison() {
        let mut judge = Judge::new().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pipe, _written) = rustix::pipe::pipe().unwrap();
        // Only what is added below is inherited.
        judge.forget_inherited(std::process::id());
        judge.let_go.clear();
        let number = |fd: BorrowedFd<'_>| {
            let place = Place::of_descriptor(fd).unwrap();
            // No descriptor of the root can be compared.
            ((place.device, place.inode), vec![-1])
        };
        judge.trees.push(Tree {
            root: std::process::id(),
            living: None,
            inherited: HashMap::from([number(socket.as_fd()), number(pipe.as_fd())]),
        });
        judge.trust_no_descriptor();
        let is_unnoticed = |fd: BorrowedFd<'_>| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&fd) as u32;
            let task = Task(std::process::id());
            judge.closes_nothing_outside(task, fd, fd, &[(0, 40)], false).unwrap()
        };
        assert!(is_unnoticed(socket.as_fd()));
        assert!(!is_unnoticed(pipe.as_fd()));
    }
}
