//! The tree, the requests that wait for home, and what is noted of directories.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::StatVfs;
use weir_backend::Timestamp;
use weir_backend::home_names::Status;
use weir_log::Lsn;
use weir_names::tree::{
    Attributes, Change, Command, CommandId, HomeError, Kind, Part, RefusalCursor, Refused,
    Standing, Tree, Until,
};
use weir_names::{NodeId, Place};
use weir_shard::Shard;

use crate::attr::{kind_of, moment};
use crate::inode::{Inode, nameless};
use crate::inodes::Inodes;
use crate::write_behind::conflicts::Conflicts;
use crate::write_behind::crew::Crew;
use crate::write_behind::doubts::Doubts;
use crate::write_behind::ending::Ending;
use crate::write_behind::held::Held;
use crate::write_behind::listers::Listers;
use crate::write_behind::log::{LogJob, Logged, NamesLog};
use crate::write_behind::made::Named;
use crate::write_behind::moves::Begun;
use crate::write_behind::refusing::Refusing;

/// Bound of dirty parts: at the bound further changes wait.
const DIRTY_MAX: usize = 1 << 16;

/// After that time home is asked once more to do what it refused.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// How long the number of a file's links is waited for that is being changed at home.
const AT_ONE_MOMENT: Duration = Duration::from_secs(1);

/// How long what home said of its room counts.
const ROOM_AGE: Duration = Duration::from_secs(1);

/// Below this changes go to home at once, which tells whether there is room.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// Free inodes that changes which wait leave to others.
const FREE_INODES_MIN: u64 = 1024;

/// Directories that are remembered since home was asked for a name in them.
const ASKED_KEPT: usize = 16;

/// An entry of a directory as the tree has it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) position: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) node: NodeId,
    pub(crate) kind: Kind,
}

/// What somebody waits for: that home has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A node: its names, its attributes, and the directories that it is in.
    Node(NodeId),
    /// All entries of a directory, and the directory.
    Entries(NodeId),
    /// One entry.
    Entry(Place),
    /// Everything that home does not refuse.
    All,
    /// What was changed up to a moment, without a log.
    Until(Until),
}

/// What the threads do: see [`WriteBehind::start`].
type WorkAtHome = Arc<dyn Fn() -> bool + Send + Sync>;
/// What one of them does that waits for room in the log.
type WorkOnLog = Box<dyn Fn(LogJob) + Send + Sync>;

pub(super) type Continuation = Box<dyn FnOnce(Result<(), HomeError>) + Send>;

/// What is remembered of a directory beside its entries.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// When it was changed last here, while home does not have all its entries.
    pub(super) changed: Option<Timestamp>,
    /// When home was changed last under names in it, at the earliest, or the time that it was told of the directory.
    pub(super) given: Option<Timestamp>,
    /// When all its entries were read at home, or it was made.
    pub(super) read: Option<Instant>,
    /// It has too many entries to be known whole.
    pub(super) large: bool,
    /// The last change made at home at once of it or a name in it, in the order of [`State::not_logged`]; 0 if it was synced there since.
    pub(super) changed_at_home: u64,
}

impl Noted {
    /// Whether somebody may have changed the directory at home, of which it was read so long ago.
    pub(super) fn is_old(&self, age_max: Duration, now: Instant) -> bool {
        self.read.is_none_or(|read| now.saturating_duration_since(read) > age_max)
    }
}

/// What programs see of a node over what home says.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Attributes that home does not show yet.
    pub(crate) attributes: Option<Attributes>,
    /// Names, or of a directory its subdirectories, that are wanted.
    pub(crate) wanted: usize,
    /// Those that home has.
    pub(crate) home: usize,
    /// When a directory was changed last here, if home does not show that yet.
    pub(crate) changed: Option<Timestamp>,
    /// All its names are wanted ones, or all its subdirectories are: what home counts does not matter.
    pub(crate) is_whole: bool,
    /// Home was changed while it was asked, so that the two numbers of names may not be of one moment.
    pub(crate) is_unsure: bool,
}

/// Whether home has room for what is promised to it.
#[derive(Debug)]
struct Room {
    looked: Option<Instant>,
    /// For how many more changes that wait there is room, as far as is known.
    left: u64,
    /// A thread is to find out.
    asking: bool,
}

