//! The frame a page is up to date in, as the page holds it.
//!
//! What programs read without asking is on the board; this is all that puts it there. Reads and transfers
//! get plain [`Frame`]s, which nobody publishes.
//!
//! Invariants:
//! - a frame is published only while a [`Resident`] holds it, under the page whose it is: whatever replaces
//!   or drops that retracts it;
//! - the bytes of a published frame change only while the board says that they do.

use weir_frames::{Changing, Frame};

/// A page's frame. Its bytes are those of the page as programs see it.
#[derive(Debug)]
pub(crate) struct Resident(Frame);

impl Resident {
    /// Programs do not find it before [`Resident::publish`].
    pub(crate) fn new(frame: Frame) -> Resident {
        Resident(frame)
    }

    /// The frame, to be shared.
    pub(crate) fn frame(&self) -> &Frame {
        &self.0
    }

    /// The page's bytes, to be changed; `None` while another handle shares the frame.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Option<Changing<'_>> {
        self.0.change()
    }

    /// Programs find the frame as this page of the file in `slot` from now on.
    #[inline]
    pub(crate) fn publish(&self, slot: u32, page: u64) {
        let board = self.0.board().expect("a file is shared only where there is a board");
        board.publish(self.0.index(), slot, page);
    }

    /// Programs do not find the frame any more.
    pub(crate) fn retract(&self) {
        if let Some(board) = self.0.board() {
            board.retract(self.0.index());
        }
    }

    /// Whether programs may find it.
    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.0.board().is_some_and(|board| board.is_published(self.0.index()))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.retract();
    }
}
