//! What the threads that bring names home do next, and what becomes of it.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_names::tree::{
    Answer, Attributes, Change, Command, CommandId, HomeError, Kind, Moment, Standing, Tree,
};
use weir_names::{NodeId, Place};

use crate::attr::{self, earlier_by, in_order, moment, timestamp};
use crate::inode::Inode;
use crate::inodes::Inodes;
use crate::write_behind::doubts::Doubt;
use crate::write_behind::log::{LogJob, Logged};
use crate::write_behind::made::Named;
use crate::write_behind::moves::Begun;
use crate::write_behind::state::{Noted, RETRY, State, WriteBehind};

/// How often old entries are looked for.
const EXPIRE: Duration = Duration::from_secs(1);

/// Inodes that a thread lets go one after the other. Closing the last descriptor of a removed file frees its blocks, which can take
/// home's disk a millisecond.
const LET_GO_AT_ONCE: usize = 16;

/// What a thread is to do next.
pub(crate) enum Job {
    Command(CommandId, Command),
    /// The same, its file's data being home.
    Resumed(CommandId, Command),
    /// The same, and the log says so, durably.
    Stepped(CommandId, Command, Begun),
    /// Find out whether home did this.
    Doubt(Doubt),
    /// The tree does not know these any more.
    LetGo(Vec<Arc<Inode>>),
    /// The log names what was made at home.
    Named(Named),
    /// Something that the log needs.
    Log(LogJob),
    /// Ask home for its room.
    AskRoom,
    /// Home refused these names, each with what it is to lead to: somebody else may have removed something.
    Removed(Vec<(Place, NodeId)>),
}

impl WriteBehind {
    /// Says what the threads do, again and again while it says `true`: what [`WriteBehind::next_job`] gives. Before the
    /// first change. And what one of them does that waits for room in the log.
    pub(crate) fn start(
        &self,
        work_at_home: impl Fn() -> bool + Send + Sync + 'static,
        work_on_log: impl Fn(LogJob) + Send + Sync + 'static,
    ) {
        let set = self.work_at_home.set(Arc::new(work_at_home));
        assert!(set.is_ok(), "it is started once");
        let set = self.work_on_log.set(Box::new(work_on_log));
        assert!(set.is_ok(), "it is started once");
    }

    /// Ends the threads after what they do now. What is not home then stays so.
    pub(crate) fn stop(&self) {
        let handles = {
            let mut state = self.lock();
            state.crew.stopped = true;
            std::mem::take(&mut state.crew.handles)
        };
        self.work.notify_all();
        for handle in handles {
            // A thread that panicked has said so.
            let _ = handle.join();
        }
        let ready = self.lock().take_ready();
        self.progress.notify_all();
        for (then, result) in ready {
            then(result);
        }
    }

    /// Sees to it that a thread looks for work.
    pub(super) fn call_workers(&self, state: &mut State) {
        if state.crew.idle > 0 {
            return self.work.notify_one();
        }
        if state.crew.threads >= state.crew.most() || state.crew.stopped {
            return;
        }
        let work = Arc::clone(self.work_at_home.get().expect("it was started"));
        let body = move || while work() {};
        match thread::Builder::new().name("weir-names".to_owned()).spawn(body) {
            Ok(handle) => {
                state.crew.threads += 1;
                state.crew.handles.push(handle);
            }
            Err(error) => tracing::warn!("no further thread to bring names home: {error}"),
        }
    }

    /// The same after a change. Home is given it after its commit: if a thread sleeps until then, none is woken, which would
    /// take a CPU from the program.
    pub(super) fn call_workers_in_time(&self, state: &mut State) {
        let has_log = state.log.as_ref().is_some_and(|log| !log.failed);
        if !has_log || state.crew.watching == 0 || state.is_commit_awaited() {
            self.call_workers(state);
        }
    }

