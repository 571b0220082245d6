//! The board: what the daemon tells all clients. Programs read it, and the frames, at any time and without a lock.
//!
//! A frame's content and its key are read under a sequence lock (`sequence_lock`). A table of hints tells which frame
//! holds a page. Its buckets have four hints each; neighbouring pages have neighbouring buckets. A hint may be wrong,
//! the frame's key is not.
//!
//! Layout: `Head`, then [`FILES`] of [`FileEntry`], then one `FrameEntry` for each frame, then the hints.
//!
//! Invariants:
//! - the writing half is used under one lock (the shard's);
//! - a key names one page of one file as long as programs may read by it: a slot is given to another file only
//!   after all keys of the file before were retracted.

#![allow(unsafe_code)] // Shared memory cannot be read without it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::PAGE_BYTES;
use crate::memory::{self, Access, Memory};
use crate::prefetch;
use crate::racing;
use crate::region::Region;
use crate::resident::Resident;
use crate::sequence_lock::SequenceLock;
use crate::wire::VERSION;

/// Files that can be in the lane at once.
pub const FILES: usize = 4096;
/// The value of `Head::magic`: "weirlane".
pub const MAGIC: u64 = u64::from_le_bytes(*b"weirlane");

/// Hints in a bucket.
const WAYS: usize = 4;
/// Bits of a page's number in a key.
const PAGE_BITS: u32 = 40;

/// The kernel's mark on a robust futex whose owner has ended (futex(2), get_robust_list(2)).
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER_MASK: u32 = 0x3fff_ffff;

/// The board's beginning.
#[repr(C, align(4096))]
struct Head {
    magic: AtomicU64,
    version: AtomicU32,
    frames: AtomicU32,
    buckets: AtomicU32,
    life: LifeLine,
}

/// A robust mutex that a thread of the daemon holds until it ends; the first word is the futex.
#[repr(C, align(64))]
struct LifeLine([AtomicU32; 16]);

impl LifeLine {
    #[inline]
    fn is_held(&self) -> bool {
        let life = self.0[0].load(Ordering::Relaxed);
        life & OWNER_DIED == 0 && life & OWNER_MASK != 0
    }
}

/// How programs may use a file. The order of the numbers means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mode {
    /// By the kernel alone.
    Kernel = 0,
    /// Programs may read its frames, and write it by the kernel.
    Shared = 1,
    /// One client holds the lease: it may read frames and post writes.
    Exclusive = 2,
    /// By the kernel, until the posted writes are applied and the next mode is set.
    Changing = 3,
    /// By the kernel, until the client's other processes that use the file have put it into the lane again.
    Rejoining = 4,
}

/// A file in the lane.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FileEntry {
    state: AtomicU64,
    size: AtomicU64,
    /// A posted write must end at or before this offset: home has room reserved up to there.
    grant: AtomicU64,
}

/// A file's mode: `mode | changes << 8 | client << 32`. `changes` counts the changes of mode, modulo 2^24, and so tells a
/// slot's next file from the one before; `client` is 0 except for [`Mode::Exclusive`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    fn then(self, mode: Mode, client: u32) -> State {
        let changes = (self.0 >> 8).wrapping_add(1) & 0xff_ffff;
        State(u64::from(mode as u32) | changes << 8 | u64::from(client) << 32)
    }

    /// How `client` may use the file.
    #[inline]
    pub(crate) fn seen(self, client: u32) -> Seen {
        let mode = self.0 as u8;
        let writable = mode == Mode::Exclusive as u8 && self.0 >> 32 == u64::from(client);
        Seen { readable: writable || mode == Mode::Shared as u8, writable }
    }
}

/// Which page a frame holds.
#[derive(Debug)]
#[repr(C)]
struct FrameEntry {
    /// Guards the key and the frame's content.
    lock: SequenceLock,
    /// 0: programs may not read the frame.
    key: AtomicU64,
}

/// The key of a page. `slot` is below [`FILES`].
fn key_of(slot: u32, page: u64) -> Option<u64> {
    (page < 1 << PAGE_BITS).then(|| (u64::from(slot) + 1) << PAGE_BITS | page)
}

