//! The pool that frames are taken from.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};

use weir_lane::board::Board;

use crate::arena::Arena;
use crate::frame::Frame;
use crate::preparer::Preparer;

/// A bounded set of frames. Cheap to clone: clones share the frames.
#[derive(Clone)]
pub struct FramePool {
    arena: Arc<Arena>,
}

impl FramePool {
    /// Maps memory for `frames` frames. It becomes resident only as frames are first used.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(frames: u32) -> io::Result<FramePool> {
        Ok(FramePool { arena: Arc::new(Arena::private(frames)?) })
    }

    /// As [`FramePool::new`], in memory that other processes may map, with a board that says what is in the
    /// frames. A frame has the same number on the board.
    ///
    /// # Errors
    /// Those of making and mapping shared memory.
    pub fn shared(frames: u32) -> io::Result<FramePool> {
        Ok(FramePool { arena: Arc::new(Arena::shared(frames)?) })
    }

    /// Makes huge pages of shared memory ahead of its use, to be run on a thread of its own. `None` if the
    /// memory is private, or if the preparer was taken before.
    pub fn preparer(&self) -> Option<Preparer> {
        let lane = self.arena.lane.as_ref()?;
        let (sender, coming) = mpsc::channel();
        sender.send(0).ok()?;
        lane.coming.set(sender).ok()?;
        Some(Preparer::new(Arc::clone(&lane.memory), coming))
    }

    /// The board of the frames; `None` if the memory is private.
    pub fn board(&self) -> Option<&Arc<Board>> {
        self.arena.lane.as_ref().map(|lane| &lane.board)
    }

    /// The frames' memory, to be passed on read-only; `None` if it is private.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.arena.lane.as_ref().map(|lane| lane.fd.as_fd())
    }

    /// Populates some pages of shared memory ahead of the frames handed out. Makes system calls, which
    /// [`FramePool::take`] does not: call it often, without holding a lock. Usually there is nothing to do. A
    /// frame that is handed out unpopulated costs a page fault.
    #[inline]
    pub fn prepare(&self) {
        if let Some(lane) = &self.arena.lane
            && self.arena.is_unprepared(lane)
        {
            self.arena.prepare(lane);
        }
    }

    /// Takes a free frame, with the content that it last held. `None` if all are in use. Makes no system call.
    #[inline]
    pub fn take(&self) -> Option<Frame> {
        let index = self.arena.take()?;
        Some(Frame::new(Arc::clone(&self.arena), index))
    }

    /// Frames in all.
    pub fn capacity(&self) -> u32 {
        self.arena.frames
    }

    /// Frames not in use. If one thread alone takes frames, it can take this many.
    pub fn free(&self) -> u32 {
        self.arena.free()
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} free)", self.free(), self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use weir_lane::memory::HUGE_BYTES;

    use super::*;
    use crate::arena::FRAMES_IN_HUGE;
    use crate::page::PAGE_BYTES;

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
        let stretches: Vec<usize> = preparer.stretches().collect();
        // The last stretch is past the end; `run` skips it.
        assert_eq!(stretches, [0, HUGE_BYTES, 2 * HUGE_BYTES, 3 * HUGE_BYTES]);
        drop((taken, pool));
        preparer.run().unwrap();
    }

    /// The engine hands out frames, and takes them back, under its shard's lock.
    #[test]
    fn handing_out_frames_and_taking_them_back_makes_no_system_call() {
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
        assert_eq!(status, 0, "9 is SIGKILL: the child made a system call");
        drop(preparer);
    }

    #[test]
    fn frames_are_free_after_their_last_handle_is_dropped() {
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
