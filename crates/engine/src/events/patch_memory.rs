//! Memory for patches: what a write would take of it, and whether the write has to wait for that.

use weir_frames::PAGE_BYTES;

use crate::cache::page::DESCRIPTOR_BYTES;
use crate::cache::patch::PatchSet;
use crate::config::FetchPolicy;
use crate::engine::Engine;
use crate::place::{FileIx, PageIx};
use crate::waiters::gate::Event;

const PAGE: u64 = PAGE_BYTES as u64;

impl Engine {
    /// Whether a write would leave a patch: only its first and its last page can be partial.
    pub(crate) fn needs_patch(&self, file: FileIx, offset: u64, end: u64) -> bool {
        self.patch_growth(file, offset, end) > 0
    }

    /// At most how much patch memory a write takes.
    pub(crate) fn patch_growth(&self, file: FileIx, offset: u64, end: u64) -> usize {
        let of_page = |number: u64| {
            let start = offset.max(number * PAGE);
            let len = (end.min((number + 1) * PAGE) - start) as usize;
            if len == PAGE_BYTES {
                return 0;
            }
            match self.cache.pages.find(file, number) {
                Some(ix) if self.cache.pages[ix].frame.is_some() || self.is_new(file, ix) => 0,
                Some(ix) => self.page_growth(ix, len),
                None if number * PAGE >= self.cache.files[file].home_size => 0,
                None => DESCRIPTOR_BYTES + PatchSet::default().growth_bytes_max(len),
            }
        };
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        of_page(first) + if last > first { of_page(last) } else { 0 }
    }

    /// At most how much patch memory a patch of `len` bytes takes on a page without a frame.
    pub(crate) fn page_growth(&self, ix: PageIx, len: usize) -> usize {
        let patches = &self.cache.pages[ix].patches;
        let descriptor = if patches.is_empty() { DESCRIPTOR_BYTES } else { 0 };
        descriptor + patches.growth_bytes_max(len)
    }

    /// Whether a write has to wait until patches go: what it leaves does not fit. What would never
    /// fit is fetched for instead, as under [`FetchPolicy::Blocking`].
    pub(crate) fn must_wait_for_patch_memory(&self, file: FileIx, offset: u64, end: u64) -> bool {
        let left = self.patch_memory_left();
        // Most writes need not be looked at: no page takes more than this.
        if left >= 4 * PAGE_BYTES || self.config.fetch_policy == FetchPolicy::Blocking {
            return false;
        }
        let growth = self.patch_growth(file, offset, end);
        growth > left && growth <= self.config.patch_bytes_max as usize
    }

    /// Whether a write waits behind those that are waiting: it, too, needs patch memory.
    pub(crate) fn takes_turns(&self, file: FileIx, offset: u64, end: u64) -> bool {
        self.config.fetch_policy != FetchPolicy::Blocking && self.needs_patch(file, offset, end)
    }

    /// Whether an event that waits is a write for which patch memory is missing.
    pub(crate) fn lacks_patch_memory(&self, file: FileIx, event: &Event) -> bool {
        let Event::Write { target, data, .. } = event else { return false };
        let offset = self.cache.files[file].offset_of(*target);
        let end = offset + data.len() as u64;
        self.must_wait_for_patch_memory(file, offset, end)
            || self.patches_exceed() && self.needs_patch(file, offset, end)
    }
}
