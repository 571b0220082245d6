//! Page frames: a bounded pool of page-aligned memory, and counted handles to it.
//!
//! Owns the memory. A [`Frame`] that is the only handle to its memory may be written; a shared one
//! may only be read. That is how a destage and a read's answer can use a frame outside the engine's
//! lock while the engine goes on: to change a shared frame it takes a new one first.
//!
//! Invariants:
//! - a frame's reference count is the number of [`Frame`] handles to it; at zero it is on the free
//!   list exactly once, and nothing refers to its memory;
//! - memory is written only through `&mut Frame` with a reference count of one;
//! - memory that programs may read as well ([`FramePool::shared`]) is theirs to read at any time: what they
//!   make of it is the board's business, and `resident`'s, who changes a published frame;
//! - handing frames out and taking them back makes no system call: the engine does so under its shard's lock.
//!   A thread without that lock prepares memory ahead ([`FramePool::prepare`]);
//! - the memory stays mapped until the last handle and the pool are dropped.
//!
//! Lock order: the free list's lock is taken last and nothing is called under it.

#![allow(unsafe_code)] // An arena shared with the kernel's I/O cannot be written without it.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use weir_lane::board::{Board, Change};
use weir_lane::memory::{self, Access, HUGE_BYTES, Memory};
use weir_lane::prefetch;

use crate::PAGE_BYTES;

/// Number of frames populated by one madvise(2): that takes two thirds of the time of as many page faults
/// (1.4 and 2.0 us a page on a virtual machine). Shared memory has no huge pages by itself where
/// shmem_enabled is off, as it is by default, and those that a [`Preparer`] makes may come too late.
const PREPARED_AT_ONCE: u32 = 16;
/// Number of frames to populate ahead of use: those of a request of the largest size.
const PREPARED_AHEAD: u32 = 256;

const FRAMES_IN_HUGE: u32 = (HUGE_BYTES / PAGE_BYTES) as u32;

struct Arena {
    base: NonNull<u8>,
    frames: u32,
    lane: Option<Lane>,
    references: Box<[AtomicU32]>,
    free: Mutex<FreeList>,
    /// Frames handed out. Lowered only after the frame is on the free list, so that what this
    /// says is free can be taken.
    in_use: AtomicU32,
}

/// What programs are given of an arena they may read.
struct Lane {
    board: Arc<Board>,
    fd: OwnedFd,
    /// Where the arena is.
    memory: Arc<Memory>,
    /// Takes the stretches that frames will be handed out from soon, once there is a [`Preparer`].
    coming: OnceLock<mpsc::Sender<usize>>,
    /// Frames from here on were never handed out: a copy of `untouched` that is read without its lock.
    handed_out: AtomicU32,
    /// Frames below this are populated, or a thread is populating them.
    prepared: AtomicU32,
}

/// Frames never handed out lie above `untouched`, so that memory becomes resident only as needed.
struct FreeList {
    returned: Vec<u32>,
    untouched: u32,
}

// SAFETY: the arena's memory is reached only through `Frame` handles, whose rules (module header)
// make every access either shared and read-only or exclusive; the rest is atomics and a mutex.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.lane.is_some() {
            return; // It unmaps the memory itself.
        }
        // SAFETY: `base` and the length are those of the mapping made in `FramePool::new`; every
        // handle holds an `Arc<Arena>`, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len_bytes()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Arena {
    fn len_bytes(&self) -> usize {
        self.frames as usize * PAGE_BYTES
    }

    /// See [`FramePool::prepare`].
    #[cold]
    fn prepare(&self, lane: &Lane) {
        loop {
            let wanted = self.wanted(lane);
            let begin = lane.prepared.load(Ordering::Relaxed);
            if begin >= wanted {
                return;
            }
            let end = self.frames.min(begin + PREPARED_AT_ONCE);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if lane.prepared.compare_exchange(begin, end, success, failure).is_err() {
                continue;
            }
            if begin.is_multiple_of(FRAMES_IN_HUGE)
                && let Some(coming) = lane.coming.get()
            {
                // The receiver may have stopped because there are no huge pages.
                let _ = coming.send(begin as usize * PAGE_BYTES + HUGE_BYTES);
            }
            let len = (end - begin) as usize * PAGE_BYTES;
            // SAFETY: the range lies in the mapping; the advice does not change its content. Where the kernel
            // refuses it (before Linux 5.14), pages are populated by faults.
            let _ = unsafe { madvise(self.address(begin).cast(), len, Advice::LinuxPopulateWrite) };
        }
    }

    /// The frame up to which to populate.
    #[inline]
    fn wanted(&self, lane: &Lane) -> u32 {
        self.frames.min(lane.handed_out.load(Ordering::Relaxed).saturating_add(PREPARED_AHEAD))
    }

    fn address(&self, index: u32) -> *mut u8 {
        assert!(index < self.frames);
        // SAFETY: the index is below the number of frames, so the result lies in the mapping.
        unsafe { self.base.as_ptr().add(index as usize * PAGE_BYTES) }
    }
}

