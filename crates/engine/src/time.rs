//! The engine's time: nanoseconds since an origin that its caller chose.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in monotonic time, in nanoseconds since an arbitrary origin.
///
/// The engine never reads a clock: the caller passes `now` with each event, from `CLOCK_MONOTONIC`
/// in the daemon and from the simulator's virtual clock in tests. `now` may stand still between
/// events but must not go back; the engine treats a step back as no time having passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }

    /// The time since `earlier`; zero if this is not later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, delta: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(delta.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, delta: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(delta.as_nanos()).unwrap_or(u64::MAX)))
    }
}
