//! Destages: dirty data on its way home, and what happens when it does not get there.
//!
//! What goes when is `sweep`'s. Adjacent dirty pages go out as one request. Patches that cover whole
//! write units go home as they are; other patched pages are fetched first.

use std::time::Duration;

use crate::PAGE_BYTES;
use crate::command::{Command, IoId, Output, Part, Reply};
use crate::dirty::{FIRST, Place};
use crate::engine::{Content, Engine, Io, PatchDestage};
use crate::error::ErrorKind;
use crate::file::Event;
use crate::frame::Frame;
use crate::page::{FileIx, PageIo, PageIx};
use crate::patch::{PatchSet, Run};
use crate::repair::Settled;
use crate::time::Time;
use crate::write_back::Need;

const PAGE: u64 = PAGE_BYTES as u64;

/// Fetches that failed one after the other before writers that wait for patch memory are told.
const FETCHES_FAILED_MAX: usize = 16;

impl Engine {
    pub(crate) fn patches_go_home_as_they_are(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        let file = &self.files[page.file];
        let file_end = file.size().saturating_sub(page.number * PAGE).min(PAGE) as usize;
        !file.readable || page.patches.covers_units(file.write_unit, file_end)
    }

    pub(crate) fn destage_frames(&mut self, file: FileIx, run: &[u64], now: Time) -> IoId {
        let size = self.files[file].size();
        let offset = run[0] * PAGE;
        let behind = run.iter().filter_map(|&number| self.superseded_by(file, number)).max();
        let mut parts = Vec::with_capacity(run.len());
        let mut pages = Vec::with_capacity(run.len());
        let mut len = 0;
        for &number in run {
            let ix = self.pages.find(file, number).expect("a dirty page is in the table");
            let inside = (size - number * PAGE).min(PAGE);
            len += inside;
            let content = self.send_home(ix, PageIo::Destage);
            let frame = self.pages[ix].frame.as_ref().expect("the page is resident");
            let frame = frame.frame().clone();
            parts.push(Part { frame, start: 0, len: inside as u16 });
            pages.push(content);
        }
        self.files[file].destaging_pages += pages.len();
        let issue = self.issue_now(now);
        self.destages_in_flight += 1;
        self.stats.destage_commands += 1;
        self.stats.destage_bytes += len;
        let io = self.next_io(Io::Destage { file, offset, len, pages, issue });
        let id = self.files[file].id;
        self.issue_behind(behind, Command::Write { io, file: id, offset, parts });
        io
    }

    /// Starts to send a page's patches home, run after run. They stay readable, and a write
    /// meanwhile makes the page dirty again. False if no frame is free to carry them.
    pub(crate) fn destage_patches(&mut self, ix: PageIx, now: Time) -> bool {
        if !self.log_superseding(ix, now) {
            return true;
        }
        if !self.ensure_frames(1, Need::Write) {
            return false;
        }
        let mut frame = self.take_frame();
        let bytes = frame.bytes_mut().expect("a frame just taken is not shared");
        self.pages[ix].patches.apply(bytes);
        let mut runs: Vec<_> = self.pages[ix].patches.iter().map(|(run, _)| run).collect();
        runs.reverse();
        let first = runs.pop().expect("a patched page has a run");
        let content = self.send_home(ix, PageIo::DestagePatches);
        let file = self.pages[ix].file;
        self.files[file].destaging_pages += 1;
        self.destage_run(file, ix, first, frame.clone(), now);
        self.patch_destages.insert(ix, PatchDestage { content, frame, runs });
        true
    }

    /// A page's content starts on its way home.
    fn send_home(&mut self, ix: PageIx, io: PageIo) -> Content {
        self.update(ix, |page| {
            page.io = io;
            let seq = std::mem::take(&mut page.dirty_seq);
            Content { page: ix, seq, rec: page.rec.take() }
        })
    }

    /// A page's content did not get home: the page needs of the log what the content did.
    fn take_back_need(&mut self, content: Content) {
        let (file, own) = (self.pages[content.page].file, self.pages[content.page].rec);
        let rec = self.one_need(file, content.rec, own);
        self.update(content.page, |page| page.rec = rec);
    }

    /// A page's content is home.
    fn settle_need(&mut self, file: FileIx, content: Content) {
        if let Some(rec) = content.rec {
            self.files[file].logged.needs.settle(rec);
        }
    }

    fn destage_run(&mut self, file: FileIx, ix: PageIx, run: Run, frame: Frame, now: Time) {
        let offset = self.pages[ix].number * PAGE + u64::from(run.start);
        let len = u64::from(run.len);
        let issue = self.issue_now(now);
        self.destages_in_flight += 1;
        self.stats.destage_commands += 1;
        self.stats.destage_bytes += len;
        let io = self.next_io(Io::DestagePatches { file, offset, len, page: ix, issue });
        let id = self.files[file].id;
        let part = Part { frame, start: run.start, len: run.len };
        let behind = self.superseded_by(file, self.pages[ix].number);
        self.issue_behind(behind, Command::Write { io, file: id, offset, parts: vec![part] });
    }

