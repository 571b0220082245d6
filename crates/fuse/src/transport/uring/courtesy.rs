//! Lets programs stay on the CPU they run on while their requests are served there.
//!
//! A program is woken by the thread that answers it, on that thread's CPU. For the moment until the
//! thread sleeps the CPU is taken, so the scheduler moves the program to one that is idle, whose
//! waking takes longer than the request: measured, half of all 64-byte writes took 50 µs, others
//! 4 µs. A CPU that runs only SCHED_IDLE threads counts as free (sched(7)), and the program stays.
//!
//! But where others of its scheduling group want the CPU, such a thread gets next to nothing of
//! it. A thread is therefore looked at while it serves: if it had to wait for its CPU it is an
//! ordinary one for a while, and for longer each time that repeats. Threads that could not become
//! ordinary again, for want of CAP_SYS_NICE or RLIMIT_NICE, stay so from the start.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use weir_backend::Policy;

/// How often a thread is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A wait for the CPU between two looks that is too long.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// How long a thread is an ordinary one then, the first time and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// How the calling thread is scheduled.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// The thread's /proc/PID/task/TID/schedstat; `None` if it is an ordinary one for ever.
    schedstat: Option<File>,
    state: State,
}

/// What is known of a thread's waits, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    looked_at: Instant,
    waited: Duration,
    /// Until when it is an ordinary thread; before that it makes way.
    ordinary_until: Option<Instant>,
    /// Since when it has made way.
    courteous_since: Instant,
    pause: Duration,
}

impl Courtesy {
    /// Has the calling thread make way, if it can be undone.
    pub(super) fn begin() -> Courtesy {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let schedstat = schedstat.filter(|_| can_be_undone() && Policy::MakesWay.set());
        let waited = schedstat.as_ref().and_then(waited).unwrap_or_default();
        Courtesy { schedstat, state: State::new(Instant::now(), waited) }
    }

    /// Looks at the thread, from time to time.
    pub(super) fn look(&mut self) {
        let Some(schedstat) = &self.schedstat else { return };
        let now = Instant::now();
        if now.duration_since(self.state.looked_at) < LOOK_EVERY {
            return;
        }
        let Some(waited) = waited(schedstat) else { return };
        let policy = match self.state.look(now, waited) {
            None => return,
            Some(true) => Policy::MakesWay,
            Some(false) => Policy::Ordinary,
        };
        if !policy.set() {
            tracing::debug!("a queue's thread cannot be scheduled otherwise");
        }
    }
}

impl State {
    fn new(now: Instant, waited: Duration) -> State {
        State { looked_at: now, waited, ordinary_until: None, courteous_since: now, pause: PAUSE }
    }

    /// A look at `now`, when the thread has waited for `waited` in all. Says whether it is to make
    /// way from now on, if that changes.
    fn look(&mut self, now: Instant, waited: Duration) -> Option<bool> {
        let waited_since = waited.saturating_sub(self.waited);
        (self.looked_at, self.waited) = (now, waited);
        match self.ordinary_until {
            Some(until) if now < until => None,
            Some(_) => {
                self.ordinary_until = None;
                self.courteous_since = now;
                Some(true)
            }
            None if waited_since < WAIT_MAX => None,
            None => {
                let went_well = now.duration_since(self.courteous_since) > 2 * self.pause;
                self.pause = if went_well { PAUSE } else { PAUSE_MAX.min(2 * self.pause) };
                self.ordinary_until = Some(now + self.pause);
                Some(false)
            }
        }
    }
}

/// How long a thread was ready and not running: the second number of schedstat
/// (Documentation/scheduler/sched-stats.rst).
fn waited(schedstat: &File) -> Option<Duration> {
    let mut text = [0; 64];
    let len = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Whether a thread of this process that makes way can become an ordinary one again; tried out on
/// one that ends.
fn can_be_undone() -> bool {
    let tried = std::thread::spawn(|| Policy::MakesWay.set() && Policy::Ordinary.set());
    tried.join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_an_ordinary_one_for_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut state = State::new(start, Duration::ZERO);
        let mut waited = Duration::ZERO;
        assert_eq!(state.look(at(1), waited), None);
        waited += WAIT_MAX;
        assert_eq!(state.look(at(2), waited), Some(false), "soon after the start");
        assert_eq!(state.look(at(3), waited), None);
        assert_eq!(state.look(at(4), waited), Some(true));
        waited += WAIT_MAX;
        assert_eq!(state.look(at(5), waited), Some(false));
        assert_eq!(state.look(at(8), waited), None, "for longer than the last time");
        assert_eq!(state.look(at(9), waited), Some(true));
        waited += WAIT_MAX;
        assert_eq!(state.look(at(30), waited), Some(false));
        assert_eq!(state.look(at(31), waited), Some(true), "it had gone well for long");
    }

    #[test]
    fn a_threads_waits_can_be_read() {
        let Ok(schedstat) = File::open("/proc/thread-self/schedstat") else { return };
        assert!(waited(&schedstat).is_some());
    }
}
