//! Requests that wait: for pages, for memory, for their turn on a file, or for a sync.
//!
//! Owns the requests that were not answered yet. Does not own what they wait for: the event that provides it wakes
//! the request.
//!
//! Invariants:
//! - a request is in one place: pending, starved, or in its file's queue;
//! - a page is marked *awaited* exactly if requests wait for it.

mod count;
pub(crate) mod file;
pub(crate) mod freeze_state;
pub(crate) mod request;
pub(crate) mod sync;

use std::collections::{HashMap, VecDeque};

use smallvec::SmallVec;

use crate::command::RequestId;
use crate::place::{FileIx, PageIx};
use crate::waiters::freeze_state::Event;
use crate::waiters::request::Pending;

/// Requests that wait.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Requests that wait for the back end.
    pub(crate) pending: HashMap<RequestId, Pending>,
    /// The pending requests that wait for each page.
    pub(crate) of_pages: HashMap<PageIx, SmallVec<[RequestId; 2]>>,
    /// Writes that found the dirty bound reached, and reads and writes that found no free frame, in order.
    pub(crate) starved: VecDeque<(RequestId, FileIx, Event)>,
    /// Patch memory of pages that blocked writers wait for.
    pub(crate) blocked_patch_bytes: usize,
    pub(crate) last_sync: u64,
    /// Files whose freeze failed before it was granted, and whose queued events must run.
    pub(crate) abandoned_freezes: Vec<FileIx>,
}
