//! The io_uring of one thread, and the current owner of each of its entries.
//!
//! An entry holds one request at a time. The thread gives it to the kernel with `REGISTER`. The kernel gives it back with
//! a request, and gets it again with the answer, by `COMMIT_AND_FETCH` (Documentation/filesystems/fuse/fuse-io-uring.rst).
//!
//! Invariants:
//! - the memory of an entry that is [`Owner::Kernel`] is not touched here, and the kernel does not
//!   touch that of any other;
//! - the kernel touches an entry's memory only inside [`Ring::wait`] and [`Ring::submit`]: the ring
//!   is one of IORING_SETUP_DEFER_TASKRUN, and all calls are made by the thread that made it.

#![allow(unsafe_code)] // The kernel uses memory that ring entries point to: there is no safe interface for that.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use super::area::{Area, FRAME_BYTES, PAYLOAD_BYTES};
use crate::errno::Errno;
use crate::transport::wire::Malformed;
use crate::transport::wire::answer::{self, Body};
use crate::transport::wire::request::{Header, Request};

/// `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Where `len` is in `struct io_uring_sqe`.
const SQE_LEN: usize = 24;

/// The device, among the ring's registered files.
const DEVICE: Fixed = Fixed(0);

/// User data of the doorbell's poll, which belongs to no entry.
const DOORBELL: u64 = u64::MAX;

/// The owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// No owner: the entry is not registered yet, or was refused.
    Nobody,
    /// The kernel: the entry waits for a request.
    Kernel,
    /// This thread: the entry has a request that is not answered.
    Us,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// The doorbell rang.
    Doorbell,
    /// A request is in this entry.
    Request(u32),
    /// The kernel refused this entry, with this errno.
    Refused(u32, i32),
}

/// A thread's ring.
pub(super) struct Ring {
    // Dropped before the memory the kernel writes to.
    ring: IoUring<Entry128, cqueue::Entry>,
    area: Area,
    /// The queue of each entry.
    queues: Vec<u16>,
    owners: Vec<Owner>,
    with_kernel: usize,
    iovecs: Box<[[libc::iovec; 2]]>,
    /// Keeps the ring on the thread that made it.
    of_thread: PhantomData<*const ()>,
}

impl Ring {
    /// A ring of the calling thread, with an entry for each of `queues`, by the queue's number.
    /// Nothing is registered with the device yet.
    ///
    /// # Errors
    /// Those of io_uring_setup(2) and io_uring_register(2), or ENOMEM.
    pub(super) fn new(queues: Vec<u16>, device: BorrowedFd<'_>) -> io::Result<Ring> {
        let entries = u32::try_from(queues.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The doorbell's poll needs one more.
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries + 1)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let area = Area::new(queues.len())?;
        let iovecs = (0..entries).map(|entry| {
            let place = area.place(entry);
            let iovec = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
            [iovec(place.frame.as_ptr(), FRAME_BYTES), iovec(place.payload.as_ptr(), PAYLOAD_BYTES)]
        });
        Ok(Ring {
            iovecs: iovecs.collect(),
            owners: vec![Owner::Nobody; queues.len()],
            with_kernel: 0,
            ring,
            area,
            queues,
            of_thread: PhantomData,
        })
    }

    /// Its entries.
    pub(super) fn entries(&self) -> std::ops::Range<u32> {
        // There are as many as `new` found to fit.
        0..self.queues.len() as u32
    }

    /// Entries the kernel has.
    pub(super) fn with_kernel(&self) -> usize {
        self.with_kernel
    }

    /// The queue of an entry.
    pub(super) fn queue(&self, entry: u32) -> u16 {
        self.queues[entry as usize]
    }

    /// Gives the kernel an entry for the first time.
    pub(super) fn register(&mut self, entry: u32) {
        assert_eq!(self.owners[entry as usize], Owner::Nobody, "an entry is registered once");
        let iovecs = &self.iovecs[entry as usize];
        let command = command(0, self.queue(entry));
        let addr = iovecs.as_ptr() as u64;
        let sqe = opcode::UringCmd80::new(DEVICE, REGISTER).cmd(command).addr(Some(addr)).build();
        let mut sqe = sqe.user_data(entry.into());
        // SAFETY: an `Entry128` is a `struct io_uring_sqe` of 128 bytes, and this its field `len`,
        // for which the builder has no method.
        unsafe {
            let field = std::ptr::from_mut(&mut sqe).cast::<u8>().add(SQE_LEN);
            field.cast::<u32>().write_unaligned(iovecs.len() as u32);
        }
        self.push(&sqe);
        self.give(entry);
    }

