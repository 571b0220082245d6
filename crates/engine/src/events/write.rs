//! Writes (NBW section 3): to a frame if the page is up to date, else as a patch.
//!
//! A write is applied to pages at once under every fetch policy. The policy decides whether a fetch is started for it,
//! and whether the answer waits for that fetch. So the order of writes is the order of events, and a blocked writer's
//! bytes are visible before the write is answered.

use std::time::Duration;

use smallvec::SmallVec;
use weir_frames::PAGE_BYTES;
use weir_lane::stream::copy_page;

use crate::cache::page::PageIo;
use crate::cache::patch::PatchSet;
use crate::cache::resident::Resident;
use crate::command::{Durability, FileId, Outcome, Reply, RequestId, Urgency};
use crate::config::{FetchPolicy, REQUEST_BYTES_MAX};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::place::{FileIx, PageIx, Piece, pieces};
use crate::time::Time;
use crate::waiters::freeze_state::{Event, FreezeState, Target};
use crate::waiters::request::{Pending, Step, Waited};
use crate::waiters::sync::SyncFor;
use crate::write_back::need::Need;

const PAGE: u64 = PAGE_BYTES as u64;

/// The largest size of a file in the kernel (`loff_t`).
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Puts bytes into a page.
pub(crate) fn put(page: &mut [u8; PAGE_BYTES], start: usize, bytes: &[u8]) {
    match bytes.try_into() {
        Ok(whole) => copy_page(page, whole),
        Err(_) => page[start..start + bytes.len()].copy_from_slice(bytes),
    }
}

/// The policy's decision for one partial write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetching {
    Blocking,
    Foreground,
    Background,
    Lazy,
}

impl Engine {
    /// Writes `data` at `offset`, growing the file if need be (write(2)). Answered when the bytes
    /// are visible to every later read and, if `durability` asks for it, durable at home.
    ///
    /// Answered later, as [`Reply::Written`], if the fetch policy makes it wait for a fetch, if patch memory is full or the
    /// dirty bound is reached (the write is taken when its turn comes), if space must be reserved, or if the file is
    /// frozen.
    ///
    /// # Errors
    /// - `OutOfRange` past the largest file size or above [`REQUEST_BYTES_MAX`];
    /// - [`ErrorKind::NoSpace`] and similar errors if space for the write cannot be reserved;
    /// - the error of write-back if memory is full of dirty data and none of it can be written home;
    /// - with `durability`, the error of the sync;
    /// - under a blocking policy, the error of the fetch. The bytes are kept and retried like other dirty data.
    pub fn write(
        &mut self,
        request: RequestId,
        file: FileId,
        offset: u64,
        data: &[u8],
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        self.write_to(request, file, Target::Offset(offset), data, durability, now)
    }

    /// Writes `data` at the end of the file (open(2), O_APPEND). The end is that at the time when the write is applied: if
    /// the write waits, it goes after all writes that are applied before it.
    ///
    /// # Errors
    /// As for [`Engine::write`].
    pub fn write_at_end(
        &mut self,
        request: RequestId,
        file: FileId,
        data: &[u8],
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        self.write_to(request, file, Target::End, data, durability, now)
    }

    pub(crate) fn write_to(
        &mut self,
        request: RequestId,
        file: FileId,
        target: Target,
        data: &[u8],
        durability: Durability,
        now: Time,
    ) -> Outcome<()> {
        let Some(file) = self.cache.files.find(file) else {
            return Outcome::Done(Err(Error::NotAttached));
        };
        let offset = self.cache.files[file].offset_of(target);
        let end = offset.saturating_add(data.len() as u64);
        if data.len() > REQUEST_BYTES_MAX || end > FILE_BYTES_MAX {
            return Outcome::Done(Err(Error::OutOfRange));
        }
        if data.is_empty() {
            return Outcome::Done(Ok(()));
        }
        self.clock = now;
        self.stats.writes += 1;
        self.stats.write_bytes += data.len() as u64;
        let queued = || Event::Write { target, data: data.into(), durability };
        if self.cache.files[file].waiters.freeze != FreezeState::Thawed {
            self.cache.files[file].waiters.queue.push_back((request, queued()));
            return Outcome::Pending;
        }
        let fits = !self.awaits_log_room(file, offset, end);
        if durability == Durability::None && fits && self.overwrite(file, offset, data) {
            self.commit_if_due();
            return Outcome::Done(Ok(()));
        }
        // A write that needs patch memory, or is paced, queues behind those that wait for the same.
        let turns = || self.takes_turns(file, offset, end) || self.is_paced(file, offset, end);
        let step = if !self.waiters.starved.is_empty() && turns() {
            Step::Starved
        } else {
            self.try_write(request, file, target, data, durability, now)
        };
        match step {
            Step::Done(result) => Outcome::Done(result),
            Step::Pending => Outcome::Pending,
            Step::Starved => {
                self.stats.writers_throttled += 1;
                self.starve(request, file, queued());
                self.pump(now);
                self.feed_starved(now);
                Outcome::Pending
            }
        }
    }