impl Room {
    /// What home said while `dirty` changes waited, each of which may need an inode.
    fn note(&mut self, space: Option<StatVfs>, dirty: usize) {
        (self.looked, self.asking) = (Some(Instant::now()), false);
        self.left = space.map_or(0, |space| {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            // A home that tells neither size nor inodes is taken to have room.
            match (space.f_blocks == 0 || free > FREE_BYTES_MIN, space.f_files) {
                (false, _) => 0,
                (true, 0) => u64::MAX,
                (true, _) => space.f_favail.saturating_sub(FREE_INODES_MIN + dirty as u64),
            }
        });
    }
}

/// The tree, and what belongs to it.
pub(crate) struct State {
    pub(crate) tree: Tree,
    /// Where changes are logged, if they are.
    pub(super) log: Option<NamesLog>,
    pub(super) next_lsn: u64,
    pub(super) directories: HashMap<NodeId, Noted>,
    /// How often directories were changed at home at once. Never the same again: syncs of one directory overlap.
    pub(super) not_logged: u64,
    pub(super) waiting: Vec<(Awaited, Continuation)>,
    /// Threads that wait for home.
    pub(super) blocked: usize,
    /// Commands that waited for a file's data, which is home now.
    pub(super) resumed: VecDeque<(CommandId, Command)>,
    /// Commands whose steps are in the log now.
    pub(super) stepped: VecDeque<(CommandId, Command, Begun)>,
    /// Steps of which it is not known whether home did them.
    pub(super) doubts: Doubts,
    /// Nodes that were made at home, and whose identities are to be in the log. Each holds descriptors.
    pub(super) unnamed: usize,
    /// The most of them.
    pub(super) unnamed_max: usize,
    /// Nodes that were made at home, and whose identities are in the log now.
    pub(super) named: VecDeque<Named>,
    /// Inodes that the tree does not need any more, to be let go by the threads.
    pub(super) unneeded: Vec<Arc<Inode>>,
    /// Home is to be asked for its room.
    pub(super) asks_room: bool,
    /// Nodes that an operation is about to change: what the tree knows of them stays.
    pub(super) held: Held,
    /// There is nothing to do but what is under way, or refused.
    pub(super) drained: bool,
    /// When old entries were looked for last.
    pub(super) expired: Instant,
    /// When home was asked last to do what it refused.
    pub(super) retried: Instant,
    /// A thread looks what others removed of what home refuses.
    pub(super) resolves_removals: bool,
    /// The number of the retry after which one looked last.
    pub(super) resolved_after: Option<u64>,
    pub(super) crew: Crew,
    pub(super) conflicts: Conflicts,
    /// Commands that home has answered.
    pub(super) ended: u64,
    /// Since when it refuses them.
    pub(super) refusing: Refusing,
}

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unchanged {
    /// The tree refuses it.
    Refused(Refused),
    /// The log has no room, and home, which would free it, refuses everything.
    Home(HomeError),
}

impl From<Refused> for Unchanged {
    fn from(refused: Refused) -> Unchanged {
        Unchanged::Refused(refused)
    }
}

impl From<HomeError> for Unchanged {
    fn from(error: HomeError) -> Unchanged {
        Unchanged::Home(error)
    }
}

/// Names written back behind the programs that change them.
pub(crate) struct WriteBehind {
    state: Mutex<State>,
    /// Something is to be done at home, or the threads are to end.
    pub(super) work: Condvar,
    /// Something is home, or refused.
    pub(super) progress: Condvar,
    /// Does one thing at home; says whether to go on.
    pub(super) work_at_home: OnceLock<WorkAtHome>,
    pub(super) work_on_log: OnceLock<WorkOnLog>,
    /// The directory for nodes that have no other name for a moment, once one was needed.
    pub(crate) parking: OnceLock<Arc<OwnedFd>>,
    /// Names in it, by which the tree knows what was made there.
    made_parked: Mutex<HashSet<Box<[u8]>>>,
    /// Held by the thread that writes where a failed log goes on.
    pub(super) noting: Mutex<()>,
    /// How long what home said of a directory counts.
    pub(super) entry_timeout: Duration,
    room: Mutex<Room>,
    /// The directory in which a name was looked for last that is not there, and when.
    missed: Mutex<Option<(NodeId, Instant)>>,
    /// The directories in which home was asked for a name last, and when.
    asked: Mutex<VecDeque<(NodeId, Instant)>>,
    /// Lists directories ahead, where home is far away.
    pub(crate) listers: Listers,
    pub(crate) ending: Ending,
    /// How often home was changed at once, under names that the tree may have learned meanwhile.
    changes_at_home: AtomicU64,
}

