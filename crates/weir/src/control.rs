//! The control socket: how `weir umount`, `weir sync` and `weir status` talk to a daemon.
//!
//! The messages and the client's end are those of `weir_control`, which other programs use, too.
//! One request and one reply a connection, each a line of JSON. Only the daemon's own user and
//! root are answered, and a client believes only the user whose mount it is, or root.

pub mod server;

pub use weir_control::client::{self, ControlError};
pub use weir_control::{conversation, place, protocol};
