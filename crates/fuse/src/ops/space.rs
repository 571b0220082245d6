//! Space: allocating and freeing it, finding holes, copying ranges within home.
//!
//! All of these are done at home while the file is frozen: the dirty data of the range goes home first, the
//! home file system does the work, and cached pages of a range that changed are dropped.

use std::sync::Arc;

use weir_backend::Copied;
use weir_engine::{Error, FreezeEnd, FreezeScope, PAGE_BYTES};

use crate::attr;
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};
use crate::open_file::OpenFile;
use crate::ops::attributes::resize_at_home;

/// Most bytes that one copy_file_range(2) copies: the program asks again for the rest, and other
/// requests on the file run in between.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// The end of a freeze under which nothing changed.
const UNCHANGED: FreezeEnd = FreezeEnd { discard: None, size: None, written: false };

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySide {
    /// The open description.
    pub(crate) handle: u64,
    /// First byte.
    pub(crate) offset: u64,
}

impl FileSystem {
    /// fallocate(2), all modes home has.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        caller: &Caller,
        handle: u64,
        range: (u64, u64),
        mode: i32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let open = match self.check_writable().and_then(|()| self.open_file_at_home(handle)) {
            Ok(open) => open,
            Err(errno) => return done(Err(errno)),
        };
        let Some(effect) = Effect::of(mode, range) else {
            return done(Err(Errno::EINVAL));
        };
        self.drop_privileges_for(&open.inode, caller);
        let user = caller.uid;
        let file = open.inode.node().file();
        let fs = Arc::clone(self);
        let inode = Arc::clone(&open.inode);
        if self.shard.is_ordered() {
            if effect.changed.is_some() {
                // The log has no records of that; programs write zeros or copy instead.
                return done(Err(Errno::EOPNOTSUPP));
            }
            return self
                .settled(&inode, move || fs.allocate_in_order(open, user, range, effect, done));
        }
        self.settled(&inode, move || {
            let shard = Arc::clone(&fs.shard);
            shard.freeze(file, effect.scope(), move |granted| {
                let size = fs.shard.size(file).unwrap_or(0);
                let allocated = allocate_at_home(&open.inode, user, granted, range, mode);
                let end = match &allocated {
                    Ok(()) => effect.end(&open.inode, size),
                    Err(_) => UNCHANGED,
                };
                (end, move || done(allocated))
            });
        });
    }

    /// As [`FileSystem::allocate`] where everything is logged: home reserves the space, which no program sees, and the file's new
    /// size follows by the log.
    fn allocate_in_order(
        self: &Arc<Self>,
        open: Arc<OpenFile>,
        user: u32,
        range: (u64, u64),
        effect: Effect,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let fs = Arc::clone(self);
        let file = open.inode.node().file();
        self.shard.freeze(file, FreezeScope::unchanging(None), move |granted| {
            let keep = libc::FALLOC_FL_KEEP_SIZE;
            let reserved = allocate_at_home(&open.inode, user, granted, range, keep);
            let answer = move || match (reserved, effect.reaches) {
                (Ok(()), Some(reaches)) => fs.grow(&open.inode, reaches, done),
                (reserved, _) => done(reserved),
            };
            (UNCHANGED, answer)
        });
    }

    /// Gives a file a size, unless it is longer.
    fn grow(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        reaches: u64,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
        let file = inode.node().file();
        self.shard.freeze(file, FreezeScope::growing(reaches), move |granted| {
            let is_long = fs.shard.size(file).is_some_and(|size| size >= reaches);
            let (end, grown) = match granted {
                Ok(()) if is_long => (UNCHANGED, Ok(())),
                granted => resize_at_home(&inode, granted, reaches),
            };
            (end, move || done(grown))
        });
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE.
    pub(crate) fn seek(
        self: &Arc<Self>,
        handle: u64,
        offset: i64,
        whence: i32,
        done: impl FnOnce(Result<u64, Errno>) + Send + 'static,
    ) {
        let open = match self.open_file_at_home(handle) {
            Ok(open) => open,
            Err(errno) => return done(Err(errno)),
        };
        if !matches!(whence, libc::SEEK_DATA | libc::SEEK_HOLE) {
            return done(Err(Errno::EINVAL));
        }
        let Ok(offset) = u64::try_from(offset) else { return done(Err(Errno::ENXIO)) };
        // Home shows holes correctly only when all data is home.
        let everything = FreezeScope::unchanging(Some((0, u64::MAX)));
        let (fs, inode) = (Arc::clone(self), Arc::clone(&open.inode));
        self.settled(&inode, move || {
            fs.shard.freeze(open.inode.node().file(), everything, move |granted| {
                let found = granted.map_err(Errno::from).and_then(|()| {
                    let home = open.inode.file().ok_or(Errno::EINVAL)?;
                    Ok(match whence {
                        libc::SEEK_DATA => home.seek_data(offset)?,
                        _ => home.seek_hole(offset)?,
                    })
                });
                (UNCHANGED, move || done(found))
            });
        });
    }

    /// copy_file_range(2) of up to `len` bytes. Fewer may be copied. EOPNOTSUPP means that home
    /// cannot: the kernel then copies by reading and writing.
    ///
    /// The source is flushed under a freeze of its own, which ends before the destination is frozen, so that
    /// two copies in opposite directions do not wait for each other. What is copied is the source as it was
    /// at some time during the call.
    pub(crate) fn copy_range(
        self: &Arc<Self>,
        caller: &Caller,
        from: CopySide,
        to: CopySide,
        len: u64,
        done: impl FnOnce(Result<u32, Errno>) + Send + 'static,
    ) {
        let sides = self
            .check_writable()
            .and_then(|()| Ok((self.open_file(from.handle)?, self.open_file(to.handle)?)));
        let (source, destination) = match sides {
            Ok(sides) => sides,
            Err(errno) => return done(Err(errno)),
        };
        let is_ordered = self.shard.is_ordered();
        if is_ordered || !source.inode.is_at_home() || !destination.inode.is_at_home() {
            // The kernel copies by reading and writing, which does not wait for home, and is logged.
            return done(Err(Errno::EOPNOTSUPP));
        }
        let len = len.min(COPY_BYTES_MAX);
        self.drop_privileges_for(&destination.inode, caller);
        let user = caller.uid;
        let fs = Arc::clone(self);
        let (of_source, of_destination) =
            (Arc::clone(&source.inode), Arc::clone(&destination.inode));
        let settled = Arc::clone(self);
        self.settled(&of_source, move || {
            let then = Arc::clone(&settled);
            settled.settled(&of_destination, move || {
                // To the end, so that the source is as long at home as it is here.
                let flush = FreezeScope::unchanging(Some((from.offset, u64::MAX)));
                then.shard.freeze(source.inode.node().file(), flush, move |flushed| {
                    let answer = move || match flushed {
                        Ok(()) => fs.copy_flushed(
                            (source, from.offset),
                            (destination, to.offset),
                            len,
                            user,
                            done,
                        ),
                        Err(error) => done(Err(error.into())),
                    };
                    (UNCHANGED, answer)
                });
            });
        });
    }

    /// The second half of a copy: the source's range is home.
    fn copy_flushed(
        self: &Arc<Self>,
        from: (Arc<OpenFile>, u64),
        to: (Arc<OpenFile>, u64),
        len: u64,
        user: u32,
        done: impl FnOnce(Result<u32, Errno>) + Send + 'static,
    ) {
        let fs = Arc::clone(self);
        let file = to.0.inode.node().file();
        // The range itself is flushed because the copy may end early. The data behind the range is flushed
        // because the copy may move the file's end at home without the engine's knowledge, and the engine
        // reads nothing from past the end that it knows.
        let flush = FreezeScope::changing(Some((to.1, u64::MAX)), to.1);
        self.shard.freeze(file, flush, move |granted| {
            let home = to.0.inode.file();
            let copied = granted.map_err(Errno::from).and_then(|()| {
                copy_at_home(user, (&from.0.inode, from.1), (&to.0.inode, to.1), len)
            });
            let end = match &copied {
                Ok(copied) if copied.bytes > 0 => {
                    let copied_to = to.1 + copied.bytes as u64;
                    let is_lost = matches!(copied.synced, Some(Err(_)));
                    let reaches = match home.filter(|_| is_lost) {
                        Some(home) => home.home_attributes().map_or(0, |now| now.size),
                        None => copied_to,
                    };
                    let size = fs.shard.size(file).unwrap_or(0);
                    FreezeEnd {
                        discard: Some((to.1, copied_to)),
                        size: (reaches > size).then_some(reaches),
                        written: !matches!(copied.synced, Some(Ok(()))),
                    }
                }
                _ => UNCHANGED,
            };
            let copied = copied.and_then(|copied| {
                copied.synced.unwrap_or(Ok(())).map_err(Errno::of_copy)?;
                Ok(u32::try_from(copied.bytes).unwrap_or(u32::MAX))
            });
            (end, move || done(copied))
        });
    }
}

