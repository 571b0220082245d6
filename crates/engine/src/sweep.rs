//! Sweeps: which dirty page goes home, or is fetched for that, next.
//!
//! Like an elevator, and one for pages that have to be fetched and one for pages that can be
//! written: each goes on where it ended, in ascending order of file and page, and begins anew at
//! the first. A disk then passes over everything once instead of crossing itself for each page; and
//! nothing that is due is passed over for more than one sweep. What a sync waits for goes first,
//! in the same order within its file.
//!
//! A sweep's fetch takes in several patched pages and reads through what lies between them, where
//! that costs less than another request (`pace`). What it reads in between is kept while frames
//! are plenty, and else let go at once.
//!
//! Everything here is in nobody's way: only so much is under way that the device is kept busy, and
//! next to nothing while somebody waits for a fetch.

use std::time::Duration;

use crate::PAGE_BYTES;
use crate::command::{IoId, Urgency};
use crate::config::FetchPolicy;
use crate::dirty::{Class, FIRST, PageSet, Place};
use crate::engine::Engine;
use crate::fetch::FetchFor;
use crate::file::{File, Gate};
use crate::page::{FileIx, Listed, PageIo, PageIx};
use crate::time::Time;
use crate::write_back::Need;

const PAGE: u64 = PAGE_BYTES as u64;

/// Files passed over in search of one that is not held still.
const FILES_PASSED_MAX: usize = 256;

/// Whoever waited for a fetch this recently is likely to wait for another one soon.
const QUIET_MAX: Duration = Duration::from_millis(4);

/// Most pages of a background fetch while somebody waits for another one.
const PAGES_MAX_BEHIND_READERS: u64 = 64;

/// Pages that a sweep's fetch should be able to make dirty frames of, on a device with an arm, which has
/// to travel for each, and on others.
const ROOM_MIN_ARM: usize = 256;
const ROOM_MIN: usize = 64;

/// Every so many fetches of a sweep one reads no gap, to see what it then costs.
const PROBE_EVERY: u64 = 32;

/// Clean pages between two dirty ones that are written with them on a slow device, at most. A constant,
/// because a drive's cache hides what a write costs the arm.
const GAP_WRITTEN_MAX: u64 = 16;

/// Where a fetch takes less than this, patched pages are fetched early: it costs nobody much.
const QUICK_FETCH: Duration = Duration::from_micros(300);

/// Background fetches at once while somebody waits for another one, where fetches are quick: a
/// device without an arm executes several side by side.
const QUICK_BEHIND_READERS: usize = 4;

/// How an attempt to start something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Started,
    /// No frame is free, or too many are dirty.
    NoRoom,
}

/// A run on its way home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destaged {
    pub(crate) io: IoId,
    /// Its last page.
    pub(crate) last: u64,
    pub(crate) pages: u64,
}

/// What a page is brought home for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// It is its turn.
    Sweep,
    /// A sync of its file, which a program waits for or only the log.
    Sync { awaited: bool },
}

impl Engine {
    /// Starts as much as is wanted and allowed.
    pub(crate) fn pump(&mut self, now: Time) {
        self.start_spill(now);
        self.return_windows(now);
        self.pump_urgent(now);
        self.sweep_patched(now);
        self.sweep_resident(now);
    }

    /// Starts what syncs wait for, all of it together.
    fn pump_urgent(&mut self, now: Time) {
        let destages_max = self.config.destages_in_flight_max as usize;
        while self.destages_in_flight < destages_max && self.sweep_fetches < 4 * destages_max {
            let Some(ix) = self.next_urgent() else { return };
            let awaited = self.files[self.pages[ix].file].is_awaited();
            if !awaited && !self.sweeps_may_start(now) {
                return;
            }
            let purpose = Purpose::Sync { awaited };
            if self.start(ix, purpose, now) == Start::NoRoom && !self.make_room_for(ix, now) {
                return;
            }
        }
    }

