//! One regular file at home: its descriptors and its times.
//!
//! Owns the file's descriptors: one with `O_PATH`, which lives as long as the value, and those for data, which
//! are opened when first needed and closed when no open description is left. Data descriptors come in two
//! modes: buffered ones are opened with the file, direct ones by the first transfer.
//!
//! Some homes (sshfs) know an inode by the name alone by which it was opened. There the descriptor with `O_PATH` is replaced by
//! one of another name before home loses the name ([`HomeFile::leave_name`]).
//!
//! A file may be *unbound*: it exists for programs and is not at home yet ([`HomeFile::unbound`]). It has no
//! descriptors then.
//!
//! Invariants:
//! - a direct descriptor is open only while a buffered one for the same access is;
//! - after a file refused direct I/O once, it is not tried again;
//! - all descriptors are of one inode of home: the one with `O_PATH` is replaced only while no data descriptor is open.
//!
//! Lock order: `restoring`, then the binding's lock, then `data` or the times' lock. Files are opened
//! under `data`, and nothing else that may block is done under any but `restoring`. No lock is taken under `log_inode`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FallocateFlags, Mode as FileMode, OFlags, StatxFlags};
use rustix::io::Errno;
use weir_engine::{Command, Completion, Extent, HomeAttributes, IoId, PAGE_BYTES};

use crate::allocation::allocate_as;
use crate::binding::{Binding, Intake};
use crate::extents;
use crate::home_names::FUSE_SUPER_MAGIC;
use crate::identity::Naming;
use crate::proc_path::proc_path;
use crate::replaced::replace;
use crate::times::{Times, Timestamp};

/// One regular file at home. Shared as `Arc<HomeFile>`; a transfer in flight keeps its descriptor open, even if
/// the file is closed meanwhile.
#[derive(Debug)]
pub struct HomeFile {
    binding: Binding,
    times: Times,
    data: Mutex<Data>,
    /// Held while times are set at home: a thread that finds the modification time restored in `times` can rely on home, and an
    /// earlier one does not replace it.
    restoring: Mutex<()>,
    /// Its number in the log, if records of names make it.
    log_node: OnceLock<u64>,
    /// The identity of the inode that home made for it last, as the log has it.
    log_inode: Mutex<Option<Box<[u8]>>>,
}

#[derive(Debug, Default)]
struct Data {
    buffered: Descriptors,
    direct: Descriptors,
    unit: Unit,
    /// End of the range reserved furthest into the file since the data was opened.
    reserved_end: u64,
    /// The reservation past the end is recorded, in case the daemon is killed.
    reserved_noted: bool,
    /// fallocate(2) was refused once.
    reserve_unsupported: bool,
    /// A transfer failed in a way that may be the descriptors': sshfs's fail for good when its connection was lost.
    stale: bool,
    /// By which the file is reached when its data is closed: an `O_PATH` descriptor of a name that home keeps.
    next_path: Option<OwnedFd>,
}

/// How long home may know an old size by another name of a file, and the pause before it is asked again. sshfs knows it for
/// 20 s.
const SEEN_AGAIN: Duration = Duration::from_secs(25);
const SEEN_AGAIN_PAUSE: Duration = Duration::from_millis(10);

/// Descriptors of one mode. A file open for both has the same one twice.
#[derive(Clone, Debug, Default)]
struct Descriptors {
    read: Option<Arc<OwnedFd>>,
    write: Option<Arc<OwnedFd>>,
}

/// The file's support of direct I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unit {
    #[default]
    Unknown,
    /// Offsets, lengths and addresses must be multiples of this many bytes.
    Direct(u32),
    Buffered,
}

/// What a transfer does to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A descriptor to transfer by.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) descriptor: Arc<OwnedFd>,
    /// Alignment of offsets, lengths and addresses, bytes, if the descriptor is direct.
    pub(crate) direct_unit: Option<u32>,
}

impl HomeFile {
    /// A file known by an `O_PATH` descriptor, with no data descriptor yet.
    pub fn new(path: OwnedFd) -> HomeFile {
        HomeFile::with_binding(Binding::bound(path))
    }