    /// The next thing to do; `None` if the threads are to end.
    pub(crate) fn next_job(&self, inodes: &Inodes) -> Option<Job> {
        let mut state = self.lock();
        loop {
            // Before names are brought home: rmdir(2) does not end while files that were in the directory are being closed.
            if !state.unneeded.is_empty() {
                let rest = state.unneeded.len().saturating_sub(LET_GO_AT_ONCE);
                let let_go = state.unneeded.split_off(rest);
                if rest > 0 {
                    self.call_workers(&mut state);
                }
                return Some(Job::LetGo(let_go));
            }
            if state.crew.stopped {
                return None;
            }
            if std::mem::take(&mut state.asks_room) {
                // There may be more.
                self.call_workers(&mut state);
                return Some(Job::AskRoom);
            }
            if state.retried.elapsed() >= RETRY {
                state.retried = Instant::now();
                state.drained = false;
                state.retry();
            }
            state.renew_old_places(inodes);
            if let Some(job) = state.log_job() {
                // There may be more.
                self.call_workers(&mut state);
                return Some(Job::Log(job));
            }
            if let Some((id, command)) = state.resumed.pop_front() {
                return Some(Job::Resumed(id, command));
            }
            if let Some(named) = state.named.pop_front() {
                state.unnamed -= 1;
                return Some(Job::Named(named));
            }
            if let Some((id, command, begun)) = state.stepped.pop_front() {
                return Some(Job::Stepped(id, command, begun));
            }
            if let Some(doubt) = state.doubts.next_due() {
                // There may be more.
                self.call_workers(&mut state);
                return Some(Job::Doubt(doubt));
            }
            let may_make = state.unnamed < state.unnamed_max;
            let next = if may_make { state.tree.next_command() } else { None };
            state.drained = may_make && next.is_none();
            if let Some((id, command)) = next {
                // There may be more.
                self.call_workers(&mut state);
                return Some(Job::Command(id, command));
            }
            if let Some(refused) = state.refused_by_changes() {
                self.call_workers(&mut state);
                return Some(Job::Removed(refused));
            }
            if state.give_times(inodes) {
                continue;
            }
            let unneeded = state.settle(inodes, self.entry_timeout);
            let has_unneeded = !unneeded.is_empty();
            state.unneeded.extend(unneeded);
            let conflicts = state.describe_conflicts(inodes);
            let ready = state.take_ready();
            if !ready.is_empty() || has_unneeded || !conflicts.is_empty() {
                drop(state);
                conflicts.iter().for_each(|conflict| tracing::warn!("{conflict}"));
                self.progress.notify_all();
                ready.into_iter().for_each(|(then, result)| then(result));
                state = self.lock();
                continue;
            }
            self.progress.notify_all();
            state.crew.idle += 1;
            let watches =
                usize::from(state.log.as_ref().is_some_and(|log| log.uncommitted.is_some()));
            state.crew.watching += watches;
            let room = state.room_sleep();
            let looks = usize::from(room.is_some());
            state.crew.looking += looks;
            let sleeps = [state.log_sleep(), room, Some(RETRY)];
            let sleep = sleeps.into_iter().flatten().min().unwrap_or(RETRY);
            let waited = self.work.wait_timeout(state, sleep);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.crew.watching -= watches;
            state.crew.looking -= looks;
            state.crew.idle -= 1;
        }
    }

    /// A command ended. Gives back home's error, now and then, if it refuses everything, so that nothing should wait for what it
    /// does not have: for a while, or since the log has failed.
    #[must_use]
    pub(crate) fn ended(
        &self,
        id: CommandId,
        result: Result<Answer, HomeError>,
        took: Duration,
    ) -> Option<HomeError> {
        self.answered(result, |state| {
            state.crew.learn(took);
            state.ended += 1;
            if result.is_ok() {
                state.note_given(id, took);
            }
            state.tree.ended(id, result);
        })
    }

