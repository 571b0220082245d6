//! How recovery finds a file again. Where the file system keeps handles across mounts: by the file's handle,
//! which names the inode and its generation (name_to_handle_at(2), open_by_handle_at(2)). Elsewhere (FUSE,
//! overlays and others): by its path in SOURCE.
//!
//! As bytes: the handle's type, 4 bytes, little-endian; then the handle. Only the file system interprets them.
//! A path has the type [`PATH_TYPE`], which no file system uses, and is relative to SOURCE. A file whose name
//! is too long for a record is not logged. A path may lead to another file later. So before a file is renamed
//! or another file takes its name, its data in the log is brought home (`weir_shard::Shard::change_names`).

#![allow(unsafe_code)] // No safe interface to the two calls.

use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// MAX_HANDLE_SZ of the kernel.
const HANDLE_BYTES_MAX: usize = 128;

/// Linux says ENOMEM, and ESTALE a moment later, of an inode that is gone while another program creates one with its number (iget_locked()
/// in fs/inode.c).
const CREATING_TRIES: u32 = 20;
const CREATING_PAUSE: Duration = Duration::from_millis(1);

#[repr(C)]
struct Handle {
    head: libc::file_handle,
    bytes: [MaybeUninit<u8>; HANDLE_BYTES_MAX],
}

/// The type of an identity that is a path.
const PATH_TYPE: u32 = u32::from_le_bytes(*b"path");

/// The type of an identity that is a node's number in a log. No file system uses it either.
const NODE_TYPE: u32 = u32::from_le_bytes(*b"node");

/// File systems that keep handles across mounts, by statfs(2)'s numbers: ext2 to ext4, XFS, Btrfs, F2FS,
/// NFS, ZFS, bcachefs, OCFS2, GFS2, JFS, Ceph; and tmpfs, whose files do not outlive a mount.
const HANDLES_LAST: [u32; 12] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x6969,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x7461_636f,
    0x0116_1970,
    0x3153_464a,
    0x00c3_6400,
    0x0102_1994,
];

/// How recovery finds the files of a SOURCE.
#[derive(Clone, Debug)]
pub enum Naming {
    /// By their handles.
    ByHandle,
    /// By path; holds SOURCE's own path.
    ByPath(PathBuf),
}

impl Naming {
    /// How recovery finds files below `source`, a directory.
    ///
    /// # Errors
    /// Those of fstatfs(2).
    pub fn of(source: BorrowedFd<'_>) -> io::Result<Naming> {
        let system = rustix::fs::fstatfs(source)?.f_type as u64 as u32;
        Ok(match HANDLES_LAST.contains(&system) && handle_of(source).is_ok() {
            true => Naming::ByHandle,
            false => Naming::ByPath(path_of(source)?),
        })
    }

    /// Whether a rename changes a file's identity in the log.
    pub fn is_by_path(&self) -> bool {
        matches!(self, Naming::ByPath(_))
    }

    /// The identity of an open file of SOURCE (`O_PATH` does).
    ///
    /// # Errors
    /// ENOENT for a file that has no name in SOURCE, ENAMETOOLONG; those of name_to_handle_at(2).
    pub(crate) fn identity(&self, file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
        let Naming::ByPath(source) = self else { return handle_of(file) };
        if rustix::fs::fstat(file)?.st_nlink == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let path = path_of(file)?;
        // The name that the descriptor was opened by no longer exists; the file may have other names.
        let is_gone = path.as_os_str().as_bytes().ends_with(b" (deleted)");
        let Some(path) = path.strip_prefix(source).ok().filter(|_| !is_gone) else {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        };
        let identity = of_path(path.as_os_str().as_bytes());
        match identity.len() <= weir_log::IDENTITY_BYTES_MAX {
            true => Ok(identity),
            false => Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG)),
        }
    }
}

