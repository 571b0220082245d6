//! How programs find a daemon and talk to it.
//!
//! [`client`] finds the mount of a path and asks its daemon, over the socket that [`place`] names, with the messages of [`protocol`],
//! within the time that [`conversation`] gives it. [`mounts`] is the mount table, [`namespaces`] the mount tables of other processes, [`own`] the lock of a SOURCE. What is asked of the mount itself, by anybody who may use
//! a file, is in [`order`] and [`file_state`].
//!
//! Owns: the client's side, and all messages. Not the daemon's socket (`weir`), nor what programs other than `weir` may rely on
//! (`weir-client`).
//!
//! Invariants: what a daemon or a file system answers is never asserted on. Mounts are found without being accessed if their name is
//! enough, so that a daemon that hangs does not hang its clients. Unsafe code is in [`order`] alone. Without the feature `daemon`
//! nothing of the daemon is compiled.

#![deny(unsafe_code)]

pub mod client;
pub mod conversation;
pub mod file_state;
pub mod mounts;
pub mod namespaces;
pub mod order;
pub mod own;
pub mod place;
#[allow(
    missing_docs,
    reason = "most fields are counters, documented at the types that they are made of"
)]
pub mod protocol;
