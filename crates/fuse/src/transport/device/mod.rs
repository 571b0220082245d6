//! The transport over /dev/fuse, by way of the `fuser` crate, which no other module names.
//!
//! A request is handled to its end on the thread that read it, unless it has to wait for data.
//!
//! The crate hides the flags by which the kernel says, with a truncation, that setuid is to go:
//! what the program may keep is looked up instead ([`Caller::keeps_privileges`]).
//!
//! [`Caller::keeps_privileges`]: crate::credentials::Caller::keeps_privileges

mod convert;
mod listing;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags,
    PollNotifier, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, RequestId, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FileType};

use self::convert::{
    caller, from_time, open_flags, place, reply_data, reply_empty, reply_value, to_attr, to_errno,
};
use self::listing::{Names, NamesAndAttributes};
use crate::attr::{Attributes, device_from_wire};
use crate::errno::Errno;
use crate::file_system::{FileSystem, MountOptions};
use crate::inode::NodeId;
use crate::ops::attributes::SetAttributes;
use crate::ops::data::WriteMode;
use crate::ops::directories::Keeping;
use crate::ops::names::Found;
use crate::ops::space::CopySide;
use crate::transport::uring::Queues;
use crate::transport::wire::opcode;
use crate::transport::{BACKGROUND_MAX, Transport, WRITE_BYTES_MAX};

/// How long the device is left alone where only what nobody waits for comes by it.
const REST: Duration = Duration::from_millis(2);

/// What is asked of the kernel; it is done without what it does not have.
///
/// Not asked for: FUSE_WRITEBACK_CACHE, because Weir wants each write at once and with exactly its
/// bytes; FUSE_AUTO_INVAL_DATA, because then the kernel would drop what it caches after each write
/// of its own; FUSE_POSIX_LOCKS and FUSE_FLOCK_LOCKS, because the kernel keeps locks itself;
/// FUSE_ATOMIC_O_TRUNC, because a program that runs must not be truncated (see `FileSystem::open`).
const CAPABILITIES: [InitFlags; 11] = [
    // What the kernel does not drop after such a write is dropped by us: see `kernel_pages`.
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_POSIX_ACL,
    // The umask must yield to a default ACL, which home alone knows.
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Handles made from node numbers would outlive what they name.
    InitFlags::FUSE_NO_EXPORT_SUPPORT,
    InitFlags::FUSE_BIG_WRITES,
];

/// The kernel's caches, for the reclaimer's thread only: every call may wait for a lock that is held
/// while a request of ours is being answered.
pub(crate) struct KernelCache {
    notifier: fuser::Notifier,
    fs: Arc<FileSystem>,
}

impl KernelCache {
    /// Has the kernel drop a name, and the inode with it if nobody uses that.
    pub(crate) fn drop_name(&self, parent: NodeId, name: &OsStr) {
        self.ignore(self.notifier.inval_entry(INodeNo(parent.0), name));
    }

    /// Has the kernel drop an inode's attributes, but not its data.
    pub(crate) fn drop_attributes(&self, node: NodeId) {
        self.ignore(self.notifier.inval_inode(INodeNo(node.0), -1, 0));
    }

    /// Has the kernel drop an inode's attributes, and the pages that a range of bytes touches.
    pub(crate) fn drop_range(&self, node: NodeId, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return self.drop_pages(node);
        };
        self.ignore(self.notifier.inval_inode(INodeNo(node.0), offset, len));
    }

    /// Has the kernel drop an inode's attributes and data.
    pub(crate) fn drop_pages(&self, node: NodeId) {
        self.ignore(self.notifier.inval_inode(INodeNo(node.0), 0, 0));
    }

    /// What the kernel does not cache need not be dropped; and when the mount is gone, nothing is
    /// cached.
    fn ignore(&self, told: std::io::Result<()>) {
        self.fs.requests.count_notification();
        if let Err(error) = told {
            tracing::debug!("the kernel did not drop a cache entry: {error}");
        }
    }
}

/// A connection on which the kernel was greeted.
pub(crate) struct Connection {
    session: fuser::Session<Device>,
    fs: Arc<FileSystem>,
    /// Where requests come once the kernel was greeted.
    queues: Option<Queues>,
    transport: Transport,
}

