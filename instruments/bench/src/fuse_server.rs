//! The FUSE server of the emulated disks and of the passthrough, on the crate fuser: threads on cloned device
//! descriptors, and one place that turns requests into calls of a [`Served`] and results into answers.
//!
//! Does not own what is served. Requests that a file system does not override are answered with ENOSYS.

#![allow(clippy::too_many_arguments)] // fuser's trait says so.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Filesystem, Generation, InitFlags, KernelConfig, LockOwner, MountOption,
    ReplyAttr, ReplyCreate, ReplyDirectory, ReplyEntry, ReplyOpen, ReplyStatfs, Request, Session,
    TimeOrNow, WriteFlags,
};

pub use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, OpenFlags, ReplyData, ReplyEmpty,
    ReplyWrite,
};

const GENERATION: Generation = Generation(0);

/// What a file system asks of the kernel.
pub struct Limits {
    /// The capability it needs or, if it is not required, prefers.
    pub capability: InitFlags,
    /// What to say where the kernel lacks it; `None` if it is not required.
    pub required: Option<&'static str>,
    /// The largest write, bytes.
    pub write_bytes_max: u32,
    /// The most requests the kernel has under way in the background.
    pub background_max: u16,
    /// Threads that receive requests.
    pub threads: usize,
    /// How long the kernel may keep names and attributes.
    pub valid: Duration,
}

/// A file system. Reads, writes and syncs answer by themselves, so that they can do it later.
pub trait Served: Send + Sync + 'static {
    /// What it asks of the kernel.
    fn limits(&self) -> Limits;
    /// The file of that name.
    fn lookup(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr>;
    /// A file's attributes, after setting its size if one is given.
    fn attributes(&self, ino: INodeNo, size: Option<u64>) -> io::Result<FileAttr>;
    /// Opens a file.
    fn open(&self, ino: INodeNo, flags: OpenFlags) -> io::Result<(FileHandle, FopenFlags)>;
    /// Reads up to `size` bytes.
    fn read(&self, handle: FileHandle, offset: u64, size: u32, reply: ReplyData);
    /// Writes all of `data`.
    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], reply: ReplyWrite);
    /// Makes what was written durable.
    fn fsync(&self, handle: FileHandle, datasync: bool, reply: ReplyEmpty);
    /// Closes what was opened.
    fn release(&self, _handle: FileHandle) {}

    /// fallocate(2).
    fn fallocate(&self, _offset: u64, _length: u64, _mode: i32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    /// Creates and opens a file.
    fn create(
        &self,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _flags: i32,
    ) -> io::Result<(FileAttr, FileHandle, FopenFlags)> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    /// Removes a name.
    fn unlink(&self, _parent: INodeNo, _name: &OsStr) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    /// All names in a directory.
    fn entries(&self, _ino: INodeNo) -> io::Result<Vec<(INodeNo, FileType, OsString)>> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    /// Blocks, all of them used, and the size of one.
    fn blocks(&self) -> (u64, u32) {
        (0, 512)
    }
}

/// Serves `served` on `mountpoint` until it is unmounted: as `source`, with `kind` for its type.
pub fn serve(served: impl Served, mountpoint: &Path, source: &str, kind: &str) -> io::Result<()> {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.into()),
        MountOption::Subtype(kind.into()),
        MountOption::DefaultPermissions,
    ];
    config.n_threads = Some(served.limits().threads);
    config.clone_fd = true;
    let valid = served.limits().valid;
    Session::new(Server { served, valid }, mountpoint, &config)?.run()
}

/// Answers with a result that has no value.
pub fn answer(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}

struct Server<S> {
    served: S,
    valid: Duration,
}

impl<S: Served> Filesystem for Server<S> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let limits = self.served.limits();
        if config.add_capabilities(limits.capability).is_err()
            && let Some(why) = limits.required
        {
            return Err(io::Error::other(why));
        }
        let _ = config.set_max_write(limits.write_bytes_max);
        let _ = config.set_max_background(limits.background_max);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.served.lookup(parent, name) {
            Ok(attr) => reply.entry(&self.valid, &attr, GENERATION),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.served.attributes(ino, None) {
            Ok(attr) => reply.attr(&self.valid, &FileAttr { ino, ..attr }),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.served.attributes(ino, size) {
            Ok(attr) => reply.attr(&self.valid, &FileAttr { ino, ..attr }),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (blocks, bytes) = self.served.blocks();
        reply.statfs(blocks, 0, 0, 1, 0, bytes, 255, bytes);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.served.unlink(parent, name), reply);
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.served.create(parent, name, mode, flags) {
            Ok((attr, handle, open)) => {
                reply.created(&self.valid, &attr, GENERATION, handle, open);
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.served.open(ino, flags) {
            Ok((handle, open)) => reply.opened(handle, open),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.served.read(fh, offset, size, reply);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.served.write(fh, offset, data, reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.served.fsync(fh, datasync, reply);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.served.fallocate(offset, length, mode, reply);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.served.release(fh);
        reply.ok();
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.served.entries(ino) {
            Ok(entries) => {
                for (at, (ino, kind, name)) in entries.iter().enumerate().skip(offset as usize) {
                    if reply.add(*ino, at as u64 + 1, *kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }
}
