//! The FUSE file system: a mount of a directory, served with a [`weir_shard::Shard`].
//!
//! Names and attributes are read and changed at home, by the back end, on the thread that serves the request, or
//! later by `write_behind` if names are written back. The data of regular files goes through the shard. [`mount()`] makes a mount, [`Session`] is one.
//!
//! The path of a request: a `transport` reads it, `dispatch` calls the operation that it asks for, `ops` execute the
//! operation on the state that `file_system` owns, and a `reply` sends the answer through the transport.
//!
//! Architecture invariants: errno is decided in `errno` alone; FUSE's own types are seen in
//! `transport` alone; no system call on home is made here; unsafe code is in `transport::device::channel` and in
//! `transport::uring`'s `area`, `idle_policy` and `ring` alone.

#![deny(unsafe_code)]

mod acl;
mod attr;
mod closing;
mod credentials;
mod descriptors;
mod dispatch;
mod errno;
mod file_system;
mod folding;
mod given;
mod handle;
mod inode;
mod inodes;
mod kernel_cache;
mod kernel_pages;
mod lane;
mod listed_window;
mod listings;
mod open_file;
mod ops;
mod reclaimer;
mod reply;
mod requests;
mod session;
mod sessions;
mod transport;
mod write_behind;

pub use lane::LaneStatus;
pub use ops::xattr::STATE;
pub use requests::RequestCounts;
pub use session::{
    CACHE_TIMEOUT_DEFAULT, Observer, Options, Session, SessionOfPrograms, TreeOfPrograms, mount,
};
pub use sessions::SessionStatus;
pub use transport::Transport;
pub use transport::mount::{DeviceNumber, MountError};
pub use transport::uring::KernelSetting;
#[cfg(fuzzing)]
pub use transport::uring::fuzzing;