/// A bounded set of frames. Cheap to clone: clones share the frames.
#[derive(Clone)]
pub struct FramePool {
    arena: Arc<Arena>,
}

impl FramePool {
    /// Maps memory for `frames` frames. It becomes resident only as frames are first used.
    ///
    /// # Errors
    /// What mmap(2) says when the address space cannot be had.
    pub fn new(frames: u32) -> io::Result<FramePool> {
        assert!(frames > 0);
        let len = frames as usize * PAGE_BYTES;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases
        // nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // A first touch costs a page fault, which costs more than filling the page: have one for
        // 2 MiB. Frames are handed out from one end and used again last in, first out, so little
        // is resident that is not in use. Without huge pages (EINVAL) all works the same.
        // SAFETY: the range is the mapping just made; the advice changes nothing of its content.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("mmap returned a null mapping"))?;
        Ok(FramePool::over(base, frames, None))
    }

    /// The same in memory that other processes may map, with a board that tells them what is in it: frames
    /// are numbered alike on both.
    ///
    /// # Errors
    /// What making and mapping shared memory says.
    pub fn shared(frames: u32) -> io::Result<FramePool> {
        assert!(frames > 0);
        let len = frames as usize * PAGE_BYTES;
        let fd = memory::create("weir-frames", len)?;
        let mapped = Memory::map(&fd, len, Access::ReadWrite)?;
        // Programs get it read-only, and could open it anew by /proc.
        memory::seal_writes(fd.as_fd())?;
        let base = NonNull::new(mapped.base()).expect("a mapping is not at null");
        let (memory, coming) = (Arc::new(mapped), OnceLock::new());
        let board = Arc::new(Board::new(frames)?);
        let (handed_out, prepared) = (AtomicU32::new(0), AtomicU32::new(0));
        let lane = Lane { board, fd, memory, coming, handed_out, prepared };
        Ok(FramePool::over(base, frames, Some(lane)))
    }

    /// What makes huge pages of the memory that other processes may map, ahead of its use, on a thread of its own;
    /// `None` if they cannot map it, or somebody has it already.
    pub fn preparer(&self) -> Option<Preparer> {
        let lane = self.arena.lane.as_ref()?;
        let (sender, coming) = mpsc::channel();
        sender.send(0).ok()?;
        lane.coming.set(sender).ok()?;
        Some(Preparer { memory: Arc::clone(&lane.memory), coming })
    }

    fn over(base: NonNull<u8>, frames: u32, lane: Option<Lane>) -> FramePool {
        let references = (0..frames).map(|_| AtomicU32::new(0)).collect();
        let free =
            Mutex::new(FreeList { returned: Vec::with_capacity(frames as usize), untouched: 0 });
        let in_use = AtomicU32::new(0);
        FramePool { arena: Arc::new(Arena { base, frames, lane, references, free, in_use }) }
    }

    /// What tells other processes of the frames; `None` if they cannot map them.
    pub fn board(&self) -> Option<&Arc<Board>> {
        self.arena.lane.as_ref().map(|lane| &lane.board)
    }

