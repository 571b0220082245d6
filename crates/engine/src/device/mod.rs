//! The device: what waits for it, what is under way, what its transfers cost, and what failed.
//!
//! Owns the scheduler, the places of files on the device, the cost models and every command that was given out and not
//! completed. Does not own what a command is for: who issues one, and what its end means, is the events'.
//!
//! Invariants:
//! - a command's number is given once, and is in `ios` until its completion;
//! - the counts of transfers are those of the transfers in `ios` and in the scheduler.

pub(crate) mod cost_model;
pub(crate) mod home;
pub(crate) mod join;
pub(crate) mod layout;
pub(crate) mod schedule;
pub(crate) mod share;
pub(crate) mod transfer;

use std::collections::HashMap;
use std::time::Duration;

use crate::command::{Command, IoId};
use crate::config::Config;
use crate::device::cost_model::CostModel;
use crate::device::layout::Layouts;
use crate::device::schedule::Scheduler;
use crate::device::share::Share;
use crate::device::transfer::{Io, PatchDestage};
use crate::error::ErrorKind;
use crate::place::PageIx;
use crate::time::Time;

/// Fetches of sweeps in flight, however slow or quick the device.
const FETCH_DEPTH_MIN: usize = 2;
const FETCH_DEPTH_MAX: usize = 32;

/// Destages of sweeps in flight on a slow device.
const DESTAGE_DEPTH_MIN: usize = 4;

/// The device of one engine.
pub(crate) struct Device {
    /// Transfers that wait for the device.
    pub(crate) scheduler: Scheduler<Command>,
    pub(crate) layouts: Layouts,
    pub(crate) share: Share,
    /// Commands under way.
    pub(crate) ios: HashMap<IoId, Io>,
    pub(crate) last_io: u64,
    pub(crate) patch_destages: HashMap<PageIx, PatchDestage>,
    pub(crate) in_flight: InFlight,
    pub(crate) costs: Costs,
    pub(crate) failures: Failures,
}

/// Transfers under way, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) destages: usize,
    pub(crate) fetches: usize,
    /// Of these, those of sweeps and syncs.
    pub(crate) sweep_fetches: usize,
    /// Patched pages in them.
    pub(crate) converting: usize,
    /// Fetches that somebody waits for.
    pub(crate) waited_fetches: usize,
    /// When the last one of that kind ended.
    pub(crate) waited_ended: Time,
}

/// What transfers have cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) fetch: CostModel,
    pub(crate) destage: CostModel,
    /// What a sync of home takes, on average.
    pub(crate) home_sync: Duration,
    /// When the last transfer ended.
    pub(crate) transfer_ended: Time,
}

/// What failed, and when it is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failures {
    pub(crate) last: ErrorKind,
    /// Dirty pages whose transfer failed since one last succeeded.
    pub(crate) in_a_row: usize,
    /// Fetches that failed since one last succeeded.
    pub(crate) fetches: usize,
    /// When failed pages are tried again.
    pub(crate) retry_at: Time,
}

impl Device {
    /// Nothing is under way, and nothing is known.
    pub(crate) fn new(config: &Config) -> Device {
        Device {
            scheduler: Scheduler::new(u64::from(config.transfer_pages_max)),
            layouts: Layouts::default(),
            share: Share::default(),
            ios: HashMap::new(),
            last_io: 0,
            patch_destages: HashMap::new(),
            in_flight: InFlight::default(),
            costs: Costs {
                fetch: CostModel::new(FETCH_DEPTH_MIN, FETCH_DEPTH_MAX),
                destage: CostModel::new(DESTAGE_DEPTH_MIN, config.destages_in_flight_max as usize),
                home_sync: Duration::ZERO,
                transfer_ended: Time::ZERO,
            },
            failures: Failures {
                last: ErrorKind::Io,
                in_a_row: 0,
                fetches: 0,
                retry_at: Time::ZERO,
            },
        }
    }
}
