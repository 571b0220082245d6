//! Files: the cache's state of each file, and the state that the other parts keep for each file.
//!
//! Invariants:
//! - the board, if the file is in the lane, shows the size and the grant that are here;
//! - a file that is removed has no page, no I/O in flight and no waiting request.

use std::sync::Arc;

use weir_frames::PAGE_BYTES;
use weir_lane::board::Board;

use crate::cache::page::List;
use crate::cache::ranges::RangeSet;
use crate::command::{FileId, HomeAttributes};
use crate::device::home::Home;
use crate::error::ErrorKind;
use crate::journal::logged::Logged;
use crate::journal::settled::Settled;
use crate::time::Time;
use crate::waiters::file::FileWaiters;
use crate::waiters::freeze_state::{FreezeState, Target};
use crate::write_back::sweeps::FileSweeps;

const PAGE: u64 = PAGE_BYTES as u64;

/// A file in the lane. Each change here is put on the board.
#[derive(Debug)]
struct Shared {
    board: Arc<Board>,
    slot: u32,
}

/// The grant of a file for which nothing is ever reserved.
const UNBOUNDED: u64 = u64::MAX / 2;

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) id: FileId,
    /// Bytes, as programs see it.
    size: u64,
    /// Bytes at home, as far as completed destages and freezes tell.
    pub(crate) home_size: u64,
    pub(crate) write_unit: usize,
    pub(crate) readable: bool,
    /// Ranges known to be allocated at home, page-aligned.
    allocated: RangeSet,
    /// The back end can reserve space.
    reservable: bool,
    shared: Option<Shared>,
    pub(crate) pages: List,
    /// Contents that are not at home and not in transfer, in pages. If a page has content in memory and content that
    /// was spilled, both count.
    pub(crate) dirty_pages: usize,
    /// Of these, spilled ones.
    pub(crate) spilled_pages: usize,
    /// Pages with bytes that are to be logged, if those are counted (`unlogged`).
    pub(crate) charged_pages: usize,
    /// Page contents that are being destaged.
    pub(crate) destaging_pages: usize,
    /// The device's state of the file.
    pub(crate) home: Home,
    /// Write-back's state of the file.
    pub(crate) sweeps: FileSweeps,
    /// The requests that wait for the file.
    pub(crate) waiters: FileWaiters,
    /// The journal's state of the file.
    pub(crate) logged: Logged,
    pub(crate) settled: Settled,
    /// Error sequence; a description's cursor trails it.
    pub(crate) errors: u64,
    pub(crate) last_error: Option<ErrorKind>,
    pub(crate) readahead: ReadAhead,
    pub(crate) last_read: Option<Time>,
    pub(crate) detaching: bool,
    unbound: bool,
    /// It is about to be at home: programs may not post to it until it is.
    binding: bool,
    /// The file has no name and no open description left: failed destages are not retried.
    pub(crate) discarded: bool,
}

impl File {
    pub(crate) fn new(id: FileId, home: HomeAttributes) -> File {
        let mut file = File {
            id,
            size: 0,
            home_size: 0,
            write_unit: home.write_unit as usize,
            readable: home.readable,
            allocated: RangeSet::default(),
            reservable: true,
            shared: None,
            pages: List::default(),
            dirty_pages: 0,
            spilled_pages: 0,
            charged_pages: 0,
            destaging_pages: 0,
            home: Home::default(),
            sweeps: FileSweeps::default(),
            waiters: FileWaiters::default(),
            logged: Logged::default(),
            settled: Settled::of_size(home.size),
            errors: 0,
            last_error: None,
            readahead: ReadAhead::default(),
            last_read: None,
            detaching: false,
            unbound: false,
            binding: false,
            discarded: false,
        };
        file.set_home(home);
        file
    }

    /// Takes the attributes at home of a file that has nothing cached.
    pub(crate) fn set_home(&mut self, home: HomeAttributes) {
        let is_unit = matches!(home.write_unit, 1 | 512 | 1024 | 2048 | 4096);
        assert!(is_unit, "{}", home.write_unit);
        self.set_size(home.size);
        self.home_size = home.size;
        self.write_unit = home.write_unit as usize;
        self.readable = home.readable;
        self.set_free(0, u64::MAX);
        if home.dense {
            self.set_allocated(0, home.size.next_multiple_of(u64::from(home.write_unit)));
        }
        // Earlier changes are not known.
        self.home.attributes_changed();
        self.home.layout.stale = true;
        self.readahead = ReadAhead::default();
    }

