//! Files: what the engine knows of each beside its pages.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_lane::board::Board;
use weir_log::Lsn;

pub(crate) use crate::command::Section;
use crate::command::{Durability, FileId, HomeAttributes, RequestId};
use crate::error::ErrorKind;
use crate::log::{Full, Logged};
use crate::needs::Counts;
use crate::page::{FileIx, List};
use crate::ranges::RangeSet;
use crate::repair::Settled;
use crate::reserve::Ahead;
use crate::time::Time;

/// The grant of a file for which nothing is ever reserved.
const UNBOUNDED: u64 = u64::MAX / 2;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Offset(u64),
    /// To the end that the file has when the write is applied, however long it waits for that.
    End,
}

/// An event that must wait its turn, with what it needs to run later.
#[derive(Debug)]
pub(crate) enum Event {
    Write { target: Target, data: Box<[u8]>, durability: Durability },
    Read { offset: u64, len: usize },
    Exclusive { section: Section },
}

/// Whether events on a file run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// An exclusive section waits for what is under way; newer events queue behind it.
    Closing {
        /// The request for the section; `None` for a repair.
        request: Option<RequestId>,
        section: Section,
        /// Dirty data is going home first, or records are being revoked.
        flushing: bool,
    },
    /// The section runs.
    Frozen,
}

/// Whom the end of a sync is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncFor {
    Sync(RequestId),
    Write(RequestId),
    All(RequestId),
    /// The exclusive section the gate is closing for.
    Exclusive {
        /// Records of the file are also revoked.
        revokes: bool,
    },
    /// The log, which is to be freed of the file's records.
    Checkpoint,
    /// The log, of what is home already.
    Freeing,
}

/// A sync under way: first its dirty data goes home, then, for a program, the back end is synced.
#[derive(Debug)]
pub(crate) struct SyncWaiter {
    /// Names the waiter while a sync command is under way for it.
    pub(crate) id: u64,
    /// What became dirty up to this point in the engine's order is its business.
    pub(crate) seq: u64,
    /// Pages' contents still to come home.
    pub(crate) remaining: usize,
    pub(crate) error: Option<ErrorKind>,
    pub(crate) durability: Durability,
    pub(crate) done: SyncFor,
    /// The sync command is under way.
    pub(crate) syncing_home: bool,
    /// Home is synced after the repair has rewritten what home may have lost (`repair`).
    pub(crate) awaits_repair: bool,
    /// What of the log it then frees.
    pub(crate) covered: Counts,
    /// The last epoch of the file that the sync covers; 0 if none (`repair`).
    pub(crate) epoch: u32,
    pub(crate) home_sync_began: Time,
    /// It brings everything home, and so frees the log of older records of the file.
    pub(crate) full: Option<Full>,
    /// The log is to be durable beyond this position.
    pub(crate) lsn: Option<Lsn>,
}

/// What is known of where a file is on its device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mapped {
    /// The back end is being asked.
    pub(crate) asked: bool,
    /// When it was asked last.
    pub(crate) at: Option<Time>,
    /// It may have been laid out anew since.
    pub(crate) stale: bool,
}

/// Where a sequential reader is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAhead {
    pub(crate) next_page: u64,
    pub(crate) window: u32,
    pub(crate) fetched_to: u64,
}

