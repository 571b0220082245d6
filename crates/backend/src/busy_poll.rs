//! Busy polling: waits for one operation on a fast device without letting the CPU idle.
//!
//! A thread that waits in a system call leaves its CPU idle. Waking an idle CPU takes a virtual machine 20 to
//! 45 microseconds, for each of the two to five device requests of a sync: as long as a fast device takes
//! itself. So the operation is submitted to an io_uring, and the thread yields its CPU until it completes.
//! Other threads can run there meanwhile. If one of them runs for long, the CPU does not idle anyway, and busy
//! polling stops for a pause. The pause doubles each time that this repeats.
//!
//! A thread polls only after [`enable_busy_poll`], and should be bound to a CPU: the programs that it answers
//! would be woken on another CPU, since this one is busy, and their later requests would come from there. Each
//! such thread has a ring of its own, made by its first poll. The memory and the descriptor that an entry names
//! are borrowed until its completion was seen.

#![allow(unsafe_code)] // The kernel works on memory named in ring entries: no safe interface can.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};

use crate::policy::Policy;

/// After this time the thread sleeps until the completion.
const POLL_MAX: Duration = Duration::from_millis(1);
/// A yield of at least this length: another thread uses the CPU.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Pause of busy polling after a long yield: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    static POLLING: RefCell<Polling> = const { RefCell::new(Polling::Off) };
}

/// Whether a thread polls.
enum Polling {
    /// It makes blocking system calls.
    Off,
    /// It polls, and has no ring yet.
    Unused,
    With(Box<Poller>),
}

struct Poller {
    ring: IoUring,
    pause: Pause,
}

/// When busy polling is paused.
#[derive(Debug)]
struct Pause {
    until: Option<Instant>,
    next: Duration,
}

/// Lets the calling thread, which is bound to a CPU, poll from now on.
pub fn enable_busy_poll() {
    POLLING.with_borrow_mut(|polling| {
        if let Polling::Off = polling {
            *polling = Polling::Unused;
        }
    });
}

/// preadv(2). `None`: make the blocking call instead.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    slices: &mut [IoSliceMut<'_>],
    offset: u64,
) -> Option<io::Result<usize>> {
    let (list, count) = (slices.as_mut_ptr().cast(), u32::try_from(slices.len()).ok()?);
    let entry = opcode::Readv::new(Fd(fd.as_raw_fd()), list, count).offset(offset).build();
    // SAFETY: an `IoSliceMut` is an iovec, by its documentation. The descriptor and the memory are borrowed
    // until this returns.
    unsafe { execute(&entry) }
}

/// pwritev2(2) with `RWF_DSYNC`. `None`: make the blocking call instead.
pub(crate) fn write_durably(
    fd: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    offset: u64,
) -> Option<io::Result<usize>> {
    let (list, count) = (slices.as_ptr().cast(), u32::try_from(slices.len()).ok()?);
    let entry = opcode::Writev::new(Fd(fd.as_raw_fd()), list, count)
        .offset(offset)
        .rw_flags(libc::RWF_DSYNC)
        .build();
    // SAFETY: an `IoSlice` is an iovec, by its documentation. The descriptor and the memory are borrowed until
    // this returns.
    unsafe { execute(&entry) }
}

/// fsync(2), or fdatasync(2). `None`: make the blocking call instead.
pub(crate) fn sync(fd: BorrowedFd<'_>, datasync: bool) -> Option<io::Result<()>> {
    let flags = if datasync { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
    let entry = opcode::Fsync::new(Fd(fd.as_raw_fd())).flags(flags).build();
    // SAFETY: the entry names no memory, and a descriptor that is borrowed until this returns.
    unsafe { execute(&entry) }.map(|synced| synced.map(drop))
}

/// Executes an entry and waits for its completion. `None` if nothing was done.
///
/// # Safety
/// The memory and the descriptor that the entry names must stay valid until this returns.
unsafe fn execute(entry: &squeue::Entry) -> Option<io::Result<usize>> {
    POLLING.with_borrow_mut(|polling| {
        if let Polling::Unused = polling {
            *polling = match IoUring::builder().dontfork().build(2) {
                Ok(ring) => Polling::With(Box::new(Poller { ring, pause: Pause::none() })),
                Err(error) => {
                    tracing::debug!(%error, "a thread cannot poll: it makes blocking calls");
                    Polling::Off
                }
            };
        }
        let Polling::With(poller) = polling else { return None };
        if poller.pause.holds(Instant::now()) {
            return None;
        }
        let _normal = NormalPolicy::begin();
        // SAFETY: promised by the caller; `wait` returns when the kernel has completed the entry.
        if let Err(error) = unsafe { poller.submit(entry) } {
            tracing::debug!(%error, "a thread cannot poll any more: it makes blocking calls");
            // An entry that the kernel did not take is dropped with the ring.
            *polling = Polling::Off;
            return None;
        }
        let result = poller.wait();
        Some(
            usize::try_from(result)
                .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg())),
        )
    })
}