    /// A new file that is not at home yet. Until it is bound:
    /// - it is empty at home, or a hole of the size last set by [`HomeFile::set_size`];
    /// - it can be read and written, and opening or closing its data does nothing;
    /// - [`crate::Directory::execute`] holds its writes and syncs, and answers the other commands at once;
    /// - its times are not restored;
    /// - what needs a descriptor fails with EBADF.
    pub fn unbound() -> HomeFile {
        HomeFile::with_binding(Binding::default())
    }

    fn with_binding(binding: Binding) -> HomeFile {
        HomeFile {
            binding,
            times: Times::default(),
            data: Mutex::default(),
            restoring: Mutex::default(),
            log_node: OnceLock::new(),
            log_inode: Mutex::default(),
        }
    }

    /// Records of names in the log make this file, as the node with this number; it is unbound.
    pub fn set_log_node(&self, node: u64) {
        let _ = self.log_node.set(node);
    }

    /// The number of [`HomeFile::set_log_node`].
    pub fn log_node(&self) -> Option<u64> {
        self.log_node.get().copied()
    }

    /// A record in the log says that this is the inode which home has made for the file. It may still be unbound.
    pub fn set_log_inode(&self, identity: &[u8]) {
        *self.lock_log_inode() = Some(identity.into());
    }

    /// The last identity of [`HomeFile::set_log_inode`].
    pub fn log_inode(&self) -> Option<Box<[u8]>> {
        self.lock_log_inode().clone()
    }

    fn lock_log_inode(&self) -> MutexGuard<'_, Option<Box<[u8]>>> {
        self.log_inode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an unbound file the one that was just made at home, with descriptors as for
    /// [`HomeFile::with_created`]. The file at home is first given the size that was set meanwhile. The commands
    /// that were held are the caller's to execute: [`HomeFile::take_held`].
    ///
    /// # Errors
    /// Those of ftruncate(2), and ESTALE if the file was abandoned; it is still unbound then.
    ///
    /// # Panics
    /// If the file is bound.
    pub fn bind(&self, path: OwnedFd, data: OwnedFd) -> io::Result<()> {
        self.binding.bind(path, |size| {
            if size > 0 {
                fs::ftruncate(&data, size)?;
            }
            let data = Arc::new(data);
            self.lock_data().buffered =
                Descriptors { read: Some(Arc::clone(&data)), write: Some(data) };
            self.times.note_disturbed();
            Ok(())
        })
    }

    /// An unbound file will never be at home: its last name is gone, and no program has it open. Later commands
    /// complete as done without doing anything. Returns the ends of the commands that were held. Nothing happens if the
    /// file was bound meanwhile.
    pub fn abandon(&self) -> Vec<(IoId, Completion)> {
        self.binding.abandon()
    }

    /// Takes the commands that were held until the file was bound, in their order.
    pub fn take_held(&self) -> Vec<Command> {
        self.binding.take_held()
    }

    /// Whether the file is not at home yet, and may be bound.
    pub fn is_unbound(&self) -> bool {
        self.binding.is_unbound()
    }

    /// Whether the file is at home.
    pub fn is_bound(&self) -> bool {
        self.binding.is_bound()
    }

    /// A file just created: `data` is the `O_RDWR` descriptor that created it (without `O_DIRECT` and
    /// `O_APPEND`), so that it need not be opened again, which its mode might forbid.
    pub fn with_created(path: OwnedFd, data: OwnedFd) -> HomeFile {
        let file = HomeFile::new(path);
        let data = Arc::new(data);
        file.lock_data().buffered =
            Descriptors { read: Some(Arc::clone(&data)), write: Some(data) };
        file
    }

