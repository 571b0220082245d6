//! When names are committed to the log, and when home is synced so that the log is not needed for them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use weir_backend::home_names::HomeNames;
use weir_engine::Error;
use weir_log::Lsn;
use weir_names::tree::{Change, HomeError, Standing, Tree, Until};
use weir_names::{NodeId, Place};

use crate::errno::Errno;
use crate::inodes::Inodes;
use crate::write_behind::continued::Continued;
use crate::write_behind::log::{LogJob, Logged, Unlogged};
use crate::write_behind::state::{State, WriteBehind};

/// A change waits no longer than that to be durable.
const COMMIT_AGE: Duration = Duration::from_millis(500);

/// What home has is settled no later than that, if the log does not need room before.
const SETTLE_AGE: Duration = Duration::from_secs(15);

/// How often it is looked whether the log needs room, if home has something to settle, or is to get something.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(50);

/// More than so many parts are not left unsettled.
const UNSETTLED_MAX: usize = 20_000;

/// Pause before a change is tried again for which the log has no room.
const FULL_PAUSE: Duration = Duration::from_millis(5);

impl State {
    /// A directory, or a name in it, was changed at home without the log.
    pub(super) fn note_changed_at_home(&mut self, directory: NodeId) {
        self.not_logged += 1;
        self.directories.entry(directory).or_default().changed_at_home = self.not_logged;
    }

    /// No change of a directory is left that is to be made durable at home.
    fn need_no_sync_at_home(&mut self, directory: NodeId) {
        let is_known = self.tree.kind(directory).is_some();
        if let Some(noted) = self.directories.get_mut(&directory) {
            noted.changed_at_home = 0;
            if !is_known {
                self.directories.remove(&directory);
            }
        }
    }

    /// Gives a change its place in the order, and a record in the log if there is one.
    pub(super) fn log(&mut self, inodes: &Inodes, change: &Change) -> Logged {
        let Self { tree, log: Some(log), .. } = self else { return Logged::At(self.next_lsn()) };
        match log.append(tree, inodes, change) {
            Ok(lsn) => Logged::At(lsn),
            Err(Unlogged::Full) => Logged::Full,
            Err(Unlogged::Never) => Logged::ForHome,
            Err(Unlogged::Failed) if log.failed => match log.is_recorded() {
                true => Logged::ForHome,
                false => Logged::At(self.next_lsn()),
            },
            Err(Unlogged::Failed) => {
                self.log_failed();
                // It goes on.
                self.log(inodes, change)
            }
        }
    }

    /// The log goes on in SOURCE.
    pub(super) fn log_failed(&mut self) {
        let Some(log) = self.log.as_mut().filter(|log| !log.failed) else { return };
        tracing::error!(
            "the log failed: changes of names are logged in SOURCE until what it has is home"
        );
        self.tree.committed(log.fail());
        self.drained = false;
    }

    /// Whether what is changed is committed at once, since somebody waits for home.
    pub(super) fn is_commit_awaited(&self) -> bool {
        let is_awaited = self.log.as_ref().is_some_and(|log| log.is_awaited);
        is_awaited || !self.waiting.is_empty() || self.blocked > 0
    }

    /// What is to be done on the log, if anything.
    pub(super) fn log_job(&mut self) -> Option<LogJob> {
        let is_awaited = self.is_commit_awaited();
        self.end_continuation();
        let log = self.log.as_mut()?;
        if log.continued.as_mut().is_some_and(Continued::begin_writing) {
            return Some(LogJob::Continue);
        }
        let now = Instant::now();
        let age = |since: Instant| now.saturating_duration_since(since);
        // Until a change is durable it keeps what others are to have of the log.
        let wants_room = !log.failed && log.shard.log_wants_room();
        let is_due = log.uncommitted.is_some_and(|since| wants_room || age(since) >= COMMIT_AGE);
        let may_commit = !log.failed && !log.committing && log.uncommitted.is_some();
        if may_commit && (is_due || is_awaited) {
            (log.committing, log.is_awaited, log.uncommitted) = (true, false, None);
            return Some(LogJob::Commit);
        }
        let unsettled = self.tree.unsettled();
        let wanted = age(log.settled) >= SETTLE_AGE || unsettled > UNSETTLED_MAX || wants_room;
        if log.settling || !wanted {
            return None;
        }
        log.settled = now;
        if self.tree.begin_home_sync() {
            log.settling = true;
            return Some(LogJob::Settle);
        }
        // What was made and removed again needs the log no more.
        log.need(self.tree.needed_from());
        None
    }

