//! Who waits for what: requests for pages, for memory, for their turn on a file, and syncs.
//!
//! Owns the requests that were not answered yet. Does not own what they wait for: an event that makes it true wakes
//! them.
//!
//! Invariants:
//! - a request is in one place: pending, starved, or in its file's queue;
//! - a page that is awaited has waiters, and the other way round.

mod count;
pub(crate) mod file;
pub(crate) mod gate;
pub(crate) mod request;
pub(crate) mod sync;

use std::collections::{HashMap, VecDeque};

use smallvec::SmallVec;

use crate::command::RequestId;
use crate::place::{FileIx, PageIx};
use crate::waiters::gate::Event;
use crate::waiters::request::Pending;

/// Requests that wait.
#[derive(Default)]
pub(crate) struct Waiters {
    /// For something of the back end.
    pub(crate) pending: HashMap<RequestId, Pending>,
    /// Which of these wait for a page.
    pub(crate) of_pages: HashMap<PageIx, SmallVec<[RequestId; 2]>>,
    /// Writes and reads that found too much dirty or no frame, in order.
    pub(crate) starved: VecDeque<(RequestId, FileIx, Event)>,
    /// Patch memory of pages that blocked writers wait for.
    pub(crate) blocked_patch_bytes: usize,
    pub(crate) last_sync: u64,
    /// Files whose gate opened again without a freeze.
    pub(crate) reopened: Vec<FileIx>,
}
