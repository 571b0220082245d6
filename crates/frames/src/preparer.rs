//! Huge pages for frames' memory, made on a thread of its own before the frames are handed out.

use std::io;
use std::sync::{Arc, mpsc};

use rustix::io::Errno;
use weir_lane::memory::{HUGE_BYTES, Memory};

/// Makes huge pages of frames' memory before the frames are handed out. Random access then walks one level less
/// of the page table, in every process that maps the frames, and a first touch costs a third of a page fault.
#[derive(Debug)]
pub struct Preparer {
    memory: Arc<Memory>,
    coming: mpsc::Receiver<usize>,
}

impl Preparer {
    /// Prepares the stretches of `memory` whose offsets come from the channel.
    pub(crate) fn new(memory: Arc<Memory>, coming: mpsc::Receiver<usize>) -> Preparer {
        Preparer { memory, coming }
    }

    /// The stretches that came so far.
    #[cfg(test)]
    pub(crate) fn stretches(&self) -> impl Iterator<Item = usize> {
        self.coming.try_iter()
    }

    /// Works until the pool is dropped.
    ///
    /// # Errors
    /// There are no huge pages ([`Memory::make_huge`]): the memory is used without them.
    pub fn run(self) -> io::Result<()> {
        let len = self.memory.len();
        let whole = |offset: &usize| offset + HUGE_BYTES <= len;
        for offset in self.coming.iter().filter(whole) {
            if let Err(error) = self.memory.make_huge(offset)
                && !is_transient(&error)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether the next stretch may succeed: frames of this one are in transfer, or memory is fragmented now.
fn is_transient(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM))
}