    /// Opens data descriptors for reading, and for writing too if `write`, unless they are open.
    /// A file that may be written but not read is opened for writing alone, an unbound one not at all.
    ///
    /// # Errors
    /// Those of open(2): EACCES, EROFS, ETXTBSY, EMFILE and so on.
    pub fn open_data(&self, write: bool) -> io::Result<()> {
        if !self.is_bound() {
            return Ok(());
        }
        let mut data = self.lock_data();
        if write && data.buffered.write.is_none() {
            match self.reopen(OFlags::RDWR) {
                Ok(both) => {
                    let both = Arc::new(both);
                    data.buffered =
                        Descriptors { read: Some(Arc::clone(&both)), write: Some(both) };
                    // A direct descriptor for reading stays valid.
                    return Ok(());
                }
                Err(Errno::ACCESS) => {
                    data.buffered.write = Some(Arc::new(self.reopen(OFlags::WRONLY)?));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if data.buffered.read.is_none() {
            match self.reopen(OFlags::RDONLY) {
                Ok(read) => data.buffered.read = Some(Arc::new(read)),
                Err(Errno::ACCESS) if write => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Closes the data descriptors. To be called when no open description is left and the file is
    /// clean: space reserved past the end is given back, and the modification time restored.
    pub fn close_data(&self) {
        if !self.is_bound() {
            return;
        }
        let (writer, reserved_end) = {
            let mut data = self.lock_data();
            (data.buffered.write.clone(), std::mem::take(&mut data.reserved_end))
        };
        // A file without a name is deleted with its last descriptor.
        let is_removed = |writer: &Arc<OwnedFd>| fs::fstat(writer).is_ok_and(|of| of.st_nlink == 0);
        if let Some(writer) = writer.filter(|writer| !is_removed(writer)) {
            // Space that stays reserved does not affect correctness.
            if let Err(error) = self.trim(&writer, reserved_end) {
                tracing::debug!(%error, "space reserved past the end of a file was not given back");
            }
            if let Err(error) = self.restore_times() {
                tracing::debug!(%error, "a modification time was not restored");
            }
        }
        let (open, next) = {
            let mut data = self.lock_data();
            data.direct = Descriptors::default();
            (std::mem::take(&mut data.buffered).any(), data.next_path.take())
        };
        if let Some((open, next)) = open.zip(next) {
            wait_until_seen(open.as_fd(), next.as_fd());
            if let Err(error) = replace(self.path_fd(), next.as_fd()) {
                tracing::debug!(%error, "a file is not reached by its other name");
            }
        }
    }

    /// Home is about to lose the name that the file may have been opened by. `other` is an `O_PATH` descriptor of a name that
    /// home keeps, if one is known: the file is reached by that from then on, or when its data is closed. A name is
    /// kept in another way while data is open by it (libfuse renames it). May wait for home.
    ///
    /// # Errors
    /// Those of dup3(2).
    pub fn leave_name(&self, other: Option<OwnedFd>) -> io::Result<()> {
        let Some(path) = self.path() else { return Ok(()) };
        if let Some(other) = &other
            && self.any_data().is_none()
        {
            wait_until_seen(path, other.as_fd());
        }
        let mut data = self.lock_data();
        if data.buffered.any().is_some() {
            data.next_path = other;
            return Ok(());
        }
        other.map_or(Ok(()), |other| replace(path, other.as_fd()))
    }

    /// Home was found to have given the file another name, of which `other` is an `O_PATH` descriptor, and may not find it by what
    /// it was opened by any more: it is opened again.
    ///
    /// # Errors
    /// Those of dup3(2).
    pub fn was_moved(&self, other: OwnedFd) -> io::Result<()> {
        let Some(path) = self.path() else { return Ok(()) };
        let mut data = self.lock_data();
        replace(path, other.as_fd())?;
        data.stale = true;
        data.next_path = None;
        Ok(())
    }

    /// An `O_PATH` descriptor by which the file can be given another name. Linux refuses to link a file by a name that is gone,
    /// also where home has kept it open under another one.
    ///
    /// # Errors
    /// EBADF if the file is unbound; those of dup(2).
    pub fn path_to_link(&self) -> io::Result<OwnedFd> {
        let data = self.lock_data();
        match &data.next_path {
            Some(next) => next.try_clone(),
            None => self.bound_path()?.try_clone_to_owned(),
        }
    }

    /// Whether a data descriptor for writing is open, or the file is unbound.
    pub fn is_writable(&self) -> bool {
        !self.is_bound() || self.lock_data().buffered.write.is_some()
    }

    /// Whether a data descriptor for reading is open, or the file is unbound.
    pub fn is_readable(&self) -> bool {
        !self.is_bound() || self.lock_data().buffered.read.is_some()
    }

    /// The `O_PATH` descriptor of a file that is at home.
    ///
    /// # Panics
    /// If the file is unbound.
    pub fn path_fd(&self) -> BorrowedFd<'_> {
        self.path().expect("the file is at home")
    }

    /// The `O_PATH` descriptor; `None` if the file is unbound.
    pub fn path(&self) -> Option<BorrowedFd<'_>> {
        self.binding.path()
    }

    fn bound_path(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.path().ok_or(Errno::BADF)
    }

    /// A data descriptor through the page cache, writable if the file is open for writing. Not for data the engine
    /// caches.
    ///
    /// # Errors
    /// EBADF if no data descriptor is open.
    pub fn data_fd(&self) -> io::Result<Arc<OwnedFd>> {
        self.any_data().ok_or_else(|| Errno::BADF.into())
    }

    /// The file's attributes at home now, for the engine when it attaches the file.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn home_attributes(&self) -> io::Result<HomeAttributes> {
        if let Some(size) = self.binding.size() {
            let write_unit = PAGE_BYTES as u32;
            return Ok(HomeAttributes { size, dense: size == 0, write_unit, readable: true });
        }
        let status = fs::statx(
            self.bound_path()?,
            "",
            AtFlags::EMPTY_PATH,
            StatxFlags::SIZE | StatxFlags::BLOCKS | StatxFlags::DIOALIGN,
        )?;
        let unit = self.direct_unit(&status)?;
        let (readable, descriptor) = {
            let mut data = self.lock_data();
            if data.unit == Unit::Unknown {
                data.unit = unit;
            }
            (data.buffered.read.is_some(), data.buffered.any())
        };
        let size = status.stx_size;
        let dense = size == 0
            || (status.stx_blocks.saturating_mul(512) >= size
                && descriptor.is_some_and(|data| has_no_hole(&data, size)));
        let write_unit = match unit {
            // Without a writeback cache in the kernel its server is sent the bytes that are written.
            _ if self.is_on_fuse() => 1,
            Unit::Direct(bytes) => bytes,
            // For a smaller write the page cache itself reads the surrounding bytes, during the destage.
            Unit::Buffered | Unit::Unknown => PAGE_BYTES as u32,
        };
        Ok(HomeAttributes { size, dense, write_unit, readable })
    }

    /// How recovery finds the file again; empty if it could not, because its file system, or that
    /// of `source` being another one, does not allow it, or the file is unbound.
    pub fn identity(&self, naming: &Naming, source: BorrowedFd<'_>) -> Vec<u8> {
        let Some(path) = self.path() else { return Vec::new() };
        let same = match (fs::fstat(path), fs::fstat(source)) {
            (Ok(file), Ok(source)) => file.st_dev == source.st_dev,
            _ => false,
        };
        if same { naming.identity(path).unwrap_or_default() } else { Vec::new() }
    }

    /// The times as programs see them.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Restores the modification time at home, if destaging may have changed it. It is no error if the times of
    /// another user's file may not be set. The times of an unbound file are left for when it is bound.
    ///
    /// # Errors
    /// Other errors of utimensat(2).
    pub fn restore_times(&self) -> io::Result<()> {
        if !self.is_bound() {
            return Ok(());
        }
        let _restoring = self.lock_restoring();
        let Some(mtime) = self.times.take_disturbed() else {
            return Ok(());
        };
        self.set_home_mtime(mtime).inspect_err(|_| self.times.note_disturbed())
    }

    /// Restores the modification time at home, if what changed it there was a write. Whoever is restoring it is waited for.
    ///
    /// # Errors
    /// As [`HomeFile::restore_times`].
    pub fn restore_after_writes(&self) -> io::Result<()> {
        let restoring = self.lock_restoring();
        if !self.times.is_written() {
            return Ok(());
        }
        drop(restoring);
        self.restore_times()
    }

    /// Runs `set`, which sets times at home. It is given the modification time as programs see it, `None` if home's is right. One
    /// that is noted while it runs is restored after it.
    pub fn set_times<T>(&self, set: impl FnOnce(Option<Timestamp>) -> T) -> T {
        let _restoring = self.lock_restoring();
        set(self.times.overlay().0)
    }

    fn lock_restoring(&self) -> MutexGuard<'_, ()> {
        self.restoring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_home_mtime(&self, mtime: fs::Timespec) -> io::Result<()> {
        let times = fs::Timestamps {
            last_access: fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            last_modification: mtime,
        };
        let set = match self.any_data() {
            Some(data) => fs::futimens(&data, &times),
            None => {
                let path = proc_path(self.bound_path()?);
                fs::utimensat(fs::CWD, path, &times, AtFlags::empty())
            }
        };
        match set {
            Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::ROFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the file, which need not have its data open, takes direct I/O.
    pub(crate) fn takes_direct(&self) -> bool {
        let Some(path) = self.path() else { return false };
        match fs::statx(path, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
            Ok(status) => matches!(self.direct_unit(&status), Ok(Unit::Direct(_))),
            Err(_) => false,
        }
    }

    /// The descriptor to transfer by: direct if the file takes it, else buffered.
    ///
    /// # Errors
    /// EBADF if the file is open, and not for reading; those of open(2).
    pub(crate) fn channel(&self, access: Access) -> io::Result<Channel> {
        let mut data = self.lock_renewed();
        let Some(buffered) = data.buffered.get(access) else {
            return self.channel_of_closed(&data.buffered, access);
        };
        if data.unit == Unit::Unknown {
            let path = self.bound_path()?;
            let status = fs::statx(path, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
            data.unit = self.direct_unit(&status)?;
        }
        let Unit::Direct(unit) = data.unit else {
            return Ok(Channel { descriptor: buffered, direct_unit: None });
        };
        if let Some(descriptor) = data.direct.get(access) {
            return Ok(Channel { descriptor, direct_unit: Some(unit) });
        }
        let both = data.buffered.is_shared();
        let flags = match access {
            _ if both => OFlags::RDWR,
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
        };
        match self.reopen(flags | OFlags::DIRECT) {
            Ok(descriptor) => {
                let descriptor = Arc::new(descriptor);
                if both || access == Access::Read {
                    data.direct.read = Some(Arc::clone(&descriptor));
                }
                if both || access == Access::Write {
                    data.direct.write = Some(Arc::clone(&descriptor));
                }
                Ok(Channel { descriptor, direct_unit: Some(unit) })
            }
            Err(error) => {
                if error == Errno::INVAL {
                    data.unit = Unit::Buffered;
                }
                // Otherwise the mode was changed since the file was opened, or there are too many descriptors:
                // the buffered one is used.
                Ok(Channel { descriptor: buffered, direct_unit: None })
            }
        }
    }

    /// A descriptor through the page cache.
    ///
    /// # Errors
    /// EBADF if the file is open, and not for reading; those of open(2).
    pub(crate) fn buffered_channel(&self, access: Access) -> io::Result<Channel> {
        let data = self.lock_renewed();
        match data.buffered.get(access) {
            Some(descriptor) => Ok(Channel { descriptor, direct_unit: None }),
            None => self.channel_of_closed(&data.buffered, access),
        }
    }

    /// For one transfer of a file whose data is closed, or open for reading alone: after a sync failed, what it covered is written again.
    fn channel_of_closed(&self, open: &Descriptors, access: Access) -> io::Result<Channel> {
        let flags = match access {
            Access::Read if open.any().is_some() => return Err(Errno::BADF.into()),
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
        };
        Ok(Channel { descriptor: Arc::new(self.reopen(flags)?), direct_unit: None })
    }

    /// A descriptor for writes through the page cache. Can be opened after the file's data descriptor was
    /// closed.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn writable_again(&self) -> io::Result<Arc<OwnedFd>> {
        match self.lock_renewed().buffered.write.clone() {
            Some(descriptor) => Ok(descriptor),
            None => Ok(Arc::new(self.reopen(OFlags::WRONLY)?)),
        }
    }

    /// A descriptor for writes that are synced by it at once. On a FUSE home that is one of its own: what it fails with is told of these
    /// writes alone.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn writable_alone(&self) -> io::Result<Arc<OwnedFd>> {
        match self.is_on_fuse().then(|| self.reopen(OFlags::WRONLY)) {
            Some(Ok(own)) => Ok(Arc::new(own)),
            Some(Err(_)) | None => self.writable_again(),
        }
    }

    /// A descriptor to sync the file by. A file that is synced after its data descriptors were closed is opened
    /// for that alone.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn sync_channel(&self) -> io::Result<Channel> {
        drop(self.lock_renewed());
        let descriptor = match self.any_data() {
            Some(descriptor) => descriptor,
            None => match self.reopen(OFlags::RDONLY) {
                Err(Errno::ACCESS) => Arc::new(self.reopen(OFlags::WRONLY)?),
                opened => Arc::new(opened?),
            },
        };
        Ok(Channel { descriptor, direct_unit: None })
    }

    /// The alignment of the file's direct I/O, if it is known to take any.
    pub(crate) fn known_direct_unit(&self) -> Option<u32> {
        match self.lock_data().unit {
            Unit::Direct(unit) => Some(unit),
            Unit::Buffered | Unit::Unknown => None,
        }
    }

    /// Direct I/O was refused (EINVAL) although the file was opened for it.
    pub(crate) fn refuse_direct(&self) {
        let mut data = self.lock_data();
        if data.unit != Unit::Buffered {
            tracing::info!(
                "direct I/O was refused; the file is transferred through the page cache"
            );
        }
        data.unit = Unit::Buffered;
        data.direct = Descriptors::default();
    }

    /// Allocates the range without changing size or content, or checks that there is room. Home's root reserve
    /// and quotas apply as they do to the file's owner. Writing the data home later needs no more space. Does
    /// nothing for an unbound file.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT and other errors of fallocate(2); EBADF if the file is not writable.
    pub(crate) fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.is_bound() {
            return Ok(());
        }
        let (writer, unsupported) = {
            let data = self.lock_data();
            (data.buffered.write.clone().ok_or(Errno::BADF)?, data.reserve_unsupported)
        };
        if unsupported {
            return has_room(&writer, len);
        }
        let owner = fs::fstat(&writer)?.st_uid;
        let allocate = || fs::fallocate(&writer, FallocateFlags::KEEP_SIZE, offset, len);
        loop {
            match allocate_as(owner, allocate) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.lock_data().reserve_unsupported = true;
                    return has_room(&writer, len);
                }
                Err(error) => return Err(error.into()),
                Ok(()) => break,
            }
        }
        let mut data = self.lock_data();
        data.reserved_end = data.reserved_end.max(offset.saturating_add(len));
        Ok(())
    }

