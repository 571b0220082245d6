//! Everything in one order ([`Order::All`]): each write and each new size is logged before it goes home, and a commit takes
//! all of it, so that the files after a crash are as at one moment.
//!
//! A commit is one group. It is closed in the same event in which all unlogged bytes of all files were appended to it,
//! behind the records of names and sizes that came before. So recovery, which finds a group whole or not at all, finds
//! the changes up to a moment, and none after it. That it always fits is seen to by the writers: one that would have more
//! unlogged than the open group, or the log, has room for waits until the group in flight is durable.
//!
//! Home gets a page only when nothing of its file is unlogged, and what is logged of the file is durable. A file gets a new
//! size at home when the record of that size is durable.
//!
//! Invariants:
//! - the open group and the log have room for all unlogged bytes;
//! - nothing that is not in a durable group goes home;
//! - while a size is logged that home does not have yet, nothing of the file is unlogged, and its records are not revoked.

use weir_log::{Lsn, Record};

use crate::cache::unlogged::NAME;
use crate::command::{Durability, FileId, FreezeScope};
use crate::config::Order;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::events::records::unlogged_bytes;
use crate::events::sync::WHOLE;
use crate::journal::FileJournal;
use crate::journal::logged::Resizing;
use crate::place::{FIRST, FileIx, PageIx, pieces};
use crate::time::Time;
use crate::waiters::freeze_state::{FreezeState, Target};
use crate::waiters::request::Step;
use crate::waiters::sync::SyncFor;
use weir_frames::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

/// A commit is begun when it fills this share of the longest group.
const COMMIT_SHARE: usize = 2;

impl Engine {
    /// Whether everything is logged before it goes home: not any more when the log has failed.
    #[inline]
    pub(crate) fn is_ordered(&self) -> bool {
        self.config.order == Order::All && self.journal.as_ref().is_some_and(FileJournal::is_usable)
    }

    /// Whether a group of the log holds a write of any length ([`crate::Config::ORDERED_GROUP_MIN`]). Without that, writes
    /// of a mount that logs everything could wait for ever.
    pub fn log_holds_any_write(&self) -> bool {
        self.group_bytes_max() >= crate::Config::ORDERED_GROUP_MIN
    }

    /// The most space that all unlogged bytes take in the log; 0 unless everything is logged.
    pub(crate) fn unlogged_space(&self) -> usize {
        if self.is_ordered() { self.cache.unlogged.bytes } else { 0 }
    }

    /// Whether a write to `[offset, end)` must wait until the log has room for its bytes.
    pub(crate) fn awaits_log_room(&self, file: FileIx, offset: u64, end: u64) -> bool {
        if !self.is_ordered() || !self.logs(file) {
            return false;
        }
        let log = self.journal.as_ref().expect("it is usable");
        let bytes = self.unlogged_after(file, offset, end);
        let space = (bytes + log.reserved_for_home()) as u64;
        !log.shared.writer().has_room(bytes) || !log.shared.has_space(space)
    }

    /// Whether a write waits until the log's tail has advanced: not only until the group in flight is durable.
    pub(crate) fn awaits_log_space(&self, file: FileIx, target: Target, len: usize) -> bool {
        if !self.is_ordered() || !self.logs(file) {
            return false;
        }
        let log = self.journal.as_ref().expect("it is usable");
        let offset = self.cache.files[file].offset_of(target);
        let bytes = self.unlogged_after(file, offset, offset.saturating_add(len as u64));
        !log.shared.has_space((bytes + log.reserved_for_home()) as u64)
    }

    /// The space in the log of what is unlogged after a write to `[offset, end)`.
    #[inline]
    fn unlogged_after(&self, file: FileIx, offset: u64, end: u64) -> usize {
        let name = if self.cache.files[file].charged_pages == 0 { NAME } else { 0 };
        let charges = pieces(offset, end)
            .map(|piece| self.cache.charge_of_write(file, piece.number, piece.start, piece.len));
        self.cache.unlogged.bytes + name + charges.sum::<usize>()
    }

