//! A queue's mailbox: any thread puts answers into it, and the queue's own thread sends them.
//!
//! Owns the answers and the doorbell, an eventfd that ends the thread's wait.
//!
//! Invariant: an answer that is put while the thread waits, or is about to wait, rings the doorbell. The thread
//! first announces its wait and then looks for answers; a thread that puts an answer first puts it and then
//! checks for that announcement.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::errno::Errno;
use crate::reply::Answers;
use crate::transport::wire::answer::Body;

/// An answer to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    /// The entry its request came in.
    pub(super) entry: u32,
    /// The request's number.
    pub(super) unique: u64,
    /// The answer itself.
    pub(super) result: Result<Body, Errno>,
}

/// The mailbox of one thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    answers: Mutex<Vec<Answer>>,
    /// The thread is awake and will look for answers before it waits.
    awake: AtomicBool,
    stopped: AtomicBool,
    doorbell: OwnedFd,
}

impl Mailbox {
    /// # Errors
    /// Those of eventfd(2).
    pub(super) fn new() -> std::io::Result<Mailbox> {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox {
            answers: Mutex::default(),
            awake: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
            doorbell,
        })
    }

    /// Puts an answer.
    fn put(&self, answer: Answer) {
        self.answers().push(answer);
        self.wake();
    }

    /// Makes the thread end without another wait.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            // Fails only if the counter is full: then the doorbell rings already.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Whether the thread is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Moves the answers into `taken`, which is empty.
    pub(super) fn take(&self, taken: &mut Vec<Answer>) {
        std::mem::swap(&mut *self.answers(), taken);
    }

    /// Announces that the thread is about to wait. Returns false if it must not wait, because there are answers to send or
    /// it must end.
    pub(super) fn will_wait(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        let may_wait = self.answers().is_empty() && !self.is_stopped();
        if !may_wait {
            self.waited();
        }
        may_wait
    }

    /// The thread no longer waits.
    pub(super) fn waited(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Resets the doorbell.
    pub(super) fn silence(&self) {
        // Fails if it does not ring.
        let _ = rustix::io::read(&self.doorbell, &mut [0u8; 8]);
    }

    /// Becomes readable when the thread is to be woken.
    pub(super) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers for Mailbox {
    fn answer(&self, slot: u32, unique: u64, result: Result<Body, Errno>) {
        self.put(Answer { entry: slot, unique, result });
    }

    /// An entry goes back to the kernel only with an answer, even if the request needs none.
    fn done(&self, slot: u32, unique: u64) {
        self.answer(slot, unique, Ok(Body::empty()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::reply::Reply;

    fn reply(mailbox: &Arc<Mailbox>, entry: u32, unique: u64) -> Reply {
        Reply::new(Arc::clone(mailbox) as Arc<dyn Answers>, entry, unique)
    }

    fn take(mailbox: &Mailbox) -> Vec<Answer> {
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        taken
    }

    fn rings(mailbox: &Mailbox) -> bool {
        rustix::io::read(mailbox.doorbell(), &mut [0u8; 8]).is_ok()
    }

    #[test]
    fn the_doorbell_rings_only_for_a_waiting_thread() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        reply(&mailbox, 3, 8).send(Ok(Body::empty()));
        assert!(!rings(&mailbox) && !mailbox.will_wait());
        assert_eq!((take(&mailbox)[0].entry, take(&mailbox).len()), (3, 0));
        assert!(mailbox.will_wait());
        reply(&mailbox, 4, 9).send(Ok(Body::empty()));
        assert!(rings(&mailbox));
        reply(&mailbox, 5, 10).send(Ok(Body::empty()));
        assert!(!rings(&mailbox), "the first one has woken it");
        mailbox.waited();
        assert_eq!(take(&mailbox).len(), 2);
    }

    #[test]
    fn a_reply_that_is_dropped_is_an_error() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        drop(reply(&mailbox, 3, 8));
        assert!(matches!(take(&mailbox)[0].result, Err(Errno::EIO)));
    }

    #[test]
    fn stopping_ends_a_wait() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.will_wait());
        mailbox.stop();
        assert!(rings(&mailbox) && mailbox.is_stopped());
        mailbox.waited();
        assert!(!mailbox.will_wait());
    }
}
