//! Files in the lane: what programs read and write of them by shared memory.
//!
//! The board says how large a file is, how far it may be written without asking (`file`), and in which
//! frames its pages are (`resident`). Pages are put there as they are read and written; that one was
//! read there is noticed when it is about to be replaced.
//!
//! Invariants:
//! - a published frame is that of the page its key names, and the page's file is in the lane;
//! - no page of a file that left the lane is on the board.

use std::sync::Arc;

use weir_lane::prefetch;

use crate::cache::page::ListKind;
use crate::command::FileId;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::{Piece, pieces};

/// Pages published when a file enters the lane; the others are when they are next read or written.
const PAGES_AT_ONCE_MAX: usize = 1024;

impl Engine {
    /// Puts an attached file in the lane, under a number no other file has. Its size and grant are on the
    /// board from then on. Says whether it is attached.
    pub fn share(&mut self, file: FileId, slot: u32) -> bool {
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
        true
    }

    /// Takes a file out of the lane: none of its pages is on the board any more, and its number is free.
    /// Takes time for each of its pages. Nothing happens to a file that is not there; one that is detached
    /// leaves by itself.
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

    /// A write failed after its writer had gone on: the file's descriptions are told, each once, as of a
    /// destage that failed.
    pub fn note_error(&mut self, file: FileId, kind: ErrorKind) {
        if let Some(ix) = self.cache.files.find(file) {
            self.cache.files[ix].record_error(kind);
        }
    }

    /// A write comes soon: asks for the memory that it will need. Several such waits are one, where the writes themselves
    /// would wait one after the other.
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