    /// Home answered, or its answer was lost, and the tree is told so.
    pub(super) fn answered(
        &self,
        result: Result<Answer, HomeError>,
        tell: impl FnOnce(&mut State),
    ) -> Option<HomeError> {
        let is_refused = matches!(result, Err(HomeError::Refused(_)));
        self.tell(|state| {
            let now = Instant::now();
            state.refusing.answered(result.as_ref().map_err(|&error| error), now);
            let log_failed = state.log.as_ref().is_some_and(|log| log.failed);
            let hopeless = match log_failed {
                true => state.refusing.at_once(),
                false => state.refusing.hopeless(now),
            };
            tell(state);
            hopeless.filter(|_| is_refused && state.refusing.is_to_be_told(now))
        })
    }

    /// Tells the tree how a command ended, or that its answer was lost, and answers the requests that waited for it.
    pub(super) fn tell<T>(&self, tell: impl FnOnce(&mut State) -> T) -> T {
        let (ready, told) = {
            let mut state = self.lock();
            state.drained = false;
            let told = tell(&mut state);
            // What is as it should be is noted when it is looked at: the planner is asked for the next command.
            let ready = match state.waiting.is_empty() {
                true => Vec::new(),
                false => state.take_ready(),
            };
            (ready, told)
        };
        self.progress.notify_all();
        ready.into_iter().for_each(|(then, result)| then(result));
        told
    }

    /// What was made at home for a command is to be named by the log; [`WriteBehind::named`] follows.
    pub(crate) fn will_be_named(&self) {
        self.lock().unnamed += 1;
    }

    /// What was made at home for a command is named by the log, durably.
    pub(crate) fn named(&self, named: Named) {
        let mut state = self.lock();
        state.named.push_back(named);
        self.call_workers(&mut state);
    }

    /// Whether home is given this time of a directory because it was changed then.
    pub(crate) fn is_given(&self, directory: NodeId, mtime: Moment) -> bool {
        let state = self.lock();
        let given = state.directories.get(&directory).and_then(|noted| noted.given);
        given.is_some_and(|given| moment(given) == mtime)
    }

    /// What a command does to names is in the log, durably: it is executed now.
    pub(crate) fn stepped(&self, id: CommandId, command: Command, begun: Begun) {
        let mut state = self.lock();
        state.stepped.push_back((id, command, begun));
        self.call_workers(&mut state);
    }

    /// A command's data is home: it is executed now.
    pub(crate) fn resume(&self, id: CommandId, command: Command) {
        let mut state = self.lock();
        state.resumed.push_back((id, command));
        self.call_workers(&mut state);
    }
}

impl State {
    /// Home did what a command says, in so long a time: it shows a later time of the directories that were changed.
    fn note_given(&mut self, id: CommandId, took: Duration) {
        let command = self.tree.command(id);
        let itself = match command {
            Command::Make { node, kind: Kind::Directory, .. } => Some((*node, None)),
            Command::Set { node, attributes, .. } => attributes.mtime.map(|to| (*node, Some(to))),
            _ => None,
        };
        let began = earlier_by(attr::now(), took);
        let changed = command.changed_directories().map(|directory| (directory, None));
        for (directory, set) in changed.chain(itself) {
            if let Some(noted) = self.directories.get_mut(&directory) {
                noted.given = Some(set.map_or(began, timestamp));
            }
        }
    }

    /// Sets the times at home of directories in which changes undid each other before home had them, to those that programs have
    /// seen. Says whether there is such a directory.
    fn give_times(&mut self, inodes: &Inodes) -> bool {
        let not_given = |noted: &Noted| {
            let changed = noted.changed?;
            noted.given.is_none_or(|given| in_order(given) < in_order(changed)).then_some(changed)
        };
        let mut to_give = Vec::new();
        for (&directory, noted) in &mut self.directories {
            let Some(changed) = not_given(noted) else { continue };
            if self.tree.standing_of_entries(directory) == Standing::Home {
                noted.given = Some(changed);
                if !self.tree.is_nameless(directory) {
                    to_give.push((directory, changed));
                }
            }
        }
        let mut is_given = false;
        for (node, changed) in to_give {
            let attributes = Attributes { mtime: Some(moment(changed)), ..Attributes::default() };
            let change = Change::Set { node, attributes };
            // Without room in the log home goes without: its directory has the names that it had before.
            if self.tree.check(&change).is_ok()
                && let Logged::At(lsn) = self.log(inodes, &change)
            {
                self.apply(change, lsn);
                is_given = true;
            }
        }
        is_given
    }