    fn sweeps_may_start(&self, now: Time) -> bool {
        // One arm had better read the log in one go.
        let log_first = self.config.one_arm && self.spill.awaits_window();
        !log_first
            && self.device_is_paid(now)
            && self.sweep_fetches < self.fetches_allowed(now)
            && self.destages_in_flight < self.destages_allowed(now)
    }

    /// Sends patched pages on their way home: most have to be fetched first.
    pub(crate) fn sweep_patched(&mut self, now: Time) {
        while self.sweeps_may_start(now) {
            let Some(ix) = self.next_patched(now) else { return };
            if self.start(ix, Purpose::Sweep, now) == Start::NoRoom && !self.make_room_for(ix, now)
            {
                return;
            }
        }
    }

    /// Writes resident pages home.
    fn sweep_resident(&mut self, now: Time) {
        while self.destages_in_flight < self.destages_allowed(now) && self.device_is_paid(now) {
            let Some(ix) = self.next_resident(now) else { return };
            self.start(ix, Purpose::Sweep, now);
        }
    }

    /// The next page that a sync needs home; what a program waits for goes before what only the log
    /// does.
    fn next_urgent(&mut self) -> Option<PageIx> {
        self.next_urgent_of(true).or_else(|| self.next_urgent_of(false))
    }

    fn next_urgent_of(&mut self, awaited: bool) -> Option<PageIx> {
        let mut at = FileIx(0);
        while let Some(&file) = self.urgent.range(at..).next() {
            at = file.next();
            let of_file = &self.files[file];
            if of_file.is_urgent() && of_file.is_awaited() != awaited {
                continue;
            }
            if of_file.gate != Gate::Frozen && of_file.is_urgent() {
                let next = |pages: &PageSet, at| pages.next_of(file, at).or(pages.next_of(file, 0));
                let patched = next(&self.spill.returned, of_file.synced_to[0]).or_else(|| {
                    next(self.patched.pages(), of_file.synced_to[0])
                        .filter(|&number| self.goes_with_windows(file, number))
                });
                let resident = next(self.resident.pages(), of_file.synced_to[1]);
                // In turns: writers may go on to add to either, and what fails comes back.
                let found = match of_file.resident_next {
                    true => resident.or(patched),
                    false => patched.or(resident),
                };
                if let Some(number) = found {
                    return Some(self.listed(file, number));
                }
            }
            // It comes back when a page of it becomes ready, or its gate opens.
            if of_file.spilled_pages == 0 || !of_file.is_urgent() {
                self.urgent.remove(&file);
            }
        }
        None
    }

    /// Whether a sync's sweep may go on with a patched page, or is to wait for the windows of spilled
    /// pages, which go before it: the arm then goes over all of them once.
    fn goes_with_windows(&self, file: FileIx, number: u64) -> bool {
        let of_file = &self.files[file];
        let (swept, windows) = (of_file.synced_to[0], of_file.returned_to);
        // Windows that have begun anew leave the rest of the file to the sweep.
        let ahead = number < windows || (windows < swept && swept <= number);
        of_file.spilled_pages == 0 || ahead
    }

    fn next_patched(&mut self, now: Time) -> Option<PageIx> {
        let place = if let Some(place) = self.next_returned() {
            place
        } else if self.patches_press()
            || self.is_due(&self.patched, now)
            || self.write_back_takes_patches()
        {
            self.next_swept(&self.patched)?
        } else if self.config.fetch_policy == FetchPolicy::Auto && self.readers_first(now) {
            // A courtesy to readers is none while it takes the device from them.
            return None;
        } else {
            self.next_wanted()?
        };
        Some(self.listed(place.0, place.1))
    }

    fn next_resident(&mut self, now: Time) -> Option<PageIx> {
        if self.window_under_way {
            // It is what goes next.
            return None;
        }
        let pressed = self.write_back_is_on() && !self.frames_yield();
        if !pressed && !self.is_due(&self.resident, now) {
            return None;
        }
        let (file, number) = self.next_swept(&self.resident)?;
        Some(self.listed(file, number))
    }