    /// The log says once more where nodes are, if it is needed for that from long ago and has little room. What does not fit
    /// now is tried again.
    pub(super) fn renew_old_places(&mut self, inodes: &Inodes) {
        if let Some(log) = self.log.as_mut().filter(|log| !log.failed && log.has_old_places()) {
            log.renew_places(inodes);
        }
    }

    /// How long a thread may sleep until the log has something to do.
    pub(super) fn log_sleep(&self) -> Option<Duration> {
        if let Some(continued) = self.log.as_ref().and_then(|log| log.continued.as_ref()) {
            return continued.sleep();
        }
        // The end of a commit calls a thread.
        let log = self.log.as_ref().filter(|log| !log.failed && !log.committing)?;
        log.uncommitted.map(|since| COMMIT_AGE.saturating_sub(since.elapsed()))
    }

    /// How long a thread may sleep until it looks whether the log wants room: data may fill it meanwhile, and then waits for what names
    /// keep of it. One thread does that.
    pub(super) fn room_sleep(&self) -> Option<Duration> {
        let log = self.log.as_ref().filter(|log| !log.failed && !log.settling)?;
        let holds_some = self.tree.unsettled() > 0 || log.uncommitted.is_some();
        let is_needed = log.continued.is_none() && holds_some;
        (is_needed && self.crew.looking == 0).then_some(LOOK_FOR_ROOM)
    }
}

/// Whether changes of names are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesLog {
    Without,
    Usable,
    /// They were, until it failed.
    Failed,
}

impl WriteBehind {
    /// Where changes are kept until home has them.
    pub(crate) fn names_log(&self) -> NamesLog {
        match &self.lock().log {
            None => NamesLog::Without,
            Some(log) if log.failed => NamesLog::Failed,
            Some(_) => NamesLog::Usable,
        }
    }

    /// Whether changes are in the log.
    pub(crate) fn is_logged(&self) -> bool {
        self.names_log() == NamesLog::Usable
    }

    /// Whether changes were in the log, until it failed.
    pub(crate) fn log_has_failed(&self) -> bool {
        self.names_log() == NamesLog::Failed
    }

    /// The name that a node has in the parking directory: if there is a log of names, by its number there, which recovery
    /// knows. The tree's own number may be that of another node there.
    pub(crate) fn parking_name(&self, inodes: &Inodes, at: &Place) -> OsString {
        let mut state = self.lock();
        let mut has_log = false;
        if let (Some(log), Some(node)) = (&mut state.log, Tree::node_parked_as(at.name())) {
            if let Some(number) = log.parked_number(inodes, node) {
                return OsString::from(format!("node-{number:x}"));
            }
            has_log = true;
        }
        match self.made_parked().contains(at.name()) {
            true => HomeNames::parked_as_new(at.name()),
            false if has_log => HomeNames::parked_unlogged(at.name()),
            false => OsStr::from_bytes(at.name()).to_owned(),
        }
    }

    /// The node that has a number in the log.
    pub(crate) fn node_numbered(&self, number: NodeId) -> Option<NodeId> {
        let state = self.lock();
        let numbers = &state.log.as_ref()?.numbers;
        numbers.iter().find(|&(_, &known)| known == number.0).map(|(&node, _)| node)
    }

    /// A directory, or a name in it, was changed at home at once.
    pub(crate) fn note_changed_at_home(&self, directory: NodeId) {
        let mut state = self.lock();
        if state.log.is_some() {
            state.note_changed_at_home(directory);
        }
    }

    /// The last change of a directory at home without the log, for [`WriteBehind::synced_at_home`]; `None` if all its changes since it was
    /// synced there are in the log.
    pub(crate) fn change_not_logged(&self, directory: NodeId) -> Option<u64> {
        let state = self.lock();
        let is_known = state.tree.kind(directory).is_some();
        let change = state.directories.get(&directory).map_or(0, |noted| noted.changed_at_home);
        (!is_known || change > 0).then_some(change)
    }

