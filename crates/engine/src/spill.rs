//! Spill: patches that leave memory for the redo log, and come back when they are needed.
//!
//! When little patch memory is left, patches are appended to the log in the order of their pages, a
//! group at a time; once the group is durable their memory is free, and only where they are is kept
//! (`spilled`). So a writer of many small pieces waits for nothing but the log's bandwidth, until
//! the log is full.
//!
//! A page with spilled patches has no frame and goes nowhere: what a fetch or a destage needs of it is
//! brought back first, and is then a patch like any other; a fetch that only reads through the page
//! leaves it as it is. A reader's page is brought back
//! by itself. For sweeps and syncs a *window* of pages in ascending order is, as many as there is
//! patch memory for: each spill lies in the log in the order of its pages, so that a window is one
//! piece of each spill, read in one pass over the log.
//!
//! Invariants:
//! - one spill is under way at a time; a page whose patches changed since it was appended stays;
//! - what is in the index is durable in the log, and its file's records are not let go;
//! - what is spilled lies before the end of the file at home: past it there is nothing to patch;
//! - `over` holds the dirty, idle pages with patches in memory and older ones in the log, `returned`
//!   those whose patches are back;
//! - a page is in `reading` exactly while a read for it is under way whose outcome counts.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use weir_log::{BLOCK_BYTES, Block, Lsn, RECORD_OVERHEAD_BYTES, Record, Writer};

use crate::PAGE_BYTES;
use crate::command::{IoId, LogCommand, Output};
use crate::config::FetchPolicy;
use crate::dirty::{FIRST, PageSet, Place};
use crate::engine::{Engine, FRAME_BYTES};
use crate::error::ErrorKind;
use crate::file::Gate;
use crate::needs::Segment;
use crate::page::{FileIx, Page, PageIo, PageIx};
use crate::patch::PatchSet;
use crate::resident::Resident;
use crate::spilled::{Extent, Extents, Spilled, SpilledPage};
use crate::time::Time;
use crate::write_back::Need;

const PAGE: u64 = PAGE_BYTES as u64;

/// Bytes of one spill: enough that the log is written at its bandwidth, little for a sync that waits
/// behind it.
const SPILL_BYTES_MAX: usize = 1 << 20;

/// Patches spill when less than this share of what writers may take is left. The more there is of them
/// in a spill, the fewer pieces a window is in.
const SPILL_SHARE: usize = 4;

/// The log's share that spills leave to syncs.
const SYNCS_SHARE: u64 = 8;

/// Pages looked at for one spill, or one window.
const LOOKED_AT_MAX: usize = 8192;

/// After a spill that found nothing to take, none is tried for this long.
const REST: Duration = Duration::from_millis(10);

/// Pages ahead of the sweep through a window, few of which came back, that had better not leave before it.
const NEXT_SWEPT_PAGES: u64 = 2048;

/// Patch memory a window may always take if nothing else is under way that frees some.
const WINDOW_BYTES_MIN: usize = 64 << 10;

/// Share of patch memory that is kept for patches on their way back.
pub(crate) const RETURN_SHARE: usize = 2;

/// Share of the memory for frames that the index may take.
const INDEX_SHARE: usize = 4;

/// What is spilled, leaves, or comes back.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) index: Spilled,
    pub(crate) over: PageSet,
    /// Those whose patches came back and can go home.
    pub(crate) returned: PageSet,
    /// Where the next spill goes on.
    next: Place,
    /// The number of the last page that was appended.
    last: u32,
    /// Pages that may leave when the log is durable up to where they were appended, in its order.
    leaving: VecDeque<Leaving>,
    /// The spill under way ends here.
    spill_end: Option<Lsn>,
    rest_until: Time,
    reads: HashMap<IoId, Return>,
    reading: HashMap<Place, IoId>,
    /// Patch memory that reads under way will take at most.
    returning_bytes: usize,
    /// Windows being read: one at a time, since two would be two passes over the log.
    windows: usize,
    /// The last one.
    window: Option<Window>,
    /// Where the sweep that brings back goes on.
    swept_to: Place,
    /// Reads of the log that failed since one succeeded.
    failed_in_a_row: usize,
    /// No window is read before.
    retry_at: Time,
}

