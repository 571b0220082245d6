//! Dispatch: commands wait in the scheduler and are given to the device in its order.
//!
//! Commands that move pages wait there, ordered by the file's place on the device (`layout`). They are *sync* if a
//! request or a sync waits for them. All other commands go at once.
//!
//! On a rotational device, dirty pages that lie between two requests dispatched in turn are written too (AWOL,
//! section 4). While readers wait, async transfers get a limited share of the disk's time (`Share`), because a drive
//! takes writes into its cache at once and later makes reads wait for them.

use weir_frames::PAGE_BYTES;

use crate::command::{Command, Completion, Output, Urgency};
use crate::device::join::{bytes, split};
use crate::device::schedule::{Chosen, Depth, Rank};
use crate::device::transfer::Issue;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;

const PAGE: u64 = PAGE_BYTES as u64;

/// Most sync requests in flight on a rotational device: as many as its own queue holds.
const SYNC_DEPTH_ARM: usize = 32;

/// Dirty pages at most this many pages before or after a dispatched request are written with it: about the distance that
/// a disk arm moves in the time of one revolution.
const ALONG_REACH: u64 = 256;

/// Most opportunistic writes dispatched together with one request.
const ALONG_MAX: usize = 4;

impl Engine {
    /// Has a command executed: at once, or when the scheduler chooses it.
    pub(crate) fn issue(&mut self, command: Command) {
        self.count_issued(&command);
        self.submit(command);
    }

    pub(crate) fn count_issued(&mut self, command: &Command) {
        let file = self.cache.files.find(command.file()).expect("commands are for attached files");
        self.cache.files[file].home.io_in_flight += 1;
    }

    pub(crate) fn submit(&mut self, command: Command) {
        let file = self.cache.files.find(command.file()).expect("commands are for attached files");
        let (offset, pages, awaited) = match &command {
            Command::Fetch { offset, frames, urgency, .. } => {
                (*offset, frames.len(), *urgency != Urgency::Background)
            }
            Command::Write { offset, parts, .. } => {
                let pages = (offset + bytes(parts)).div_ceil(PAGE) - offset / PAGE;
                (*offset, pages as usize, self.cache.files[file].waiters.is_awaited())
            }
            Command::Sync { .. } | Command::Reserve { .. } | Command::Map { .. } => {
                self.outputs.push_back(Output::Command(command));
                return;
            }
        };
        self.ask_for_layout(file);
        let place = self.device.layouts.place(file, offset / PAGE);
        let rank = if awaited { Rank::Sync } else { Rank::Async };
        if rank == Rank::Async {
            self.charge_arm(place, pages);
        }
        self.device.scheduler.submit(rank, command.io(), place, pages, command, self.clock);
    }

    /// Dispatches as many commands as the device may have now. To be called after one or more events, before their outputs
    /// are taken, so that the scheduler orders all of their commands together.
    pub fn dispatch(&mut self) {
        while let Some(chosen) = self.device.scheduler.choose(self.depth(), self.clock) {
            self.take_along(chosen);
            self.dispatch_one(chosen);
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        let most = self.config.requests_in_flight_max as usize;
        let sync = if self.config.rotational { most.min(SYNC_DEPTH_ARM) } else { most };
        let later = most.min(self.device.costs.fetch.depth() + self.device.costs.destage.depth());
        Depth { sync, later }
    }

    pub(crate) fn dispatch_one(&mut self, chosen: Chosen) {
        let issue = self.device.issue_now(self.clock);
        let request = self.device.scheduler.dispatch(chosen);
        let mut command = request.payload;
        if let (Rank::Sync, Command::Fetch { urgency, .. }) = (chosen.rank, &mut command)
            && *urgency == Urgency::Background
        {
            // A request has begun to wait for it.
            *urgency = Urgency::Waited;
        }
        let (leader, pages) = request.members[0];
        for &(io, _) in &request.members {
            if let Some(of_io) = self.device.issue_of(io) {
                *of_io = Issue { silent: io != leader, ..issue };
            }
        }
        if let Some(of_leader) = self.device.issue_of(leader) {
            of_leader.more_pages = request.pages as usize - pages;
        }
        self.stats.requests_joined += request.members.len() as u64 - 1;
        self.outputs.push_back(Output::Command(command));
    }

    pub(crate) fn learn_destage(
        &mut self,
        issue: Issue,
        pages: usize,
        result: Result<(), ErrorKind>,
        now: Time,
    ) {
        let ended = self.device.transfer_ended(issue, pages, now);
        if let (Ok(()), Some(ended)) = (result, ended) {
            self.device.costs.destage.ended(ended);
            self.rest_after(ended.took, now);
        }
    }

    /// Writes dirty pages home that lie between the last request and the chosen one, near the chosen one: the disk arm is
    /// about to pass them.
    pub(crate) fn take_along(&mut self, chosen: Chosen) {
        let useful = self.config.opportunistic && self.config.rotational;
        if !useful || chosen.rank == Rank::Async || !self.device_is_paid(self.clock) {
            return;
        }
        let between = self.device.scheduler.opportunity(chosen);
        let place = chosen.place.0;
        let near = between.start.max(place.saturating_sub(ALONG_REACH))
            ..between.end.min(place.saturating_add(ALONG_REACH));
        if near.is_empty() || self.cache.dirty.resident.pages().is_empty() {
            return;
        }
        let mut left = ALONG_MAX;
        for (file, pages) in self.device.layouts.pages(near) {
            let of_file = &self.cache.files[file];
            if of_file.waiters.freeze != FreezeState::Thawed || of_file.waiters.is_urgent() {
                continue;
            }
            let mut at = pages.start;
            while left > 0
                && self.device.in_flight.destages < self.config.destages_in_flight_max as usize
                && let Some(number) = self.cache.dirty.resident.pages().next_of(file, at)
                && number < pages.end
            {
                left -= 1;
                let Some(destaged) = self.destage_around(file, number, self.clock) else {
                    at = number + 1;
                    continue;
                };
                self.stats.destages_along += 1;
                self.stats.pages_along += destaged.pages;
                at = destaged.last + 1;
                if let Some(along) = self.device.scheduler.find(destaged.io) {
                    self.dispatch_one(along);
                }
            }
        }
    }

    /// A request waits for transfers of a file: makes the waiting ones sync.
    pub(crate) fn hurry(&mut self, file: FileIx) {
        if self.device.scheduler.waiting(Rank::Async) > 0 {
            let id = self.cache.files[file].id;
            self.device.scheduler.promote(|command| command.file() == id);
        }
    }

    /// Cancels the commands of a file that have not been dispatched: they complete without being executed.
    pub(crate) fn cancel(&mut self, file: FileIx) {
        let id = self.cache.files[file].id;
        let mut ends = Vec::new();
        for request in self.device.scheduler.cancel(|command| command.file() == id) {
            let completion = match request.payload {
                Command::Fetch { frames, .. } => {
                    Completion::Fetched { frames, result: Err(ErrorKind::Io) }
                }
                _ => Completion::Written { result: Ok(()) },
            };
            ends.extend(split(request.members, completion));
        }
        for command in self.cancel_behind(id) {
            ends.push((command.io(), Completion::Written { result: Ok(()) }));
        }
        if ends.is_empty() {
            return;
        }
        for (io, completion) in ends {
            if let Some(issue) = self.device.issue_of(io) {
                issue.silent = true;
            }
            self.ended(io, completion, self.clock);
        }
        self.after_end(file, self.clock);
    }
}
