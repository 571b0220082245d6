//! `weir run`: finds a program, waits for it, and reports its reads and writes, or its promises.

pub mod external;
pub mod forward;
pub mod front;
pub mod group;
pub mod group_name;
pub mod ignored;
pub mod outcome;
pub mod program;
pub mod report;
pub mod tally;