    /// Whether reserving up to byte `end` needs to be recorded: it reserves past the end of the file, and that
    /// was not recorded before. Marks it as recorded.
    pub(crate) fn must_note_reservation(&self, end: u64) -> bool {
        let mut data = self.lock_data();
        let writer = data.buffered.write.as_ref().filter(|_| !data.reserved_noted);
        let Some(size) = writer.and_then(|writer| size_at_home(writer).ok()) else { return false };
        data.reserved_noted = end > size;
        data.reserved_noted
    }

    /// Whether the file has reserved space that was not released.
    pub(crate) fn has_reserved(&self) -> bool {
        self.lock_data().reserved_end > 0
    }

    /// The file's extents on its device, as far as they are known.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        self.any_data().map_or_else(Vec::new, extents::extents)
    }

    /// Gives back space reserved past the end of the file, keeping its modification time.
    fn trim(&self, writer: &OwnedFd, reserved_end: u64) -> io::Result<()> {
        if reserved_end == 0 {
            return Ok(());
        }
        let status = fs::fstat(writer)?;
        let size = u64::try_from(status.st_size).unwrap_or(0);
        if reserved_end <= size.next_multiple_of(PAGE_BYTES as u64) {
            return Ok(());
        }
        // ftruncate(2) removes these, although the content does not change.
        let mode = FileMode::from_raw_mode(status.st_mode);
        let has_capabilities = fs::fgetxattr(writer, "security.capability", &mut [0_u8; 0]).is_ok();
        if mode.intersects(FileMode::SUID | FileMode::SGID) || has_capabilities {
            return Ok(());
        }
        fs::ftruncate(writer, size)?;
        let mtime =
            fs::Timespec { tv_sec: status.st_mtime as _, tv_nsec: status.st_mtime_nsec as _ };
        if self.times.overlay().0.is_some() {
            self.times.note_disturbed();
            return Ok(());
        }
        self.set_home_mtime(mtime)
    }

    /// The file's support of direct I/O, from its status.
    fn direct_unit(&self, status: &fs::Statx) -> io::Result<Unit> {
        if StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN) {
            let bytes = status.stx_dio_mem_align.max(status.stx_dio_offset_align);
            let refused = status.stx_dio_mem_align == 0 || status.stx_dio_offset_align == 0;
            if refused || !bytes.is_power_of_two() || bytes > PAGE_BYTES as u32 {
                return Ok(Unit::Buffered);
            }
            return Ok(Unit::Direct(bytes.max(512)));
        }
        // Kernels before 6.1, and file systems that do not report it. Memory needs no direct I/O: tmpfs accepts
        // the flag, and copies.
        if fs::fstatfs(self.bound_path()?)?.f_type as u64 & 0xffff_ffff == TMPFS_MAGIC {
            return Ok(Unit::Buffered);
        }
        Ok(Unit::Direct(PAGE_BYTES as u32))
    }

    /// What becomes of a command, for the back end: it is to be executed, or held, or has ended.
    pub(crate) fn take_in(&self, command: Command) -> Intake {
        self.binding.take_in(command)
    }

    /// The size that an unbound file is to have; `None` if the file is bound.
    pub fn unbound_size(&self) -> Option<u64> {
        self.binding.size()
    }

    /// Keeps the size of an unbound file. False if the file is bound.
    pub(crate) fn keep_size(&self, size: u64) -> bool {
        self.binding.keep_size(size)
    }

    fn any_data(&self) -> Option<Arc<OwnedFd>> {
        self.lock_data().buffered.any()
    }

    fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        fs::open(proc_path(self.bound_path()?), flags, FileMode::empty())
    }

    /// A transfer failed: on a FUSE file system the next one gets new descriptors, if the error may be theirs.
    pub(crate) fn transfer_failed(&self, error: &io::Error) {
        let may_be_theirs = matches!(
            Errno::from_io_error(error),
            Some(
                Errno::IO
                    | Errno::BADF
                    | Errno::NOTCONN
                    | Errno::STALE
                    | Errno::CONNABORTED
                    | Errno::CONNRESET
            )
        );
        if may_be_theirs {
            self.lock_data().stale = true;
        }
    }

    /// The data, with new descriptors if those that were open may be stale. Nobody else waits while home opens them.
    fn lock_renewed(&self) -> MutexGuard<'_, Data> {
        let mut data = self.lock_data();
        if !std::mem::take(&mut data.stale) {
            return data;
        }
        let before = data.buffered.clone();
        drop(data);
        if !self.is_on_fuse() {
            return self.lock_data();
        }
        let again = self.opened_again(&before);
        data = self.lock_data();
        match again {
            // They were not closed or opened otherwise meanwhile.
            Ok(again) if data.buffered.are(&before) => {
                (data.buffered, data.direct) = (again, Descriptors::default());
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a file was not opened again at home"),
        }
        data
    }

    fn opened_again(&self, open: &Descriptors) -> Result<Descriptors, Errno> {
        let again =
            |is_open: bool, flags| is_open.then(|| self.reopen(flags).map(Arc::new)).transpose();
        if open.is_shared() {
            let both = again(true, OFlags::RDWR)?;
            return Ok(Descriptors { read: both.clone(), write: both });
        }
        Ok(Descriptors {
            read: again(open.read.is_some(), OFlags::RDONLY)?,
            write: again(open.write.is_some(), OFlags::WRONLY)?,
        })
    }

    /// Whether a FUSE file system has it: SOURCE, or another one below. May ask the server.
    pub(crate) fn is_on_fuse(&self) -> bool {
        self.file_system() == Some(FUSE_SUPER_MAGIC)
    }

    /// Whether no FUSE file system has it. May ask the server.
    pub(crate) fn is_off_fuse(&self) -> bool {
        self.file_system().is_some_and(|magic| magic != FUSE_SUPER_MAGIC)
    }

    /// The type of its file system; `None` if that does not say.
    fn file_system(&self) -> Option<u32> {
        let system = self.bound_path().and_then(fs::fstatfs);
        system.ok().map(|system| system.f_type as u64 as u32)
    }

    fn lock_data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;

