//! FUSE: turns requests into calls of [`FileSystem`] and results into answers. Requests are answered on a few threads, each
//! of which may wait for the bucket.
//!
//! Hard links, devices and extended attributes are not there; programs are told so.

#![allow(clippy::too_many_arguments)] // fuser's trait says so.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};

use crate::fs::{self, Entry, Error, FileSystem, Made, NewAttributes, Result, Stat};
use crate::metadata::{Kind, Time};

const GENERATION: Generation = Generation(0);
const THREADS: usize = 16;
const WRITE_BYTES_MAX: u32 = 1 << 20;
const READ_AHEAD_BYTES: u32 = 1 << 20;
/// How long the kernel believes names and attributes. All changes here go through it; others' are seen after this.
const VALID: Duration = Duration::from_secs(1);
const BLOCK_BYTES: u32 = 4096;
/// The size that a bucket is said to have, in blocks: an exbibyte, which it never fills.
const BLOCKS: u64 = 1 << 48;

/// The root's extended attribute with the counts.
pub const COUNTS: &str = "user.weir.bucket";

struct Server {
    system: Arc<FileSystem>,
    listings: Mutex<HashMap<u64, Arc<Vec<Entry>>>>,
    next_listing: AtomicU64,
}

/// Mounts a file system; requests wait until [`Session::run`].
pub fn mount(
    system: Arc<FileSystem>,
    mountpoint: &Path,
    source: &str,
    allow_other: bool,
) -> io::Result<Session<impl Filesystem + use<>>> {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.into()),
        // fuser's own option of that name does not reach the kernel where root mounts.
        MountOption::CUSTOM("subtype=weir-bucket".into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ];
    if allow_other {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let server = Server { system, listings: Mutex::default(), next_listing: AtomicU64::new(1) };
    Session::new(server, mountpoint, &config)
}

fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

/// The errno of an answer. What the caller cannot see from it is said aloud.
fn failed(error: &Error) -> Errno {
    if matches!(error, Error::Store(_) | Error::InDoubt(_)) && error.errno() == libc::EIO {
        eprintln!("weir-bucket: {error}");
    }
    errno(error)
}

fn name_of(name: &OsStr) -> Result<&str> {
    // Keys are UTF-8.
    name.to_str().ok_or(Error::InvalidName)
}

fn system_time(time: Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    if time.seconds < 0 {
        SystemTime::UNIX_EPOCH - seconds + nanoseconds
    } else {
        SystemTime::UNIX_EPOCH + seconds + nanoseconds
    }
}

fn time_of(time: TimeOrNow) -> Time {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => return fs::now(),
    };
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let (seconds, rest) = (before.as_secs() as i64, before.subsec_nanos());
            match rest {
                0 => Time { seconds: -seconds, nanoseconds: 0 },
                _ => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - rest },
            }
        }
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
    }
}

