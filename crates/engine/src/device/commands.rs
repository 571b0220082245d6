//! Commands given to the back end, and what their completions say of the device.

use crate::command::{Completion, IoId};
use crate::device::Device;
use crate::device::cost_model::Ended;
use crate::device::join::split;
use crate::device::transfer::{Io, Issue};
use crate::time::Time;

impl Device {
    pub(crate) fn next_io(&mut self, record: Io) -> IoId {
        self.last_io += 1;
        let io = IoId(self.last_io);
        self.ios.insert(io, record);
        io
    }

    pub(crate) fn next_log_io(&mut self) -> IoId {
        self.last_io += 1;
        IoId(self.last_io)
    }

    pub(crate) fn issue_now(&self, now: Time) -> Issue {
        Issue { at: now, ahead: self.scheduler.under_way(), silent: false, more_pages: 0 }
    }

    /// Notes that a transfer ended. Returns its timing, or `None` if the timing says nothing of the device.
    pub(crate) fn transfer_ended(
        &mut self,
        issue: Issue,
        pages: usize,
        now: Time,
    ) -> Option<Ended> {
        let before = self.costs.transfer_ended.max(issue.at);
        self.costs.transfer_ended = now;
        let (took, service) = (now.since(issue.at), now.since(before));
        let pages = pages + issue.more_pages;
        (!issue.silent).then_some(Ended { pages, took, service, ahead: issue.ahead })
    }

    pub(crate) fn issue_of(&mut self, io: IoId) -> Option<&mut Issue> {
        match self.ios.get_mut(&io)? {
            Io::Fetch(fetch) => Some(&mut fetch.issue),
            Io::Destage { issue, .. } | Io::DestagePatches { issue, .. } => Some(issue),
            Io::Sync { .. } | Io::Reserve { .. } | Io::ReserveAhead { .. } | Io::Map { .. } => None,
        }
    }

    /// The completions of the single commands that were joined to one.
    pub(crate) fn parts(&mut self, io: IoId, completion: Completion) -> Vec<(IoId, Completion)> {
        match self.scheduler.ended(io) {
            Some(members) if members.len() > 1 => split(members, completion),
            _ => vec![(io, completion)],
        }
    }
}