    /// The next page of a class in the order of its sweep, of files that are not held still, nor being
    /// synced: there a sweep is under way that need not be crossed.
    fn next_swept(&self, class: &Class) -> Option<Place> {
        self.next_of_class(class, |file| file.gate == Gate::Open && !file.is_urgent())
    }

    /// The same of all files that are not held still.
    fn next_open(&self, class: &Class) -> Option<Place> {
        self.next_of_class(class, |file| file.gate == Gate::Open)
    }

    fn next_of_class(&self, class: &Class, wanted: impl Fn(&File) -> bool) -> Option<Place> {
        self.next_of(class.pages(), class.swept_to, wanted)
    }

    fn next_of(
        &self,
        pages: &PageSet,
        mut at: Place,
        wanted: impl Fn(&File) -> bool,
    ) -> Option<Place> {
        if pages.is_empty() {
            return None;
        }
        let mut turned = false;
        for _ in 0..FILES_PASSED_MAX {
            match pages.next(at) {
                Some((file, number)) if wanted(&self.files[file]) => {
                    return Some((file, number));
                }
                Some((file, _)) => at = (file.next(), 0),
                None if turned => return None,
                None => {
                    turned = true;
                    at = FIRST;
                }
            }
        }
        None
    }

    /// The next page whose patches came back from the log for the sweep.
    fn next_returned(&self) -> Option<Place> {
        let swept = |file: &File| file.gate == Gate::Open && !file.is_urgent();
        self.next_of(&self.spill.returned, self.patched.swept_to, swept)
    }

    /// The next patched page of the files whose patched pages are to be fetched soon.
    fn next_wanted(&mut self) -> Option<Place> {
        let (at, number) = self.patched.swept_to;
        let mut held = 0;
        loop {
            let mut files = self.wanted.range(at..).chain(self.wanted.range(..at));
            let &file = files.nth(held)?;
            let from = if file == at { number } else { 0 };
            let pages = self.patched.pages();
            match pages.next_of(file, from).or(pages.next_of(file, 0)) {
                Some(number) if self.files[file].gate == Gate::Open => return Some((file, number)),
                Some(_) => held += 1,
                None => {
                    self.wanted.remove(&file);
                }
            }
            if held > FILES_PASSED_MAX {
                return None;
            }
        }
    }

    fn listed(&self, file: FileIx, number: u64) -> PageIx {
        self.pages.find(file, number).expect("a dirty page is in the table")
    }

    fn is_due(&self, class: &Class, now: Time) -> bool {
        self.expires(class).is_some_and(|expires| expires <= now)
    }

    /// When the oldest page of a class is to go home.
    pub(crate) fn expires(&self, class: &Class) -> Option<Time> {
        self.expires_ms(class.oldest_ms())
    }

    /// When what became dirty then, milliseconds, is to go home.
    pub(crate) fn expires_ms(&self, oldest_ms: Option<u64>) -> Option<Time> {
        oldest_ms.map(|oldest| match oldest {
            crate::page::OVERDUE => Time::ZERO,
            oldest => Time::from_millis(oldest) + self.config.dirty_expire,
        })
    }

    /// Whether patch memory should be brought down: early, lest a writer has to wait for it. The log
    /// does that sooner than a slow device.
    pub(crate) fn patches_press(&self) -> bool {
        let quick = self.fetches_are_quick();
        let share = if quick { 4 } else { 2 };
        let high = self.census.patch_bytes > self.config.patch_bytes_max as usize / share;
        (high || !self.starved.is_empty()) && (quick || !self.can_spill())
    }

    /// While patch memory is short, a slow device had better fetch than write, as long as enough
    /// frames can be dirty.
    fn frames_yield(&self) -> bool {
        let slow = self.fetches_are_slow();
        slow && !self.patched.pages().is_empty()
            && self.patches_press()
            && self.census.unclean_frames < self.pressing_frames()
    }