    /// The request in an entry that this thread owns.
    ///
    /// # Errors
    /// The request is malformed; the number to answer it with.
    pub(super) fn request(&mut self, entry: u32) -> Result<Request<'_>, (Malformed, u64)> {
        assert_eq!(self.owners[entry as usize], Owner::Us, "a request is read before its answer");
        // SAFETY: the entry is not the kernel's, and `self` is borrowed while it is used.
        let arrived = unsafe { self.area.arrived(entry) };
        let of = |malformed| (malformed, arrived.commit_id);
        let header = Header::parse(arrived.header).map_err(of)?;
        Request::new(header, arrived.fixed, arrived.payload).map_err(of)
    }

    /// Answers the request `unique` in an entry that this thread owns, and gives the entry back to the kernel.
    pub(super) fn answer(&mut self, entry: u32, unique: u64, result: Result<Body, Errno>) {
        assert_eq!(self.owners[entry as usize], Owner::Us, "a request is answered once");
        let result = result.and_then(|body| match body.len() {
            0..=PAYLOAD_BYTES => Ok(body),
            _ => Err(Errno::EIO),
        });
        let len = result.as_ref().map(Body::len).map_err(|errno| *errno);
        let header = answer::header(unique, len);
        // SAFETY: the entry is not the kernel's.
        unsafe {
            self.area.answer(entry, &header, len.unwrap_or(0), |to| {
                if let Ok(body) = &result {
                    body.write(to);
                }
            });
        }
        let command = command(unique, self.queue(entry));
        let sqe = opcode::UringCmd80::new(DEVICE, COMMIT_AND_FETCH).cmd(command).build();
        self.push(&sqe.user_data(entry.into()));
        self.give(entry);
    }

    /// Makes the next wait end when `doorbell` becomes readable.
    pub(super) fn listen(&mut self, doorbell: BorrowedFd<'_>) {
        let poll = opcode::PollAdd::new(Fd(doorbell.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(&Entry128::from(poll.user_data(DOORBELL)));
    }

    /// Submits the pushed ring entries, without waiting.
    ///
    /// # Errors
    /// Those of io_uring_enter(2); nothing is lost then.
    pub(super) fn submit(&self) -> io::Result<()> {
        self.ring.submit().map(drop).or_else(none_if_interrupted)
    }

    /// Submits the pushed ring entries, waits for a completion or for `time_max`, and puts the completions into
    /// `completed`.
    ///
    /// # Errors
    /// Those of io_uring_enter(2); nothing is lost then.
    pub(super) fn wait(
        &mut self,
        completed: &mut Vec<Completion>,
        time_max: Option<Duration>,
    ) -> io::Result<()> {
        let waited = match time_max.map(Timespec::from) {
            None => self.ring.submit_and_wait(1),
            Some(time) => {
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        waited.map(drop).or_else(none_if_interrupted)?;
        self.reap(completed);
        Ok(())
    }

    /// Puts the available completions into `completed`.
    pub(super) fn reap(&mut self, completed: &mut Vec<Completion>) {
        for completion in self.ring.completion() {
            let Ok(entry) = u32::try_from(completion.user_data()) else {
                completed.push(Completion::Doorbell);
                continue;
            };
            let owner = &mut self.owners[entry as usize];
            assert_eq!(*owner, Owner::Kernel, "the kernel completes what it was given");
            self.with_kernel -= 1;
            let result = completion.result();
            *owner = if result < 0 { Owner::Nobody } else { Owner::Us };
            completed.push(match result {
                0.. => Completion::Request(entry),
                error => Completion::Refused(entry, -error),
            });
        }
    }

    /// Bytes of memory for large requests that may be resident.
    pub(super) fn resident(&self) -> usize {
        self.area.resident()
    }

    /// Whether ring entries were pushed and not submitted yet.
    pub(super) fn has_unsubmitted(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Gives back the memory of entries that have neither a request nor an answer.
    pub(super) fn trim(&mut self) {
        if self.has_unsubmitted() || !self.ring.completion().is_empty() {
            return;
        }
        for entry in self.entries() {
            if self.owners[entry as usize] != Owner::Us {
                // SAFETY: an answer in it was taken. A request the kernel put into it would have
                // completed, and the kernel puts none before it is called the next time.
                unsafe { self.area.give_back(entry) };
            }
        }
    }

    fn give(&mut self, entry: u32) {
        self.owners[entry as usize] = Owner::Kernel;
        self.with_kernel += 1;
    }

    fn push(&mut self, sqe: &Entry128) {
        // SAFETY: the memory and the iovecs that an entry points to live as long as the ring, and are not touched until the
        // entry completes; the doorbell outlives the ring's thread.
        let pushed = unsafe { self.ring.submission().push(sqe) };
        pushed.expect("the queue has room for every entry and the doorbell");
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} entries)", self.queues.len())
    }
}

/// `struct fuse_uring_cmd_req`.
fn command(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut command = [0; 80];
    command[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    command[16..18].copy_from_slice(&queue.to_ne_bytes());
    command
}

/// Not errors: a call that was interrupted and can be repeated, and a wait that has timed out.
fn none_if_interrupted(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY) => Ok(()),
        _ => Err(error),
    }
}
