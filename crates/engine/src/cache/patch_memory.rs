//! The patch memory that a write would take.

use weir_frames::PAGE_BYTES;

use crate::cache::Cache;
use crate::cache::page::{DESCRIPTOR_BYTES, PageIo};
use crate::cache::patch::PatchSet;
use crate::place::{FileIx, PageIx};

const PAGE: u64 = PAGE_BYTES as u64;

/// More runs than these are not written byte by byte: each is a request, and a fetch and a write of the page are two.
const BYTE_RUNS_MAX: usize = 4;

impl Cache {
    /// The most patch memory that a patch of `len` bytes takes on a page without a frame.
    pub(crate) fn page_growth(&self, ix: PageIx, len: usize) -> usize {
        let patches = &self.pages[ix].patches;
        let descriptor = if patches.is_empty() { DESCRIPTOR_BYTES } else { 0 };
        descriptor + patches.growth_bytes_max(len)
    }

    /// The most patch memory that a write takes.
    pub(crate) fn patch_growth(&self, file: FileIx, offset: u64, end: u64) -> usize {
        let of_page = |number: u64| {
            let start = offset.max(number * PAGE);
            let len = (end.min((number + 1) * PAGE) - start) as usize;
            if len == PAGE_BYTES {
                return 0;
            }
            match self.pages.find(file, number) {
                Some(ix) if self.pages[ix].frame.is_some() || self.is_new(file, ix) => 0,
                Some(ix) => self.page_growth(ix, len),
                None if number * PAGE >= self.files[file].home_size => 0,
                None => DESCRIPTOR_BYTES + PatchSet::default().growth_bytes_max(len),
            }
        };
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        of_page(first) + if last > first { of_page(last) } else { 0 }
    }

    /// Whether a write would leave a patch: only its first and its last page can be partial.
    pub(crate) fn needs_patch(&self, file: FileIx, offset: u64, end: u64) -> bool {
        self.patch_growth(file, offset, end) > 0
    }

    /// Whether the page lies wholly past the end of the file at home: it is zeros, and need not be fetched.
    pub(crate) fn is_new(&self, file: FileIx, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        page.number * PAGE >= self.files[file].home_size
            && page.io == PageIo::None
            && page.patches.is_empty()
    }

    /// Whether a page's patches can be written home without a fetch.
    pub(crate) fn patches_go_home_as_they_are(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        let file = &self.files[page.file];
        let file_end = file.size().saturating_sub(page.number * PAGE).min(PAGE) as usize;
        let are_few = file.write_unit > 1 || page.patches.iter().count() <= BYTE_RUNS_MAX;
        !file.readable || are_few && page.patches.covers_units(file.write_unit, file_end)
    }
}