    /// Whether what is unlogged is old, or so much that a commit should begin.
    pub(crate) fn commit_is_due(&self) -> bool {
        if !self.is_ordered() {
            return false;
        }
        let log = self.journal.as_ref().expect("it is usable");
        let writer = log.shared.writer();
        let bytes = (writer.position().0 - writer.head().0) as usize + self.cache.unlogged.bytes;
        let is_old = log.unlogged_since.is_some_and(|since| self.commit_due(since) <= self.clock);
        is_old || bytes > writer.group_bytes_max() / COMMIT_SHARE
    }

    fn commit_due(&self, since: Time) -> Time {
        since + self.config.commit_age
    }

    /// When a commit is due without an event, unless one is under way.
    pub(crate) fn commit_tick(&self) -> Option<Time> {
        let log = self.journal.as_ref().filter(|log| self.is_ordered() && log.group.is_none())?;
        log.unlogged_since.map(|since| self.commit_due(since))
    }

    /// Begins a commit if one is due.
    #[inline]
    pub(crate) fn commit_if_due(&mut self) {
        if self.commit_is_due() {
            self.commit_group();
        }
    }

    /// Bytes were written that are not logged.
    #[inline]
    pub(crate) fn note_age_of_unlogged(&mut self) {
        if self.cache.unlogged.are_counted
            && let Some(log) = &mut self.journal
        {
            log.unlogged_since.get_or_insert(self.clock);
        }
    }

    /// Appends all unlogged bytes of all files to the open group. False if it has no room for them.
    pub(crate) fn log_everything(&mut self) -> bool {
        let mut at = FIRST;
        while let Some((file, number)) = self.cache.dirty.unlogged.next(at) {
            at = (file, number + 1);
            if !self.may_log(file) {
                at = (file.next(), 0);
                continue;
            }
            let ix = self.cache.pages.find(file, number).expect("an unlogged page is in the table");
            let named = self.cache.files[file].logged.named_in;
            // What all unlogged bytes are charged has each file's name once.
            let name = match self.journal_mut().shared.is_named(named) {
                true => 0,
                false => self.name_bytes(file),
            };
            let bytes = name + unlogged_bytes(&self.cache.pages[ix]);
            if !self.journal_mut().shared.writer().has_room(bytes) {
                return false;
            }
            self.log_unlogged(file, (number * PAGE, (number + 1) * PAGE));
        }
        true
    }

    /// As [`Engine::log_everything`]. Returns the last position that must be durable for it, if it is not; `None` if there was
    /// no room.
    fn append_everything(&mut self) -> Option<Option<Lsn>> {
        if !self.config.undone.moment && !self.log_everything() {
            return None;
        }
        let writer = self.journal_mut().shared.writer();
        let position = writer.position();
        Some((position > writer.durable()).then(|| Lsn(position.0 - 1)))
    }

    /// Appends everything; returns the position that a sync of names is to wait for.
    pub(crate) fn append_for_names(&mut self) -> Option<Lsn> {
        let last = self.journal.as_ref().and_then(|log| log.names.last);
        let appended = self.append_everything();
        debug_assert!(appended.is_some(), "there is room for all unlogged bytes");
        appended.unwrap_or(last)
    }

    /// A file was changed of which a commit of everything leaves something that is not durable.
    pub(crate) fn is_not_served(&mut self, file: FileIx) {
        if let Some(log) = self.journal.as_mut().filter(|_| self.config.order == Order::All) {
            log.not_served.insert(file);
        }
    }

    /// The files of which [`Engine::commit_names`] leaves something that is not durable, where everything is logged: those that the log does not
    /// serve, as of other file systems below home, and those that it would take back, since home was changed without it. Each is to be synced.
    pub fn not_committed(&mut self) -> Vec<FileId> {
        if !self.is_ordered() {
            return Vec::new();
        }
        let mut files = Vec::new();
        let mut noted = std::mem::take(&mut self.journal_mut().not_served);
        noted.retain(|&file| {
            let of_file = &self.cache.files[file];
            let is_behind = of_file.is_unclean()
                || of_file.home.needs_sync(Durability::All)
                || of_file.settled.failure().is_some();
            let is_not_served = !self.may_log(file) && is_behind;
            let is_concerned = !of_file.discarded && (is_not_served || self.is_home_ahead(file));
            if is_concerned {
                files.push(of_file.id);
            }
            // Its next change notes it again.
            is_concerned
        });
        self.journal_mut().not_served = noted;
        files
    }