/// A page whose patches were appended to the log.
#[derive(Debug)]
struct Leaving {
    place: Place,
    extents: Extents,
    /// The page's `spilling`, if its patches are still those.
    number: u32,
    /// The log is to be durable up to here.
    end: Lsn,
}

/// Pages of a file that were brought back together, and those between them.
#[derive(Debug)]
struct Window {
    file: FileIx,
    first: u64,
    last: u64,
    /// A good part of these pages came back.
    is_dense: bool,
}

/// A read of the log under way.
#[derive(Debug)]
struct Return {
    file: FileIx,
    numbers: Vec<u64>,
    places: Vec<u64>,
    bytes: usize,
    window: bool,
}

impl Spill {
    pub(crate) fn new(dirty_expire: Duration) -> Spill {
        Spill {
            index: Spilled::new(dirty_expire),
            over: PageSet::default(),
            returned: PageSet::default(),
            next: FIRST,
            last: 0,
            leaving: VecDeque::new(),
            spill_end: None,
            rest_until: Time::ZERO,
            reads: HashMap::new(),
            reading: HashMap::new(),
            returning_bytes: 0,
            windows: 0,
            window: None,
            swept_to: FIRST,
            failed_in_a_row: 0,
            retry_at: Time::ZERO,
        }
    }

    /// A spill is on its way to the log.
    pub(crate) fn is_under_way(&self) -> bool {
        self.spill_end.is_some()
    }

    /// A window is on its way back: its reads need the log's disk, and then there is more to sweep.
    pub(crate) fn awaits_window(&self) -> bool {
        self.windows > 0
    }

    /// Reads of the log are under way.
    pub(crate) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    /// The log cannot be read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.failed_in_a_row > 0 && self.reads.is_empty()
    }

    /// When a window that failed is tried again.
    pub(crate) fn retry_tick(&self) -> Option<Time> {
        (self.failed_in_a_row > 0 && !self.index.is_empty()).then_some(self.retry_at)
    }
}

/// Out.
impl Engine {
    /// Whether patches can leave for the log: then nobody need be in a hurry to fetch their pages.
    pub(crate) fn can_spill(&self) -> bool {
        let Some(log) = self.log.as_ref().filter(|log| log.is_usable()) else { return false };
        let share = log.writer.capacity_bytes() / SYNCS_SHARE;
        self.config.fetch_policy != FetchPolicy::Blocking
            && log.writer.has_space(share + spill_bytes(&log.writer) as u64)
            && self.spill.index.bytes() <= self.frames_max / INDEX_SHARE * FRAME_BYTES
    }

    /// Sends patches to the log if little of their memory is left.
    pub(crate) fn start_spill(&mut self, now: Time) {
        let wanted = self.patch_memory_left() < self.patch_memory_for_writers() / SPILL_SHARE;
        if !wanted || self.spill.is_under_way() || now < self.spill.rest_until || !self.can_spill()
        {
            return;
        }
        let mut left = spill_bytes(&self.log_mut().writer);
        let from = self.spill.next;
        let (mut at, mut turned, mut any) = (from, false, false);
        for _ in 0..LOOKED_AT_MAX {
            let next = match (self.patched.pages().next(at), self.spill.over.next(at)) {
                (Some(patched), Some(over)) => Some(patched.min(over)),
                (patched, over) => patched.or(over),
            };
            let Some(place) = next.filter(|&place| !turned || place < from) else {
                if turned {
                    break;
                }
                (at, turned) = (FIRST, true);
                continue;
            };
            let (file, number) = place;
            if !self.may_log(file) || self.files[file].gate != Gate::Open {
                at = (file.next(), 0);
                continue;
            }
            let ix = self.pages.find(file, number).expect("a dirty page is in the table");
            if self.may_leave(ix, place) {
                let bytes = self.spill_cost(ix);
                if bytes > left || !self.log_mut().writer.has_room(bytes) {
                    break;
                }
                left -= bytes;
                self.append_patches(ix);
                any = true;
            }
            at = (file, number + 1);
        }
        self.spill.next = at;
        if any {
            self.spill.spill_end = Some(self.log_mut().writer.position());
            self.commit_group();
        } else {
            self.spill.rest_until = now + REST;
        }
    }

