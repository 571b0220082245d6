//! The shard's calls for the lane: files that programs read and write through shared memory.
//!
//! Programs find frames on the board and read them without a call of the shard. Their posted writes are applied
//! in batches ([`Shard::post`]): a batch takes the lock once and reads the clock once. Posted writes are not
//! among the latencies, since their writers did not wait.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_engine::{Durability, Error, ErrorKind, FileId, Outcome, Time};
use weir_lane::board::Board;

use crate::core::{State, Thread};
use crate::pending::Continuation;
use crate::posted::Posted;
use crate::shard::Shard;

/// Applies posted writes, in the order of the calls, while the shard is locked.
pub struct Poster<'a> {
    state: &'a mut State,
    now: Time,
}

impl Poster<'_> {
    /// A write will follow: prefetches the memory that it touches. Changes nothing.
    #[inline]
    pub fn expect(&self, file: FileId, offset: u64, len: usize) {
        self.state.engine.expect_write(file, offset, len);
    }

    /// Writes `data` at `offset`, or at the end that the file has when the write is applied if `offset` is
    /// `None`. Returns the result if it is known at once; `done` is then dropped. Otherwise the write waits,
    /// and `done` makes the continuation that gets the result.
    pub fn write<Done: FnOnce(Result<(), Error>) + Send + 'static>(
        &mut self,
        file: FileId,
        offset: Option<u64>,
        data: &[u8],
        done: impl FnOnce() -> Done,
    ) -> Option<Result<(), Error>> {
        let State { engine, pending, posted, .. } = &mut *self.state;
        posted.writes += 1;
        posted.bytes += data.len() as u64;
        let request = pending.next_id();
        let written = match offset {
            Some(offset) => engine.write(request, file, offset, data, Durability::None, self.now),
            None => engine.write_at_end(request, file, data, Durability::None, self.now),
        };
        match written {
            Outcome::Done(result) => Some(result),
            Outcome::Pending => {
                self.state.wait(self.now, Some(file), Continuation::Posted(Box::new(done())));
                None
            }
        }
    }
}

impl Shard {
    /// The board, which tells programs what is in the frames; `None` if there is no lane.
    pub fn board(&self) -> Option<&Arc<Board>> {
        self.pool.board()
    }

    /// The frames' memory, to be passed on read-only; `None` if there is no lane.
    pub fn frames_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pool.fd()
    }

    /// Puts a file in the lane under a number that no other file has. The board then shows its size, its grant
    /// and its pages; the caller sets its mode. Says whether the file is attached.
    pub fn share(&self, file: FileId, slot: u32) -> bool {
        self.core.event(Thread::Holding, |state, now| state.engine.share(file, slot, now))
    }

    /// Takes a file out of the lane. When this returns, the board shows nothing of the file, and the number may
    /// be given to another one. Does nothing if the file is not in the lane under this number.
    pub fn unshare(&self, file: FileId, slot: u32) {
        self.core.lock().engine.unshare(file, slot);
    }

    /// A write failed after its writer had continued: reports that once to every open description of the file.
    pub fn note_error(&self, file: FileId, kind: ErrorKind) {
        self.core.lock().engine.note_error(file, kind);
    }

    /// Runs `batch` under the shard's lock: it must be short, and must not call the shard. Continuations are
    /// run by workers and by the threads that complete requests, so the caller may hold locks that
    /// continuations take.
    pub fn post<T>(&self, batch: impl FnOnce(&mut Poster<'_>) -> T) -> T {
        self.core.event(Thread::Holding, |state, now| batch(&mut Poster { state, now }))
    }

    /// Counts of posted writes.
    pub fn posted(&self) -> Posted {
        self.core.lock().posted
    }
}
