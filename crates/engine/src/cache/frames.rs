//! Counts of frames: held by pages, free, and available.

use weir_frames::Frame;

use crate::cache::{Cache, FRAME_BYTES};

impl Cache {
    pub(crate) fn take_frame(&self) -> Frame {
        self.pool.take().expect("ensure_frames found enough, and only the engine takes frames")
    }

    /// The number of frames that fit the memory beside the index of spilled patches.
    pub(crate) fn frames_bound(&self) -> usize {
        self.frames_max.saturating_sub(self.spill.index.bytes() / FRAME_BYTES)
    }

    /// Frames that are free or hold a clean page that can be dropped.
    pub(crate) fn frames_available(&self) -> usize {
        let free = self.frames_bound().saturating_sub(self.census.frames + self.frames_in_flight);
        free.min(self.pool.free() as usize) + self.replacement.len()
    }

    /// The number of patched pages that may be fetched in order to go home, or because they were written. Each becomes
    /// a dirty frame; some frames are always left for readers.
    pub(crate) fn convertible(&self) -> usize {
        let most = self.frames_bound() - self.frames_max / 8;
        most.saturating_sub(self.census.unclean_frames + self.frames_in_flight)
    }

    /// The number of frames that patch memory amounts to.
    pub(crate) fn patch_frames(&self) -> usize {
        self.census.patch_bytes.div_ceil(FRAME_BYTES)
    }

    /// Dirty memory, in frames.
    pub(crate) fn dirty_frames(&self) -> usize {
        self.census.unclean_frames + self.patch_frames()
    }
}
