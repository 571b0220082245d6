//! `weir run`: finds a program, waits for it, and reports its reads and writes, or its promises.

pub mod external;
pub mod forward;
pub mod outcome;
pub mod program;
pub mod report;
pub mod tally;
