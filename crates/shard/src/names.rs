//! Names in the log: what the owner of the namespace asks of the shard. Its changes get their places in the one order here,
//! beside those of data.
//!
//! Invariant: a record that says which inode a node is follows each record of the node's data that has not the identity of that inode: the
//! data was logged before home had made the node, or for an inode that home had made for it and that could not be bound. So as long as the log
//! is kept for data, it has what says whose data that is, although it is not kept for names any more ([`Shard::log_inode`]).

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use weir_backend::{Failures, HomeFile, SyncFailed};
use weir_engine::{
    Durability, Error, ErrorKind, FileId, FreezeEnd, FreezeScope, NotLogged, Outcome, RecordOf,
};
use weir_log::{Lsn, NameRecord, Record};

use crate::core::Thread;
use crate::pending::Continuation;
use crate::shard::Shard;
use crate::trampoline;

impl Shard {
    /// Names are logged from now on, if there is a log; says whether there is. If nodes are not found by their handles, recovery
    /// finds files by their numbers ([`Shard::finds_by_number`]). To be called before a file is attached.
    pub fn log_all_names(&self, by_handle: bool) -> bool {
        self.by_number.store(self.has_log() && !by_handle, Ordering::Relaxed);
        self.has_log()
    }

    /// See [`weir_engine::Engine::new_node`].
    pub fn new_node(&self) -> Option<u64> {
        self.core.lock().engine.new_node()
    }

    /// See [`weir_engine::Engine::group_bytes_max`].
    pub fn group_bytes_max(&self) -> usize {
        self.core.lock().engine.group_bytes_max()
    }

    /// See [`weir_engine::Engine::log_data`].
    pub fn log_data(&self, file: FileId) -> bool {
        self.core.event(Thread::Holding, |state, now| state.engine.log_data(file, now))
    }

    /// See [`weir_engine::Engine::log_holds_any_write`].
    pub fn log_holds_any_write(&self) -> bool {
        self.core.lock().engine.log_holds_any_write()
    }