    /// Notes what is home now, and forgets what need not be known any more. Gives back the inodes of that which are held: they
    /// are to be used and dropped without the lock.
    fn settle(&mut self, inodes: &Inodes, entry_timeout: Duration) -> Vec<Arc<Inode>> {
        let mut let_go = Vec::new();
        let now = Instant::now();
        for (&directory, noted) in &mut self.directories {
            if noted.changed.is_some() && self.tree.standing_of_entries(directory) == Standing::Home
            {
                let changed = noted.changed.take();
                if let Some(inode) = inodes.get(directory) {
                    inode.note_brought_home(changed, attr::now_exactly());
                }
                if self.tree.is_complete(directory) {
                    // One that was made here is known as one that was read now.
                    noted.read.get_or_insert(now);
                }
            }
        }
        if now.saturating_duration_since(self.expired) > EXPIRE {
            self.expired = now;
            self.expire(entry_timeout, now);
        }
        for node in self.held.free(self.tree.take_unneeded()) {
            if self.tree.let_go(node) {
                let noted = self.directories.remove(&node);
                let not_synced = noted.map_or(0, |noted| noted.changed_at_home);
                if not_synced > 0 {
                    // A sync of it is one of home, also when the tree knows it again.
                    let noted = Noted { changed_at_home: not_synced, ..Noted::default() };
                    self.directories.insert(node, noted);
                }
                if let Some(log) = &mut self.log {
                    log.let_go(node);
                }
                let_go.extend(inodes.let_fade(node).or_else(|| inodes.get(node)));
            }
        }
        let_go
    }

    /// Home was changed at once under a name in a directory that the tree knows. What is told of it is forgotten when it is old.
    pub(crate) fn changed_at_home(&mut self, at: &Place, node: Option<NodeId>) {
        self.directories.entry(at.parent()).or_default();
        self.tree.changed_at_home(at, node);
    }

    /// Forgets entries of directories that were read at home so long ago that somebody may have changed them there.
    fn expire(&mut self, age_max: Duration, now: Instant) {
        let Self { directories, tree, held, .. } = self;
        directories.retain(|&directory, noted| {
            if held.is_held(directory) {
                return true;
            }
            // Also where a change is not synced yet.
            let is_forgotten = is_forgotten(tree, directory, noted, age_max, now);
            noted.changed_at_home > 0 || tree.kind(directory).is_some() && !is_forgotten
        });
    }

    /// The same of one directory.
    pub(super) fn expire_one(&mut self, directory: NodeId, age_max: Duration, now: Instant) {
        let Self { directories, tree, held, .. } = self;
        if held.is_held(directory) {
            return;
        }
        let noted = directories.entry(directory).or_default();
        if is_forgotten(tree, directory, noted, age_max, now) && noted.changed_at_home == 0 {
            directories.remove(&directory);
        }
    }
}