    /// Somebody waits for a fetch, or did a moment ago; or for the log, with which
    /// a disk with one arm may be busy.
    fn readers_first(&self, now: Time) -> bool {
        let log = self.log_is_awaited() && !self.fetches_are_quick();
        log || self.readers_wait(now)
    }

    /// Somebody waits for a fetch, or did a moment ago.
    pub(crate) fn readers_wait(&self, now: Time) -> bool {
        let quiet = self.fetch_pace.latency().map_or(QUIET_MAX, |alone| QUIET_MAX.min(4 * alone));
        self.waited_fetches > 0 || now.since(self.waited_ended) < quiet
    }

    /// An arm has to.
    pub(crate) fn fetches_are_slow(&self) -> bool {
        self.config.one_arm
            || self.fetch_pace.latency().is_some_and(|latency| latency >= QUICK_FETCH)
    }

    /// No arm has to travel for a fetch.
    fn fetches_are_quick(&self) -> bool {
        !self.config.one_arm
            && self.fetch_pace.latency().is_some_and(|latency| latency < QUICK_FETCH)
    }

    fn fetches_allowed(&self, now: Time) -> usize {
        let depth = self.fetch_pace.depth();
        let behind_readers = if self.fetches_are_quick() { QUICK_BEHIND_READERS } else { 1 };
        if self.readers_first(now) { depth.min(behind_readers) } else { depth }
    }

    fn destages_allowed(&self, now: Time) -> usize {
        let short = self.census.unclean_frames >= self.pressing_frames();
        if self.readers_first(now) && !short { 1 } else { self.destage_pace.depth() }
    }

    /// Starts to bring a listed page home, with others around it.
    fn start(&mut self, ix: PageIx, purpose: Purpose, now: Time) -> Start {
        let urgency = match purpose {
            Purpose::Sync { awaited: true } => Urgency::Waited,
            _ => Urgency::Background,
        };
        let (file, number) = (self.pages[ix].file, self.pages[ix].number);
        let resident = self.pages[ix].frame.is_some();
        let pressed = self.write_back_is_on();
        if resident && purpose == Purpose::Sweep && self.fetch_window(file, number, now) {
            return Start::Started;
        }
        let last = if resident {
            let reason = match purpose {
                Purpose::Sync { .. } => &mut self.stats.destages_synced,
                Purpose::Sweep if pressed => &mut self.stats.destages_pressed,
                Purpose::Sweep => &mut self.stats.destages_aged,
            };
            *reason += 1;
            // A page held back for lack of room in the log is retried when there is room.
            Some(self.destage_around(file, number, now).map_or(number, |destaged| destaged.last))
        } else if self.patches_go_home_as_they_are(ix) && !self.rather_fetched(ix, urgency) {
            self.destage_patches(ix, now).then_some(number)
        } else {
            self.fetch_patched(file, number, urgency, now)
        };
        let Some(last) = last else { return Start::NoRoom };
        if matches!(purpose, Purpose::Sync { .. }) {
            let of_file = &mut self.files[file];
            of_file.synced_to[usize::from(resident)] = last + 1;
            of_file.resident_next = !resident;
        } else if resident {
            self.resident.swept_to = (file, last + 1);
        } else {
            self.patched.swept_to = (file, last + 1);
        }
        Start::Started
    }

    /// Patches that could go home by themselves take a write each. Where patch memory is short, a
    /// fetch may free it sooner: it takes in many at once where it reads through gaps, and on a
    /// drive that writes more slowly than it reads even one costs less than the write it spares.
    fn rather_fetched(&self, ix: PageIx, urgency: Urgency) -> bool {
        let page = &self.pages[ix];
        if urgency != Urgency::Background || !self.files[page.file].readable {
            return false;
        }
        if self.config.one_arm && (page.returned || self.has_dirty_neighbour(ix)) {
            // Read through, what lies close together is written in long runs.
            return true;
        }
        if !(self.patches_press() || page.returned) {
            return false;
        }
        let sooner = match (self.fetch_pace.cost(), self.destage_pace.cost()) {
            (Some(fetch), Some(destage)) => fetch * 2 < destage,
            // To see what it costs.
            (None, Some(_)) => true,
            (_, None) => false,
        };
        sooner || self.fetch_pace.gap_pages() > 1
    }

