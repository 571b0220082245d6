//! Files in the lane: programs read and write them by shared memory.
//!
//! The board shows the size of a file, the offset up to which it may be written without a reservation (`file`), and the
//! frames of its pages (`resident`). Pages are published when they are read or written. The engine notices that a
//! program has read a page through the lane when the page is about to be replaced.
//!
//! Invariants:
//! - a published frame is the frame of the page that its key names, and the page's file is in the lane;
//! - no page of a file that left the lane is on the board.

use std::sync::Arc;

use weir_lane::prefetch;

use crate::cache::page::ListKind;
use crate::command::FileId;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{Piece, pieces};
use crate::time::Time;

/// Pages published when a file enters the lane; the others are published when they are next read or written.
const PAGES_AT_ONCE_MAX: usize = 1024;

impl Engine {
    /// Puts an attached file in the lane, in a slot that no other file has. Its size and grant are on the board from then
    /// on. Returns whether the file is attached.
    pub fn share(&mut self, file: FileId, slot: u32, now: Time) -> bool {
        self.clock = now;
        let Some(ix) = self.cache.files.find(file) else { return false };
        let board =
            Arc::clone(self.cache.pool.board().expect("there is a lane only over shared frames"));
        self.cache.files[ix].share(board, slot);
        let pages = self.cache.pages.on_list(ListKind::File, &self.cache.files[ix].pages);
        for ix in pages.take(PAGES_AT_ONCE_MAX) {
            let page = &self.cache.pages[ix];
            if let Some(frame) = &page.frame {
                frame.publish(slot, page.number);
            }
        }
        self.reserve_written(ix);
        true
    }

    /// Takes a file out of the lane: its pages leave the board, and its slot is free. Takes time in proportion to the
    /// file's pages. Does nothing if the file is not in the lane; a detached file has left it.
    pub fn unshare(&mut self, file: FileId, slot: u32) {
        let Some(ix) = self.cache.files.find(file) else { return };
        if self.cache.files[ix].slot() != Some(slot) {
            return;
        }
        self.cache.files[ix].unshare();
        for ix in self.cache.pages.on_list(ListKind::File, &self.cache.files[ix].pages) {
            if let Some(frame) = &self.cache.pages[ix].frame {
                frame.retract();
            }
        }
    }

    /// A write failed after its writer had continued: reports the error once to each of the file's descriptions, like a
    /// failed destage.
    pub fn note_error(&mut self, file: FileId, kind: ErrorKind) {
        if let Some(ix) = self.cache.files.find(file) {
            self.cache.files[ix].record_error(kind);
        }
    }

    /// Prefetches into the CPU's cache the memory that a write will use soon. The cache misses of several writes then
    /// overlap.
    #[inline]
    pub fn expect_write(&self, file: FileId, offset: u64, len: usize) {
        let Some(file) = self.cache.files.find(file) else { return };
        for Piece { number, start, len } in pieces(offset, offset.saturating_add(len as u64)) {
            let Some(ix) = self.cache.pages.find(file, number) else { continue };
            let page = &self.cache.pages[ix];
            prefetch::write(std::ptr::from_ref(page).cast());
            prefetch::write(std::ptr::from_ref(page).cast::<u8>().wrapping_add(64));
            if let Some(frame) = &page.frame {
                frame.frame().prefetch(start, len);
            }
        }
    }
}