    fn may_leave(&self, ix: PageIx, place: Place) -> bool {
        let page = &self.pages[ix];
        !page.awaited
            && page.pins == 0
            && !page.returned
            && !self.spill.reading.contains_key(&place)
            && !self.is_in_window(place)
    }

    /// Whether a sweep is about to take the page home, with those around it that came back: were it to
    /// leave now, it would part them.
    fn is_in_window(&self, (file, number): Place) -> bool {
        let Some(window) = &self.spill.window else { return false };
        let Some(next) = self.spill.returned.next_of(file, window.first) else { return false };
        let ahead = if window.is_dense { u64::MAX } else { next + NEXT_SWEPT_PAGES };
        file == window.file && (next..=window.last.min(ahead)).contains(&number)
    }

    /// Bytes of the log that a page's patches take at most.
    fn spill_cost(&self, ix: PageIx) -> usize {
        let page = &self.pages[ix];
        let name = RECORD_OVERHEAD_BYTES + self.files[page.file].identity.len() + 8;
        let records = page.patches.iter().map(|(_, bytes)| RECORD_OVERHEAD_BYTES + bytes.len() + 8);
        name + records.sum::<usize>()
    }

    fn append_patches(&mut self, ix: PageIx) {
        let page = &self.pages[ix];
        let (file, number) = (page.file, page.number);
        let log = self.log.as_mut().expect("there is a log");
        let mut extents = Extents::new();
        for (run, data) in page.patches.iter() {
            let offset = number * PAGE + u64::from(run.start);
            let record = Record::Write { file: self.files[file].id.0, offset, data };
            let lsn = log.append(&mut self.files[file], &record);
            extents.push(Extent::of_record(lsn, run));
            self.stats.log_records += 1;
            self.stats.log_bytes += data.len() as u64;
        }
        self.page_logged(ix, &extents);
        self.note_leaving(ix, extents);
    }

    fn note_leaving(&mut self, ix: PageIx, extents: Extents) {
        let number = self.spill.last.wrapping_add(1).max(1);
        self.spill.last = number;
        let page = &mut self.pages[ix];
        page.spilling = number;
        let place = (page.file, page.number);
        let end = self.log_mut().writer.position();
        self.spill.leaving.push_back(Leaving { place, extents, number, end });
    }

    /// Whether a page's patches, all of which a sync is about to append, had better leave memory then:
    /// a spill would append them once more.
    pub(crate) fn logged_may_leave(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        page.frame.is_none()
            && !page.patches.is_empty()
            && page.patches.is_inside(page.unlogged.from.into(), page.unlogged.to.into())
            && self.patch_memory_left() < self.patch_memory_for_writers() / 2
            && self.can_spill()
    }

    /// A sync has appended all of a page's patches.
    pub(crate) fn logged_to_leave(&mut self, ix: PageIx, extents: Extents) {
        let whole: usize = extents.iter().map(|extent| usize::from(extent.run.len)).sum();
        if whole == self.pages[ix].patches.covered() {
            self.note_leaving(ix, extents);
        }
    }