    /// Starts a sync of a file: a commit of everything. `None` if the file is to be brought home instead.
    pub(crate) fn sync_in_order(
        &mut self,
        file: FileIx,
        durability: Durability,
        done: SyncFor,
        now: Time,
    ) -> Option<Step<()>> {
        if !self.may_log(file) || self.is_home_ahead(file) {
            return None;
        }
        if self.config.undone.moment {
            self.log_unlogged(file, WHOLE);
        }
        let wait = self.append_everything()?;
        Some(self.await_log(file, wait, durability, done, now))
    }

    /// Called when a page is about to go home: sees to it that all its bytes, and the file's size, are in the log. False if there is no room:
    /// the page must stay.
    pub(crate) fn log_ahead(&mut self, ix: PageIx, now: Time) -> bool {
        let file = self.cache.pages[ix].file;
        // A page is written home as far as the file reaches, which other pages say.
        if self.cache.files[file].charged_pages == 0
            || self.config.undone.ahead
            || self.cache.files[file].discarded
            || !self.may_log(file)
            || self.log_everything()
        {
            return true;
        }
        self.hold_back(ix, now);
        false
    }
}

/// New sizes.
impl Engine {
    /// Whether the new size of a file that is about to be frozen is logged. Then its records need not be revoked: a replay
    /// cuts what they wrote.
    pub(crate) fn logs_size(&self, file: FileIx, scope: FreezeScope) -> bool {
        let cuts = scope.changes_from.is_none_or(|from| scope.size == Some(from));
        self.is_ordered() && cuts && scope.size.is_some() && self.may_log(file)
    }

    /// The file is quiet and about to be frozen: appends its new size, if that is to be logged. Says whether the freeze has to
    /// wait for the log.
    ///
    /// # Errors
    /// The log has no room.
    pub(crate) fn log_size(&mut self, file: FileIx, scope: FreezeScope) -> Result<bool, ErrorKind> {
        let of_file = &self.cache.files[file];
        let Some(size) = scope.size.filter(|_| self.logs_size(file, scope)) else {
            return Ok(false);
        };
        let grows_only = scope.changes_from.is_none() && size <= of_file.size();
        if of_file.logged.resizing.is_some() || grows_only {
            return Ok(false);
        }
        let record = Record::Truncate { file: of_file.logged.node(), size };
        let bytes = self.name_bytes(file) + record.padded_bytes() + self.unlogged_space();
        let writer = self.journal_mut().shared.writer();
        if !writer.has_room(bytes) {
            let undurable = (writer.position() > writer.durable())
                .then(|| Lsn(writer.position().0 - 1))
                .ok_or(ErrorKind::NoSpace)?;
            self.wait_to_freeze(file, undurable);
            return Ok(true);
        }
        // What was written before comes before.
        self.log_unlogged(file, WHOLE);
        let lsn = self.append(file, &record).expect("there is room");
        let segment = self.changed_in_log(file, size / PAGE, lsn);
        self.retain(file, segment);
        self.cache.files[file].logged.resizing = Some(Resizing { lsn, segment });
        self.wait_to_freeze(file, lsn);
        Ok(true)
    }

    fn wait_to_freeze(&mut self, file: FileIx, lsn: Lsn) {
        let FreezeState::Freezing { flushing, .. } = &mut self.cache.files[file].waiters.freeze
        else {
            panic!("only a freeze that has begun waits");
        };
        *flushing = true;
        let done = SyncFor::Freeze { revokes: false };
        self.add_log_waiter(file, Durability::Data, done, Some(lsn));
    }

