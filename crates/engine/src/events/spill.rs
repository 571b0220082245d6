//! Spill: patches that leave memory for the redo log, and come back when they are needed.
//!
//! When little patch memory is left, patches are appended to the log in the order of their pages, a group at a time.
//! Once the group is durable, their memory is freed, and only their positions in the log are kept (`spilled`). So a
//! writer of many small pieces waits only for the log's bandwidth, until the log is full.
//!
//! A page with spilled patches has no frame and is not destaged. Before a fetch or a destage, its patches are read back
//! (`unspill`), and are then patches like any other.
//!
//! Invariants:
//! - one spill is in progress at a time; a page whose patches changed since they were appended keeps them in memory;
//! - patches in the index are durable in the log, and the log keeps their file's records;
//! - spilled patches lie before the end of the file at home: past it there is nothing to patch;
//! - `over` holds the dirty, idle pages with patches in memory and older ones in the log, `returned` those whose patches
//!   came back;
//! - a page is in `reading` exactly while a read for it is in flight whose result will be used.

use std::time::Duration;

use weir_frames::PAGE_BYTES;
use weir_journal::Segment;
use weir_log::{Lsn, Record, Writer};

use crate::cache::FRAME_BYTES;
use crate::cache::page::PageIo;
use crate::cache::patch::PatchSet;
use crate::cache::spill::LOOKED_AT_MAX;
use crate::cache::spill::Leaving;
use crate::cache::spilled::{LogExtent, LogExtents, Spilled, SpilledPage};
use crate::config::FetchPolicy;
use crate::engine::Engine;
use crate::place::{FIRST, PageIx, Place};
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;

const PAGE: u64 = PAGE_BYTES as u64;

/// Most bytes of one spill: enough to write the log at its full bandwidth, few enough that a sync behind it waits
/// little.
const SPILL_BYTES_MAX: usize = 1 << 20;

/// Patches spill when less than this share of the writers' patch memory is left. The more patches a spill has, the fewer
/// pieces a window consists of.
const SPILL_SHARE: usize = 4;

/// The log's share that spills leave to syncs.
const SYNCS_SHARE: u64 = 8;

/// After a spill that found nothing to take, none is tried for this long.
const REST: Duration = Duration::from_millis(10);

/// Share of the memory for frames that the index may take.
const INDEX_SHARE: usize = 4;

/// Bytes one spill may take of a group.
pub(crate) fn spill_bytes(writer: &Writer) -> usize {
    SPILL_BYTES_MAX.min(writer.group_bytes_max() / 2)
}

impl Engine {
    /// Whether patches can spill to the log. Then their pages need not be fetched soon.
    pub(crate) fn can_spill(&self) -> bool {
        let Some(log) = self.journal.as_ref().filter(|log| log.is_usable()) else { return false };
        let share = log.shared.writer().capacity_bytes() / SYNCS_SHARE;
        self.config.fetch_policy != FetchPolicy::Blocking
            && log.shared.writer().has_space(share + spill_bytes(log.shared.writer()) as u64)
            && self.cache.spill.index.bytes() <= self.cache.frames_max / INDEX_SHARE * FRAME_BYTES
    }

