//! The lane as a program maps it, and its free slots for files.
//!
//! Has its own random numbers, because reading in the lane must change nothing else, except which pages are evicted.

use std::sync::Arc;

use weir_engine::FramePool;
use weir_lane::board::View;
use weir_lane::region::Region;

use crate::rng::Rng;

/// What programs map, and the numbers of files there.
pub(crate) struct Lane {
    pub(crate) view: View,
    pub(crate) region: Arc<Region>,
    /// The smallest is used next: a number is soon another file's.
    free: Vec<u32>,
    pub(crate) rng: Rng,
    pub(crate) hits: u64,
}

impl Lane {
    pub(crate) fn new(pool: &FramePool) -> Lane {
        let (board, frames) = pool.board().zip(pool.fd()).expect("the world's frames are shared");
        let view = View::map(board.fd(), frames).expect("address space for the frames");
        let (region, _) = Region::create(board.frames()).expect("address space for a region");
        let region = Arc::new(region);
        board.add_client(Arc::clone(&region));
        Lane { view, region, free: (0..8).rev().collect(), rng: Rng::new(11), hits: 0 }
    }

    /// A number for a file that enters the lane; `None` if all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// A file has left the lane.
    pub(crate) fn free(&mut self, slot: u32) {
        self.free.push(slot);
        self.free.sort_unstable_by_key(|&slot| std::cmp::Reverse(slot));
    }
}
