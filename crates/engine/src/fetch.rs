//! Fetches: pages from the back end, patches applied when they arrive (NBW section 3.2).

use crate::PAGE_BYTES;
use crate::command::{Command, Urgency};
use crate::dispatch::Issue;
use crate::engine::{Engine, Io};
use crate::error::ErrorKind;
use crate::frame::Frame;
use crate::page::{FileIx, PageIo, PageIx};
use crate::patch::PatchSet;
use crate::resident::Resident;
use crate::time::Time;
use crate::write_back::Need;

const PAGE: u64 = PAGE_BYTES as u64;

/// What a fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFor {
    /// Its pages.
    Pages,
    /// A sweep: so many of its pages are patched; the others are read because they lie between, and may
    /// be resident.
    Sweep { patched: usize },
    /// The sweep's window: the same of a stretch that is then written whole.
    Window { patched: usize },
}

/// A fetch under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) file: FileIx,
    first: u64,
    pub(crate) issue: Issue,
    /// Somebody waits for it.
    waited: bool,
    /// Pages it is to make dirty frames of, if it is a sweep's.
    swept: Option<usize>,
    /// Those between patched ones are written with them.
    gaps_written: bool,
    /// It is that of the sweep's window.
    window: bool,
}

impl Engine {
    /// Fetches those of the pages (in ascending order) that are neither resident nor in transfer,
    /// neighbours in one command; spilled ones are brought back instead if somebody waits, who is
    /// woken then. Absent pages are added. False, with nothing done, if frames are
    /// missing. `need` says whether it is for a read or for what was written.
    pub(crate) fn fetch_pages(
        &mut self,
        file: FileIx,
        numbers: &[u64],
        urgency: Urgency,
        need: Need,
        now: Time,
    ) -> bool {
        if urgency == Urgency::Waited {
            self.return_awaited(file, numbers);
        }
        let wanted: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|&number| {
                let idle = self.pages.find(file, number).is_none_or(|ix| {
                    self.pages[ix].frame.is_none() && self.pages[ix].io == PageIo::None
                });
                idle && !self.is_spilled(file, number)
            })
            .collect();
        if wanted.is_empty() {
            return true;
        }
        if !self.ensure_frames(wanted.len(), need) {
            return false;
        }
        let transfer_max = self.config.transfer_pages_max as usize;
        for run in wanted.chunk_by(|a, b| a + 1 == *b) {
            for run in run.chunks(transfer_max) {
                self.issue_fetch(file, run, urgency, FetchFor::Pages, now);
            }
        }
        true
    }

    /// Fetches a run of adjacent pages, none of them in transfer; frames for it are there.
    pub(crate) fn issue_fetch(
        &mut self,
        file: FileIx,
        run: &[u64],
        urgency: Urgency,
        purpose: FetchFor,
        now: Time,
    ) {
        let first = run[0];
        let wanted = match purpose {
            FetchFor::Pages => None,
            FetchFor::Sweep { patched } | FetchFor::Window { patched } => Some(patched),
        };
        let mut frames = Vec::with_capacity(run.len());
        for &number in run {
            let ix = self.page_or_add(file, number);
            frames.push(self.take_frame());
            self.update(ix, |page| page.io = PageIo::Fetch);
        }
        let pages = wanted.unwrap_or(run.len());
        let gaps_written = wanted.is_some() && self.writes_gaps();
        let swept = if gaps_written { Some(run.len()) } else { wanted };
        let fetch = Fetch {
            file,
            first,
            issue: self.issue_now(now),
            waited: urgency == Urgency::Waited,
            swept,
            gaps_written,
            window: matches!(purpose, FetchFor::Window { .. }),
        };
        self.frames_in_flight += frames.len();
        self.fetches_in_flight += 1;
        self.sweep_fetches += usize::from(swept.is_some());
        self.converting += swept.unwrap_or(0);
        self.stats.fetch_commands += 1;
        self.stats.fetched_pages += pages as u64;
        self.stats.gap_pages += (run.len() - pages) as u64;
        if fetch.waited {
            self.waited_fetches += 1;
            self.stats.fetches_waited += pages as u64;
        }
        let io = self.next_io(Io::Fetch(fetch));
        let id = self.files[file].id;
        self.issue(Command::Fetch { io, file: id, offset: first * PAGE, frames, urgency });
    }

    /// A fetch ended: Fetching -> (Outdated -> patches applied ->) up to date, and the waiters go
    /// on. With an error the patches stay, and are tried again.
    pub(crate) fn fetched(
        &mut self,
        fetch: Fetch,
        frames: Vec<Frame>,
        result: Result<usize, ErrorKind>,
        now: Time,
    ) {
        let Fetch { file, first, issue, waited, swept, gaps_written, window } = fetch;
        if window {
            self.window_fetched(file, first);
        }
        self.files[file].io_in_flight -= 1;
        self.fetches_in_flight -= 1;
        self.frames_in_flight -= frames.len();
        self.sweep_fetches -= usize::from(swept.is_some());
        self.converting -= swept.unwrap_or(0);
        if waited {
            self.waited_fetches -= 1;
            self.waited_ended = now;
        }
        let ended = self.transfer_ended(issue, frames.len(), now);
        match result {
            Ok(_) => {
                if let Some(ended) = ended {
                    self.fetch_pace.ended(ended);
                }
                self.fetches_failed = 0;
            }
            Err(_) if issue.silent => {}
            Err(_) => {
                self.stats.fetch_errors += 1;
                self.fetches_failed += 1;
            }
        }
        let mut failed_patches = false;
        for (nth, frame) in frames.into_iter().enumerate() {
            let number = first + nth as u64;
            let ix = self.pages.find(file, number).expect("a page in transfer stays");
            assert_eq!(self.pages[ix].io, PageIo::Fetch);
            // The pin keeps the page in the table until its waiters are woken.
            self.update(ix, |page| page.pins += 1);
            let passing = window && !self.pages[ix].awaited && self.pages[ix].frame.is_none();
            let error = result.err().filter(|_| self.pages[ix].frame.is_none());
            match result {
                // Patches that are in the log alone go before what is at home.
                Ok(_) if self.pages[ix].spilled => self.update(ix, |page| page.io = PageIo::None),
                Ok(_) if swept.is_some() && !self.worth_a_frame(ix) => {
                    self.update(ix, |page| page.io = PageIo::None);
                }
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
            let whole = result.is_ok_and(|read| read >= (nth + 1) * PAGE_BYTES);
            if gaps_written && whole && self.may_write_clean(ix) {
                // At once, lest it is dropped before those around it are written.
                self.dirty_clean(ix, now);
                self.pages[ix].set_passing(passing);
            }
            self.update(ix, |page| page.pins -= 1);
        }
        if let (true, Err(kind)) = (failed_patches, result) {
            self.files[file].record_error(kind);
        }
    }

    /// Whether a page that a sweep read is kept: it is patched, somebody waits for it, frames are
    /// plenty, or it will be written with those around it.
    fn worth_a_frame(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        let plenty = self.census.frames + self.frames_in_flight + self.frames_max / 16;
        page.dirty_seq != 0
            || page.awaited
            || plenty < self.frames_bound()
            || self.fetches_are_slow()
    }

    /// Gives a page its fetched content, of which `read` bytes (or more) came from home.
    fn install(&mut self, ix: PageIx, mut frame: Frame, read: usize) {
        if self.pages[ix].frame.is_some() {
            // Overwritten whole meanwhile: what was fetched is out of date.
            self.update(ix, |page| page.io = PageIo::None);
            return;
        }
        let size = self.files[self.pages[ix].file].size();
        let inside = size.saturating_sub(self.pages[ix].number * PAGE).min(PAGE) as usize;
        let bytes = frame.bytes_mut().expect("a fetch's frames come back unshared");
        bytes[read.min(inside)..].fill(0);
        self.pages[ix].patches.apply(bytes);
        self.replacement.admit(&mut self.pages, ix);
        self.update(ix, |page| {
            page.io = PageIo::None;
            page.frame = Some(Resident::new(frame));
            page.patches = PatchSet::default();
        });
    }
}