/// A file in the lane. What the board says of it follows every change here.
#[derive(Debug)]
struct Shared {
    board: Arc<Board>,
    slot: u32,
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) id: FileId,
    /// Bytes, as programs see it.
    size: u64,
    /// Bytes at home, as far as completed destages and exclusive sections tell.
    pub(crate) home_size: u64,
    pub(crate) write_unit: usize,
    pub(crate) readable: bool,
    /// Ranges known to be allocated at home, page-aligned.
    allocated: RangeSet,
    /// The back end can reserve space.
    reservable: bool,
    shared: Option<Shared>,
    pub(crate) ahead: Ahead,
    pub(crate) pages: List,
    /// Where the sweeps for the file's syncs go on, page numbers: through patched pages, and
    /// through resident ones.
    pub(crate) synced_to: [u64; 2],
    /// Where bringing back its spilled pages goes on, for its syncs.
    pub(crate) returned_to: u64,
    /// Which of these sweeps goes on next.
    pub(crate) resident_next: bool,
    /// Contents that are not at home and not on their way, in pages: of one page, what is in memory
    /// and what was spilled count each.
    pub(crate) dirty_pages: usize,
    /// Of these, spilled ones.
    pub(crate) spilled_pages: usize,
    /// Pages' contents on their way home.
    pub(crate) destaging_pages: usize,
    /// Commands under way.
    pub(crate) io_in_flight: usize,
    /// Requests that wait for pages or a reservation.
    pub(crate) active: usize,
    /// Requests in the engine's queue of starved ones.
    pub(crate) starved: usize,
    pub(crate) gate: Gate,
    /// The gate while a repair interrupts the flush of a section, as it is to be afterwards.
    pub(crate) interrupted: Option<Gate>,
    /// Events behind the gate, in order.
    pub(crate) queue: VecDeque<(RequestId, Event)>,
    pub(crate) syncs: Vec<SyncWaiter>,
    pub(crate) home_syncs_in_flight: usize,
    /// Syncs that are answered by the sync of home under way.
    pub(crate) home_sync_for: Vec<u64>,
    /// Syncs that wait for the next one.
    pub(crate) home_sync_next: Vec<u64>,
    /// Something changed at home since the last sync of it was issued.
    pub(crate) home_unsynced: bool,
    /// How recovery finds the file; empty if it is not to be logged.
    pub(crate) identity: Box<[u8]>,
    pub(crate) logged: Logged,
    pub(crate) settled: Settled,
    /// Error sequence; a description's cursor trails it.
    pub(crate) errors: u64,
    pub(crate) last_error: Option<ErrorKind>,
    pub(crate) mapped: Mapped,
    pub(crate) readahead: ReadAhead,
    pub(crate) last_read: Option<Time>,
    pub(crate) detaching: bool,
    /// Nobody will ever read it again: failures to bring it home are not tried again.
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
            ahead: Ahead::default(),
            pages: List::default(),
            synced_to: [0; 2],
            returned_to: 0,
            resident_next: false,
            dirty_pages: 0,
            spilled_pages: 0,
            destaging_pages: 0,
            io_in_flight: 0,
            active: 0,
            starved: 0,
            gate: Gate::Open,
            interrupted: None,
            queue: VecDeque::new(),
            syncs: Vec::new(),
            home_syncs_in_flight: 0,
            home_sync_for: Vec::new(),
            home_sync_next: Vec::new(),
            home_unsynced: true,
            identity: Box::default(),
            logged: Logged::default(),
            settled: Settled::of_size(home.size),
            errors: 0,
            last_error: None,
            mapped: Mapped::default(),
            readahead: ReadAhead::default(),
            last_read: None,
            detaching: false,
            discarded: false,
        };
        file.set_home(home);
        file
    }

    /// Takes over what home says of a file that has nothing cached.
    pub(crate) fn set_home(&mut self, home: HomeAttributes) {
        assert!(home.write_unit.is_power_of_two() && (512..=4096).contains(&home.write_unit));
        self.set_size(home.size);
        self.home_size = home.size;
        self.write_unit = home.write_unit as usize;
        self.readable = home.readable;
        self.set_free(0, u64::MAX);
        if home.dense {
            self.set_allocated(0, home.size.next_multiple_of(u64::from(home.write_unit)));
        }
        // What happened before is not known.
        self.home_unsynced = true;
        self.mapped.stale = true;
        self.readahead = ReadAhead::default();
    }

    /// Bytes, as programs see it.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// To be called when the bytes of a file that grew are there, and before those of one that shrinks go.
    #[inline]
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = size;
        if let Some(shared) = &self.shared {
            shared.board.set_size(shared.slot, size);
        }
    }

    /// Where a write begins that is applied now.
    #[inline]
    pub(crate) fn offset_of(&self, target: Target) -> u64 {
        match target {
            Target::Offset(offset) => offset,
            Target::End => self.size,
        }
    }

    /// The file holds what was written up to `end`.
    #[inline]
    pub(crate) fn grow_to(&mut self, end: u64) {
        if end > self.size {
            self.set_size(end);
        }
    }

    /// The first part of `[from, to)` for which space would have to be reserved.
    pub(crate) fn first_unreserved(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        if self.reservable { self.first_free(from, to) } else { None }
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
        self.reservable
    }

    /// The back end cannot reserve space.
    pub(crate) fn set_unreservable(&mut self) {
        self.reservable = false;
        self.tell_grant();
    }

    /// Programs learn of it by the board, as `slot`.
    pub(crate) fn share(&mut self, board: Arc<Board>, slot: u32) {
        assert!(self.shared.is_none(), "a file is in the lane once");
        board.set_size(slot, self.size);
        self.shared = Some(Shared { board, slot });
        self.tell_grant();
    }

    /// They do not any more: its pages are retracted next.
    pub(crate) fn unshare(&mut self) {
        self.shared = None;
    }

    /// Where it is on the board, if it is in the lane.
    #[inline]
    pub(crate) fn slot(&self) -> Option<u32> {
        self.shared.as_ref().map(|shared| shared.slot)
    }

    /// Up to where a write needs no reservation. A write past it is accepted, too, and a later one learns that there
    /// is no room. A section may take away any reservation.
    fn grant(&self) -> u64 {
        if self.gate != Gate::Open {
            return 0;
        }
        match self.first_unreserved(0, UNBOUNDED) {
            Some((end, _)) => end,
            None => UNBOUNDED,
        }
    }

    /// Also when the gate closes or opened.
    pub(crate) fn tell_grant(&self) {
        if let Some(shared) = &self.shared {
            shared.board.set_grant(shared.slot, self.grant());
        }
    }

    pub(crate) fn is_unclean(&self) -> bool {
        self.dirty_pages > 0 || self.destaging_pages > 0
    }

    /// Nothing is under way or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.io_in_flight == 0
            && self.active == 0
            && self.starved == 0
            && self.syncs.is_empty()
            && self.queue.is_empty()
            && self.gate == Gate::Open
    }

    /// A sync waits for dirty data of this file to come home.
    pub(crate) fn is_urgent(&self) -> bool {
        self.syncs.iter().any(|sync| sync.remaining > 0)
    }

    /// A program waits for dirty data of this file to come home, not only the log.
    pub(crate) fn is_awaited(&self) -> bool {
        let for_log =
            |sync: &SyncWaiter| matches!(sync.done, SyncFor::Checkpoint | SyncFor::Freeing);
        self.syncs.iter().any(|sync| sync.remaining > 0 && !for_log(sync))
    }

    pub(crate) fn record_error(&mut self, kind: ErrorKind) {
        self.errors += 1;
        self.last_error = Some(kind);
    }
}