    /// Whether another page so near that the gap is written through is to go home, too.
    fn has_dirty_neighbour(&self, ix: PageIx) -> bool {
        let (file, number) = (self.pages[ix].file, self.pages[ix].number);
        let near = |pages: &PageSet| {
            let next =
                |at| pages.next_of(file, at).filter(|&next| next <= number + GAP_WRITTEN_MAX);
            let before = next(number.saturating_sub(GAP_WRITTEN_MAX)).is_some_and(|n| n < number);
            before || next(number + 1).is_some()
        };
        near(self.patched.pages()) || near(&self.spill.returned) || near(self.resident.pages())
    }

    /// The dirty resident pages around `number`, ascending, at most one transfer; on a slow device
    /// with clean ones between them, where writing these again costs less than another request.
    fn dirty_run(&self, file: FileIx, number: u64) -> Vec<u64> {
        let is_dirty = |number: u64| {
            let found = self.pages.find(file, number);
            found.is_some_and(|ix| self.pages[ix].listed == Listed::Resident)
        };
        let is_clean = |number: u64| {
            let found = self.pages.find(file, number);
            found.is_some_and(|ix| self.may_write_clean(ix))
        };
        let gap = if self.writes_gaps() { GAP_WRITTEN_MAX } else { 0 };
        let max = u64::from(self.config.transfer_pages_max);
        let mut first = number;
        while first > 0 && number - first + 1 < max && is_dirty(first - 1) {
            first -= 1;
        }
        let mut last = number;
        loop {
            let reach = (gap + 1).min(max - (last - first + 1));
            let next = (1..=reach).map(|step| last + step).find(|&number| !is_clean(number));
            match next {
                Some(next) if is_dirty(next) => last = next,
                _ => break,
            }
        }
        (first..=last).collect()
    }

    /// Writes a dirty resident page home, with its dirty neighbours; `None` if the log has no room for the
    /// records that must supersede older ones.
    pub(crate) fn destage_around(
        &mut self,
        file: FileIx,
        number: u64,
        now: Time,
    ) -> Option<Destaged> {
        let mut run = self.dirty_run(file, number);
        let stops = run.iter().position(|&number| {
            let ix = self.listed(file, number);
            !self.log_superseding(ix, now)
        });
        run.truncate(stops.unwrap_or(run.len()));
        // The last page of a run must be dirty itself.
        while run.last().is_some_and(|&number| {
            let ix = self.listed(file, number);
            self.pages[ix].dirty_seq == 0
        }) {
            run.pop();
        }
        self.dirty_between(file, &run, now);
        let last = *run.last()?;
        let io = self.destage_frames(file, &run, now);
        Some(Destaged { io, last, pages: run.len() as u64 })
    }

    /// Reads a stretch of the file from a dirty page on, if so much is dirty in it that reading it and
    /// writing it whole takes an arm less time than to go to each run of dirty pages. What comes is made
    /// dirty, and is then a single run.
    fn fetch_window(&mut self, file: FileIx, number: u64, now: Time) -> bool {
        let useful = self.config.opportunistic && self.config.one_arm;
        let of_file = &self.files[file];
        let may = !self.window_under_way && of_file.readable && of_file.gate == Gate::Open;
        // After each a destage follows, whatever became of it.
        let again = self.window_read.take() == Some((file, number));
        if !useful || !may || again || self.fetches_failed > 0 {
            return false;
        }
        let Some((last, cost)) = self.window(file, number) else { return false };
        let run: Vec<u64> = (number..=last).collect();
        if self.convertible() < run.len() || !self.ensure_frames(run.len(), Need::Write) {
            return false;
        }
        let is_patched = |number: &&u64| {
            let found = self.pages.find(file, **number);
            found.is_some_and(|ix| self.pages[ix].listed == Listed::Patched)
        };
        let patched = run.iter().filter(is_patched).count();
        self.issue_fetch(file, &run, Urgency::Background, FetchFor::Window { patched }, now);
        self.window_under_way = true;
        self.charge_window(cost);
        self.stats.windows += 1;
        true
    }

