//! Records of names. What they mean is not known here: the owner of the namespace applies a change when it has its place
//! in the log, and says from where on the log is needed for that ([`Engine::names_need`]).
//!
//! A sync of a file by the log waits for the records of names before it, too: the log has one order, and one durable
//! write of a group answers both.

use weir_log::{Lsn, Record};

use crate::command::{Durability, FileId, Outcome, Reply, RequestId};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::events::sync::WHOLE;
use crate::time::Time;
use crate::waiters::freeze_state::FreezeState;

/// Why a record of names was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLogged {
    /// The open group, or the log, has no room for it now: to be tried again when [`Engine::commit_names`] was answered.
    #[error("the log is full")]
    Full,
    /// No group is long enough for it.
    #[error("the record is longer than a group of the log may be")]
    TooLong,
    /// There is no log, or it takes no more records.
    #[error("the log takes no more records")]
    Closed,
}

/// What a record of names is about, by which it leaves space free in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOf {
    /// A change by a program: it leaves the space reserved for home.
    Program,
    /// What home has, or is about to do: it leaves half of that, for what home did.
    HomeBegins,
    /// The same while home does nothing else: it leaves a quarter.
    HomeBeginsAlone,
    /// What home did. Without it nothing more goes home, and the log is not freed: where other records have used what is
    /// reserved for it, it takes of what is reserved for them.
    HomeDid,
}

impl Engine {
    /// A number for a node, unique in this log for ever; `None` if there is no log, or no number now.
    pub fn new_node(&mut self) -> Option<u64> {
        self.journal.as_mut()?.shared.new_node()
    }

    /// The most bytes that a group of the log holds; 0 without a log.
    pub fn group_bytes_max(&self) -> usize {
        self.journal.as_ref().map_or(0, |log| log.shared.writer().group_bytes_max())
    }

    /// Appends a file's bytes that are not in the log, so that its content is durable with whatever is appended after them.
    /// False if that cannot be done now: then the file is to be synced.
    pub fn log_data(&mut self, file: FileId, now: Time) -> bool {
        self.clock = now;
        let Some(file) = self.cache.files.find(file) else { return true };
        if self.is_ordered() {
            // The commit of what comes after takes it.
            return self.may_log(file) && !self.is_home_ahead(file);
        }
        let of_file = &self.cache.files[file];
        // Its size, or what went home without the log, is durable when home is synced.
        let is_at_home = of_file.home.needs_sync(Durability::Data);
        let held = of_file.waiters.freeze != FreezeState::Thawed;
        if is_at_home || held || !self.may_log(file) || self.is_home_ahead(file) {
            return false;
        }
        let unlogged = self.unlogged_in(file, WHOLE);
        if !self.has_room_for(unlogged.bytes) || !self.is_worth_logging(unlogged) {
            return false;
        }
        self.log_unlogged(file, WHOLE);
        true
    }

