//! When the engine's next tick is due, and the ticking thread's sleep until then.
//!
//! One thread, the *ticker*, sleeps until the next tick. An event may make the next tick earlier; only then is
//! the ticker woken, so that a stream of writes makes no system call. While events come, the ticker sleeps for
//! [`DOZE`] at most. So a file that becomes dirty, and ages out much later, wakes nobody.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::Time;

/// Longest sleep of the ticker while events come.
pub(crate) const DOZE: Duration = Duration::from_secs(1);

/// Shortest sleep: bounds the CPU time of a tick that is always due.
pub(crate) const NAP: Duration = Duration::from_millis(1);

/// How long the ticker sleeps, kept under the shard's lock.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// The ticker sleeps until then at most; `None`: until it is woken.
    until: Option<Time>,
    /// An event happened since the ticker last ran.
    busy: bool,
}

impl Deadline {
    pub(crate) fn new() -> Deadline {
        Deadline { until: None, busy: false }
    }

    /// An event happened, after which the engine's next tick is due at `next_tick`. Says whether to wake the ticker.
    pub(crate) fn event(&mut self, next_tick: Option<Time>) -> bool {
        self.busy = true;
        match (next_tick, self.until) {
            (None, _) => false,
            (Some(next), Some(until)) if next >= until => false,
            (Some(next), _) => {
                self.until = Some(next);
                true
            }
        }
    }

    /// The ticker ran at `now`: how long it sleeps; `None`: until it is woken.
    pub(crate) fn sleep(&mut self, next_tick: Option<Time>, now: Time) -> Option<Duration> {
        let doze = self.busy.then_some(now + DOZE);
        self.busy = false;
        self.until = match (next_tick, doze) {
            (Some(next), Some(doze)) => Some(next.min(doze)),
            (next, doze) => next.or(doze),
        };
        self.until.map(|until| until.since(now).max(NAP))
    }
}

/// Wakes the ticker.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    stopped: bool,
}

impl Doorbell {
    /// Wakes the ticker; if it is awake, its next sleep ends at once.
    pub(crate) fn ring(&self) {
        self.lock().rung = true;
        self.rung.notify_one();
    }

    /// Wakes the ticker, which ends.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.rung.notify_one();
    }

    /// Sleeps for `time` at most, or until the doorbell is rung. `false` once stopped.
    pub(crate) fn sleep(&self, time: Option<Duration>) -> bool {
        let quiet = |state: &mut State| !state.rung && !state.stopped;
        let guard = self.lock();
        let mut guard = match time {
            Some(time) => {
                let waited = self.rung.wait_timeout_while(guard, time, quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.rung.wait_while(guard, quiet).unwrap_or_else(PoisonError::into_inner),
        };
        guard.rung = false;
        !guard.stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_ticker_is_woken_only_for_an_earlier_deadline() {
        let mut deadline = Deadline::new();
        assert_eq!(deadline.sleep(None, at(10)), None);
        assert!(deadline.event(Some(at(40))));
        assert!(!deadline.event(Some(at(40))));
        // The ticker ran, and events come: it sleeps for DOZE at most.
        assert_eq!(deadline.sleep(Some(at(40)), at(10)), Some(DOZE));
        assert!(!deadline.event(None));
        assert!(!deadline.event(Some(at(40))));
        assert_eq!(deadline.sleep(Some(at(40)), at(11)), Some(DOZE));
        // No event since.
        assert_eq!(deadline.sleep(Some(at(40)), at(12)), Some(Duration::from_secs(28)));
        assert!(deadline.event(Some(at(13))));
    }

    #[test]
    fn a_tick_that_is_always_due_does_not_spin() {
        let mut deadline = Deadline::new();
        assert_eq!(deadline.sleep(Some(at(5)), at(9)), Some(NAP));
    }

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() {
        let doorbell = Doorbell::default();
        doorbell.ring();
        assert!(doorbell.sleep(None));
        assert!(doorbell.sleep(Some(NAP)));
        doorbell.stop();
        assert!(!doorbell.sleep(None));
    }
}