impl Connection {
    /// Greets the kernel on `device`, the descriptor a mount was made with, and registers `queues`
    /// with it if it takes any. `others` lets users other than the daemon's use it; `threads` serve
    /// the device.
    ///
    /// # Errors
    /// The kernel speaks no protocol we know, or the mount is already gone.
    pub(crate) fn new(
        fs: Arc<FileSystem>,
        device: OwnedFd,
        others: bool,
        threads: usize,
        queues: Option<Queues>,
    ) -> std::io::Result<Connection> {
        let acl = if others { SessionACL::All } else { SessionACL::Owner };
        let mut config = fuser::Config::default();
        config.acl = acl;
        config.n_threads = Some(threads);
        config.clone_fd = true;
        let takes_queues = Arc::new(AtomicBool::new(false));
        let served = Device {
            fs: Arc::clone(&fs),
            takes_queues: queues.is_some().then(|| Arc::clone(&takes_queues)),
        };
        let session = fuser::Session::from_fd(served, device, acl, config)?;
        let queues = queues.filter(|_| takes_queues.load(Ordering::Relaxed));
        let transport = match queues.as_ref().map(Queues::register) {
            Some(Ok(())) => Transport::IoUring,
            Some(Err(error)) => {
                tracing::warn!("FUSE over io_uring was refused, serving the device: {error}");
                takes_queues.store(false, Ordering::Relaxed);
                Transport::Device
            }
            None => Transport::Device,
        };
        Ok(Connection { session, fs, queues, transport })
    }

    /// How requests come.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// The kernel's caches behind this connection.
    pub(crate) fn kernel_cache(&self) -> KernelCache {
        KernelCache { notifier: self.session.notifier(), fs: Arc::clone(&self.fs) }
    }

    /// Serves requests until the mount is gone.
    ///
    /// # Errors
    /// The device failed, or a thread panicked.
    pub(crate) fn serve(self) -> std::io::Result<()> {
        let Connection { session, fs, queues, .. } = self;
        let served = session.run();
        let stopped = queues.map_or(Ok(()), Queues::stop);
        fs.discard_nameless();
        served.and(stopped)
    }
}

/// Turns requests into calls of the front end.
struct Device {
    fs: Arc<FileSystem>,
    /// Whether the kernel takes queues, if they are there for it.
    takes_queues: Option<Arc<AtomicBool>>,
}

impl Device {
    /// Where requests come by queues, nobody waits for what comes by the device. Not to be waiting for it, either, spares
    /// whoever has the kernel forget something the time to wake us, and then all comes at once: as calls for one
    /// request, so that there is one rest for it.
    fn rest_after(&self, request: &Request) {
        thread_local! {
            static RESTED_AFTER: Cell<Option<RequestId>> = const { Cell::new(None) };
        }
        let by_queues =
            self.takes_queues.as_ref().is_some_and(|takes| takes.load(Ordering::Relaxed));
        let is_first = RESTED_AFTER.replace(Some(request.unique())) != Some(request.unique());
        if by_queues && is_first && !self.fs.is_short_of_descriptors() {
            thread::sleep(REST);
        }
    }

    fn options(&self) -> &MountOptions {
        &self.fs.options
    }