    /// The last page of the stretch from `number` on that is to be read and written whole, if one is, and
    /// what that costs.
    fn window(&self, file: FileIx, number: u64) -> Option<(u64, Duration)> {
        let pages_max = u64::from(self.config.transfer_pages_max);
        // Up to what cannot be read now, or is not to be written.
        let stays = |number: &u64| match self.pages.find(file, *number) {
            None => !self.is_spilled(file, *number) && self.keeps_its_place(file, *number),
            Some(ix) => {
                let page = &self.pages[ix];
                page.io == PageIo::None
                    && !page.spilled
                    && !page.retrying
                    && (page.dirty_seq != 0 || self.keeps_its_place(file, *number))
            }
        };
        let end = (number..number + pages_max).take_while(stays).last()?;
        let (mut runs, mut last, mut at) = (0u32, number, number);
        while let Some(next) = self.resident.pages().next_of(file, at).filter(|&next| next <= end) {
            runs += u32::from(runs == 0 || next > last + 1);
            (last, at) = (next, next + 1);
        }
        let access = self.fetch_pace.cost()? / 2;
        let whole = (access + self.fetch_pace.page() * (last - number + 1) as u32) * 2;
        (access * runs > whole).then_some((last, whole))
    }

    /// What the sweep's window was read for can go.
    pub(crate) fn window_fetched(&mut self, file: FileIx, first: u64) {
        self.window_under_way = false;
        self.window_read = Some((file, first));
        self.resident.swept_to = (file, first);
    }

    /// Whether clean pages between dirty ones are written with them.
    pub(crate) fn writes_gaps(&self) -> bool {
        self.fetches_are_slow()
    }

    /// Whether a page is clean and here, and to write it changes nothing at home: a hole stays one, and
    /// the file as long as it is.
    pub(crate) fn may_write_clean(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        page.frame.is_some()
            && page.io == PageIo::None
            && page.dirty_seq == 0
            && !self.files[page.file].discarded
            && self.keeps_its_place(page.file, page.number)
    }

    /// The same of a page that is not here, should it be read.
    fn keeps_its_place(&self, file: FileIx, number: u64) -> bool {
        let of_file = &self.files[file];
        let (start, end) = (number * PAGE, (number + 1) * PAGE);
        end <= of_file.home_size && of_file.first_free(start, end).is_none()
    }

    /// Makes the clean pages of a run dirty, to be written with the others.
    fn dirty_between(&mut self, file: FileIx, run: &[u64], now: Time) {
        for &number in run {
            let ix = self.pages.find(file, number).expect("a run's pages are resident");
            if self.pages[ix].dirty_seq == 0 {
                self.dirty_clean(ix, now);
            }
        }
    }

    /// Makes a clean page dirty, to be written with those around it.
    pub(crate) fn dirty_clean(&mut self, ix: PageIx, now: Time) {
        let seq = self.next_seq();
        self.update(ix, |page| {
            page.dirtied(seq, now);
            page.set_between(true);
        });
        self.stats.gap_pages_written += 1;
    }

