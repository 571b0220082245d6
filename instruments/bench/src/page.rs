//! The size of a page, here as in the engine.

/// Bytes in a page.
pub const PAGE_BYTES: usize = weir_engine::PAGE_BYTES;
/// The same, for offsets in files.
pub const PAGE: u64 = PAGE_BYTES as u64;
