//! Publishing pages on the lane's board.
//!
//! Invariants:
//! - a published frame is the frame of the page that its key names, and the page's file is in the lane;
//! - no page of a file that left the lane is on the board.

use crate::cache::Cache;
use crate::cache::page::Page;
use crate::place::PageIx;

/// Pages published together when one of them is read: an aligned group of this many.
const PAGES_AROUND: u64 = 64;

impl Cache {
    /// A page was read: publishes it, so that programs find it without the kernel the next time. If it was not on the
    /// board, its neighbours are published too: they are probably not on the board either, and are likely to be read
    /// soon.
    #[inline]
    pub(crate) fn publish_read(&self, ix: PageIx) {
        let page = &self.pages[ix];
        if let (Some(slot), Some(frame)) = (self.files[page.file].slot(), &page.frame) {
            let was_published = frame.is_published();
            frame.publish(slot, page.number);
            if !was_published {
                self.publish_around(slot, page);
            }
        }
    }

    #[cold]
    pub(crate) fn publish_around(&self, slot: u32, page: &Page) {
        let first = page.number / PAGES_AROUND * PAGES_AROUND;
        for number in first..first + PAGES_AROUND {
            if let Some(ix) = self.pages.find(page.file, number)
                && let Some(frame) = &self.pages[ix].frame
                && !frame.is_published()
            {
                frame.publish(slot, number);
            }
        }
    }

    /// A page was written: publishes it unless it is on the board. If it is on the board but slow to find there, the next
    /// read publishes it again.
    #[inline]
    pub(crate) fn publish_written(&self, ix: PageIx) {
        let page = &self.pages[ix];
        if let (Some(slot), Some(frame)) = (self.files[page.file].slot(), &page.frame)
            && !frame.is_published()
        {
            frame.publish(slot, page.number);
        }
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check_lane(&self) {
        let Some(board) = self.pool.board() else { return };
        let mut by_slot = std::collections::HashMap::new();
        for (ix, file) in self.files.iter() {
            if let Some(slot) = file.slot() {
                assert!(by_slot.insert(slot, ix).is_none(), "a slot belongs to one file");
            }
        }
        for frame in 0..board.frames() {
            let Some((slot, number)) = board.page(frame) else { continue };
            let file = *by_slot.get(&slot).expect("a published page's file is in the lane");
            let page = self.pages.find(file, number).expect("a published page is in the table");
            let resident = self.pages[page].frame.as_ref().expect("a published page is resident");
            assert_eq!(
                resident.frame().index(),
                frame,
                "page {number} is published under its own frame"
            );
        }
    }
}
