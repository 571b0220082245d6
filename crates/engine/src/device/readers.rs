//! Whether a reader waits for the device.

use std::time::Duration;

use crate::device::Device;
use crate::time::Time;

/// A reader that waited for a fetch this recently is likely to wait for another one soon.
const QUIET_MAX: Duration = Duration::from_millis(4);

impl Device {
    /// Whether a reader waits for a fetch, or did a moment ago.
    pub(crate) fn readers_wait(&self, now: Time) -> bool {
        let quiet = self.costs.fetch.latency().map_or(QUIET_MAX, |alone| QUIET_MAX.min(4 * alone));
        self.in_flight.waited_fetches > 0 || now.since(self.in_flight.waited_ended) < quiet
    }

    /// Notes that pages are being read ahead.
    pub(crate) fn note_ahead(&mut self, now: Time) {
        self.share.ahead_at = Some(now);
    }
}