/// What a mode of fallocate(2) does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effect {
    /// The range that must be home before.
    flush: Option<(u64, u64)>,
    /// The range whose content changes.
    changed: Option<(u64, u64)>,
    /// The least size of the file afterwards.
    reaches: Option<u64>,
    /// The data behind the range moves, so that only home knows the new size.
    moves: bool,
}

impl Effect {
    /// `None` if the range is empty, or ends past the largest offset of a file.
    fn of(mode: i32, (offset, len): (u64, u64)) -> Option<Effect> {
        let end = offset.checked_add(len).filter(|&end| len > 0 && end <= i64::MAX as u64)?;
        let range = Some((offset, end));
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let reaches = (!keeps_size).then_some(end);
        let none = Effect { flush: None, changed: None, reaches: None, moves: false };
        Some(if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
            let behind = Some((offset, u64::MAX));
            Effect { flush: Some((0, u64::MAX)), changed: behind, moves: true, ..none }
        } else if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            Effect { flush: range, changed: range, ..none }
        } else if mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
            Effect { flush: range, changed: range, reaches, ..none }
        } else {
            Effect { reaches, ..none }
        })
    }

    /// The freeze to ask for.
    fn scope(&self) -> FreezeScope {
        FreezeScope {
            flush: self.flush,
            changes_from: self.changed.map(|(from, _)| from),
            size: None,
        }
    }

    /// The end of the freeze for a file that was `size` bytes long.
    fn end(&self, inode: &Inode, size: u64) -> FreezeEnd {
        let size = if self.moves {
            let home = inode.file().and_then(|home| home.home_attributes().ok());
            home.map(|home| home.size)
        } else {
            self.reaches.filter(|&reaches| reaches > size)
        };
        // A hole of whole pages has no bytes.
        let is_whole = |at: u64| at.is_multiple_of(PAGE_BYTES as u64);
        let written = self.changed.is_some_and(|(from, to)| !is_whole(from) || !is_whole(to));
        FreezeEnd { discard: self.changed, size, written: written || self.moves }
    }
}

