//! The disk's volatile write cache, over the image that keeps what is durable.
//!
//! Owns the content: what was written and not yet written back, by page with a bit for each sector,
//! and the image. Knows no time but what it is told, and decides nothing: which pages are written
//! back, and when, is the drive's to say.
//!
//! Invariants:
//! 1. A read sees the last write, cached or not.
//! 2. A sector is in the image, in the cache, or both; what the cache has is newer.
//! 3. `order` names every dirty page once with the number of the write that made it dirty, oldest
//!    first; entries of pages that were written back since are skipped when met.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use serde::{Deserialize, Serialize};

use super::parameters::Ns;
use crate::random::Random;

/// What can be torn: a sector is written whole or not at all.
pub const SECTOR_BYTES: u64 = 512;
/// The unit the cache is kept in.
pub const PAGE_BYTES: u64 = 4096;
const SECTORS_A_PAGE: u64 = PAGE_BYTES / SECTOR_BYTES;

/// What keeps the durable content.
pub trait Image: Send {
    /// Fills `bytes` from `offset`.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Keeps `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes `bytes` from `offset` zeroes.
    fn zero(&mut self, offset: u64, bytes: u64) -> io::Result<()>;
    /// Prepares for reads that must not take the time of the storage underneath.
    fn warm(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An image without content: a read leaves what is in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct NoContent;

impl Image for NoContent {
    fn read(&self, _offset: u64, _bytes: &mut [u8]) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn zero(&mut self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

struct Page {
    /// A bit for each sector that is newer than the image's.
    dirty: u8,
    /// The write that made it dirty, and when.
    number: u64,
    since: Ns,
    data: Box<[u8; PAGE_BYTES as usize]>,
}

/// Consecutive dirty pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What a power cut did to what was written and not made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Sectors that reached the medium all the same.
    pub kept_sectors: u64,
    /// Sectors that are as they were before.
    pub lost_sectors: u64,
    /// Pages of which some sectors were kept and some lost.
    pub torn_pages: u64,
}

/// The cache and the image under it.
pub struct Cache {
    image: Box<dyn Image>,
    pages: BTreeMap<u64, Page>,
    order: VecDeque<(u64, u64)>,
    writes: u64,
    /// Why the image could not keep what was to be written back: the end of the disk.
    fault: Option<io::Error>,
}

impl Cache {
    /// An empty cache over `image`.
    pub fn new(image: Box<dyn Image>) -> Cache {
        Cache { image, pages: BTreeMap::new(), order: VecDeque::new(), writes: 0, fault: None }
    }

    /// Bytes of pages not yet written back.
    pub fn dirty_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// The number of the last write taken in: what a flush that comes now must wait for.
    pub fn last_write(&self) -> u64 {
        self.writes
    }

    /// Whether all of a range is in the cache.
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        sectors_by_page(offset, bytes).all(|(page, sectors)| {
            self.pages.get(&page).is_some_and(|page| page.dirty & sectors == sectors)
        })
    }

    /// Takes in a write of whole sectors.
    pub fn write(&mut self, now: Ns, offset: u64, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES));
        self.writes += 1;
        let mut rest = bytes;
        for (number, sectors) in sectors_by_page(offset, bytes.len() as u64) {
            let from = (sectors.trailing_zeros() as u64 * SECTOR_BYTES) as usize;
            let count = (sectors.count_ones() as u64 * SECTOR_BYTES) as usize;
            let (part, after) = rest.split_at(count);
            rest = after;
            let page = self.pages.entry(number).or_insert_with(|| {
                self.order.push_back((number, self.writes));
                Page {
                    dirty: 0,
                    number: self.writes,
                    since: now,
                    data: Box::new([0; PAGE_BYTES as usize]),
                }
            });
            page.dirty |= sectors;
            page.data[from..from + count].copy_from_slice(part);
        }
    }

