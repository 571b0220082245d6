//! The cost model: what transfers cost on this device. From it follow the widest gap that is cheaper to read
//! through than to skip, and how many transfers may be in flight before another one only makes the others wait.
//!
//! One [`CostModel`] for fetches and one for destages. No I/O is done to measure the device: all is learned from
//! transfers as they end.

use std::time::Duration;

/// Transfers of at most this many pages show what a transfer costs, however short.
const SHORT_PAGES_MAX: usize = 4;

/// Transfers of at least this many pages show what a page costs.
const LONG_PAGES_MIN: usize = 32;

/// The assumed cost of a page until a long transfer has ended: that of a slow disk.
const PAGE_NS_UNKNOWN: u64 = 64_000;

/// The least cost of a page: completions that are delivered together would otherwise seem to cost nothing.
const PAGE_NS_MIN: u64 = 500;

/// Transfers may always queue this long, even on a fast device.
const WAIT_NS_MIN: u64 = 1_000_000;

/// Transfers in flight at first.
const DEPTH_FIRST: usize = 8;

/// The timing of a transfer that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) pages: usize,
    /// From its issue to its end.
    pub(crate) took: Duration,
    /// From its issue, or from the end of the transfer that ended before it if that was later: the time that the
    /// device spent on this transfer.
    pub(crate) service: Duration,
    /// Transfers under way when it was issued.
    pub(crate) ahead: usize,
}

/// What is known of one kind of transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostModel {
    /// Time of a short transfer with the device to itself, nanoseconds; 0 if none has ended.
    alone_ns: u64,
    /// The cost of a short transfer to the device, nanoseconds: less than its time where several are
    /// executed at once.
    short_ns: u64,
    /// What each page of a long transfer costs, nanoseconds; 0 if none has ended.
    page_ns: u64,
    depth: usize,
    depth_min: usize,
    depth_max: usize,
}

impl CostModel {
    /// Nothing is known yet. At least `depth_min` and at most `depth_max` transfers are to be in
    /// flight.
    pub(crate) fn new(depth_min: usize, depth_max: usize) -> CostModel {
        let depth_min = depth_min.min(depth_max);
        CostModel {
            alone_ns: 0,
            short_ns: 0,
            page_ns: 0,
            depth: DEPTH_FIRST.clamp(depth_min, depth_max),
            depth_min,
            depth_max,
        }
    }

    /// Learns from a transfer that succeeded.
    pub(crate) fn ended(&mut self, ended: Ended) {
        let took = nanos(ended.took);
        let service = nanos(ended.service);
        if ended.pages <= SHORT_PAGES_MAX {
            self.short_ns = average(self.short_ns, service);
            if ended.ahead == 0 || took < self.alone_ns {
                self.alone_ns = average(self.alone_ns, took);
            }
        } else if ended.pages >= LONG_PAGES_MIN {
            // Without the seek, which may take no time if the transfer follows the one before it.
            let moving = service.saturating_sub(self.short_ns).max(service / 4);
            let page_ns = (moving / ended.pages as u64).max(PAGE_NS_MIN);
            self.page_ns = average(self.page_ns, page_ns);
        }
        // Increase the depth only while that does not make each transfer slower.
        let expected = self.alone_ns + ended.pages as u64 * self.page_ns;
        if took > (2 * expected).max(WAIT_NS_MIN) {
            self.depth = (self.depth - 1).max(self.depth_min);
        } else if ended.ahead + 1 >= self.depth {
            self.depth = (self.depth + 1).min(self.depth_max);
        }
    }

    /// The number of transfers that keep the device busy; more would only queue.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Time of a short transfer with the device to itself; `None` if that is not known yet.
    pub(crate) fn latency(&self) -> Option<Duration> {
        (self.alone_ns > 0).then(|| Duration::from_nanos(self.alone_ns))
    }

    /// The cost of a short transfer to the device, which may execute several at once; `None` if that is
    /// not known yet.
    pub(crate) fn cost(&self) -> Option<Duration> {
        (self.short_ns > 0).then(|| Duration::from_nanos(self.short_ns))
    }

    /// The cost of a page in a long transfer; a guess if none has ended yet.
    pub(crate) fn page(&self) -> Duration {
        Duration::from_nanos(self.page_ns())
    }

    /// The number of pages that cost as much as one more transfer.
    pub(crate) fn gap_pages(&self) -> u64 {
        self.short_ns / self.page_ns()
    }

    fn page_ns(&self) -> u64 {
        if self.page_ns == 0 { PAGE_NS_UNKNOWN } else { self.page_ns }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// A moving average over about eight; 0 is none yet.
fn average(average: u64, sample: u64) -> u64 {
    match average {
        0 => sample,
        average => average - average / 8 + sample / 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which each transfer costs `base` and each of its pages `page` microseconds,
    /// and that executes `channels` transfers at once; used as sweeps use it.
    fn run(model: &mut CostModel, base: u64, page: u64, channels: usize, rounds: usize) {
        for round in 0..rounds {
            let pages = if round % 2 == 0 { 1 } else { model.gap_pages().clamp(1, 256) as usize };
            let depth = model.depth();
            let alone = base + page * pages as u64;
            let queued = depth.div_ceil(channels) as u64;
            model.ended(Ended {
                pages,
                took: Duration::from_micros(alone * queued),
                service: Duration::from_micros(alone / depth.min(channels) as u64),
                ahead: depth - 1,
            });
            model.ended(Ended {
                pages: 1,
                took: Duration::from_micros(base + page),
                service: Duration::from_micros((base + page) / depth.min(channels) as u64),
                ahead: 0,
            });
        }
    }

    #[test]
    fn a_rotational_disk_has_wide_gaps_and_few_transfers() {
        let mut model = CostModel::new(2, 32);
        assert_eq!(model.gap_pages(), 0, "nothing is known");
        run(&mut model, 10_000, 40, 1, 100);
        assert!((80..=300).contains(&model.gap_pages()), "{model:?}");
        assert!(model.depth() <= 4, "{model:?}");
    }

    #[test]
    fn a_drive_with_channels_has_no_gaps_and_many_transfers() {
        let mut model = CostModel::new(2, 32);
        run(&mut model, 75, 16, 10, 100);
        assert!(model.gap_pages() <= 8, "{model:?}");
        assert!(model.depth() >= 10, "{model:?}");
    }

    #[test]
    fn a_remote_device_with_many_channels_is_given_many_transfers() {
        let mut model = CostModel::new(2, 32);
        run(&mut model, 20_000, 40, 1000, 100);
        assert_eq!(model.depth(), 32);
    }
}
