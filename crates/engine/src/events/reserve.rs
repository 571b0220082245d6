//! Reservation of space, so that the writer, and not a later destage, gets the error of a full disk.
//!
//! A write into a hole or past the end waits until its blocks are allocated at home. For a file that grows, space is
//! allocated ahead, so that its writer need not wait; unused space is given back when the file is closed.

use weir_frames::PAGE_BYTES;

use crate::command::{Command, Reply, RequestId};
use crate::device::home::Ahead;
use crate::device::transfer::Io;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::FileIx;
use crate::time::Time;
use crate::waiters::freeze_state::Event;
use crate::waiters::request::Pending;

const PAGE: u64 = PAGE_BYTES as u64;

/// Space reserved ahead of a growing file is half its size, up to this.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// No space is reserved ahead for files smaller than this: most never grow further.
const AHEAD_FILE_BYTES_MIN: u64 = 64 << 10;

/// Pages of a file that are looked at, one by one, to find out whether the file has holes.
const PAGES_LOOKED_AT_MAX: u64 = 1024;

impl Engine {
    /// The first part `[from, to)` of the pages of a write to `[offset, end)` that is not known to
    /// be allocated at home.
    pub(crate) fn unreserved(&self, file: FileIx, offset: u64, end: u64) -> Option<(u64, u64)> {
        self.cache.files[file].first_unreserved(offset / PAGE * PAGE, end.next_multiple_of(PAGE))
    }

    /// Asks for space that `request` waits for.
    pub(crate) fn reserve_for(&mut self, request: RequestId, file: FileIx, (from, to): (u64, u64)) {
        let io = self.device.next_io(Io::Reserve { file, request, from, to });
        let id = self.cache.files[file].id;
        self.issue(Command::Reserve { io, file: id, offset: from, len: to - from });
    }

    /// Asks for space past `end`, up to which the file grows, if little of it is left.
    pub(crate) fn reserve_ahead(&mut self, file: FileIx, end: u64) {
        let of_file = &self.cache.files[file];
        let Ahead { in_flight, refused, epoch } = of_file.home.ahead;
        if !of_file.is_reservable() || in_flight || refused || end < AHEAD_FILE_BYTES_MIN {
            return;
        }
        let ahead = (end / 2).min(AHEAD_BYTES_MAX).next_multiple_of(PAGE);
        let start = end.next_multiple_of(PAGE);
        // Space for at least one write of the largest size is kept reserved.
        let Some((from, _)) = of_file.first_free(start, start.saturating_add(ahead / 2)) else {
            return;
        };
        let to = from.saturating_add(ahead).min(i64::MAX as u64 / PAGE * PAGE);
        if from >= to {
            return;
        }
        self.cache.files[file].home.ahead.in_flight = true;
        let id = self.cache.files[file].id;
        let io = self.device.next_io(Io::ReserveAhead { file, from, to, epoch });
        self.issue(Command::Reserve { io, file: id, offset: from, len: to - from });
    }

    /// Asks for space for what was written to a file in the lane before home had it: programs may post only up to where
    /// space is known to be, and writes over dirty pages ask for none. The file's holes stay holes.
    pub(crate) fn reserve_written(&mut self, file: FileIx) {
        let of_file = &self.cache.files[file];
        let to = of_file.size().next_multiple_of(PAGE);
        let Some((from, _)) = of_file.first_unreserved(0, to) else { return };
        let is_asked = of_file.slot().is_some() && !of_file.is_unbound();
        if !is_asked || of_file.home.ahead.in_flight || !self.is_dirty_throughout(file, from, to) {
            return;
        }
        let of_file = &mut self.cache.files[file];
        of_file.home.ahead.in_flight = true;
        let (id, epoch) = (of_file.id, of_file.home.ahead.epoch);
        let io = self.device.next_io(Io::ReserveAhead { file, from, to, epoch });
        self.issue(Command::Reserve { io, file: id, offset: from, len: to - from });
    }

    /// Whether all pages of `[from, to)` are dirty. May say no if they are many and the file has clean ones, too.
    fn is_dirty_throughout(&self, file: FileIx, from: u64, to: u64) -> bool {
        if self.cache.files[file].dirty_pages as u64 == to / PAGE {
            return true;
        }
        let mut pages = from / PAGE..to / PAGE;
        let is_dirty = |number| {
            let page = self.cache.pages.find(file, number);
            page.is_some_and(|page| self.cache.pages[page].dirty_seq != 0)
        };
        to / PAGE - from / PAGE <= PAGES_LOOKED_AT_MAX && pages.all(is_dirty)
    }

    /// A reservation ended: the write continues or fails.
    pub(crate) fn reserved(
        &mut self,
        file: FileIx,
        request: RequestId,
        (from, to): (u64, u64),
        result: Result<(), ErrorKind>,
        now: Time,
    ) {
        let of_file = &mut self.cache.files[file];
        of_file.home.io_in_flight -= 1;
        of_file.waiters.active -= 1;
        let Some(Pending::Reserving { target, data, durability }) =
            self.waiters.pending.remove(&request)
        else {
            panic!("the write that waits for a reservation is pending");
        };
        match result {
            Ok(()) => {
                of_file.set_allocated(from, to);
                of_file.home.layout.stale = true;
            }
            Err(ErrorKind::Unsupported) => of_file.set_unreservable(),
            Err(kind) => return self.reply(request, Reply::Written(Err(kind.into()))),
        }
        self.run(request, file, Event::Write { target, data, durability }, now);
    }

    /// A reservation ahead of writers ended.
    pub(crate) fn reserved_ahead(
        &mut self,
        file: FileIx,
        (from, to): (u64, u64),
        epoch: u32,
        result: Result<(), ErrorKind>,
    ) {
        let of_file = &mut self.cache.files[file];
        of_file.home.io_in_flight -= 1;
        of_file.home.ahead.in_flight = false;
        of_file.home.layout.stale = true;
        match result {
            Ok(()) if of_file.home.ahead.epoch == epoch => of_file.set_allocated(from, to),
            Ok(()) => {}
            Err(_) => of_file.home.ahead.refused = true,
        }
    }
}