    /// The fast path: overwrites bytes of one page that is dirty already, in its unshared frame or in one of its patches.
    pub(crate) fn overwrite(&mut self, file: FileIx, offset: u64, data: &[u8]) -> bool {
        let start = (offset % PAGE) as usize;
        if start + data.len() > PAGE_BYTES {
            return false;
        }
        let Some(ix) = self.cache.pages.find(file, offset / PAGE) else { return false };
        let page = &mut self.cache.pages[ix];
        if page.dirty_seq == 0 {
            return false;
        }
        let Some(frame) = &mut page.frame else {
            // Other policies may start a fetch for every partial write.
            let lazy = matches!(self.config.fetch_policy, FetchPolicy::Lazy | FetchPolicy::Auto);
            let over = lazy && page.patches.overwrite(start, data);
            self.stats.patch_writes += u64::from(over);
            if over {
                self.note_unlogged(file, ix, start, data.len());
            }
            return over;
        };
        let Some(mut bytes) = frame.bytes_mut() else { return false };
        put(&mut bytes, start, data);
        drop(bytes);
        self.cache.publish_written(ix);
        self.note_unlogged(file, ix, start, data.len());
        self.cache.replacement.touch(&mut self.cache.pages, ix);
        self.cache.files[file].grow_to(offset + data.len() as u64);
        true
    }

    /// Notes that bytes of a page were written that are not in the log.
    pub(crate) fn note_unlogged(&mut self, file: FileIx, ix: PageIx, start: usize, len: usize) {
        if self.logs(file) {
            let page = &mut self.cache.pages[ix];
            let first = page.unlogged.is_empty();
            page.unlogged.cover(start, len);
            page.spilling = 0;
            if first {
                self.cache.dirty.unlogged.insert((file, page.number));
            }
            self.cache.charge(ix);
            self.note_age_of_unlogged();
        } else {
            self.is_not_served(file);
        }
    }

    /// A write to a file that is not frozen; see [`Engine::write`].
    pub(crate) fn try_write(
        &mut self,
        request: RequestId,
        file: FileIx,
        target: Target,
        data: &[u8],
        durability: Durability,
        now: Time,
    ) -> Step<()> {
        let offset = self.cache.files[file].offset_of(target);
        let end = offset.saturating_add(data.len() as u64);
        if end > FILE_BYTES_MAX {
            return Step::Done(Err(Error::OutOfRange));
        }
        if self.cache.census.unclean_frames >= self.dirty_bound()
            || self.patches_exceed() && self.cache.needs_patch(file, offset, end)
            || self.must_wait_for_patch_memory(file, offset, end)
            || self.is_held(file, offset, end, now)
        {
            return Step::Starved;
        }
        if self.awaits_log_room(file, offset, end) {
            self.commit_group();
            return Step::Starved;
        }
        if let Some(gap) = self.unreserved(file, offset, end) {
            self.reserve_for(request, file, gap);
            let data = data.into();
            self.waiters.pending.insert(request, Pending::Reserving { target, data, durability });
            self.cache.files[file].waiters.active += 1;
            return Step::Pending;
        }
        let pages = (end - 1) / PAGE - offset / PAGE + 1;
        if !self.ensure_frames(pages as usize, Need::Write) {
            return Step::Starved;
        }
        if end > self.cache.files[file].size() {
            self.reserve_ahead(file, end);
        }
        let dirtied = self.pages_dirtied();
        let waits = self.apply(file, offset, data, now);
        self.commit_if_due();
        self.pace_writers(dirtied, now);
        let over = self.write_back_is_on() || self.patches_press();
        if over {
            self.pump(now);
        } else {
            self.start_spill(now);
            if !self.write_back.sweeps.wanted.is_empty() {
                self.sweep_patched(now);
            }
        }
        let range = (offset, end);
        if waits.is_empty() {
            return self.written(request, file, range, durability, now);
        }
        self.stats.writers_blocked_fetch += 1;
        let waited = Waited { partial_pages: waits, range, durability };
        self.await_fetches(request, file, waited, now)
    }