    /// The frames' memory, to be passed on read-only; `None` if other processes cannot map it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.arena.lane.as_ref().map(|lane| lane.fd.as_fd())
    }

    /// Populates pages of memory that other processes may map, some frames ahead of those handed out. Makes
    /// system calls, which [`FramePool::take`] does not: call it now and then, without holding a lock.
    /// Usually there is nothing to do. A frame that is handed out unpopulated costs a page fault.
    #[inline]
    pub fn prepare(&self) {
        if let Some(lane) = &self.arena.lane
            && lane.prepared.load(Ordering::Relaxed) < self.arena.wanted(lane)
        {
            self.arena.prepare(lane);
        }
    }

    /// Takes a free frame. Its content is whatever it last held. `None` if all are in use. Makes no system
    /// call.
    pub fn take(&self) -> Option<Frame> {
        let index = {
            let mut free = self.arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.returned.pop() {
                Some(index) => index,
                None if free.untouched < self.arena.frames => {
                    free.untouched += 1;
                    if let Some(lane) = &self.arena.lane {
                        lane.handed_out.store(free.untouched, Ordering::Relaxed);
                    }
                    free.untouched - 1
                }
                None => return None,
            }
        };
        self.arena.in_use.fetch_add(1, Ordering::Relaxed);
        let before = self.arena.references[index as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free frame is referred to by nobody");
        Some(Frame { arena: Arc::clone(&self.arena), index })
    }

    /// Frames in all.
    pub fn capacity(&self) -> u32 {
        self.arena.frames
    }

    /// Frames not in use. If one thread alone takes frames, it can take this many.
    pub fn free(&self) -> u32 {
        self.arena.frames - self.arena.in_use.load(Ordering::Acquire)
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} free)", self.free(), self.capacity())
    }
}

/// Makes huge pages of frames' memory before they are handed out: random access to frames then costs a walk through the
/// processor's tables less, here and in all who map them, and first touches a third of what faults cost.
#[derive(Debug)]
pub struct Preparer {
    memory: Arc<Memory>,
    coming: mpsc::Receiver<usize>,
}

impl Preparer {
    /// Works until the pool is gone.
    ///
    /// # Errors
    /// There are no huge pages ([`Memory::make_huge`]): the memory is used without them.
    pub fn run(self) -> io::Result<()> {
        let len = self.memory.len();
        let whole = |offset: &usize| offset + HUGE_BYTES <= len;
        for offset in self.coming.iter().filter(whole) {
            if let Err(error) = self.memory.make_huge(offset)
                && !passes(&error)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether the next stretch may be had all the same: frames of this one are in transfer, or memory is in small pieces now.
fn passes(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM))
}

/// A counted handle to one page of memory, aligned to the page size.
pub struct Frame {
    arena: Arc<Arena>,
    index: u32,
}

impl Frame {
    /// The page's bytes.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        // SAFETY: the memory is mapped, initialised (zero or written before), and nobody writes it
        // while this handle is borrowed: writing needs `&mut` to the only handle.
        unsafe { &*self.arena.address(self.index).cast() }
    }

    /// The page's bytes for writing, or `None` while another handle shares them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8; PAGE_BYTES]> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: as in `bytes`; this is the only handle and it is borrowed mutably.
        Some(unsafe { &mut *self.arena.address(self.index).cast() })
    }

    /// As [`Frame::bytes_mut`], of a frame that may be published: who reads it by the board is told.
    #[inline]
    pub(crate) fn change(&mut self) -> Option<Changing<'_>> {
        if !self.is_unique() {
            return None;
        }
        let change = self.board().and_then(|board| board.change(self.index));
        // SAFETY: as in `bytes_mut`: what is returned borrows this handle mutably. Programs that read
        // meanwhile are other processes, or read as such do.
        let bytes = unsafe { &mut *self.arena.address(self.index).cast() };
        Some(Changing { bytes, _change: change })
    }

    /// The board that tells of this frame.
    #[inline]
    pub(crate) fn board(&self) -> Option<&Board> {
        self.arena.lane.as_ref().map(|lane| &*lane.board)
    }

    /// `len` bytes from `start` on will be written soon. Of many the processor sees by itself what comes, and a whole page
    /// is written past the cache.
    #[inline]
    pub(crate) fn prefetch(&self, start: usize, len: usize) {
        let asked = if len == PAGE_BYTES { 0 } else { len.min(256) };
        for line in (start..start + asked).step_by(64) {
            prefetch::write(self.arena.address(self.index).wrapping_add(line));
        }
        if let Some(board) = self.board() {
            board.prefetch(self.index);
        }
    }

    /// Its number in the pool.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Whether no other handle shares this frame.
    pub fn is_unique(&self) -> bool {
        if self.arena.references[self.index as usize].load(Ordering::Relaxed) != 1 {
            return false;
        }
        // Pairs with the release in `drop`: whatever other holders did to the memory is over.
        fence(Ordering::Acquire);
        true
    }

    /// The frame's address, for a device that reads from it or, if this handle is the only one,
    /// writes to it. Valid while a handle is held.
    pub fn as_ptr(&self) -> *mut u8 {
        self.arena.address(self.index)
    }
}

