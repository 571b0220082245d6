//! Fetches: pages from the back end, patches applied when they arrive (NBW section 3.2).

use crate::PAGE_BYTES;
use crate::command::{Command, Urgency};
use crate::engine::{Engine, Io};
use crate::error::ErrorKind;
use crate::frame::Frame;
use crate::page::{FileIx, PageIo, PageIx};
use crate::patch::PatchSet;
use crate::time::Time;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Fetches those of the pages (in ascending order) that are neither resident nor in transfer,
    /// neighbours in one command. Absent pages are added. False, with nothing done, if frames are
    /// missing.
    pub(crate) fn fetch_pages(
        &mut self,
        file: FileIx,
        numbers: &[u64],
        urgency: Urgency,
        now: Time,
    ) -> bool {
        let wanted: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|&number| {
                self.pages.find(file, number).is_none_or(|ix| {
                    self.pages[ix].frame.is_none() && self.pages[ix].io == PageIo::None
                })
            })
            .collect();
        if wanted.is_empty() {
            return true;
        }
        if !self.ensure_frames(wanted.len()) {
            return false;
        }
        let transfer_max = self.config.transfer_pages_max as usize;
        for run in wanted.chunk_by(|a, b| a + 1 == *b) {
            for run in run.chunks(transfer_max) {
                self.issue_fetch(file, run, urgency, false, now);
            }
        }
        true
    }

    /// Fetches a run of adjacent pages; frames for it are there.
    pub(crate) fn issue_fetch(
        &mut self,
        file: FileIx,
        run: &[u64],
        urgency: Urgency,
        for_destage: bool,
        now: Time,
    ) {
        let first = run[0];
        let mut frames = Vec::with_capacity(run.len());
        for &number in run {
            let ix = self.page_or_add(file, number);
            frames.push(self.take_frame());
            self.update(ix, |page| page.io = PageIo::Fetch);
        }
        self.frames_in_flight += frames.len();
        self.fetches_in_flight += 1;
        self.destage_fetches_in_flight += usize::from(for_destage);
        self.stats.fetch_commands += 1;
        self.stats.fetched_pages += frames.len() as u64;
        if urgency == Urgency::Waited {
            self.stats.fetches_waited += frames.len() as u64;
        }
        let io = self.next_io(Io::Fetch { file, first, issued: now, for_destage });
        let id = self.files[file].id;
        self.issue(Command::Fetch { io, file: id, offset: first * PAGE, frames, urgency });
    }

    /// A fetch ended: Fetching -> (Outdated -> patches applied ->) up to date, and the waiters go
    /// on. With an error the patches stay, and are tried again.
    pub(crate) fn fetched(
        &mut self,
        file: FileIx,
        first: u64,
        frames: Vec<Frame>,
        result: Result<usize, ErrorKind>,
        issued: Time,
        now: Time,
    ) {
        self.files[file].io_in_flight -= 1;
        self.fetches_in_flight -= 1;
        self.frames_in_flight -= frames.len();
        self.fetches_fail = result.is_err();
        match result {
            Ok(_) => {
                let took = now.since(issued).as_nanos() as u64;
                self.fetch_latency_ns = match self.fetch_latency_ns {
                    0 => took,
                    average => average - average / 8 + took / 8,
                };
            }
            Err(_) => self.stats.fetch_errors += 1,
        }
        let mut failed_patches = false;
        for (nth, frame) in frames.into_iter().enumerate() {
            let number = first + nth as u64;
            let ix = self.pages.find(file, number).expect("a page in transfer stays");
            assert_eq!(self.pages[ix].io, PageIo::Fetch);
            // The pin keeps the page in the table until its waiters are woken.
            self.update(ix, |page| page.pins += 1);
            let error = result.err().filter(|_| self.pages[ix].frame.is_none());
            match result {
                Ok(read) => self.install(ix, frame, read.saturating_sub(nth * PAGE_BYTES)),
                // Overwritten whole meanwhile: the fetch's failure is nobody's concern.
                Err(_) if self.pages[ix].frame.is_some() => {
                    self.update(ix, |page| page.io = PageIo::None);
                }
                Err(kind) => {
                    failed_patches |= self.pages[ix].dirty_seq != 0;
                    self.transfer_failed(ix, kind, now);
                }
            }
            self.wake(ix, error, now);
            self.update(ix, |page| page.pins -= 1);
        }
        if let (true, Err(kind)) = (failed_patches, result) {
            self.files[file].record_error(kind);
        }
    }

    /// Gives a page its fetched content, of which `read` bytes (or more) came from home.
    fn install(&mut self, ix: PageIx, mut frame: Frame, read: usize) {
        if self.pages[ix].frame.is_some() {
            // Overwritten whole meanwhile: what was fetched is out of date.
            self.update(ix, |page| page.io = PageIo::None);
            return;
        }
        let size = self.files[self.pages[ix].file].size;
        let inside = size.saturating_sub(self.pages[ix].number * PAGE).min(PAGE) as usize;
        let bytes = frame.bytes_mut().expect("a fetch's frames come back unshared");
        bytes[read.min(inside)..].fill(0);
        self.pages[ix].patches.apply(bytes);
        self.replacement.admit(&mut self.pages, ix);
        self.update(ix, |page| {
            page.io = PageIo::None;
            page.frame = Some(frame);
            page.patches = PatchSet::default();
        });
    }
}