    /// Home has got the size that was logged, or has refused it, or nobody will give it.
    pub(crate) fn size_is_home(&mut self, file: FileIx, succeeded: bool) {
        let Some(Resizing { lsn, segment }) = self.cache.files[file].logged.resizing.take() else {
            return;
        };
        if succeeded {
            return self.change_retention(file, |retention| retention.settle(segment));
        }
        // The record must not be replayed: everything goes home, and the file's records are revoked. Until then no sync succeeds by the log, and
        // a repair takes the record as void.
        let tail = self.journal_mut().shared.tail();
        let logged = &mut self.cache.files[file].logged;
        logged.void_before(tail);
        logged.refused_sizes.push(lsn);
        self.retain_no_more(file, segment);
        self.home_is_ahead(file);
        if self.is_ordered() && !self.cache.files[file].logged.checkpointing {
            self.start_checkpoint(file, self.clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_frames::FramePool;
    use weir_log::Commit;

    use super::*;
    use crate::command::{
        Command, Completion, FileId, FreezeEnd, HomeAttributes, IoId, LogCommand, Outcome, Output,
        Reply, RequestId,
    };
    use crate::config::Config;
    use crate::testing::empty_log;

    const ONE: FileId = FileId(1);
    const OTHER: FileId = FileId(2);

    /// An engine that logs everything, with two files, and what it left to do.
    struct Bench {
        engine: Engine,
        now: Time,
        requests: u64,
        groups: Vec<(IoId, Commit)>,
        writes: Vec<(IoId, FileId)>,
        replies: Vec<RequestId>,
        /// Writes that failed.
        failed: Vec<RequestId>,
        /// Whether syncs of home fail.
        syncs_fail: bool,
        /// The files to be written from the log, each with the records that are not to be replayed.
        redos: Vec<(FileId, Vec<Lsn>)>,
    }

    impl Bench {
        fn new() -> Bench {
            let config = Config {
                memory_bytes_max: 16 << 20,
                patch_bytes_max: 1 << 20,
                order: Order::All,
                ..Config::default()
            };
            let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
            engine.start_log(empty_log(1 << 20));
            for file in [ONE, OTHER] {
                let home = HomeAttributes { size: 0, dense: true, write_unit: 512, readable: true };
                engine.attach(file, home);
                engine.identify(file, &file.0.to_le_bytes());
            }
            let (groups, writes, replies) = (Vec::new(), Vec::new(), Vec::new());
            let now = Time::from_millis(1);
            let (failed, redos) = (Vec::new(), Vec::new());
            let (requests, syncs_fail) = (0, false);
            Bench { engine, now, requests, groups, writes, replies, failed, syncs_fail, redos }
        }

        fn request(&mut self) -> RequestId {
            self.requests += 1;
            RequestId(self.requests)
        }

        /// Says whether the write was taken.
        fn write(&mut self, file: FileId, offset: u64, len: usize) -> bool {
            let (request, data) = (self.request(), vec![7; len]);
            let durability = Durability::None;
            let written = self.engine.write(request, file, offset, &data, durability, self.now);
            self.settle();
            written == Outcome::Done(Ok(())) || self.replies.contains(&request)
        }

        /// Takes what the engine left to do. Reservations and syncs of home end at once.
        fn settle(&mut self) {
            self.engine.dispatch();
            while let Some(output) = self.engine.next_output() {
                match output {
                    Output::Reply { request, reply: Reply::Written(Err(_)) } => {
                        self.failed.push(request);
                    }
                    Output::Reply { request, reply } => {
                        assert!(matches!(
                            reply,
                            Reply::Written(Ok(())) | Reply::Synced(Ok(())) | Reply::Frozen(Ok(()))
                        ));
                        self.replies.push(request);
                    }
                    Output::Log(LogCommand::Write { io, commit }) => self.groups.push((io, commit)),
                    Output::Command(Command::Write { io, file, .. }) => {
                        self.writes.push((io, file))
                    }
                    Output::Command(Command::Reserve { io, .. }) => {
                        let reserved = Completion::Reserved { result: Ok(()) };
                        self.engine.complete(io, reserved, self.now);
                    }
                    Output::Command(Command::Sync { io, .. }) => {
                        let result = if self.syncs_fail { Err(ErrorKind::Io) } else { Ok(()) };
                        self.engine.complete(io, Completion::Synced { result }, self.now);
                    }
                    Output::Redo { file, refused, .. } => self.redos.push((file, refused)),
                    Output::Command(Command::Map { io, .. }) => {
                        let mapped = Completion::Mapped { extents: Vec::new() };
                        self.engine.complete(io, mapped, self.now);
                    }
                    Output::Cleaned(_) => {}
                    other => panic!("{other:?}"),
                }
                self.engine.dispatch();
            }
            self.engine.check_invariants();
        }

        fn end_group(&mut self) {
            let (io, _) = self.groups.remove(0);
            self.engine.log_completed(io, Ok(()), self.now);
            self.settle();
        }

        fn tick_after(&mut self, age: Duration) {
            self.now = self.now + age;
            self.engine.tick(self.now);
            self.settle();
        }
    }

    #[test]
    fn a_sync_of_one_file_commits_all() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 100) && bench.write(OTHER, 5000, 100));
        let request = bench.request();
        let synced = bench.engine.sync(request, ONE, Durability::Data, bench.now);
        assert_eq!(synced, Outcome::Pending);
        bench.settle();
        assert_eq!((bench.groups.len(), bench.engine.cache.unlogged.bytes), (1, 0));
        bench.end_group();
        assert_eq!((bench.replies.last(), bench.groups.len()), (Some(&request), 0));
    }