/// Groups of 2^GROUP_BITS neighbouring pages of a file have neighbouring buckets: 512 B of hints. If each page's bucket
/// were hashed alone, a file's hints would lie in as many cache lines and pages of memory as the file has pages.
const GROUP_BITS: u32 = 5;

/// Fewest buckets of hints; their number is a power of two.
const BUCKETS_MIN: u32 = 2 << GROUP_BITS;

const FILES_AT: usize = size_of::<Head>();
const FRAMES_AT: usize = FILES_AT + FILES * size_of::<FileEntry>();

/// The parts of a board, in a mapping of it.
#[derive(Debug)]
struct Parts {
    memory: Memory,
    frames: u32,
    hints_at: usize,
    /// Bits of the hash that are not part of the group's number.
    group_shift: u32,
}

impl Parts {
    fn over(memory: Memory, frames: u32, buckets: u32) -> Parts {
        assert!(memory.len() >= Parts::len(frames, buckets));
        let group_shift = u64::BITS - (buckets.ilog2() - GROUP_BITS);
        Parts { memory, frames, hints_at: Parts::hints_at(frames), group_shift }
    }

    fn len(frames: u32, buckets: u32) -> usize {
        let len = Parts::hints_at(frames) + buckets as usize * WAYS * size_of::<AtomicU32>();
        len.next_multiple_of(PAGE_BYTES)
    }

    fn hints_at(frames: u32) -> usize {
        FRAMES_AT + frames as usize * size_of::<FrameEntry>()
    }

    fn head(&self) -> &Head {
        // SAFETY: atomics alone.
        unsafe { self.memory.at(0) }
    }

    #[inline]
    fn file(&self, slot: u32) -> &FileEntry {
        assert!((slot as usize) < FILES);
        // SAFETY: atomics alone; inside, by the layout and the check.
        unsafe { &*self.memory.base().add(FILES_AT).cast::<FileEntry>().add(slot as usize) }
    }

    #[inline]
    fn frame(&self, frame: u32) -> &FrameEntry {
        assert!(frame < self.frames);
        // SAFETY: as in `file`.
        unsafe { &*self.memory.base().add(FRAMES_AT).cast::<FrameEntry>().add(frame as usize) }
    }

    #[inline]
    fn bucket(&self, key: u64) -> &[AtomicU32; WAYS] {
        let (group, page) = (key >> GROUP_BITS, key & ((1 << GROUP_BITS) - 1));
        // The upper bits of the product depend on all bits of the group.
        let group = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.group_shift;
        let bucket = (group << GROUP_BITS | page) as usize;
        // SAFETY: as in `file`; a bucket is below the number of buckets.
        unsafe {
            let hints = self.memory.base().add(self.hints_at);
            &*hints.cast::<[AtomicU32; WAYS]>().add(bucket)
        }
    }
}

/// The half that writes: the daemon's. All methods except those about clients are called under the shard's lock.
#[derive(Debug)]
pub struct Board {
    parts: Parts,
    fd: OwnedFd,
    /// Marks of what clients read; see [`Board::take_referenced`].
    clients: RwLock<Vec<Arc<Region>>>,
    /// Counts how much of the clients' regions is resident in the daemon.
    resident: Arc<Resident>,
    /// Held by the thread that unmaps resident pages of regions.
    unmapping: Mutex<()>,
}

impl Board {
    /// A board for `frames` frames.
    ///
    /// # Errors
    /// Shared memory could not be made or mapped.
    pub fn new(frames: u32) -> io::Result<Board> {
        let buckets = frames.max(BUCKETS_MIN).next_power_of_two();
        let len = Parts::len(frames, buckets);
        let fd = memory::create("weir-board", len)?;
        let memory = Memory::map(&fd, len, Access::ReadWrite)?;
        memory::seal_writes(fd.as_fd())?;
        Ok(Board::over(memory, fd, frames, buckets))
    }

