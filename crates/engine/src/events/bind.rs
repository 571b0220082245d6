//! Files that are not at home yet.
//!
//! A new file is *unbound* until it is made at home, which does not wait for the engine. Programs use it as any
//! other. Nothing of it is sent home: its dirty pages are on no list of those that may go, so that no sweep meets
//! them and other files' pages have the device. Home is not synced. Requests that need its data at home wait.

use crate::command::FileId;
use crate::engine::Engine;
use crate::time::Time;

impl Engine {
    /// An attached file, of which nothing is dirty, is not at home yet: until [`Engine::bound`] it is neither written
    /// nor synced there. It can be read; that reads zeros.
    pub fn set_unbound(&mut self, file: FileId) {
        let Some(file) = self.cache.files.find(file) else { return };
        let file = &mut self.cache.files[file];
        assert!(!file.is_unclean() && file.is_idle(), "a file is in use before it is unbound");
        file.set_unbound();
    }

    /// An unbound file is about to be at home: programs may not post to it until it is, or `begins` is false since that has failed. What they
    /// posted before is to be written before [`Engine::bound`], since nothing was reserved for it.
    pub fn binding(&mut self, file: FileId, begins: bool) {
        if let Some(file) = self.cache.files.find(file) {
            self.cache.files[file].set_binding(begins);
        }
    }

    /// The file is at home now, or never will be and was discarded before: that says nothing of whether home makes files.
    pub fn bound(&mut self, file: FileId, now: Time) {
        self.clock = now;
        let Some(file) = self.cache.files.find(file) else { return };
        let of_file = &mut self.cache.files[file];
        if !of_file.set_bound() {
            return;
        }
        if !of_file.discarded {
            self.device.failures.no_files = None;
        }
        of_file.home.ahead.epoch = of_file.home.ahead.epoch.wrapping_add(1);
        // Where names are logged, the log has all but what was set in `thaw`.
        if !of_file.logged.is_made_by_names() {
            of_file.home.attributes_changed();
        }
        self.reserve_written(file);
        // Puts them on the lists.
        for ix in self.cache.pages_of(file) {
            self.update(ix, |_| ());
        }
        self.start_home_sync(file);
        self.pump(now);
        self.feed_starved(now);
    }
}

#[cfg(test)]
mod tests {
    use weir_frames::{FramePool, PAGE_BYTES};

    use super::*;
    use crate::command::{
        Command, Completion, Durability, FreezeEnd, FreezeScope, HomeAttributes, LogCommand,
        Outcome, Output, Reply, RequestId,
    };
    use crate::config::Config;
    use crate::testing::empty_log;

    const PAGE: u64 = PAGE_BYTES as u64;
    const UNBOUND: FileId = FileId(1);
    const SYNC: RequestId = RequestId(1_000_000);
    const FREEZE: RequestId = RequestId(1_000_001);

    /// An engine, and what it left to do.
    struct Bench {
        engine: Engine,
        now: Time,
        requests: u64,
        writes: Vec<(FileId, u64, usize)>,
        syncs: Vec<FileId>,
        /// Where space was asked for.
        reserved: Vec<u64>,
        fetches: usize,
        replies: Vec<RequestId>,
        detached: Vec<FileId>,
    }

    impl Bench {
        fn new() -> Bench {
            let config = Config {
                memory_bytes_max: 16 << 20,
                patch_bytes_max: 1 << 20,
                ..Config::default()
            };
            let pool = FramePool::new(8192).unwrap();
            Bench {
                engine: Engine::new(config, pool).unwrap(),
                now: Time::from_millis(1),
                requests: 0,
                writes: Vec::new(),
                syncs: Vec::new(),
                reserved: Vec::new(),
                fetches: 0,
                replies: Vec::new(),
                detached: Vec::new(),
            }
        }

        fn with_log() -> Bench {
            let mut bench = Bench::new();
            bench.engine.start_log(empty_log(16 << 20));
            bench
        }

        fn attach(&mut self, file: FileId) {
            let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
            self.engine.attach(file, home);
        }

        fn attach_unbound(&mut self, file: FileId) {
            self.attach(file);
            self.engine.set_unbound(file);
        }

