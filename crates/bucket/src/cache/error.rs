//! Why there can be no cache in a directory.

use std::io;
use std::path::PathBuf;

/// Why there can be no cache in a directory.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It cannot be made or read.
    #[error("cache directory {}: {error}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is another user's.
    #[error("cache directory {} belongs to another user (uid {uid}): give one of your own", path.display())]
    OfAnother {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may read or write it.
    #[error(
        "cache directory {} is open to other users (mode {mode:03o}): 'chmod 700' it, or remove it", path.display()
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another process has it.
    #[error("cache directory {} is in use by another weir-bucket: give another", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}
