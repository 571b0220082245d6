//! From what the engine wants of the device to what it is given: commands wait in the scheduler, and
//! go when their turn comes.
//!
//! A command that moves pages is put in its place, by where its file is on the device (`layout`);
//! whether it is *sync* follows from whether somebody waits. All others, which move nothing, go at once.
//!
//! On a device with an arm dirty pages that lie between two requests dispatched in turn go along
//! (AWOL, section 4), and what nobody waits for gets a share of the arm's time while somebody reads, no
//! more (`Share`): a drive takes writes into its cache at once and later lets reads wait for them.

use std::time::Duration;

use crate::PAGE_BYTES;
use crate::command::{Command, Completion, Extent, IoId, Output, Part, Urgency};
use crate::engine::{Engine, Io};
use crate::error::ErrorKind;
use crate::file::{Gate, Mapped};
use crate::pace::Ended;
use crate::page::FileIx;
use crate::schedule::{Block, Chosen, Depth, Join, Members, Rank};
use crate::time::Time;

const PAGE: u64 = PAGE_BYTES as u64;

/// Requests somebody waits for that are with a device with an arm: as many as its own queue holds.
const SYNC_DEPTH_ARM: usize = 32;

/// The back end is not asked more often where a file is, however often that changes.
const MAP_EVERY: Duration = Duration::from_secs(1);

/// Files shorter than this are where one request reaches all of them.
const MAPPED_BYTES_MIN: u64 = 1 << 20;

/// What goes along lies at most so many pages from the request: about what an arm passes over in
/// the time of one turn.
const ALONG_REACH: u64 = 256;

/// Requests that go along with one other, at most.
const ALONG_MAX: usize = 4;

/// Of what it costs, a write keeps the next one waiting for so many times as long: half of the arm's time is
/// readers'.
const TURN: u32 = 2;

/// The same of a stretch that is read and written whole, which brings home so much more in its time that an
/// eighth is enough.
const WINDOW_TURN: u32 = 8;

/// Where there is no arm, a write keeps the next one waiting for so long, percent of what it took, while
/// somebody reads ahead: somewhat more than a third of the device is the writers'.
const REST: u32 = 175;

/// Who read ahead this recently goes on to.
const AHEAD_RECENT: Duration = Duration::from_millis(20);

/// An access of an arm of which nothing is known.
const ACCESS_UNKNOWN: Duration = Duration::from_millis(8);

/// No access costs more, nor the page of a transfer, nor is a destage rested after for longer: what took so
/// long was a device in trouble, and tells nothing of what comes after.
const ACCESS_MAX: Duration = Duration::from_millis(30);
const PAGE_MAX: Duration = Duration::from_millis(1);
const TOOK_MAX: Duration = Duration::from_millis(100);

/// When a transfer was dispatched, and how many were under way then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) at: Time,
    pub(crate) ahead: usize,
    /// Its end tells nothing: another transfer, which it was joined to, speaks for it, or it never went.
    pub(crate) silent: bool,
    /// Pages of others that it speaks for.
    pub(crate) more_pages: usize,
}

/// A share of the device's time, for what nobody waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// When what was asked for so far is paid for.
    paid_at: Time,
    /// Behind it.
    end: Block,
    /// When somebody read ahead last.
    ahead_at: Option<Time>,
}

impl Join for Command {
    fn goes_on_with(&self, next: &Command) -> bool {
        match (self, next) {
            // What somebody waits for comes by itself: no sooner with others, and without their errors.
            (
                Command::Fetch { file, offset, frames, urgency: Urgency::Background, .. },
                Command::Fetch {
                    file: next_file, offset: next, urgency: Urgency::Background, ..
                },
            ) => file == next_file && offset + frames.len() as u64 * PAGE == *next,
            (
                Command::Write { file, offset, parts, .. },
                Command::Write { file: next_file, offset: next, .. },
            ) => file == next_file && offset + bytes(parts) == *next,
            _ => false,
        }
    }