    /// Bytes, as programs see it.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// To be called after the new bytes of a growing file are in place, and before the bytes of a shrinking file are
    /// removed.
    #[inline]
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = size;
        if let Some(shared) = &self.shared {
            shared.board.set_size(shared.slot, size);
        }
    }

    /// The offset of a write that is applied now.
    #[inline]
    pub(crate) fn offset_of(&self, target: Target) -> u64 {
        match target {
            Target::Offset(offset) => offset,
            Target::End => self.size,
        }
    }

    /// Notes that the file has been written up to `end`.
    #[inline]
    pub(crate) fn grow_to(&mut self, end: u64) {
        if end > self.size {
            self.set_size(end);
        }
    }

    /// The first part of `[from, to)` for which space would have to be reserved. While the file is not at home, none has to be.
    pub(crate) fn first_unreserved(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        if self.is_reservable() { self.first_free(from, to) } else { None }
    }

    /// The first part of `[from, to)` that is not known to be allocated at home.
    pub(crate) fn first_free(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        self.allocated.first_gap(from, to)
    }

    pub(crate) fn set_allocated(&mut self, from: u64, to: u64) {
        self.allocated.insert(from, to);
        self.tell_grant();
    }

    /// To be called before the space is given back.
    pub(crate) fn set_free(&mut self, from: u64, to: u64) {
        self.allocated.remove(from, to);
        self.tell_grant();
    }

    pub(crate) fn is_reservable(&self) -> bool {
        self.reservable && !self.unbound
    }

    /// Whether the file is not at home yet: its dirty pages are not listed, and home is not synced.
    #[inline]
    pub(crate) fn is_unbound(&self) -> bool {
        self.unbound
    }

    pub(crate) fn set_unbound(&mut self) {
        self.unbound = true;
        self.tell_grant();
    }

    /// An unbound file is about to be at home, or that has failed.
    pub(crate) fn set_binding(&mut self, begins: bool) {
        self.binding = begins && self.unbound;
        self.tell_grant();
    }

    /// The file is at home now, where no space was reserved for it. Returns whether it was not before.
    pub(crate) fn set_bound(&mut self) -> bool {
        self.binding = false;
        let was_unbound = std::mem::take(&mut self.unbound);
        if was_unbound {
            self.set_free(0, u64::MAX);
        }
        was_unbound
    }

    /// The back end cannot reserve space.
    pub(crate) fn set_unreservable(&mut self) {
        self.reservable = false;
        self.tell_grant();
    }

    /// Puts the file in the lane: the board shows it in `slot`.
    pub(crate) fn share(&mut self, board: Arc<Board>, slot: u32) {
        assert!(self.shared.is_none(), "a file is in the lane once");
        board.set_size(slot, self.size);
        self.shared = Some(Shared { board, slot });
        self.tell_grant();
    }

    /// Takes the file out of the lane. The caller then retracts its pages.
    pub(crate) fn unshare(&mut self) {
        self.shared = None;
    }

    /// The file's slot on the board, if it is in the lane.
    #[inline]
    pub(crate) fn slot(&self) -> Option<u32> {
        self.shared.as_ref().map(|shared| shared.slot)
    }

    /// The offset up to which a write needs no reservation: any while the file is not at home. A write past it is also accepted; if home has
    /// no room, a later write fails. A freeze may take away any reservation.
    fn grant(&self) -> u64 {
        if self.waiters.freeze != FreezeState::Thawed || self.binding {
            return 0;
        }
        match self.first_unreserved(0, UNBOUNDED) {
            Some((end, _)) => end,
            None => UNBOUNDED,
        }
    }

    /// Puts the grant on the board. To be called also when the file's freeze state changes.
    pub(crate) fn tell_grant(&self) {
        if let Some(shared) = &self.shared {
            shared.board.set_grant(shared.slot, self.grant());
        }
    }

    pub(crate) fn is_unclean(&self) -> bool {
        self.dirty_pages > 0 || self.destaging_pages > 0
    }

    /// No I/O is in flight and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.home.io_in_flight == 0 && self.waiters.is_idle()
    }

    pub(crate) fn record_error(&mut self, kind: ErrorKind) {
        self.errors += 1;
        self.last_error = Some(kind);
    }

    /// Space past the end of the file is no longer known to be reserved.
    pub(crate) fn forget_reserved_past_end(&mut self) {
        self.set_free(self.size().next_multiple_of(PAGE), u64::MAX);
        self.home.ahead.epoch = self.home.ahead.epoch.wrapping_add(1);
        self.home.ahead.refused = false;
    }
}

/// The position of a sequential reader.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAhead {
    pub(crate) next_page: u64,
    pub(crate) window: u32,
    pub(crate) fetched_to: u64,
}