    #[test]
    fn what_is_old_is_committed_and_what_goes_home_is_logged_before() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 4096));
        let due = bench.engine.next_tick(bench.now).expect("a commit is due");
        assert!(due <= bench.now + bench.engine.config.commit_age);
        bench.tick_after(bench.engine.config.commit_age);
        assert_eq!((bench.groups.len(), bench.writes.len()), (1, 0));
        bench.end_group();
        // The file is longer now than the log says.
        assert!(bench.write(ONE, 8192, 10));
        bench.tick_after(bench.engine.config.dirty_expire);
        assert_eq!((bench.groups.len(), bench.writes.len()), (1, 0));
        bench.end_group();
        assert!(bench.writes.iter().any(|&(_, file)| file == ONE));
    }

    #[test]
    fn a_writer_waits_while_a_commit_would_not_fit_in_a_group() {
        let mut bench = Bench::new();
        let page = |nth: u64| nth * PAGE;
        let taken = (0..200).take_while(|&nth| bench.write(ONE, page(nth), 4096)).count();
        let group = bench.engine.group_bytes_max() as u64 / PAGE;
        assert!((10..200).contains(&taken) && taken as u64 <= 2 * group, "{taken} pages");
        assert_eq!(bench.groups.len(), 1, "one is in flight");
        bench.end_group();
        assert!(bench.replies.contains(&RequestId(bench.requests)), "it was taken");
    }

    #[test]
    fn a_writer_does_not_wait_for_a_log_of_which_home_refuses_all() {
        let mut bench = Bench::new();
        let mut waits = false;
        for nth in 0.. {
            if !bench.failed.is_empty() {
                break;
            }
            assert!(nth < 1000, "it waits for ever");
            waits = waits || !bench.write(ONE, nth * PAGE, 4096);
            while !bench.groups.is_empty() {
                bench.end_group();
            }
            waits &= !bench.replies.contains(&RequestId(bench.requests));
            if !waits {
                continue;
            }
            for (io, _) in std::mem::take(&mut bench.writes) {
                let refused = Completion::Written { result: Err(ErrorKind::Io) };
                bench.engine.complete(io, refused, bench.now);
                bench.settle();
            }
            bench.tick_after(bench.engine.config.retry_delay);
        }
        let log = bench.engine.journal.as_ref().unwrap();
        assert!(!log.shared.has_space(PAGE) && bench.engine.cache.unlogged.bytes < 2 * 4096);
        // Reads and what needs no room go on. When home takes the data, so do writes.
        let request = bench.request();
        let read = bench.engine.read(request, ONE, 0, 10, bench.now);
        assert!(matches!(read, Outcome::Done(Ok(_))));
        for _ in 0..100 {
            for (io, _) in std::mem::take(&mut bench.writes) {
                let taken = Completion::Written { result: Ok(()) };
                bench.engine.complete(io, taken, bench.now);
                bench.settle();
            }
            while !bench.groups.is_empty() {
                bench.end_group();
            }
            bench.tick_after(bench.engine.config.retry_delay);
        }
        assert!(bench.write(ONE, 0, 4096));
    }

    #[test]
    fn home_gets_a_new_size_when_its_record_is_durable() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 4096) && bench.write(OTHER, 0, 10));
        let request = bench.request();
        let scope = FreezeScope::resizing(100);
        let frozen = bench.engine.freeze(request, ONE, scope, bench.now);
        assert_eq!(frozen, Outcome::Pending);
        bench.settle();
        assert_eq!((bench.groups.len(), bench.replies.contains(&request)), (1, false));
        assert_eq!(bench.engine.cache.unlogged.bytes, 0, "what was written before comes before");
        bench.end_group();
        assert!(bench.replies.contains(&request));
        bench.engine.thaw(
            ONE,
            FreezeEnd { discard: None, size: Some(100), written: false },
            bench.now,
        );
        bench.settle();
        assert_eq!(bench.engine.size(ONE), Some(100));
        // The log is needed for the size until home is synced.
        let file = bench.engine.cache.files.find(ONE).unwrap();
        let retention = &bench.engine.cache.files[file].logged.retention;
        assert!(retention.settling.first().is_some());
    }

    #[test]
    fn a_sync_of_names_takes_the_data() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 100));
        let request = bench.request();
        assert_eq!(bench.engine.commit_names(request, bench.now), Outcome::Pending);
        bench.settle();
        bench.end_group();
        assert_eq!(bench.replies.last(), Some(&request));
        assert_eq!(bench.engine.commit_names(request, bench.now), Outcome::Done(Ok(())));
    }

    #[test]
    fn who_commits_everything_is_told_which_files_the_log_does_not_serve() {
        let mut bench = Bench::new();
        let third = FileId(3);
        let home = HomeAttributes { size: 0, dense: true, write_unit: 512, readable: true };
        bench.engine.attach(third, home);
        assert!(bench.write(third, 0, 4096));
        assert!(bench.write(ONE, 0, 4096));
        let request = bench.request();
        assert_eq!(bench.engine.commit_names(request, bench.now), Outcome::Pending);
        bench.settle();
        bench.end_group();
        assert!(bench.engine.has_dirty(third));
        assert_eq!(bench.engine.not_committed(), [third]);
        let request = bench.request();
        let synced = bench.engine.sync(request, third, Durability::All, bench.now);
        assert_eq!(synced, Outcome::Pending);
        bench.settle();
        let (io, file) = bench.writes.remove(0);
        assert_eq!(file, third);
        bench.engine.complete(io, Completion::Written { result: Ok(()) }, bench.now);
        bench.settle();
        assert!(bench.replies.contains(&request));
        assert_eq!(bench.engine.not_committed(), []);
        // It is asked about again after each write.
        assert!(bench.write(third, 0, 10));
        assert_eq!(bench.engine.not_committed(), [third]);
        bench.engine.identify(third, b"third");
        assert_eq!(bench.engine.not_committed(), []);
    }

    /// A new size of a file is in the log, durably, and home is to get it.
    fn log_size(bench: &mut Bench, size: u64) {
        let request = bench.request();
        let scope = FreezeScope::resizing(size);
        assert_eq!(bench.engine.freeze(request, ONE, scope, bench.now), Outcome::Pending);
        bench.settle();
        bench.end_group();
        assert!(bench.replies.contains(&request));
    }

    #[test]
    fn a_size_that_home_refused_is_not_committed_until_its_record_is_void() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 8192));
        log_size(&mut bench, 100);
        assert_eq!(bench.engine.not_committed(), []);
        let refused = FreezeEnd { discard: None, size: None, written: false };
        bench.engine.thaw(ONE, refused, bench.now);
        bench.settle();
        assert_eq!(bench.engine.not_committed(), [ONE]);
        let request = bench.request();
        let synced = bench.engine.sync(request, ONE, Durability::Data, bench.now);
        assert_eq!(synced, Outcome::Pending);
        for _ in 0..3 {
            bench.settle();
            for (io, _) in std::mem::take(&mut bench.writes) {
                assert!(!bench.replies.contains(&request));
                bench.engine.complete(io, Completion::Written { result: Ok(()) }, bench.now);
                bench.settle();
            }
            while !bench.groups.is_empty() {
                assert!(!bench.replies.contains(&request), "before it is void");
                bench.end_group();
            }
        }
        assert!(bench.replies.contains(&request));
        assert_eq!(bench.engine.not_committed(), []);
    }

    #[test]
    fn what_is_rewritten_from_the_log_is_not_cut_at_a_size_that_home_refused() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 8192));
        log_size(&mut bench, 100);
        let file = bench.engine.cache.files.find(ONE).unwrap();
        let size = bench.engine.cache.files[file].logged.last_change.unwrap();
        // Home has taken the data when it refuses the size, and then cannot sync it.
        bench.syncs_fail = true;
        let refused = FreezeEnd { discard: None, size: None, written: false };
        bench.engine.thaw(ONE, refused, bench.now);
        let all_home = |bench: &mut Bench| {
            for (io, _) in std::mem::take(&mut bench.writes) {
                bench.engine.complete(io, Completion::Written { result: Ok(()) }, bench.now);
                bench.settle();
            }
            while !bench.groups.is_empty() {
                bench.end_group();
            }
            bench.tick_after(bench.engine.config.retry_delay);
        };
        for _ in 0..3 {
            bench.settle();
            all_home(&mut bench);
        }
        assert_eq!(bench.redos, [(ONE, vec![size])]);
        bench.syncs_fail = false;
        bench.engine.redone(ONE, Ok(()), bench.now);
        let request = bench.request();
        let synced = bench.engine.sync(request, ONE, Durability::Data, bench.now);
        assert_eq!(synced, Outcome::Pending);
        for _ in 0..3 {
            bench.settle();
            all_home(&mut bench);
        }
        assert!(bench.replies.contains(&request));
        assert!(bench.engine.cache.files[file].logged.refused_sizes.is_empty(), "it is revoked");
        assert_eq!(bench.redos.len(), 1);
    }

    #[test]
    fn what_is_logged_while_a_file_is_rewritten_from_the_log_is_not_home() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 4096));
        bench.tick_after(bench.engine.config.dirty_expire);
        bench.end_group();
        for (io, _) in std::mem::take(&mut bench.writes) {
            bench.engine.complete(io, Completion::Written { result: Ok(()) }, bench.now);
            bench.settle();
        }
        assert!(bench.write(ONE, 8192, 4096) && bench.write(OTHER, 0, 10));
        bench.engine.home_sync_failed(ErrorKind::Io, None, bench.now);
        bench.settle();
        assert_eq!(bench.redos.len(), 1);
        let request = bench.request();
        let synced = bench.engine.sync(request, OTHER, Durability::Data, bench.now);
        assert_eq!(synced, Outcome::Pending);
        bench.settle();
        bench.end_group();
        assert!(bench.replies.contains(&request), "all is durable in the log");
        bench.engine.redone(ONE, Ok(()), bench.now);
        bench.settle();
        let file = bench.engine.cache.files.find(ONE).unwrap();
        let retention = &bench.engine.cache.files[file].logged.retention;
        assert!(
            retention.away.first().is_some(),
            "the log is needed for what was logged meanwhile"
        );
    }

    #[test]
    fn a_size_that_home_refused_is_made_void_also_if_home_cannot_be_synced_at_first() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 8192));
        log_size(&mut bench, 100);
        bench.syncs_fail = true;
        let refused = FreezeEnd { discard: None, size: None, written: false };
        bench.engine.thaw(ONE, refused, bench.now);
        for again in 0..10 {
            bench.settle();
            for (io, _) in std::mem::take(&mut bench.writes) {
                bench.engine.complete(io, Completion::Written { result: Ok(()) }, bench.now);
                bench.settle();
            }
            while !bench.groups.is_empty() {
                bench.end_group();
            }
            for (file, _) in std::mem::take(&mut bench.redos) {
                bench.engine.redone(file, Ok(()), bench.now);
                bench.settle();
            }
            bench.syncs_fail = again < 5;
            if let Some(next) = bench.engine.next_tick(bench.now) {
                bench.tick_after(next.since(bench.now));
            }
            let file = bench.engine.cache.files.find(ONE).unwrap();
            let is_void = bench.engine.cache.files[file].logged.refused_sizes.is_empty();
            assert!(!is_void || again >= 5);
        }
        let file = bench.engine.cache.files.find(ONE).unwrap();
        assert!(bench.engine.cache.files[file].logged.refused_sizes.is_empty(), "it is revoked");
        assert!(bench.groups.is_empty() && bench.engine.next_tick(bench.now).is_none());
    }

    #[test]
    fn what_is_rewritten_from_the_log_is_not_cut_at_a_size_that_home_does_not_have_yet() {
        let mut bench = Bench::new();
        assert!(bench.write(ONE, 0, 8192));
        bench.tick_after(bench.engine.config.commit_age);
        bench.end_group();
        bench.tick_after(bench.engine.config.dirty_expire);
        for (io, _) in std::mem::take(&mut bench.writes) {
            bench.engine.complete(io, Completion::Written { result: Ok(()) }, bench.now);
            bench.settle();
        }
        let request = bench.request();
        let scope = FreezeScope::resizing(100);
        assert_eq!(bench.engine.freeze(request, ONE, scope, bench.now), Outcome::Pending);
        bench.settle();
        let file = bench.engine.cache.files.find(ONE).unwrap();
        let size = bench.engine.cache.files[file].logged.last_change.unwrap();
        bench.engine.home_sync_failed(ErrorKind::Io, None, bench.now);
        bench.settle();
        assert_eq!(bench.redos, []);
        // The group is durable, and what ends first with that is another sync, which wants the repair.
        bench.engine.journal_mut().shared.committed();
        bench.engine.start_repair(file, bench.now);
        bench.settle();
        assert_eq!(bench.redos, [(ONE, vec![size])]);
    }

    #[test]
    fn the_last_page_of_a_group_does_not_need_its_files_name_again() {
        let mut bench = Bench::new();
        let long = FileId(3);
        let home = HomeAttributes { size: 0, dense: true, write_unit: 512, readable: true };
        bench.engine.attach(long, home);
        bench.engine.identify(long, &[7; weir_log::IDENTITY_BYTES_MAX]);
        let room = |bench: &Bench| {
            let writer = bench.engine.journal.as_ref().unwrap().shared.writer();
            (0..writer.group_bytes_max()).rev().find(|&bytes| writer.has_room(bytes)).unwrap()
        };
        // Fills the open group to within less than a name, while another one is in flight.
        let mut nth = 0;
        while room(&bench) - bench.engine.cache.unlogged.bytes > 4096 + 256 {
            // The charge of such a record is a byte more than its length in the log.
            assert!(bench.write(long, nth * PAGE, 4089));
            nth += 1;
        }
        let rest = room(&bench) - bench.engine.cache.unlogged.bytes;
        let len = (rest - crate::cache::unlogged::RECORD - 8).min(4089);
        assert!(bench.write(long, nth * PAGE, len));
        let left = room(&bench) - bench.engine.cache.unlogged.bytes;
        let file = bench.engine.cache.files.find(long).unwrap();
        let spare = left + nth as usize + 1;
        assert!(spare < bench.engine.name_bytes(file), "{spare} bytes are left");
        assert!(bench.engine.append_everything().is_some());
        assert_eq!(bench.engine.cache.unlogged.bytes, 0);
    }
}
