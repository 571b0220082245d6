//! Reading and writing: the hot path. Nothing here allocates or makes a system call for a write
//! that the engine takes at once.

use std::sync::Arc;

use weir_engine::{Durability, ReadData};

use crate::attr;
use crate::errno::Errno;
use crate::front::{Front, OpenFile};

/// How a write is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteMode {
    /// The description's flags at the time of the write, those of open(2).
    pub(crate) flags: i32,
    /// The program may not keep setuid and setgid bits on what it writes.
    pub(crate) drops_privileges: bool,
}

impl Front {
    /// write(2) of `data` at `offset`. `data` is not needed any more when this returns.
    ///
    /// It need not come from the description's program: pages dirtied through a shared mapping are
    /// written on whichever description can write, later and by the kernel itself.
    pub(crate) fn write(
        &self,
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
        let inode = &open.inode;
        if !inode.is_unprivileged() {
            self.drop_privileges(inode, mode.drops_privileges);
        }
        if let Some(home) = inode.file() {
            // Before it is written, so that a destage ending right after does not restore the
            // time from before.
            home.times().note_write(attr::now());
        }
        let file = inode.node().file();
        let durability = durability(&open, mode.flags);
        self.shard.write(file, offset, data, durability, move |written| {
            done(written.map_err(Errno::from));
        });
    }

    /// read(2) of up to `len` bytes at `offset`.
    pub(crate) fn read(
        &self,
        handle: u64,
        offset: u64,
        len: usize,
        done: impl FnOnce(Result<ReadData, Errno>) + Send + 'static,
    ) {
        match self.open_file(handle) {
            Ok(open) => self.shard.read(open.inode.node().file(), offset, len, move |read| {
                done(read.map_err(Errno::from));
            }),
            Err(errno) => done(Err(errno)),
        }
    }
}

/// What must be durable before a write is acknowledged.
///
/// For a synchronous write through its page cache the kernel sends an fsync of its own before it
/// lets the program go on (generic_write_sync), so that doing it here too would be twice the work.
fn durability(open: &Arc<OpenFile>, flags: i32) -> Durability {
    if !open.uncached {
        Durability::None
    } else if flags & libc::O_SYNC == libc::O_SYNC {
        Durability::All
    } else if flags & libc::O_DSYNC != 0 {
        Durability::Data
    } else {
        Durability::None
    }
}
