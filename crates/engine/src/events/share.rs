//! The share of the device that readers leave to what nobody waits for.

use std::time::Duration;

use crate::device::schedule::DeviceBlock;
use crate::engine::Engine;
use crate::time::Time;

/// A write keeps the next one waiting for this many times its own cost, so that readers have half of the disk's time.
const TURN: u32 = 2;

/// The same of a stretch that is read and written whole, which brings home so much more in its time that an
/// eighth is enough.
const WINDOW_TURN: u32 = 8;

/// On a device that is not rotational, a write keeps the next one waiting for so long, percent of what it took, while
/// somebody reads ahead: somewhat more than a third of the device is the writers'.
const REST: u32 = 175;

/// Who read ahead this recently goes on to.
const AHEAD_RECENT: Duration = Duration::from_millis(20);

/// Assumed cost of an access of a rotational device of which nothing is known.
const ACCESS_UNKNOWN: Duration = Duration::from_millis(8);

/// No access costs more, nor the page of a transfer, nor is a destage rested after for longer: what took so
/// long was a device in trouble, and tells nothing of what comes after.
const ACCESS_MAX: Duration = Duration::from_millis(30);

const PAGE_MAX: Duration = Duration::from_millis(1);

const TOOK_MAX: Duration = Duration::from_millis(100);

impl Engine {
    /// Whether what nobody waits for may go to the device: while somebody reads only once what went before
    /// is paid for.
    pub(crate) fn device_is_paid(&self, now: Time) -> bool {
        self.device.share.paid_at <= now || !self.shares_device(now)
    }

    /// When something that could go is paid for; `None` if that was at a tick already.
    pub(crate) fn share_tick(&self) -> Option<Time> {
        let waits = !self.cache.dirty.resident.pages().is_empty()
            || !self.cache.dirty.patched.pages().is_empty()
            || !self.write_back.sweeps.urgent.is_empty();
        (waits && self.device.share.paid_at > self.ticked).then_some(self.device.share.paid_at)
    }

    /// A rotational device is shared with readers that wait. Those that read ahead find their way there: beside a writer
    /// in order, too, the arm is as well used by one as by the other. On other devices it is those whom
    /// writes in long transfers would take the channels from.
    pub(crate) fn shares_device(&self, now: Time) -> bool {
        let beside = match self.config.rotational {
            true => self.device.readers_wait(now),
            false => self.device.share.ahead_at.is_some_and(|at| now.since(at) < AHEAD_RECENT),
        };
        beside && self.write_back.is_adaptive()
    }

    /// A destage took so long.
    pub(crate) fn rest_after(&mut self, took: Duration, now: Time) {
        if !self.config.rotational && self.shares_device(now) {
            self.device.share.paid_at =
                self.device.share.paid_at.max(now + took.min(TOOK_MAX) * REST / 100);
        }
    }

    /// What a stretch costs that is read and written whole is charged as any other; this is what it keeps
    /// others waiting beyond that.
    pub(crate) fn charge_window(&mut self, cost: Duration) {
        if self.shares_device(self.clock) {
            let cost = cost.min(TOOK_MAX);
            self.device.share.paid_at =
                self.device.share.paid_at.max(self.clock) + cost * (WINDOW_TURN - TURN);
        }
    }

    pub(crate) fn charge_arm(&mut self, place: DeviceBlock, pages: usize) {
        if !self.config.rotational || !self.shares_device(self.clock) {
            return;
        }
        // In the order of places, an access is about half of one at random.
        let access = match self.device.share.end == place {
            true => Duration::ZERO,
            false => self.device.costs.fetch.cost().unwrap_or(ACCESS_UNKNOWN).min(ACCESS_MAX) / 2,
        };
        let cost = access + self.device.costs.fetch.page().min(PAGE_MAX) * pages as u32;
        self.device.share.end = DeviceBlock(place.0 + pages as u64);
        self.device.share.paid_at = self.device.share.paid_at.max(self.clock) + cost * TURN;
    }
}
