//! The lane: memory shared between the daemon and the programs run under it, and the protocols in it.
//!
//! Three memories, all made by the daemon:
//! - the *frames*: the daemon's page frames; programs map them read-only;
//! - the *board*: which page of which file each frame holds ([`board`]), and each file's mode and size;
//!   read-only for programs too;
//! - a *region* for each client ([`region`]): rings of posted writes, one per thread ([`ring`]), and the
//!   counters that say which pages have writes pending. Both sides write it.
//!
//! A client is a program and the processes it forks. What a client writes in its region can affect only the files
//! that it has in the lane, so that it harms no other client.
//!
//! This crate knows neither the engine nor FUSE. [`wire`] holds the messages of the socket and of the ioctls.
//!
//! Invariants:
//! - the server half trusts nothing it reads in a region: it copies, then checks;
//! - the client half trusts the board, but checks that the daemon is alive ([`board::View::is_alive`]);
//! - the lock-free protocols between the halves are in modules that the model checker runs as well: [`ring`],
//!   `sequence_lock`, `write_sequence`, `doorbell`, [`post_order`]. The other modules are not built for the model checker: they need
//!   memory at fixed addresses.
//!
//! ```
//! let board = weir_lane::board::Board::new(4)?;
//! board.publish(2, 7, 1000); // frame 2 holds page 1000 of the file in slot 7
//! assert_eq!(board.page(2), Some((7, 1000)));
//! board.retract(2);
//! assert_eq!(board.page(2), None);
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(loom))]
pub mod aio;
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
pub mod client;
#[cfg(not(loom))]
pub mod commits;
#[cfg(not(loom))]
pub mod door;
mod doorbell;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod memory;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
pub mod owner;
pub mod post_order;
#[cfg(not(loom))]
pub mod prefetch;
#[cfg(not(loom))]
pub mod promises;
#[cfg(not(loom))]
pub mod racing;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
pub mod resident;
pub mod ring;
mod sequence_lock;
#[cfg(not(loom))]
pub mod server;
#[cfg(not(loom))]
pub mod stream;
mod sync;
#[cfg(not(loom))]
pub mod tally;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
pub mod wire;
mod write_sequence;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