        fn write(&mut self, file: FileId, offset: u64, len: usize) {
            self.requests += 1;
            let (request, data) = (RequestId(self.requests), vec![7; len]);
            let durability = Durability::None;
            let written = self.engine.write(request, file, offset, &data, durability, self.now);
            self.settle();
            assert!(written == Outcome::Done(Ok(())) || self.replies.contains(&request));
        }

        fn sync(&mut self, file: FileId) {
            let synced = self.engine.sync(SYNC, file, Durability::Data, self.now);
            assert_eq!(synced, Outcome::Pending);
            self.settle();
        }

        fn bind(&mut self, file: FileId) {
            self.engine.bound(file, self.now);
            self.settle();
        }

        /// Lets all that is dirty and may go home become due.
        fn expire(&mut self) {
            self.now = self.now + self.engine.config().dirty_expire * 2;
            self.engine.tick(self.now);
            self.settle();
        }

        /// Does what the engine wants, until it wants nothing.
        fn settle(&mut self) {
            loop {
                self.engine.dispatch();
                let Some(output) = self.engine.next_output() else { break };
                let completion = match output {
                    Output::Command(command) => {
                        let (io, file) = (command.io(), command.file());
                        let completion = match command {
                            Command::Write { offset, parts, .. } => {
                                let len = parts.iter().map(|part| usize::from(part.len)).sum();
                                self.writes.push((file, offset, len));
                                Completion::Written { result: Ok(()) }
                            }
                            Command::Sync { .. } => {
                                self.syncs.push(file);
                                Completion::Synced { result: Ok(()) }
                            }
                            Command::Fetch { frames, .. } => {
                                self.fetches += 1;
                                Completion::Fetched { frames, result: Ok(0) }
                            }
                            Command::Reserve { offset, .. } => {
                                self.reserved.push(offset);
                                Completion::Reserved { result: Ok(()) }
                            }
                            Command::Map { .. } => Completion::Mapped { extents: Vec::new() },
                        };
                        Some((io, completion))
                    }
                    Output::Log(LogCommand::Write { io, .. } | LogCommand::SyncHome { io }) => {
                        self.engine.log_completed(io, Ok(()), self.now);
                        None
                    }
                    Output::Reply { request, reply } => {
                        match reply {
                            Reply::Written(result)
                            | Reply::Synced(result)
                            | Reply::Frozen(result) => {
                                assert_eq!(result, Ok(()));
                            }
                            Reply::Read(result) => assert!(result.is_ok()),
                        }
                        self.replies.push(request);
                        None
                    }
                    Output::Detached(file) => {
                        self.detached.push(file);
                        None
                    }
                    Output::Cleaned(_) => None,
                    other => panic!("{other:?}"),
                };
                if let Some((io, completion)) = completion {
                    self.engine.complete(io, completion, self.now);
                }
            }
            self.engine.check_invariants();
        }
    }

    #[test]
    fn dirty_data_goes_home_when_the_file_is_bound() {
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        bench.write(UNBOUND, 0, 10);
        bench.write(UNBOUND, 3 * PAGE + 5, 100);
        bench.expire();
        assert_eq!(
            (&bench.writes[..], bench.fetches),
            (&[][..], 0),
            "partial writes fetch nothing"
        );
        bench.bind(UNBOUND);
        bench.expire();
        let written: usize = bench.writes.iter().map(|&(_, _, len)| len).sum();
        assert!(written >= 110, "{:?}", bench.writes);
        assert!(!bench.engine.has_dirty(UNBOUND));
    }

    #[test]
    fn space_is_not_asked_for_where_home_has_got_whole_pages() {
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        bench.write(UNBOUND, 0, 2 * PAGE as usize + 10);
        bench.bind(UNBOUND);
        bench.expire();
        let before = bench.reserved.len();
        bench.write(UNBOUND, PAGE, 10);
        assert_eq!(bench.reserved.len(), before);
        bench.write(UNBOUND, 2 * PAGE, 10);
        assert_eq!(bench.reserved[before..], [2 * PAGE]);
    }

    #[test]
    fn a_sync_waits_until_the_file_is_bound_and_then_syncs_home() {
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        // Without data, too.
        for len in [0, 5000] {
            if len > 0 {
                bench.engine.set_unbound(UNBOUND);
                bench.write(UNBOUND, 0, len);
            }
            bench.replies.clear();
            bench.syncs.clear();
            bench.sync(UNBOUND);
            bench.expire();
            assert!(bench.replies.is_empty() && bench.syncs.is_empty() && bench.writes.is_empty());
            bench.bind(UNBOUND);
            assert_eq!((&bench.replies[..], &bench.syncs[..]), (&[SYNC][..], &[UNBOUND][..]));
        }
        assert_eq!(bench.writes, [(UNBOUND, 0, 5000)]);
    }