    /// The write is visible; makes it durable if that was asked for.
    pub(crate) fn written(
        &mut self,
        request: RequestId,
        file: FileIx,
        range: (u64, u64),
        durability: Durability,
        now: Time,
    ) -> Step<()> {
        if durability == Durability::None {
            return Step::Done(Ok(()));
        }
        self.start_sync(file, range, durability, SyncFor::Write(request), now)
    }

    /// Puts the bytes into pages. Issues the fetches that the policy asks for. Returns the partially written pages that the
    /// write must wait for.
    pub(crate) fn apply(
        &mut self,
        file: FileIx,
        offset: u64,
        data: &[u8],
        now: Time,
    ) -> SmallVec<[u64; 2]> {
        let mut blocking = SmallVec::new();
        let mut fetches: SmallVec<[u64; 2]> = SmallVec::new();
        let end = offset + data.len() as u64;
        for Piece { number, start, len } in pieces(offset, end) {
            let at = number * PAGE + start as u64;
            let bytes = &data[(at - offset) as usize..][..len];
            let ix = self.cache.page_or_add(file, number);
            if self.cache.pages[ix].frame.is_some() {
                self.write_frame(ix, start, bytes, now);
            } else if len == PAGE_BYTES || self.cache.is_new(file, ix) {
                self.fill_frame(ix, start, bytes, now);
            } else {
                match self.write_patch(file, ix, start, bytes, now) {
                    None | Some(Fetching::Lazy) => {}
                    Some(Fetching::Blocking) => blocking.push(number),
                    Some(Fetching::Foreground) => fetches.push(number),
                    Some(Fetching::Background) => {
                        self.write_back.sweeps.wanted.insert(file);
                    }
                }
            }
        }
        self.cache.files[file].grow_to(end);
        if fetches.len() <= self.cache.convertible() {
            self.fetch_pages(file, &fetches, Urgency::Foreground, Need::Write, now);
        }
        blocking
    }

    pub(crate) fn write_frame(&mut self, ix: PageIx, start: usize, bytes: &[u8], now: Time) {
        let fresh = match self.cache.pages[ix].frame.as_ref().map(Resident::frame) {
            Some(frame) if !frame.is_unique() => {
                // A destage or an answer still uses the frame: write to a copy.
                let mut fresh = self.cache.take_frame();
                if bytes.len() < PAGE_BYTES {
                    let to = fresh.bytes_mut().expect("a frame just taken is not shared");
                    to.copy_from_slice(frame.bytes());
                }
                Some(fresh)
            }
            _ => None,
        };
        let seq = self.cache.dirty_seq_of(ix);
        self.update(ix, |page| {
            if let Some(fresh) = fresh {
                page.frame = Some(Resident::new(fresh));
            }
            let frame = page.frame.as_mut().expect("the page is resident");
            let mut frame = frame.bytes_mut().expect("the frame is not shared");
            put(&mut frame, start, bytes);
            drop(frame);
            page.dirtied(seq, now);
        });
        self.cache.publish_written(ix);
        self.note_unlogged(self.cache.pages[ix].file, ix, start, bytes.len());
        self.cache.replacement.touch(&mut self.cache.pages, ix);
    }

    /// Gives the page a frame with its patches and `bytes` over zeros.
    pub(crate) fn fill_frame(&mut self, ix: PageIx, start: usize, bytes: &[u8], now: Time) {
        let mut frame = self.cache.take_frame();
        let page = frame.bytes_mut().expect("a frame just taken is not shared");
        if bytes.len() < PAGE_BYTES {
            page.fill(0);
            self.cache.pages[ix].patches.apply(page);
        }
        put(page, start, bytes);
        let patched = !self.cache.pages[ix].patches.is_empty();
        if patched && self.cache.pages[ix].io != PageIo::Fetch {
            self.stats.fetches_avoided += 1;
        }
        self.supersede_spilled(ix);
        let seq = self.cache.dirty_seq_of(ix);
        self.cache.replacement.admit(&mut self.cache.pages, ix);
        self.update(ix, |page| {
            page.patches = PatchSet::default();
            page.frame = Some(Resident::new(frame));
            page.dirtied(seq, now);
        });
        self.cache.publish_written(ix);
        self.note_unlogged(self.cache.pages[ix].file, ix, start, bytes.len());
    }