    fn over(memory: Memory, fd: OwnedFd, frames: u32, buckets: u32) -> Board {
        let parts = Parts::over(memory, frames, buckets);
        let head = parts.head();
        head.magic.store(MAGIC, Ordering::Relaxed);
        head.version.store(VERSION, Ordering::Relaxed);
        head.frames.store(frames, Ordering::Relaxed);
        head.buckets.store(buckets, Ordering::Relaxed);
        let (clients, resident, unmapping) = Default::default();
        Board { parts, fd, clients, resident, unmapping }
    }

    /// A board in this process's heap, a view of it, and the frames' memory.
    #[cfg(test)]
    pub(crate) fn heap(frames: u32) -> (Board, View, Memory) {
        let buckets = frames.max(BUCKETS_MIN).next_power_of_two();
        let memory = Memory::heap(Parts::len(frames, buckets));
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let board = Board::over(memory.again(), fd, frames, buckets);
        let content = Memory::heap(frames as usize * PAGE_BYTES);
        let parts = Parts::over(memory, frames, buckets);
        (board, View { parts, memory: content.again() }, content)
    }

    /// As if a thread held its life.
    #[cfg(test)]
    pub(crate) fn make_live_by_hand(&self) {
        self.parts.head().life.0[0].store(1, Ordering::Relaxed);
    }

    /// Its memory. Clients get it by a read-only descriptor ([`memory::read_only`]).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes of its memory.
    pub fn len_bytes(&self) -> usize {
        self.parts.memory.len()
    }

    /// The number of frames.
    pub fn frames(&self) -> u32 {
        self.parts.frames
    }

    /// Where the robust mutex of the daemon's life is, 64 bytes: see [`crate::server::Life`].
    pub(crate) fn life(&self) -> *mut u8 {
        std::ptr::from_ref(&self.parts.head().life).cast_mut().cast()
    }

    /// Whether a thread holds it.
    pub(crate) fn is_alive(&self) -> bool {
        self.parts.head().life.is_held()
    }

    /// Programs may read the frame as this page from now on.
    pub fn publish(&self, frame: u32, slot: u32, page: u64) {
        let Some(key) = key_of(slot, page) else { return };
        let entry = self.parts.frame(frame);
        if entry.key.load(Ordering::Relaxed) != key {
            self.set_key(entry, key);
        }
        let bucket = self.parts.bucket(key);
        if bucket.iter().any(|hint| hint.load(Ordering::Relaxed) == frame + 1) {
            return;
        }
        let is_stale = |hint: &&AtomicU32| match hint.load(Ordering::Relaxed) {
            0 => true,
            hint => {
                let held = self.parts.frame(hint - 1).key.load(Ordering::Relaxed);
                held == 0 || held == key || !std::ptr::eq(self.parts.bucket(held), bucket)
            }
        };
        let victim = bucket.iter().find(is_stale).unwrap_or(&bucket[frame as usize % WAYS]);
        victim.store(frame + 1, Ordering::Relaxed);
    }

    /// The slot and the page that programs may read the frame as; `None` if they may not.
    pub fn page(&self, frame: u32) -> Option<(u32, u64)> {
        let key = self.parts.frame(frame).key.load(Ordering::Relaxed);
        let slot = (key >> PAGE_BITS).checked_sub(1)?;
        Some((slot as u32, key & ((1 << PAGE_BITS) - 1)))
    }

    /// Whether programs may read the frame.
    pub fn is_published(&self, frame: u32) -> bool {
        self.parts.frame(frame).key.load(Ordering::Relaxed) != 0
    }

    /// Programs may not read the frame any more.
    pub fn retract(&self, frame: u32) {
        let entry = self.parts.frame(frame);
        if entry.key.load(Ordering::Relaxed) != 0 {
            self.set_key(entry, 0);
        }
    }

    /// The frame will be changed soon.
    #[inline]
    pub fn prefetch(&self, frame: u32) {
        prefetch::write(std::ptr::from_ref(self.parts.frame(frame)).cast());
    }

    fn set_key(&self, entry: &FrameEntry, key: u64) {
        let begun = entry.lock.begin();
        entry.key.store(key, Ordering::Relaxed);
        entry.lock.end(begun);
    }