/// Forgets the entries of a directory if they are old. Says whether it did: what is dirty is kept, to be looked at again.
fn is_forgotten(
    tree: &mut Tree,
    directory: NodeId,
    noted: &Noted,
    age_max: Duration,
    now: Instant,
) -> bool {
    noted.is_old(age_max, now) && noted.changed.is_none() && tree.forget_clean(directory)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::fd::AsFd;

    use weir_backend::home_names::{HomeNames, Status, open_root};

    use super::*;

    /// A directory of a home, which the tree knows, and its name.
    fn scene() -> (WriteBehind, Inodes, NodeId, Place) {
        let source = std::fs::File::open("/").unwrap();
        let home = HomeNames::new(source.as_fd()).unwrap();
        let root = open_root(source.as_fd()).unwrap();
        let status = Status::of(root.as_fd()).unwrap();
        let looked = home.look_up(source.as_fd(), NodeId::ROOT, OsStr::new("etc")).unwrap();
        let identity = home.root(root.as_fd()).unwrap();
        let inodes = Inodes::new(root, &status, identity, 8);
        let node = inodes.count(&looked);
        let behind = WriteBehind::new(Duration::ZERO, None, 1);
        let place = Place::new(NodeId::ROOT, b"etc").unwrap();
        know(&behind, &inodes, node, &place);
        (behind, inodes, node, place)
    }

    fn know(behind: &WriteBehind, inodes: &Inodes, node: NodeId, place: &Place) {
        let tree = &mut behind.lock().tree;
        tree.introduce(node, Kind::Directory);
        tree.found(place, Some(node));
        inodes.keep(node);
    }

    #[test]
    fn that_a_directory_was_changed_at_home_is_known_until_it_is_synced_there() {
        let (behind, inodes, node, place) = scene();
        assert_eq!(behind.change_not_logged(node), None);
        {
            let state = &mut *behind.lock();
            state.note_changed_at_home(node);
            state.note_changed_at_home(node);
            state.tree.forget(&place);
            state.settle(&inodes, Duration::ZERO);
            assert_eq!(state.tree.kind(node), None, "it was let go");
        }
        assert_eq!(behind.change_not_logged(node), Some(2));
        know(&behind, &inodes, node, &place);
        assert_eq!(behind.change_not_logged(node), Some(2));
        behind.synced_at_home(node, 1);
        assert_eq!(behind.change_not_logged(node), Some(2), "it was changed since");
        behind.synced_at_home(node, 2);
        assert_eq!(behind.change_not_logged(node), None);
    }

    #[test]
    fn what_is_noted_of_a_directory_that_the_tree_does_not_know_ends_with_its_sync_or_removal() {
        let (behind, inodes, node, place) = scene();
        let change_and_forget = || {
            let state = &mut *behind.lock();
            state.note_changed_at_home(node);
            state.tree.forget(&place);
            state.settle(&inodes, Duration::ZERO);
            state.expire(Duration::ZERO, Instant::now());
            assert!(state.directories.contains_key(&node), "it is not synced");
        };
        change_and_forget();
        behind.synced_at_home(node, behind.change_not_logged(node).unwrap());
        assert!(!behind.lock().directories.contains_key(&node));
        know(&behind, &inodes, node, &place);
        change_and_forget();
        behind.removed_at_home(node);
        assert!(!behind.lock().directories.contains_key(&node));
        behind.lock().directories.entry(node).or_default();
        behind.lock().expire(Duration::ZERO, Instant::now());
        assert!(!behind.lock().directories.contains_key(&node), "nothing is noted of it");
    }

    #[test]
    fn what_is_known_of_a_directory_is_forgotten_also_if_a_change_of_it_is_not_synced() {
        let (behind, _, node, _) = scene();
        let state = &mut *behind.lock();
        state.tree.listed(node);
        state.note_changed_at_home(node);
        state.directories.get_mut(&node).unwrap().read = Some(Instant::now());
        assert!(state.tree.is_complete(node));
        state.expire(Duration::ZERO, Instant::now() + Duration::from_secs(1));
        assert!(!state.tree.is_complete(node), "others may have changed it at home");
        assert!(state.directories[&node].changed_at_home > 0);
    }

    #[test]
    fn a_sync_that_ends_late_does_not_cover_a_change_made_after_another_sync() {
        let (behind, _, node, _) = scene();
        behind.lock().note_changed_at_home(node);
        let change = behind.change_not_logged(node).unwrap();
        behind.synced_at_home(node, change);
        behind.lock().note_changed_at_home(node);
        // The same sync of another program began before the second change.
        behind.synced_at_home(node, change);
        assert!(behind.change_not_logged(node).is_some(), "the second change is not synced");
    }
}
