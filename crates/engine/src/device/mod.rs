//! The device: commands that wait for it, commands in flight, the cost of transfers, and failures.
//!
//! Owns the scheduler, the places of files on the device, the cost models and every command that was issued and not
//! completed. Does not own what a command is for: the events issue commands and handle their completions.
//!
//! Invariants:
//! - a command's number is never used again, and is in `ios` until its completion;
//! - the counts of transfers are those of the transfers in `ios` and in the scheduler.

mod commands;
pub(crate) mod cost_model;
pub(crate) mod home;
pub(crate) mod join;
pub(crate) mod layout;
mod readers;
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
use crate::journal::refused::Refused;
use crate::place::PageIx;
use crate::time::Time;

/// Bounds on the fetches of sweeps in flight, on any device.
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
    /// Fetches that a request waits for.
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
    /// Home refuses to make files, and has made none since.
    pub(crate) no_files: Option<Refused>,
}

impl Device {
    /// A device with nothing in flight, of which nothing is known.
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
                no_files: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::transfer::Issue;
    use crate::place::FileIx;

    fn issue(at_ms: u64, more_pages: usize) -> Issue {
        Issue { at: Time::from_millis(at_ms), ahead: 0, silent: false, more_pages }
    }

    #[test]
    fn each_command_in_flight_has_its_own_number() {
        let mut device = Device::new(&Config::default());
        let first = device.next_io(Io::Map { file: FileIx(0) });
        let of_log = device.next_log_io();
        let second = device.next_io(Io::Map { file: FileIx(1) });
        assert!(first < of_log && of_log < second);
        assert_eq!(device.ios.len(), 2, "the log's commands are the journal's");
    }

    #[test]
    fn service_counts_from_the_end_before_and_joined_transfers_are_one() {
        let mut device = Device::new(&Config::default());
        let at = Time::from_millis;
        let first = device.transfer_ended(issue(0, 0), 1, at(10)).unwrap();
        assert_eq!((first.took, first.service), (at(10).since(at(0)), at(10).since(at(0))));
        let second = device.transfer_ended(issue(5, 3), 1, at(12)).unwrap();
        assert_eq!((second.took, second.service), (at(7).since(at(0)), at(2).since(at(0))));
        assert_eq!(second.pages, 4);
        let joined = Issue { silent: true, ..issue(5, 0) };
        assert!(
            device.transfer_ended(joined, 1, at(12)).is_none(),
            "the leader of the join reports for it"
        );
    }

    #[test]
    fn readers_wait_until_a_moment_after_their_last_fetch() {
        let mut device = Device::new(&Config::default());
        device.in_flight.waited_fetches = 1;
        assert!(device.readers_wait(Time::from_millis(1000)));
        device.in_flight.waited_fetches = 0;
        device.in_flight.waited_ended = Time::from_millis(1000);
        assert!(device.readers_wait(Time::from_millis(1001)));
        assert!(!device.readers_wait(Time::from_millis(1100)));
    }
}
