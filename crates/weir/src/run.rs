//! What `weir run` does: finding a program, waiting for it, and telling what it did.

pub mod forward;
pub mod program;
pub mod report;
pub mod tally;