    /// Appends a record of names to the open group, and before it those records of `named` whose nodes the group does not
    /// name yet. The log is needed from there on until [`Engine::names_need`] says otherwise. Returns the record's position.
    /// What is left of the log's space depends on what the record is about.
    ///
    /// # Errors
    /// See [`NotLogged`]; nothing was appended.
    pub fn log_names(
        &mut self,
        named: &[Record<'_>],
        record: &Record<'_>,
        of: RecordOf,
        now: Time,
    ) -> Result<Lsn, NotLogged> {
        self.clock = now;
        let unlogged = self.unlogged_space();
        let log = self.journal.as_mut().filter(|log| log.is_usable()).ok_or(NotLogged::Closed)?;
        let bytes = |record: &Record<'_>| record.padded_bytes();
        let all = named.iter().map(bytes).sum::<usize>() + bytes(record);
        if all > log.shared.writer().group_bytes_max() {
            return Err(NotLogged::TooLong);
        }
        let beside = all + unlogged;
        let has_space_and = |reserved: usize| log.shared.has_space((beside + reserved) as u64);
        let has_space = match of {
            RecordOf::Program => has_space_and(log.reserved_for_home()),
            RecordOf::HomeBegins => has_space_and(log.reserved_for_home() / 2),
            RecordOf::HomeBeginsAlone => has_space_and(log.reserved_for_home() / 4),
            RecordOf::HomeDid => log.shared.has_last_space(beside as u64),
        };
        if !has_space || !log.shared.writer().has_room(beside) {
            self.commit_group();
            self.pump_log(now);
            return Err(NotLogged::Full);
        }
        let head = log.shared.writer().head();
        if log.names.named_in != Some(head) {
            log.names.named.clear();
            log.names.named_in = Some(head);
        }
        for name in named {
            // A place is not what a node is: there may be several.
            let is_place = matches!(name, Record::Name(weir_log::NameRecord::Place { .. }));
            if is_place || log.names.named.insert(name.file()) {
                log.shared.append_unnamed(name);
            }
        }
        let lsn = log.shared.append_unnamed(record);
        // A segment may begin here.
        log.shared.open_segment();
        log.names.last = Some(lsn);
        if log.shared.kept_from().is_none() {
            log.shared.keep_from(Some(lsn));
        }
        self.stats.log_records += 1;
        if self.journal_mut().shared.is_open_group_long() {
            self.commit_group();
        }
        Ok(lsn)
    }

    /// The log is needed for names from this position on; `None` if it is not. That counts when the changes that say so are
    /// durable: one of them may remove what an earlier one made, and until then the earlier one may have to be replayed. After
    /// the log has failed it counts at once: no change becomes durable there any more, and home has them.
    pub fn names_need(&mut self, from: Option<Lsn>, now: Time) {
        self.clock = now;
        let Some(log) = &mut self.journal else { return };
        // What is not logged may be placed with a record that is free by now.
        let from = from.map(|from| from.max(log.shared.freed_to()));
        let kept = log.shared.kept_from();
        let is_later = kept.is_some_and(|kept| from.is_none_or(|from| from > kept));
        let waits = is_later && log.failed.is_none();
        match log.names.last.filter(|&last| waits && !log.shared.is_durable(last)) {
            Some(last) => {
                let is_less = |queued: Option<Lsn>| match (from, queued) {
                    (Some(from), queued) => queued.is_none_or(|queued| queued > from),
                    (None, _) => false,
                };
                log.names.needs.take(|after, &(_, queued)| after == last || is_less(queued));
                log.names.needs.push(last, (last, from));
            }
            None => {
                log.names.needs.take_all();
                log.shared.keep_from(from);
            }
        }
        self.pump_log(now);
    }

    /// Whether names need the log, as far as [`Engine::names_need`] has said.
    pub fn is_log_needed_for_names(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| log.shared.kept_from().is_some())
    }

    /// Everything before this position is durable.
    pub fn names_durable(&self) -> Lsn {
        self.journal.as_ref().map_or(Lsn(0), |log| log.shared.durable())
    }

    /// No record before this position is replayed any more.
    pub fn log_tail(&self) -> Lsn {
        self.journal.as_ref().map_or(Lsn(0), |log| log.shared.tail())
    }

    /// Frees the log of all records of names up to `upto`, which names do not need any more. Says whether that is done:
    /// otherwise it is under way, or data needs the log from before.
    pub fn free_names_log(&mut self, upto: Lsn, now: Time) -> bool {
        self.clock = now;
        let Some(log) = self.journal.as_mut().filter(|log| log.is_usable()) else { return true };
        if log.shared.tail() > upto {
            return true;
        }
        if !log.names.needs.is_empty() {
            self.commit_group();
        }
        // The tail is where a group begins: the next one.
        self.advance_tail(1);
        self.free_log(now);
        false
    }

    /// More than half of the log is used: names should be settled at home to free it.
    pub fn log_wants_room(&self) -> bool {
        self.journal.as_ref().is_some_and(|log| log.shared.is_half_full())
    }

    /// Makes all records of names durable that were appended, and all data with them if everything is logged. Answered as
    /// [`Reply::Synced`] unless they are.
    ///
    /// # Errors
    /// The log has failed.
    pub fn commit_names(&mut self, request: RequestId, now: Time) -> Outcome<()> {
        self.clock = now;
        let Some(log) = &self.journal else { return Outcome::Done(Ok(())) };
        if let Some(kind) = log.failed {
            return Outcome::Done(Err(Error::Home(kind)));
        }
        let of_names = log.names.last;
        let last = match self.is_ordered() {
            true => self.append_for_names(),
            false => of_names,
        };
        let log = self.journal_mut();
        let Some(last) = last.filter(|&last| !log.shared.is_durable(last)) else {
            return Outcome::Done(Ok(()));
        };
        log.names.waiting.push(last, request);
        self.commit_group();
        Outcome::Pending
    }