/// A frame's bytes while they change.
pub(crate) struct Changing<'a> {
    bytes: &'a mut [u8; PAGE_BYTES],
    _change: Option<Change<'a>>,
}

impl Deref for Changing<'_> {
    type Target = [u8; PAGE_BYTES];

    fn deref(&self) -> &[u8; PAGE_BYTES] {
        self.bytes
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        self.bytes
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        let before = self.arena.references[self.index as usize].fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "frame reference count overflow");
        Frame { arena: Arc::clone(&self.arena), index: self.index }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.arena.references[self.index as usize].fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            let mut free = self.arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.returned.push(self.index);
            drop(free);
            self.arena.in_use.fetch_sub(1, Ordering::Release);
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({})", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_frame_cannot_be_written() {
        let pool = FramePool::new(2).unwrap();
        let mut frame = pool.take().unwrap();
        frame.bytes_mut().unwrap()[7] = 9;
        let shared = frame.clone();
        assert!(frame.bytes_mut().is_none());
        assert_eq!(shared.bytes()[7], 9);
        drop(shared);
        assert!(frame.bytes_mut().is_some());
    }

    #[test]
    fn memory_is_made_huge_ahead_of_its_use_and_to_its_end() {
        let frames = 2 * FRAMES_IN_HUGE + 7;
        let pool = FramePool::shared(frames).unwrap();
        assert!(FramePool::new(1).unwrap().preparer().is_none());
        let preparer = pool.preparer().unwrap();
        assert!(pool.preparer().is_none());
        let taken: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), frames as usize);
        pool.prepare();
        let stretches: Vec<usize> = preparer.coming.try_iter().collect();
        // The last is past the end, and left out by `run`.
        assert_eq!(stretches, [0, HUGE_BYTES, 2 * HUGE_BYTES, 3 * HUGE_BYTES]);
        drop((taken, pool));
        preparer.run().unwrap();
    }

    /// The engine hands out frames, and takes them back, under its shard's lock.
    #[test]
    fn no_system_call_is_made_to_hand_out_frames_and_take_them_back() {
        const FRAMES: u32 = 4 * FRAMES_IN_HUGE;
        let pool = FramePool::shared(FRAMES).unwrap();
        let preparer = pool.preparer().unwrap();
        let mut taken = Vec::with_capacity(FRAMES as usize);
        // SAFETY: only the code below runs in the child; it does not allocate, and the child exits at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the arguments are numbers. From here on every system call except exit kills the child.
            unsafe {
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT);
            }
            while let Some(frame) = pool.take() {
                taken.push(frame);
            }
            let is_all = taken.len() == FRAMES as usize;
            taken.clear();
            // SAFETY: the argument is a number.
            unsafe { libc::syscall(libc::SYS_exit, if is_all { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is written.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "killed by SIGKILL (9): it made a system call");
        drop(preparer);
    }

    #[test]
    fn frames_come_back_when_their_last_handle_goes() {
        let pool = FramePool::new(2).unwrap();
        let first = pool.take().unwrap();
        let second = pool.take().unwrap();
        assert!(pool.take().is_none());
        let shared = second.clone();
        drop(second);
        assert!(pool.take().is_none());
        drop(shared);
        drop(first);
        assert_eq!(pool.free(), 2);
        assert_eq!(pool.take().unwrap().as_ptr() as usize % PAGE_BYTES, 0);
    }
}
