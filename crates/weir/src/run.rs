//! `weir run`: finds a program, waits for it, and reports its reads and writes.

pub mod forward;
pub mod program;
pub mod report;
pub mod tally;
