//! Fetches: pages from the back end, patches applied when they arrive (NBW section 3.2).

use weir_frames::{Frame, PAGE_BYTES};

use crate::cache::page::PageIo;
use crate::cache::patch::PatchSet;
use crate::cache::resident::Resident;
use crate::command::{Command, Urgency};
use crate::device::transfer::{Fetch, FetchFor, Io};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{FileIx, PageIx};
use crate::time::Time;
use crate::write_back::need::Need;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Fetches those of the pages (in ascending order) that are neither resident nor in transfer, adjacent ones by one
    /// command. If a request waits, spilled pages are read back from the log instead, and the request is woken then.
    /// Absent pages are added. False, with nothing done, if frames are missing. `need` says whether the fetch is for a
    /// read or for written data.
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
                let idle = self.cache.pages.find(file, number).is_none_or(|ix| {
                    self.cache.pages[ix].frame.is_none() && self.cache.pages[ix].io == PageIo::None
                });
                idle && !self.cache.is_spilled(file, number)
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

    /// Fetches a run of adjacent pages, none of them in transfer. There must be free frames for all of them.
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
            let ix = self.cache.page_or_add(file, number);
            frames.push(self.cache.take_frame());
            self.update(ix, |page| page.io = PageIo::Fetch);
        }
        let pages = wanted.unwrap_or(run.len());
        let gaps_written = wanted.is_some() && self.writes_gaps();
        let swept = if gaps_written { Some(run.len()) } else { wanted };
        let fetch = Fetch {
            file,
            first,
            issue: self.device.issue_now(now),
            waited: urgency == Urgency::Waited,
            swept,
            gaps_written,
            window: matches!(purpose, FetchFor::Window { .. }),
        };
        self.cache.frames_in_flight += frames.len();
        self.device.in_flight.fetches += 1;
        self.device.in_flight.sweep_fetches += usize::from(swept.is_some());
        self.device.in_flight.converting += swept.unwrap_or(0);
        self.stats.fetch_commands += 1;
        self.stats.fetched_pages += pages as u64;
        self.stats.gap_pages += (run.len() - pages) as u64;
        if fetch.waited {
            self.device.in_flight.waited_fetches += 1;
            self.stats.fetches_waited += pages as u64;
        }
        let io = self.device.next_io(Io::Fetch(fetch));
        let id = self.cache.files[file].id;
        self.issue(Command::Fetch { io, file: id, offset: first * PAGE, frames, urgency });
    }

    /// A fetch ended: Fetching -> (Outdated -> patches applied ->) up to date, and waiting requests continue. After an
    /// error the patches stay, and the fetch is retried.
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
        self.cache.files[file].home.io_in_flight -= 1;
        self.device.in_flight.fetches -= 1;
        self.cache.frames_in_flight -= frames.len();
        self.device.in_flight.sweep_fetches -= usize::from(swept.is_some());
        self.device.in_flight.converting -= swept.unwrap_or(0);
        if waited {
            self.device.in_flight.waited_fetches -= 1;
            self.device.in_flight.waited_ended = now;
        }
        let ended = self.device.transfer_ended(issue, frames.len(), now);
        match result {
            Ok(_) => {
                if let Some(ended) = ended {
                    self.device.costs.fetch.ended(ended);
                }
                self.device.failures.fetches = 0;
            }
            Err(_) if issue.silent => {}
            Err(_) => {
                self.stats.fetch_errors += 1;
                self.device.failures.fetches += 1;
            }
        }
        let mut failed_patches = false;
        for (nth, frame) in frames.into_iter().enumerate() {
            let number = first + nth as u64;
            let ix = self.cache.pages.find(file, number).expect("a page in transfer stays");
            assert_eq!(self.cache.pages[ix].io, PageIo::Fetch);
            // The pin keeps the page in the table until its waiters are woken.
            self.update(ix, |page| page.pins += 1);
            let passing =
                window && !self.cache.pages[ix].awaited && self.cache.pages[ix].frame.is_none();
            let error = result.err().filter(|_| self.cache.pages[ix].frame.is_none());
            match result {
                // Patches that are in the log only are newer than the fetched page.
                Ok(_) if self.cache.pages[ix].spilled => {
                    self.update(ix, |page| page.io = PageIo::None)
                }
                Ok(_) if swept.is_some() && !self.worth_a_frame(ix) => {
                    self.update(ix, |page| page.io = PageIo::None);
                }
                Ok(read) => self.install(ix, frame, read.saturating_sub(nth * PAGE_BYTES)),
                // Overwritten whole in the meantime: the failure has no effect.
                Err(_) if self.cache.pages[ix].frame.is_some() => {
                    self.update(ix, |page| page.io = PageIo::None);
                }
                Err(kind) => {
                    failed_patches |= self.cache.pages[ix].dirty_seq != 0;
                    self.transfer_failed(ix, kind, now);
                }
            }
            self.wake(ix, error, now);
            let whole = result.is_ok_and(|read| read >= (nth + 1) * PAGE_BYTES);
            if gaps_written && whole && self.cache.may_write_clean(ix) {
                // At once, so that it is not dropped before its neighbours are written.
                self.dirty_clean(ix, now);
                self.cache.pages[ix].set_passing(passing);
            }
            self.update(ix, |page| page.pins -= 1);
        }
        if let (true, Err(kind)) = (failed_patches, result) {
            self.cache.files[file].record_error(kind);
        }
    }

    /// Whether a page that a sweep read is kept: it is patched, a request waits for it, enough frames are free, or it
    /// will be written together with its neighbours.
    pub(crate) fn worth_a_frame(&self, ix: PageIx) -> bool {
        let page = &self.cache.pages[ix];
        let plenty =
            self.cache.census.frames + self.cache.frames_in_flight + self.cache.frames_max / 16;
        page.dirty_seq != 0
            || page.awaited
            || plenty < self.cache.frames_bound()
            || self.fetches_are_slow()
    }

    /// Gives a page its fetched content, of which `read` bytes (or more) came from home.
    pub(crate) fn install(&mut self, ix: PageIx, mut frame: Frame, read: usize) {
        if self.cache.pages[ix].frame.is_some() {
            // Overwritten whole in the meantime: the fetched bytes are out of date.
            self.update(ix, |page| page.io = PageIo::None);
            return;
        }
        let size = self.cache.files[self.cache.pages[ix].file].size();
        let inside = size.saturating_sub(self.cache.pages[ix].number * PAGE).min(PAGE) as usize;
        let bytes = frame.bytes_mut().expect("a fetch's frames come back unshared");
        bytes[read.min(inside)..].fill(0);
        self.cache.pages[ix].patches.apply(bytes);
        self.cache.replacement.admit(&mut self.cache.pages, ix);
        self.update(ix, |page| {
            page.io = PageIo::None;
            page.frame = Some(Resident::new(frame));
            page.patches = PatchSet::default();
        });
    }
}
