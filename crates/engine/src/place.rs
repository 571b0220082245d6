//! Names of a file and of a page in the engine, and the pages that a byte range touches.

use weir_frames::PAGE_BYTES;

/// A file's index in the engine's file table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileIx(pub(crate) u32);

impl FileIx {
    /// The next index.
    pub(crate) fn next(self) -> FileIx {
        FileIx(self.0 + 1)
    }
}

/// A page's index in the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageIx(pub(crate) u32);

/// A page's address: file, then number.
pub(crate) type Place = (FileIx, u64);

/// The first place of all.
pub(crate) const FIRST: Place = (FileIx(0), 0);

/// The part of one page that a byte range of its file touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    /// Where in the page it begins, bytes.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// A byte range of a file, page by page; empty if the range ends before it begins.
pub(crate) fn pieces(from: u64, to: u64) -> impl Iterator<Item = Piece> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let first = from / PAGE;
    let after = if from < to { to.div_ceil(PAGE) } else { first };
    (first..after).map(move |number| {
        let (start, end) = (from.max(number * PAGE), to.min((number + 1) * PAGE));
        Piece { number, start: (start % PAGE) as usize, len: (end - start) as usize }
    })
}

/// A range of bytes of a page that covers several ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl Span {
    pub(crate) fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// Extends the span to cover `len` bytes from `start` on, inside the same page.
    pub(crate) fn cover(&mut self, start: usize, len: usize) {
        let (from, to) = (start as u16, (start + len) as u16);
        *self = match self.is_empty() {
            true => Span { from, to },
            false => Span { from: self.from.min(from), to: self.to.max(to) },
        };
    }

    /// Removes the bytes from byte `end` on.
    pub(crate) fn truncate(&mut self, end: usize) {
        self.to = self.to.min(end as u16);
        if self.from >= self.to {
            *self = Span::default();
        }
    }
}