impl Descriptors {
    fn get(&self, access: Access) -> Option<Arc<OwnedFd>> {
        match access {
            Access::Read => self.read.clone(),
            Access::Write => self.write.clone(),
        }
    }

    fn any(&self) -> Option<Arc<OwnedFd>> {
        self.write.clone().or_else(|| self.read.clone())
    }

    /// Whether these are the same descriptors.
    fn are(&self, others: &Descriptors) -> bool {
        let is_same = |one: &Option<Arc<OwnedFd>>, other: &Option<Arc<OwnedFd>>| match (one, other)
        {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same(&self.read, &others.read) && is_same(&self.write, &others.write)
    }

    fn is_shared(&self) -> bool {
        match (&self.read, &self.write) {
            (Some(read), Some(write)) => Arc::ptr_eq(read, write),
            _ => false,
        }
    }
}

/// Size of an open file at home now.
pub(crate) fn size_at_home(descriptor: &OwnedFd) -> io::Result<u64> {
    Ok(u64::try_from(fs::fstat(descriptor)?.st_size).unwrap_or(0))
}

/// Waits until home says the same of a file by another of its names, `next`, as by the one that `known` is open by. sshfs
/// remembers what it was told by each name; what the kernel has of the content may be as old.
fn wait_until_seen(known: BorrowedFd<'_>, next: BorrowedFd<'_>) {
    let until = Instant::now() + SEEN_AGAIN;
    while let Ok(seen) = status_at_home(known)
        && Instant::now() < until
    {
        // sshfs asks its server when a file is opened, and remembers the answer if nothing was written meanwhile.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if let Ok(open) = fs::open(proc_path(next), flags, FileMode::empty()) {
            let _ = fs::fadvise(&open, 0, None, fs::Advice::DontNeed);
        }
        if status_at_home(next).map_or(true, |now| now == seen) {
            return;
        }
        thread::sleep(SEEN_AGAIN_PAUSE);
    }
}