/// The identity of the file with this path, relative to SOURCE.
pub(crate) fn of_path(path: &[u8]) -> Vec<u8> {
    [&PATH_TYPE.to_le_bytes()[..], path].concat()
}

/// The path of which this is the identity, if it is one of a path.
pub(crate) fn as_path(identity: &[u8]) -> Option<&Path> {
    let path = identity.strip_prefix(&PATH_TYPE.to_le_bytes())?;
    Some(Path::new(OsStr::from_bytes(path)))
}

/// The identity of the file that is this node of the log, for a note about that log: nothing opens it.
pub(crate) fn of_node(node: u64) -> Vec<u8> {
    [NODE_TYPE.to_le_bytes().as_slice(), &node.to_le_bytes()].concat()
}

/// The node of which this is the identity, if it is one of a node.
pub(crate) fn as_node(identity: &[u8]) -> Option<u64> {
    let node = identity.strip_prefix(&NODE_TYPE.to_le_bytes())?;
    Some(u64::from_le_bytes(node.try_into().ok()?))
}

/// The path of an open file (proc_pid_fd(5)).
fn path_of(file: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let path = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// The handle of an open file, as an identity.
///
/// # Errors
/// EOPNOTSUPP where the file system has no handles.
pub(crate) fn handle_of(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    with_handle_of(file, c"", libc::AT_EMPTY_PATH, |kind, handle| {
        [&kind.to_le_bytes()[..], handle].concat()
    })
}

/// Calls `with` with the type and the bytes of the handle of `name` in the directory `at`, which is not
/// followed if it is a symbolic link; of `at` itself if `name` is empty and `flags` are AT_EMPTY_PATH.
///
/// # Errors
/// Those of name_to_handle_at(2); EOPNOTSUPP where the file system has no handles.
pub(crate) fn with_handle_of<T>(
    at: BorrowedFd<'_>,
    name: &CStr,
    flags: i32,
    with: impl FnOnce(u32, &[u8]) -> T,
) -> io::Result<T> {
    // SAFETY: all bits zero are a valid `Handle`: integers, and bytes that need not be initialised.
    let mut handle: Handle = unsafe { MaybeUninit::zeroed().assume_init() };
    handle.head.handle_bytes = HANDLE_BYTES_MAX as u32;
    let mut mount = 0;
    // SAFETY: the name ends with a zero, the handle has room for as many bytes as its length says, and both
    // live through the call.
    let result = unsafe {
        libc::name_to_handle_at(
            at.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (handle.head.handle_bytes as usize).min(HANDLE_BYTES_MAX);
    // SAFETY: all of them were zero before, and the call wrote initialised bytes.
    let bytes: &[u8] = unsafe { std::slice::from_raw_parts(handle.bytes.as_ptr().cast(), len) };
    Ok(with(handle.head.handle_type.cast_unsigned(), bytes))
}

/// Whether an identity can be a handle: it is no path, and not longer than a handle is.
pub(crate) fn is_handle(identity: &[u8]) -> bool {
    identity.split_first_chunk::<4>().is_some_and(|(kind, bytes)| {
        ![PATH_TYPE, NODE_TYPE].contains(&u32::from_le_bytes(*kind))
            && bytes.len() <= HANDLE_BYTES_MAX
    })
}

/// The result of opening a file by its identity.
#[derive(Debug)]
pub(crate) enum Found {
    File(OwnedFd),
    /// The file no longer exists.
    Gone,
    /// Unknown: this process may not open files by handle (CAP_DAC_READ_SEARCH).
    NotForUs,
}

/// Opens the file with this identity. A path is relative to the directory `on`; a handle is of its file
/// system.
///
/// # Errors
/// EINVAL for bytes that are no identity; those of open_by_handle_at(2) and openat2(2). EPERM also for a file
/// that may not be changed.
pub(crate) fn open(on: BorrowedFd<'_>, identity: &[u8], flags: OFlags) -> io::Result<Found> {
    let Some((kind, bytes)) = identity.split_first_chunk::<4>() else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let opened = match u32::from_le_bytes(*kind) {
        PATH_TYPE => {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let path = OsStr::from_bytes(bytes);
            let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
            openat2(on, path, flags, Mode::empty(), resolve).map_err(io::Error::from)
        }
        kind => open_handle(on, kind, bytes, flags),
    };
    match opened {
        Ok(file) => Ok(Found::File(file)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::STALE | Errno::NOENT) => Ok(Found::Gone),
            Some(Errno::PERM) if !may_open_handles(on) => Ok(Found::NotForUs),
            _ => Err(error),
        },
    }
}

/// Whether this process may call open_by_handle_at(2): tries it with a directory that exists.
pub(crate) fn may_open_handles(on: BorrowedFd<'_>) -> bool {
    let Ok(own) = handle_of(on) else { return true };
    let Some((kind, bytes)) = own.split_first_chunk::<4>() else { return true };
    let opened = open_handle(on, u32::from_le_bytes(*kind), bytes, OFlags::PATH);
    !matches!(opened, Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM))
}

pub(crate) fn open_handle(
    on: BorrowedFd<'_>,
    kind: u32,
    bytes: &[u8],
    flags: OFlags,
) -> io::Result<OwnedFd> {
    if bytes.len() > HANDLE_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: as above.
    let mut handle: Handle = unsafe { MaybeUninit::zeroed().assume_init() };
    handle.head.handle_bytes = bytes.len() as u32;
    handle.head.handle_type = kind.cast_signed();
    for (to, from) in handle.bytes.iter_mut().zip(bytes) {
        to.write(*from);
    }
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let mut tries = 1;
    loop {
        // SAFETY: the handle holds as many bytes as its length says and lives through the call.
        let fd = unsafe {
            libc::open_by_handle_at(
                on.as_raw_fd(),
                (&raw mut handle).cast(),
                flags.bits().cast_signed(),
            )
        };
        if fd >= 0 {
            // SAFETY: the call returned this descriptor, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOMEM) || tries == CREATING_TRIES {
            return Err(error);
        }
        tries += 1;
        thread::sleep(CREATING_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    /// On Linux 6.18 with ext4, one of 9,000 opens met it.
    #[test]
    fn what_is_gone_is_stale_also_while_its_inode_number_is_given_to_another() {
        let place = tempfile::tempdir().unwrap();
        let on = fs::File::open(place.path()).unwrap();
        if handle_of(on.as_fd()).is_err() || !may_open_handles(on.as_fd()) {
            return;
        }
        let handles: Vec<Vec<u8>> = (0..20)
            .map(|nth| {
                let gone = place.path().join(format!("gone-{nth}"));
                fs::create_dir(&gone).unwrap();
                let handle = handle_of(fs::File::open(&gone).unwrap().as_fd()).unwrap();
                fs::remove_dir(&gone).unwrap();
                handle
            })
            .collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for nth in 0..2 {
                let (place, is_over) = (&place, &is_over);
                scope.spawn(move || {
                    let made = place.path().join(format!("made-{nth}"));
                    while !is_over.load(Ordering::Relaxed) {
                        fs::create_dir(&made).unwrap();
                        fs::remove_dir(&made).unwrap();
                    }
                });
            }
            let began = Instant::now();
            let mut wrong = None;
            while wrong.is_none() && began.elapsed() < Duration::from_secs(1) {
                wrong = handles.iter().find_map(|handle| {
                    let (kind, bytes) = handle.split_first_chunk::<4>().unwrap();
                    let kind = u32::from_le_bytes(*kind);
                    let opened = open_handle(on.as_fd(), kind, bytes, OFlags::PATH);
                    let code = opened.map_err(|error| error.raw_os_error());
                    (code.as_ref().err() != Some(&Some(libc::ESTALE))).then_some(code)
                });
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(wrong.is_none(), "{wrong:?}");
        });
    }
}
