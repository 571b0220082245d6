//! The size of a page.

/// Bytes in a page. Pages are aligned ranges of a file of this size.
pub const PAGE_BYTES: usize = 4096;
