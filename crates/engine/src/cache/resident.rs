//! A page's frame with the page's current bytes.
//!
//! Only this type publishes frames on the lane's board, where programs read them without a request. Reads and transfers
//! get plain [`Frame`]s, which cannot be published.
//!
//! Invariants:
//! - a frame is published only while the [`Resident`] of its page holds it; replacing or dropping that retracts it;
//! - the bytes of a published frame change only while the board marks them as changing.

use weir_frames::{Changing, Frame};

/// A page's frame. Its bytes are those of the page as programs see it.
#[derive(Debug)]
pub(crate) struct Resident(Frame);

impl Resident {
    /// A frame that is not published yet.
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

    /// Publishes the frame as this page of the file in `slot`.
    #[inline]
    pub(crate) fn publish(&self, slot: u32, page: u64) {
        let board = self.0.board().expect("a file is shared only where there is a board");
        board.publish(self.0.index(), slot, page);
    }

    /// Takes the frame off the board.
    pub(crate) fn retract(&self) {
        if let Some(board) = self.0.board() {
            board.retract(self.0.index());
        }
    }

    /// Whether the frame is on the board.
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
