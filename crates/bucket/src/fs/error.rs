//! Why an operation of the file system fails, and the errno that says so.

use std::io;

use crate::store::StoreError;

/// Kinds of failures.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Error {
    #[error("no such file or directory")]
    NotFound,
    #[error("it exists")]
    Exists,
    #[error("it is no directory")]
    NotDirectory,
    #[error("it is a directory")]
    IsDirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("the name, or the key that it makes, is too long")]
    NameTooLong,
    #[error("objects cannot have this name here")]
    InvalidName,
    #[error("a bucket cannot do this")]
    Unsupported,
    #[error("invalid argument")]
    Invalid,
    #[error("not permitted")]
    NotPermitted,
    #[error("the file was changed by somebody else again and again")]
    Stale,
    #[error("{0}. It may have been done: the store did not say")]
    InDoubt(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("state directory: {0}")]
    Local(#[from] io::Error),
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno of the answer.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound | Error::Store(StoreError::NotFound(_)) => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::InvalidName | Error::Invalid => libc::EINVAL,
            Error::Unsupported => libc::EOPNOTSUPP,
            Error::NotPermitted => libc::EPERM,
            Error::Stale | Error::Store(StoreError::Changed(_)) => libc::ESTALE,
            Error::Store(_) | Error::InDoubt(_) => libc::EIO,
            Error::Local(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}