fn attributes(stat: &Stat) -> FileAttr {
    let time = system_time(stat.attributes.mtime);
    FileAttr {
        ino: INodeNo(stat.id),
        size: stat.size,
        blocks: stat.size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(stat.attributes.kind),
        perm: stat.attributes.mode as u16,
        nlink: stat.links,
        uid: stat.attributes.uid,
        gid: stat.attributes.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn answer(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(failed(&error)),
    }
}

impl Server {
    fn answer_entry(&self, result: Result<Stat>, reply: ReplyEntry) {
        match result {
            Ok(stat) => reply.entry(&VALID, &attributes(&stat), GENERATION),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: Kind,
        mode: u32,
        target: Option<String>,
        open: bool,
    ) -> Result<Stat> {
        let made = Made { kind, mode, uid: req.uid(), gid: req.gid(), target };
        self.system.make(parent.0, name_of(name)?, made, open)
    }

    fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.intersects(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT) {
            return Err(Error::Invalid);
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let from = (from.0.0, name_of(from.1)?);
        let to = (to.0.0, name_of(to.1)?);
        self.system.rename(from, to, replace)
    }
}

impl Filesystem for Server {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_MAX_PAGES;
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_readahead(READ_AHEAD_BYTES);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = name_of(name).and_then(|name| match self.system.lookup(parent.0, name) {
            Err(Error::InvalidName) => Err(Error::NotFound),
            other => other,
        });
        self.answer_entry(found, reply);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.system.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.system.attributes(ino.0) {
            Ok(stat) => reply.attr(&VALID, &attributes(&stat)),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let new = NewAttributes { mode, uid, gid, size, mtime: mtime.map(time_of) };
        match self.system.set_attributes(ino.0, new) {
            Ok(stat) => reply.attr(&VALID, &attributes(&stat)),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.system.target(ino.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => self.make(req, parent, name, Kind::File, mode, None, false),
            _ => Err(Error::NotPermitted),
        };
        self.answer_entry(made, reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.answer_entry(self.make(req, parent, name, Kind::Directory, mode, None, false), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(name_of(name).and_then(|name| self.system.unlink(parent.0, name)), reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(name_of(name).and_then(|name| self.system.rmdir(parent.0, name)), reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = match target.to_str() {
            Some(target) => {
                self.make(req, parent, name, Kind::Symlink, 0o777, Some(target.to_owned()), false)
            }
            None => Err(Error::InvalidName),
        };
        self.answer_entry(made, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer(Server::rename(self, (parent, name), (newparent, newname), flags), reply);
    }

    fn link(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _newparent: INodeNo,
        _newname: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.system.open(ino.0) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(req, parent, name, Kind::File, mode, None, true) {
            Ok(stat) => reply.created(
                &VALID,
                &attributes(&stat),
                GENERATION,
                FileHandle(0),
                FopenFlags::empty(),
            ),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.system.read(ino.0, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.system.write(ino.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.system.release(ino.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer(self.system.sync_file(ino.0), reply);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer(self.system.sync_below(ino.0), reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.system.entries(ino.0) {
            Ok(entries) => {
                let handle = self.next_listing.fetch_add(1, Relaxed);
                let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
                listings.insert(handle, Arc::new(entries));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(failed(&error)),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listing = listings.get(&fh.0).cloned();
        if offset == 0 {
            // rewinddir(3) shows the directory as it is now.
            drop(listings);
            match self.system.entries(ino.0) {
                Ok(entries) => {
                    let entries = Arc::new(entries);
                    listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
                    listings.insert(fh.0, entries.clone());
                    drop(listings);
                    listing = Some(entries);
                }
                Err(error) => return reply.error(failed(&error)),
            }
        } else {
            drop(listings);
        }
        let listing = listing.unwrap_or_default();
        let own = [(1, ino.0, "."), (2, self.system.parent(ino.0), "..")];
        let own = own.into_iter().filter(|(position, ..)| *position > offset);
        let own = own.map(|(position, id, name)| (position, id, Kind::Directory, name));
        // A position says which entry it is behind, whatever was made and removed since: numbers are above the root's, which is 1.
        let behind = listing.partition_point(|entry| entry.id + 2 <= offset);
        let entries = listing[behind..]
            .iter()
            .map(|entry| (entry.id + 2, entry.id, entry.kind, entry.name.as_str()));
        for (position, id, kind, name) in own.chain(entries) {
            if reply.add(INodeNo(id), position, file_type(kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        listings.remove(&fh.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // Space in a bucket need not be reserved.
        let result = match mode {
            0 => self.system.allocate(ino.0, offset + length),
            libc::FALLOC_FL_KEEP_SIZE => Ok(()),
            _ => Err(Error::Unsupported),
        };
        answer(result, reply);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino.0 != fs::ROOT || name != COUNTS {
            return reply.error(Errno::ENODATA);
        }
        let counts = self.system.counts();
        match size as usize {
            0 => reply.size(counts.len() as u32),
            room if room < counts.len() => reply.error(Errno::ERANGE),
            _ => reply.data(counts.as_bytes()),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        match size {
            0 => reply.size(0),
            _ => reply.data(&[]),
        }
    }

    fn removexattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EOPNOTSUPP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_kept() {
        for time in [
            Time { seconds: -2, nanoseconds: 250_000_000 },
            Time { seconds: 3, nanoseconds: 1 },
            Time { seconds: -2, nanoseconds: 0 },
        ] {
            assert_eq!(time_of(TimeOrNow::SpecificTime(system_time(time))), time);
        }
    }
}
