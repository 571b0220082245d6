//! The FUSE front end: a mount of a directory, served with a [`weir_shard::Shard`].
//!
//! Names and attributes are home's, asked for with home system calls on the thread that serves the
//! request. The data of regular files goes through the shard. [`mount()`] makes a mount,
//! [`Session`] is one.
//!
//! The way of a request: `transport` reads it, `ops` do it on the state that `fs` owns, and the
//! answer goes back through `transport`.
//!
//! Architecture invariants: errno is decided in `errno` alone; FUSE's own types are seen in
//! `transport` alone; unsafe code is in `credentials` and in `transport::uring`'s `area`,
//! `courtesy` and `ring` alone.

#![deny(unsafe_code)]

mod attr;
mod closing;
mod credentials;
mod descriptors;
mod errno;
mod file_system;
mod folding;
mod handle;
mod inode;
mod kernel_pages;
mod lane;
mod ops;
mod reclaimer;
mod requests;
mod session;
mod transport;

pub use lane::LaneStatus;
pub use requests::RequestCounts;
pub use session::{CACHE_TIMEOUT_DEFAULT, Observer, Options, Session, mount};
pub use transport::Transport;
pub use transport::mount::{DeviceNumber, MountError};
pub use transport::uring::KernelSetting;
#[cfg(fuzzing)]
pub use transport::uring::fuzzing;
