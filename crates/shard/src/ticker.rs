//! When the engine's clock is next to be looked at, and the sleep until then.
//!
//! One thread sleeps; whoever brings the engine an event may make its next tick come earlier. The
//! sleeper is woken only then, so that a stream of writes pays no system call: while something
//! happens at all it does not sleep longer than [`DOZE`], and so needs no waking for the ordinary
//! case of a file becoming dirty that will age out much later.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::Time;

/// Longest sleep while events come.
pub(crate) const DOZE: Duration = Duration::from_secs(1);

/// Shortest sleep: bounds what a tick that is always due can cost.
pub(crate) const NAP: Duration = Duration::from_millis(1);

/// What the sleeper has said, kept under the shard's lock.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// It sleeps until then at most; `None` for ever.
    until: Option<Time>,
    /// Something happened since it last looked.
    busy: bool,
}

impl Deadline {
    pub(crate) fn new() -> Deadline {
        Deadline { until: None, busy: false }
    }

    /// An event happened, after which the engine's next tick is due at `next_tick`. Says whether
    /// the sleeper is to be woken.
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

    /// The sleeper looked at `now`: how long it sleeps, `None` until it is woken.
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

/// The sleeper's bell.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    stopped: bool,
}

impl Bell {
    /// Wakes the sleeper, or spares it its next sleep.
    pub(crate) fn ring(&self) {
        self.lock().rung = true;
        self.rung.notify_one();
    }

    /// Wakes the sleeper for good.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.rung.notify_one();
    }

    /// Sleeps for `time` at most, or until the bell rings. `false` once stopped.
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
    fn the_sleeper_is_woken_only_for_an_earlier_deadline() {
        let mut deadline = Deadline::new();
        assert_eq!(deadline.sleep(None, at(10)), None);
        assert!(deadline.event(Some(at(40))));
        assert!(!deadline.event(Some(at(40))));
        // It was woken and looked: busy, so it dozes.
        assert_eq!(deadline.sleep(Some(at(40)), at(10)), Some(DOZE));
        assert!(!deadline.event(None));
        assert!(!deadline.event(Some(at(40))));
        assert_eq!(deadline.sleep(Some(at(40)), at(11)), Some(DOZE));
        // Nothing happened since.
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
        let bell = Bell::default();
        bell.ring();
        assert!(bell.sleep(None));
        assert!(bell.sleep(Some(NAP)));
        bell.stop();
        assert!(!bell.sleep(None));
    }
}
