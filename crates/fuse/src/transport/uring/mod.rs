//! The transport over io_uring (Documentation/filesystems/fuse/fuse-io-uring.rst): a thread and a queue for each CPU. The
//! thread takes a program's request on the CPU that the program runs on. One system call both sends an answer and fetches
//! the next request.
//!
//! INIT, FORGET, INTERRUPT and notifications use the device, which is therefore served as well. The kernel also sends all
//! requests there until every queue is registered.
//!
//! Owns the threads. Invariant: once FUSE_INIT has announced queues, each of them is registered or refused by the kernel,
//! because the kernel holds all requests back until then. All other steps that can fail come before, in
//! [`Queues::prepare`].

mod area;
mod cpus;
#[cfg(fuzzing)]
pub mod fuzzing;
mod idle_policy;
mod mailbox;
mod ring;
mod server;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use self::cpus::Share;
use self::mailbox::Mailbox;
use self::ring::Ring;
use self::server::Server;
use crate::file_system::FileSystem;

/// Entries of a queue: at most this many requests from one CPU are served at once; others wait in the kernel.
/// More than the most background requests, so that read-ahead never delays a write.
const ENTRIES: usize = 96;
/// Entries of the queue of a CPU that is not running.
const ENTRIES_OFFLINE: usize = 8;

const _: () = assert!(ENTRIES > super::BACKGROUND_MAX as usize);

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel's setting for FUSE over io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSetting {
    /// It can be used.
    On,
    /// The kernel has it, but root has not turned it on.
    Off,
    /// The kernel is older than 6.14, or built without it.
    Missing,
}

impl KernelSetting {
    /// The current setting.
    pub fn read() -> KernelSetting {
        match std::fs::read_to_string(SETTING) {
            Ok(text) if text.starts_with(['Y', 'y', '1']) => KernelSetting::On,
            Ok(_) => KernelSetting::Off,
            Err(_) => KernelSetting::Missing,
        }
    }

    /// Why FUSE over io_uring cannot be used, and how to change that; `None` if it can.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            KernelSetting::On => None,
            KernelSetting::Off => Some(
                "FUSE over io_uring is off; to turn it on: \
                 echo 1 > /sys/module/fuse/parameters/enable_uring",
            ),
            KernelSetting::Missing => {
                Some("this kernel has no FUSE over io_uring: Linux 6.14 and later can have it")
            }
        }
    }
}

/// The threads, and their queues.
#[derive(Debug)]
pub(crate) struct Queues {
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    mailbox: Arc<Mailbox>,
    /// Has the thread register its queues. If this is dropped instead, the thread ends.
    begin: Sender<()>,
    /// The result of each step.
    step: Receiver<io::Result<()>>,
    handle: JoinHandle<()>,
}

impl Queues {
    /// Starts the threads and sets up everything but the registration.
    ///
    /// # Errors
    /// The kernel's io_uring lacks a needed feature, or there is not enough memory or threads.
    pub(crate) fn prepare(fs: &Arc<FileSystem>, device: BorrowedFd<'_>) -> io::Result<Queues> {
        let queues = cpus::listed("possible").map_or(0, |cpus| cpus.len());
        if queues == 0 {
            return Err(io::Error::other("the kernel does not say how many CPUs there can be"));
        }
        let shares = cpus::share_out(queues, &cpus::allowed(queues));
        let threads = shares.into_iter().map(|share| Thread::start(fs, share, device));
        let queues = Queues { threads: threads.collect::<io::Result<_>>()? };
        queues.each_step()?;
        Ok(queues)
    }

    /// Registers all queues, after FUSE_INIT.
    ///
    /// # Errors
    /// The kernel refused an entry. It then sends requests to the device, unless every queue has another entry; the threads
    /// serve the requests that they get.
    pub(crate) fn register(&self) -> io::Result<()> {
        for thread in &self.threads {
            // A thread that has ended reports that as its step.
            let _ = thread.begin.send(());
        }
        self.each_step()
    }

    /// Ends the threads. To be called after the mount has ended.
    ///
    /// # Errors
    /// A thread panicked.
    pub(crate) fn stop(self) -> io::Result<()> {
        let mut stopped = Ok(());
        for Thread { mailbox, begin, handle, .. } in self.threads {
            mailbox.stop();
            drop(begin);
            if handle.join().is_err() {
                stopped = Err(io::Error::other("a thread of FUSE over io_uring panicked"));
            }
        }
        stopped
    }

    fn each_step(&self) -> io::Result<()> {
        let gone = |_| Err(io::Error::other("a thread of FUSE over io_uring is gone"));
        let steps = self.threads.iter().map(|thread| thread.step.recv().unwrap_or_else(gone));
        // All are waited for, also after a failure.
        steps.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Thread {
    fn start(fs: &Arc<FileSystem>, share: Share, device: BorrowedFd<'_>) -> io::Result<Thread> {
        let mailbox = Arc::new(Mailbox::new()?);
        let device = device.try_clone_to_owned()?;
        let (begin, begun) = channel();
        let (done, step) = channel();
        let (fs, inbox) = (Arc::clone(fs), Arc::clone(&mailbox));
        let handle = Builder::new()
            .name(format!("weir-queue-{}", share.queues.first().copied().unwrap_or(0)))
            .spawn(move || run(fs, &share, device, inbox, &begun, &done))?;
        Ok(Thread { mailbox, begin, step, handle })
    }
}

/// A thread, from its set-up to the end of the mount.
fn run(
    fs: Arc<FileSystem>,
    share: &Share,
    device: OwnedFd,
    mailbox: Arc<Mailbox>,
    begun: &Receiver<()>,
    done: &Sender<io::Result<()>>,
) {
    if let Some(cpu) = share.cpu {
        cpus::bind(cpu);
    }
    let made = Ring::new(entries(&share.queues), device.as_fd());
    // The device is among the ring's registered files.
    drop(device);
    let (ring, made) = match made {
        Ok(ring) => (Some(ring), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Fails if another thread failed, since the result is then not awaited.
    let _ = done.send(made);
    let Some(ring) = ring else { return };
    if begun.recv().is_err() {
        return;
    }
    let mut server = Server::new(fs, ring, mailbox);
    let _ = done.send(server.register());
    server.run();
}

/// The queue of each entry.
fn entries(queues: &[usize]) -> Vec<u16> {
    let online = cpus::listed("online").unwrap_or_default();
    let mut entries = Vec::new();
    for &queue in queues {
        let count = if online.contains(&queue) { ENTRIES } else { ENTRIES_OFFLINE };
        // CPUs are numbered from 0, and the protocol has 16 bits for them.
        entries.extend(std::iter::repeat_n(queue as u16, count));
    }
    entries
}
