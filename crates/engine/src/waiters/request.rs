//! Requests that are answered later.

use smallvec::SmallVec;

use crate::command::{Durability, ReadData};
use crate::error::{Error, ErrorKind};
use crate::place::{FileIx, PageIx};
use crate::waiters::gate::Target;

/// A request that waits for something of the back end.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A read waits for `remaining` of its pages; all of them are pinned.
    Read {
        file: FileIx,
        offset: u64,
        len: usize,
        remaining: usize,
        pinned: Vec<PageIx>,
        failed: Option<ErrorKind>,
    },
    /// A blocked write, already applied, waits for the pages it only wrote in part.
    Write {
        file: FileIx,
        partial_pages: SmallVec<[u64; 2]>,
        remaining: usize,
        /// Patch memory of the pages it waits for, not counted against the bound meanwhile.
        patch_bytes: usize,
        failed: Option<ErrorKind>,
        /// What was written, bytes of the file.
        range: (u64, u64),
        durability: Durability,
    },
    /// A write waits for space to be reserved.
    Reserving { target: Target, data: Box<[u8]>, durability: Durability },
    /// A sync of everything waits for that many files.
    SyncAll { remaining: usize, error: Option<ErrorKind> },
}

/// How an event stands after it was tried.
pub(crate) enum Step<T> {
    Done(Result<T, Error>),
    Pending,
    /// Too much is dirty, or no frame is free: to be tried again when that changes.
    Starved,
}

/// What the read path answers with.
pub(crate) type ReadStep = Step<ReadData>;

/// A write, applied, that a policy has wait for fetches.
pub(crate) struct Waited {
    pub(crate) partial_pages: SmallVec<[u64; 2]>,
    /// Its bytes of the file.
    pub(crate) range: (u64, u64),
    pub(crate) durability: Durability,
}
