//! Estimates the latency of transfers (reads, small writes of the log, syncs), to decide whether the calling
//! thread executes one itself and waits for it, or leaves it to another thread.
//!
//! Waking a thread on another CPU takes some 45 microseconds, and a transfer by another thread needs two
//! wake-ups: a large part of its time on a fast device. On a slow device that is negligible, and the thread
//! should serve other requests instead of waiting.
//!
//! The estimate is an average over transfers that threads executed themselves. While it is too long, a single
//! one is tried from time to time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A read on a fast device takes less than this.
pub(crate) const FAST_READ: Duration = Duration::from_micros(250);
/// A sync or a durable write on a fast device takes less than this.
pub(crate) const FAST_SYNC: Duration = Duration::from_millis(1);
/// Time until a transfer is tried on a slow device; doubled after each one that is still slow.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(64);
/// A new latency counts for one part in `WEIGHT` of the average.
const WEIGHT: u64 = 8;

/// Latency of one kind of transfer on one device.
#[derive(Debug)]
pub(crate) struct LatencyEstimate {
    origin: Instant,
    /// Latencies below this are fast, nanoseconds.
    fast_below: u64,
    /// The average, nanoseconds; a single latency counts as at most four times `fast_below`.
    average: AtomicU64,
    /// When a transfer was last tried while the device was slow, nanoseconds after `origin`.
    tried: AtomicU64,
    /// Nanoseconds until the next one is tried.
    pause: AtomicU64,
}

impl LatencyEstimate {
    /// The estimate for an unknown device, whose transfers are fast if they take less than `fast_below`. The
    /// kernel's queue/rotational does not decide that: emulated rotational disks may be fast.
    pub(crate) fn new(fast_below: Duration) -> LatencyEstimate {
        let origin = Instant::now();
        let fast_below = nanoseconds(fast_below);
        let pause = AtomicU64::new(nanoseconds(RETRY_MIN));
        LatencyEstimate {
            origin,
            fast_below,
            average: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            pause,
        }
    }

    /// Whether transfers are fast, as far as is known.
    pub(crate) fn is_fast(&self) -> bool {
        self.average.load(Ordering::Relaxed) < self.fast_below
    }

    /// Whether the caller should execute the transfer itself and then [`LatencyEstimate::learn`] its latency.
    pub(crate) fn should_wait(&self) -> bool {
        if self.is_fast() {
            return true;
        }
        let now = nanoseconds(self.origin.elapsed());
        let tried = self.tried.load(Ordering::Relaxed);
        let exchanged = || {
            self.tried.compare_exchange(tried, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        now.saturating_sub(tried) >= self.pause.load(Ordering::Relaxed) && exchanged()
    }

    /// A transfer took `took`.
    pub(crate) fn learn(&self, took: Duration) {
        let took = nanoseconds(took).min(4 * self.fast_below);
        let before = self.average.load(Ordering::Relaxed);
        if before >= self.fast_below {
            let longer = 2 * self.pause.load(Ordering::Relaxed);
            let pause = if took < self.fast_below { nanoseconds(RETRY_MIN) } else { longer };
            self.pause.store(pause.min(nanoseconds(RETRY_MAX)), Ordering::Relaxed);
        }
        // One fast try resets the average: the next transfers confirm or correct it.
        let restarts = before == 0 || (before >= self.fast_below && took < self.fast_below);
        let average = if restarts { took } else { (before * (WEIGHT - 1) + took) / WEIGHT };
        self.average.store(average.max(1), Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_fast_until_its_average_is_slow() {
        let estimate = LatencyEstimate::new(FAST_READ);
        assert!(estimate.should_wait());
        estimate.learn(Duration::from_micros(80));
        estimate.learn(Duration::from_millis(20));
        assert!(estimate.should_wait(), "one slow read does not make a slow device");
        for _ in 0..3 {
            estimate.learn(Duration::from_millis(20));
        }
        assert!(!estimate.should_wait());
        estimate.learn(Duration::from_micros(80));
        assert!(estimate.should_wait(), "the device is fast again");
    }
}
