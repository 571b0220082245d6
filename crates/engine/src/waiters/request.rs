//! Requests that are answered later.

use smallvec::SmallVec;

use crate::command::{Durability, ReadData};
use crate::error::{Error, ErrorKind};
use crate::place::{FileIx, PageIx};
use crate::waiters::freeze_state::Target;

/// A request that waits for the back end.
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
    /// A blocked write has been applied and waits for the pages of which it wrote only a part.
    Write {
        file: FileIx,
        partial_pages: SmallVec<[u64; 2]>,
        remaining: usize,
        /// Patch memory of the pages it waits for. Not counted against the bound while it waits.
        patch_bytes: usize,
        failed: Option<ErrorKind>,
        /// The bytes of the file that were written.
        range: (u64, u64),
        durability: Durability,
    },
    /// A write waits for space to be reserved.
    Reserving { target: Target, data: Box<[u8]>, durability: Durability },
    /// A sync of all files waits for `remaining` files.
    SyncAll { remaining: usize, error: Option<ErrorKind> },
}

/// The result of trying an event.
pub(crate) enum Step<T> {
    Done(Result<T, Error>),
    Pending,
    /// The dirty bound is reached, or no frame is free: to be tried again when that changes.
    Starved,
}

/// What the read path answers with.
pub(crate) type ReadStep = Step<ReadData>;

/// A write that has been applied, and that waits for fetches because the fetch policy says so.
pub(crate) struct Waited {
    pub(crate) partial_pages: SmallVec<[u64; 2]>,
    /// The bytes of the file that were written.
    pub(crate) range: (u64, u64),
    pub(crate) durability: Durability,
}
