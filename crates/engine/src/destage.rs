//! Write-back: which dirty data goes home, when, and what happens when it cannot.
//!
//! For now by fixed rules, like the kernel's: data older than `dirty_expire`, the oldest data while
//! more than the background share of memory is dirty or patch memory is three quarters full, and
//! whatever a sync waits for, first. Adjacent dirty pages go out as one request. Patches that cover
//! whole write units go home as they are; other patched pages are fetched first.

use std::time::Duration;

use crate::PAGE_BYTES;
use crate::command::{Command, Output, Part, Reply, Urgency};
use crate::engine::{Engine, Io, PatchDestage};
use crate::error::ErrorKind;
use crate::file::{Event, Gate};
use crate::frame::Frame;
use crate::page::{FileIx, ListKind, OVERDUE, PageIo, PageIx};
use crate::patch::{PatchSet, Run};
use crate::time::Time;

const PAGE: u64 = PAGE_BYTES as u64;

/// Pages of frozen files passed over in search of one to destage.
const SCAN_MAX: usize = 256;

impl Engine {
    /// Starts as many destages as are wanted and allowed.
    pub(crate) fn pump(&mut self, now: Time) {
        while self.destages_in_flight < self.config.destages_in_flight_max as usize
            && self.destage_fetches_in_flight < 4 * self.config.destages_in_flight_max as usize
        {
            let Some(ix) = self.next_to_destage(now) else { return };
            if !self.destage_from(ix, now) && !self.make_room_for(ix, now) {
                return;
            }
        }
    }

    /// How many patched pages may be fetched to go home, or because they were written: each
    /// becomes a dirty frame. Some frames are always left for readers.
    pub(crate) fn convertible(&self) -> usize {
        let most = self.frames_max - self.frames_max / 8;
        most.saturating_sub(self.census.unclean_frames + self.frames_in_flight)
    }

