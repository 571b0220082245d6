//! The drive as the machine sees it: with a clock of its own, which may stand still or run slowly.
//!
//! The drive sees only its own time. So a drive that is ten times slower is slower in every respect,
//! and one that stalls loses nothing.

use weir_drive::parameters::Ns;
use weir_drive::{Counts, Drive, Model, NoContent};

use super::setup::Trouble;

/// A drive and its clock.
pub struct Device {
    drive: Drive,
    trouble: Option<Trouble>,
    /// When the drive has something to do by itself, in its time.
    wakes: Option<Ns>,
    room: Vec<u8>,
}

impl Device {
    /// A drive of `bytes` bytes, and the most that one request transfers.
    pub fn new(
        model: Model,
        bytes: u64,
        transfer_bytes: usize,
        trouble: Option<Trouble>,
    ) -> Device {
        let drive = Drive::new(model, bytes, Box::new(NoContent));
        Device { drive, trouble, wakes: None, room: vec![0; transfer_bytes] }
    }

    /// What the drive did so far.
    pub fn counts(&self) -> Counts {
        self.drive.counts()
    }

    /// Starts a read; returns the number of the request.
    pub fn read(&mut self, now: Ns, offset: u64, bytes: usize) -> u64 {
        let at = self.drive_time(now);
        let taken = self.drive.read(at, offset, &mut self.room[..bytes]);
        self.taken(at, taken)
    }

    /// Starts a write; returns the number of the request.
    pub fn write(&mut self, now: Ns, offset: u64, bytes: usize) -> u64 {
        let at = self.drive_time(now);
        let taken = self.drive.write(at, offset, &self.room[..bytes]);
        self.taken(at, taken)
    }

    /// Starts to make the written data durable.
    pub fn flush(&mut self, now: Ns) -> u64 {
        let at = self.drive_time(now);
        let taken = self.drive.flush(at);
        self.taken(at, taken)
    }

    fn taken(&mut self, at: Ns, taken: std::io::Result<u64>) -> u64 {
        self.wakes = self.drive.advance(at);
        taken.expect("files are on the drive, and it has power")
    }

    /// When the drive has something to do, or a completion to be taken.
    pub fn next_event(&self) -> Option<Ns> {
        let next = [self.wakes, self.drive.next_due()].into_iter().flatten().min()?;
        Some(self.host_time(next))
    }

    /// A request that is complete by now.
    pub fn take_due(&mut self, now: Ns) -> Option<u64> {
        let at = self.drive_time(now);
        if self.wakes.is_some_and(|wakes| wakes <= at) {
            self.wakes = self.drive.advance(at);
        }
        self.drive.take_due(at)
    }

    /// The time in which the drive's clock is wrong, and how it runs then.
    fn slow(&self) -> Option<(Ns, Ns, Ns)> {
        match self.trouble? {
            Trouble::Slow { from, until, times } => Some((from, until, (until - from) / times)),
            Trouble::Stall { from, until } => Some((from, until, 0)),
            Trouble::ClockJump { .. } => None,
        }
    }

    fn drive_time(&self, now: Ns) -> Ns {
        match self.slow() {
            Some((from, until, shown)) if now >= until => now - (until - from) + shown,
            Some((from, until, shown)) if now > from => {
                from + scaled(now - from, shown, until - from)
            }
            _ => now,
        }
    }

    /// The first moment at which the drive's clock shows `at` or more.
    fn host_time(&self, at: Ns) -> Ns {
        match self.slow() {
            Some((from, until, shown)) if at > from + shown => at - shown + (until - from),
            Some((from, until, shown)) if at > from => {
                (from + scaled(at - from, until - from, shown) + 1).min(until)
            }
            _ => at,
        }
    }
}

fn scaled(time: Ns, by: Ns, of: Ns) -> Ns {
    (u128::from(time) * u128::from(by) / u128::from(of)) as Ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_drive::parameters::{MS, SECOND};

    fn device(trouble: Trouble) -> Device {
        Device::new(Model::Remote, 1 << 30, 1 << 20, Some(trouble))
    }

    /// When a page that is requested at `now` arrives.
    fn read_at(device: &mut Device, now: Ns) -> Ns {
        let id = device.read(now, 0, 4096);
        loop {
            let at = device.next_event().expect("a read is under way");
            if let Some(due) = device.take_due(at) {
                assert_eq!(due, id);
                return at;
            }
        }
    }

    #[test]
    fn a_slow_drive_takes_so_many_times_as_long() {
        let trouble = Trouble::Slow { from: SECOND, until: 2 * SECOND, times: 10 };
        let mut device = device(trouble);
        let usual = read_at(&mut device, 0);
        assert!((MS..2 * MS).contains(&usual));
        assert!((read_at(&mut device, SECOND) - SECOND).abs_diff(10 * usual) <= 10);
        // Half of it in either time.
        let begun = 2 * SECOND - 5 * usual;
        assert!((read_at(&mut device, begun) - begun).abs_diff(5 * usual + usual / 2) <= 10);
        assert!((read_at(&mut device, 3 * SECOND) - 3 * SECOND).abs_diff(usual) <= 1);
    }

    #[test]
    fn a_stalled_drive_goes_on_where_it_stopped() {
        let trouble = Trouble::Stall { from: MS / 2, until: 10 * SECOND };
        let usual = read_at(&mut device(Trouble::ClockJump { at: 0, by: SECOND }), 0);
        assert_eq!(read_at(&mut device(trouble), 0), usual + 10 * SECOND - MS / 2);
        assert_eq!(read_at(&mut device(trouble), SECOND), 10 * SECOND + usual);
        assert_eq!(read_at(&mut device(trouble), 11 * SECOND), 11 * SECOND + usual);
    }

    #[test]
    fn both_clocks_agree_on_every_moment() {
        for trouble in [
            Trouble::Slow { from: 100, until: 1000, times: 7 },
            Trouble::Stall { from: 100, until: 1000 },
        ] {
            let device = device(trouble);
            let mut last = 0;
            for now in 0..3000 {
                let at = device.drive_time(now);
                assert!(at >= last, "the drive's clock never goes back");
                last = at;
                let back = device.host_time(at);
                assert!(back <= now + 1 && device.drive_time(back) >= at, "{trouble:?} {now}");
            }
        }
    }
}