    fn join(&mut self, next: Command) {
        match (self, next) {
            (Command::Fetch { frames, .. }, Command::Fetch { frames: next, .. }) => {
                frames.extend(next);
            }
            (Command::Write { parts, .. }, Command::Write { parts: next, .. }) => {
                parts.extend(next);
            }
            (one, next) => panic!("{next:?} does not go on where {one:?} ends"),
        }
    }
}

impl Engine {
    /// Has a command executed: at once, or when the scheduler says.
    pub(crate) fn issue(&mut self, command: Command) {
        self.count_issued(&command);
        self.submit(command);
    }

    pub(crate) fn count_issued(&mut self, command: &Command) {
        let file = self.files.find(command.file()).expect("commands are for attached files");
        self.files[file].io_in_flight += 1;
    }

    pub(crate) fn submit(&mut self, command: Command) {
        let file = self.files.find(command.file()).expect("commands are for attached files");
        let (offset, pages, awaited) = match &command {
            Command::Fetch { offset, frames, urgency, .. } => {
                (*offset, frames.len(), *urgency != Urgency::Background)
            }
            Command::Write { offset, parts, .. } => {
                let pages = (offset + bytes(parts)).div_ceil(PAGE) - offset / PAGE;
                (*offset, pages as usize, self.files[file].is_awaited())
            }
            Command::Sync { .. } | Command::Reserve { .. } | Command::Map { .. } => {
                self.outputs.push_back(Output::Command(command));
                return;
            }
        };
        self.ask_for_layout(file);
        let place = self.layouts.place(file, offset / PAGE);
        let rank = if awaited { Rank::Sync } else { Rank::Async };
        if rank == Rank::Async {
            self.charge_arm(place, pages);
        }
        self.scheduler.submit(rank, command.io(), place, pages, command, self.clock);
    }

    /// Gives the device what it may have now.
    pub(crate) fn dispatch(&mut self) {
        while let Some(chosen) = self.scheduler.choose(self.depth(), self.clock) {
            self.take_along(chosen);
            self.dispatch_one(chosen);
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        let most = self.config.requests_in_flight_max as usize;
        let sync = if self.config.one_arm { most.min(SYNC_DEPTH_ARM) } else { most };
        let later = most.min(self.fetch_pace.depth() + self.destage_pace.depth());
        Depth { sync, later }
    }

    fn dispatch_one(&mut self, chosen: Chosen) {
        let issue = self.issue_now(self.clock);
        let request = self.scheduler.dispatch(chosen);
        let mut command = request.payload;
        if let (Rank::Sync, Command::Fetch { urgency, .. }) = (chosen.rank, &mut command)
            && *urgency == Urgency::Background
        {
            // Somebody came to wait for it.
            *urgency = Urgency::Waited;
        }
        let (leader, pages) = request.members[0];
        for &(io, _) in &request.members {
            if let Some(of_io) = self.issue_of(io) {
                *of_io = Issue { silent: io != leader, ..issue };
            }
        }
        if let Some(of_leader) = self.issue_of(leader) {
            of_leader.more_pages = request.pages as usize - pages;
        }
        self.stats.requests_joined += request.members.len() as u64 - 1;
        self.outputs.push_back(Output::Command(command));
    }

    pub(crate) fn issue_now(&self, now: Time) -> Issue {
        Issue { at: now, ahead: self.scheduler.under_way(), silent: false, more_pages: 0 }
    }

    /// Notes that a transfer ended; how it went, unless that tells nothing.
    pub(crate) fn transfer_ended(
        &mut self,
        issue: Issue,
        pages: usize,
        now: Time,
    ) -> Option<Ended> {
        let before = self.transfer_ended.max(issue.at);
        self.transfer_ended = now;
        let (took, service) = (now.since(issue.at), now.since(before));
        let pages = pages + issue.more_pages;
        (!issue.silent).then_some(Ended { pages, took, service, ahead: issue.ahead })
    }

    pub(crate) fn learn_destage(
        &mut self,
        issue: Issue,
        pages: usize,
        result: Result<(), ErrorKind>,
        now: Time,
    ) {
        let ended = self.transfer_ended(issue, pages, now);
        if let (Ok(()), Some(ended)) = (result, ended) {
            self.destage_pace.ended(ended);
            self.rest_after(ended.took, now);
        }
    }

    fn issue_of(&mut self, io: IoId) -> Option<&mut Issue> {
        match self.ios.get_mut(&io)? {
            Io::Fetch(fetch) => Some(&mut fetch.issue),
            Io::Destage { issue, .. } | Io::DestagePatches { issue, .. } => Some(issue),
            Io::Sync { .. } | Io::Reserve { .. } | Io::ReserveAhead { .. } | Io::Map { .. } => None,
        }
    }

    /// Sends home what is dirty and lies where the arm is about to pass on its way to what was
    /// chosen, near its end.
    fn take_along(&mut self, chosen: Chosen) {
        let useful = self.config.opportunistic && self.config.one_arm;
        if !useful || chosen.rank == Rank::Async || !self.device_is_paid(self.clock) {
            return;
        }
        let between = self.scheduler.opportunity(chosen);
        let place = chosen.place.0;
        let near = between.start.max(place.saturating_sub(ALONG_REACH))
            ..between.end.min(place.saturating_add(ALONG_REACH));
        if near.is_empty() || self.resident.pages().is_empty() {
            return;
        }
        let mut left = ALONG_MAX;
        for (file, pages) in self.layouts.pages(near) {
            let of_file = &self.files[file];
            if of_file.gate != Gate::Open || of_file.is_urgent() {
                continue;
            }
            let mut at = pages.start;
            while left > 0
                && self.destages_in_flight < self.config.destages_in_flight_max as usize
                && let Some(number) = self.resident.pages().next_of(file, at)
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
                if let Some(along) = self.scheduler.find(destaged.io) {
                    self.dispatch_one(along);
                }
            }
        }
    }

