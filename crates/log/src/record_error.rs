//! Why bytes are no record.

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It does not fit the group it is in.
    #[error("a record's length of {0} bytes is out of range")]
    Length(u64),
    /// Its checksum is wrong.
    #[error("a record's checksum is wrong")]
    Checksum,
    /// The checksum is right and the kind is unknown: a newer Weir wrote it.
    #[error("a record of kind {kind} with {bytes} bytes, which this Weir does not know")]
    Kind {
        /// The kind.
        kind: u8,
        /// The record's length, padding not counted.
        bytes: u32,
    },
    /// The checksum is right and a value is out of range.
    #[error("a record's {0} is out of range")]
    Nonsense(&'static str),
}