/// Size and modification time, as home says now.
fn status_at_home(file: BorrowedFd<'_>) -> io::Result<(u64, i64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let status = fs::statx(file, "", flags, StatxFlags::SIZE | StatxFlags::MTIME)?;
    Ok((status.stx_size, status.stx_mtime.tv_sec))
}

fn has_no_hole(data: &OwnedFd, size: u64) -> bool {
    matches!(fs::seek(data, fs::SeekFrom::Hole(0)), Ok(end) if end >= size)
}

/// Whether the file system has room for `len` more bytes: a check for file systems without fallocate(2).
fn has_room(file: &OwnedFd, len: u64) -> io::Result<()> {
    let status = fs::fstatvfs(file)?;
    // A file system that does not know its size (many FUSE file systems) reports zeros.
    if status.f_blocks > 0 && status.f_bavail.saturating_mul(status.f_frsize) < len {
        return Err(Errno::NOSPC.into());
    }
    Ok(())
}

#[cfg(test)]
impl HomeFile {
    /// A file that may only be written.
    pub(crate) fn write_only(path: OwnedFd, data: OwnedFd) -> HomeFile {
        let file = HomeFile::new(path);
        file.lock_data().buffered = Descriptors { read: None, write: Some(Arc::new(data)) };
        file
    }

    /// Makes the file's direct I/O look as if it took multiples of `unit` bytes.
    pub(crate) fn claim_direct_unit(&self, unit: u32) {
        self.lock_data().unit = Unit::Direct(unit);
    }
}