fn allocate_at_home(
    inode: &Inode,
    user: u32,
    granted: Result<(), Error>,
    (offset, len): (u64, u64),
    mode: i32,
) -> Result<(), Errno> {
    granted?;
    let home = inode.file().ok_or(Errno::EINVAL)?;
    home.allocate(user, mode, offset, len)?;
    home.times().note_write(attr::now());
    Ok(())
}

fn copy_at_home(
    user: u32,
    (source, from): (&Inode, u64),
    (destination, to): (&Inode, u64),
    len: u64,
) -> Result<Copied, Errno> {
    let source = source.file().ok_or(Errno::EINVAL)?;
    let home = destination.file().ok_or(Errno::EINVAL)?;
    let copied = home.copy_from(user, (source, from), to, len).map_err(Errno::of_copy)?;
    if copied.bytes > 0 {
        home.times().note_write(attr::now());
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_their_effects() {
        let plain = Effect::of(0, (100, 50)).unwrap();
        assert_eq!(plain.reaches, Some(150));
        assert_eq!((plain.flush, plain.changed), (None, None));
        let keep = Effect::of(libc::FALLOC_FL_KEEP_SIZE, (100, 50)).unwrap();
        assert_eq!(keep.reaches, None);
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let punch = Effect::of(punch, (100, 50)).unwrap();
        assert_eq!((punch.changed, punch.reaches), (Some((100, 150)), None));
        let zero = Effect::of(libc::FALLOC_FL_ZERO_RANGE, (100, 50)).unwrap();
        assert_eq!((zero.changed, zero.reaches), (Some((100, 150)), Some(150)));
        let collapse = Effect::of(libc::FALLOC_FL_COLLAPSE_RANGE, (4096, 4096)).unwrap();
        assert!(collapse.moves);
        assert_eq!(collapse.changed, Some((4096, u64::MAX)));
    }

    #[test]
    fn an_empty_or_too_large_range_is_refused() {
        assert_eq!(Effect::of(0, (0, 0)), None);
        assert_eq!(Effect::of(0, (u64::MAX, 2)), None);
        assert_eq!(Effect::of(0, (i64::MAX as u64, 1)), None);
    }
}
