//! The cache: pages in memory, the frames and patches that hold them, and their files.
//!
//! Owns the pages, which of them are dirty and since when, which clean page is evicted next, and which reads would hit
//! in a smaller or a larger memory (ghosts). Does not own transfers: fetches and destages belong to the device, their
//! timing to write-back.
//!
//! Invariants:
//! - a page is changed by [`crate::Engine::update`] alone, which updates the census, the dirty sets and the replacement
//!   order;
//! - frames held and in flight are `frames_max` at most;
//! - each number in the order of dirtying is used once.

mod board;
pub(crate) mod census;
pub(crate) mod change;
mod charges;
mod content;
pub(crate) mod dirty;
pub(crate) mod file;
pub(crate) mod files;
mod frames;
pub(crate) mod ghost;
pub(crate) mod order;
pub(crate) mod page;
mod pages;
pub(crate) mod patch;
mod patch_memory;
pub(crate) mod ranges;
pub(crate) mod replacement;
pub(crate) mod resident;
pub(crate) mod spill;
pub(crate) mod spilled;
mod spilled_pages;
pub(crate) mod turnover;
pub(crate) mod two_lists;
pub(crate) mod unlogged;

use std::time::Duration;

use weir_frames::{Frame, FramePool, PAGE_BYTES};

use crate::cache::census::Census;
use crate::cache::dirty::DirtySets;
use crate::cache::files::Files;
use crate::cache::ghost::GhostMisses;
use crate::cache::page::{DESCRIPTOR_BYTES, Pages};
use crate::cache::replacement::Replacement;
use crate::cache::spill::Spill;
use crate::cache::turnover::Turnover;
use crate::cache::unlogged::UnloggedBytes;

/// Memory of a resident page.
pub(crate) const FRAME_BYTES: usize = PAGE_BYTES + DESCRIPTOR_BYTES;

/// Pages, and their frames and patches.
pub(crate) struct Cache {
    pub(crate) pool: FramePool,
    /// A frame of zeros, for reads of holes past the end of the file at home.
    pub(crate) zeros: Frame,
    /// Frames that pages may hold.
    pub(crate) frames_max: usize,
    /// Frames in fetches in flight.
    pub(crate) frames_in_flight: usize,
    pub(crate) files: Files,
    pub(crate) pages: Pages,
    pub(crate) census: Census,
    pub(crate) turnover: Turnover,
    pub(crate) replacement: Replacement,
    /// Pages that were evicted for written data.
    pub(crate) ghosts: GhostMisses,
    /// Dirty, idle pages.
    pub(crate) dirty: DirtySets,
    /// Patches that left memory for the log.
    pub(crate) spill: Spill,
    /// How much is to be logged, if everything is.
    pub(crate) unlogged: UnloggedBytes,
    /// The order of dirtying; the last number given.
    pub(crate) seq: u64,
}

impl Cache {
    /// An empty cache of `frames_max` frames; `None` if the pool has none.
    pub(crate) fn new(
        pool: FramePool,
        frames_max: usize,
        dirty_expire: Duration,
        ghosts: GhostMisses,
    ) -> Option<Cache> {
        let mut zeros = pool.take()?;
        zeros.bytes_mut().expect("a frame just taken is not shared").fill(0);
        Some(Cache {
            pool,
            zeros,
            frames_max,
            frames_in_flight: 0,
            files: Files::default(),
            pages: Pages::default(),
            census: Census::default(),
            turnover: Turnover::default(),
            replacement: Replacement::default(),
            ghosts,
            dirty: DirtySets::new(dirty_expire),
            spill: Spill::new(dirty_expire),
            unlogged: UnloggedBytes::default(),
            seq: 0,
        })
    }
}
