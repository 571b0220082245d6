//! Waits for one operation on a quick device without letting the CPU go to sleep.
//!
//! A thread that waits in a system call leaves its CPU idle, and waking that costs a virtual machine 20 to 45
//! microseconds, for each of the two to five requests that a sync is on the device: as much as a quick device itself
//! takes. So the operation is given to an io_uring, and the thread yields its CPU until it has ended. Whoever else could
//! run there does; and where somebody does, for long, the CPU needs no keeping awake and this thread had better be woken
//! like any other: then nothing is waited for in this way for some time, which doubles as long as that goes on.
//!
//! Only threads that ask for it do so, [`stay_awake`], and those should be bound to a CPU: whom they answer would be woken on
//! another CPU, since this one is busy, and all they ask for then comes from there. Each has a ring of its own, made when
//! it first waits. What an entry names is borrowed until its end was seen.

#![allow(unsafe_code)] // The kernel works on memory named in ring entries: no safe interface can.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};

use crate::policy::Policy;

/// After this time the thread sleeps until the end.
const AWAKE_MAX: Duration = Duration::from_millis(1);
/// Others had the CPU for so long.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// For so long nothing is waited for here after that, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    static WAITING: RefCell<Waiting> = const { RefCell::new(Waiting::Asleep) };
}

/// How a thread waits.
enum Waiting {
    /// As any other.
    Asleep,
    /// Awake, but it never did yet.
    First,
    By(Box<Waiter>),
}

struct Waiter {
    ring: IoUring,
    pause: Pause,
}

/// When waiting awake does not pay.
#[derive(Debug)]
struct Pause {
    until: Option<Instant>,
    next: Duration,
}

/// Has this thread, which is bound to a CPU, wait so from now on.
pub fn stay_awake() {
    WAITING.with_borrow_mut(|waiting| {
        if let Waiting::Asleep = waiting {
            *waiting = Waiting::First;
        }
    });
}

/// preadv(2). `None` if that had better be called.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    slices: &mut [IoSliceMut<'_>],
    offset: u64,
) -> Option<io::Result<usize>> {
    let (list, count) = (slices.as_mut_ptr().cast(), u32::try_from(slices.len()).ok()?);
    let entry = opcode::Readv::new(Fd(fd.as_raw_fd()), list, count).offset(offset).build();
    // SAFETY: an `IoSliceMut` is an iovec, by its documentation. The descriptor and the memory are borrowed until this returns.
    unsafe { execute(&entry) }
}

/// pwritev2(2) with `RWF_DSYNC`. `None` if that had better be called.
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
    // SAFETY: an `IoSlice` is an iovec, by its documentation. The descriptor and the memory are borrowed until this returns.
    unsafe { execute(&entry) }
}

/// fsync(2), or fdatasync(2). `None` if that had better be called.
pub(crate) fn sync(fd: BorrowedFd<'_>, datasync: bool) -> Option<io::Result<()>> {
    let flags = if datasync { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
    let entry = opcode::Fsync::new(Fd(fd.as_raw_fd())).flags(flags).build();
    // SAFETY: the entry names no memory, and a descriptor that is borrowed until this returns.
    unsafe { execute(&entry) }.map(|synced| synced.map(drop))
}

/// Executes an entry and waits for its end. `None` if nothing was done.
///
/// # Safety
/// What the entry names must stay as it is until this returns.
unsafe fn execute(entry: &squeue::Entry) -> Option<io::Result<usize>> {
    WAITING.with_borrow_mut(|waiting| {
        if let Waiting::First = waiting {
            *waiting = match IoUring::builder().dontfork().build(2) {
                Ok(ring) => Waiting::By(Box::new(Waiter { ring, pause: Pause::none() })),
                Err(error) => {
                    tracing::debug!(%error, "a thread waits for devices by system calls");
                    Waiting::Asleep
                }
            };
        }
        let Waiting::By(waiter) = waiting else { return None };
        if waiter.pause.holds(Instant::now()) {
            return None;
        }
        let _ordinary = Ordinary::begin();
        // SAFETY: the caller's word; `wait` comes back when the kernel is done with it.
        if let Err(error) = unsafe { waiter.submit(entry) } {
            tracing::debug!(%error, "a thread waits for devices by system calls from now on");
            // An entry the kernel did not take goes with its ring.
            *waiting = Waiting::Asleep;
            return None;
        }
        let result = waiter.wait();
        Some(
            usize::try_from(result)
                .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg())),
        )
    })
}

