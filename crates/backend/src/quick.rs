//! Whether a device is so quick that a thread had better wait for a transfer itself than be woken for its end: a read, a
//! small write of the log, or a sync.
//!
//! A thread that another CPU's thread wakes is there some 45 microseconds later, twice a transfer: a good part of what
//! a quick device takes in all. On a slow one those microseconds are nothing, and whoever serves requests must not be
//! kept from others.
//!
//! What transfers take is known from those that threads did themselves. If that is too long, one is tried now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads of a quick device take less than this.
pub(crate) const QUICK_READ: Duration = Duration::from_micros(250);
/// Syncs of a quick device, and durable writes to it, take less than this.
pub(crate) const QUICK_SYNC: Duration = Duration::from_millis(1);
/// After this time one is tried on a device that was not quick; after twice that if it still is not, and so on.
const TRY_AGAIN: Duration = Duration::from_secs(1);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(64);
/// Share of what is known in what is known next.
const WEIGHT: u64 = 8;

/// What transfers of one kind take on one device.
#[derive(Debug)]
pub(crate) struct Quickness {
    origin: Instant,
    /// Nanoseconds that are quick.
    quick: u64,
    /// Nanoseconds, averaged; none counts for more than four times what is quick.
    took: AtomicU64,
    /// When one was last tried, nanoseconds after the origin.
    tried: AtomicU64,
    /// Nanoseconds until the next is.
    pause: AtomicU64,
}

impl Quickness {
    /// Of a device that nothing is known of, whose transfers are quick below `quick`. What the kernel says of it does not
    /// tell: emulated disks that turn are as quick as others.
    pub(crate) fn new(quick: Duration) -> Quickness {
        let origin = Instant::now();
        let quick = nanoseconds(quick);
        let pause = AtomicU64::new(nanoseconds(TRY_AGAIN));
        Quickness { origin, quick, took: AtomicU64::new(0), tried: AtomicU64::new(0), pause }
    }

    /// Whether it is, as far as is known.
    pub(crate) fn is_quick(&self) -> bool {
        self.took.load(Ordering::Relaxed) < self.quick
    }

    /// Whether the caller had better do it himself, and tell what it took.
    pub(crate) fn is_worth_waiting(&self) -> bool {
        if self.is_quick() {
            return true;
        }
        let now = nanoseconds(self.origin.elapsed());
        let tried = self.tried.load(Ordering::Relaxed);
        let exchanged = || {
            self.tried.compare_exchange(tried, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        now.saturating_sub(tried) >= self.pause.load(Ordering::Relaxed) && exchanged()
    }

    /// One took so long.
    pub(crate) fn learn(&self, took: Duration) {
        let took = nanoseconds(took).min(4 * self.quick);
        let before = self.took.load(Ordering::Relaxed);
        if before >= self.quick {
            let longer = 2 * self.pause.load(Ordering::Relaxed);
            let pause = if took < self.quick { nanoseconds(TRY_AGAIN) } else { longer };
            self.pause.store(pause.min(nanoseconds(TRY_AGAIN_MAX)), Ordering::Relaxed);
        }
        // One try that was quick is enough: the next ones will tell.
        let anew = before == 0 || (before >= self.quick && took < self.quick);
        let known = if anew { took } else { (before * (WEIGHT - 1) + took) / WEIGHT };
        self.took.store(known.max(1), Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_quick_until_it_is_not() {
        let quickness = Quickness::new(QUICK_READ);
        assert!(quickness.is_worth_waiting());
        quickness.learn(Duration::from_micros(80));
        quickness.learn(Duration::from_millis(20));
        assert!(quickness.is_worth_waiting(), "one slow read is no slow device");
        for _ in 0..3 {
            quickness.learn(Duration::from_millis(20));
        }
        assert!(!quickness.is_worth_waiting());
        quickness.learn(Duration::from_micros(80));
        assert!(quickness.is_worth_waiting(), "it is again");
    }
}