    fn reply_entry(&self, reply: ReplyEntry, entry: Result<Attributes, Errno>) {
        let options = self.options();
        match entry {
            Ok(attributes) => reply.entry_with_ttls(
                &options.attr_timeout_of(&attributes),
                &options.entry_timeout,
                &to_attr(&attributes),
                Generation(attributes.generation),
            ),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }
}

impl Filesystem for Device {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for capability in CAPABILITIES {
            if let Err(missing) = config.add_capabilities(capability) {
                tracing::debug!("the kernel lacks {missing:?}");
            }
        }
        if let Some(takes) = &self.takes_queues {
            let taken = config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
            takes.store(taken, Ordering::Relaxed);
        }
        // The values given back on success are those from before.
        let accepted = config.set_max_write(WRITE_BYTES_MAX).is_ok()
            && config.set_max_background(BACKGROUND_MAX).is_ok();
        debug_assert!(accepted);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.fs.requests.count(opcode::LOOKUP);
        match self.fs.lookup(NodeId(parent.0), name) {
            Ok(Found::Entry(attributes)) => self.reply_entry(reply, Ok(attributes)),
            Ok(Found::Nothing(timeout)) => {
                // Node 0 says that there is nothing by that name.
                let nothing = to_attr(&Attributes::unknown(NodeId(0), FileType::RegularFile));
                reply.entry_with_ttls(&Duration::ZERO, &timeout, &nothing, Generation(0));
            }
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn forget(&self, request: &Request, node: INodeNo, lookups: u64) {
        self.fs.requests.count(opcode::FORGET);
        self.fs.forget(NodeId(node.0), lookups);
        self.rest_after(request);
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.fs.requests.count(opcode::GETATTR);
        match self.fs.get_attributes(NodeId(node.0)) {
            Ok(attributes) => {
                reply.attr(&self.options().attr_timeout_of(&attributes), &to_attr(&attributes));
            }
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        // Sent only with the write-back cache.
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.fs.requests.count(opcode::SETATTR);
        let atime = atime.map(from_time);
        let mtime = mtime.map(from_time);
        let set = SetAttributes { mode, uid, gid, size, atime, mtime };
        let options = self.options().clone();
        self.fs.set_attributes(&caller(request), NodeId(node.0), set, move |set| match set {
            Ok(attributes) => {
                reply.attr(&options.attr_timeout_of(&attributes), &to_attr(&attributes));
            }
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        self.fs.requests.count(opcode::READLINK);
        match self.fs.read_link(NodeId(node.0)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.fs.requests.count(opcode::MKNOD);
        let new = place(parent, name);
        let device = device_from_wire(device);
        let made = self.fs.make_node(&caller(request), new, mode, umask, device);
        self.reply_entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.fs.requests.count(opcode::MKDIR);
        let made = self.fs.make_directory(&caller(request), place(parent, name), mode, umask);
        self.reply_entry(reply, made);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.fs.requests.count(opcode::UNLINK);
        reply_empty(reply, self.fs.remove_name(NodeId(parent.0), name, AtFlags::empty()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.fs.requests.count(opcode::RMDIR);
        reply_empty(reply, self.fs.remove_name(NodeId(parent.0), name, AtFlags::REMOVEDIR));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.fs.requests.count(opcode::SYMLINK);
        let new = place(parent, name);
        self.reply_entry(reply, self.fs.make_symlink(&caller(request), new, target.as_os_str()));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::RENAME2);
        let (from, to) = (place(parent, name), place(new_parent, new_name));
        self.fs.rename(from, to, flags.bits(), move |renamed| reply_empty(reply, renamed));
    }

    fn link(
        &self,
        _request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.fs.requests.count(opcode::LINK);
        self.reply_entry(reply, self.fs.make_link(NodeId(node.0), place(new_parent, new_name)));
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.fs.requests.count(opcode::OPEN);
        self.fs.open(&caller(request), NodeId(node.0), flags.0, move |opened| match opened {
            Ok(opened) => reply.opened(FileHandle(opened.handle), open_flags(&opened)),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.fs.requests.count(opcode::CREATE);
        let new = place(parent, name);
        let options = self.options().clone();
        self.fs.create(&caller(request), new, mode, umask, flags, move |created| match created {
            // The reply has one timeout for both.
            Ok((attributes, opened)) => reply.created(
                &options.attr_timeout_of(&attributes).min(options.entry_timeout),
                &to_attr(&attributes),
                Generation(attributes.generation),
                FileHandle(opened.handle),
                open_flags(&opened),
            ),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.fs.requests.count(opcode::READ);
        // The kernel names the owner of locks in direct reads and writes alone.
        let direct = lock_owner.is_some();
        self.fs.read(handle.0, offset, len as usize, direct, move |read| match read {
            Ok(data) => reply_data(reply, &data),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn write(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.fs.requests.count(opcode::WRITE);
        let drops_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written_back = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let direct = lock_owner.is_some();
        let mode = WriteMode { flags: flags.0, drops_privileges, written_back, direct };
        // Below WRITE_BYTES_MAX.
        let len = data.len() as u32;
        let caller = caller(request);
        self.fs.write(&caller, handle.0, offset, data, mode, move |written| match written {
            Ok(()) => reply.written(len),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::FLUSH);
        reply_empty(reply, self.fs.flush(handle.0));
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::RELEASE);
        self.fs.close(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::FSYNC);
        self.fs.sync(handle.0, data_only, move |synced| reply_empty(reply, synced));
    }

    fn opendir(&self, request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.fs.requests.count(opcode::OPENDIR);
        match self.fs.open_directory(&caller(request), NodeId(node.0)) {
            Ok(opened) => {
                let flags = match opened.keeping {
                    Keeping::Nothing => FopenFlags::empty(),
                    Keeping::This => FopenFlags::FOPEN_CACHE_DIR,
                    Keeping::Last => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
                };
                reply.opened(FileHandle(opened.handle), flags);
            }
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        position: u64,
        mut reply: ReplyDirectory,
    ) {
        self.fs.requests.count(opcode::READDIR);
        match self.fs.list(handle.0, position, &mut Names(&mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        position: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.fs.requests.count(opcode::READDIRPLUS);
        let timeout = self.options().attr_timeout.min(self.options().entry_timeout);
        let mut listing = NamesAndAttributes { reply: &mut reply, timeout };
        match self.fs.list(handle.0, position, &mut listing) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::RELEASEDIR);
        self.fs.close_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::FSYNCDIR);
        self.fs.sync_directory(handle.0, move |synced| reply_empty(reply, synced));
    }

    fn statfs(&self, _request: &Request, node: INodeNo, reply: ReplyStatfs) {
        self.fs.requests.count(opcode::STATFS);
        match self.fs.statfs(NodeId(node.0)) {
            Ok(home) => reply.statfs(
                home.f_blocks,
                home.f_bfree,
                home.f_bavail,
                home.f_files,
                home.f_ffree,
                u32::try_from(home.f_bsize).unwrap_or(4096),
                u32::try_from(home.f_namemax).unwrap_or(255),
                u32::try_from(home.f_frsize).unwrap_or(4096),
            ),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::SETXATTR);
        let caller = caller(request);
        self.fs.set_xattr(&caller, NodeId(node.0), name, value, flags, move |set| {
            reply_empty(reply, set);
        });
    }

    fn getxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        len_max: u32,
        reply: ReplyXattr,
    ) {
        self.fs.requests.count(opcode::GETXATTR);
        reply_value(reply, self.fs.get_xattr(NodeId(node.0), name, len_max));
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, len_max: u32, reply: ReplyXattr) {
        self.fs.requests.count(opcode::LISTXATTR);
        reply_value(reply, self.fs.list_xattrs(NodeId(node.0), len_max));
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.fs.requests.count(opcode::REMOVEXATTR);
        reply_empty(reply, self.fs.remove_xattr(NodeId(node.0), name));
    }

    fn access(&self, _request: &Request, _node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        self.fs.requests.count(34);
        // The kernel checks it, and asks no more after this.
        reply.error(to_errno(Errno::ENOSYS));
    }

    fn ioctl(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        flags: IoctlFlags,
        command: u32,
        data: &[u8],
        out_len: u32,
        reply: ReplyIoctl,
    ) {
        self.fs.requests.count(opcode::IOCTL);
        if flags.contains(IoctlFlags::FUSE_IOCTL_DIR) {
            return reply.error(to_errno(Errno::ENOTTY));
        }
        let caller = caller(request);
        self.fs.control(&caller, handle.0, command, data, move |answer| match answer {
            Ok(message) => reply.ioctl(0, &message[..message.len().min(out_len as usize)]),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn poll(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        self.fs.requests.count(40);
        // The kernel takes the file for always ready, and asks no more after this.
        reply.error(to_errno(Errno::ENOSYS));
    }

    fn fallocate(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.fs.requests.count(opcode::FALLOCATE);
        self.fs.allocate(&caller(request), handle.0, (offset, len), mode, move |allocated| {
            reply_empty(reply, allocated);
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.fs.requests.count(opcode::LSEEK);
        self.fs.seek(handle.0, offset, whence, move |found| match found {
            Ok(position) => reply.offset(position.cast_signed()),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _node_in: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _node_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.fs.requests.count(opcode::COPY_FILE_RANGE);
        let from = CopySide { handle: handle_in.0, offset: offset_in };
        let to = CopySide { handle: handle_out.0, offset: offset_out };
        self.fs.copy_range(&caller(request), from, to, len, move |copied| match copied {
            Ok(bytes) => reply.written(bytes),
            Err(errno) => reply.error(to_errno(errno)),
        });
    }
}
