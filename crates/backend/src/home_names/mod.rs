//! Names at home: looked up, changed, and found again without a descriptor kept of them.
//!
//! Answers what the namespace (`weir_names`) needs to know of home, and executes its commands. A node is found again by its file handle where
//! SOURCE's file system keeps handles and this process may open them (CAP_DAC_READ_SEARCH); elsewhere by its
//! place, a name in a directory that was itself found again.
//!
//! Invariants:
//! - only handles that home gave for names found below SOURCE are opened, on SOURCE's own mount;
//! - a place is opened as one component below its directory; a symbolic link there is opened itself, never
//!   followed; and whoever opens it compares the identity;
//! - an inode's identity is computed in the same way whichever way it is found.

mod credentials;
mod execute;
mod links;
mod list;
mod parking;
mod status;
mod system;
mod xattrs;

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;
use weir_names::{Handle, Identity, NodeId, Place, Way};

use crate::identity::{Naming, may_open_handles, open_handle, with_handle_of};
use crate::proc_path::proc_path;

use credentials::Credentials;
use links::Links;

pub use execute::HomeCommand;
pub(crate) use links::{FUSE_SUPER_MAGIC, is_fuse};
pub(crate) use list::names_in;
pub use list::{Cursor, DirEntry, open_directory};
pub(crate) use parking::{PARKING, keep};
pub use status::{Status, read_link};
pub use system::{folds_names, is_plain, space};
pub use xattrs::{Value, get_xattr, list_xattrs};

/// A name that was looked up, or an open file.
#[derive(Clone, Debug)]
pub struct Looked {
    /// What stat(2) says.
    pub status: Status,
    /// Which inode it is.
    pub identity: Identity,
    /// How it is found again.
    pub way: Way,
}

/// The names of one SOURCE.
#[derive(Debug)]
pub struct HomeNames {
    device: u64,
    mount: Option<u64>,
    /// A descriptor of SOURCE that handles are opened on, where they are.
    handles: Option<OwnedFd>,
    /// The file system has handles to tell inodes apart by, whether or not they may be opened.
    has_handles: bool,
    /// The file system may change the numbers of inodes.
    invents_numbers: bool,
    links: Links,
    credentials: Credentials,
}

/// Whether a name is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsThere {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// A cache before home has it, which may have what was.
    Perhaps,
}

