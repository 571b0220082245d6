//! Destages: writing dirty data home, and handling writes that failed.
//!
//! `sweep` decides which pages go home when. Adjacent dirty pages are written by one request. Patches that cover whole
//! write units are written as they are; other patched pages are fetched first.

use weir_frames::{Frame, PAGE_BYTES};

use crate::cache::page::PageIo;
use crate::cache::patch::{PatchSet, Run};
use crate::command::{Command, IoId, Output, Part};
use crate::device::transfer::{Content, Io, PatchDestage};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::journal::settled::Settled;
use crate::place::{FileIx, PageIx};
use crate::time::Time;
use crate::write_back::need::Need;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    pub(crate) fn destage_frames(&mut self, file: FileIx, run: &[u64], now: Time) -> IoId {
        let size = self.cache.files[file].size();
        let offset = run[0] * PAGE;
        let behind = run.iter().filter_map(|&number| self.superseded_by(file, number)).max();
        let mut parts = Vec::with_capacity(run.len());
        let mut pages = Vec::with_capacity(run.len());
        let mut len = 0;
        for &number in run {
            let ix = self.cache.pages.find(file, number).expect("a dirty page is in the table");
            let inside = (size - number * PAGE).min(PAGE);
            len += inside;
            let content = self.send_home(ix, PageIo::Destage);
            let frame = self.cache.pages[ix].frame.as_ref().expect("the page is resident");
            let frame = frame.frame().clone();
            parts.push(Part { frame, start: 0, len: inside as u16 });
            pages.push(content);
        }
        self.cache.files[file].destaging_pages += pages.len();
        let issue = self.device.issue_now(now);
        self.device.in_flight.destages += 1;
        self.stats.destage_commands += 1;
        self.stats.destage_bytes += len;
        let io = self.device.next_io(Io::Destage { file, offset, len, pages, issue });
        let id = self.cache.files[file].id;
        self.issue_behind(behind, Command::Write { io, file: id, offset, parts });
        io
    }

    /// Starts to write a page's patches home, run after run. They stay readable, and a write in the meantime makes the
    /// page dirty again. False if no frame is free to carry them.
    pub(crate) fn destage_patches(&mut self, ix: PageIx, now: Time) -> bool {
        if !self.log_superseding(ix, now) {
            return true;
        }
        if !self.ensure_frames(1, Need::Write) {
            return false;
        }
        let mut frame = self.cache.take_frame();
        let bytes = frame.bytes_mut().expect("a frame just taken is not shared");
        self.cache.pages[ix].patches.apply(bytes);
        let mut runs: Vec<_> = self.cache.pages[ix].patches.iter().map(|(run, _)| run).collect();
        runs.reverse();
        let first = runs.pop().expect("a patched page has a run");
        let content = self.send_home(ix, PageIo::DestagePatches);
        let file = self.cache.pages[ix].file;
        self.cache.files[file].destaging_pages += 1;
        self.destage_run(file, ix, first, frame.clone(), now);
        self.device.patch_destages.insert(ix, PatchDestage { content, frame, runs });
        true
    }

    /// A page's content enters transfer to home.
    pub(crate) fn send_home(&mut self, ix: PageIx, io: PageIo) -> Content {
        let losses = self.cache.files[self.cache.pages[ix].file].settled.losses;
        self.update(ix, |page| {
            page.io = io;
            let seq = std::mem::take(&mut page.dirty_seq);
            Content { page: ix, seq, rec: page.rec.take(), losses }
        })
    }

    /// Whether a sync of home failed while a content was on its way: home may have lost what it says it has taken.
    fn may_be_lost(&self, file: FileIx, content: Content) -> bool {
        let file = &self.cache.files[file];
        !file.discarded && content.losses != file.settled.losses
    }

    /// Makes a page dirty again whose content home may have lost. Syncs that wait for that content go on waiting; what was written to
    /// the page since goes home together with it.
    fn dirty_again(&mut self, file: FileIx, content: Content) {
        self.take_back_retained(content);
        let newer = self.cache.pages[content.page].dirty_seq;
        self.update(content.page, |page| {
            page.io = PageIo::None;
            page.dirty_seq = content.seq;
        });
        if newer != 0 {
            self.settle(file, newer, Ok(()));
        }
        if self.cache.files[file].waiters.is_urgent() {
            self.write_back.sweeps.urgent.insert(file);
        }
    }

    /// A page's content was not written home: the page takes over the content's log retention.
    pub(crate) fn take_back_retained(&mut self, content: Content) {
        let (file, own) = (self.cache.pages[content.page].file, self.cache.pages[content.page].rec);
        let rec = self.merge_retained(file, content.rec, own);
        self.update(content.page, |page| page.rec = rec);
    }

    /// A page's content is home.
    pub(crate) fn settle_retained(&mut self, file: FileIx, content: Content) {
        if let Some(rec) = content.rec {
            self.cache.files[file].logged.retention.settle(rec);
        }
    }

    pub(crate) fn destage_run(
        &mut self,
        file: FileIx,
        ix: PageIx,
        run: Run,
        frame: Frame,
        now: Time,
    ) {
        let offset = self.cache.pages[ix].number * PAGE + u64::from(run.start);
        let len = u64::from(run.len);
        let issue = self.device.issue_now(now);
        self.device.in_flight.destages += 1;
        self.stats.destage_commands += 1;
        self.stats.destage_bytes += len;
        let io = self.device.next_io(Io::DestagePatches { file, offset, len, page: ix, issue });
        let id = self.cache.files[file].id;
        let part = Part { frame, start: run.start, len: run.len };
        let behind = self.superseded_by(file, self.cache.pages[ix].number);
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
        let told = self.told_of_write(file, result);
        if let Err(kind) = told {
            self.cache.files[file].record_error(kind);
        }
        for &content in pages {
            let ix = content.page;
            self.cache.files[file].destaging_pages -= 1;
            match result {
                Ok(()) if self.may_be_lost(file, content) => {
                    self.dirty_again(file, content);
                    continue;
                }
                Ok(()) => {
                    self.settle_retained(file, content);
                    let Settled { epoch, until, .. } = self.cache.files[file].settled;
                    self.update(ix, |page| {
                        page.io = PageIo::None;
                        page.home_unlogged &= page.home_epoch > until;
                        page.home_epoch = epoch;
                    });
                    self.home_without_log(file, ix);
                }
                Err(kind) => {
                    self.take_back_retained(content);
                    self.transfer_failed(ix, kind, now);
                }
            }
            self.settle(file, content.seq, told);
            self.let_pass(ix);
        }
        self.report_clean(file);
    }

    /// Drops a page that was fetched only to be written, so that it does not displace readers' pages.
    pub(crate) fn let_pass(&mut self, ix: PageIx) {
        let page = &mut self.cache.pages[ix];
        if !page.is_passing() {
            return;
        }
        page.set_passing(false);
        if page.io == PageIo::None && page.dirty_seq == 0 && page.pins == 0 {
            self.update(ix, |page| page.frame = None);
        }
    }

    /// The write of one run of a page's patches ended. If it failed, the other runs are not sent.
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
        let told = self.told_of_write(file, result);
        let destage = &self.device.patch_destages[&ix];
        let may_be_lost = result.is_ok() && self.may_be_lost(file, destage.content);
        let goes_on = result.is_ok() && !may_be_lost && !self.cache.files[file].discarded;
        let destage =
            self.device.patch_destages.get_mut(&ix).expect("the page's patches are in transfer");
        if let (true, Some(run)) = (goes_on, destage.runs.pop()) {
            let frame = destage.frame.clone();
            self.destage_run(file, ix, run, frame, now);
            return;
        }
        let destage = self.device.patch_destages.remove(&ix).expect("just looked up");
        self.cache.files[file].destaging_pages -= 1;
        // The pin keeps the page in the table until its waiters are woken.
        self.update(ix, |page| page.pins += 1);
        match result {
            Ok(()) if may_be_lost => self.dirty_again(file, destage.content),
            Ok(()) => {
                let rewritten = self.cache.pages[ix].dirty_seq != 0;
                let resident = self.cache.pages[ix].frame.is_some();
                self.stats.fetches_avoided += u64::from(!rewritten && !resident);
                self.settle_retained(file, destage.content);
                let Settled { epoch, until, .. } = self.cache.files[file].settled;
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
                if told.is_err() {
                    self.cache.files[file].record_error(kind);
                }
                self.take_back_retained(destage.content);
                self.transfer_failed(ix, kind, now);
            }
        }
        if !may_be_lost {
            self.settle(file, destage.content.seq, told);
        }
        self.wake(ix, None, now);
        self.update(ix, |page| page.pins -= 1);
        self.report_clean(file);
    }

    /// A page's content is home. If some of it was never in the log, and no newer bytes of the page are waiting to be
    /// logged, the file's next sync must sync home.
    pub(crate) fn home_without_log(&mut self, file: FileIx, ix: PageIx) {
        let logs = self.logs(file);
        let page = &mut self.cache.pages[ix];
        page.home_unlogged |= page.dirty_seq == 0 && !(logs && page.unlogged.is_empty());
        if page.home_unlogged && page.frame.is_none() {
            self.cache.files[file].settled.evicted(page.home_epoch);
        }
        if page.dirty_seq == 0 && !page.unlogged.is_empty() {
            self.update(ix, |page| page.unlogged = Default::default());
            self.cache.files[file].home.unsynced = true;
        }
    }

    /// What syncs and descriptions are told of a write that ended. Of a file that was discarded meanwhile nothing has failed:
    /// its data is dropped, and its descriptors may have been closed before the write began.
    fn told_of_write(&self, file: FileIx, result: Result<(), ErrorKind>) -> Result<(), ErrorKind> {
        if self.cache.files[file].discarded { Ok(()) } else { result }
    }

    /// The effect of every ended write on its file.
    pub(crate) fn write_ended(
        &mut self,
        file: FileIx,
        offset: u64,
        len: u64,
        result: Result<(), ErrorKind>,
    ) {
        self.device.in_flight.destages -= 1;
        let file = &mut self.cache.files[file];
        file.home.io_in_flight -= 1;
        // A logged file's data is durable without a sync of home.
        file.home.unsynced |= !file.logged.is_identified();
        match result {
            // A discarded file's writes may have been cancelled: they say nothing of its size at home.
            Ok(()) if file.discarded => {}
            Ok(()) => {
                self.device.failures.in_a_row = 0;
                file.home_size = file.home_size.max(offset + len);
                // Home has space for the whole pages: of a file that was made at home with data in memory nobody asked.
                let (from, to) = (offset.next_multiple_of(PAGE), (offset + len) / PAGE * PAGE);
                if from < to && file.first_free(from, to).is_some() {
                    file.set_allocated(from, to);
                }
            }
            Err(_) if file.discarded => {}
            Err(_) => self.stats.destage_errors += 1,
        }
    }

    pub(crate) fn report_clean(&mut self, file: FileIx) {
        if !self.cache.files[file].is_unclean() {
            self.outputs.push_back(Output::Cleaned(self.cache.files[file].id));
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_frames::{FramePool, PAGE_BYTES};

    use crate::command::{
        Command, Completion, Durability, FileId, HomeAttributes, IoId, Outcome, Output, Reply,
        RequestId,
    };
    use crate::config::Config;
    use crate::engine::Engine;
    use crate::error::ErrorKind;
    use crate::time::Time;

    const FILE: FileId = FileId(7);
    const SYNC: RequestId = RequestId(2);

    /// The writes that are given to home, and the answers; reservations and syncs of home end at once.
    fn outputs(engine: &mut Engine, now: Time) -> (Vec<IoId>, Vec<(RequestId, Reply)>) {
        let (mut writes, mut replies) = (Vec::new(), Vec::new());
        loop {
            engine.dispatch();
            let Some(output) = engine.next_output() else { return (writes, replies) };
            match output {
                Output::Command(Command::Write { io, .. }) => writes.push(io),
                Output::Command(Command::Reserve { io, .. }) => {
                    engine.complete(io, Completion::Reserved { result: Ok(()) }, now);
                }
                Output::Command(Command::Sync { io, .. }) => {
                    engine.complete(io, Completion::Synced { result: Ok(()) }, now);
                }
                Output::Reply { request, reply } => replies.push((request, reply)),
                _ => {}
            }
        }
    }

    fn engine(keeps_unsynced: bool) -> Engine {
        let config = Config {
            memory_bytes_max: 16 << 20,
            patch_bytes_max: 1 << 20,
            keeps_unsynced,
            ..Config::default()
        };
        Engine::new(config, FramePool::new(8192).unwrap()).unwrap()
    }

    /// What patches, each of 10 bytes, take until they are home: ranges that are written, and fetches.
    fn way_home(write_unit: u32, keeps: bool, places: &[u64]) -> (Vec<(u64, u64)>, usize) {
        let mut engine = engine(keeps);
        let now = Time::from_millis(1);
        let size = 4 * PAGE_BYTES as u64;
        engine.attach(FILE, HomeAttributes { size, dense: true, write_unit, readable: true });
        for (number, &at) in (10..).zip(places) {
            let _ = engine.write(RequestId(number), FILE, at, &[1; 10], Durability::None, now);
        }
        let _ = engine.sync(SYNC, FILE, Durability::Data, now);
        let (mut written, mut fetches) = (Vec::new(), 0);
        loop {
            engine.dispatch();
            match engine.next_output() {
                None => break,
                Some(Output::Command(Command::Write { io, offset, parts, .. })) => {
                    written.push((offset, parts.iter().map(|part| u64::from(part.len)).sum()));
                    engine.complete(io, Completion::Written { result: Ok(()) }, now);
                }
                Some(Output::Command(Command::Fetch { io, frames, .. })) => {
                    fetches += 1;
                    let result = Ok(frames.len() * PAGE_BYTES);
                    engine.complete(io, Completion::Fetched { frames, result }, now);
                }
                Some(Output::Command(Command::Reserve { io, .. })) => {
                    engine.complete(io, Completion::Reserved { result: Ok(()) }, now);
                }
                Some(Output::Command(Command::Sync { io, .. })) => {
                    engine.complete(io, Completion::Synced { result: Ok(()) }, now);
                }
                Some(_) => {}
            }
        }
        assert!(!engine.has_dirty(FILE));
        (written, fetches)
    }

    #[test]
    fn a_home_that_takes_bytes_is_given_few_changes_of_a_page_without_a_fetch() {
        assert_eq!(way_home(1, true, &[100, 5000]), (vec![(100, 10), (5000, 10)], 0));
        assert_eq!(way_home(1, true, &[1000, 2000, 3000, 4000]).1, 0);
        // Each would be a request.
        assert_eq!(way_home(1, true, &[500, 1000, 2000, 3000, 4000]), (vec![(0, 4096)], 1));
        assert_eq!(way_home(512, true, &[100]), (vec![(0, 4096)], 1));
        // It may lose them when they are not in memory any more.
        assert_eq!(way_home(1, false, &[100]), (vec![(0, 4096)], 1));
    }

    #[test]
    fn a_sync_is_not_told_of_a_write_that_failed_because_its_file_was_discarded() {
        for len in [PAGE_BYTES, 512] {
            let mut engine = engine(false);
            let now = Time::from_millis(1);
            // Sectors can be written without the page.
            let size = PAGE_BYTES as u64;
            engine.attach(
                FILE,
                HomeAttributes { size, dense: true, write_unit: 512, readable: true },
            );
            let data = vec![7; len];
            let _ = engine.write(RequestId(1), FILE, 0, &data, Durability::None, now);
            outputs(&mut engine, now);
            assert_eq!(engine.sync_all(SYNC, now), Outcome::Pending);
            let (writes, replies) = outputs(&mut engine, now);
            assert_eq!((writes.len(), replies.len()), (1, 0));
            engine.discard(FILE);
            engine.complete(writes[0], Completion::Written { result: Err(ErrorKind::Io) }, now);
            let (_, replies) = outputs(&mut engine, now);
            assert!(matches!(replies[..], [(SYNC, Reply::Synced(Ok(())))]), "{replies:?}");
            assert!(!engine.has_dirty(FILE));
            engine.check_invariants();
        }
    }

    #[test]
    fn what_is_on_its_way_when_a_sync_of_home_fails_is_written_again() {
        for (data, homes) in [(vec![1; 512], 3), (vec![1; PAGE_BYTES], 2)] {
            let mut engine = engine(false);
            let now = Time::from_millis(1);
            let size = 4 * PAGE_BYTES as u64;
            engine.attach(
                FILE,
                HomeAttributes { size, dense: true, write_unit: 512, readable: true },
            );
            // What home had is durable, and cannot be lost.
            let _ = engine.sync(RequestId(8), FILE, Durability::Data, now);
            outputs(&mut engine, now);
            // Two runs of one page, or a page.
            for at in [0, 1024] {
                let at = if data.len() == 512 { at } else { 0 };
                let _ = engine.write(RequestId(9), FILE, at, &data, Durability::None, now);
            }
            let _ = engine.sync(SYNC, FILE, Durability::Data, now);
            let (writes, replies) = outputs(&mut engine, now);
            assert_eq!((writes.len(), replies.len()), (1, 0));
            engine.home_sync_failed(ErrorKind::Io, None, now);
            let again = RequestId(3);
            assert_eq!(engine.sync(again, FILE, Durability::Data, now), Outcome::Pending);
            let (mut written, mut under_way) = (0, writes);
            let mut answers = Vec::new();
            while let Some(io) = under_way.pop() {
                assert!(answers.is_empty(), "not all of it is home: {answers:?}");
                written += 1;
                engine.complete(io, Completion::Written { result: Ok(()) }, now);
                let (writes, replies) = outputs(&mut engine, now);
                under_way.extend(writes);
                answers.extend(replies);
            }
            assert_eq!(written, homes);
            let expected = matches!(
                answers[..],
                [(SYNC, Reply::Synced(Err(_))), (to, Reply::Synced(Ok(())))] if to == again
            );
            assert!(expected, "{answers:?}");
            engine.check_invariants();
        }
    }
}
