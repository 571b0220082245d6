//! The share of the device's time for async transfers while readers wait. Each async transfer is charged its cost,
//! and the next one waits until that is paid.

use std::time::Duration;

use crate::device::schedule::DeviceBlock;
use crate::engine::Engine;
use crate::time::Time;

/// After an async write, the next one waits this many times its cost: readers have half of the disk's time.
const TURN: u32 = 2;

/// The same for a window that is read and written whole. It brings home far more pages in its time, so an eighth of
/// the time is enough.
const WINDOW_TURN: u32 = 8;

/// On a device that is not rotational, while pages are read ahead: the pause after a write, in percent of the time
/// that the write took. Writers have somewhat more than a third of the device's time.
const REST: u32 = 175;

/// A reader that read ahead this recently is taken to continue.
const AHEAD_RECENT: Duration = Duration::from_millis(20);

/// Assumed cost of an access of a rotational device of which nothing is known.
const ACCESS_UNKNOWN: Duration = Duration::from_millis(8);

/// Most that is charged for an access: a longer one means a stalled device, and does not predict the next one.
const ACCESS_MAX: Duration = Duration::from_millis(30);

/// Most that is charged for a page of a transfer.
const PAGE_MAX: Duration = Duration::from_millis(1);

/// Longest time of a destage that counts for the pause after it.
const TOOK_MAX: Duration = Duration::from_millis(100);

impl Engine {
    /// Whether an async transfer may go to the device. While readers wait, only when the earlier ones are paid.
    pub(crate) fn device_is_paid(&self, now: Time) -> bool {
        self.device.share.paid_at <= now || !self.shares_device(now)
    }

    /// When the next async transfer may go; `None` if nothing waits, or if the last tick was late enough.
    pub(crate) fn share_tick(&self) -> Option<Time> {
        let waits = !self.cache.dirty.resident.pages().is_empty()
            || !self.cache.dirty.patched.pages().is_empty()
            || !self.write_back.sweeps.urgent.is_empty();
        (waits && self.device.share.paid_at > self.ticked).then_some(self.device.share.paid_at)
    }

    /// Whether the device's time is shared with readers. On a rotational device, with readers that wait; sequential
    /// readers need no share there, since their transfers are as efficient as a writer's. On other devices, with
    /// readers that read ahead, because long writes would occupy the device's channels.
    pub(crate) fn shares_device(&self, now: Time) -> bool {
        let beside = match self.config.rotational {
            true => self.device.readers_wait(now),
            false => self.device.share.ahead_at.is_some_and(|at| now.since(at) < AHEAD_RECENT),
        };
        beside && self.write_back.is_adaptive()
    }

    /// Pauses async transfers after a destage that took `took`.
    pub(crate) fn rest_after(&mut self, took: Duration, now: Time) {
        if !self.config.rotational && self.shares_device(now) {
            self.device.share.paid_at =
                self.device.share.paid_at.max(now + took.min(TOOK_MAX) * REST / 100);
        }
    }

    /// Charges the extra wait after a window, in addition to the cost of its transfers.
    pub(crate) fn charge_window(&mut self, cost: Duration) {
        if self.shares_device(self.clock) {
            let cost = cost.min(TOOK_MAX);
            self.device.share.paid_at =
                self.device.share.paid_at.max(self.clock) + cost * (WINDOW_TURN - TURN);
        }
    }

    /// Charges an async transfer on a rotational device.
    pub(crate) fn charge_arm(&mut self, place: DeviceBlock, pages: usize) {
        if !self.config.rotational || !self.shares_device(self.clock) {
            return;
        }
        // In the order of places, an access costs about half of a random one.
        let access = match self.device.share.end == place {
            true => Duration::ZERO,
            false => self.device.costs.fetch.cost().unwrap_or(ACCESS_UNKNOWN).min(ACCESS_MAX) / 2,
        };
        let cost = access + self.device.costs.fetch.page().min(PAGE_MAX) * pages as u32;
        self.device.share.end = DeviceBlock(place.0 + pages as u64);
        self.device.share.paid_at = self.device.share.paid_at.max(self.clock) + cost * TURN;
    }
}