    /// Fetches a patched page and those after it that one request reaches. The last page read;
    /// `None` if there is no room for any.
    fn fetch_patched(
        &mut self,
        file: FileIx,
        number: u64,
        urgency: Urgency,
        now: Time,
    ) -> Option<u64> {
        let room = match urgency {
            Urgency::Waited => self.convertible(),
            _ => self.convertible().min(self.converted_max().saturating_sub(self.unclean_soon())),
        };
        let frames = self.frames_available();
        // Not page by page as room is made for it.
        let worthwhile = match self.config.one_arm {
            true => ROOM_MIN_ARM.min(self.hard_frames / 4),
            false => ROOM_MIN.min(self.hard_frames / 8),
        };
        let later = urgency == Urgency::Background
            && room < worthwhile
            && !self.resident.pages().is_empty();
        if room == 0 || frames == 0 || later {
            return None;
        }
        self.sweeps += 1;
        let mut pages_max = u64::from(self.config.transfer_pages_max).min(frames as u64);
        let mut gap = self.fetch_pace.gap_pages();
        if self.config.one_arm {
            gap = gap.max(GAP_WRITTEN_MAX);
        }
        if self.sweeps.is_multiple_of(PROBE_EVERY) || 2 * pages_max > frames as u64 {
            gap = 0;
        } else if urgency == Urgency::Background && self.readers_first(now) {
            pages_max = pages_max.min(PAGES_MAX_BEHIND_READERS);
        }
        if self.writes_gaps() {
            pages_max = pages_max.min(room as u64);
        }
        let (last, wanted) = self.reach(file, number, gap, pages_max, room, urgency);
        let run: Vec<u64> = (number..=last).collect();
        if !self.ensure_frames(run.len(), Need::Write) {
            return None;
        }
        self.issue_fetch(file, &run, urgency, FetchFor::Sweep { patched: wanted }, now);
        Some(last)
    }

    /// How far a fetch from the patched page `number` on goes, and how many patched pages it then
    /// takes in: at most `room`, not more than `gap` pages apart, nothing in transfer among them.
    fn reach(
        &self,
        file: FileIx,
        number: u64,
        gap: u64,
        pages_max: u64,
        room: usize,
        urgency: Urgency,
    ) -> (u64, usize) {
        let mut last = number;
        let mut wanted = 1;
        while wanted < room {
            let patched = self.patched.pages().next_of(file, last + 1);
            let returned = self.spill.returned.next_of(file, last + 1);
            let Some(next) = patched.into_iter().chain(returned).min() else { break };
            if next - number >= pages_max || next - last - 1 > gap {
                break;
            }
            let ix = self.listed(file, next);
            if self.patches_go_home_as_they_are(ix) && !self.rather_fetched(ix, urgency) {
                break;
            }
            let busy = |number| {
                let found = self.pages.find(file, number);
                found.is_some_and(|ix| self.pages[ix].io != PageIo::None)
            };
            if (last + 1..next).any(busy) {
                break;
            }
            last = next;
            wanted += 1;
        }
        (last, wanted)
    }

    /// How many patched pages may be fetched to go home, or because they were written: each
    /// becomes a dirty frame. Some frames are always left for readers.
    pub(crate) fn convertible(&self) -> usize {
        let most = self.frames_bound() - self.frames_max / 8;
        most.saturating_sub(self.census.unclean_frames + self.frames_in_flight)
    }

    /// Dirty frames once what is being fetched for going home has come.
    pub(crate) fn unclean_soon(&self) -> usize {
        self.census.unclean_frames + self.converting
    }

    /// Deals with a patched page that cannot be fetched for want of frames: something that has a
    /// frame goes home instead, and if all of that has failed, so has this page. False if there is
    /// nothing to do but wait for what is under way.
    fn make_room_for(&mut self, ix: PageIx, now: Time) -> bool {
        let file = self.pages[ix].file;
        // In the sweep's order; of this page's own file also while that is to be held still.
        let of_file = || self.resident.pages().next_of(file, 0).map(|number| (file, number));
        if let Some((file, number)) = self.next_open(&self.resident).or_else(of_file) {
            let resident = self.listed(file, number);
            return self.start(resident, Purpose::Sweep, now) == Start::Started;
        }
        let under_way = self.destages_in_flight + self.fetches_in_flight > 0;
        if under_way || self.failed_in_a_row == 0 {
            return false;
        }
        // As if the fetch had been tried: that takes the page off its lists.
        self.update(ix, |page| page.io = PageIo::Fetch);
        self.transfer_failed(ix, self.last_failure, now);
        true
    }
}
