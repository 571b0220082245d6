//! What the lane's board shows of pages.
//!
//! Invariants:
//! - a published frame is that of the page its key names, and the page's file is in the lane;
//! - no page of a file that left the lane is on the board.

use crate::cache::Cache;
use crate::cache::page::Page;
use crate::place::PageIx;

/// Pages published together when one of them is read: an aligned group of this many.
const PAGES_AROUND: u64 = 64;

impl Cache {
    /// A page was read: programs find it themselves the next time. If it was not on the board, those around it are not
    /// either, most likely, and are read soon: each would cost its reader a trip through the kernel.
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

    /// The same of one that was written. If it is on the board already, but hard to find there, its readers
    /// will see to that.
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
                assert!(by_slot.insert(slot, ix).is_none(), "a number is one file's");
            }
        }
        for frame in 0..board.frames() {
            let Some((slot, number)) = board.page(frame) else { continue };
            let file = *by_slot.get(&slot).expect("a published page's file is in the lane");
            let page = self.pages.find(file, number).expect("a published page is in the table");
            let resident = self.pages[page].frame.as_ref().expect("a published page is resident");
            assert_eq!(resident.frame().index(), frame, "page {number} is published where it is");
        }
    }
}
