//! Memory for patches: what a write would take of it, and whether the write has to wait for that.

use weir_frames::PAGE_BYTES;

use crate::config::FetchPolicy;
use crate::engine::Engine;
use crate::place::FileIx;
use crate::waiters::freeze_state::Event;

impl Engine {
    /// Whether a write has to wait until patches go: what it leaves does not fit. What would never
    /// fit is fetched for instead, as under [`FetchPolicy::Blocking`].
    pub(crate) fn must_wait_for_patch_memory(&self, file: FileIx, offset: u64, end: u64) -> bool {
        let left = self.patch_memory_left();
        // Most writes need not be looked at: no page takes more than this.
        if left >= 4 * PAGE_BYTES || self.config.fetch_policy == FetchPolicy::Blocking {
            return false;
        }
        let growth = self.cache.patch_growth(file, offset, end);
        growth > left && growth <= self.config.patch_bytes_max as usize
    }

    /// Whether a write waits behind those that are waiting: it, too, needs patch memory.
    pub(crate) fn takes_turns(&self, file: FileIx, offset: u64, end: u64) -> bool {
        self.config.fetch_policy != FetchPolicy::Blocking
            && self.cache.needs_patch(file, offset, end)
    }

    /// Whether an event that waits is a write for which patch memory is missing.
    pub(crate) fn lacks_patch_memory(&self, file: FileIx, event: &Event) -> bool {
        let Event::Write { target, data, .. } = event else { return false };
        let offset = self.cache.files[file].offset_of(*target);
        let end = offset + data.len() as u64;
        self.must_wait_for_patch_memory(file, offset, end)
            || self.patches_exceed() && self.cache.needs_patch(file, offset, end)
    }
}