impl Poller {
    /// # Safety
    /// The memory and the descriptor that the entry names must stay valid until [`Poller::wait`] returned, if
    /// the entry was taken.
    unsafe fn submit(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit() {
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the only entry; returns its result.
    fn wait(&mut self) -> i32 {
        let began = Instant::now();
        let mut last = began;
        let mut polls = true;
        loop {
            if let Some(end) = self.ring.completion().next() {
                return end.result();
            }
            if !polls {
                // An error is ignored: the kernel uses our memory until the entry completes.
                let _ = self.ring.submit_and_wait(1);
                continue;
            }
            thread::yield_now();
            let now = Instant::now();
            self.pause.yielded(now - last, now);
            polls = now - last < LONG_YIELD && now - began < POLL_MAX;
            last = now;
        }
    }
}

/// Makes a SCHED_IDLE thread (sched(7)) a normal one while this lives. A SCHED_IDLE thread that yields to
/// another one gets the CPU back after a second, and the workers of its ring would be SCHED_IDLE too.
struct NormalPolicy {
    was_idle: bool,
}

impl NormalPolicy {
    fn begin() -> NormalPolicy {
        NormalPolicy { was_idle: Policy::Idle.is_ours() && Policy::Normal.set() }
    }
}

impl Drop for NormalPolicy {
    fn drop(&mut self) {
        if self.was_idle && !Policy::Idle.set() {
            tracing::debug!("a thread cannot be scheduled as idle any more");
        }
    }
}

impl Pause {
    fn none() -> Pause {
        Pause { until: None, next: PAUSE_MIN }
    }

    fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// A yield took `time`.
    fn yielded(&mut self, time: Duration, now: Instant) {
        if time < LONG_YIELD {
            return;
        }
        // After some time without long yields, pauses begin at the shortest again.
        if self.until.is_none_or(|until| now > until + 2 * self.next) {
            self.next = PAUSE_MIN;
        }
        self.until = Some(now + self.next);
        self.next = (2 * self.next).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// The result of `call`, repeated while busy polling is paused, as on a busy machine.
    fn unpaused<T>(mut call: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(done) = call() {
                return done;
            }
            let paused = POLLING.with_borrow(|polling| matches!(polling, Polling::With(_)));
            assert!(paused, "there is no io_uring");
            thread::sleep(PAUSE_MIN);
        }
    }

    #[test]
    fn polled_operations_do_what_the_calls_do() {
        let nothing = || read(std::io::stdin().as_fd(), &mut [], 0);
        assert!(nothing().is_none(), "polling is off");
        enable_busy_poll();
        if IoUring::new(2).is_err() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no io_uring");
            assert!(nothing().is_none(), "without a ring, the caller makes the calls");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let slices = [IoSlice::new(b"some"), IoSlice::new(b"thing")];
        assert_eq!(unpaused(|| write_durably(file.as_fd(), &slices, 3)).unwrap(), 9);
        let (mut first, mut second) = ([1; 5], [1; 20]);
        let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(unpaused(|| read(file.as_fd(), &mut slices, 0)).unwrap(), 12);
        assert_eq!((&first, &second[..8]), (b"\0\0\0so", &b"mething\x01"[..]));
        unpaused(|| sync(file.as_fd(), true)).unwrap();
        unpaused(|| sync(file.as_fd(), false)).unwrap();

        let reader = File::open(&path).unwrap();
        let refused = unpaused(|| write_durably(reader.as_fd(), &[IoSlice::new(b"x")], 0));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3).unwrap();
        assert_eq!(&byte, b"s");
    }

    #[test]
    fn an_idle_thread_is_a_normal_one_while_it_polls() {
        drop(NormalPolicy::begin());
        assert!(Policy::Normal.is_ours());
        // Raising the priority again needs CAP_SYS_NICE or a high RLIMIT_NICE.
        let can = thread::spawn(|| Policy::Idle.set() && Policy::Normal.set());
        let can = can.join().unwrap();
        assert!(can || std::env::var("CI").as_deref() != Ok("true"), "this cannot be tested here");
        assert!(Policy::Idle.set());
        let normal = NormalPolicy::begin();
        assert_eq!(normal.was_idle, can);
        assert_eq!(Policy::Normal.is_ours(), can);
        drop(normal);
        assert!(Policy::Idle.is_ours());
    }

    #[test]
    fn long_yields_pause_polling_for_longer_and_longer() {
        let start = Instant::now();
        let mut pause = Pause::none();
        pause.yielded(Duration::from_micros(3), start);
        assert!(!pause.holds(start));
        let mut now = start;
        let mut pauses = 0;
        while now < start + Duration::from_secs(60) {
            pause.yielded(Duration::from_millis(4), now);
            assert!(pause.holds(now + PAUSE_MIN / 2));
            while pause.holds(now) {
                now += Duration::from_millis(1);
            }
            pauses += 1;
        }
        assert!((60..90).contains(&pauses), "{pauses}");
        now += Duration::from_secs(60);
        pause.yielded(LONG_YIELD, now);
        assert!(!pause.holds(now + 2 * PAUSE_MIN), "pauses begin at the shortest again");
    }
}
