//! What the supervisor finds out about a thread whose call is stopped: its descriptors, paths and memory, by proc(5) and
//! pidfd_getfd(2).
//!
//! Nothing here asks a file system for attributes that the kernel already has (AT_STATX_DONT_SYNC): the supervisor must
//! not wait for a daemon in order to judge a call.

#![allow(unsafe_code, reason = "pidfd_open(2) of a thread has no safe form")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

pub(crate) use crate::memory::Device;
use crate::{call, memory};

/// Longest path of a system call, with its end (path_resolution(7)).
const PATH_BYTES_MAX: usize = 4096;

/// asm-generic/socket.h, since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// `STATX_MNT_ID_UNIQUE` (linux/stat.h).
pub(crate) const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// A thread, by its number in this process's PID namespace.
#[derive(Clone, Copy)]
pub(crate) struct Task(pub(crate) u32);

/// null, zero, full, random and urandom (linux/devices.txt): nobody reads there what was written.
pub(crate) const NOBODY_READS: [Device; 5] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)];

/// What is synced by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    File,
    /// All of the file system that has the file's name.
    FileSystem,
}

/// What a descriptor or a path leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) device: Device,
    /// The kernel's number for the mount; before Linux 6.8 it may be given again after an unmount.
    pub(crate) mount: u64,
    pub(crate) inode: u64,
    pub(crate) kind: FileType,
    /// The device that a device file stands for.
    pub(crate) represents: Device,
    /// It has no name any more: with its last description it is gone.
    pub(crate) is_removed: bool,
}

impl Place {
    fn of(directory: impl AsFd, path: &str, flags: AtFlags) -> Result<Place, Errno> {
        let found = rustix::fs::statx(
            directory,
            path,
            flags | AtFlags::STATX_DONT_SYNC,
            StatxFlags::TYPE
                | StatxFlags::INO
                | StatxFlags::NLINK
                | StatxFlags::MNT_ID
                | MOUNT_ID_UNIQUE,
        )?;
        Ok(Place {
            device: (found.stx_dev_major, found.stx_dev_minor),
            mount: found.stx_mnt_id,
            inode: found.stx_ino,
            kind: FileType::from_raw_mode(found.stx_mode.into()),
            represents: (found.stx_rdev_major, found.stx_rdev_minor),
            is_removed: found.stx_nlink == 0,
        })
    }

    /// Of an own descriptor.
    pub(crate) fn of_descriptor(descriptor: BorrowedFd<'_>) -> Result<Place, Errno> {
        Place::of(descriptor, "", AtFlags::EMPTY_PATH)
    }
}

impl Task {
    /// What one of its descriptors is.
    pub(crate) fn descriptor(self, fd: i32) -> Result<Place, Errno> {
        Place::of(CWD, &format!("/proc/{}/fd/{fd}", self.0), AtFlags::empty())
    }

    /// What proc(5) calls the file of one of its descriptors.
    pub(crate) fn link(self, fd: i32) -> io::Result<String> {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", self.0))?;
        Ok(link.to_string_lossy().into_owned())
    }

    /// Whether one of its descriptors is closed by execve(2).
    pub(crate) fn closes_on_exec(self, fd: i32) -> io::Result<bool> {
        Ok(self.flags_of(fd)?.is_some_and(|flags| flags & libc::O_CLOEXEC != 0))
    }

    fn flags_of(self, fd: i32) -> io::Result<Option<i32>> {
        let facts = fs::read(format!("/proc/{}/fdinfo/{fd}", self.0))?;
        Ok(flags(&String::from_utf8_lossy(&facts)))
    }

