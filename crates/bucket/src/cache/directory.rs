//! A prefix's directory of units: its files, its lock, and the room on the disk.
//!
//! All paths are relative to its descriptor, so that nobody can put another directory in its place. Nothing is synced: the
//! checksums find what a crash tears.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::error::CacheError;
use super::unit::{FILE_BYTES_MAX, Name, SLOTS};

/// A unit is written here first.
const NEW: &str = "new";
const LOCK: &str = "lock";
const BLOCK: u64 = 4096;
/// What a file takes beside its blocks: its inode and its entry.
const FILE: u64 = 512;
/// How long a former process may take to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// This much of the disk is left free: a twentieth, and no more than this.
const FREE_MAX: u64 = 1 << 30;

/// What the directory takes without units: a block for each of its directories, and the file that is being written.
pub const OWN_BYTES: u64 = (SLOTS + 64) * BLOCK;

/// What a file of that length takes on the disk.
pub fn disk_bytes(length: u64) -> u64 {
    length.next_multiple_of(BLOCK) + FILE
}

/// A unit's file.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: Name,
    /// Its length, bytes.
    pub length: u64,
    /// When it was used last: nanoseconds since 1970.
    pub used: u64,
}

/// The directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// Locked while this is there.
    _lock: File,
}

/// Nanoseconds since 1970 as a file's times.
fn times(used: u64) -> Timestamps {
    let (seconds, nanoseconds) = (used / 1_000_000_000, used % 1_000_000_000);
    let time = Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as _ };
    Timestamps { last_access: time, last_modification: time }
}

fn slot_path(slot: u64) -> String {
    format!("{slot:02x}")
}

impl Directory {
    /// Opens the directory of that name in `parent`, which both are made if they are not there. Nobody else uses it then.
    pub fn open(parent: &Path, name: &str) -> Result<Directory, CacheError> {
        let path = parent.join(name);
        let io = |error: io::Error| CacheError::Io { path: path.clone(), error };
        let make = |path: &Path| match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(io::Error::from(io::ErrorKind::NotADirectory))
            }
            other => other,
        };
        make(parent).map_err(|error| CacheError::Io { path: parent.to_owned(), error })?;
        let own = rustix::process::geteuid().as_raw();
        let uid = std::fs::metadata(parent).map_err(io)?.uid();
        // The system's own directories are as good: root can read everything anyway.
        if uid != own && uid != 0 {
            return Err(CacheError::OfAnother { path: parent.to_owned(), uid });
        }
        make(&path).map_err(io)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| io(error.into()))?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| io(error.into()))?;
        if stat.st_uid != own {
            return Err(CacheError::OfAnother { path, uid: stat.st_uid });
        }
        let mode = stat.st_mode & 0o777;
        if mode & 0o077 != 0 {
            return Err(CacheError::Open { path, mode });
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&fd, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let lock = File::from(lock.map_err(|error| io(error.into()))?);
        let start = Instant::now();
        while lock.try_lock().is_err() {
            if start.elapsed() > LOCK_PATIENCE {
                return Err(CacheError::InUse { path });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Directory { path, fd, _lock: lock })
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file's bytes, `expected` of them as a rule; none if it is not there. What is too long for a unit is cut off.
    pub fn read(&self, name: Name, expected: usize) -> io::Result<Option<Vec<u8>>> {
        // A pipe of that name must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name.path(), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // One more, to see its end.
        let mut bytes = Vec::with_capacity(expected + 1);
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Makes a file of these parts, used at that time, in place of the one of the same name.
    pub fn write(&self, name: Name, parts: [&[u8]; 2], used: u64) -> io::Result<()> {
        let written = self.write_new(parts, used).and_then(|()| self.place(name));
        if written.is_err() {
            // On a full disk it would be in the way.
            let _ = rustix::fs::unlinkat(&self.fd, NEW, AtFlags::empty());
        }
        written
    }

    fn write_new(&self, parts: [&[u8]; 2], used: u64) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, NEW, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        parts.into_iter().try_for_each(|part| file.write_all(part))?;
        Ok(rustix::fs::futimens(&file, &times(used))?)
    }

    fn place(&self, name: Name) -> io::Result<()> {
        let rename = || rustix::fs::renameat(&self.fd, NEW, &self.fd, name.path());
        match rename() {
            Err(Errno::NOENT) => {
                self.make_slot(name.slot())?;
                Ok(rename()?)
            }
            other => Ok(other?),
        }
    }

    fn make_slot(&self, slot: u64) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.fd, slot_path(slot), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file; none there is no error.
    pub fn remove(&self, name: Name) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name.path(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes when a unit was used, for the next start. What fails only costs its place in the order.
    pub fn touch(&self, name: Name, used: u64) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let _ = rustix::fs::utimensat(&self.fd, name.path(), &times(used), flags);
    }

    /// All units of a slot.
    pub fn list(&self, slot: u64) -> io::Result<Vec<Entry>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, slot_path(slot), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok().and_then(|file| Name::parse(slot, file));
            let Some(name) = name else { continue };
            let stat = rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
            let used =
                seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as u64);
            found.push(Entry { name, length: stat.st_size as u64, used });
        }
        Ok(found)
    }

    /// Whether so much can be written, and the disk still has some room for others.
    pub fn has_room(&self, bytes: u64) -> io::Result<bool> {
        let disk = rustix::fs::fstatvfs(&self.fd)?;
        let all = disk.f_blocks.saturating_mul(disk.f_frsize);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // Some file systems do not say.
        Ok(all == 0 || free >= bytes + FREE_MAX.min(all / 20))
    }
}