    /// The position of the last record of names, if it is not durable yet.
    pub(crate) fn undurable_name(&self) -> Option<Lsn> {
        let log = self.journal.as_ref()?;
        log.names.last.filter(|&last| !log.shared.is_durable(last))
    }

    /// The log is durable up to `durable`: answers those that waited for that.
    pub(crate) fn names_committed(&mut self, durable: Lsn) {
        let log = self.journal_mut();
        if let Some((after, from)) = log.names.needs.ready(durable).pop() {
            // Records that came later are needed until somebody says otherwise.
            let later = log.names.last.filter(|&last| last > after).map(|_| after);
            let from = from.or(later).map(|from| from.max(log.shared.freed_to()));
            log.shared.keep_from(from);
        }
        for request in self.journal_mut().names.waiting.ready(durable) {
            self.reply(request, Reply::Synced(Ok(())));
        }
    }

    /// The log has failed: nothing that waits for it will be durable.
    pub(crate) fn fail_names(&mut self, kind: ErrorKind) {
        for request in self.journal_mut().names.waiting.take_all() {
            self.reply(request, Reply::Synced(Err(Error::Home(kind))));
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_frames::FramePool;
    use weir_log::Commit;

    use super::*;
    use crate::command::{Command, Completion, HomeAttributes, LogCommand, Output};
    use crate::config::Config;
    use crate::testing::empty_log;

    const FILE: FileId = FileId(7);
    const REQUEST: RequestId = RequestId(1);

    /// An engine with a log, of which the test executes the commands.
    struct Bench {
        engine: Engine,
        now: Time,
        replies: Vec<(RequestId, Result<(), Error>)>,
        log: Vec<(crate::command::IoId, Commit)>,
        syncs_home: bool,
    }

    impl Bench {
        fn new() -> Bench {
            let config = Config {
                memory_bytes_max: 16 << 20,
                patch_bytes_max: 1 << 20,
                ..Config::default()
            };
            let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
            engine.start_log(empty_log(1 << 20));
            let (replies, log) = (Vec::new(), Vec::new());
            Bench { engine, now: Time::from_millis(1), replies, log, syncs_home: false }
        }

        /// A file that records of names make.
        fn make(&mut self) -> u64 {
            let node = self.engine.new_node().unwrap();
            let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
            self.engine.attach(FILE, home);
            self.engine.set_unbound(FILE);
            self.engine.made_as(FILE, node);
            node
        }

        fn log(&mut self, number: u64) -> Lsn {
            let named = [Record::File { file: 1, identity: b"root" }];
            let record = Record::Truncate { file: number, size: 0 };
            self.engine.log_names(&named, &record, RecordOf::Program, self.now).unwrap()
        }

        /// Takes what the engine left to do, and syncs home.
        fn settle_with_home(&mut self) {
            self.syncs_home = true;
            self.settle();
            self.syncs_home = false;
        }

        /// Takes what the engine left to do. Only the log is to be used.
        fn settle(&mut self) {
            self.engine.dispatch();
            while let Some(output) = self.engine.next_output() {
                match output {
                    Output::Reply { request, reply: Reply::Synced(result) } => {
                        self.replies.push((request, result));
                    }
                    Output::Log(LogCommand::Write { io, commit }) => self.log.push((io, commit)),
                    Output::Reply { reply: Reply::Written(Ok(())), .. } => {}
                    Output::Command(Command::Reserve { io, .. }) => {
                        let reserved = Completion::Reserved { result: Ok(()) };
                        self.engine.complete(io, reserved, self.now);
                        self.engine.dispatch();
                    }
                    Output::Command(Command::Sync { io, .. }) if self.syncs_home => {
                        self.engine.complete(io, Completion::Synced { result: Ok(()) }, self.now);
                        self.engine.dispatch();
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.engine.check_invariants();
        }

        fn end_log(&mut self, result: Result<(), ErrorKind>) {
            let (io, _) = self.log.remove(0);
            self.engine.log_completed(io, result, self.now);
            self.settle();
        }
    }

    #[test]
    fn one_group_answers_a_sync_of_a_file_that_home_does_not_have_and_the_names_before_it() {
        let mut bench = Bench::new();
        let node = bench.make();
        let named = bench.log(node);
        let written =
            bench.engine.write(RequestId(9), FILE, 0, b"some bytes", Durability::None, bench.now);
        assert!(matches!(written, Outcome::Done(Ok(())) | Outcome::Pending));
        bench.settle();
        let synced = bench.engine.sync(REQUEST, FILE, Durability::All, bench.now);
        assert_eq!(synced, Outcome::Pending);
        bench.settle();
        assert_eq!((bench.log.len(), bench.replies.len()), (1, 0));
        assert_eq!(bench.engine.commit_names(RequestId(2), bench.now), Outcome::Pending);
        bench.settle();
        bench.end_log(Ok(()));
        assert_eq!(bench.replies.len(), 2);
        assert!(bench.replies.iter().all(|(_, result)| result.is_ok()));
        assert!(named < bench.engine.names_durable() && bench.log.is_empty());
        assert_eq!(bench.engine.commit_names(REQUEST, bench.now), Outcome::Done(Ok(())));
    }

    #[test]
    fn a_sync_of_a_clean_file_waits_for_the_names_before_it() {
        let mut bench = Bench::new();
        let node = bench.make();
        bench.log(node);
        assert_eq!(bench.engine.sync(REQUEST, FILE, Durability::All, bench.now), Outcome::Pending);
        bench.settle();
        bench.end_log(Ok(()));
        assert_eq!(bench.replies, [(REQUEST, Ok(()))]);
        let again = bench.engine.sync(REQUEST, FILE, Durability::All, bench.now);
        assert_eq!(again, Outcome::Done(Ok(())), "nothing is undurable");
    }

    #[test]
    fn a_sync_that_brings_data_home_waits_for_the_names_before_it() {
        // No log serves a file that it does not name.
        let mut bench = Bench::new();
        let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
        bench.engine.attach(FILE, home);
        let node = bench.engine.new_node().unwrap();
        for (round, durability) in [Durability::Data, Durability::All].into_iter().enumerate() {
            bench.log(node);
            let request = RequestId(round as u64);
            let synced = bench.engine.sync(request, FILE, durability, bench.now);
            assert_eq!(synced, Outcome::Pending, "{durability:?}");
            bench.settle_with_home();
            assert_eq!((bench.log.len(), bench.replies.len()), (1, round), "home is synced");
            bench.end_log(Ok(()));
            assert_eq!(bench.replies.last(), Some(&(request, Ok(()))));
        }
        bench.log(node);
        assert_eq!(bench.engine.sync(REQUEST, FILE, Durability::Data, bench.now), Outcome::Pending);
        bench.settle_with_home();
        bench.end_log(Err(ErrorKind::Io));
        assert_eq!(bench.replies.last(), Some(&(REQUEST, Err(Error::Home(ErrorKind::Io)))));
    }

    #[test]
    fn what_is_durable_only_when_home_is_synced_is_not_logged_before_a_name() {
        let mut bench = Bench::new();
        bench.make();
        assert!(bench.engine.log_data(FILE, bench.now), "nothing was written");
        // Its size was set at home.
        bench.engine.changed_at_home(FILE);
        assert!(!bench.engine.log_data(FILE, bench.now));
        let unknown = FileId(FILE.0 + 1);
        assert!(bench.engine.log_data(unknown, bench.now), "it has no data");
    }

    #[test]
    fn a_node_is_named_once_in_each_group() {
        let mut bench = Bench::new();
        let node = bench.make();
        let (first, second) = (bench.log(node), bench.log(node));
        assert_eq!(second.0 - first.0, 32, "its directory is named already");
        assert_eq!(bench.engine.commit_names(REQUEST, bench.now), Outcome::Pending);
        let third = bench.log(node);
        let head = bench.engine.journal_mut().shared.writer().head();
        assert!(third.0 - head.0 > 32 + 64, "the next group names it anew");
        bench.settle();
        bench.end_log(Ok(()));
    }

    #[test]
    fn the_tail_stays_before_what_names_need() {
        let mut bench = Bench::new();
        let node = bench.make();
        let first = bench.log(node);
        for _ in 0..3000 {
            loop {
                let named = [Record::File { file: 1, identity: &[7; 200] }];
                let record = Record::Truncate { file: node, size: 0 };
                match bench.engine.log_names(&named, &record, RecordOf::Program, bench.now) {
                    Ok(_) => break,
                    Err(NotLogged::Full) => {
                        bench.settle();
                        if bench.log.is_empty() {
                            // The log is full, and nothing frees it but this.
                            assert!(bench.engine.log_wants_room());
                            assert_eq!(bench.engine.journal_mut().shared.tail(), Lsn(0));
                            let durable = bench.engine.names_durable();
                            assert!(first < durable);
                            // There is space for what frees the log.
                            let named = [Record::File { file: 1, identity: &[7; 200] }];
                            let record = Record::Truncate { file: node, size: 0 };
                            // What home does also when it has begun as much as it may.
                            let filler = Record::File { file: 2, identity: &[7; 200] };
                            for of in [RecordOf::HomeBegins, RecordOf::HomeBeginsAlone] {
                                let mut begun = 0;
                                loop {
                                    match bench.engine.log_names(&[], &filler, of, bench.now) {
                                        Ok(_) => begun += 1,
                                        Err(_) => {
                                            bench.settle();
                                            if bench.log.is_empty() {
                                                break;
                                            }
                                            bench.end_log(Ok(()));
                                        }
                                    }
                                }
                                assert!(begun > 0, "{of:?}");
                            }
                            let did = bench.engine.log_names(
                                &named,
                                &record,
                                RecordOf::HomeDid,
                                bench.now,
                            );
                            assert!(did.is_ok(), "{did:?}");
                            bench.engine.names_need(None, bench.now);
                            bench.settle();
                            assert!(!bench.log.is_empty(), "the last record is to be durable");
                            bench.end_log(Ok(()));
                            assert!(!bench.log.is_empty(), "the tail advances");
                            bench.end_log(Ok(()));
                            assert!(bench.engine.journal_mut().shared.tail() > first);
                            return;
                        }
                        bench.end_log(Ok(()));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            if bench.engine.commit_names(REQUEST, bench.now) == Outcome::Pending {
                bench.settle();
                bench.end_log(Ok(()));
            }
        }
        panic!("a log of one MiB takes all of these");
    }

    #[test]
    fn what_a_change_makes_needless_is_needed_until_the_change_is_durable() {
        let mut bench = Bench::new();
        let node = bench.make();
        let made = bench.log(node);
        assert_eq!(bench.engine.commit_names(REQUEST, bench.now), Outcome::Pending);
        bench.settle();
        bench.end_log(Ok(()));
        // The node is removed before home had it.
        let removed = bench.log(node);
        bench.engine.names_need(None, bench.now);
        assert!(!bench.engine.free_names_log(made, bench.now));
        bench.settle();
        assert_eq!(bench.engine.journal_mut().shared.kept_from(), Some(made));
        let later = bench.log(node);
        bench.end_log(Ok(()));
        assert!(removed < bench.engine.names_durable() && later >= bench.engine.names_durable());
        let kept = bench.engine.journal_mut().shared.kept_from();
        assert!(kept.is_some_and(|kept| made < kept && kept <= later), "{kept:?}");
        assert!(!bench.engine.free_names_log(made, bench.now));
        bench.settle();
        bench.end_log(Ok(()));
        assert!(bench.engine.log_tail() > made);
    }

    #[test]
    fn a_failed_log_fails_those_that_wait_for_names() {
        let mut bench = Bench::new();
        let node = bench.make();
        bench.log(node);
        assert_eq!(bench.engine.commit_names(REQUEST, bench.now), Outcome::Pending);
        bench.settle();
        bench.end_log(Err(ErrorKind::Io));
        assert_eq!(bench.replies, [(REQUEST, Err(Error::Home(ErrorKind::Io)))]);
        let record = Record::Truncate { file: node, size: 0 };
        let refused = bench.engine.log_names(&[], &record, RecordOf::Program, bench.now);
        assert_eq!(refused, Err(NotLogged::Closed));
        // What home has is needed no more, although nothing after it becomes durable in the log.
        assert!(bench.engine.is_log_needed_for_names());
        bench.engine.names_need(None, bench.now);
        assert!(!bench.engine.is_log_needed_for_names());
    }
}