impl WriteBehind {
    /// Of a home of which nothing is known, and whose answers count for `entry_timeout`. [`WriteBehind::start`] follows.
    /// Changes are logged by `log`, if it is given. About `unnamed_max` nodes at most are held that home has made and the log
    /// does not name yet.
    pub(crate) fn new(
        entry_timeout: Duration,
        log: Option<Arc<Shard>>,
        unnamed_max: usize,
    ) -> WriteBehind {
        let tree = match &log {
            Some(shard) => Tree::new(shard.names_durable()),
            None => Tree::without_log(),
        };
        WriteBehind {
            state: Mutex::new(State {
                tree,
                log: log.map(NamesLog::new),
                next_lsn: 1,
                directories: HashMap::new(),
                not_logged: 0,
                waiting: Vec::new(),
                blocked: 0,
                resumed: VecDeque::new(),
                stepped: VecDeque::new(),
                doubts: Doubts::default(),
                unnamed: 0,
                unnamed_max,
                named: VecDeque::new(),
                unneeded: Vec::new(),
                retried: Instant::now(),
                resolves_removals: false,
                resolved_after: None,
                asks_room: false,
                held: Held::default(),
                drained: true,
                expired: Instant::now(),
                crew: Crew::default(),
                conflicts: Conflicts::default(),
                ended: 0,
                refusing: Refusing::default(),
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            work_at_home: OnceLock::new(),
            work_on_log: OnceLock::new(),
            parking: OnceLock::new(),
            made_parked: Mutex::default(),
            noting: Mutex::default(),
            entry_timeout,
            room: Mutex::new(Room { looked: None, left: 0, asking: false }),
            missed: Mutex::default(),
            asked: Mutex::default(),
            listers: Listers::new(entry_timeout),
            ending: Ending::default(),
            changes_at_home: AtomicU64::new(0),
        }
    }

    /// Home does not have a name in a directory. Says whether it was asked in vain for another one there just before.
    pub(crate) fn has_missed(&self, directory: NodeId) -> bool {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let last = missed.replace((directory, Instant::now()));
        last.is_some_and(|(of, at)| of == directory && at.elapsed() < self.entry_timeout)
    }

    /// Home was asked for a name in a directory. Says whether it was asked for another one there shortly before.
    pub(crate) fn has_asked(&self, directory: NodeId) -> bool {
        let now = Instant::now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|(_, at)| now.saturating_duration_since(*at) < self.entry_timeout);
        let before = asked.iter().position(|(of, _)| *of == directory);
        if let Some(before) = before {
            asked.remove(before);
        }
        asked.truncate(ASKED_KEPT - 1);
        asked.push_front((directory, now));
        before.is_some()
    }

    /// Home is being changed at once under a name: what was read of it since then may be old. See
    /// [`WriteBehind::changes_at_home`].
    pub(crate) fn home_is_changed(&self) {
        self.changes_at_home.fetch_add(1, Ordering::AcqRel);
    }

    /// What a listing tells the tree is as it was between two calls of this if both say the same.
    pub(crate) fn changes_at_home(&self) -> u64 {
        self.changes_at_home.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while so much is not home that nobody may add to it.
    ///
    /// # Errors
    /// Home's, if it refuses everything.
    pub(crate) fn wait_for_room(&self) -> Result<(), HomeError> {
        let mut state = self.lock();
        while state.tree.dirty() > DIRTY_MAX && !state.crew.is_stopped() {
            if let Some(error) = state.refusing.hopeless(Instant::now()) {
                return Err(error);
            }
            if let Some(log) = &mut state.log {
                log.is_awaited = true;
                self.call_workers(&mut state);
            }
            let waited = self.progress.wait_timeout(state, ROOM_AGE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Makes a change, if the tree does not refuse it, at a moment that the changed directories show. Commands for home
    /// follow.
    ///
    /// # Errors
    /// The tree's. [`Refused::Unknown`] also for what cannot be logged. Home's, if the log has no room because home refuses
    /// everything.
    pub(crate) fn change(
        &self,
        inodes: &Inodes,
        now: Timestamp,
        change: Change,
    ) -> Result<(), Unchanged> {
        while !self.try_change(&mut self.lock(), inodes, now, &change)? {
            self.wait_for_log_of_home()?;
        }
        Ok(())
    }

    /// Says whether the change was made: the log may be full.
    fn try_change(
        &self,
        state: &mut State,
        inodes: &Inodes,
        now: Timestamp,
        change: &Change,
    ) -> Result<bool, Refused> {
        state.tree.check(change)?;
        let lsn = match state.log(inodes, change) {
            Logged::At(lsn) => lsn,
            Logged::Full => return Ok(false),
            Logged::ForHome => return Err(Refused::Unknown),
        };
        let touched = changed_directories(change);
        if let Change::Set { node, attributes: Attributes { mtime: Some(_), .. } } = change
            && let Some(noted) = state.directories.get_mut(node)
        {
            noted.changed = None;
        }
        if let Change::Make { node, kind: Kind::Directory, .. } = change {
            state.directories.entry(*node).or_default().read = Some(Instant::now());
        }
        state.apply(change.clone(), lsn);
        for directory in touched.into_iter().flatten() {
            state.directories.entry(directory).or_default().changed = Some(now);
            // What a program set before does not count any more.
            let is_set = |set: Attributes| set.mtime.is_some();
            if state.tree.overlay(directory).is_some_and(is_set) {
                let attributes = Attributes { mtime: Some(moment(now)), ..Attributes::default() };
                // That its entries changed says so in the log.
                state.apply(Change::Set { node: directory, attributes }, lsn);
            }
        }
        self.call_workers_in_time(state);
        Ok(true)
    }

    /// Sets attributes of an inode. Of one that home does not have and never will have, nothing is to be done: what
    /// [`Inode::made`] says is all there is.
    pub(crate) fn set(
        &self,
        inodes: &Inodes,
        inode: &Inode,
        now: Timestamp,
        attributes: Attributes,
    ) -> Result<(), Unchanged> {
        while !self.try_set(inodes, inode, now, attributes)? {
            self.wait_for_log_of_home()?;
        }
        Ok(())
    }

    /// Says whether they were set: the log may be full.
    fn try_set(
        &self,
        inodes: &Inodes,
        inode: &Inode,
        now: Timestamp,
        attributes: Attributes,
    ) -> Result<bool, Refused> {
        let node = inode.node();
        // While its open state is locked it is not closed, which drops what is set of it.
        let open = inode.is_nameless().then(|| inode.open());
        let mut state = self.lock();
        if state.tree.kind(node).is_none() {
            if !inode.is_at_home() {
                return Ok(true);
            }
            let kind = inode.status().map_or(Kind::File, |status| kind_of(&status));
            match &open {
                None => state.tree.introduce(node, kind),
                Some(_) => state.tree.introduce_nameless(node, kind),
            }
            inodes.keep(node);
        }
        if open.as_ref().is_some_and(|open| open.descriptions > 0) {
            let lsn = state.next_lsn();
            state.tree.hold_nameless(node, Kind::File, None, lsn);
        }
        self.try_change(&mut state, inodes, now, &Change::Set { node, attributes })
    }

    /// Somebody waits for home: what is to go there is committed now, and what it refused is tried again.
    pub(crate) fn urge_all(&self) {
        let mut state = self.lock();
        state.urge(&Awaited::All);
        state.commit_for_home();
        self.call_workers(&mut state);
    }

    /// What a sync that begins now waits for. [`WriteBehind::urge_all`] follows: home is asked again for what it refused.
    pub(crate) fn until_now(&self) -> Until {
        let state = self.lock();
        let lsn = match &state.log {
            Some(log) if log.is_recorded() => log.last,
            _ => Lsn(state.next_lsn.saturating_sub(1)),
        };
        Until { lsn, retry: state.tree.retries() + 1 }
    }

    /// Runs `then` once home has what is awaited, or has refused it: at once, or on a thread of this module.
    pub(crate) fn when(
        &self,
        awaited: Awaited,
        then: impl FnOnce(Result<(), HomeError>) + Send + 'static,
    ) {
        let mut state = self.lock();
        state.urge(&awaited);
        if let Some(result) = state.result(&awaited) {
            drop(state);
            return then(result);
        }
        state.commit_for_home();
        state.waiting.push((awaited, Box::new(then)));
        self.call_workers(&mut state);
    }

    /// Blocks until home has what is awaited, or has refused it.
    pub(crate) fn wait(&self, awaited: &Awaited) -> Result<(), HomeError> {
        let mut state = self.lock();
        state.urge(awaited);
        if let Some(result) = state.result(awaited) {
            return result;
        }
        state.commit_for_home();
        state.blocked += 1;
        self.call_workers(&mut state);
        loop {
            if let Some(result) = state.result(awaited) {
                state.blocked -= 1;
                return result;
            }
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What programs see of a node over what home says, with what `ask` says of the node at home, at one moment. Waits for
    /// what changes the number of its links there.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(crate) fn shown_with(
        &self,
        node: NodeId,
        ask: impl Fn() -> std::io::Result<Status>,
    ) -> std::io::Result<(Shown, Status)> {
        let until = Instant::now() + AT_ONE_MOMENT;
        loop {
            let mut before = self.shown_of(&self.lock(), node);
            let said = ask()?;
            let state = self.lock();
            before.is_unsure = self.may_disagree(&state, node, &before, &said);
            let left = until.saturating_duration_since(Instant::now());
            if !before.is_unsure || left.is_zero() {
                // What was set before is here, or home has said it: it was asked later.
                return Ok((before, said));
            }
            if state.tree.are_links_changing(node) {
                drop(self.progress.wait_timeout(state, left));
            }
        }
    }

    /// As [`WriteBehind::shown_with`], without waiting: `None` if it cannot be told which of the two knows what the other
    /// does not.
    pub(crate) fn shown_now_with(
        &self,
        node: NodeId,
        ask: impl FnOnce() -> std::io::Result<Status>,
    ) -> std::io::Result<Option<(Shown, Status)>> {
        let (before, ended) = {
            let state = self.lock();
            (self.shown_of(&state, node), state.ended)
        };
        let said = ask()?;
        let state = self.lock();
        let is_sure = state.ended == ended && !self.may_disagree(&state, node, &before, &said);
        let is_sure = before.is_whole || is_sure;
        Ok(is_sure.then_some((before, said)))
    }

    /// Whether home may have counted links of a node before or after it changed them, since the tree's were counted.
    fn may_disagree(&self, state: &State, node: NodeId, before: &Shown, said: &Status) -> bool {
        // Some file systems count no subdirectories.
        let counts = kind_of(said) != Kind::Directory || said.nlink > 1;
        let is_changing = state.tree.are_links_changing(node);
        let now = self.shown_of(state, node);
        // Home may have got a link, of which nothing is known any more.
        let is_changed = is_changing || (now.wanted, now.home) != (before.wanted, before.home);
        counts && is_changed && !before.is_whole
    }

    /// Whether home is still to be given a modification time that a program has set.
    pub(crate) fn sets_mtime(&self, node: NodeId) -> bool {
        self.lock().tree.overlay(node).is_some_and(|set| set.mtime.is_some())
    }

    fn shown_of(&self, state: &State, node: NodeId) -> Shown {
        let (wanted, home) = match state.tree.kind(node) {
            None => return Shown::default(),
            Some(Kind::Directory) => state.tree.subdirectories(node),
            Some(_) => {
                let links = state.tree.links(node);
                (links.wanted, links.home)
            }
        };
        let is_whole = match state.tree.kind(node) {
            Some(Kind::Directory) => state.tree.is_complete(node),
            _ => state.tree.knows_all_names(node),
        };
        let changed = state.directories.get(&node).and_then(|noted| noted.changed);
        let attributes = state.tree.overlay(node);
        Shown { attributes, wanted, home, changed, is_whole, is_unsure: false }
    }

    /// The names of what was made in the parking directory.
    pub(crate) fn made_parked(&self) -> MutexGuard<'_, HashSet<Box<[u8]>>> {
        self.made_parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the tree says of a name: a node, nothing, or `None` if home is to be asked.
    pub(crate) fn look_up(&self, at: &Place) -> Option<Option<NodeId>> {
        self.lock().tree.look_up(at.parent(), at.name())
    }

    /// Whether home has room for one change more, which is then counted. The first time `ask` says so; after that what a thread of this module finds out once a
    /// second, so that nobody waits for a home that does not answer.
    pub(crate) fn has_room(&self, ask: impl FnOnce() -> Option<StatVfs>) -> bool {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if room.looked.is_none() {
            room.note(ask(), 0);
        }
        let is_old = room.looked.is_none_or(|at| at.elapsed() > ROOM_AGE);
        let enough = room.left > 0;
        room.left = room.left.saturating_sub(1);
        let asks = is_old && !std::mem::replace(&mut room.asking, true);
        drop(room);
        if asks {
            let mut state = self.lock();
            state.asks_room = true;
            self.call_workers(&mut state);
        }
        enough
    }

    /// What home says of its room.
    pub(crate) fn room_is(&self, space: Option<StatVfs>) {
        let dirty = self.lock().tree.dirty();
        self.room.lock().unwrap_or_else(PoisonError::into_inner).note(space, dirty);
    }

    /// The tree is to know a directory. Says whether its entries are to be read at home.
    pub(crate) fn begin_reading(&self, inodes: &Inodes, directory: NodeId) -> bool {
        let mut state = self.lock();
        if state.tree.kind(directory).is_none() {
            state.tree.introduce(directory, Kind::Directory);
            inodes.keep(directory);
        }
        let large = state.directories.get(&directory).is_some_and(|noted| noted.large);
        !large
            && !state.tree.is_complete(directory)
            && state.tree.standing_of_entries(directory) == Standing::Home
    }

    /// A directory has too many entries to be known whole.
    pub(crate) fn is_large(&self, directory: NodeId) {
        self.lock().directories.entry(directory).or_default().large = true;
    }

    /// All entries of a directory are known.
    pub(crate) fn was_read(&self, directory: NodeId) {
        let now = Some(Instant::now());
        let mut state = self.lock();
        state.directories.entry(directory).or_default().read = now;
        if self.listers.are_started() {
            // Though nothing is changed, a thread forgets what is too old.
            self.call_workers(&mut state);
        }
    }

    /// A file without a name is open: what is set of it is seen. If home does not have it, home makes it without a name, so
    /// that its data can leave memory. To be called under the lock of its open state.
    pub(crate) fn hold_nameless(&self, inodes: &Inodes, inode: &Inode) {
        let node = inode.node();
        let mut state = self.lock();
        let is_known = state.tree.kind(node).is_some();
        // What the tree does not know is not being made at home.
        let made = inode.made().filter(|_| !is_known);
        if !is_known && made.is_none() {
            return;
        }
        let made = made.map(|status| Attributes {
            mode: Some(status.mode & 0o7777),
            uid: Some(status.uid),
            gid: Some(status.gid),
            atime: Some(moment(status.atime)),
            // It is kept where writes keep it.
            mtime: None,
        });
        let lsn = state.next_lsn();
        state.drained = false;
        state.tree.hold_nameless(node, Kind::File, made, lsn);
        if !is_known {
            inodes.keep(node);
        }
        self.call_workers(&mut state);
    }

    /// The last description of a file without a name was closed.
    pub(crate) fn release_nameless(&self, node: NodeId) {
        let mut state = self.lock();
        if state.tree.release_nameless(node) {
            state.drained = false;
            self.call_workers(&mut state);
        }
    }

    /// A file is to lose a name: if home has names of it that the tree does not know, since somebody else linked it there,
    /// the tree is told. `ask` says how many names home has.
    pub(crate) fn learn_links(&self, node: NodeId, ask: impl Fn() -> std::io::Result<usize>) {
        let until = Instant::now() + AT_ONE_MOMENT;
        let mut state = self.lock();
        while state.tree.knows_all_names(node) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return state.tree.got_another_name(node);
            }
            if state.tree.is_busy(node) {
                // Home may or may not have done yet what is under way.
                let waited = self.progress.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let known = state.tree.links(node).home;
            drop(state);
            let Ok(links) = ask() else { return };
            state = self.lock();
            if state.tree.is_busy(node) || state.tree.links(node).home != known {
                continue;
            }
            if links > known {
                state.tree.got_another_name(node);
            }
            return;
        }
    }

    /// Whether home may have names of a node that the tree does not know; `ask` says how many it has. Does not wait.
    pub(crate) fn may_have_others_names(
        &self,
        node: NodeId,
        ask: impl FnOnce() -> std::io::Result<usize>,
    ) -> bool {
        let known =
            |state: &State| (!state.tree.is_busy(node)).then(|| state.tree.links(node).home);
        let Some(before) = known(&self.lock()) else { return true };
        let Ok(links) = ask() else { return false };
        known(&self.lock()) != Some(before) || links > before
    }

    /// A listing of a directory begins. Says whether the tree knows all its names, and read them at home recently.
    pub(crate) fn knows_all(&self, directory: NodeId) -> bool {
        let mut state = self.lock();
        if state.tree.is_complete(directory) {
            state.expire_one(directory, self.entry_timeout, Instant::now());
        }
        state.tree.is_complete(directory)
    }

    /// Names of a directory from a position on, at most `most`; `None` if the tree does not know all.
    pub(crate) fn names_if_complete(
        &self,
        directory: NodeId,
        from: u64,
        most: usize,
    ) -> Option<Vec<Known>> {
        let state = self.lock();
        state.tree.is_complete(directory).then(|| state.list(directory, from).take(most).collect())
    }

    /// The directory that a directory is in, as programs see it.
    pub(crate) fn parent_of(&self, directory: NodeId) -> Option<NodeId> {
        Some(self.lock().tree.wanted_places(directory).next()?.parent())
    }

    /// What a symbolic link says that was made here; `None` if home is to be asked.
    pub(crate) fn target_of(&self, link: NodeId) -> Option<Vec<u8>> {
        match self.lock().tree.kind(link)? {
            // Of one that was found at home this is not known.
            Kind::Symlink(target) if !target.is_empty() => Some(target.to_vec()),
            _ => None,
        }
    }

    /// Where a description begins that is opened now: see [`Tree::take_refusal`].
    pub(crate) fn refusal_cursor(&self) -> RefusalCursor {
        self.lock().tree.refusal_cursor()
    }

    /// Why home refused something of a node, if a description was not told yet.
    pub(crate) fn take_refusal(
        &self,
        node: NodeId,
        cursor: &mut RefusalCursor,
    ) -> Option<HomeError> {
        self.lock().tree.take_refusal(node, cursor)
    }

    /// Why home refused something of a directory or in it, if nobody was told yet.
    pub(crate) fn take_refusal_in(&self, directory: NodeId) -> Option<HomeError> {
        self.lock().tree.take_refusal_in(directory)
    }

    /// What home refused, at most `most` parts, each as a path below a directory of which no name is known.
    pub(crate) fn refused(&self, most: usize) -> Vec<(NodeId, PathBuf, HomeError)> {
        let state = self.lock();
        let parts = state.tree.refused().take(most);
        let path = |(part, error): (&Part, HomeError)| {
            let (above, path) = state.path_of(part);
            (above, path, error)
        };
        parts.map(path).collect()
    }

    /// What home does not have, at most `most` paths, as [`WriteBehind::refused`]: what it refused first.
    pub(crate) fn left(&self, most: usize) -> Vec<(NodeId, PathBuf)> {
        let state = self.lock();
        let refused = state.tree.refused().map(|(part, _)| part);
        let mut left = Vec::new();
        for part in refused.chain(state.tree.left()) {
            let path = state.path_of(part);
            if left.len() < most && !left.contains(&path) {
                left.push(path);
            }
        }
        left
    }

    /// How much is not home, and how many parts of it home refused.
    pub(crate) fn dirty(&self) -> (usize, usize) {
        let state = self.lock();
        (state.tree.dirty(), state.tree.refused().count())
    }
}

impl State {
    /// Names of a directory that lead to something, as far as the tree knows them, from a position on.
    pub(crate) fn list(&self, directory: NodeId, from: u64) -> impl Iterator<Item = Known> {
        self.tree.list(directory, from).map(|(position, name, node)| {
            let kind = self.tree.kind(node).expect("what is listed is known");
            Known { position, name: name.into(), node, kind: kind.clone() }
        })
    }

    pub(super) fn apply(&mut self, change: Change, lsn: Lsn) {
        self.drained = false;
        self.tree.apply(change, lsn);
    }

    /// A place in the order for a change that is not logged.
    pub(super) fn next_lsn(&mut self) -> Lsn {
        if let Some(log) = self.log.as_ref().filter(|log| log.is_recorded()) {
            // With the last one that is.
            return log.last;
        }
        let lsn = Lsn(self.next_lsn);
        self.next_lsn += 1;
        lsn
    }

    /// What became of what is awaited; `None` if that is not known yet.
    fn result(&self, awaited: &Awaited) -> Option<Result<(), HomeError>> {
        let standing = match awaited {
            Awaited::Node(node) => self.tree.standing(*node),
            Awaited::Entries(directory) => self.tree.standing_of_entries(*directory),
            Awaited::Entry(at) => self.tree.standing_of(at),
            Awaited::All => self.standing_of_all(),
            Awaited::Until(until) => self.tree.standing_until(*until),
        };
        match standing {
            Standing::Home => Some(Ok(())),
            Standing::Refused(error) => Some(Err(error)),
            // Nobody will bring it home any more.
            Standing::Pending if self.crew.is_stopped() => Some(Err(HomeError::Gone)),
            Standing::Pending => self.continuation_refused().map(Err),
        }
    }

    fn standing_of_all(&self) -> Standing {
        // After the threads have ended nobody asks the planner any more. What waits for the log was not tried yet.
        let tried = self.drained && !self.tree.has_uncommitted();
        let asked = tried || self.crew.is_stopped();
        if self.tree.dirty() == 0 && self.tree.under_way() == 0 && asked {
            return Standing::Home;
        }
        match self.tree.refused().next() {
            // What waits for a refused part is dirty, too, and nothing is being done any more.
            Some((_, error)) if self.tree.is_idle() && asked => Standing::Refused(error),
            _ => Standing::Pending,
        }
    }

    /// The path of a part below a directory of which no name is known: the root, or one that was forgotten. Words, if it
    /// has no name.
    pub(super) fn path_of(&self, part: &Part) -> (NodeId, PathBuf) {
        let (mut names, mut directory) = match part {
            Part::Entry(at) => (vec![at.name().to_vec()], at.parent()),
            Part::Attributes(node) => (Vec::new(), *node),
        };
        while let Some(at) = self.tree.wanted_places(directory).next() {
            names.push(at.name().to_vec());
            directory = at.parent();
        }
        names.reverse();
        if self.tree.is_nameless(directory) {
            // It may be found at home, or another of its name.
            let is_directory = self.tree.kind(directory).is_some_and(Kind::is_directory);
            names.insert(0, nameless(is_directory).into());
            directory = NodeId::ROOT;
        }
        (directory, OsString::from_vec(names.join(&b'/')).into())
    }

    /// Somebody waits until home has something. Home is given only what is durable in the log, so the log is written now. It is
    /// not called where nothing has to be waited for: on a hard disk each write of the log takes a revolution.
    fn commit_for_home(&mut self) {
        if let Some(log) = &mut self.log {
            log.is_awaited |= log.uncommitted.is_some();
        }
    }

    /// What is awaited and was refused is tried again.
    fn urge(&mut self, awaited: &Awaited) {
        match awaited {
            Awaited::Node(node) | Awaited::Entries(node) => self.tree.urge(*node),
            Awaited::Entry(at) => self.tree.urge(at.parent()),
            // Nobody would try it.
            _ if self.crew.is_stopped() => {}
            Awaited::All | Awaited::Until(_) => {
                self.drained &= self.tree.refused().next().is_none();
                self.retry();
            }
        }
    }

    /// Takes out what is not waited for any more, each with its answer.
    pub(super) fn take_ready(&mut self) -> Vec<(Continuation, Result<(), HomeError>)> {
        let mut ready = Vec::new();
        let mut still = Vec::new();
        for (awaited, then) in std::mem::take(&mut self.waiting) {
            match self.result(&awaited) {
                Some(result) => ready.push((then, result)),
                None => still.push((awaited, then)),
            }
        }
        self.waiting = still;
        ready
    }
}

/// Directories whose times a change sets.
fn changed_directories(change: &Change) -> [Option<NodeId>; 2] {
    match change {
        Change::Make { at, .. } | Change::Link { at, .. } | Change::Remove { at, .. } => {
            [Some(at.parent()), None]
        }
        Change::Rename { from, to, .. } => [Some(from.parent()), Some(to.parent())],
        Change::Exchange { one, other } => [Some(one.1.parent()), Some(other.1.parent())],
        Change::Set { .. } | Change::SetXattr { .. } => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use weir_names::tree::Answer;

    use super::*;

    #[test]
    fn a_link_that_home_gets_and_that_is_forgotten_meanwhile_is_counted_once() {
        let behind = WriteBehind::new(Duration::ZERO, None, 1);
        let (node, at) = (NodeId(7), Place::new(NodeId::ROOT, b"link").unwrap());
        {
            let tree = &mut behind.lock().tree;
            tree.listed(NodeId::ROOT);
            tree.introduce(node, Kind::File);
            tree.apply(Change::Link { node, at: at.clone() }, Lsn(1));
        }
        let bring_home = || {
            let tree = &mut behind.lock().tree;
            while let Some((id, _)) = tree.next_command() {
                tree.ended(id, Ok(Answer::Done));
            }
            tree.forget(&at);
        };
        let status = Status { nlink: 2, ..status_of_a_file() };
        let ask = || {
            bring_home();
            Ok(status)
        };
        let (shown, said) = behind.shown_with(node, ask).unwrap();
        assert_eq!(said.nlink as usize + shown.wanted - shown.home, 2);
    }

    fn status_of_a_file() -> Status {
        let program = std::env::current_exe().and_then(std::fs::File::open).unwrap();
        Status::of(program.as_fd()).unwrap()
    }
}
