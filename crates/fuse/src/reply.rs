//! The right, and the duty, to answer one request, at once or later, on either transport.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::errno::Errno;
use crate::transport::wire::answer::Body;

/// What sends answers to the kernel.
pub(crate) trait Answers: Send + Sync {
    /// Sends the answer to the request `unique`, which came in `slot`. The transport decides what a slot is.
    fn answer(&self, slot: u32, unique: u64, result: Result<Body, Errno>);

    /// The request `unique` is of a kind that gets no answer, and is done.
    fn done(&self, slot: u32, unique: u64);
}

/// The reply to one request, from any thread.
pub(crate) struct Reply {
    to: Arc<dyn Answers>,
    slot: u32,
    unique: u64,
    sent: bool,
    before: SmallVec<[Box<dyn FnOnce() + Send>; 1]>,
}

impl Reply {
    /// The reply to the request `unique`, which came in `slot` of `to`.
    pub(crate) fn new(to: Arc<dyn Answers>, slot: u32, unique: u64) -> Reply {
        Reply { to, slot, unique, sent: false, before: SmallVec::new() }
    }

    /// Has the answer, whichever it is, go through something that gives it on: see [`Answers`].
    pub(crate) fn through(
        mut self,
        make: impl FnOnce(Arc<dyn Answers>) -> Arc<dyn Answers>,
    ) -> Reply {
        self.to = make(Arc::clone(&self.to));
        self
    }

    /// Has something done just before the answer is sent, whichever it is.
    pub(crate) fn before(&mut self, answer: impl FnOnce() + Send + 'static) {
        self.before.push(Box::new(answer));
    }

    /// Answers.
    pub(crate) fn send(mut self, result: Result<Body, Errno>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<Body, Errno>) {
        self.sent = true;
        for before in self.before.drain(..) {
            before();
        }
        self.to.answer(self.slot, self.unique, result);
    }

    /// Ends a request that gets no answer.
    pub(crate) fn done(mut self) {
        self.sent = true;
        self.to.done(self.slot, self.unique);
    }
}

impl Drop for Reply {
    /// A request whose reply is dropped without an answer fails, so that the program does not wait for ever.
    fn drop(&mut self) {
        if !self.sent {
            self.answer(Err(Errno::EIO));
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.unique)
    }
}
