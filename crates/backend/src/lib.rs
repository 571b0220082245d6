//! Where home locations live: a directory of ordinary files.
//!
//! Executes the engine's [`Command`](weir_engine::Command)s: [`Directory`] does the transfers, a
//! [`HomeFile`] is one file they go to. Knows files by their descriptors only, never by name.
//!
//! Architecture invariants: nothing here decides what is read or written when, that is the
//! engine's; unsafe code is in `ring` alone.

#![deny(unsafe_code)]

mod directory;
mod error;
mod gate;
mod home_file;
mod jobs;
mod ring;
mod times;
mod transfer;

#[cfg(test)]
mod tests;

pub use directory::{Directory, Method, Sink};
pub use error::error_kind;
pub use home_file::HomeFile;
pub use times::{Times, Timestamp};
