//! The shard's calls for the lane: files that programs read and write by shared memory.
//!
//! Programs read frames by the board without any call here. What they post is handed over in batches
//! ([`Shard::post`]): a batch costs one lock and one look at the clock. Posted writes are not among the
//! latencies: their writers did not wait.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_engine::{Durability, Error, ErrorKind, FileId, Outcome, Time};
use weir_lane::board::Board;

use crate::core::{State, Thread};
use crate::pending::Continuation;
use crate::posted::Posted;
use crate::shard::Shard;

/// Takes posted writes, in the order of the calls, while the shard is locked.
pub struct Poster<'a> {
    state: &'a mut State,
    now: Time,
}

impl Poster<'_> {
    /// A write comes soon: what it needs is asked for. Nothing is changed.
    #[inline]
    pub fn expect(&self, file: FileId, offset: u64, len: usize) {
        self.state.engine.expect_write(file, offset, len);
    }

    /// Writes `data` at `offset`, `None` being the end the file has when they are applied. `Some` is the result, and `done`
    /// was dropped; after `None` the write waits as any other may, and what `done` made is run once it is known, as a
    /// continuation of [`Shard::post`]'s.
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
                self.state.wait(self.now, Continuation::Posted(Box::new(done())));
                None
            }
        }
    }
}

impl Shard {
    /// What tells programs of the frames; `None` if there is no lane.
    pub fn board(&self) -> Option<&Arc<Board>> {
        self.pool.board()
    }

    /// The frames' memory, to be passed on read-only; `None` if there is no lane.
    pub fn frames_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pool.fd()
    }

    /// Puts a file in the lane under a number no other file has: its size, its grant and its pages are on the
    /// board from then on, its mode is the caller's. Says whether the file is attached.
    pub fn share(&self, file: FileId, slot: u32) -> bool {
        self.core.lock().engine.share(file, slot)
    }

    /// Takes a file out of the lane: when this returns nothing of it is on the board and the number may be given
    /// to another. Nothing happens if it is not there under this number.
    pub fn unshare(&self, file: FileId, slot: u32) {
        self.core.lock().engine.unshare(file, slot);
    }

    /// A write failed after its writer had gone on: every open description of the file is told, once.
    pub fn note_error(&self, file: FileId, kind: ErrorKind) {
        self.core.lock().engine.note_error(file, kind);
    }

    /// Runs `batch` under the shard's lock: it must be short, and call nothing of the shard. Continuations,
    /// its own and others', are left to workers and to the threads that complete requests: this may be called
    /// under locks that they take.
    pub fn post<T>(&self, batch: impl FnOnce(&mut Poster<'_>) -> T) -> T {
        self.core.event(Thread::Holding, |state, now| batch(&mut Poster { state, now }))
    }

    /// What programs posted.
    pub fn posted(&self) -> Posted {
        self.core.lock().posted
    }
}
