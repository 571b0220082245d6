//! The state of a command in flight.

use weir_frames::Frame;
use weir_journal::Segment;

use crate::cache::patch::Run;
use crate::command::RequestId;
use crate::place::{FileIx, PageIx};
use crate::time::Time;

/// When a transfer was dispatched, and how many were under way then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) at: Time,
    pub(crate) ahead: usize,
    /// Its end says nothing of the device: it was joined to another transfer, or was never dispatched.
    pub(crate) silent: bool,
    /// Pages of the transfers that were joined to it.
    pub(crate) more_pages: usize,
}

/// What a fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFor {
    /// Its pages.
    Pages,
    /// A sweep, with its number of patched pages. The other pages are read because they lie between these, and may
    /// be resident.
    Sweep { patched: usize },
    /// The sweep's window: a part of a file that is read, and then written as a whole.
    Window { patched: usize },
}

/// A fetch under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) file: FileIx,
    pub(crate) first: u64,
    pub(crate) issue: Issue,
    /// A request waits for it.
    pub(crate) waited: bool,
    /// For a sweep: the patched pages that it turns into dirty frames.
    pub(crate) swept: Option<usize>,
    /// The pages between patched ones are written with them.
    pub(crate) gaps_written: bool,
    /// Whether it fetches the sweep's window.
    pub(crate) window: bool,
}

/// A page's content on its way home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) page: PageIx,
    /// Its sequence number in the order of dirtying.
    pub(crate) seq: u64,
    /// The first segment of the log that must be kept until the content is durable at home.
    pub(crate) rec: Option<Segment>,
    /// The failed syncs of home when it was sent (`Settled::losses`).
    pub(crate) losses: u32,
}

/// The progress of the destage of one page's patches. Runs are written one after the other: two transfers of one
/// page at a time, one by direct I/O and one through the page cache, could lose one of them.
#[derive(Debug)]
pub(crate) struct PatchDestage {
    pub(crate) content: Content,
    /// Holds the runs' bytes at their places in the page.
    pub(crate) frame: Frame,
    /// Runs not sent yet, last first.
    pub(crate) runs: Vec<Run>,
}

/// What a command in flight is for.
#[derive(Debug)]
pub(crate) enum Io {
    Fetch(Fetch),
    Destage { file: FileIx, offset: u64, len: u64, pages: Vec<Content>, issue: Issue },
    DestagePatches { file: FileIx, offset: u64, len: u64, page: PageIx, issue: Issue },
    Sync { file: FileIx, waiter: u64 },
    Reserve { file: FileIx, request: RequestId, from: u64, to: u64 },
    ReserveAhead { file: FileIx, from: u64, to: u64, epoch: u32 },
    Map { file: FileIx },
}
