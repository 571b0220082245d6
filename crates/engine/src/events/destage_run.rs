//! Runs of dirty pages that are written home by one request, with clean pages between them where that is cheaper.

use crate::cache::order::GAP_WRITTEN_MAX;
use crate::cache::page::Listed;
use crate::command::IoId;
use crate::engine::Engine;
use crate::place::{FileIx, PageIx};
use crate::time::Time;

/// A run that is being written home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destaged {
    pub(crate) io: IoId,
    /// Its last page.
    pub(crate) last: u64,
    pub(crate) pages: u64,
}

impl Engine {
    /// The dirty resident pages around `number`, ascending, at most one transfer. On a slow device, with clean pages
    /// between them, where writing these again costs less than another request.
    pub(crate) fn dirty_run(&self, file: FileIx, number: u64) -> Vec<u64> {
        let is_dirty = |number: u64| {
            let found = self.cache.pages.find(file, number);
            found.is_some_and(|ix| self.cache.pages[ix].listed == Listed::Resident)
        };
        let is_clean = |number: u64| {
            let found = self.cache.pages.find(file, number);
            found.is_some_and(|ix| self.cache.may_write_clean(ix))
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
            let ix = self.cache.listed(file, number);
            !self.log_superseding(ix, now)
        });
        run.truncate(stops.unwrap_or(run.len()));
        // The last page of a run must be dirty itself.
        while run.last().is_some_and(|&number| {
            let ix = self.cache.listed(file, number);
            self.cache.pages[ix].dirty_seq == 0
        }) {
            run.pop();
        }
        self.dirty_between(file, &run, now);
        let last = *run.last()?;
        let io = self.destage_frames(file, &run, now);
        Some(Destaged { io, last, pages: run.len() as u64 })
    }

    /// Whether clean pages between dirty ones are written with them.
    pub(crate) fn writes_gaps(&self) -> bool {
        self.fetches_are_slow()
    }

    /// Makes the clean pages of a run dirty, to be written with the others.
    pub(crate) fn dirty_between(&mut self, file: FileIx, run: &[u64], now: Time) {
        for &number in run {
            let ix = self.cache.pages.find(file, number).expect("a run's pages are resident");
            if self.cache.pages[ix].dirty_seq == 0 {
                self.dirty_clean(ix, now);
            }
        }
    }

    /// Makes a clean page dirty, to be written together with its neighbours.
    pub(crate) fn dirty_clean(&mut self, ix: PageIx, now: Time) {
        let seq = self.cache.next_seq();
        self.update(ix, |page| {
            page.dirtied(seq, now);
            page.set_between(true);
        });
        self.stats.gap_pages_written += 1;
    }
}
