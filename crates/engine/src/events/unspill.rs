//! Reading patches back from the log: page by page for a reader or a writer, in windows for sweeps and syncs.
//!
//! A window is as many pages in ascending order as there is patch memory for. Each spill is in the log in the order of
//! its pages, so a window is one piece of each spill, and is read in one scan of the log.

use weir_log::{BLOCK_BYTES, Block, Lsn, Writer};

use crate::cache::patch::PatchSet;
use crate::cache::resident::Resident;
use crate::cache::spill::{LOOKED_AT_MAX, RETURN_SHARE, Return, Window};
use crate::cache::spilled::LogExtent;
use crate::command::{IoId, LogCommand, Output};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{FileIx, PageIx};
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;
use crate::write_back::need::Need;

/// Patch memory that a window may always take if no transfer in flight will free some.
const WINDOW_BYTES_MIN: usize = 64 << 10;

pub(crate) fn place_of(writer: &Writer, block: Lsn) -> u64 {
    writer.place(block).expect("the log keeps what is spilled")
}

/// The blocks an extent's bytes are in.
pub(crate) fn blocks_of(extent: LogExtent) -> impl Iterator<Item = Lsn> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let (first, end) = (extent.lsn().0, extent.lsn().0 + u64::from(extent.run.len));
    (first / BLOCK..end.div_ceil(BLOCK)).map(|block| Lsn(block * BLOCK))
}

/// An extent's bytes, out of the blocks that hold them.
pub(crate) fn bytes_of<'a>(extent: LogExtent, block_at: impl Fn(Lsn) -> &'a Block) -> Vec<u8> {
    let (start, end) = (extent.lsn().0, extent.lsn().0 + u64::from(extent.run.len));
    let mut bytes = Vec::with_capacity(usize::from(extent.run.len));
    for block in blocks_of(extent) {
        let from = start.saturating_sub(block.0) as usize;
        let to = (end - block.0).min(BLOCK_BYTES as u64) as usize;
        bytes.extend_from_slice(&block_at(block).0[from..to]);
    }
    bytes
}

