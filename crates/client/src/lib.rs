//! For programs that use a Weir mount, and want more of it than a file system has.
//!
//! - [`Mount`] is a mount, found by any path in it. [`Mount::status`] is what `weir status` shows, [`Mount::sync`] brings everything home,
//!   as `weir sync` does. Only the user whose mount it is, and root, may ask.
//! - [`state`] tells how far one file is on its way home, and [`sync`] makes one file durable. Whoever may read the file may ask.
//! - [`promise`] takes a mark in the order of all changes of a mount with `--order all`; [`Promise::wait`] waits until everything before
//!   it is durable. Threads that wait at the same time share one write of the redo log.
//!
//! All calls block. Those that touch files of a mount ([`state`], [`sync`], [`promise`]) wait as long as the mount's daemon does; those of
//! [`Mount`] but [`Mount::sync`] end after ten seconds.
//!
//! A server that answers when its changes are durable:
//!
//! ```no_run
//! use std::io::Write;
//!
//! # fn send(_: &str) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut file = std::fs::File::options().append(true).open("/mnt/data/journal")?;
//! file.write_all(b"42 paid\n")?;
//! let promise = weir::promise(&file)?;
//! // Other work, which others wait for less.
//! promise.wait()?;
//! send("paid");
//! # Ok(())
//! # }
//! ```
//!
//! Owns: what programs may rely on; the commits of this process. Not the messages, nor how daemons are found (`weir-control`).
//!
//! Invariant: a daemon of another version, an older or a newer one, gives an answer or an [`Error`], never a panic.

#![forbid(unsafe_code)]

mod error;
mod file;
mod mount;
mod promise;
mod status;

pub use error::Error;
pub use file::{State, state, sync};
pub use mount::Mount;
pub use promise::{Promise, promise};
pub use status::{Log, Order, Status};