    /// The log is durable up to a position: if the spill under way is, its patches leave memory.
    pub(crate) fn finish_spill(&mut self, durable: Lsn) {
        self.spill.spill_end = self.spill.spill_end.filter(|&end| end > durable);
        while self.spill.leaving.front().is_some_and(|leaving| leaving.end <= durable) {
            let leaving = self.spill.leaving.pop_front().expect("just looked at");
            let Leaving { place, extents, number: appended, .. } = leaving;
            let (file, number) = place;
            let Some(ix) = self.pages.find(file, number) else { continue };
            let page = &self.pages[ix];
            let unchanged = page.spilling == appended && page.dirty_seq != 0;
            let idle = page.io == PageIo::None && page.frame.is_none() && !page.retrying;
            if !unchanged || !idle || !self.may_leave(ix, place) {
                continue;
            }
            let (dirty_seq, dirty_since_ms) = (page.dirty_seq, page.dirty_since_ms);
            let rec = self.update(ix, |page| {
                page.patches = PatchSet::default();
                page.dirty_seq = 0;
                page.rec.take()
            });
            self.stats.spilled += 1;
            let content = SpilledPage { dirty_seq, dirty_since_ms, extents };
            let added = self.change_spilled(place, |index| index.add(place, content));
            // What was logged of it before is in the log anew.
            rec.into_iter().for_each(|rec| self.need_not(file, rec));
            if added {
                self.files[file].dirty_pages += 1;
                self.files[file].spilled_pages += 1;
            } else {
                // One content with what was spilled before, which whoever waits counted as well.
                self.settle(file, dirty_seq, Ok(()));
            }
            if self.files[file].is_urgent() {
                self.urgent.insert(file);
            }
        }
    }

    /// Changes what of a page is in the index, where it stays if it was, and what is needed of the log
    /// for it.
    fn change_spilled<T>(&mut self, place: Place, change: impl FnOnce(&mut Spilled) -> T) -> T {
        let before = self.spill.index.get(place).map(|page| self.rec_of(page));
        let result = change(&mut self.spill.index);
        let page = self.spill.index.get(place).expect("the page is spilled");
        self.need(place.0, self.rec_of(page));
        before.into_iter().for_each(|before| self.need_not(place.0, before));
        result
    }

    /// Where the log is needed from for a spilled page.
    pub(crate) fn rec_of(&self, page: &SpilledPage) -> Segment {
        let oldest = page.extents.iter().map(|extent| extent.lsn()).min();
        let segments = &self.log.as_ref().expect("what is spilled is in a log").segments;
        segments.of(oldest.expect("a spilled page has an extent"))
    }

    /// The spill under way does not get to disk: its patches stay.
    pub(crate) fn fail_spill(&mut self) {
        self.spill.leaving.clear();
        self.spill.spill_end = None;
    }
}

/// Back.
impl Engine {
    /// Whether older patches of a page are in the log only.
    pub(crate) fn is_spilled(&self, file: FileIx, number: u64) -> bool {
        !self.spill.index.is_empty() && self.spill.index.contains((file, number))
    }

