//! The server of one thread: takes requests from its ring, has them executed, and sends the answers.
//!
//! A request that need not wait is read, executed and answered here, without another thread; the answer goes to the kernel
//! with the call that waits for the next request. A request that must wait leaves a continuation, and its answer comes
//! through the mailbox.

use std::sync::Arc;
use std::time::Duration;

use super::idle_policy::IdlePolicy;
use super::mailbox::{Answer, Mailbox};
use super::ring::{Completion, Ring};
use crate::dispatch::dispatch;
use crate::file_system::FileSystem;
use crate::reply::{Answers, Reply};
use crate::transport::wire::opcode;

/// Memory of large requests a thread keeps for the next ones.
const RESIDENT_MAX: usize = 4 << 20;
/// How long the thread keeps that memory while no requests arrive.
const IDLE: Duration = Duration::from_secs(1);

/// A thread's ring, and what it serves.
pub(super) struct Server {
    fs: Arc<FileSystem>,
    ring: Ring,
    mailbox: Arc<Mailbox>,
    idle_policy: IdlePolicy,
    completed: Vec<Completion>,
    answers: Vec<Answer>,
    /// The kernel has reported that the connection has ended.
    disconnected: bool,
}

impl Server {
    /// The server of the calling thread.
    pub(super) fn new(fs: Arc<FileSystem>, ring: Ring, mailbox: Arc<Mailbox>) -> Server {
        Server {
            fs,
            ring,
            mailbox,
            idle_policy: IdlePolicy::begin(),
            completed: Vec::new(),
            answers: Vec::new(),
            disconnected: false,
        }
    }

    /// Registers every entry of the ring with the device.
    ///
    /// # Errors
    /// Why the kernel refused an entry. It then sends requests to the device, until every queue has an entry.
    pub(super) fn register(&mut self) -> std::io::Result<()> {
        for entry in self.ring.entries() {
            self.ring.register(entry);
        }
        self.ring.listen(self.mailbox.doorbell());
        self.submit();
        self.ring.reap(&mut self.completed);
        let refusal = self.completed.iter().find_map(|completion| match completion {
            Completion::Refused(_, errno) => Some(*errno),
            _ => None,
        });
        refusal.map_or(Ok(()), |errno| Err(std::io::Error::from_raw_os_error(errno)))
    }

    /// Serves until the mount is gone or the mailbox is stopped.
    pub(super) fn run(mut self) {
        let mut completed = Vec::new();
        loop {
            std::mem::swap(&mut self.completed, &mut completed);
            for completion in completed.drain(..) {
                self.handle(completion);
            }
            self.send_answers();
            if self.mailbox.is_stopped() || (self.disconnected && self.ring.with_kernel() == 0) {
                return;
            }
            if self.ring.resident() > RESIDENT_MAX {
                self.submit();
                self.ring.reap(&mut self.completed);
                self.ring.trim();
            }
            if self.completed.is_empty() && self.mailbox.will_wait() {
                self.wait();
                self.mailbox.waited();
                self.idle_policy.check();
            }
        }
    }

    fn wait(&mut self) {
        let time_max = (self.ring.resident() > 0).then_some(IDLE);
        let waited = self.ring.wait(&mut self.completed, time_max);
        waited.expect("a ring takes what was put into it rightly");
        if self.completed.is_empty() {
            self.ring.trim();
        }
    }

    fn submit(&self) {
        self.ring.submit().expect("a ring takes what was put into it rightly");
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Request(entry) => self.serve(entry),
            Completion::Doorbell => {
                self.mailbox.silence();
                self.ring.listen(self.mailbox.doorbell());
            }
            Completion::Refused(entry, errno) => self.refused(entry, errno),
        }
    }

    fn serve(&mut self, entry: u32) {
        if self.ring.has_unsubmitted()
            && !self.ring.request(entry).is_ok_and(|r| needs_no_call_of_home(&r))
        {
            // Earlier answers must not wait for this request's system calls at home.
            self.submit();
        }
        match self.ring.request(entry) {
            Ok(request) => {
                self.fs.requests.count(request.header.opcode);
                let to = Arc::clone(&self.mailbox) as Arc<dyn Answers>;
                let reply = Reply::new(to, entry, request.header.unique);
                dispatch(&self.fs, &request, reply);
            }
            Err((malformed, unique)) => {
                tracing::error!("the kernel sent request {unique}, which is malformed");
                self.ring.answer(entry, unique, Err(malformed.into()));
            }
        }
        self.send_answers();
    }

    fn send_answers(&mut self) {
        self.mailbox.take(&mut self.answers);
        for Answer { entry, unique, result } in self.answers.drain(..) {
            self.ring.answer(entry, unique, result);
        }
    }

    fn refused(&mut self, entry: u32, errno: i32) {
        match errno {
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED => self.disconnected = true,
            _ => {
                let (queue, error) =
                    (self.ring.queue(entry), std::io::Error::from_raw_os_error(errno));
                tracing::warn!("queue {queue} of FUSE over io_uring has lost an entry: {error}");
            }
        }
    }
}

/// Whether a request is answered, or left to a continuation, without a system call at home.
fn needs_no_call_of_home(request: &crate::transport::wire::request::Request<'_>) -> bool {
    matches!(request.header.opcode, opcode::READ | opcode::WRITE)
}
