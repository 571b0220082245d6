//! The lane: memory shared between the daemon and the programs run under it, and what is said in it.
//!
//! Three memories, all made by the daemon:
//! - the *frames*: the daemon's page frames; programs map them read-only;
//! - the *board*: which page of which file each frame holds ([`board`]), and what is known of each file;
//!   read-only for programs too;
//! - a *region* for each client ([`region`]): rings of posted writes, one per thread ([`ring`]), and the
//!   counters that say which pages have writes pending. Both sides write it.
//!
//! A client is a program and the processes it forks. What one client writes in its region concerns the
//! files it has in the lane alone, so that nothing it puts there harms another.
//!
//! This crate knows neither the engine nor FUSE. [`wire`] holds what is said over the socket and by ioctl.
//!
//! Invariants:
//! - the server half believes nothing it reads in a region: it copies, then checks;
//! - the client half believes the board, but not that the daemon is alive ([`board::View::is_alive`]).

pub mod board;
pub mod client;
pub mod memory;
pub mod region;
pub mod ring;
pub mod server;
mod sync;
pub mod tally;
pub mod wire;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
