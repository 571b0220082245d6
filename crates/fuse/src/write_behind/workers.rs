//! The threads that bring names home: a few, and more where home is slow and much is to be done.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_names::NodeId;
use weir_names::tree::{Answer, Command, CommandId, HomeError, Standing};

use super::{RETRY, State, WriteBehind};
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};

/// How often old entries are looked for.
const EXPIRE: Duration = Duration::from_secs(1);
/// How long a listing that a program began goes on.
const LISTING: Duration = Duration::from_secs(60);

/// Threads where home is quick: one that waits for home, and one that does not.
const QUICK: usize = 2;
/// Threads at most.
const MOST: usize = 64;
/// One thread more for each of this that home takes for a command.
const SHARE: Duration = Duration::from_micros(100);
/// Weight of one command in the estimate of what home takes: one part in this many.
const WEIGHT: u32 = 8;

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Crew {
    threads: usize,
    idle: usize,
    /// What home takes for a command, about.
    command: Duration,
    stopped: bool,
    handles: Vec<thread::JoinHandle<()>>,
}

impl Crew {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn most(&self) -> usize {
        let slow = self.command.as_micros() / SHARE.as_micros();
        usize::try_from(slow).unwrap_or(MOST).clamp(QUICK, MOST)
    }

    fn learn(&mut self, took: Duration) {
        self.command = (self.command * (WEIGHT - 1) + took) / WEIGHT;
    }
}

/// What a thread is to do next.
enum Job {
    Command(CommandId, Command),
    /// The same, its file's data being home.
    Resumed(CommandId, Command),
    /// Make a file without a name at home.
    Nameless(Arc<Inode>),
}

impl WriteBehind {
    /// Says for which file system names are written back: before the first change.
    pub(crate) fn start(&self, fs: &Arc<FileSystem>) {
        let set = self.fs.set(Arc::downgrade(fs));
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
        let fs = self.fs.get().expect("it was started").clone();
        let body = move || {
            while let Some(fs) = fs.upgrade() {
                if !fs.bring_names_home() {
                    return;
                }
            }
        };
        match thread::Builder::new().name("weir-names".to_owned()).spawn(body) {
            Ok(handle) => {
                state.crew.threads += 1;
                state.crew.handles.push(handle);
            }
            Err(error) => tracing::warn!("no further thread to bring names home: {error}"),
        }
    }

    /// The next thing to do; `None` if the threads are to end.
    fn next_job(&self, fs: &FileSystem) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.crew.stopped {
                return None;
            }
            if let Some(inode) = state.nameless.pop_front() {
                return Some(Job::Nameless(inode));
            }
            if let Some((id, command)) = state.resumed.pop_front() {
                return Some(Job::Resumed(id, command));
            }
            let next = state.tree.next_command();
            state.drained = next.is_none();
            if let Some((id, command)) = next {
                // There may be more.
                self.call_workers(&mut state);
                return Some(Job::Command(id, command));
            }
            let dropped = state.settle(fs);
            let ready = state.take_ready();
            if !ready.is_empty() || !dropped.is_empty() {
                drop(state);
                drop(dropped);
                self.progress.notify_all();
                ready.into_iter().for_each(|(then, result)| then(result));
                state = self.lock();
                continue;
            }
            self.progress.notify_all();
            state.crew.idle += 1;
            let (locked, timeout) =
                self.work.wait_timeout(state, RETRY).unwrap_or_else(PoisonError::into_inner);
            state = locked;
            state.crew.idle -= 1;
            if timeout.timed_out() {
                state.drained = false;
                state.tree.retry();
            }
        }
    }

    /// A command ended.
    pub(super) fn ended(&self, id: CommandId, result: Result<Answer, HomeError>, took: Duration) {
        let ready = {
            let mut state = self.lock();
            state.crew.learn(took);
            state.drained = false;
            state.tree.ended(id, result);
            // What is as it should be is noted when it is looked at: the planner is asked for the next command.
            match state.waiting.is_empty() {
                true => Vec::new(),
                false => state.take_ready(),
            }
        };
        self.progress.notify_all();
        ready.into_iter().for_each(|(then, result)| then(result));
    }

    /// A command's data is home: it is executed now.
    fn resume(&self, id: CommandId, command: Command) {
        let mut state = self.lock();
        state.resumed.push_back((id, command));
        self.call_workers(&mut state);
    }
}

impl State {
    /// Notes what is home now, and forgets what need not be known any more. The inodes are to be dropped without the lock.
    fn settle(&mut self, fs: &FileSystem) -> Vec<Arc<Inode>> {
        let mut dropped = Vec::new();
        for (&directory, noted) in &mut self.directories {
            if noted.changed.is_some() && self.tree.standing_of_entries(directory) == Standing::Home
            {
                noted.changed = None;
            }
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.expired) > EXPIRE {
            self.expired = now;
            self.expire(fs.options.entry_timeout, now);
        }
        for node in self.tree.take_unneeded() {
            if self.tree.let_go(node) {
                self.directories.remove(&node);
                dropped.extend(fs.inodes.let_fade(node));
            }
        }
        dropped
    }

    /// Forgets entries of directories that were read at home so long ago that somebody may have changed them there.
    fn expire(&mut self, age_max: Duration, now: Instant) {
        let Self { directories, tree, .. } = self;
        directories.retain(|&directory, noted| {
            let listed = if noted.listed { LISTING } else { Duration::ZERO };
            let age = noted.used.map(|used| now.saturating_duration_since(used));
            let is_old = age.is_none_or(|age| age > age_max.max(listed));
            // What is dirty is kept, and looked at again.
            !is_old || noted.changed.is_some() || !tree.forget_clean(directory)
        });
    }
}

impl FileSystem {
    /// Does one thing at home. Says whether to go on.
    fn bring_names_home(self: &Arc<Self>) -> bool {
        let Some(behind) = &self.write_behind else { return false };
        match behind.next_job(self) {
            None => return false,
            Some(Job::Nameless(inode)) => self.make_nameless(&inode),
            Some(Job::Command(id, command)) => match self.data_to_go_first(&command) {
                Some(file) => {
                    let fs = Arc::clone(self);
                    self.when_home(&file, move || {
                        let behind = fs.write_behind.as_ref().expect("it is what resumes");
                        behind.resume(id, command);
                    });
                }
                None => self.end_command(behind, id, &command),
            },
            Some(Job::Resumed(id, command)) => self.end_command(behind, id, &command),
        }
        true
    }

    fn end_command(self: &Arc<Self>, behind: &WriteBehind, id: CommandId, command: &Command) {
        let began = Instant::now();
        let mut result = self.execute_name_command(command);
        if matches!(result, Err(HomeError::Refused(libc::ENFILE | libc::EMFILE))) {
            self.make_room();
            result = self.execute_name_command(command);
        }
        if let Err(error) = &result {
            tracing::debug!("home did not do {command:?}: {error}");
        }
        behind.ended(id, result, began.elapsed());
    }

    /// The file whose data is to be home before a command replaces another file by it: after a crash the name leads to
    /// the old content or to the new (ext4(5), `auto_da_alloc`).
    fn data_to_go_first(&self, command: &Command) -> Option<Arc<Inode>> {
        let Command::Rename { node, replacing: Some(_), .. } = command else { return None };
        let inode = self.inodes.get(*node)?;
        let dirty = inode.is_attached() && self.shard.has_dirty(NodeId::file(*node));
        dirty.then_some(inode)
    }
}