    /// The frame's content changes from now until the result is dropped; meanwhile the frame must not be passed to this
    /// function again, published or retracted. `None` if programs may not read the frame.
    pub fn change(&self, frame: u32) -> Option<Change<'_>> {
        let entry = self.parts.frame(frame);
        (entry.key.load(Ordering::Relaxed) != 0)
            .then(|| Change { begun: entry.lock.begin(), entry })
    }

    /// The file's size as programs see it, bytes.
    pub fn set_size(&self, slot: u32, size: u64) {
        self.parts.file(slot).size.store(size, Ordering::Release);
    }

    /// Up to which byte posted writes may go.
    pub fn set_grant(&self, slot: u32, grant: u64) {
        self.parts.file(slot).grant.store(grant, Ordering::Release);
    }

    /// How programs may use the file from now on; `client` is used for [`Mode::Exclusive`] only. To revoke a right,
    /// [`crate::server::Inbox::revoke`] must follow.
    pub fn set_mode(&self, slot: u32, mode: Mode, client: u32) {
        let client = if mode == Mode::Exclusive { client } else { 0 };
        let word = &self.parts.file(slot).state;
        let state = State(word.load(Ordering::Relaxed)).then(mode, client);
        word.store(state.0, Ordering::Release);
    }

    /// The counter of resident region memory, for [`Region::count_in`].
    pub fn resident(&self) -> &Arc<Resident> {
        &self.resident
    }

    /// Unmaps pages of clients' regions from this process when more than the bound is resident: the bytes
    /// stay in the shared memory and fault in when they are used. Call it after posted writes were taken out,
    /// and not under the shard's lock: these are system calls.
    ///
    /// # Errors
    /// That of the last region for which madvise(2) failed.
    #[inline]
    pub fn bound_resident(&self) -> io::Result<()> {
        self.resident.excess().map_or(Ok(()), |_| self.leave_memory())
    }

    #[cold]
    fn leave_memory(&self) -> io::Result<()> {
        let _one = self.unmapping.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have done it in the meantime.
        let Some(part) = self.resident.excess() else { return Ok(()) };
        let regions = self.clients.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut left = Ok(());
        for region in regions {
            left = region.leave_memory(part).and(left);
        }
        left
    }

    /// Includes the marks of a client's reads in [`Board::take_referenced`].
    pub fn add_client(&self, region: Arc<Region>) {
        self.clients.write().unwrap_or_else(PoisonError::into_inner).push(region);
    }

    /// The client is gone.
    pub fn remove_client(&self, region: &Arc<Region>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|known| !Arc::ptr_eq(known, region));
    }

    /// Whether a program read the frame since this was last asked.
    pub fn take_referenced(&self, frame: u32) -> bool {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        clients.iter().fold(false, |read, client| read | client.take_referenced(frame))
    }
}

/// The change of a frame's content; dropping it ends the change.
#[derive(Debug)]
pub struct Change<'a> {
    entry: &'a FrameEntry,
    begun: u64,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.entry.lock.end(self.begun);
    }
}

/// What a client may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its frames may be read.
    pub readable: bool,
    /// The asking client may post writes to it.
    pub writable: bool,
}

/// The half that reads: a client's.
#[derive(Debug)]
pub struct View {
    parts: Parts,
    memory: Memory,
}

impl View {
    /// Maps a board and its frames.
    ///
    /// # Errors
    /// That of mmap(2); `InvalidData` if the board is of another version.
    pub fn map(board: impl AsFd, frames: impl AsFd) -> io::Result<View> {
        let head = Memory::map(&board, size_of::<Head>(), Access::Read)?;
        // SAFETY: atomics alone.
        let head: &Head = unsafe { head.at(0) };
        let known = head.magic.load(Ordering::Relaxed) == MAGIC
            && head.version.load(Ordering::Relaxed) == VERSION;
        if !known {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a lane of another version"));
        }
        let (frame_count, buckets) =
            (head.frames.load(Ordering::Relaxed), head.buckets.load(Ordering::Relaxed));
        if !buckets.is_power_of_two() || buckets < BUCKETS_MIN {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a damaged board"));
        }
        let len = Parts::len(frame_count, buckets);
        let parts = Parts::over(Memory::map(&board, len, Access::Read)?, frame_count, buckets);
        let memory = Memory::map(&frames, frame_count as usize * PAGE_BYTES, Access::Read)?;
        Ok(View { parts, memory })
    }