    /// A duplicate of one of its descriptors, if that is what was expected: of no file whose file system a member serves. Closing such a duplicate is
    /// told to the server, whose answer may wait for the calling thread.
    pub(crate) fn duplicate(
        self,
        fd: i32,
        is_expected: impl FnOnce(Place) -> bool,
    ) -> io::Result<OwnedFd> {
        if fd < 0 {
            return Err(Errno::BADF.into());
        }
        let duplicate = pidfd_getfd(self.pidfd()?, fd, PidfdGetfdFlags::empty())?;
        if Place::of_descriptor(duplicate.as_fd()).is_ok_and(is_expected) {
            return Ok(duplicate);
        }
        // Another thread of the process has put another file there.
        thread::Builder::new().name("closing".into()).spawn(move || drop(duplicate))?;
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// A duplicate of a socket.
    pub(crate) fn socket(self, fd: i32) -> io::Result<OwnedFd> {
        self.duplicate(fd, |place| place.kind == FileType::Socket)
    }

    pub(crate) fn pidfd(self) -> io::Result<OwnedFd> {
        let open = |number: u32, flags: libc::c_int| {
            // SAFETY: both arguments are numbers.
            let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) };
            if opened < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the call made the descriptor for its caller.
            Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
        };
        // PIDFD_THREAD, since Linux 6.9; before, the process must be named.
        open(self.0, libc::O_EXCL).or_else(|_| open(self.process()?, 0))
    }

    /// The process that the thread belongs to.
    pub(crate) fn process(self) -> io::Result<u32> {
        self.status("Tgid:")
    }

    /// The parent of its process.
    pub(crate) fn parent(self) -> io::Result<u32> {
        self.status("PPid:")
    }

    fn status(self, field: &str) -> io::Result<u32> {
        let status = fs::read(format!("/proc/{}/status", self.0))?;
        String::from_utf8_lossy(&status)
            .lines()
            .find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// User and group that files made by it belong to.
    pub(crate) fn user_and_group(self) -> io::Result<(u32, u32)> {
        let status = fs::read(format!("/proc/{}/status", self.0))?;
        let status = String::from_utf8_lossy(&status);
        // Real, effective, saved and of file systems.
        let last = |field: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(field)?.split_whitespace().nth(3)?.parse().ok())
        };
        last("Uid:").zip(last("Gid:")).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether closing one of its descriptors of a file may be noticed: there are locks; or, unless somebody else has the
    /// description open, it was opened for writing (IN_CLOSE_WRITE of inotify(7)).
    pub(crate) fn closing_is_noticed(self, fd: i32, is_kept_open: bool) -> io::Result<bool> {
        let facts = fs::read(format!("/proc/{}/fdinfo/{fd}", self.0))?;
        let facts = String::from_utf8_lossy(&facts);
        let is_read_only =
            flags(&facts).is_some_and(|flags| flags & libc::O_ACCMODE == libc::O_RDONLY);
        let has_locks = facts.lines().any(|line| line.starts_with("lock:"));
        Ok(has_locks || !(is_read_only || is_kept_open))
    }

    /// Whether closing a descriptor of a file may have an effect outside: by its file system ([`weir_lane::door::hides_ends_on`]), or because the file has
    /// no name and is deleted then. No file system is asked: its daemon may be a member, and wait for the supervisor.
    pub(crate) fn end_is_noticed(self, fd: i32, place: Place) -> io::Result<bool> {
        Ok(place.is_removed || self.tells_others(fd)?)
    }

    /// Whether a sync of a descriptor's file, or of the file system that it is on, may be noticed outside, by the file system as above. A device is no
    /// file of the file system that has its name.
    pub(crate) fn sync_is_noticed(self, fd: i32, synced: Synced) -> io::Result<bool> {
        let place = match self.descriptor(fd) {
            // The call will fail.
            Err(Errno::NOENT) => return Ok(false),
            place => place?,
        };
        match (place.kind, synced) {
            // It cannot be.
            (FileType::Socket, _) | (FileType::Fifo, Synced::File) => Ok(false),
            (FileType::CharacterDevice, Synced::File) => {
                Ok(!NOBODY_READS.contains(&place.represents))
            }
            (FileType::BlockDevice, Synced::File) => Ok(true),
            _ => self.tells_others(fd),
        }
    }

    /// Whether a descriptor's file system is not known to be one of plain files of this machine.
    fn tells_others(self, fd: i32) -> io::Result<bool> {
        let facts = fs::read(format!("/proc/{}/fdinfo/{fd}", self.0))?;
        let facts = String::from_utf8_lossy(&facts);
        let Some(mount) = facts.lines().find_map(|line| line.strip_prefix("mnt_id:")) else {
            return Ok(true);
        };
        let table = fs::read(format!("/proc/{}/mountinfo", self.0))?;
        let name = file_system_of(&String::from_utf8_lossy(&table), mount.trim());
        Ok(name.is_none_or(|name| !weir_lane::door::hides_ends_on(&name)))
    }

    /// Whether it has locks on a file, by any descriptor: closing one of them ends the process's own locks (fcntl_locking(2)).
    pub(crate) fn has_locks_on(self, file: (Device, u64)) -> io::Result<bool> {
        for (fd, place) in self.descriptors(0, u32::MAX)? {
            if (place.device, place.inode) == file && self.closing_is_noticed(fd, true)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether one of its descriptors is of the same open description as one of another task (kcmp(2)). In doubt not.
    pub(crate) fn shares_description(self, fd: i32, other: Task, its: i32) -> bool {
        const KCMP_FILE: libc::c_int = 0;
        // SAFETY: the arguments are numbers.
        unsafe { libc::syscall(libc::SYS_kcmp, self.0, other.0, KCMP_FILE, fd, its) == 0 }
    }

    /// What all of its descriptors in a range are; those that are closed meanwhile are left out.
    pub(crate) fn descriptors(self, first: u32, last: u32) -> io::Result<Vec<(i32, Place)>> {
        if first == last {
            let number = first as i32;
            return match self.descriptor(number) {
                Ok(place) => Ok(vec![(number, place)]),
                Err(Errno::NOENT) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            };
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.0))? {
            let name = entry?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if (first..=last).contains(&number) {
                match self.descriptor(number as i32) {
                    Ok(place) => found.push((number as i32, place)),
                    Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(found)
    }

    /// Reads its memory.
    pub(crate) fn read_memory(self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        memory::read(self.0, address, buffer)
    }

    /// Writes its memory.
    pub(crate) fn write_memory(self, address: u64, bytes: &[u8]) -> io::Result<()> {
        memory::write(self.0, address, bytes)
    }

    /// Writes memory that was just written.
    pub(crate) fn write_memory_again(self, address: u64, bytes: &[u8]) -> io::Result<()> {
        memory::write_again(self.0, address, bytes)
    }

    /// The bytes of a path in its memory, without the end. Reads page by page: the next page may not be there.
    fn path(self, address: u64) -> io::Result<PathBuf> {
        let mut bytes = Vec::new();
        while bytes.len() < PATH_BYTES_MAX {
            let at = address + bytes.len() as u64;
            let in_page = 4096 - (at % 4096) as usize;
            let mut piece = vec![0; in_page];
            let read = self.read_memory(at, &mut piece)?;
            if let Some(end) = piece[..read].iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&piece[..end]);
                return Ok(OsString::from_vec(bytes).into());
            }
            bytes.extend_from_slice(&piece[..read]);
        }
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    }

    /// The directory in which a path's last name is. Symbolic links are not followed, also those of proc(5): they would lead this
    /// process elsewhere. Nor is any file system asked, but those for which `may_ask`: others may be served by a process that waits for
    /// this one.
    ///
    /// # Errors
    /// ELOOP for a path with a symbolic link, EAGAIN or ENOENT if the kernel does not know its directories, `InvalidInput` if it cannot be
    /// followed from here. A directory that is missing where it may be asked for is no error: the one above it is returned, without a name.
    pub(crate) fn directory_of(
        self,
        path: call::Path,
        may_ask: impl Fn(Device) -> bool,
    ) -> io::Result<Directory> {
        if path.address == 0 {
            let place = self.descriptor(path.directory)?;
            return Ok(Directory { place, name: None });
        }
        let whole = self.path(path.address)?;
        let (start, below) = match whole.strip_prefix("/") {
            Ok(below) => ("root".to_owned(), below),
            Err(_) if path.directory == libc::AT_FDCWD => ("cwd".to_owned(), whole.as_path()),
            Err(_) => (format!("fd/{}", path.directory), whole.as_path()),
        };
        // Of a path that ends in dots the last name is not the one that is changed.
        let is_plain = !whole.as_os_str().as_bytes().ends_with(b"/.");
        let Some(name) = below.file_name().filter(|_| is_plain) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut at = rustix::fs::open(
            format!("/proc/{}/{start}", self.0),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        for component in below.parent().into_iter().flat_map(Path::components) {
            if component == Component::CurDir {
                continue;
            }
            // Above its root directory the process does not come (chroot(2)), but this one may.
            if component == Component::ParentDir && !self.has_own_root()? {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut opened = open_below(&at, component.as_os_str(), ResolveFlags::CACHED);
            if let Err(Errno::AGAIN | Errno::NOENT) = opened {
                let place = Place::of_descriptor(at.as_fd())?;
                if may_ask(place.device) {
                    // The kernel does not know whether the process may pass: names in the directory have changed.
                    opened = open_below(&at, component.as_os_str(), ResolveFlags::empty());
                    if let Err(Errno::NOENT) = opened {
                        // The call fails.
                        return Ok(Directory { place, name: None });
                    }
                }
            }
            at = opened?;
        }
        let place = Place::of_descriptor(at.as_fd())?;
        Ok(Directory { place, name: Some((at, name.to_owned())) })
    }

    /// Whether the process has the same root directory as this one.
    fn has_own_root(self) -> io::Result<bool> {
        let of = |path: &str| {
            Place::of(CWD, path, AtFlags::empty()).map(|place| (place.device, place.inode))
        };
        Ok(of(&format!("/proc/{}/root", self.0))? == of("/")?)
    }
}

/// The flags that /proc/PID/fdinfo has of a descriptor: those of open(2).
fn flags(facts: &str) -> Option<i32> {
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(flags.trim(), 8).ok()
}

/// Where a path's last name is.
pub(crate) struct Directory {
    /// The directory; without a name, the file itself.
    pub(crate) place: Place,
    name: Option<(OwnedFd, OsString)>,
}

impl Directory {
    /// What the name leads to. The directory's file system is asked.
    ///
    /// # Errors
    /// ELOOP if it is a symbolic link, whether or not it leads to something.
    pub(crate) fn target(&self) -> Result<Option<Place>, Errno> {
        let Some((directory, name)) = &self.name else { return Ok(Some(self.place)) };
        match open_below(directory, name, ResolveFlags::empty()) {
            Ok(target) => Place::of_descriptor(target.as_fd()).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the name leads to, as far as the kernel knows without asking a file system.
    pub(crate) fn known_target(&self) -> Result<Place, Errno> {
        let Some((directory, name)) = &self.name else { return Ok(self.place) };
        let target = open_below(directory, name, ResolveFlags::CACHED)?;
        Place::of_descriptor(target.as_fd())
    }
}

/// What a name in a directory is; not through symbolic links.
fn open_below(directory: &OwnedFd, name: &OsStr, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | resolve;
    rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve)
}

/// Who is at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// This process connected or listened, and lives.
    Process(u32),
    /// A TCP socket: [`crate::tcp`] knows more.
    OfConnection,
    /// Another socket that is not of this machine alone.
    OfOtherKind,
    /// Not connected, more than one, or a process that has ended; before Linux 6.5 always.
    Unknown,
}

/// The process at the other end of a connected stream or sequence of packets of this machine (unix(7), SO_PEERPIDFD), when it
/// connected.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Peer {
    let is = |name| option::<libc::c_int>(socket, name).unwrap_or(0);
    match is(libc::SO_DOMAIN) {
        libc::AF_UNIX => {}
        libc::AF_INET | libc::AF_INET6 if is(libc::SO_PROTOCOL) == libc::IPPROTO_TCP => {
            return Peer::OfConnection;
        }
        _ => return Peer::OfOtherKind,
    }
    // A datagram may go elsewhere; and of a socket that listens, everybody may be at the other end.
    if !matches!(is(libc::SO_TYPE), libc::SOCK_STREAM | libc::SOCK_SEQPACKET)
        || is(libc::SO_ACCEPTCONN) != 0
    {
        return Peer::Unknown;
    }
    living_peer(socket).map_or(Peer::Unknown, Peer::Process)
}

/// Whether a socket has no other end yet, and may get one: a Unix stream that is neither connected nor listens.
pub(crate) fn may_be_connected(socket: BorrowedFd<'_>) -> bool {
    let is = |name| option::<libc::c_int>(socket, name).unwrap_or(0);
    let is_stream = matches!(is(libc::SO_TYPE), libc::SOCK_STREAM | libc::SOCK_SEQPACKET);
    is(libc::SO_DOMAIN) == libc::AF_UNIX
        && is_stream
        && is(libc::SO_ACCEPTCONN) == 0
        && rustix::net::getpeername(socket).is_err()
}

fn living_peer(socket: BorrowedFd<'_>) -> Option<u32> {
    let process = option::<libc::c_int>(socket, SO_PEERPIDFD)?;
    // SAFETY: the call made the descriptor for its caller.
    let process = unsafe { OwnedFd::from_raw_fd(process) };
    let number = option::<libc::ucred>(socket, libc::SO_PEERCRED)?.pid;
    // While the process lives its number belongs to no other.
    u32::try_from(number).ok().filter(|number| lives(&process) && *number != 0)
}

/// Whether a process, which this descriptor is of, has not ended.
pub(crate) fn lives(process: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    rustix::event::poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
}

/// An option of a socket (getsockopt(2)); `T` is a number, or a structure of numbers.
pub(crate) fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int) -> Option<T> {
    option_of(socket, libc::SOL_SOCKET, name)
}

/// The same of a protocol.
pub(crate) fn option_of<T>(
    socket: BorrowedFd<'_>,
    protocol: libc::c_int,
    name: libc::c_int,
) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has as many bytes as the call may write.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            protocol,
            name,
            value.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    // SAFETY: the kernel wrote all of it; the types used here are numbers.
    (answer == 0 && bytes as usize == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Gives the changed pages of a file to its file system, and waits until it has them (sync_file_range(2)).
pub(crate) fn write_out(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: all arguments are numbers.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// The file system of a mount by its number in a mount table (proc_pid_mountinfo(5)).
fn file_system_of(table: &str, mount: &str) -> Option<String> {
    let line = table.lines().find(|line| line.split(' ').next() == Some(mount))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounts_file_system_is_found_by_its_number() {
        let table =
            "22 1 0:20 / / rw shared:1 - ext4 /dev/a rw\n122 22 0:31 / /m rw - fuse.x x rw\n";
        assert_eq!(file_system_of(table, "22").as_deref(), Some("ext4"));
        assert_eq!(file_system_of(table, "122").as_deref(), Some("fuse.x"));
        assert_eq!(file_system_of(table, "2"), None);
    }

    #[test]
    fn a_device_is_no_file_of_the_file_system_that_has_its_name() {
        let own = Task(std::process::id());
        let is_noticed = |path: &str, synced| {
            let file = std::fs::File::open(path).unwrap();
            own.sync_is_noticed(file.as_raw_fd(), synced).unwrap()
        };
        let fuse = "/dev/fuse";
        if Path::new(fuse).exists() {
            assert!(is_noticed(fuse, Synced::File));
            assert!(!is_noticed(fuse, Synced::FileSystem));
        }
        assert!(!is_noticed("/dev/null", Synced::File));
        assert!(!is_noticed("/proc/self/status", Synced::File));
    }
}