    /// Appends a record of names, as [`weir_engine::Engine::log_names`]. May be called under locks that continuations take.
    ///
    /// # Errors
    /// See [`NotLogged`]; nothing was appended.
    pub fn log_names(
        &self,
        named: &[Record<'_>],
        record: &Record<'_>,
        of: RecordOf,
    ) -> Result<Lsn, NotLogged> {
        if let Some(at_once) = self.at_once.as_ref().filter(|_| changes_names(record)) {
            at_once.name_follows();
        }
        self.core
            .event(Thread::Holding, |state, now| state.engine.log_names(named, record, of, now))
    }

    /// Appends the record of which inode a node is that home has just made; `home` is its file, if it is one. From there on the file's
    /// data is logged for that inode, whether the file is attached now or only later: the log may be freed of the record.
    ///
    /// # Errors
    /// See [`NotLogged`]; nothing was appended.
    pub fn log_inode(
        &self,
        file: FileId,
        home: Option<&HomeFile>,
        identity: &[u8],
        record: &NameRecord<'_>,
    ) -> Result<Lsn, NotLogged> {
        self.core.event(Thread::Holding, |state, now| {
            // It may have been made before, and could not be bound. What was logged since then is for the former inode.
            let former = home.filter(|home| !home.is_bound()).and_then(HomeFile::log_inode);
            let former = match *record {
                NameRecord::Node { node, file_type, .. } => former
                    .as_deref()
                    .map(|identity| Record::Name(NameRecord::Node { node, file_type, identity })),
                _ => None,
            };
            let (named, record) = (former.as_slice(), Record::Name(*record));
            let lsn = state.engine.log_names(named, &record, RecordOf::HomeDid, now)?;
            state.engine.identify(file, identity);
            if let Some(home) = home {
                home.set_log_inode(identity);
            }
            Ok(lsn)
        })
    }

    /// Makes all records of names durable that were appended, and then runs `done`.
    pub fn commit_names(&self, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.commit_names_by(Thread::Syncer, done);
    }

    /// As [`Shard::commit_names`], as a sync that a program asked for: what home was given at once is durable, too.
    pub fn sync_names(&self, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.commit_names(self.after_at_once(Durability::All, done));
    }

    /// As [`Shard::commit_names`], for a caller that may hold locks which continuations take: `done` is run at once if
    /// everything is durable, and on another thread otherwise.
    pub fn commit_names_later(&self, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.commit_names_by(Thread::Holding, done);
    }

    fn commit_names_by(
        &self,
        thread: Thread,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let answered = self.core.event(thread, |state, since| {
            let request = state.pending.next_id();
            match state.engine.commit_names(request, since) {
                Outcome::Done(result) => Some((done, result)),
                Outcome::Pending => {
                    state.wait(since, None, Continuation::Sync(Box::new(done)));
                    None
                }
            }
        });
        if let Some((done, result)) = answered {
            trampoline::run(move || done(result));
        }
    }

    /// The log is needed for names from this position on, as [`weir_engine::Engine::names_need`].
    pub fn names_need(&self, from: Option<Lsn>) {
        self.core.event(Thread::Holding, |state, now| state.engine.names_need(from, now));
    }

    /// Whether a write of the log has failed, as [`weir_engine::Engine::log_has_failed`].
    pub fn log_has_failed(&self) -> bool {
        self.core.lock().engine.log_has_failed()
    }

    /// Whether the log has failed and is not noted as void: a recovery would replay it over what home was given since.
    pub fn has_stale_log(&self) -> bool {
        self.log_has_failed() && !self.log_is_void.load(Ordering::Acquire)
    }

    /// Goes on with the log of names, which has failed, in SOURCE: adds records, with their positions, which are replayed instead of
    /// those that the log may have from `from` on. They are durable after that. Blocks.
    ///
    /// # Errors
    /// Those of writing in `.weir`. None of the records counts; they may be added again.
    pub fn continue_names(&self, from: Lsn, records: Vec<(Lsn, Vec<u8>)>) -> io::Result<()> {
        match self.core.log.get() {
            Some(log) => log.continue_names(self.source.as_fd(), from, records),
            None => Ok(()),
        }
    }

    /// No record before this position is replayed any more.
    pub fn log_tail(&self) -> Lsn {
        self.core.lock().engine.log_tail()
    }

    /// Everything before this position is durable in the log.
    pub fn names_durable(&self) -> Lsn {
        self.core.lock().engine.names_durable()
    }

    /// Frees the log of all records of names up to `upto`, which names do not need any more. Says whether that is done:
    /// otherwise it is under way, or data needs the log from before.
    pub fn free_names_log(&self, upto: Lsn) -> bool {
        self.core.event(Thread::Holding, |state, now| state.engine.free_names_log(upto, now))
    }

    /// See [`weir_engine::Engine::log_is_refused`].
    pub fn log_is_refused(&self) -> Option<ErrorKind> {
        let now = self.core.now();
        self.core.lock().engine.log_is_refused(now)
    }

    /// Names should be settled at home, to free the log.
    pub fn log_wants_room(&self) -> bool {
        self.core.lock().engine.log_wants_room()
    }

    /// A file that is not at home yet is made by records of names, as this node: syncs of it are logged.
    pub fn made_as(&self, file: FileId, node: u64) {
        self.core.event(Thread::Holding, |state, _| state.engine.made_as(file, node));
    }

    /// The only name of a file is about to be removed, and its records to be revoked with that: what has left memory for the log goes home
    /// before, since nothing would be written from revoked records. What home refuses is read back from the log later. Blocks.
    pub(crate) fn bring_spilled_home(&self, file: FileId) {
        if !self.core.lock().engine.has_spilled(file) {
            return;
        }
        let (sender, ended) = mpsc::channel();
        self.freeze(file, FreezeScope::changing(None, 0), move |_| {
            let unchanged = FreezeEnd { discard: None, size: None, written: false };
            (unchanged, move || sender.send(()).unwrap_or(()))
        });
        // Nothing is sent if the shard was stopped.
        let _ = ended.recv();
    }

    /// Home refuses to make files, as [`weir_engine::Engine::home_refuses_files`].
    pub fn home_refuses_files(&self, kind: ErrorKind) {
        self.core.event(Thread::Holding, |state, now| state.engine.home_refuses_files(kind, now));
    }

    /// As [`weir_engine::Engine::sync_all_without_unbound`].
    pub fn sync_all_without_unbound(&self, kind: ErrorKind) {
        self.core.event(Thread::Holding, |state, now| {
            state.engine.sync_all_without_unbound(kind, now);
        });
    }

    /// Syncs a home that nobody else changes on a worker, so that the first sync of a file need not sync it there.
    pub fn settle_own_home(self: &Arc<Self>) {
        if !self.home_keeps_unsynced() {
            return;
        }
        let shard = Arc::clone(self);
        self.core.directory.defer(Box::new(move || {
            if let Err(error) = shard.settle_home() {
                tracing::debug!(?error, "home was not synced at the start");
            }
        }));
    }

    /// Makes everything durable that home was given (syncfs(2)). Blocks.
    ///
    /// # Errors
    /// Home's.
    pub fn settle_home(&self) -> Result<(), SyncFailed> {
        self.settle_home_since(self.home_failures())
    }

    /// The syncs of home that have failed until now.
    pub fn home_failures(&self) -> Failures {
        self.whole().failures()
    }

    /// As [`Shard::settle_home`], and fails also if another sync of home has failed since: home reports that only once.
    ///
    /// # Errors
    /// Home's.
    pub fn settle_home_since(&self, failures: Failures) -> Result<(), SyncFailed> {
        self.core.sync_home(self.whole(), failures)
    }
}

/// Whether a record can be replayed only where the names at home are those that it was made for.
fn changes_names(record: &Record<'_>) -> bool {
    matches!(
        record,
        Record::Name(
            NameRecord::Make { .. }
                | NameRecord::Link { .. }
                | NameRecord::Remove { .. }
                | NameRecord::Rename { .. }
                | NameRecord::Exchange { .. }
        )
    )
}