    /// A sync of a directory at home has succeeded, which began after this change.
    pub(crate) fn synced_at_home(&self, directory: NodeId, change: u64) {
        let mut state = self.lock();
        let noted = state.directories.get(&directory);
        if noted.is_some_and(|noted| noted.changed_at_home == change) {
            state.need_no_sync_at_home(directory);
        }
    }

    /// Home has removed a node. If it is a directory, there is nothing to sync of it.
    pub(crate) fn removed_at_home(&self, directory: NodeId) {
        self.lock().need_no_sync_at_home(directory);
    }

    /// The number of a node in the log, if names are logged.
    pub(crate) fn log_number(&self, node: NodeId) -> Option<u64> {
        self.lock().log.as_ref()?.numbers.get(&node).copied()
    }

    /// The group with all changes made until now is durable, or the log has failed.
    pub(crate) fn committed(&self, result: Result<(), Error>) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(log) = &mut state.log else { return };
        log.committing = false;
        match result {
            Ok(()) => {
                let durable = log.shard.names_durable();
                log.is_durable_to(durable);
                state.tree.committed(durable);
                if let Some(by_path) = &mut log.by_path {
                    by_path.committed(durable);
                    log.need(state.tree.needed_from());
                }
                state.drained = false;
            }
            Err(_) => state.log_failed(),
        }
        self.call_workers(state);
    }

    /// The log has failed, and goes on in SOURCE.
    pub(crate) fn log_goes_on(&self) {
        self.lock().log_failed();
    }

    /// A sync of home that [`Tree::begin_home_sync`] began has ended.
    pub(crate) fn settled(&self, ended: SyncOfHome) {
        let mut state = self.lock();
        let state = &mut *state;
        state.refusing.synced(ended.result(), Instant::now());
        match ended {
            SyncOfHome::Done => state.tree.home_synced(true),
            SyncOfHome::Kept(_) => state.tree.home_kept(),
            SyncOfHome::Lost { parked, .. } => {
                // Where home cannot be asked, what was parked is taken to be so.
                let parked = parked.unwrap_or_else(|| state.tree.parked().collect());
                state.tree.home_synced(false);
                parked.into_iter().for_each(|node| state.tree.found_parked(node));
            }
        }
        let Some(log) = &mut state.log else { return };
        (log.settling, log.settled) = (false, Instant::now());
        log.need(state.tree.needed_from());
        state.drained = false;
        self.progress.notify_all();
        self.call_workers(state);
    }

    /// Whether a sync of home should not wait for more to be brought there: nothing more can be now, or the log needs room.
    pub(crate) fn is_home_sync_due(&self) -> bool {
        let state = self.lock();
        let Some(log) = &state.log else { return true };
        let is_asked = state.drained || state.crew.is_stopped();
        let has_rest = is_asked && state.tree.is_idle();
        let is_committed = match &log.continued {
            Some(continued) => continued.is_empty(),
            None => log.failed || (log.uncommitted.is_none() && !log.committing),
        };
        (has_rest && is_committed) || log.shard.log_wants_room()
    }

    /// Begins a sync of home by the caller, if there is anything to settle and no such sync is under way.
    pub(crate) fn begin_settling(&self) -> Settling {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(log) = &mut state.log else { return Settling::Done };
        if log.settling {
            return Settling::UnderWay;
        }
        if state.tree.begin_home_sync() {
            log.settling = true;
            return Settling::Begun;
        }
        let needed = state.tree.needed_from();
        log.need(needed);
        match needed {
            Some(_) if !log.failed => Settling::UnderWay,
            _ => Settling::Done,
        }
    }

    /// Appends which inode of home a node is that was just made there. Blocks while the log is full. `None` without a log, or after it
    /// has failed and is not replayed any more.
    pub(crate) fn log_identity(
        &self,
        inodes: &Inodes,
        node: NodeId,
        identity: &[u8],
    ) -> Option<Lsn> {
        self.append_now(|State { tree, log, .. }| {
            Some(log.as_mut()?.append_identity(inodes, node, tree.kind(node)?, identity))
        })
    }

    /// Appends a record of what home did, without which nothing more goes home. Blocks while the log is full. `None` if there
    /// is nothing to append to.
    pub(super) fn append_now(
        &self,
        mut append: impl FnMut(&mut State) -> Option<Result<Lsn, Unlogged>>,
    ) -> Option<Lsn> {
        loop {
            {
                let mut state = self.lock();
                match append(&mut state)? {
                    Ok(lsn) => return Some(lsn),
                    Err(Unlogged::Full) => {}
                    Err(_) if state.log.as_ref()?.failed => return None,
                    Err(Unlogged::Never | Unlogged::Failed) => {
                        // It goes on.
                        state.log_failed();
                        continue;
                    }
                }
            }
            self.work_on_log_or_wait();
        }
    }

    /// As [`WriteBehind::wait_for_log`], for a thread without which a step at home does not end: what frees the log may be left to it, if all
    /// threads that bring names home wait here.
    fn work_on_log_or_wait(&self) {
        let job = self.lock().log_job();
        match job {
            Some(job) => self.work_on_log.get().expect("it was started")(job),
            None => self.wait_for_log(),
        }
    }

    /// The position of the last record of a change that may have to be replayed after a crash.
    pub(crate) fn last_change_logged(&self) -> Option<Lsn> {
        let state = self.lock();
        let log = state.log.as_ref().filter(|log| !log.failed)?;
        log.last_change.filter(|&last| last >= log.shard.log_tail())
    }

    /// Whether there is a log, which may have failed.
    pub(crate) fn has_log(&self) -> bool {
        self.lock().log.is_some()
    }

    /// Whether what was changed up to a moment is settled; tells the log. `Err`: home refuses something.
    pub(crate) fn is_settled(&self, until: Until) -> Result<bool, HomeError> {
        let mut state = self.lock();
        let state = &mut *state;
        if state.log.as_ref().is_some_and(|log| !log.failed && log.shard.log_has_failed()) {
            // It may have failed for data.
            state.log_failed();
        }
        let needed = state.tree.needed_from();
        if let Some(log) = &state.log {
            log.need(needed);
        }
        match state.tree.standing_until(until) {
            Standing::Home => Ok(true),
            Standing::Pending => state.continuation_refused().map_or(Ok(false), Err),
            Standing::Refused(error) => Err(error),
        }
    }

    /// Waits a moment for the log to be freed, without the lock.
    pub(crate) fn wait_for_log(&self) {
        {
            let mut state = self.lock();
            if let Some(log) = &mut state.log {
                log.is_awaited = true;
            }
            self.call_workers(&mut state);
        }
        std::thread::sleep(FULL_PAUSE);
    }

    /// As [`WriteBehind::wait_for_log`], while home is expected to free the log.
    ///
    /// # Errors
    /// Home's, if it refuses everything, or the data for which the log is kept.
    pub(crate) fn wait_for_log_of_home(&self) -> Result<(), HomeError> {
        self.wait_for_log();
        let state = self.lock();
        let of_data = || {
            let kind = state.log.as_ref()?.shard.log_is_refused()?;
            Some(HomeError::Refused(Errno::from(kind).code()))
        };
        state.refusing.hopeless(Instant::now()).or_else(of_data).map_or(Ok(()), Err)
    }

    /// Somebody waits for home: what home is to get is committed now.
    pub(crate) fn commit_soon(&self) {
        let mut state = self.lock();
        let Some(log) = &mut state.log else { return };
        if log.uncommitted.is_some() {
            log.is_awaited = true;
            self.call_workers(&mut state);
        }
    }
}

/// How a sync of home has ended that was to settle names.
#[derive(Debug)]
pub(crate) enum SyncOfHome {
    Done,
    /// It failed, with this error number, and home has all that it had.
    Kept(i32),
    /// It failed, and home may have lost what it covered. `parked` are the nodes that it has parked now, if it can say so.
    Lost {
        errno: i32,
        parked: Option<Vec<NodeId>>,
    },
}

impl SyncOfHome {
    fn result(&self) -> Result<(), i32> {
        match *self {
            SyncOfHome::Done => Ok(()),
            SyncOfHome::Kept(errno) | SyncOfHome::Lost { errno, .. } => Err(errno),
        }
    }
}

/// Whether home is to be synced to settle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    /// By the caller, who tells the end by [`WriteBehind::settled`].
    Begun,
    /// Something is not at home, or another sync is under way: to be asked again.
    UnderWay,
    /// The log is not needed for names.
    Done,
}
