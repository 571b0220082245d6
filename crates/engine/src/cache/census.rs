//! Sums over all pages, updated when a page changes.

use crate::cache::page::{Page, PageIo};

/// Sums over pages, kept by [`Engine::update`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) frames: usize,
    pub(crate) unclean: usize,
    pub(crate) unclean_frames: usize,
    /// Of these, those that will be clean once they are home.
    pub(crate) homebound: usize,
    pub(crate) patched: usize,
    pub(crate) patch_bytes: usize,
    /// Of these, the bytes of pages that came back from the log.
    pub(crate) returned_bytes: usize,
}

impl Census {
    pub(crate) fn of(page: &Page) -> Census {
        let resident = page.frame.is_some();
        let unclean = page.is_unclean();
        let patch_bytes = page.patch_memory_bytes();
        Census {
            frames: usize::from(resident),
            unclean: usize::from(unclean),
            unclean_frames: usize::from(unclean && resident),
            homebound: usize::from(resident && page.dirty_seq == 0 && page.io == PageIo::Destage),
            patched: usize::from(patch_bytes > 0),
            patch_bytes,
            returned_bytes: if page.returned { patch_bytes } else { 0 },
        }
    }

    pub(crate) fn replace(&mut self, before: Census, after: Census) {
        self.frames = self.frames + after.frames - before.frames;
        self.unclean = self.unclean + after.unclean - before.unclean;
        self.unclean_frames = self.unclean_frames + after.unclean_frames - before.unclean_frames;
        self.homebound = self.homebound + after.homebound - before.homebound;
        self.patched = self.patched + after.patched - before.patched;
        self.patch_bytes = self.patch_bytes + after.patch_bytes - before.patch_bytes;
        self.returned_bytes = self.returned_bytes + after.returned_bytes - before.returned_bytes;
    }
}
