//! Reading and writing: the hot path. Nothing here allocates or makes a system call for a write
//! that the engine takes at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_engine::{Durability, ReadData};

use crate::attr;
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};
use crate::kernel_pages::Stale;
use crate::open_file::OpenFile;
use crate::reclaimer::Pages;
use crate::transport::BACKGROUND_MAX;

/// Most direct writes whose answers wait until the kernel has dropped stale pages. Further ones are answered at once, and
/// a buffered reader may see the old bytes for a moment longer.
const DROPPING_MAX: usize = BACKGROUND_MAX as usize * 3 / 4;

/// The conditions of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteMode {
    /// The description's flags at the time of the write, those of open(2).
    pub(crate) flags: i32,
    /// The write must clear setuid and setgid bits.
    pub(crate) drops_privileges: bool,
    /// The kernel writes back a page of its cache; the write is not a program's write(2).
    pub(crate) written_back: bool,
    /// The write bypasses the kernel's page cache.
    pub(crate) direct: bool,
}

/// A request of a write past the kernel's page cache, for [`crate::lane::lane_state::InodeLane::direct_write`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectWrite {
    thread: u32,
    handle: u64,
    range: (u64, u64),
    appends: bool,
}

impl DirectWrite {
    pub(crate) fn new(
        caller: &Caller,
        handle: u64,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> DirectWrite {
        let range = (offset, offset.saturating_add(data.len() as u64));
        let appends = mode.flags & libc::O_APPEND != 0;
        DirectWrite { thread: caller.pid, handle, range, appends }
    }

    /// Its answer is an error, although it may have been done.
    pub(crate) fn is_answered_by_an_error(self, fs: &FileSystem) {
        if let Ok(open) = fs.open_file(self.handle) {
            self.note(fs, &open.inode, true);
        }
    }

    fn note(self, fs: &FileSystem, inode: &Inode, failed: bool) {
        let DirectWrite { thread, handle, range, appends } = self;
        if inode.lane.was_posted_to() && (failed || !appends) {
            let size = fs.shard.size(inode.node().file()).unwrap_or(0);
            inode.lane.direct_write((thread, handle), range, appends, size, failed);
        }
    }
}

impl FileSystem {
    /// write(2) of `data` at `offset`. `data` is not needed any more when this returns.
    ///
    /// It need not come from the description's program: pages dirtied through a shared mapping are
    /// written on whichever description can write, later and by the kernel itself.
    pub(crate) fn write(
        self: &Arc<Self>,
        caller: &Caller,
        handle: u64,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let open = match self.open_file(handle) {
            Ok(open) => open,
            Err(errno) => return done(Err(errno)),
        };
        if self.try_settle(&open.inode) {
            return self.write_settled(caller, (handle, &open), offset, data, mode, done);
        }
        let (fs, caller, data) = (Arc::clone(self), *caller, data.to_vec());
        let inode = Arc::clone(&open.inode);
        self.settled(&inode, move || {
            fs.write_settled(&caller, (handle, &open), offset, &data, mode, done);
        });
    }

    fn write_settled(
        self: &Arc<Self>,
        caller: &Caller,
        (handle, open): (u64, &Arc<OpenFile>),
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if mode.direct {
            let fs = Arc::clone(self);
            let (inode, len) = (Arc::clone(&open.inode), data.len() as u64);
            let direct = DirectWrite::new(caller, handle, offset, data, mode);
            direct.note(self, &inode, false);
            return self.write_noted(caller, open, offset, data, mode, move |written| {
                if written.is_err() {
                    direct.note(&fs, &inode, true);
                }
                fs.drop_stale(&inode, offset, len, move || done(written));
            });
        }
        open.inode.kernel_pages.buffered_access();
        self.write_noted(caller, open, offset, data, mode, done);
    }

    /// Has the kernel drop its cached pages of a range that a direct write has changed, then runs `then`.
    fn drop_stale(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        let stale = inode.kernel_pages.direct_write();
        let pages = match stale {
            Stale::Nothing => return then(),
            Stale::Range => Pages::Range(offset, len),
            Stale::All => Pages::All,
        };
        // The kernel may have to read or write a page before it can drop it, and has at most BACKGROUND_MAX requests
        // of that kind in flight, asynchronous direct writes included: some must be left.
        let waits = self.dropping.fetch_add(1, Ordering::Relaxed) < DROPPING_MAX;
        let (then, at_once) = if waits { (Some(then), None) } else { (None, Some(then)) };
        let (fs, of) = (Arc::clone(self), Arc::clone(inode));
        self.reclaimer.forget_pages(inode.node(), pages, move || {
            if stale == Stale::All {
                of.kernel_pages.all_dropped();
            }
            fs.dropping.fetch_sub(1, Ordering::Relaxed);
            if let Some(then) = then {
                then();
            }
        });
        if let Some(then) = at_once {
            then();
        }
    }

    fn write_noted(
        &self,
        caller: &Caller,
        open: &Arc<OpenFile>,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let inode = &open.inode;
        if !inode.is_unprivileged() {
            self.drop_privileges(inode, caller, mode.drops_privileges);
        }
        if let Some(home) = inode.file() {
            // Before the data is written, so that a destage that ends right after does not restore the former time.
            home.times().note_write(attr::now());
        }
        let file = inode.node().file();
        let durability = durability(open, mode);
        let appends = mode.flags & libc::O_APPEND != 0 && !mode.written_back;
        if appends && (inode.lane.was_posted_to() || open.lane.is_direct()) {
            // The kernel chose the end that it knows, but other writers may have appended by the lane.
            return self.shard.append(file, data, durability, move |written| {
                done(written.map_err(Errno::from));
            });
        }
        self.shard.write(file, offset, data, durability, move |written| {
            done(written.map_err(Errno::from));
        });
    }

    /// read(2) of up to `len` bytes at `offset`; `direct` if it bypasses the kernel's page cache.
    pub(crate) fn read(
        self: &Arc<Self>,
        handle: u64,
        offset: u64,
        len: usize,
        direct: bool,
        done: impl FnOnce(Result<ReadData, Errno>) + Send + 'static,
    ) {
        match self.open_file(handle) {
            Ok(open) => {
                if !direct {
                    open.inode.kernel_pages.buffered_access();
                }
                let fs = Arc::clone(self);
                let inode = Arc::clone(&open.inode);
                self.settled(&inode, move || {
                    fs.shard.read(open.inode.node().file(), offset, len, move |read| {
                        done(read.map_err(Errno::from));
                    });
                });
            }
            Err(errno) => done(Err(errno)),
        }
    }
}

/// What must be durable before a write is acknowledged.
///
/// After a synchronous write through its page cache, the kernel itself sends an fsync before the call returns
/// (generic_write_sync). Syncing here as well would do the work twice. It sends none after an asynchronous write past its page
/// cache (io_submit(2), io_uring), and nothing tells those from others.
fn durability(open: &Arc<OpenFile>, WriteMode { flags, direct, .. }: WriteMode) -> Durability {
    if !open.uncached && !direct {
        Durability::None
    } else if flags & libc::O_SYNC == libc::O_SYNC {
        Durability::All
    } else if flags & libc::O_DSYNC != 0 {
        Durability::Data
    } else {
        Durability::None
    }
}
