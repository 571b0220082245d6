//! Whether a write has to wait for patch memory.

use weir_frames::PAGE_BYTES;

use crate::config::FetchPolicy;
use crate::engine::Engine;
use crate::place::FileIx;
use crate::waiters::freeze_state::Event;

impl Engine {
    /// Whether a write has to wait because its patches do not fit patch memory. For a write that would never fit, the
    /// pages are fetched instead, as under [`FetchPolicy::Blocking`].
    pub(crate) fn must_wait_for_patch_memory(&self, file: FileIx, offset: u64, end: u64) -> bool {
        let left = self.patch_memory_left();
        // The common case: a write leaves at most two patches, which take no more than this.
        if left >= 4 * PAGE_BYTES || self.config.fetch_policy == FetchPolicy::Blocking {
            return false;
        }
        let growth = self.cache.patch_growth(file, offset, end);
        growth > left && growth <= self.config.patch_bytes_max as usize
    }

    /// Whether a write must queue behind writes that wait for patch memory, because it needs patch memory too.
    pub(crate) fn takes_turns(&self, file: FileIx, offset: u64, end: u64) -> bool {
        self.config.fetch_policy != FetchPolicy::Blocking
            && self.cache.needs_patch(file, offset, end)
    }

    /// Whether a waiting event is a write that does not fit patch memory.
    pub(crate) fn lacks_patch_memory(&self, file: FileIx, event: &Event) -> bool {
        let Event::Write { target, data, .. } = event else { return false };
        let offset = self.cache.files[file].offset_of(*target);
        let end = offset + data.len() as u64;
        self.must_wait_for_patch_memory(file, offset, end)
            || self.patches_exceed() && self.cache.needs_patch(file, offset, end)
    }
}