    /// A destage of frames ended.
    pub(crate) fn destaged(
        &mut self,
        file: FileIx,
        offset: u64,
        len: u64,
        pages: &[Content],
        result: Result<(), ErrorKind>,
        now: Time,
    ) {
        self.write_ended(file, offset, len, result);
        if let Err(kind) = result {
            self.files[file].record_error(kind);
        }
        for &content in pages {
            let ix = content.page;
            self.files[file].destaging_pages -= 1;
            match result {
                Ok(()) => {
                    self.settle_need(file, content);
                    let Settled { epoch, until, .. } = self.files[file].settled;
                    self.update(ix, |page| {
                        page.io = PageIo::None;
                        page.home_unlogged &= page.home_epoch > until;
                        page.home_epoch = epoch;
                    });
                    self.home_without_log(file, ix);
                }
                Err(kind) => {
                    self.take_back_need(content);
                    self.transfer_failed(ix, kind, now);
                }
            }
            self.settle(file, content.seq, result);
            self.let_pass(ix);
        }
        self.report_clean(file);
    }

    /// A page that came into memory only to be written makes room again: readers' pages would else go for it.
    fn let_pass(&mut self, ix: PageIx) {
        let page = &mut self.pages[ix];
        if !page.is_passing() {
            return;
        }
        page.set_passing(false);
        if page.io == PageIo::None && page.dirty_seq == 0 && page.pins == 0 {
            self.update(ix, |page| page.frame = None);
        }
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
            self.destage_run(file, ix, run, frame, now);
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
                self.settle_need(file, destage.content);
                let Settled { epoch, until, .. } = self.files[file].settled;
                self.update(ix, |page| {
                    page.io = PageIo::None;
                    page.home_unlogged &= page.home_epoch > until;
                    page.home_epoch = epoch;
                    if !rewritten {
                        page.patches = PatchSet::default();
                    }
                });
                self.home_without_log(file, ix);
            }
            Err(kind) => {
                self.files[file].record_error(kind);
                self.take_back_need(destage.content);
                self.transfer_failed(ix, kind, now);
            }
        }
        self.settle(file, destage.content.seq, result);
        self.wake(ix, None, now);
        self.update(ix, |page| page.pins -= 1);
        self.report_clean(file);
    }

    /// A page's content is home. If some of it was never in the log, and no newer bytes of it are waiting to
    /// be logged, the file's next sync has to sync home.
    fn home_without_log(&mut self, file: FileIx, ix: PageIx) {
        let logs = self.logs(file);
        let page = &mut self.pages[ix];
        page.home_unlogged |= page.dirty_seq == 0 && !(logs && page.unlogged.is_empty());
        if page.home_unlogged && page.frame.is_none() {
            self.files[file].settled.evicted(page.home_epoch);
        }
        if page.dirty_seq == 0 && !page.unlogged.is_empty() {
            self.update(ix, |page| page.unlogged = Default::default());
            self.files[file].home_unsynced = true;
        }
    }

    /// What every ended write does to its file.
    fn write_ended(&mut self, file: FileIx, offset: u64, len: u64, result: Result<(), ErrorKind>) {
        self.destages_in_flight -= 1;
        let file = &mut self.files[file];
        file.io_in_flight -= 1;
        // What is in the log is durable without home.
        file.home_unsynced |= file.identity.is_empty();
        match result {
            // What was withdrawn is nowhere.
            Ok(()) if file.discarded => {}
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
                page.unlogged = Default::default();
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
        while let Some(place) = self.retry.next(FIRST) {
            self.revive(place, expired.as_millis()); // may be OVERDUE
        }
    }

    /// The same for one file, whose failed pages a sync does not leave alone for their pause.
    pub(crate) fn revive_failed_of(&mut self, file: FileIx) {
        while let Some(number) = self.retry.next_of(file, 0) {
            self.revive((file, number), u64::MAX);
        }
    }

    fn revive(&mut self, (file, number): Place, since_ms: u64) {
        let ix = self.pages.find(file, number).expect("a dirty page is in the table");
        self.update(ix, |page| {
            page.retrying = false;
            page.dirty_since_ms = page.dirty_since_ms.min(since_ms);
        });
    }

    /// Tells writers that wait for dirty data to go home that it does not: every dirty page has
    /// failed since one last came home, or what they wait for is patches whose pages cannot be
    /// fetched. Their data was not taken.
    pub(crate) fn fail_hopeless(&mut self) {
        let Some((_, file, event)) = self.starved.front() else { return };
        let patches_full = self.lacks_patch_memory(*file, event);
        let full = self.census.unclean_frames >= self.dirty_bound() || patches_full;
        // Patches over spilled ones cannot be tried before those are back.
        let tried = self.census.unclean - self.spill.over.len();
        let all_failed = full && self.failed_in_a_row >= tried.max(1);
        let none_left = self.patched.pages().is_empty()
            && self.spill.returned.is_empty()
            && self.sweep_fetches == 0;
        let unfetched = patches_full
            && !self.retry.is_empty()
            && self.fetches_failed > if none_left { 0 } else { FETCHES_FAILED_MAX };
        // They lie over others in a log that cannot be read.
        let stuck = patches_full && none_left && self.spill.is_stuck();
        // Every frame holds what failed: there is none for a reader either.
        let no_frames = all_failed && self.frames_in_flight == 0 && self.replacement.len() == 0;
        if !all_failed && !unfetched && !stuck {
            return;
        }
        let kind = self.last_failure;
        for (request, file, event) in std::mem::take(&mut self.starved) {
            let hopeless = match &event {
                Event::Write { .. } => all_failed || self.lacks_patch_memory(file, &event),
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
