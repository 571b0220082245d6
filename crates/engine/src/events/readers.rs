//! Whether readers wait, and whether fetches are fast.

use std::time::Duration;

use crate::engine::Engine;
use crate::time::Time;

/// Where a fetch takes less than this, patched pages are fetched early, since that delays others little.
const FAST_FETCH_MAX: Duration = Duration::from_micros(300);

impl Engine {
    /// Whether a reader waits for a fetch, or did a moment ago, or a sync waits for the log, with which a rotational
    /// disk may be busy.
    pub(crate) fn readers_first(&self, now: Time) -> bool {
        let log = self.log_is_awaited() && !self.fetches_are_fast();
        log || self.device.readers_wait(now)
    }

    /// True on rotational devices, or when a fetch takes longer than [`FAST_FETCH_MAX`].
    pub(crate) fn fetches_are_slow(&self) -> bool {
        self.config.rotational
            || self.device.costs.fetch.latency().is_some_and(|latency| latency >= FAST_FETCH_MAX)
    }

    /// True when a fetch takes less than [`FAST_FETCH_MAX`], and the device is not rotational.
    pub(crate) fn fetches_are_fast(&self) -> bool {
        !self.config.rotational
            && self.device.costs.fetch.latency().is_some_and(|latency| latency < FAST_FETCH_MAX)
    }
}