    /// Sends patches to the log if little of their memory is left.
    pub(crate) fn start_spill(&mut self, now: Time) {
        let wanted = self.patch_memory_left() < self.patch_memory_for_writers() / SPILL_SHARE;
        if !wanted
            || self.cache.spill.is_under_way()
            || now < self.cache.spill.rest_until
            || !self.can_spill()
        {
            return;
        }
        let mut left = spill_bytes(self.journal_mut().shared.writer());
        let from = self.cache.spill.next;
        let (mut at, mut turned, mut any) = (from, false, false);
        for _ in 0..LOOKED_AT_MAX {
            let next =
                match (self.cache.dirty.patched.pages().next(at), self.cache.dirty.over.next(at)) {
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
            if !self.may_log(file) || self.cache.files[file].waiters.freeze != FreezeState::Thawed {
                at = (file.next(), 0);
                continue;
            }
            let ix = self.cache.pages.find(file, number).expect("a dirty page is in the table");
            if self.cache.may_leave(ix, place) {
                let bytes = self.cache.spill_cost(ix);
                let room = bytes + self.unlogged_space();
                if bytes > left || !self.journal_mut().shared.writer().has_room(room) {
                    break;
                }
                left -= bytes;
                self.append_patches(ix);
                any = true;
            }
            at = (file, number + 1);
        }
        self.cache.spill.next = at;
        if any {
            self.cache.spill.spill_end = Some(self.journal_mut().shared.writer().position());
            self.commit_group();
        } else {
            self.cache.spill.rest_until = now + REST;
        }
    }

    pub(crate) fn append_patches(&mut self, ix: PageIx) {
        let page = &self.cache.pages[ix];
        let (file, number) = (page.file, page.number);
        let log = self.journal.as_mut().expect("there is a log");
        let mut extents = LogExtents::new();
        for (run, data) in page.patches.iter() {
            let offset = number * PAGE + u64::from(run.start);
            let record = Record::Write { file: self.cache.files[file].logged.node(), offset, data };
            let lsn = log.append(&mut self.cache.files[file], &record);
            extents.push(LogExtent::of_record(lsn, run));
            self.stats.log_records += 1;
            self.stats.log_bytes += data.len() as u64;
        }
        self.page_logged(ix, &extents);
        self.note_leaving(ix, extents);
    }

    pub(crate) fn note_leaving(&mut self, ix: PageIx, extents: LogExtents) {
        let number = self.cache.spill.last.wrapping_add(1).max(1);
        self.cache.spill.last = number;
        let page = &mut self.cache.pages[ix];
        page.spilling = number;
        let place = (page.file, page.number);
        let end = self.journal_mut().shared.writer().position();
        self.cache.spill.leaving.push_back(Leaving { place, extents, number, end });
    }

    /// Whether a page's patches, all of which a sync is about to append, should leave memory afterwards: otherwise a spill
    /// would append them again.
    pub(crate) fn logged_may_leave(&self, ix: PageIx) -> bool {
        let page = &self.cache.pages[ix];
        page.frame.is_none()
            && !page.patches.is_empty()
            && page.patches.is_inside(page.unlogged.from.into(), page.unlogged.to.into())
            && self.patch_memory_left() < self.patch_memory_for_writers() / 2
            && self.can_spill()
    }

    /// A sync has appended all of a page's patches.
    pub(crate) fn logged_to_leave(&mut self, ix: PageIx, extents: LogExtents) {
        let whole: usize = extents.iter().map(|extent| usize::from(extent.run.len)).sum();
        if whole == self.cache.pages[ix].patches.covered() {
            self.note_leaving(ix, extents);
        }
    }

    /// The log is durable up to a position: if that includes the spill in progress, its patches leave memory.
    pub(crate) fn finish_spill(&mut self, durable: Lsn) {
        self.cache.spill.spill_end = self.cache.spill.spill_end.filter(|&end| end > durable);
        while self.cache.spill.leaving.front().is_some_and(|leaving| leaving.end <= durable) {
            let leaving = self.cache.spill.leaving.pop_front().expect("just looked at");
            let Leaving { place, extents, number: appended, .. } = leaving;
            let (file, number) = place;
            let Some(ix) = self.cache.pages.find(file, number) else { continue };
            let page = &self.cache.pages[ix];
            let unchanged = page.spilling == appended && page.dirty_seq != 0;
            let idle = page.io == PageIo::None && page.frame.is_none() && !page.retrying;
            if !unchanged || !idle || !self.cache.may_leave(ix, place) {
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
            // The newer records supersede the page's earlier ones: release their segment.
            rec.into_iter().for_each(|rec| self.retain_no_more(file, rec));
            if added {
                self.cache.files[file].dirty_pages += 1;
                self.cache.files[file].spilled_pages += 1;
            } else {
                // It is one content now with the patches spilled before, which syncs counted as well.
                self.settle(file, dirty_seq, Ok(()));
            }
            if self.cache.files[file].waiters.is_urgent() {
                self.write_back.sweeps.urgent.insert(file);
            }
        }
    }

    /// Changes a page's entry in the index, and updates the log retention for it. The entry must not be removed.
    pub(crate) fn change_spilled<T>(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut Spilled) -> T,
    ) -> T {
        let before = self.cache.spill.index.get(place).map(|page| self.rec_of(page));
        let result = change(&mut self.cache.spill.index);
        let page = self.cache.spill.index.get(place).expect("the page is spilled");
        self.retain(place.0, self.rec_of(page));
        before.into_iter().for_each(|before| self.retain_no_more(place.0, before));
        result
    }

    /// The first segment of the log that a spilled page needs.
    pub(crate) fn rec_of(&self, page: &SpilledPage) -> Segment {
        let oldest = page.extents.iter().map(|extent| extent.lsn()).min();
        let log = self.journal.as_ref().expect("what is spilled is in a log");
        log.shared.segment_of(oldest.expect("a spilled page has an extent"))
    }
}