    /// Reads what was last written.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if !self.holds(offset, length) {
            self.image.read(offset, bytes)?;
        }
        let pages = offset / PAGE_BYTES..(offset + length).div_ceil(PAGE_BYTES);
        for (number, page) in self.pages.range(pages) {
            for sector in (0..SECTORS_A_PAGE).filter(|sector| page.dirty >> sector & 1 == 1) {
                let at = number * PAGE_BYTES + sector * SECTOR_BYTES;
                if at < offset || at >= offset + length {
                    continue;
                }
                let from = (sector * SECTOR_BYTES) as usize;
                let to = (at - offset) as usize;
                let sector = SECTOR_BYTES as usize;
                bytes[to..to + sector].copy_from_slice(&page.data[from..from + sector]);
            }
        }
        Ok(())
    }

    /// Makes a range read as zeroes, at once and durably.
    pub fn zero(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        let range = offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES);
        let touched: Vec<u64> = self.pages.range(range).map(|(number, _)| *number).collect();
        for number in touched {
            let covered = sectors_of_page(number, offset, bytes);
            if let Some(page) = self.pages.get_mut(&number) {
                page.dirty &= !covered;
                if page.dirty == 0 {
                    self.pages.remove(&number);
                }
            }
        }
        self.image.zero(offset, bytes)
    }

    /// The oldest dirty page: the write that made it so, when, and its first byte.
    pub fn oldest(&mut self) -> Option<(u64, Ns, u64)> {
        while let Some((page, number)) = self.order.front().copied() {
            match self.pages.get(&page) {
                Some(dirty) if dirty.number == number => {
                    return Some((number, dirty.since, page * PAGE_BYTES));
                }
                _ => self.order.pop_front(),
            };
        }
        None
    }

    /// The dirty pages that follow each other around the one at `offset`, from it on at most
    /// `bytes_max`; empty if that one is clean.
    pub fn run_from(&self, offset: u64, bytes_max: u64) -> Run {
        let first = offset / PAGE_BYTES;
        let most = bytes_max / PAGE_BYTES;
        let length = self
            .pages
            .range(first..first + most)
            .zip(first..)
            .take_while(|((number, _), wanted)| *number == wanted)
            .count();
        Run { offset: first * PAGE_BYTES, bytes: length as u64 * PAGE_BYTES }
    }

    /// The dirty runs at and after `offset`, nearest first, each cut at `bytes_max`.
    pub fn runs_after(&self, offset: u64, bytes_max: u64) -> impl Iterator<Item = Run> {
        let mut next = offset / PAGE_BYTES;
        std::iter::from_fn(move || {
            let (first, _) = self.pages.range(next..).next()?;
            let run = self.run_from(first * PAGE_BYTES, bytes_max);
            next = (run.offset + run.bytes) / PAGE_BYTES;
            Some(run)
        })
    }

    /// The dirty runs before `offset`, nearest first, each from its first page unless it is longer
    /// than `bytes_max`.
    pub fn runs_before(&self, offset: u64, bytes_max: u64) -> impl Iterator<Item = Run> {
        let mut end = offset / PAGE_BYTES;
        let most = bytes_max / PAGE_BYTES;
        std::iter::from_fn(move || {
            let (last, _) = self.pages.range(..end).next_back()?;
            let first = self
                .pages
                .range(..=last)
                .rev()
                .zip((0..=*last).rev())
                .take_while(|((number, _), wanted)| *number == wanted)
                .take(most as usize)
                .last()
                .map_or(*last, |((number, _), _)| *number);
            end = first;
            Some(Run { offset: first * PAGE_BYTES, bytes: (last + 1 - first) * PAGE_BYTES })
        })
    }

    /// Writes a run to the image and forgets it. A failure is kept for [`Cache::fault`].
    pub fn write_back(&mut self, run: Run) {
        if let Err(error) = self.try_write_back(run) {
            self.fault.get_or_insert(error);
        }
    }

    /// Why a write-back failed, if one did.
    pub fn fault(&self) -> Option<&io::Error> {
        self.fault.as_ref()
    }

    fn try_write_back(&mut self, run: Run) -> io::Result<()> {
        let first = run.offset / PAGE_BYTES;
        let mut whole = Vec::new();
        let mut whole_from = first;
        for number in first..first + run.bytes / PAGE_BYTES {
            let Some(page) = self.pages.remove(&number) else { continue };
            if page.dirty == u8::MAX {
                if whole_from + (whole.len() as u64 / PAGE_BYTES) != number {
                    self.put(whole_from, &mut whole)?;
                }
                if whole.is_empty() {
                    whole_from = number;
                }
                whole.extend_from_slice(&page.data[..]);
                continue;
            }
            self.put_sectors(number, &page, page.dirty)?;
        }
        self.put(whole_from, &mut whole)
    }

    fn put(&mut self, first: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        if !bytes.is_empty() {
            self.image.write(first * PAGE_BYTES, bytes)?;
            bytes.clear();
        }
        Ok(())
    }

    fn put_sectors(&mut self, number: u64, page: &Page, sectors: u8) -> io::Result<()> {
        for sector in (0..SECTORS_A_PAGE).filter(|sector| sectors >> sector & 1 == 1) {
            let from = (sector * SECTOR_BYTES) as usize;
            let data = &page.data[from..from + SECTOR_BYTES as usize];
            self.image.write(number * PAGE_BYTES + sector * SECTOR_BYTES, data)?;
        }
        Ok(())
    }

    /// Prepares the image for reads at memory's speed.
    pub fn warm(&self) -> io::Result<()> {
        self.image.warm()
    }

    /// What a power cut does: each dirty page is kept, lost, or torn, that is, each of its sectors
    /// is kept or lost by itself. Equal seeds do the same to equal caches.
    pub fn power_cut(&mut self, seed: u64) -> io::Result<Lost> {
        let mut random = Random::new(seed);
        let mut lost = Lost::default();
        for (number, page) in std::mem::take(&mut self.pages) {
            let kept = page.dirty
                & match random.below(3) {
                    0 => u8::MAX,
                    1 => 0,
                    _ => random.below(256) as u8,
                };
            lost.kept_sectors += u64::from(kept.count_ones());
            lost.lost_sectors += u64::from((page.dirty & !kept).count_ones());
            lost.torn_pages += u64::from(kept != 0 && kept != page.dirty);
            self.put_sectors(number, &page, kept)?;
        }
        self.order.clear();
        Ok(lost)
    }

    /// Writes everything back.
    pub fn write_back_all(&mut self) {
        while let Some((first, _)) = self.pages.first_key_value() {
            let run = self.run_from(first * PAGE_BYTES, 1 << 20);
            self.write_back(run);
        }
        self.order.clear();
    }
}

/// The pages of a range, with a bit for each sector of the range in them.
fn sectors_by_page(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u8)> {
    let pages = offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES);
    pages.map(move |page| (page, sectors_of_page(page, offset, bytes)))
}

/// A bit for each sector of `page` in the range.
fn sectors_of_page(page: u64, offset: u64, bytes: u64) -> u8 {
    let first = page * SECTORS_A_PAGE;
    (0..SECTORS_A_PAGE)
        .filter(|sector| {
            let at = (first + sector) * SECTOR_BYTES;
            at >= offset && at < offset + bytes
        })
        .fold(0, |bits, sector| bits | 1 << sector)
}
