//! One engine behind one lock, wired to its back end.
//!
//! A [`Shard`] turns the engine's events and outputs into calls and continuations: whoever brings
//! an event runs it to its end on its own thread, and an answer that comes later is run by the
//! thread that completed it.

#![forbid(unsafe_code)]

mod core;
mod lane;
mod latency;
mod pending;
mod posted;
mod shard;
mod ticker;
mod trampoline;

#[cfg(test)]
mod tests;

pub use lane::Poster;
pub use latency::{Latencies, Percentiles};
pub use posted::Posted;
pub use shard::{Renamed, Shard, StartError};
