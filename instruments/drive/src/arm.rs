//! The mechanics of the hard disk: where the arm is, what is under the head, and how long it takes
//! to get elsewhere. Pure arithmetic on [`parameters::hdd`]; knows nothing of requests.
//!
//! The platter never stops, so the angle under the head follows from the time alone. Blocks lie on
//! a spiral: the block at byte `b` is at the angle `b` modulo the track. Reading on is then
//! continuous, as the skew between tracks makes it on a drive.
//!
//! [`parameters::hdd`]: super::parameters::hdd

use super::parameters::hdd::{
    BAND_BYTES, DRIVE_BYTES, REVOLUTION, SEEK_KNEE, SEEK_MEAN, SEEK_TRACK, TRANSFER,
};
use super::parameters::{Ns, SECOND, time_at};

/// Bytes that pass under the head in a revolution.
pub const TRACK_BYTES: u64 = (TRANSFER as u128 * REVOLUTION as u128 / SECOND as u128) as u64;

/// What one access costs, ns each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Moving the arm; zero on the same track.
    pub seek: Ns,
    /// Waiting for the block to come round.
    pub rotation: Ns,
    /// Reading or writing it.
    pub transfer: Ns,
}

impl Access {
    /// Until the first byte is under the head.
    pub fn positioning(&self) -> Ns {
        self.seek + self.rotation
    }

    /// All of it.
    pub fn total(&self) -> Ns {
        self.seek + self.rotation + self.transfer
    }
}

/// The arm over an image of a certain size.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The byte after the last that passed under the head.
    head: u64,
    /// By how much distances on the image are stretched for seeks.
    stretch: f64,
}

impl Arm {
    /// At the first byte of an image of `image_bytes`.
    pub fn new(image_bytes: u64) -> Arm {
        Arm { head: 0, stretch: (BAND_BYTES as f64 / image_bytes as f64).max(1.0) }
    }

    /// The byte after the last that passed under the head.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// What reading or writing `bytes` at `offset` costs if begun at `now`.
    pub fn access(&self, now: Ns, offset: u64, bytes: u64) -> Access {
        let seek = self.seek(offset);
        Access { seek, rotation: rotation(now + seek, offset), transfer: time_at(TRANSFER, bytes) }
    }

    /// Leaves the arm behind `bytes` at `offset`.
    pub fn moved_over(&mut self, offset: u64, bytes: u64) {
        self.head = offset + bytes;
    }

    fn seek(&self, offset: u64) -> Ns {
        if self.head / TRACK_BYTES == offset / TRACK_BYTES || self.head == offset {
            return 0;
        }
        let distance = self.head.abs_diff(offset) as f64 * self.stretch;
        seek_time(distance / DRIVE_BYTES as f64)
    }
}

/// The time of a seek over a part of the stroke, 0 to 1, ns.
pub fn seek_time(part: f64) -> Ns {
    (SEEK_TRACK as f64 + seek_slope() * curve(part.min(1.0))) as Ns
}

/// The mean seek between random places of an image of `image_bytes`, ns.
pub fn mean_seek(image_bytes: u64) -> Ns {
    const STEPS: u32 = 1000;
    let arm = Arm::new(image_bytes);
    let reach = image_bytes as f64 * arm.stretch / DRIVE_BYTES as f64;
    let sum: f64 = (0..STEPS)
        .map(|step| (f64::from(step) + 0.5) / f64::from(STEPS))
        .map(|x| 2.0 * (1.0 - x) * seek_time(x * reach) as f64)
        .sum();
    (sum / f64::from(STEPS)) as Ns
}

/// Square root up to the knee, from there the tangent.
fn curve(part: f64) -> f64 {
    if part <= SEEK_KNEE {
        part.sqrt()
    } else {
        SEEK_KNEE.sqrt() + (part - SEEK_KNEE) / (2.0 * SEEK_KNEE.sqrt())
    }
}

/// What makes the mean seek of the data sheet out of [`curve`], whose mean over all pairs of places
/// (distances have the density 2(1 - x)) has a closed form.
fn seek_slope() -> f64 {
    let k = SEEK_KNEE;
    let root = 2.0 * (2.0 / 3.0 * k.powf(1.5) - 2.0 / 5.0 * k.powf(2.5));
    let rest = 1.0 - k;
    let line = 2.0 * (k.sqrt() * rest * rest / 2.0 + rest * rest * rest / 6.0 / (2.0 * k.sqrt()));
    (SEEK_MEAN - SEEK_TRACK) as f64 / (root + line)
}

/// How long until `offset` is under the head at `now`.
fn rotation(now: Ns, offset: u64) -> Ns {
    let wanted = time_at(TRANSFER, offset % TRACK_BYTES) % REVOLUTION;
    let angle = now % REVOLUTION;
    (wanted + REVOLUTION - angle) % REVOLUTION
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::MS;
    use crate::random::Random;

    #[test]
    fn the_seek_curve_has_the_data_sheets_mean_and_rises() {
        let mut random = Random::new(1);
        let mut place = || random.below(1 << 30) as f64 / (1u64 << 30) as f64;
        let count = 200_000;
        let sum: f64 = (0..count).map(|_| seek_time((place() - place()).abs()) as f64).sum();
        let mean = sum / f64::from(count);
        assert!((mean / SEEK_MEAN as f64 - 1.0).abs() < 0.005, "mean seek {mean} ns");
        assert!(mean_seek(DRIVE_BYTES).abs_diff(SEEK_MEAN) < SEEK_MEAN / 200);
        let times: Vec<_> = (0..=100).map(|i| seek_time(f64::from(i) / 100.0)).collect();
        assert!(times.is_sorted());
        assert_eq!(times[0], SEEK_TRACK);
        assert!((14 * MS..20 * MS).contains(&times[100]), "full stroke {} ns", times[100]);
    }

    #[test]
    fn rotation_takes_half_a_revolution_on_average_and_reading_on_takes_none() {
        let mut random = Random::new(2);
        let count = 100_000u64;
        let sum: u64 =
            (0..count).map(|_| rotation(random.below(SECOND), random.below(1 << 40))).sum();
        let mean = sum / count;
        assert!(mean.abs_diff(REVOLUTION / 2) < REVOLUTION / 100, "mean rotation {mean} ns");

        let mut arm = Arm::new(1 << 30);
        let mut now = 12_345;
        let first = arm.access(now, 4096, 1 << 20);
        now += first.total();
        arm.moved_over(4096, 1 << 20);
        let next = arm.access(now, 4096 + (1 << 20), 4096);
        assert_eq!(next.seek, 0);
        // Rounding to whole nanoseconds may leave it a hair early, never late.
        assert!(next.rotation < US_OF_ROUNDING, "{next:?}");
    }

    const US_OF_ROUNDING: Ns = 1_000;

    #[test]
    fn a_small_image_has_the_seeks_of_the_band_it_stands_for() {
        let mut small = Arm::new(1 << 30);
        small.moved_over(0, 0);
        let large = Arm::new(1 << 40);
        assert!(small.access(0, 1 << 29, 0).seek > large.access(0, 1 << 29, 0).seek);
        assert_eq!(small.access(0, TRACK_BYTES / 2, 0).seek, 0, "the same track");
    }
}
