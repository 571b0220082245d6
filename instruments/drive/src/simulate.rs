//! A drive in virtual time under a host that keeps a number of random requests under way: what the
//! parameters predict where no formula does.

use super::Model;
use super::cache::{NoContent, PAGE_BYTES};
use super::drive::Drive;
use super::parameters::{Ns, SECOND};
use crate::random::Random;

/// A load of single pages at random places.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Writes, or reads.
    pub writes: bool,
    /// Requests under way.
    pub depth: usize,
    /// Left out at the beginning.
    pub ramp: Ns,
    /// Counted after it.
    pub span: Ns,
}

/// Requests a second that a disk of `bytes` completes under a load.
pub fn requests_a_second(model: Model, bytes: u64, load: Load) -> f64 {
    let mut drive = Drive::new(model, bytes, Box::new(NoContent));
    let mut random = Random::new(1);
    let mut page = [0; PAGE_BYTES as usize];
    let mut submit = |drive: &mut Drive, now| {
        let offset = random.below(bytes / PAGE_BYTES) * PAGE_BYTES;
        let taken = match load.writes {
            true => drive.write(now, offset, &page),
            false => drive.read(now, offset, &mut page),
        };
        taken.expect("a request in the disk, and an image that cannot fail");
    };
    for _ in 0..load.depth {
        submit(&mut drive, 0);
    }
    let mut count = 0;
    let mut now = 0;
    loop {
        let wakes = drive.advance(now);
        let next = [wakes, drive.next_due()].into_iter().flatten().min();
        now = now.max(next.expect("requests are under way"));
        if now > load.ramp + load.span {
            return count as f64 * SECOND as f64 / load.span as f64;
        }
        while drive.take_due(now).is_some() {
            count += u64::from(now > load.ramp);
            submit(&mut drive, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(model: Model, writes: bool, depth: usize) -> f64 {
        let load = Load { writes, depth, ramp: 2 * SECOND, span: 5 * SECOND };
        requests_a_second(model, 2 << 30, load)
    }

    #[test]
    fn the_flash_drive_settles_at_the_data_sheets_rates() {
        assert!((rate(Model::Ssd, false, 32) / 35_000.0 - 1.0).abs() < 0.02);
        assert!((rate(Model::Ssd, true, 32) / 3_300.0 - 1.0).abs() < 0.02);
        assert!((rate(Model::Ssd, false, 1) / (1e6 / 75.0) - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_queue_more_than_doubles_what_the_arm_does() {
        let (one, many) = (rate(Model::Hdd, false, 1), rate(Model::Hdd, false, 32));
        assert!((120.0..160.0).contains(&one), "{one} reads a second one at a time");
        assert!(many > 2.0 * one && many < 500.0, "{many} reads a second of 32");
        let writes = rate(Model::Hdd, true, 32);
        assert!(writes > many && writes < 600.0, "{writes} writes a second through the cache");
    }

    #[test]
    fn the_grant_bounds_what_the_round_trip_does_not() {
        assert!((rate(Model::Remote, false, 1) / (1e6 / 1035.0) - 1.0).abs() < 0.02);
        assert!((rate(Model::Remote, false, 32) / 8_000.0 - 1.0).abs() < 0.02);
    }
}
