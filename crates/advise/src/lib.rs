//! Whether Weir would help a program, without I/O: `weir advise` does the I/O.
//!
//! The way of the data: [`trace`] reads lines of a recorder into [`call`]s; [`files`] follows which file each is about and
//! how long that is; [`distance`] and [`footprint`] say what the program asks of its files; [`plan`] chooses calls to be
//! done again in a scratch directory, directly and through Weir; [`prediction`] makes ratios of what these took, and
//! [`verdict`] sentences; [`summary`] and [`page`] show them.
//!
//! Invariants: bytes of a trace are never asserted on: they are calls, or an error that names the line. What is kept of
//! a trace is bounded ([`trace::EVENTS_MAX`]). No part makes a system call, or depends on another crate of Weir.

#![forbid(unsafe_code)]

pub mod call;
mod chart;
pub mod class;
pub mod distance;
pub mod files;
pub mod footprint;
pub mod page;
pub mod plan;
pub mod prediction;
pub mod report;
pub mod summary;
pub mod trace;
pub mod verdict;