    /// See [`crate::client::Client::unmap`].
    pub(crate) fn unmap(&self) -> io::Result<()> {
        // The board first: a reader that copies zeros from a frame then finds that the frame's sequence
        // changed. The frames are replaced even if the board cannot be.
        let board = self.parts.memory.replace_by_zeros(Access::Read);
        self.memory.replace_by_zeros(Access::Read).and(board)
    }

    /// Whether the daemon lives. The kernel updates this when the daemon's thread ends.
    #[inline]
    pub fn is_alive(&self) -> bool {
        self.parts.head().life.is_held()
    }

    /// The number of frames.
    pub fn frames(&self) -> u32 {
        self.parts.frames
    }

    /// How `client` may use a file.
    #[inline]
    pub fn seen(&self, slot: u32, client: u32) -> Seen {
        self.state(slot).seen(client)
    }

    /// Whether the file is used by the kernel because other descriptions use it by the kernel: those of any program, or
    /// only revoked ones of this client ([`View::is_rejoining`]).
    #[inline]
    pub fn is_by_kernel(&self, slot: u32) -> bool {
        let mode = self.state(slot).0 as u8;
        mode == Mode::Kernel as u8 || mode == Mode::Rejoining as u8
    }

    /// Whether the file is used by the kernel only until the client's revoked descriptions rejoin.
    #[inline]
    pub fn is_rejoining(&self, slot: u32) -> bool {
        self.state(slot).0 as u8 == Mode::Rejoining as u8
    }

    /// A file's mode, to be compared with its mode later.
    #[inline]
    pub(crate) fn state(&self, slot: u32) -> State {
        State(self.parts.file(slot).state.load(Ordering::Acquire))
    }

    /// The file's size, without writes still pending.
    #[inline]
    pub fn size(&self, slot: u32) -> u64 {
        self.parts.file(slot).size.load(Ordering::Acquire)
    }

    /// Up to which byte posted writes may go.
    #[inline]
    pub fn grant(&self, slot: u32) -> u64 {
        self.parts.file(slot).grant.load(Ordering::Acquire)
    }

    /// Copies `len` bytes at `start` of a page to `out`; they must lie inside the page. Returns the frame that was read.
    /// `None` if no frame is known to hold the page, or the frame changed meanwhile: `out` may then hold anything.
    ///
    /// # Safety
    /// `out` must be valid for writes of `len` bytes.
    #[inline]
    pub unsafe fn read(
        &self,
        slot: u32,
        page: u64,
        start: usize,
        len: usize,
        out: *mut u8,
    ) -> Option<u32> {
        assert!(start <= PAGE_BYTES && len <= PAGE_BYTES - start);
        let key = key_of(slot, page)?;
        for hint in self.parts.bucket(key) {
            let frame = hint.load(Ordering::Relaxed).wrapping_sub(1);
            if frame >= self.parts.frames {
                continue;
            }
            let entry = self.parts.frame(frame);
            let Some(number) = entry.lock.read() else { continue };
            if entry.key.load(Ordering::Relaxed) != key {
                continue;
            }
            let from = frame as usize * PAGE_BYTES + start;
            // SAFETY: inside the mapping of `frames` pages, and by this function's contract; the sequence
            // lock detects a concurrent write by the daemon.
            unsafe { racing::copy(self.memory.base().add(from), out, len) };
            return entry.lock.is_still(number).then_some(frame);
        }
        None
    }

    /// As [`View::read`], filling `out`.
    #[inline]
    pub fn read_into(&self, slot: u32, page: u64, start: usize, out: &mut [u8]) -> Option<u32> {
        // SAFETY: a slice is valid for writes of its length.
        unsafe { self.read(slot, page, start, out.len(), out.as_mut_ptr()) }
    }
}
