//! Pacing writers above the pressure point: each write pauses, longer if more is dirty.
//!
//! AWOL makes every write synchronous at its memory pressure point (section 3.2), which stops writers. Here writes are
//! admitted at the device's own rate when dirty memory is halfway from the pressure point to the absolute bound, faster
//! below that and slower above. The pause for a page is
//!
//! ```text
//! time per page written home * x / (1 - x),  x = (dirty - pressure) / (bound - pressure)
//! ```
//!
//! which is zero at the pressure point, grows without a step, and is infinite only at the bound, where the engine makes
//! writers wait anyway. So dirty memory settles where writers are as fast as the device.
//!
//! All writers share one [`Throttle`]; it has no clock. It decides when a write is admitted, not how a writer waits.

use std::time::Duration;

use crate::time::Time;

/// The longest pause after one write, so that a stalled device does not make writers pause for minutes.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Admissions happen at ticks and at the ends of transfers, later than they are due. Up to this much lateness is
/// credited to the next write.
const CREDIT_MAX: Duration = Duration::from_millis(20);

/// Assumed time per page written home, until it has been measured.
const PAGE_UNKNOWN: Duration = Duration::from_micros(100);

/// When the next write is admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle {
    admit_at: Time,
}

impl Throttle {
    /// Whether a write has to wait.
    pub(crate) fn holds(&self, now: Time) -> bool {
        now < self.admit_at
    }

    /// Admits a write; the next one waits for `pause`.
    pub(crate) fn admit(&mut self, pause: Duration, now: Time) {
        self.admit_at = self.admit_at.max(now - CREDIT_MAX) + pause;
    }
}

/// The pause that a write of `pages` pages causes, while `dirty` pages are dirty. The device writes `rate` pages home in
/// `interval`; `None` if that is not known.
pub(crate) fn pause(
    pages: u64,
    rate: Option<u64>,
    interval: Duration,
    dirty: usize,
    pressure: usize,
    bound: usize,
) -> Duration {
    if dirty <= pressure || pages == 0 {
        return Duration::ZERO;
    }
    if dirty >= bound {
        return PAUSE_MAX;
    }
    let x = (dirty - pressure) as f64 / (bound - pressure) as f64;
    let page = match rate {
        Some(rate) if rate > 0 => interval.as_secs_f64() / rate as f64,
        _ => PAGE_UNKNOWN.as_secs_f64(),
    };
    Duration::from_secs_f64((pages as f64 * page * x / (1.0 - x)).min(PAUSE_MAX.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn halfway_to_the_bound_writers_are_as_fast_as_the_device() {
        let pause = |dirty| pause(1, Some(1000), SECOND, dirty, 700, 800);
        assert_eq!(pause(700), Duration::ZERO);
        assert!(pause(701) < Duration::from_micros(20), "it begins with next to nothing");
        assert_eq!(pause(750), Duration::from_millis(1));
        assert!(pause(799) > Duration::from_millis(90));
        assert_eq!(pause(800), PAUSE_MAX);
    }

    #[test]
    fn a_write_is_admitted_when_the_one_before_is_paid_for() {
        let at = Time::from_millis;
        let mut throttle = Throttle::default();
        assert!(!throttle.holds(at(0)));
        throttle.admit(Duration::from_millis(50), at(1000));
        assert!(throttle.holds(at(1029)));
        assert!(!throttle.holds(at(1030)), "after 50 ms, less the credit");
        throttle.admit(Duration::from_millis(50), at(1040));
        assert!(throttle.holds(at(1079)) && !throttle.holds(at(1080)), "being late is made up for");
    }

    proptest! {
        #[test]
        fn pauses_grow_with_what_is_dirty_and_have_an_end(
            pages in 0u64..300,
            rate in prop::option::of(0u64..1_000_000),
            dirty in 0usize..1000,
            pressure in 0usize..1000,
            bound in 0usize..1000,
        ) {
            let pause = |dirty| pause(pages, rate, SECOND, dirty, pressure, bound);
            prop_assert!(pause(dirty) <= pause(dirty + 1));
            prop_assert!(pause(dirty) <= PAUSE_MAX);
        }
    }
}