    /// Brings spilled pages back that somebody waits for, unless that is under way.
    pub(crate) fn return_awaited(&mut self, file: FileIx, numbers: &[u64]) {
        let wanted: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|&number| {
                self.is_spilled(file, number) && !self.spill.reading.contains_key(&(file, number))
            })
            .collect();
        if !wanted.is_empty() {
            self.read_log(file, wanted, false);
        }
    }

    /// Brings back what syncs wait for, what is due, and what keeps the log full.
    pub(crate) fn return_windows(&mut self, now: Time) {
        if self.spill.index.is_empty() || now < self.spill.retry_at {
            return;
        }
        let mut at = FileIx(0);
        while let Some(&file) = self.urgent.range(at..).next() {
            at = file.next();
            let of_file = &self.files[file];
            if of_file.spilled_pages == 0 || !of_file.is_urgent() || of_file.gate == Gate::Frozen {
                continue;
            }
            let Some(last) = self.return_window(file, of_file.returned_to) else { continue };
            self.files[file].returned_to = last + 1;
        }
        let due = self.expires_ms(self.spill.index.oldest_ms()).is_some_and(|due| due <= now);
        let pressed = !self.can_spill() && self.patches_press();
        if (due || pressed)
            && let Some((file, number)) = self.next_spilled()
            && let Some(last) = self.return_window(file, number)
        {
            self.spill.swept_to = (file, last + 1);
        }
    }

    /// The next spilled page in the sweep's order of a file that is not held still.
    fn next_spilled(&self) -> Option<Place> {
        let open = |at| {
            let mut places = self.spill.index.from(at).take(LOOKED_AT_MAX).map(|(place, _)| place);
            places.find(|place| {
                self.files[place.0].gate == Gate::Open && !self.spill.reading.contains_key(place)
            })
        };
        open(self.spill.swept_to).or_else(|| open(FIRST))
    }

    /// Starts to bring back a window of a file from page `from` on, or from its first. The last page
    /// of it; `None` if there is nothing to bring back, or no room.
    fn return_window(&mut self, file: FileIx, from: u64) -> Option<u64> {
        let room = self.window_bytes()?;
        let frames =
            self.convertible().min(self.converted_max().saturating_sub(self.unclean_soon()));
        let pick = |from| {
            let (mut bytes, mut covered) = (0, 0);
            let mut numbers = Vec::new();
            for (number, page) in self.spill.index.of(file, from).take(LOOKED_AT_MAX) {
                if self.spill.reading.contains_key(&(file, number)) {
                    continue;
                }
                bytes += page.patch_bytes_max();
                covered += usize::from(page.may_cover_page());
                if !numbers.is_empty() && (bytes > room || covered > frames) {
                    break;
                }
                numbers.push(number);
            }
            numbers
        };
        let mut numbers = pick(from);
        if numbers.is_empty() {
            numbers = pick(0);
        }
        let (first, last) = (*numbers.first()?, *numbers.last()?);
        let is_dense = last - first <= 8 * numbers.len() as u64;
        self.spill.window = Some(Window { file, first, last, is_dense });
        self.read_log(file, numbers, true);
        Some(last)
    }

    /// Patch memory the next window may take.
    fn window_bytes(&self) -> Option<usize> {
        if self.spill.windows > 0 {
            return None;
        }
        let in_use = self.census.returned_bytes + self.spill.returning_bytes;
        let most = self.config.patch_bytes_max as usize / RETURN_SHARE;
        let left = most.saturating_sub(in_use);
        // Where sweeps wait for windows, what they have been given goes first.
        let swept = self.spill.returned.is_empty() || !self.config.one_arm;
        let idle = self.sweep_fetches + self.destages_in_flight == 0 && swept;
        if left >= (most - most / 4).max(WINDOW_BYTES_MIN) {
            Some(left)
        } else if idle {
            Some(WINDOW_BYTES_MIN)
        } else {
            None
        }
    }

    /// Reads what is spilled of a file's pages.
    fn read_log(&mut self, file: FileIx, numbers: Vec<u64>, window: bool) {
        let io = self.next_log_io();
        let writer = &self.log.as_ref().expect("what is spilled is in a log").writer;
        let mut places = Vec::new();
        let mut bytes = 0;
        for &number in &numbers {
            let page = self.spill.index.get((file, number)).expect("the page is spilled");
            bytes += page.patch_bytes_max();
            for extent in &page.extents {
                places.extend(blocks_of(*extent).map(|block| place_of(writer, block)));
            }
            self.spill.reading.insert((file, number), io);
        }
        places.sort_unstable();
        places.dedup();
        self.files[file].io_in_flight += 1;
        self.spill.returning_bytes += bytes;
        self.spill.windows += usize::from(window);
        self.stats.log_reads += 1;
        self.stats.log_read_blocks += places.len() as u64;
        self.outputs.push_back(Output::Log(LogCommand::Read { io, places: places.clone() }));
        self.spill.reads.insert(io, Return { file, numbers, places, bytes, window });
    }

    /// A read of the log ended: with the blocks it asked for, in their order.
    pub fn log_read(&mut self, io: IoId, result: Result<Vec<Block>, ErrorKind>, now: Time) {
        self.clock = now;
        let read = self.spill.reads.remove(&io).expect("a read of the log ends once");
        let Return { file, numbers, places, bytes, window } = read;
        self.files[file].io_in_flight -= 1;
        self.spill.returning_bytes -= bytes;
        self.spill.windows -= usize::from(window);
        match result {
            Ok(_) => self.spill.failed_in_a_row = 0,
            Err(kind) => {
                self.stats.log_read_errors += 1;
                self.spill.failed_in_a_row += 1;
                self.spill.retry_at = now + self.config.retry_delay;
                self.last_failure = kind;
                self.files[file].record_error(kind);
            }
        }
        for number in numbers {
            let place = (file, number);
            if self.spill.reading.get(&place) != Some(&io) {
                continue; // Overwritten whole, cut off or dropped meanwhile.
            }
            self.spill.reading.remove(&place);
            // The page is there for its waiters, who hold it there.
            let ix = self.page_or_add(file, number);
            self.update(ix, |page| page.pins += 1);
            match &result {
                Ok(blocks) => self.take_back(ix, &places, blocks),
                Err(kind) => {
                    let seq = self.next_seq();
                    let before = self.spill.index.set_seq(place, seq);
                    self.settle(file, before, Err(*kind));
                }
            }
            self.wake(ix, result.as_ref().err().copied(), now);
            self.update(ix, |page| page.pins -= 1);
        }
        self.reopen_gates(now);
        self.progress(file, now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// Makes patches of what was read of a page, under those it got since; left where it is if it
    /// takes a frame and none is free.
    fn take_back(&mut self, ix: PageIx, places: &[u64], blocks: &[Block]) {
        let (file, number) = (self.pages[ix].file, self.pages[ix].number);
        let writer = &self.log.as_ref().expect("what is spilled is in a log").writer;
        let spilled = self.spill.index.get((file, number)).expect("the page is spilled");
        let mut patches = PatchSet::default();
        for &extent in &spilled.extents {
            let bytes = bytes_of(extent, |block| {
                let nth = places.binary_search(&place_of(writer, block));
                &blocks[nth.expect("the block was asked for")]
            });
            patches.insert(usize::from(extent.run.start), &bytes);
        }
        for (run, bytes) in self.pages[ix].patches.iter() {
            patches.insert(usize::from(run.start), bytes);
        }
        let frame = if patches.covers_page() {
            if !self.ensure_frames(1, Need::Write) {
                return;
            }
            let mut frame = self.take_frame();
            patches.apply(frame.bytes_mut().expect("a frame just taken is not shared"));
            self.replacement.admit(&mut self.pages, ix);
            self.stats.fetches_avoided += 1;
            Some(frame)
        } else {
            None
        };
        let spilled = self.remove_spilled((file, number)).expect("just looked up");
        self.inherit(ix, &spilled, |page| {
            page.patches = if frame.is_some() { PatchSet::default() } else { patches };
            page.frame = frame.map(Resident::new);
            page.returned = true;
        });
    }

    /// Makes one dirty content of what is in memory of a page and what was spilled of it, as old as
    /// the older one.
    fn inherit(&mut self, ix: PageIx, spilled: &SpilledPage, change: impl FnOnce(&mut Page)) {
        let page = &self.pages[ix];
        let rec = self.one_need(page.file, page.rec, Some(self.rec_of(spilled)));
        // In one step: the page stands nowhere under the age it had.
        let own = self.update(ix, |page| {
            change(page);
            page.spilled = false;
            let own = page.dirty_seq;
            page.dirty_seq = if own == 0 { spilled.dirty_seq } else { own.min(spilled.dirty_seq) };
            page.dirty_since_ms = spilled.dirty_since_ms;
            page.rec = rec;
            own
        });
        if own != 0 {
            // Whoever waits for the newer one counted both, and goes on waiting.
            self.settle(self.pages[ix].file, own.max(spilled.dirty_seq), Ok(()));
        }
    }

    /// Takes a page out of the index; the page itself is still to be told.
    fn remove_spilled(&mut self, place: Place) -> Option<SpilledPage> {
        let spilled = self.spill.index.remove(place)?;
        self.spill.reading.remove(&place);
        self.files[place.0].dirty_pages -= 1;
        self.files[place.0].spilled_pages -= 1;
        Some(spilled)
    }

    /// A page is about to be overwritten whole: what was spilled of it is not needed any more, but
    /// whoever waits for it to come home now waits for what replaces it.
    pub(crate) fn supersede_spilled(&mut self, ix: PageIx) {
        if !self.pages[ix].spilled {
            return;
        }
        let place = (self.pages[ix].file, self.pages[ix].number);
        let spilled = self.remove_spilled(place).expect("the page says so");
        self.inherit(ix, &spilled, |_| {});
    }

    /// What was spilled of the pages that a byte range touches does not count any more.
    pub(crate) fn drop_spilled(&mut self, file: FileIx, from: u64, to: u64) {
        let touched = self.spill.index.of(file, from / PAGE).map(|(number, _)| number);
        let numbers: Vec<u64> = touched.take_while(|number| number * PAGE < to).collect();
        for number in numbers {
            self.drop_spilled_page(file, number);
        }
    }

    fn drop_spilled_page(&mut self, file: FileIx, number: u64) {
        let spilled = self.remove_spilled((file, number)).expect("the page is spilled");
        if let Some(ix) = self.pages.find(file, number) {
            self.update(ix, |page| page.spilled = false);
        }
        let rec = self.rec_of(&spilled);
        self.files[file].logged.needs.settle(rec);
        self.stats.fetches_avoided += 1;
        self.settle(file, spilled.dirty_seq, Ok(()));
    }

    /// A page is cut at byte `from`.
    pub(crate) fn cut_spilled(&mut self, file: FileIx, number: u64, from: usize) {
        let place = (file, number);
        match self.spill.index.get(place) {
            None => {}
            Some(page)
                if page.extents.iter().all(|extent| usize::from(extent.run.start) >= from) =>
            {
                self.drop_spilled_page(file, number);
            }
            Some(_) => self.change_spilled(place, |index| index.truncate(place, from)),
        }
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check_spill(&self) {
        self.spill.index.check_invariants();
        let mut spilled = vec![];
        for (place, _) in self.spill.index.from(FIRST) {
            spilled.push(place);
            let home_size = self.files[place.0].home_size;
            assert!(place.1 * PAGE < home_size, "{place:?} is a page at home");
            if let Some(ix) = self.pages.find(place.0, place.1) {
                let page = &self.pages[ix];
                assert!(page.spilled, "{place:?} knows that it is spilled");
                let idle = matches!(page.io, PageIo::None | PageIo::Fetch);
                assert!(page.frame.is_none() && idle, "{place:?} waits");
            }
        }
        for (ix, file) in self.files.iter() {
            let of_file = spilled.iter().filter(|place| place.0 == ix).count();
            assert_eq!(file.spilled_pages, of_file, "spilled pages of {:?}", file.id);
        }
        for place in self.spill.reading.keys() {
            assert!(self.spill.index.contains(*place), "{place:?} is read because it is spilled");
        }
    }
}

/// Bytes one spill may take of a group.
fn spill_bytes(writer: &Writer) -> usize {
    SPILL_BYTES_MAX.min(writer.group_bytes_max() / 2)
}

fn place_of(writer: &Writer, block: Lsn) -> u64 {
    writer.place(block).expect("the log keeps what is spilled")
}

/// The blocks an extent's bytes are in.
fn blocks_of(extent: Extent) -> impl Iterator<Item = Lsn> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let (first, end) = (extent.lsn().0, extent.lsn().0 + u64::from(extent.run.len));
    (first / BLOCK..end.div_ceil(BLOCK)).map(|block| Lsn(block * BLOCK))
}

/// An extent's bytes, out of the blocks that hold them.
fn bytes_of<'a>(extent: Extent, block_at: impl Fn(Lsn) -> &'a Block) -> Vec<u8> {
    let (start, end) = (extent.lsn().0, extent.lsn().0 + u64::from(extent.run.len));
    let mut bytes = Vec::with_capacity(usize::from(extent.run.len));
    for block in blocks_of(extent) {
        let from = start.saturating_sub(block.0) as usize;
        let to = (end - block.0).min(BLOCK_BYTES as u64) as usize;
        bytes.extend_from_slice(&block_at(block).0[from..to]);
    }
    bytes
}
