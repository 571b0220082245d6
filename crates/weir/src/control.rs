//! The control socket: how `weir umount`, `weir sync` and `weir status` talk to a daemon.
//!
//! One request and one reply a connection, each a line of JSON. Only the daemon's own user and
//! root are answered, and a client believes only the user whose mount it is, or root.

pub mod client;
pub mod place;
pub mod protocol;
pub mod server;

pub use client::ControlError;
