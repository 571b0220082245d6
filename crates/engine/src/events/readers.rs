//! Whether somebody reads, and how quick the device is for that.

use std::time::Duration;

use crate::engine::Engine;
use crate::time::Time;

/// Whoever waited for a fetch this recently is likely to wait for another one soon.
const QUIET_MAX: Duration = Duration::from_millis(4);

/// Where a fetch takes less than this, patched pages are fetched early: it costs nobody much.
const QUICK_FETCH: Duration = Duration::from_micros(300);

impl Engine {
    /// Somebody waits for a fetch, or did a moment ago; or for the log, with which
    /// a disk with one arm may be busy.
    pub(crate) fn readers_first(&self, now: Time) -> bool {
        let log = self.log_is_awaited() && !self.fetches_are_quick();
        log || self.readers_wait(now)
    }

    /// Somebody waits for a fetch, or did a moment ago.
    pub(crate) fn readers_wait(&self, now: Time) -> bool {
        let quiet =
            self.device.costs.fetch.latency().map_or(QUIET_MAX, |alone| QUIET_MAX.min(4 * alone));
        self.device.in_flight.waited_fetches > 0
            || now.since(self.device.in_flight.waited_ended) < quiet
    }

    /// An arm has to.
    pub(crate) fn fetches_are_slow(&self) -> bool {
        self.config.rotational
            || self.device.costs.fetch.latency().is_some_and(|latency| latency >= QUICK_FETCH)
    }

    /// No arm has to travel for a fetch.
    pub(crate) fn fetches_are_quick(&self) -> bool {
        !self.config.rotational
            && self.device.costs.fetch.latency().is_some_and(|latency| latency < QUICK_FETCH)
    }
}