impl HomeNames {
    /// Of the directory `source`, opened for reading.
    ///
    /// # Errors
    /// Those of statx(2) and of opening it once more.
    pub fn new(source: BorrowedFd<'_>) -> io::Result<HomeNames> {
        let status = Status::of(source)?;
        // Where files are logged by path, recovery must find the name a file was opened by.
        let has_handles = Naming::of(source).is_ok_and(|naming| !naming.is_by_path());
        let links = Links::of(source)?;
        let handles = match has_handles && may_open_handles(source) {
            true => Some(openat(source, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?),
            false => None,
        };
        let Status { device, mount, .. } = status;
        let credentials = Credentials::new();
        let invents_numbers = !has_handles && links::is_fuse(source);
        Ok(HomeNames { device, mount, handles, has_handles, invents_numbers, links, credentials })
    }

    /// Whether nodes of SOURCE's own file system are found again by handle.
    pub fn are_by_handle(&self) -> bool {
        self.handles.is_some()
    }

    /// Whether two names of a file are known to be that: some FUSE file systems (sshfs) show another inode by each, with one
    /// link.
    pub fn counts_links(&self) -> bool {
        !self.invents_numbers
    }

    /// Whether owner and times of a symbolic link can be set: some FUSE file systems (sshfs) set those of what it leads to.
    pub fn sets_links(&self) -> bool {
        self.links.are_set()
    }

    /// Whether a file can have two names: some FUSE file systems (buckets) have no hard links.
    pub fn makes_links(&self) -> bool {
        self.links.are_made()
    }

    /// Whether names that differ in case alone are known to be different everywhere in SOURCE, whose root directory this
    /// is: tried by the name of Weir's own directory.
    pub fn tells_case(&self, root: BorrowedFd<'_>) -> bool {
        let is_there = |name: &str| match Status::at(root, OsStr::new(name)) {
            Ok(_) => Some(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Some(false),
            Err(_) => None,
        };
        !folds_names(root) || is_there(".weir") == Some(true) && is_there(".WEIR") == Some(false)
    }

    /// Whether a directory has this name, as far as is known ([`HomeNames::is_there`]).
    ///
    /// # Errors
    /// As there.
    pub fn has_name(&self, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
        Ok(self.is_there(directory, name)? != IsThere::No)
    }

    /// Whether a directory has this name. Where names are cached before home (by sshfs for 20 s, and after a lost answer as they
    /// were before it), something is asked that is not answered from there: a file is opened, after which the cache does not have it
    /// any more if home does not; of a directory fstatfs(2) is asked.
    ///
    /// # Errors
    /// Those of statx(2) but ENOENT, of open(2) and fstatfs(2), if home does not answer.
    pub fn is_there(&self, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<IsThere> {
        let status = match Status::at(directory, name) {
            Ok(status) => status,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(IsThere::No),
            Err(error) => return Err(error),
        };
        if !self.invents_numbers {
            return Ok(IsThere::Yes);
        }
        let kind = status.mode & libc::S_IFMT;
        let how = if kind == libc::S_IFREG { OFlags::RDONLY } else { OFlags::PATH };
        let flags = how | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(directory, name, flags, Mode::empty()) {
            Ok(opened) if kind == libc::S_IFDIR => match fstatfs(&opened) {
                Ok(_) => Ok(IsThere::Yes),
                Err(Errno::NOENT) => Ok(IsThere::Perhaps),
                Err(error) => Err(error.into()),
            },
            Ok(_) if kind != libc::S_IFREG => Ok(IsThere::Perhaps),
            // It is something else now.
            Ok(_) | Err(Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NXIO) => {
                Ok(IsThere::Yes)
            }
            Err(Errno::NOENT) => Ok(IsThere::No),
            Err(error) => Err(error.into()),
        }
    }

    /// A stream of a directory on the file system with this `device` number, that begins after `cookie`. Positions are
    /// taken to be of the directory on SOURCE's own file system if it has file handles.
    ///
    /// # Errors
    /// Those of open(2), lseek(2) and getdents64(2).
    pub fn list(&self, directory: BorrowedFd<'_>, device: u64, cookie: u64) -> io::Result<Cursor> {
        let opened = open_directory(directory)?;
        match self.has_handles && device == self.device {
            true => Cursor::new(opened, cookie),
            false => Cursor::read_up_to(opened, cookie),
        }
    }

    /// What SOURCE itself is.
    ///
    /// # Errors
    /// Those of statx(2) and name_to_handle_at(2).
    pub fn root(&self, root: BorrowedFd<'_>) -> io::Result<Identity> {
        let status = Status::of(root)?;
        let handle = self.handle(&status, root, OsStr::new(""), libc::AT_EMPTY_PATH)?;
        Ok(identity(&status, handle.as_ref()))
    }

    /// Looks up a name in a directory, whose node is `parent`. Opens nothing.
    ///
    /// # Errors
    /// Those of statx(2) and name_to_handle_at(2); EINVAL for what is not one name.
    pub fn look_up(
        &self,
        directory: BorrowedFd<'_>,
        parent: NodeId,
        name: &OsStr,
    ) -> io::Result<Looked> {
        let status = Status::at(directory, name)?;
        let handle = self.handle(&status, directory, name, 0)?;
        self.looked(status, handle, parent, name)
    }

    /// Looks at an open file that was found under `name`.
    ///
    /// # Errors
    /// As for [`HomeNames::look_up`].
    pub fn look_at(
        &self,
        file: BorrowedFd<'_>,
        parent: NodeId,
        name: &OsStr,
    ) -> io::Result<Looked> {
        let status = Status::of(file)?;
        let handle = self.handle(&status, file, OsStr::new(""), libc::AT_EMPTY_PATH)?;
        self.looked(status, handle, parent, name)
    }

    fn looked(
        &self,
        status: Status,
        handle: Option<Handle>,
        parent: NodeId,
        name: &OsStr,
    ) -> io::Result<Looked> {
        let identity = identity(&status, handle.as_ref());
        // What is mounted below SOURCE, a part of the same file system too, would not be found on SOURCE's mount.
        let here = self.handles.is_some() && status.mount == self.mount;
        let way = match handle.filter(|_| here) {
            Some(handle) => Way::Handle(handle),
            None => Way::Place(Place::new(parent, name.as_bytes()).ok_or(Errno::INVAL)?),
        };
        Ok(Looked { status, identity, way })
    }

    /// The handle of what has this `status`, if handles tell its inode from others.
    fn handle(
        &self,
        status: &Status,
        at: BorrowedFd<'_>,
        name: &OsStr,
        flags: i32,
    ) -> io::Result<Option<Handle>> {
        if !self.has_handles || status.device != self.device {
            return Ok(None);
        }
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        with_handle_of(at, &name, flags, Handle::new).map(Some)
    }

    /// Opens a node by its handle, with `O_PATH`.
    ///
    /// # Errors
    /// ESTALE if it does not exist any more; those of open_by_handle_at(2).
    pub fn open_handle(&self, handle: &Handle) -> io::Result<OwnedFd> {
        let on = self.handles.as_ref().ok_or(Errno::STALE)?;
        open_handle(on.as_fd(), handle.kind(), handle.bytes(), OFlags::PATH)
    }

    /// Opens a name in a directory, with `O_PATH`.
    ///
    /// # Errors
    /// Those of openat2(2).
    pub fn open_place(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(directory, OsStr::from_bytes(name), flags, Mode::empty(), resolve)?)
    }

    /// Whether an open file is on SOURCE's own mount; where the kernel does not tell, on its file system. Some file systems
    /// have several device numbers (overlays).
    ///
    /// # Errors
    /// Those of statx(2).
    pub(crate) fn is_here(&self, file: BorrowedFd<'_>) -> io::Result<bool> {
        let status = Status::of(file)?;
        Ok(match (status.mount, self.mount) {
            (Some(mount), Some(own)) => mount == own,
            _ => status.device == self.device,
        })
    }

    /// Whether an open file is the inode with this identity, and what its identity is now: FUSE file systems (sshfs) may give an
    /// inode another number when the kernel had forgotten it. There, what has the type is taken to be the inode.
    ///
    /// # Errors
    /// Those of statx(2) and name_to_handle_at(2).
    pub fn is(
        &self,
        file: BorrowedFd<'_>,
        known: &Identity,
    ) -> io::Result<Option<(Identity, Status)>> {
        let status = Status::of(file)?;
        let handle = self.handle(&status, file, OsStr::new(""), libc::AT_EMPTY_PATH)?;
        let found = identity(&status, handle.as_ref());
        let is = match self.invents_numbers {
            true => (found.device, found.version) == (known.device, known.version),
            false => found == *known,
        };
        Ok(is.then_some((found, status)))
    }
}

/// Opens SOURCE's root with `O_PATH`.
///
/// # Errors
/// Those of open(2).
pub fn open_root(source: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(openat(source, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens once more, with `O_PATH`, what an open file is.
///
/// # Errors
/// Those of open(2).
pub fn open_again(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(openat(CWD, proc_path(file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a file again that was opened with `O_PATH`, for reading and writing.
///
/// # Errors
/// Those of open(2).
pub fn open_to_write(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(openat(CWD, proc_path(file), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Where home gives no handles, inodes that have one number after the other are told apart by their type
/// alone: file systems without handles change birth times while a file lives (overlays, when it is copied
/// up), or do not keep them.
fn identity(status: &Status, handle: Option<&Handle>) -> Identity {
    let kind = u64::from(status.mode >> 12);
    let version = handle.map_or(0, Handle::version);
    Identity { device: status.device, inode: status.inode, version: version << 4 | kind }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn source() -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let fd = OwnedFd::from(fs::File::open(directory.path()).unwrap());
        (directory, fd)
    }

    fn open(names: &HomeNames, source: &OwnedFd, looked: &Looked) -> io::Result<OwnedFd> {
        match &looked.way {
            Way::Handle(handle) => names.open_handle(handle),
            Way::Place(place) => names.open_place(source.as_fd(), place.name()),
        }
    }

    #[test]
    fn what_was_looked_up_is_found_again_and_nothing_else_for_it() {
        let (directory, source) = source();
        let by_handle = HomeNames::new(source.as_fd()).unwrap();
        let by_place = HomeNames { handles: None, ..HomeNames::new(source.as_fd()).unwrap() };
        for names in [by_handle, by_place] {
            let path = directory.path().join("file");
            fs::write(&path, b"content").unwrap();
            let look = || names.look_up(source.as_fd(), NodeId::ROOT, "file".as_ref()).unwrap();
            let first = look();
            assert_eq!(first.status.size, 7);
            let file = open(&names, &source, &first).unwrap();
            assert!(names.is(file.as_fd(), &first.identity).unwrap().is_some());
            let looked = names.look_at(file.as_fd(), NodeId::ROOT, "file".as_ref()).unwrap();
            assert_eq!((looked.identity, looked.way), (first.identity, first.way.clone()));
            // Another file of that name, made while the first one lives.
            fs::remove_file(&path).unwrap();
            fs::write(&path, b"other").unwrap();
            assert_ne!(look().identity, first.identity);
            drop(file);
            if let Ok(found) = open(&names, &source, &first) {
                assert!(names.is(found.as_fd(), &first.identity).unwrap().is_none());
            }
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_symbolic_link_in_a_place_is_never_followed() {
        let (directory, source) = source();
        let names = HomeNames { handles: None, ..HomeNames::new(source.as_fd()).unwrap() };
        fs::create_dir(directory.path().join("dir")).unwrap();
        let looked = names.look_up(source.as_fd(), NodeId::ROOT, "dir".as_ref()).unwrap();
        fs::rename(directory.path().join("dir"), directory.path().join("moved")).unwrap();
        symlink("moved", directory.path().join("dir")).unwrap();
        let found = open(&names, &source, &looked).unwrap();
        assert!(names.is(found.as_fd(), &looked.identity).unwrap().is_none(), "it is the link");
        for outside in [&b"../x"[..], b"/etc", b"dir/.."] {
            assert!(names.open_place(source.as_fd(), outside).is_err(), "{outside:?}");
        }
    }
}