    #[test]
    fn a_section_waits_for_home_only_if_data_is_to_be_there() {
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        bench.write(UNBOUND, 0, 5000);
        bench.expire();
        // A truncation.
        let cut = FreezeScope::changing(None, 100);
        assert_eq!(bench.engine.freeze(FREEZE, UNBOUND, cut, bench.now), Outcome::Done(Ok(())));
        bench.engine.thaw(
            UNBOUND,
            FreezeEnd { discard: None, size: Some(100), written: false },
            bench.now,
        );
        bench.settle();
        // A search for holes.
        bench.replies.clear();
        let flush = FreezeScope::unchanging(Some((0, u64::MAX)));
        assert_eq!(bench.engine.freeze(FREEZE, UNBOUND, flush, bench.now), Outcome::Pending);
        bench.expire();
        assert!(bench.replies.is_empty() && bench.writes.is_empty());
        bench.bind(UNBOUND);
        assert_eq!(
            (&bench.replies[..], &bench.writes[..]),
            (&[FREEZE][..], &[(UNBOUND, 0, 100)][..])
        );
        bench.engine.thaw(
            UNBOUND,
            FreezeEnd { discard: None, size: None, written: false },
            bench.now,
        );
        bench.settle();
    }

    #[test]
    fn a_detach_waits_for_the_dirty_data_of_an_unbound_file() {
        let mut bench = Bench::new();
        for file in [UNBOUND, FileId(2)] {
            bench.attach_unbound(file);
        }
        bench.write(UNBOUND, 0, 5000);
        for file in [UNBOUND, FileId(2)] {
            bench.engine.detach(file, bench.now);
        }
        bench.expire();
        assert_eq!(bench.detached, [FileId(2)], "the clean one");
        bench.bind(UNBOUND);
        bench.expire();
        assert_eq!(bench.detached, [FileId(2), UNBOUND]);
    }

    #[test]
    fn an_unbound_file_is_discarded_at_once() {
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        bench.write(UNBOUND, 0, 5000);
        bench.engine.discard(UNBOUND);
        bench.engine.detach(UNBOUND, bench.now);
        bench.settle();
        assert_eq!((&bench.detached[..], bench.writes.len()), (&[UNBOUND][..], 0));
        assert_eq!(bench.engine.stats(bench.now).dirty_pages, 0);
    }

    #[test]
    fn unbound_files_are_not_in_the_way_of_others() {
        let mut bench = Bench::new();
        // More files than a sweep passes over in search of one that may go.
        for file in 1..=300 {
            bench.attach_unbound(FileId(file));
            bench.write(FileId(file), 0, 100);
        }
        for file in [FileId(1500), FileId(1501)] {
            bench.attach(file);
            bench.write(file, 0, 100);
        }
        bench.sync(FileId(1));
        bench.replies.clear();
        bench.expire();
        assert_eq!(bench.writes.len(), 2, "what was due");
        bench.write(FileId(1500), 0, 200);
        let synced = bench.engine.sync(RequestId(77), FileId(1500), Durability::Data, bench.now);
        assert_eq!(synced, Outcome::Pending);
        bench.settle();
        assert_eq!(bench.replies, [RequestId(77)]);
        // No tick is wanted for what cannot go.
        bench.now = bench.now + bench.engine.config().dirty_expire * 2;
        bench.engine.tick(bench.now);
        bench.settle();
        let soon = bench.now + std::time::Duration::from_millis(50);
        assert!(bench.engine.next_tick(bench.now).is_none_or(|next| next > soon));
        for file in 1..=300 {
            bench.bind(FileId(file));
        }
        bench.expire();
        assert_eq!(bench.writes.len(), 303);
    }

    #[test]
    fn a_write_over_data_on_its_way_to_a_file_just_bound_is_not_lost() {
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        bench.write(UNBOUND, 0, 4096);
        bench.engine.bound(UNBOUND, bench.now);
        bench.write(UNBOUND, 0, 4096);
        bench.expire();
        assert!(!bench.engine.has_dirty(UNBOUND));
    }