    /// Somebody waits for what of a file is on its way.
    pub(crate) fn hurry(&mut self, file: FileIx) {
        if self.scheduler.waiting(Rank::Async) > 0 {
            let id = self.files[file].id;
            self.scheduler.promote(|command| command.file() == id);
        }
    }

    /// Takes back what of a file waits for its turn: it has come to nothing.
    pub(crate) fn withdraw(&mut self, file: FileIx) {
        let id = self.files[file].id;
        for request in self.scheduler.withdraw(|command| command.file() == id) {
            let completion = match request.payload {
                Command::Fetch { frames, .. } => {
                    Completion::Fetched { frames, result: Err(ErrorKind::Io) }
                }
                _ => Completion::Written { result: Ok(()) },
            };
            for (io, completion) in split(request.members, completion) {
                self.withdrawn(io, completion);
            }
        }
        for command in self.withdraw_behind(id) {
            self.withdrawn(command.io(), Completion::Written { result: Ok(()) });
        }
    }

    fn withdrawn(&mut self, io: IoId, completion: Completion) {
        if let Some(issue) = self.issue_of(io) {
            issue.silent = true;
        }
        self.complete_one(io, completion, self.clock);
    }

    /// What a completion says of each of the commands that were joined.
    pub(crate) fn parts(&mut self, io: IoId, completion: Completion) -> Vec<(IoId, Completion)> {
        match self.scheduler.ended(io) {
            Some(members) if members.len() > 1 => split(members, completion),
            _ => vec![(io, completion)],
        }
    }

    /// Asks where a file is, if that is of use and not known.
    fn ask_for_layout(&mut self, file: FileIx) {
        let of_file = &self.files[file];
        let mapped = of_file.mapped;
        let useful = self.config.one_arm && of_file.home_size >= MAPPED_BYTES_MIN;
        let due = mapped.at.is_none_or(|at| mapped.stale && self.clock >= at + MAP_EVERY);
        if mapped.asked || !useful || !due || of_file.gate != Gate::Open || of_file.discarded {
            return;
        }
        self.files[file].mapped = Mapped { asked: true, at: Some(self.clock), stale: false };
        let id = self.files[file].id;
        let io = self.next_io(Io::Map { file });
        self.issue(Command::Map { io, file: id });
    }

