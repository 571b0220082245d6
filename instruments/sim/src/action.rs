//! What can be done to a simulated world: the alphabet of the scheduler and of the property tests.

use std::time::Duration;

use weir_engine::{Durability, FileId};

use crate::device::Faults;

/// One step. The world skips a step that is impossible at the time, for example reading a file that is not attached.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A program writes bytes that were never written before.
    Write {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
        /// What must be true before it is answered.
        durability: Durability,
    },
    /// A program writes the same few bytes of many pages, one page after the other.
    Scatter {
        /// The file.
        file: FileId,
        /// First byte of the first page's.
        offset: u64,
        /// Pages.
        pages: u64,
        /// Bytes of each; within the page.
        len: usize,
    },
    /// A program reads.
    Read {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// A program calls fsync(2) or fdatasync(2).
    Sync {
        /// The file.
        file: FileId,
        /// Which of them.
        durability: Durability,
    },
    /// Sync of everything.
    SyncAll,
    /// The file system asks to freeze the file.
    Freeze {
        /// The file.
        file: FileId,
        /// The action to execute while the file is frozen.
        action: FrozenAction,
    },
    /// The file system executes the frozen action and thaws the file.
    Thaw {
        /// The file.
        file: FileId,
    },
    /// A program opens the file: a new error cursor.
    Open {
        /// The file.
        file: FileId,
    },
    /// A description is asked for its errors, as by fsync(2) and close(2).
    TakeError {
        /// The file.
        file: FileId,
        /// Which of its descriptions, counted modulo their number.
        description: usize,
    },
    /// A description is closed; it is asked for its errors first.
    Close {
        /// The file.
        file: FileId,
        /// Which of its descriptions, counted modulo their number.
        description: usize,
    },
    /// The file is forgotten.
    Detach {
        /// The file.
        file: FileId,
    },
    /// A forgotten file is looked up again, or one that was unlinked is created anew.
    Attach {
        /// The file.
        file: FileId,
    },
    /// The last name and description of the file go away.
    Discard {
        /// The file.
        file: FileId,
    },
    /// The file is changed directly at home, and the file system notices.
    ChangeBehind {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// The file enters the lane: programs read it there, too, after every step.
    Share {
        /// The file.
        file: FileId,
    },
    /// The file leaves the lane.
    Unshare {
        /// The file.
        file: FileId,
    },
    /// A reader releases the frames that it holds.
    ReleaseReads,
    /// Time advances to the next completion or tick, which happens; several times.
    Advance {
        /// How often.
        events: u32,
    },
    /// Time advances by this much, and the events in that time happen.
    Sleep(Duration),
    /// Time advances by this much at once: every completion and tick due in that time comes late.
    Stall(Duration),
    /// The device fails differently from now on.
    SetFaults(Faults),
    /// Other users of the disk take or free space: this many pages are left.
    SetFreePages(Option<u64>),
}

impl Action {
    /// Whether it only lets time pass.
    pub fn is_time(&self) -> bool {
        matches!(self, Action::Advance { .. } | Action::Sleep(_) | Action::Stall(_))
    }
}

/// What the file system does while a file is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrozenAction {
    /// ftruncate(2).
    Truncate {
        /// The new size.
        size: u64,
    },
    /// fallocate(2), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
    Punch {
        /// First byte.
        from: u64,
        /// One past the last.
        to: u64,
    },
    /// copy_file_range(2) into the file, done at home.
    Copy {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// fallocate(2), FALLOC_FL_COLLAPSE_RANGE: bytes are removed and the rest moves down.
    Collapse {
        /// First byte; page-aligned.
        from: u64,
        /// Bytes; whole pages.
        len: u64,
    },
    /// lseek(2), SEEK_DATA: home must know what is data, and nothing changes.
    Seek,
}

impl FrozenAction {
    /// The range whose dirty data must be home before the file is frozen.
    pub fn flush(self) -> Option<(u64, u64)> {
        match self {
            FrozenAction::Truncate { .. } => None,
            // The pages at the edges keep a part of their bytes.
            FrozenAction::Punch { from, to } => Some((from, to)),
            FrozenAction::Copy { .. } | FrozenAction::Collapse { .. } | FrozenAction::Seek => {
                Some((0, u64::MAX))
            }
        }
    }
}
