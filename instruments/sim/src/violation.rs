//! What the engine can do wrong, as the simulator sees it.

use weir_engine::{Error, ErrorKind, FileId, RequestId};

use crate::device::Breach;
use crate::model::Mismatch;

/// A violation by the engine of what it must or must not do.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A promise to the back end was broken.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// Bytes that no history of the file explains.
    #[error(
        "{what} of {file:?} at byte {}: {:#04x}, allowed {:02x?}",
        mismatch.offset,
        mismatch.found,
        mismatch.allowed
    )]
    Content {
        /// The source of the bytes.
        what: String,
        /// The file.
        file: FileId,
        /// Which byte.
        mismatch: Mismatch,
    },
    /// A read returned too much or too little, or an image is too long or too short.
    #[error("{what} of {file:?} is {got} bytes long; the file's size is {size}")]
    Length {
        /// What has this length.
        what: String,
        /// The file.
        file: FileId,
        /// How long it is.
        got: u64,
        /// The size last seen.
        size: u64,
    },
    /// A size that no history of the file explains.
    #[error("{file:?} shows a size of {shown}; {expected} was expected")]
    Size {
        /// The file.
        file: FileId,
        /// What the engine says.
        shown: u64,
        /// The model's size.
        expected: u64,
    },
    /// An error answer with no failure of the device behind it.
    #[error("{request:?} ({what}) was answered '{error}' for no reason")]
    UnexplainedError {
        /// The request.
        request: RequestId,
        /// What it was.
        what: &'static str,
        /// The answer.
        error: Error,
    },
    /// A description got too many or too few of its file's errors.
    #[error("a description of {file:?} was told {told:?}; due was {due:?}")]
    Report {
        /// The file.
        file: FileId,
        /// The error that it got.
        told: Option<ErrorKind>,
        /// The error that it should have got.
        due: Option<ErrorKind>,
    },
    /// A gauge above its bound.
    #[error("{what} is {value}, above {bound}")]
    Bound {
        /// Which.
        what: &'static str,
        /// The gauge.
        value: u64,
        /// Its bound.
        bound: u64,
    },
    /// An output that answers nothing, or says what is not so.
    #[error("unexpected output: {0}")]
    Output(String),
    /// Nothing goes on although something is to be done.
    #[error("no progress: {0}")]
    Stuck(String),
}