    /// The back end said where a file is.
    pub(crate) fn mapped(&mut self, file: FileIx, extents: &[Extent]) {
        self.files[file].io_in_flight -= 1;
        self.files[file].mapped.asked = false;
        self.layouts.set(file, extents);
    }

    /// Whether what nobody waits for may go to the device: while somebody reads only once what went before
    /// is paid for.
    pub(crate) fn device_is_paid(&self, now: Time) -> bool {
        self.share.paid_at <= now || !self.shares_device(now)
    }

    /// When something that could go is paid for; `None` if that was at a tick already.
    pub(crate) fn share_tick(&self) -> Option<Time> {
        let waits = !self.resident.pages().is_empty()
            || !self.patched.pages().is_empty()
            || !self.urgent.is_empty();
        (waits && self.share.paid_at > self.ticked).then_some(self.share.paid_at)
    }

    /// An arm is shared with readers that wait. Those that read ahead find their way there: beside a writer
    /// in order, too, the arm is as well used by one as by the other. On other devices it is those whom
    /// writes in long transfers would take the channels from.
    fn shares_device(&self, now: Time) -> bool {
        let beside = match self.config.one_arm {
            true => self.readers_wait(now),
            false => self.share.ahead_at.is_some_and(|at| now.since(at) < AHEAD_RECENT),
        };
        beside && self.write_back.is_adaptive()
    }

    /// A reader's pages are fetched ahead of it.
    pub(crate) fn note_ahead(&mut self, now: Time) {
        self.share.ahead_at = Some(now);
    }

    /// A destage took so long.
    pub(crate) fn rest_after(&mut self, took: Duration, now: Time) {
        if !self.config.one_arm && self.shares_device(now) {
            self.share.paid_at = self.share.paid_at.max(now + took.min(TOOK_MAX) * REST / 100);
        }
    }

    /// What a stretch costs that is read and written whole is charged as any other; this is what it keeps
    /// others waiting beyond that.
    pub(crate) fn charge_window(&mut self, cost: Duration) {
        if self.shares_device(self.clock) {
            let cost = cost.min(TOOK_MAX);
            self.share.paid_at = self.share.paid_at.max(self.clock) + cost * (WINDOW_TURN - TURN);
        }
    }

    fn charge_arm(&mut self, place: Block, pages: usize) {
        if !self.config.one_arm || !self.shares_device(self.clock) {
            return;
        }
        // In the order of places, an access is about half of one at random.
        let access = match self.share.end == place {
            true => Duration::ZERO,
            false => self.fetch_pace.cost().unwrap_or(ACCESS_UNKNOWN).min(ACCESS_MAX) / 2,
        };
        let cost = access + self.fetch_pace.page().min(PAGE_MAX) * pages as u32;
        self.share.end = Block(place.0 + pages as u64);
        self.share.paid_at = self.share.paid_at.max(self.clock) + cost * TURN;
    }
}

/// What a completion of all says of each.
fn split(members: Members, completion: Completion) -> Vec<(IoId, Completion)> {
    let each = members.into_iter();
    match completion {
        Completion::Fetched { frames, result } => {
            let (mut frames, mut before) = (frames.into_iter(), 0);
            each.map(|(io, pages)| {
                let frames = frames.by_ref().take(pages).collect();
                let result = result.map(|read| read.saturating_sub(before).min(pages * PAGE_BYTES));
                before += pages * PAGE_BYTES;
                (io, Completion::Fetched { frames, result })
            })
            .collect()
        }
        Completion::Written { result } => {
            each.map(|(io, _)| (io, Completion::Written { result })).collect()
        }
        other => panic!("{other:?} ends no transfer"),
    }
}

fn bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.len)).sum()
}
