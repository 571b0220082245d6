//! Idle policy: schedules a queue's thread as SCHED_IDLE, so that programs stay on their CPU while it serves them.
//!
//! The thread that answers a program wakes it on the same CPU. That CPU is busy until the thread sleeps, so the
//! scheduler moves the program to an idle CPU, and waking that takes longer than the request: half of all
//! 64-byte writes took 50 µs, the others 4 µs. A CPU that runs only SCHED_IDLE threads counts as free
//! (sched(7)), so the program stays.
//!
//! A SCHED_IDLE thread gets hardly any CPU time while other threads of its scheduling group want the CPU. So
//! the thread checks how long it waited for its CPU: after a long wait it is a normal thread for a pause, which
//! doubles each time that this repeats. A thread without CAP_SYS_NICE or RLIMIT_NICE could not become normal
//! again, and is never scheduled as idle.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use weir_backend::Policy;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// A wait for the CPU between two checks that is too long.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// How long the thread is a normal one after that: the first pause, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// The scheduling of the calling thread.
#[derive(Debug)]
pub(super) struct IdlePolicy {
    /// The thread's /proc/PID/task/TID/schedstat; `None` if the thread always stays normal.
    schedstat: Option<File>,
    state: State,
}

/// The thread's waits, and its policy that follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    checked_at: Instant,
    waited: Duration,
    /// Until when the thread is normal; `None` while it is SCHED_IDLE.
    normal_until: Option<Instant>,
    /// Since when it is SCHED_IDLE.
    idle_since: Instant,
    pause: Duration,
}

impl IdlePolicy {
    /// Makes the calling thread SCHED_IDLE, if that can be undone.
    pub(super) fn begin() -> IdlePolicy {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let schedstat = schedstat.filter(|_| can_be_undone() && Policy::Idle.set());
        let waited = schedstat.as_ref().and_then(waited).unwrap_or_default();
        IdlePolicy { schedstat, state: State::new(Instant::now(), waited) }
    }

    /// Checks the thread's waits, at most once in [`CHECK_INTERVAL`], and changes its policy.
    pub(super) fn check(&mut self) {
        let Some(schedstat) = &self.schedstat else { return };
        let now = Instant::now();
        if now.duration_since(self.state.checked_at) < CHECK_INTERVAL {
            return;
        }
        let Some(waited) = waited(schedstat) else { return };
        let policy = match self.state.check(now, waited) {
            None => return,
            Some(true) => Policy::Idle,
            Some(false) => Policy::Normal,
        };
        if !policy.set() {
            tracing::debug!("cannot change the scheduling policy of a queue's thread");
        }
    }
}

impl State {
    fn new(now: Instant, waited: Duration) -> State {
        State { checked_at: now, waited, normal_until: None, idle_since: now, pause: PAUSE }
    }

    /// A check at `now`, when the thread has waited for `waited` in all. Returns whether to be SCHED_IDLE from
    /// now on, if that changes.
    fn check(&mut self, now: Instant, waited: Duration) -> Option<bool> {
        let waited_since = waited.saturating_sub(self.waited);
        (self.checked_at, self.waited) = (now, waited);
        match self.normal_until {
            Some(until) if now < until => None,
            Some(_) => {
                self.normal_until = None;
                self.idle_since = now;
                Some(true)
            }
            None if waited_since < WAIT_MAX => None,
            None => {
                let went_well = now.duration_since(self.idle_since) > 2 * self.pause;
                self.pause = if went_well { PAUSE } else { PAUSE_MAX.min(2 * self.pause) };
                self.normal_until = Some(now + self.pause);
                Some(false)
            }
        }
    }
}

/// How long a thread was runnable and not running: the second number of schedstat
/// (Documentation/scheduler/sched-stats.rst).
fn waited(schedstat: &File) -> Option<Duration> {
    let mut text = [0; 64];
    let len = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Whether a SCHED_IDLE thread of this process can become normal again: tries it on a thread that ends.
fn can_be_undone() -> bool {
    let tried = std::thread::spawn(|| Policy::Idle.set() && Policy::Normal.set());
    tried.join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_normal_for_a_pause() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut state = State::new(start, Duration::ZERO);
        let mut waited = Duration::ZERO;
        assert_eq!(state.check(at(1), waited), None);
        waited += WAIT_MAX;
        assert_eq!(state.check(at(2), waited), Some(false), "soon after the start");
        assert_eq!(state.check(at(3), waited), None);
        assert_eq!(state.check(at(4), waited), Some(true));
        waited += WAIT_MAX;
        assert_eq!(state.check(at(5), waited), Some(false));
        assert_eq!(state.check(at(8), waited), None, "the second pause is longer");
        assert_eq!(state.check(at(9), waited), Some(true));
        waited += WAIT_MAX;
        assert_eq!(state.check(at(30), waited), Some(false));
        assert_eq!(state.check(at(31), waited), Some(true), "the pause is the first one again");
    }

    #[test]
    fn a_threads_waits_can_be_read() {
        let Ok(schedstat) = File::open("/proc/thread-self/schedstat") else { return };
        assert!(waited(&schedstat).is_some());
    }
}