impl Engine {
    /// Starts to read back spilled pages that a request waits for, unless they are being read.
    pub(crate) fn return_awaited(&mut self, file: FileIx, numbers: &[u64]) {
        let wanted: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|&number| {
                self.cache.is_spilled(file, number)
                    && !self.cache.spill.reading.contains_key(&(file, number))
            })
            .collect();
        if !wanted.is_empty() {
            self.read_log(file, wanted, false);
        }
    }

    /// Reads back spilled pages that syncs wait for, that are due, or that keep the log full.
    pub(crate) fn return_windows(&mut self, now: Time) {
        if self.cache.spill.index.is_empty() || now < self.cache.spill.retry_at {
            return;
        }
        let mut at = FileIx(0);
        while let Some(&file) = self.write_back.sweeps.urgent.range(at..).next() {
            at = file.next();
            let of_file = &self.cache.files[file];
            if of_file.spilled_pages == 0
                || !of_file.waiters.is_urgent()
                || of_file.waiters.freeze == FreezeState::Frozen
            {
                continue;
            }
            let Some(last) = self.return_window(file, of_file.sweeps.returned_to) else { continue };
            self.cache.files[file].sweeps.returned_to = last + 1;
        }
        let due = self.expires_ms(self.cache.spill.index.oldest_ms()).is_some_and(|due| due <= now);
        let pressed = !self.can_spill() && self.patches_press();
        if (due || pressed)
            && let Some((file, number)) = self.cache.next_spilled()
            && let Some(last) = self.return_window(file, number)
        {
            self.cache.spill.swept_to = (file, last + 1);
        }
    }

    /// Starts to read back a window of a file from page `from` on, or else from its first spilled page. Returns the last
    /// page of the window; `None` if no page is spilled, or there is no room.
    pub(crate) fn return_window(&mut self, file: FileIx, from: u64) -> Option<u64> {
        let room = self.window_bytes()?;
        let frames =
            self.cache.convertible().min(self.converted_max().saturating_sub(self.unclean_soon()));
        let pick = |from| {
            let (mut bytes, mut covered) = (0, 0);
            let mut numbers = Vec::new();
            for (number, page) in self.cache.spill.index.of(file, from).take(LOOKED_AT_MAX) {
                if self.cache.spill.reading.contains_key(&(file, number)) {
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
        self.cache.spill.window = Some(Window { file, first, last, is_dense });
        self.read_log(file, numbers, true);
        Some(last)
    }

    /// The patch memory that the next window may take.
    pub(crate) fn window_bytes(&self) -> Option<usize> {
        if self.cache.spill.windows > 0 {
            return None;
        }
        let in_use = self.cache.census.returned_bytes + self.cache.spill.returning_bytes;
        let most = self.config.patch_bytes_max as usize / RETURN_SHARE;
        let left = most.saturating_sub(in_use);
        // On a rotational device, sweeps write the pages of a window before the next window is read.
        let swept = self.cache.dirty.returned.is_empty() || !self.config.rotational;
        let idle =
            self.device.in_flight.sweep_fetches + self.device.in_flight.destages == 0 && swept;
        if left >= (most - most / 4).max(WINDOW_BYTES_MIN) {
            Some(left)
        } else if idle {
            Some(WINDOW_BYTES_MIN)
        } else {
            None
        }
    }

    /// Reads the spilled patches of a file's pages.
    pub(crate) fn read_log(&mut self, file: FileIx, numbers: Vec<u64>, window: bool) {
        let io = self.device.next_log_io();
        let writer = self.journal.as_ref().expect("what is spilled is in a log").shared.writer();
        let mut places = Vec::new();
        let mut bytes = 0;
        for &number in &numbers {
            let page = self.cache.spill.index.get((file, number)).expect("the page is spilled");
            bytes += page.patch_bytes_max();
            for extent in &page.extents {
                places.extend(blocks_of(*extent).map(|block| place_of(writer, block)));
            }
            self.cache.spill.reading.insert((file, number), io);
        }
        places.sort_unstable();
        places.dedup();
        self.cache.files[file].home.io_in_flight += 1;
        self.cache.spill.returning_bytes += bytes;
        self.cache.spill.windows += usize::from(window);
        self.stats.log_reads += 1;
        self.stats.log_read_blocks += places.len() as u64;
        self.outputs.push_back(Output::Log(LogCommand::Read { io, places: places.clone() }));
        self.cache.spill.reads.insert(io, Return { file, numbers, places, bytes, window });
    }

    /// A read of the log ended, with the blocks that it asked for, in their order.
    pub fn log_read(&mut self, io: IoId, result: Result<Vec<Block>, ErrorKind>, now: Time) {
        self.clock = now;
        let read = self.cache.spill.reads.remove(&io).expect("a read of the log ends once");
        let Return { file, numbers, places, bytes, window } = read;
        self.cache.files[file].home.io_in_flight -= 1;
        self.cache.spill.returning_bytes -= bytes;
        self.cache.spill.windows -= usize::from(window);
        match result {
            Ok(_) => self.cache.spill.failed_in_a_row = 0,
            Err(kind) => {
                self.stats.log_read_errors += 1;
                self.cache.spill.failed_in_a_row += 1;
                self.cache.spill.retry_at = now + self.config.retry_delay;
                self.device.failures.last = kind;
                self.cache.files[file].record_error(kind);
            }
        }
        for number in numbers {
            let place = (file, number);
            if self.cache.spill.reading.get(&place) != Some(&io) {
                continue; // Overwritten whole, truncated or dropped in the meantime.
            }
            self.cache.spill.reading.remove(&place);
            // The page is in the table, or is added: requests wait for it.
            let ix = self.cache.page_or_add(file, number);
            self.update(ix, |page| page.pins += 1);
            match &result {
                Ok(blocks) => self.take_back(ix, &places, blocks),
                Err(kind) => {
                    let seq = self.cache.next_seq();
                    let before = self.cache.spill.index.set_seq(place, seq);
                    self.settle(file, before, Err(*kind));
                }
            }
            self.wake(ix, result.as_ref().err().copied(), now);
            self.update(ix, |page| page.pins -= 1);
        }
        self.end_abandoned_freezes(now);
        self.progress(file, now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// Merges the patches read from the log into a page, under those written since. They stay spilled if they need a frame
    /// and none is free.
    pub(crate) fn take_back(&mut self, ix: PageIx, places: &[u64], blocks: &[Block]) {
        if self.is_ordered() && !self.cache.pages[ix].unlogged.is_empty() {
            // In more pieces they would take more room than the log has been seen to have.
            self.log_everything();
        }
        let (file, number) = (self.cache.pages[ix].file, self.cache.pages[ix].number);
        let writer = self.journal.as_ref().expect("what is spilled is in a log").shared.writer();
        let spilled = self.cache.spill.index.get((file, number)).expect("the page is spilled");
        let mut patches = PatchSet::default();
        for &extent in &spilled.extents {
            let bytes = bytes_of(extent, |block| {
                let nth = places.binary_search(&place_of(writer, block));
                &blocks[nth.expect("the block was asked for")]
            });
            patches.insert(usize::from(extent.run.start), &bytes);
        }
        for (run, bytes) in self.cache.pages[ix].patches.iter() {
            patches.insert(usize::from(run.start), bytes);
        }
        let frame = if patches.covers_page() {
            if !self.ensure_frames(1, Need::Write) {
                return;
            }
            let mut frame = self.cache.take_frame();
            patches.apply(frame.bytes_mut().expect("a frame just taken is not shared"));
            self.cache.replacement.admit(&mut self.cache.pages, ix);
            self.stats.fetches_avoided += 1;
            Some(frame)
        } else {
            None
        };
        let spilled = self.cache.remove_spilled((file, number)).expect("just looked up");
        self.inherit(ix, &spilled, |page| {
            page.patches = if frame.is_some() { PatchSet::default() } else { patches };
            page.frame = frame.map(Resident::new);
            page.returned = true;
        });
    }
}
