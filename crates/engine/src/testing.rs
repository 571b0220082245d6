//! What the unit tests of several parts need.

use weir_log::{DATA_START, Lsn, NODE_FIRST, Superblock, Writer};

/// A log with room for so many bytes of groups, and nothing in it.
pub(crate) fn empty_log(bytes: u64) -> Writer {
    Writer::new(Superblock {
        log: [1; 16],
        mount: [2; 16],
        bytes: DATA_START + bytes,
        generation: 1,
        checkpoint: Lsn(0),
        clean: true,
        row_blocks: 1,
        nodes: NODE_FIRST,
        features: 0,
    })
}
