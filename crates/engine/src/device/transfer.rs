//! What is known of a command while it is under way.

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
    /// Its end tells nothing: another transfer, which it was joined to, speaks for it, or it never went.
    pub(crate) silent: bool,
    /// Pages of others that it speaks for.
    pub(crate) more_pages: usize,
}

/// What a fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFor {
    /// Its pages.
    Pages,
    /// A sweep, with its number of patched pages. The others are read because they lie between, and may
    /// be resident.
    Sweep { patched: usize },
    /// The sweep's window: the same of a stretch that is then written whole.
    Window { patched: usize },
}

/// A fetch under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) file: FileIx,
    pub(crate) first: u64,
    pub(crate) issue: Issue,
    /// Somebody waits for it.
    pub(crate) waited: bool,
    /// Pages it is to make dirty frames of, if it is a sweep's.
    pub(crate) swept: Option<usize>,
    /// Those between patched ones are written with them.
    pub(crate) gaps_written: bool,
    /// It is that of the sweep's window.
    pub(crate) window: bool,
}

/// A page's content on its way home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) page: PageIx,
    /// Its place in the order of dirtying.
    pub(crate) seq: u64,
    /// Where the log is needed from until it is durable at home.
    pub(crate) rec: Option<Segment>,
}

/// How far the destage of one page's patches is. Runs go one after the other: two transfers of one
/// page at a time, one past the page cache and one through it, could lose one of them.
#[derive(Debug)]
pub(crate) struct PatchDestage {
    pub(crate) content: Content,
    /// Holds the runs' bytes where they belong in the page.
    pub(crate) frame: Frame,
    /// Runs not sent yet, last first.
    pub(crate) runs: Vec<Run>,
}

/// What a command under way is about.
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
