//! What a frame is needed for.

/// What a frame is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A program's read, or read-ahead.
    Read,
    /// Data that is written, or on its way home.
    Write,
}