    #[test]
    fn what_was_written_before_the_file_was_identified_is_in_the_log_when_a_sync_ends() {
        for apart in [1, 5] {
            let mut bench = Bench::with_log();
            bench.attach_unbound(UNBOUND);
            bench.engine.identify(UNBOUND, b"");
            for page in 0..20 {
                bench.write(UNBOUND, page * apart * PAGE, 4096);
            }
            bench.engine.identify(UNBOUND, b"the file");
            bench.bind(UNBOUND);
            bench.write(UNBOUND, 10, 100);
            let before = bench.engine.stats(bench.now).log_bytes;
            bench.sync(UNBOUND);
            assert!(bench.replies.contains(&SYNC));
            let logged = bench.engine.stats(bench.now).log_bytes - before;
            let home: usize = bench.writes.iter().map(|&(_, _, len)| len).sum();
            assert!(logged + home as u64 >= 20 * PAGE, "{logged} logged, {home} written home");
        }
    }

    #[test]
    fn a_failed_log_fails_syncs_of_files_that_home_may_never_have() {
        for len in [10, 2 << 20] {
            let mut bench = Bench::with_log();
            bench.attach_unbound(UNBOUND);
            for at in (0..len).step_by(64 << 10) {
                bench.write(UNBOUND, at as u64, len.min(64 << 10));
            }
            bench.engine.made_as(UNBOUND, 7);
            let synced = bench.engine.sync(SYNC, UNBOUND, Durability::Data, bench.now);
            assert_eq!(synced, Outcome::Pending);
            let kind = crate::ErrorKind::Io;
            let mut replies = Vec::new();
            // The larger sync is not logged, so that there is no write of the log to fail.
            for fails_now in [false, true] {
                if fails_now {
                    bench.engine.log_failed(kind, bench.now);
                }
                bench.engine.dispatch();
                while let Some(output) = bench.engine.next_output() {
                    match output {
                        Output::Log(LogCommand::Write { io, .. }) => {
                            bench.engine.log_completed(io, Err(kind), bench.now);
                        }
                        Output::Reply { request, reply: Reply::Synced(result) } => {
                            replies.push((request, result));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            let failed = Err(crate::Error::Home(kind));
            assert_eq!(replies, [(SYNC, failed)], "{len} bytes");
            let again = bench.engine.sync(SYNC, UNBOUND, Durability::Data, bench.now);
            assert_eq!(again, Outcome::Done(failed));
            // Home has it after all.
            bench.bind(UNBOUND);
            bench.expire();
            assert!(!bench.engine.has_dirty(UNBOUND));
        }
    }

    #[test]
    fn a_failed_log_lets_files_be_changed_that_home_may_never_have() {
        let mut bench = Bench::with_log();
        bench.attach_unbound(UNBOUND);
        bench.engine.made_as(UNBOUND, 7);
        bench.write(UNBOUND, 0, 10);
        let _ = bench.engine.sync(SYNC, UNBOUND, Durability::Data, bench.now);
        bench.settle();
        assert!(bench.replies.contains(&SYNC), "it is in the log");
        bench.write(UNBOUND, 0, 20);
        let again = RequestId(2_000_000);
        let synced = bench.engine.sync(again, UNBOUND, Durability::Data, bench.now);
        assert_eq!(synced, Outcome::Pending);
        let scope = FreezeScope::changing(None, 0);
        let frozen = bench.engine.freeze(FREEZE, UNBOUND, scope, bench.now);
        assert_eq!(frozen, Outcome::Pending);
        let mut replies = Vec::new();
        bench.engine.dispatch();
        while let Some(output) = bench.engine.next_output() {
            match output {
                Output::Log(LogCommand::Write { io, .. }) => {
                    bench.engine.log_completed(io, Err(crate::ErrorKind::Io), bench.now);
                }
                Output::Reply { request, reply: Reply::Synced(Err(_)) | Reply::Frozen(Ok(())) } => {
                    replies.push(request);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(replies, [again, FREEZE]);
    }

    #[test]
    fn a_sync_covers_a_name_that_home_got_since() {
        let mut bench = Bench::new();
        bench.attach(UNBOUND);
        bench.write(UNBOUND, 0, 10);
        bench.sync(UNBOUND);
        assert_eq!(bench.syncs, [UNBOUND]);
        let nothing = bench.engine.sync(SYNC, UNBOUND, Durability::Data, bench.now);
        assert_eq!(nothing, Outcome::Done(Ok(())));
        bench.engine.changed_at_home(UNBOUND);
        bench.sync(UNBOUND);
        assert_eq!(bench.syncs, [UNBOUND; 2]);
    }

    fn fail_log(bench: &mut Bench) {
        bench.engine.journal_mut().shared.checkpoint_failed();
        bench.engine.log_failed(crate::ErrorKind::Io, bench.now);
    }

    /// Runs what the engine wants, of which the log and home refuse everything. Returns the answers.
    fn run_while_all_fails(bench: &mut Bench) -> Vec<(RequestId, bool)> {
        let mut replies = Vec::new();
        bench.engine.dispatch();
        while let Some(output) = bench.engine.next_output() {
            match output {
                Output::Log(LogCommand::Write { io, .. } | LogCommand::SyncHome { io }) => {
                    bench.engine.log_completed(io, Err(crate::ErrorKind::Io), bench.now);
                }
                Output::Reply {
                    request,
                    reply: Reply::Synced(result) | Reply::Frozen(result) | Reply::Written(result),
                } => replies.push((request, result.is_ok())),
                other => panic!("{other:?}"),
            }
            bench.engine.dispatch();
        }
        bench.engine.check_invariants();
        replies
    }

    #[test]
    fn a_checkpoint_of_a_file_that_home_may_never_have_holds_nothing_up() {
        let mut bench = Bench::with_log();
        bench.attach_unbound(UNBOUND);
        bench.engine.made_as(UNBOUND, 7);
        bench.write(UNBOUND, 0, 10);
        let _ = bench.engine.sync(SYNC, UNBOUND, Durability::Data, bench.now);
        bench.settle();
        // The log is half full.
        let file = bench.engine.cache.files.find(UNBOUND).unwrap();
        bench.engine.start_checkpoint(file, bench.now);
        bench.settle();
        assert!(bench.engine.cache.files[file].logged.checkpointing);
        fail_log(&mut bench);
        assert_eq!(run_while_all_fails(&mut bench), []);
        let cut = FreezeScope::changing(None, 0);
        assert_eq!(bench.engine.freeze(FREEZE, UNBOUND, cut, bench.now), Outcome::Done(Ok(())));
        bench.engine.thaw(
            UNBOUND,
            FreezeEnd { discard: None, size: Some(0), written: false },
            bench.now,
        );
        bench.settle();
    }

    /// A file that home does not have yet, with data; a sync of everything, `all`, and a flush of the file wait for it.
    fn unbound_and_waited_for(all: RequestId) -> Bench {
        let mut bench = Bench::with_log();
        bench.attach_unbound(UNBOUND);
        bench.engine.made_as(UNBOUND, 7);
        bench.write(UNBOUND, 0, 10);
        assert_eq!(bench.engine.sync_all(all, bench.now), Outcome::Pending);
        let flush = FreezeScope::unchanging(Some((0, u64::MAX)));
        assert_eq!(bench.engine.freeze(FREEZE, UNBOUND, flush, bench.now), Outcome::Pending);
        bench
    }

    #[test]
    fn a_sync_of_everything_brings_home_what_it_can() {
        let kind = crate::ErrorKind::Io;
        let all = RequestId(3_000_000);
        let mut bench = unbound_and_waited_for(all);
        bench.settle();
        bench.engine.sync_all_without_unbound(kind, bench.now);
        assert_eq!(run_while_all_fails(&mut bench), [(all, false)], "others wait for the file");
        bench.replies.clear();
        bench.bind(UNBOUND);
        bench.expire();
        assert!(!bench.engine.has_dirty(UNBOUND));
    }

    #[test]
    fn the_first_sync_of_a_file_syncs_home_unless_nobody_else_changes_it_and_it_was_synced() {
        for keeps in [false, true] {
            let mut bench = Bench::with_log();
            bench.engine.config.keeps_unsynced = keeps;
            let syncs = |bench: &mut Bench, file| {
                bench.attach(file);
                bench.engine.identify(file, b"this file");
                bench.write(file, 0, 100);
                let before = bench.syncs.len();
                let _ = bench.engine.sync(SYNC, file, Durability::Data, bench.now);
                bench.settle();
                assert_eq!(bench.replies.last(), Some(&SYNC));
                bench.syncs.len() - before
            };
            // What was before is not known.
            assert_eq!(syncs(&mut bench, FileId(1)), 1);
            let before = bench.engine.changes_at_home();
            bench.engine.home_is_synced(before);
            assert_eq!(syncs(&mut bench, FileId(2)), usize::from(!keeps));
            // The log has what goes home, and who leaves.
            bench.expire();
            bench.engine.detach(FileId(2), bench.now);
            bench.settle();
            assert_eq!(bench.detached, [FileId(2)]);
            assert_eq!(syncs(&mut bench, FileId(2)), usize::from(!keeps));
            // It does not have what is done there, until a sync of home that began after that.
            bench.engine.changed_at_home(FileId(3));
            assert_eq!(syncs(&mut bench, FileId(3)), 1);
            bench.engine.home_is_synced(before);
            assert_eq!(syncs(&mut bench, FileId(4)), 1);
            bench.engine.home_is_synced(bench.engine.changes_at_home());
            assert_eq!(syncs(&mut bench, FileId(5)), usize::from(!keeps));
            // Nor what went home without it, of a file that has left.
            bench.attach(FileId(6));
            bench.write(FileId(6), 0, 100);
            bench.expire();
            bench.engine.detach(FileId(6), bench.now);
            bench.settle();
            assert_eq!(syncs(&mut bench, FileId(6)), 1);
            bench.engine.home_is_synced(bench.engine.changes_at_home());
            bench.attach(FileId(7));
            bench.engine.pause_log(FileId(7));
            let _ = bench.engine.sync(SYNC, FileId(7), Durability::Data, bench.now);
            bench.settle();
            assert_eq!(bench.syncs.last(), Some(&FileId(7)));
        }
    }

    #[test]
    fn nothing_waits_for_files_that_home_refuses() {
        let kind = crate::ErrorKind::Io;
        let (all, again) = (RequestId(3_000_000), RequestId(3_000_001));
        for log_fails in [false, true] {
            let mut bench = unbound_and_waited_for(all);
            if log_fails {
                fail_log(&mut bench);
            }
            assert_eq!(run_while_all_fails(&mut bench), [], "home may have it soon");
            bench.engine.home_refuses_files(kind, bench.now);
            assert_eq!(run_while_all_fails(&mut bench), [(all, false), (FREEZE, false)]);
            // Home has it after all.
            bench.replies.clear();
            bench.bind(UNBOUND);
            bench.expire();
            assert!(!bench.engine.has_dirty(UNBOUND));
            assert_eq!(bench.engine.sync_all(again, bench.now), Outcome::Done(Ok(())));
        }
    }

    #[test]
    fn writers_do_not_wait_for_the_memory_of_files_that_home_refuses() {
        let kind = crate::ErrorKind::Io;
        let (one, other) = (RequestId(3_000_000), RequestId(3_000_001));
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        bench.attach(FileId(2));
        let page = [7; PAGE_BYTES];
        let write = |bench: &mut Bench, request, file, number: u64| {
            let offset = number * PAGE;
            bench.engine.write(request, file, offset, &page, Durability::None, bench.now)
        };
        let full = (0..).find(|&number| {
            let written = write(&mut bench, one, UNBOUND, number);
            written == Outcome::Pending && run_while_all_fails(&mut bench).is_empty()
        });
        let full = full.expect("memory has an end");
        assert_eq!(write(&mut bench, other, FileId(2), 0), Outcome::Pending);
        assert_eq!(run_while_all_fails(&mut bench), []);
        let refuse = |bench: &mut Bench| {
            bench.now = bench.now + bench.engine.config().retry_delay;
            bench.engine.home_refuses_files(kind, bench.now);
            run_while_all_fails(bench)
        };
        // Home may have refused one file alone, and be slow.
        assert_eq!(refuse(&mut bench), []);
        let ended = (0..100).map(|_| refuse(&mut bench)).find(|replies| !replies.is_empty());
        assert_eq!(ended, Some(vec![(one, false), (other, false)]));
        assert_eq!(write(&mut bench, one, FileId(2), 0), Outcome::Pending);
        assert_eq!(run_while_all_fails(&mut bench), [(one, false)]);
        // Nobody knows what home would say now.
        bench.now = bench.now + bench.engine.config().retry_delay * 100;
        assert_eq!(write(&mut bench, one, FileId(2), 0), Outcome::Pending);
        assert_eq!(run_while_all_fails(&mut bench), []);
        bench.bind(UNBOUND);
        bench.expire();
        assert!(bench.replies.contains(&one));
        bench.write(UNBOUND, full * PAGE, 10);
    }

    /// Writes pages of an unbound file until a write waits for memory.
    fn fill(bench: &mut Bench, request: RequestId) {
        let page = [7; PAGE_BYTES];
        let filled = (0..).map(|number| number * PAGE).any(|offset| {
            let (durability, now) = (Durability::None, bench.now);
            let written = bench.engine.write(request, UNBOUND, offset, &page, durability, now);
            written == Outcome::Pending && run_while_all_fails(bench).is_empty()
        });
        assert!(filled, "memory has an end");
    }

    /// Home refuses files again after each pause, and does between two of these what is given. Returns the first answers
    /// to writers.
    fn refuse_for_long(
        bench: &mut Bench,
        mut between: impl FnMut(&mut Bench),
    ) -> Option<Vec<(RequestId, bool)>> {
        (0..100).find_map(|_| {
            bench.now = bench.now + bench.engine.config().retry_delay;
            bench.engine.home_refuses_files(crate::ErrorKind::Io, bench.now);
            let mut replies = run_while_all_fails(bench);
            replies.retain(|&(request, _)| request != SYNC);
            between(bench);
            (!replies.is_empty()).then_some(replies)
        })
    }

    #[test]
    fn patches_of_a_refused_file_that_are_only_in_the_log_are_counted_once() {
        let one = RequestId(3_000_000);
        let mut bench = Bench::with_log();
        bench.attach_unbound(UNBOUND);
        bench.engine.made_as(UNBOUND, 7);
        let resizing = FreezeScope::resizing(1 << 30);
        assert_eq!(
            bench.engine.freeze(FREEZE, UNBOUND, resizing, bench.now),
            Outcome::Done(Ok(()))
        );
        let resized = FreezeEnd { discard: None, size: Some(1 << 30), written: false };
        bench.engine.thaw(UNBOUND, resized, bench.now);
        let first = (1 << 29) / PAGE;
        for number in first.. {
            bench.write(UNBOUND, number * PAGE, 500);
            if number % 256 == 0 {
                let _ = bench.engine.sync(SYNC, UNBOUND, Durability::Data, bench.now);
                bench.settle();
            }
            if bench.engine.stats(bench.now).spilled_pages > 0 {
                break;
            }
        }
        fill(&mut bench, one);
        assert_eq!(refuse_for_long(&mut bench, |_| ()), Some(vec![(one, false)]));
    }

    #[test]
    fn files_that_are_removed_meanwhile_are_no_sign_that_home_makes_files() {
        let one = RequestId(3_000_000);
        let mut bench = Bench::new();
        bench.attach_unbound(UNBOUND);
        fill(&mut bench, one);
        let mut removed = 100;
        let remove_another = |bench: &mut Bench| {
            removed += 1;
            bench.attach_unbound(FileId(removed));
            bench.engine.discard(FileId(removed));
            bench.engine.bound(FileId(removed), bench.now);
        };
        assert_eq!(refuse_for_long(&mut bench, remove_another), Some(vec![(one, false)]));
        // One that home has made is.
        bench.attach_unbound(FileId(2));
        bench.engine.bound(FileId(2), bench.now);
        assert!(bench.engine.device.failures.no_files.is_none());
    }

    #[test]
    fn writers_are_paced_again_some_time_after_home_refused_something() {
        let mut bench = Bench::new();
        let paces = |bench: &mut Bench, later| {
            bench.now = bench.now + later;
            bench.engine.clock = bench.now;
            bench.engine.paces_writers()
        };
        bench.engine.write_back.policy = crate::config::WriteBackPolicy::Adaptive;
        let pause = bench.engine.config().retry_delay;
        assert!(paces(&mut bench, pause));
        bench.engine.home_refuses_files(crate::ErrorKind::Io, bench.now);
        assert!(!paces(&mut bench, pause));
        assert!(paces(&mut bench, pause * 100));
    }
}