    /// Adds a patch. Returns the policy's decision for the page; `None` if the page became up to date, or a fetch is in
    /// flight already and the write need not wait for it.
    pub(crate) fn write_patch(
        &mut self,
        file: FileIx,
        ix: PageIx,
        start: usize,
        bytes: &[u8],
        now: Time,
    ) -> Option<Fetching> {
        self.stats.patch_writes += 1;
        let full = self.cache.page_growth(ix, bytes.len()) > self.patch_memory_left();
        let seq = self.cache.dirty_seq_of(ix);
        let covered = self.update(ix, |page| {
            page.patches.insert(start, bytes);
            page.dirtied(seq, now);
            // A page that is wholly covered by patches gets a frame at once.
            page.patches.covers_page()
        });
        self.note_unlogged(file, ix, start, bytes.len());
        if covered {
            let patches = self.cache.pages[ix].patches.clone();
            let whole = patches.get(0, PAGE_BYTES).expect("a covered page is one run");
            self.fill_frame(ix, 0, whole, now);
            return None;
        }
        let policy = if !self.cache.files[file].readable {
            Fetching::Lazy // Nothing can be fetched; patches go home byte-exact.
        } else if full {
            Fetching::Blocking
        } else {
            self.policy(file, now)
        };
        match (policy, self.cache.pages[ix].io) {
            (Fetching::Blocking, _) => Some(Fetching::Blocking),
            (_, PageIo::Fetch) => None,
            (policy, _) => Some(policy),
        }
    }

    pub(crate) fn policy(&self, file: FileIx, now: Time) -> Fetching {
        /// If the file was read this recently, this page is likely to be read too.
        const READ_RECENTLY: Duration = Duration::from_secs(1);
        /// Where a fetch takes less than this, the next reader of the page loses little by waiting for it, and fetching
        /// ahead would cost writers more.
        const FAST_DEVICE: Duration = Duration::from_micros(200);
        match self.config.fetch_policy {
            FetchPolicy::Blocking => Fetching::Blocking,
            FetchPolicy::AsyncForeground => Fetching::Foreground,
            FetchPolicy::AsyncBackground => Fetching::Background,
            FetchPolicy::Lazy => Fetching::Lazy,
            FetchPolicy::Auto => {
                let being_read = self.cache.files[file]
                    .last_read
                    .is_some_and(|read| now.since(read) < READ_RECENTLY);
                let slow =
                    self.device.costs.fetch.latency().is_some_and(|latency| latency >= FAST_DEVICE);
                // When patch memory fills, sweeps fetch under every policy.
                if being_read && slow { Fetching::Background } else { Fetching::Lazy }
            }
        }
    }

    /// Makes a blocked write wait for its partial pages, and fetches those that are not being fetched.
    pub(crate) fn await_fetches(
        &mut self,
        request: RequestId,
        file: FileIx,
        waited: Waited,
        now: Time,
    ) -> Step<()> {
        let Waited { partial_pages, range, durability } = waited;
        let waiting: SmallVec<[PageIx; 2]> = partial_pages
            .iter()
            .filter_map(|&number| self.cache.pages.find(file, number))
            .filter(|&ix| self.cache.pages[ix].frame.is_none())
            .collect();
        if waiting.is_empty() {
            return self.written(request, file, range, durability, now);
        }
        // Required: without a fetch in flight, nothing would wake the request.
        if !self.fetch_pages(file, &partial_pages, Urgency::Waited, Need::Write, now) {
            return self.written(request, file, range, durability, now);
        }
        for &ix in &waiting {
            self.wait_for(ix, request);
        }
        let remaining = waiting.len();
        let patch_bytes = waiting.iter().map(|&ix| self.cache.pages[ix].patch_memory_bytes()).sum();
        self.waiters.blocked_patch_bytes += patch_bytes;
        self.cache.files[file].waiters.active += 1;
        let pending = Pending::Write {
            file,
            partial_pages,
            remaining,
            patch_bytes,
            failed: None,
            range,
            durability,
        };
        self.waiters.pending.insert(request, pending);
        Step::Pending
    }

    /// The pages that a blocked write waited for have arrived or failed.
    pub(crate) fn resume_write(
        &mut self,
        request: RequestId,
        file: FileIx,
        waited: Waited,
        failed: Option<ErrorKind>,
        now: Time,
    ) {
        self.cache.files[file].waiters.active -= 1;
        let step = match failed {
            Some(kind) => Step::Done(Err(kind.into())),
            None => self.await_fetches(request, file, waited, now),
        };
        if let Step::Done(result) = step {
            self.reply(request, Reply::Written(result));
        }
    }
}