/// Attached files, by slot.
#[derive(Default)]
pub(crate) struct Files {
    slots: Vec<Option<Box<File>>>,
    free: Vec<u32>,
    by_id: hashbrown::HashMap<FileId, FileIx, IdHash>,
}

/// File identifiers are inode numbers: dense, and chosen by nobody hostile.
#[derive(Clone, Copy, Default)]
pub(crate) struct IdHash;

pub(crate) struct IdHasher(u64);

impl std::hash::BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

impl Files {
    pub(crate) fn find(&self, id: FileId) -> Option<FileIx> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn add(&mut self, file: File) -> FileIx {
        let id = file.id;
        let ix = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(Box::new(file));
                FileIx(slot)
            }
            None => {
                self.slots.push(Some(Box::new(file)));
                FileIx(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 open files"))
            }
        };
        let before = self.by_id.insert(id, ix);
        assert!(before.is_none(), "a file is attached once");
        ix
    }

    pub(crate) fn remove(&mut self, ix: FileIx) {
        let file = self.slots[ix.0 as usize].take().expect("an attached file");
        assert!(file.pages.is_empty() && !file.is_unclean() && file.is_idle());
        self.by_id.remove(&file.id);
        self.free.push(ix.0);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileIx, &File)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, file)| Some((FileIx(slot as u32), file.as_deref()?)))
    }
}

impl std::ops::Index<FileIx> for Files {
    type Output = File;

    fn index(&self, ix: FileIx) -> &File {
        self.slots[ix.0 as usize].as_deref().expect("an attached file")
    }
}

impl std::ops::IndexMut<FileIx> for Files {
    fn index_mut(&mut self, ix: FileIx) -> &mut File {
        self.slots[ix.0 as usize].as_deref_mut().expect("an attached file")
    }
}