    /// Deals with a patched page that cannot be fetched for want of frames: something that has a
    /// frame goes home instead, and if all of that has failed, so has this page. False if there is
    /// nothing to do but wait for what is under way.
    fn make_room_for(&mut self, ix: PageIx, now: Time) -> bool {
        let file = self.pages[ix].file;
        let urgent_seq = self.files[file].urgent_seq();
        let of_file = self.pages.on_list(ListKind::FileDirty, &self.files[file].dirty);
        let resident = of_file
            .filter(|&ix| {
                let page = &self.pages[ix];
                !page.retrying || page.dirty_seq <= urgent_seq
            })
            .chain(
                self.pages
                    .on_list(ListKind::Dirty, &self.dirty)
                    .filter(|&ix| self.files[self.pages[ix].file].gate == Gate::Open),
            )
            .find(|&ix| self.pages[ix].frame.is_some());
        if let Some(resident) = resident {
            return self.destage_from(resident, now);
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

    fn next_to_destage(&mut self, now: Time) -> Option<PageIx> {
        while let Some(&file) = self.urgent.first() {
            if let Some(ix) = self.urgent_page(file) {
                return Some(ix);
            }
            // It comes back when a page of it becomes ready, or its gate opens.
            self.urgent.remove(&file);
        }
        let pressed = self.census.unclean_frames >= self.background_frames || self.patches_press();
        let oldest = self.dirty.front()?;
        if !pressed && now < self.expires(oldest) {
            return None;
        }
        self.pages
            .on_list(ListKind::Dirty, &self.dirty)
            .take(SCAN_MAX)
            .find(|&ix| self.files[self.pages[ix].file].gate == Gate::Open)
            .filter(|&ix| pressed || now >= self.expires(ix))
    }

    /// The next page of a file that a sync waits for.
    fn urgent_page(&self, file: FileIx) -> Option<PageIx> {
        let of_file = &self.files[file];
        if of_file.gate == Gate::Frozen || !of_file.is_urgent() {
            return None;
        }
        let ix = of_file.dirty.front()?;
        // What failed since the sync began is behind everything that it still waits for.
        let page = &self.pages[ix];
        (!page.retrying || page.dirty_seq <= of_file.urgent_seq()).then_some(ix)
    }

    pub(crate) fn expires(&self, ix: PageIx) -> Time {
        match self.pages[ix].dirty_since_ms {
            OVERDUE => Time::ZERO,
            since_ms => Time::from_millis(since_ms) + self.config.dirty_expire,
        }
    }

    /// Starts the destage of a dirty, idle page and its neighbours. False if it cannot now.
    fn destage_from(&mut self, ix: PageIx, now: Time) -> bool {
        let file = self.pages[ix].file;
        let number = self.pages[ix].number;
        if self.pages[ix].frame.is_some() {
            let run = self.adjacent(file, number, |engine, ix| {
                let page = &engine.pages[ix];
                page.is_on(ListKind::Dirty) && page.frame.is_some()
            });
            self.destage_frames(file, &run);
            true
        } else if self.patches_go_home_as_they_are(ix) {
            self.destage_patches(ix)
        } else {
            let mut run = self.adjacent(file, number, |engine, ix| {
                let page = &engine.pages[ix];
                page.is_on(ListKind::Dirty)
                    && page.frame.is_none()
                    && !engine.patches_go_home_as_they_are(ix)
            });
            // As much of it as there are frames for, this page among it.
            let convertible = self.convertible();
            if run.len() > convertible {
                run.retain(|&other| other >= number);
                run.truncate(convertible);
            }
            if run.is_empty() || !self.ensure_frames(run.len()) {
                return false;
            }
            let urgent = self.files[file].is_urgent();
            let urgency = if urgent { Urgency::Waited } else { Urgency::Background };
            self.issue_fetch(file, &run, urgency, true, now);
            true
        }
    }

    /// The numbers of the pages around `number` that are alike, ascending, at most one transfer.
    fn adjacent(
        &self,
        file: FileIx,
        number: u64,
        alike: impl Fn(&Engine, PageIx) -> bool,
    ) -> Vec<u64> {
        let is_alike =
            |number: u64| self.pages.find(file, number).is_some_and(|ix| alike(self, ix));
        let max = u64::from(self.config.transfer_pages_max);
        let mut first = number;
        while first > 0 && number - first + 1 < max && is_alike(first - 1) {
            first -= 1;
        }
        let mut last = number;
        while last - first + 1 < max && is_alike(last + 1) {
            last += 1;
        }
        (first..=last).collect()
    }

    fn patches_go_home_as_they_are(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        let file = &self.files[page.file];
        let file_end = file.size.saturating_sub(page.number * PAGE).min(PAGE) as usize;
        !file.readable || page.patches.covers_units(file.write_unit, file_end)
    }

    fn destage_frames(&mut self, file: FileIx, run: &[u64]) {
        let size = self.files[file].size;
        let offset = run[0] * PAGE;
        let mut parts = Vec::with_capacity(run.len());
        let mut pages = Vec::with_capacity(run.len());
        let mut len = 0;
        for &number in run {
            let ix = self.pages.find(file, number).expect("a dirty page is in the table");
            let inside = (size - number * PAGE).min(PAGE);
            len += inside;
            let (frame, seq) = self.update(ix, |page| {
                let seq = std::mem::take(&mut page.dirty_seq);
                page.io = PageIo::Destage;
                (page.frame.clone().expect("the page is resident"), seq)
            });
            parts.push(Part { frame, start: 0, len: inside as u16 });
            pages.push((ix, seq));
        }
        self.files[file].destaging_pages += pages.len();
        self.destages_in_flight += 1;
        self.stats.destage_commands += 1;
        self.stats.destage_bytes += len;
        let io = self.next_io(Io::Destage { file, offset, len, pages });
        let id = self.files[file].id;
        self.issue(Command::Write { io, file: id, offset, parts });
    }

    /// Starts to send a page's patches home, run after run. They stay readable, and a write
    /// meanwhile makes the page dirty again. False if no frame is free to carry them.
    fn destage_patches(&mut self, ix: PageIx) -> bool {
        if !self.ensure_frames(1) {
            return false;
        }
        let mut frame = self.take_frame();
        let bytes = frame.bytes_mut().expect("a frame just taken is not shared");
        self.pages[ix].patches.apply(bytes);
        let mut runs: Vec<_> = self.pages[ix].patches.iter().map(|(run, _)| run).collect();
        runs.reverse();
        let first = runs.pop().expect("a patched page has a run");
        let (file, seq) = self.update(ix, |page| {
            page.io = PageIo::DestagePatches;
            (page.file, std::mem::take(&mut page.dirty_seq))
        });
        self.files[file].destaging_pages += 1;
        self.destage_run(file, ix, first, frame.clone());
        self.patch_destages.insert(ix, PatchDestage { seq, frame, runs });
        true
    }

    fn destage_run(&mut self, file: FileIx, ix: PageIx, run: Run, frame: Frame) {
        let offset = self.pages[ix].number * PAGE + u64::from(run.start);
        let len = u64::from(run.len);
        self.destages_in_flight += 1;
        self.stats.destage_commands += 1;
        self.stats.destage_bytes += len;
        let io = self.next_io(Io::DestagePatches { file, offset, len, page: ix });
        let id = self.files[file].id;
        let part = Part { frame, start: run.start, len: run.len };
        self.issue(Command::Write { io, file: id, offset, parts: vec![part] });
    }

    /// A destage of frames ended.
    pub(crate) fn destaged(
        &mut self,
        file: FileIx,
        offset: u64,
        len: u64,
        pages: &[(PageIx, u64)],
        result: Result<(), ErrorKind>,
        now: Time,
    ) {
        self.write_ended(file, offset, len, result);
        if let Err(kind) = result {
            self.files[file].record_error(kind);
        }
        for &(ix, seq) in pages {
            self.files[file].destaging_pages -= 1;
            match result {
                Ok(()) => self.update(ix, |page| page.io = PageIo::None),
                Err(kind) => self.transfer_failed(ix, kind, now),
            }
            self.settle(file, seq, result);
        }
        self.report_clean(file);
    }

    /// One run of a page's patches is home, or is not: then the rest is not sent.
    pub(crate) fn patches_destaged(
        &mut self,
        file: FileIx,
        offset: u64,
        len: u64,
        ix: PageIx,
        result: Result<(), ErrorKind>,
        now: Time,
    ) {
        self.write_ended(file, offset, len, result);
        let destage = self.patch_destages.get_mut(&ix).expect("the page's patches are in transfer");
        let discarded = self.files[file].discarded;
        if let (Ok(()), false, Some(run)) = (result, discarded, destage.runs.pop()) {
            let frame = destage.frame.clone();
            self.destage_run(file, ix, run, frame);
            return;
        }
        let destage = self.patch_destages.remove(&ix).expect("just looked up");
        self.files[file].destaging_pages -= 1;
        // The pin keeps the page in the table until its waiters are woken.
        self.update(ix, |page| page.pins += 1);
        match result {
            Ok(()) => {
                let rewritten = self.pages[ix].dirty_seq != 0;
                let resident = self.pages[ix].frame.is_some();
                self.stats.fetches_avoided += u64::from(!rewritten && !resident);
                self.update(ix, |page| {
                    page.io = PageIo::None;
                    if !rewritten {
                        page.patches = PatchSet::default();
                    }
                });
            }
            Err(kind) => {
                self.files[file].record_error(kind);
                self.transfer_failed(ix, kind, now);
            }
        }
        self.settle(file, destage.seq, result);
        self.wake(ix, None, now);
        self.update(ix, |page| page.pins -= 1);
        self.report_clean(file);
    }

    /// What every ended write does to its file.
    fn write_ended(&mut self, file: FileIx, offset: u64, len: u64, result: Result<(), ErrorKind>) {
        self.destages_in_flight -= 1;
        let file = &mut self.files[file];
        file.io_in_flight -= 1;
        file.home_unsynced = true;
        match result {
            Ok(()) => {
                self.failed_in_a_row = 0;
                file.home_size = file.home_size.max(offset + len);
            }
            Err(_) => self.stats.destage_errors += 1,
        }
    }

    /// A page's transfer failed. What is dirty, or was on its way home, is kept and tried again
    /// after a pause; syncs under way are told and do not wait for that.
    pub(crate) fn transfer_failed(&mut self, ix: PageIx, kind: ErrorKind, now: Time) {
        let page = &self.pages[ix];
        let (file, io, dirty_seq) = (page.file, page.io, page.dirty_seq);
        self.last_failure = kind;
        if self.files[file].discarded {
            self.update(ix, |page| {
                page.io = PageIo::None;
                page.patches = PatchSet::default();
                page.dirty_seq = 0;
            });
            if dirty_seq != 0 {
                self.settle(file, dirty_seq, Ok(()));
            }
            return;
        }
        if io == PageIo::Fetch && dirty_seq == 0 {
            self.update(ix, |page| page.io = PageIo::None);
            return;
        }
        if self.retry.is_empty() {
            self.retry_at = now + self.config.retry_delay;
        }
        self.failed_in_a_row += 1;
        let seq = self.next_seq();
        self.update(ix, |page| {
            page.io = PageIo::None;
            page.retrying = true;
            page.dirty_seq = seq;
            page.dirty_since_ms = page.dirty_since_ms.min(now.as_millis());
        });
        if dirty_seq != 0 {
            self.settle(file, dirty_seq, Err(kind));
        }
    }

    /// Puts what failed back among the dirty, due at once, when its pause is over.
    pub(crate) fn revive_failed(&mut self, now: Time) {
        if now < self.retry_at {
            return;
        }
        let expired = now - self.config.dirty_expire - Duration::from_millis(1);
        while let Some(ix) = self.retry.back() {
            self.pages.unlink(ListKind::Dirty, &mut self.retry, ix);
            let page = &mut self.pages[ix];
            page.retrying = false;
            page.dirty_since_ms = page.dirty_since_ms.min(expired.as_millis()); // may be OVERDUE
            self.pages.push_front(ListKind::Dirty, &mut self.dirty, ix);
        }
    }

    /// Tells writers that wait for dirty data to go home that it does not: every dirty page has
    /// failed since one last came home, or what they wait for is patches whose pages cannot be
    /// fetched. Their data was not taken.
    pub(crate) fn fail_hopeless(&mut self) {
        let full = self.census.unclean_frames >= self.hard_frames || self.patches_exceed();
        let all_failed = full && self.failed_in_a_row >= self.census.unclean.max(1);
        let unfetched = self.fetches_fail && !self.retry.is_empty() && self.patches_exceed();
        // Every frame holds what failed: there is none for a reader either.
        let no_frames = all_failed && self.frames_in_flight == 0 && self.replacement.len() == 0;
        if !all_failed && !unfetched {
            return;
        }
        let kind = self.last_failure;
        for (request, file, event) in std::mem::take(&mut self.starved) {
            let hopeless = match &event {
                Event::Write { offset, data, .. } => {
                    all_failed || self.needs_patch(file, *offset, *offset + data.len() as u64)
                }
                Event::Read { .. } => no_frames,
                Event::Exclusive { .. } => false,
            };
            if hopeless {
                self.files[file].starved -= 1;
                self.reply(
                    request,
                    match event {
                        Event::Read { .. } => Reply::Read(Err(kind.into())),
                        _ => Reply::Written(Err(kind.into())),
                    },
                );
            } else {
                self.starved.push_back((request, file, event));
            }
        }
    }

    fn report_clean(&mut self, file: FileIx) {
        if !self.files[file].is_unclean() {
            self.outputs.push_back(Output::Cleaned(self.files[file].id));
        }
    }
}