impl Waiter {
    /// # Safety
    /// What the entry names must stay as it is until [`Waiter::wait`] came back, if the entry was taken.
    unsafe fn submit(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller's word.
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

    /// Waits for the one entry there is: what the kernel says of it.
    fn wait(&mut self) -> i32 {
        let began = Instant::now();
        let mut last = began;
        let mut awake = true;
        loop {
            if let Some(end) = self.ring.completion().next() {
                return end.result();
            }
            if !awake {
                // However often it fails: the kernel has memory that is ours until it ends.
                let _ = self.ring.submit_and_wait(1);
                continue;
            }
            thread::yield_now();
            let now = Instant::now();
            self.pause.yielded(now - last, now);
            awake = now - last < LONG_YIELD && now - began < AWAKE_MAX;
            last = now;
        }
    }
}

/// A thread that makes way for all others (SCHED_IDLE, sched(7)) as an ordinary one for a time: who yields as the least
/// of all gets the CPU back after a second, where there is another, and workers of its ring make way like itself.
struct Ordinary {
    made_way: bool,
}

impl Ordinary {
    fn begin() -> Ordinary {
        Ordinary { made_way: Policy::MakesWay.is_ours() && Policy::Ordinary.set() }
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        if self.made_way && !Policy::MakesWay.set() {
            tracing::debug!("a thread does not make way any more");
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

    /// Others had the CPU for so long.
    fn yielded(&mut self, time: Duration, now: Instant) {
        if time < LONG_YIELD {
            return;
        }
        // Long ago is not as it goes on.
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

    /// What `done` did: on a busy machine it may pause.
    fn at_last<T>(mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(done) = done() {
                return done;
            }
            let paused = WAITING.with_borrow(|waiting| matches!(waiting, Waiting::By(_)));
            assert!(paused, "there is no io_uring");
            thread::sleep(PAUSE_MIN);
        }
    }

    #[test]
    fn it_does_what_the_calls_do() {
        let nothing = || read(std::io::stdin().as_fd(), &mut [], 0);
        assert!(nothing().is_none(), "nobody asked for it");
        stay_awake();
        if IoUring::new(2).is_err() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no io_uring");
            assert!(nothing().is_none(), "the calls are left to the caller");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let slices = [IoSlice::new(b"some"), IoSlice::new(b"thing")];
        assert_eq!(at_last(|| write_durably(file.as_fd(), &slices, 3)).unwrap(), 9);
        let (mut first, mut second) = ([1; 5], [1; 20]);
        let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(at_last(|| read(file.as_fd(), &mut slices, 0)).unwrap(), 12);
        assert_eq!((&first, &second[..8]), (b"\0\0\0so", &b"mething\x01"[..]));
        at_last(|| sync(file.as_fd(), true)).unwrap();
        at_last(|| sync(file.as_fd(), false)).unwrap();

        let reader = File::open(&path).unwrap();
        let refused = at_last(|| write_durably(reader.as_fd(), &[IoSlice::new(b"x")], 0));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3).unwrap();
        assert_eq!(&byte, b"s");
    }

    #[test]
    fn who_makes_way_is_an_ordinary_thread_meanwhile() {
        drop(Ordinary::begin());
        assert!(Policy::Ordinary.is_ours());
        // Raising the priority again needs CAP_SYS_NICE or a high RLIMIT_NICE.
        let can = thread::spawn(|| Policy::MakesWay.set() && Policy::Ordinary.set());
        let can = can.join().unwrap();
        assert!(can || std::env::var("CI").as_deref() != Ok("true"), "this cannot be tested here");
        assert!(Policy::MakesWay.set());
        let ordinary = Ordinary::begin();
        assert_eq!(ordinary.made_way, can);
        assert_eq!(Policy::Ordinary.is_ours(), can);
        drop(ordinary);
        assert!(Policy::MakesWay.is_ours());
    }

    #[test]
    fn where_others_have_the_cpu_it_is_not_tried_for_longer_and_longer() {
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
        assert!(!pause.holds(now + 2 * PAUSE_MIN), "that was long ago");
    }
}
