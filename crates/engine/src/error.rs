//! Errors of home, by what the caller must do about them.

/// Why a transfer to or from the back end failed. errno values live in `weir-fuse` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ErrorKind {
    /// An I/O error of the device or server (EIO, and every error without a kind of its own).
    #[error("input/output error")]
    Io,
    /// No space left (ENOSPC). Make room; the data is kept and retried.
    #[error("no space left in the back end")]
    NoSpace,
    /// Over quota (EDQUOT): as [`ErrorKind::NoSpace`].
    #[error("disk quota exceeded in the back end")]
    QuotaExceeded,
    /// The back end became read-only (EROFS).
    #[error("the back end is read-only")]
    ReadOnly,
    /// Past the largest file size of the back end (EFBIG).
    #[error("file too large for the back end")]
    FileTooLarge,
    /// The back end refused access (EACCES, EPERM).
    #[error("the back end denied access")]
    PermissionDenied,
    /// The file is gone from the back end (ESTALE, ENOENT).
    #[error("the file is gone from the back end")]
    Stale,
    /// The back end cannot do this at all (EOPNOTSUPP).
    #[error("not supported by the back end")]
    Unsupported,
}

/// An answer other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The back end failed.
    #[error("{0}")]
    Home(#[from] ErrorKind),
    /// The file is not attached, or was detached while the request waited.
    #[error("the file is not attached to the engine")]
    NotAttached,
    /// The request does not fit a file, or is longer than one request may be (EFBIG).
    #[error("the request is out of range")]
    OutOfRange,
}

/// The position of one open description in its file's error sequence.
///
/// Like the kernel's errseq_t: an error of write-back or of a fetch behind a non-blocking write is
/// reported once to each description that was open when it happened, by its next sync or close.
/// Taken with [`crate::Engine::error_cursor`] at open, advanced by [`crate::Engine::take_error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCursor(pub(crate) u64);
