//! Blocks: the unit in which the log is written, and their bytes as fields.

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 4096;

/// One block, aligned in memory as direct I/O wants it.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_BYTES]);

impl Default for Block {
    fn default() -> Block {
        Block([0; BLOCK_BYTES])
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Block")
    }
}

/// The `N` bytes of a little-endian number at `at`; the caller checked that they are inside.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has the array's length")
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}
