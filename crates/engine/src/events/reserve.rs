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
        let is_asked = of_file.slot().is_some() && !of_file.unbound;
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

#[cfg(test)]
mod tests {
    use weir_frames::FramePool;

    use super::*;
    use crate::command::{
        Completion, Durability, FileId, FreezeEnd, FreezeScope, HomeAttributes, Outcome, Output,
    };
    use crate::config::Config;
    use crate::waiters::freeze_state::Target;

    const FILE: FileId = FileId(7);
    const NOW: Time = Time::from_millis(1);

    /// An engine with one file without holes at home.
    fn engine_with(size: u64, write_unit: u32) -> Engine {
        let config =
            Config { memory_bytes_max: 16 << 20, patch_bytes_max: 1 << 20, ..Config::default() };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        engine.attach(FILE, HomeAttributes { size, dense: true, write_unit, readable: true });
        engine
    }

    /// Writes to the file; says which ranges are reserved for that.
    fn reserved_for_write(engine: &mut Engine, target: Target, len: usize) -> Vec<(u64, u64)> {
        let _ = engine.write_to(RequestId(1), FILE, target, &vec![1; len], Durability::None, NOW);
        let mut reserved = Vec::new();
        loop {
            engine.dispatch();
            match engine.next_output() {
                Some(Output::Command(Command::Reserve { io, offset, len, .. })) => {
                    reserved.push((offset, offset + len));
                    engine.complete(io, Completion::Reserved { result: Ok(()) }, NOW);
                }
                Some(_) => {}
                None => return reserved,
            }
        }
    }

    fn reserved_for_append(engine: &mut Engine, len: usize) -> Vec<(u64, u64)> {
        reserved_for_write(engine, Target::End, len)
    }

    fn truncate(engine: &mut Engine, size: u64) {
        let frozen = engine.freeze(RequestId(2), FILE, FreezeScope::resizing(size), NOW);
        assert_eq!(frozen, Outcome::Done(Ok(())));
        engine.thaw(FILE, FreezeEnd { discard: None, size: Some(size) }, NOW);
    }

    /// Home's blocks may be smaller than a page: then it gives back a part of the page in which the file ends.
    #[test]
    fn a_write_behind_a_new_end_reserves_the_rest_of_the_page() {
        let mut engine = engine_with(0, 512);
        assert_eq!(reserved_for_append(&mut engine, 5000), [(0, 2 * PAGE)]);
        truncate(&mut engine, 1000);
        assert_eq!(reserved_for_append(&mut engine, 2000), [(1000, PAGE)]);
        assert_eq!(reserved_for_append(&mut engine, 1000), []);
        truncate(&mut engine, 500);
        truncate(&mut engine, 3000);
        assert_eq!(reserved_for_append(&mut engine, 1), [(500, PAGE)]);
        truncate(&mut engine, 500);
        truncate(&mut engine, 4000);
        assert_eq!(reserved_for_write(&mut engine, Target::Offset(100), 1), [(500, PAGE)]);
        // As when the file is closed.
        engine.forget_reserved_past_end(FILE);
        assert_eq!(reserved_for_append(&mut engine, 10), [(4000, PAGE)]);
    }

    #[test]
    fn a_file_is_not_taken_to_have_space_past_its_end() {
        for write_unit in [512, 4096] {
            let mut engine = engine_with(1000, write_unit);
            assert_eq!(reserved_for_append(&mut engine, 2000), [(1000, PAGE)]);
        }
    }
}
