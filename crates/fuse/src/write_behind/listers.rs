//! The threads that list directories ahead ([`super::ahead`]).
//!
//! Owns the threads. They begin when there is something to list and end when there is not, or at once with the mount; what they
//! find is told to the tree by [`crate::ops::listings_ahead`].
//!
//! Lock order: this lock is taken alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_names::NodeId;

use crate::write_behind::ahead::Ahead;

/// Threads at most: each is a listing under way.
const THREADS_MAX: usize = 16;

/// How long a thread waits for something to do.
const IDLE: Duration = Duration::from_secs(5);

/// What was found in a directory: how many entries, and the directories among them. `None`: it is not known now.
pub(crate) type FoundAhead = Option<(usize, Vec<NodeId>)>;

/// Lists a directory.
type List = Arc<dyn Fn(NodeId) -> FoundAhead + Send + Sync>;

#[derive(Debug)]
struct State {
    ahead: Ahead,
    threads: usize,
    idle: usize,
    stopped: bool,
    handles: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// There is something to list, or the threads are to end.
    work: Condvar,
    /// A listing has ended.
    ended: Condvar,
    list: OnceLock<List>,
}

/// The threads. Without [`Listers::start`] nothing is listed ahead.
pub(crate) struct Listers(Arc<Shared>);

impl Listers {
    /// Of a home whose answers count for `age_max`.
    pub(super) fn new(age_max: Duration) -> Listers {
        let state = State {
            ahead: Ahead::new(age_max),
            threads: 0,
            idle: 0,
            stopped: false,
            handles: Vec::new(),
        };
        Listers(Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            ended: Condvar::new(),
            list: OnceLock::new(),
        }))
    }

    /// Says how a directory is listed.
    pub(crate) fn start(&self, list: impl Fn(NodeId) -> FoundAhead + Send + Sync + 'static) {
        let set = self.0.list.set(Arc::new(list));
        assert!(set.is_ok(), "it is started once");
    }

    /// A program uses what is known of a directory, or is about to list it. Waits if it is being listed, which takes no longer
    /// than to list it once more; for nothing else.
    pub(crate) fn used(&self, directory: NodeId) {
        if self.0.list.get().is_none() {
            return;
        }
        let mut state = self.0.lock();
        while state.ahead.is_under_way(directory) && !state.stopped {
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ahead.used(directory, Instant::now());
        self.0.call(&mut state);
    }

    /// A program uses a name in a directory that is known. Waits for nothing.
    pub(crate) fn name_used(&self, directory: NodeId) {
        if self.0.list.get().is_none() {
            return;
        }
        let mut state = self.0.lock();
        if state.ahead.is_unused(directory) {
            state.ahead.used(directory, Instant::now());
            self.0.call(&mut state);
        }
    }

    /// A program is likely to list these directories next.
    pub(crate) fn next_are(&self, directories: &[NodeId]) {
        if directories.is_empty() || self.0.list.get().is_none() {
            return;
        }
        let mut state = self.0.lock();
        state.ahead.next_are(directories, Instant::now());
        self.0.call(&mut state);
    }

    /// Whether directories are listed ahead.
    pub(crate) fn are_started(&self) -> bool {
        self.0.list.get().is_some()
    }

    /// Whether the threads are to end: what they do is of no use any more.
    pub(crate) fn are_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Ends the threads. One that waits for an answer of home ends when that comes.
    pub(crate) fn stop(&self) {
        let handles = {
            let mut state = self.0.lock();
            state.stopped = true;
            std::mem::take(&mut state.handles)
        };
        self.0.work.notify_all();
        self.0.ended.notify_all();
        for handle in handles {
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that threads list what there is to list.
    fn call(self: &Arc<Self>, state: &mut State) {
        if !state.ahead.has_work() || state.stopped {
            return;
        }
        if state.idle > 0 {
            return self.work.notify_one();
        }
        if state.threads == THREADS_MAX {
            return;
        }
        state.handles.retain(|handle| !handle.is_finished());
        let shared = Arc::clone(self);
        let spawned =
            thread::Builder::new().name("weir-ahead".to_owned()).spawn(move || shared.run());
        match spawned {
            Ok(handle) => {
                state.threads += 1;
                state.handles.push(handle);
            }
            Err(error) => tracing::warn!("no further thread to list directories ahead: {error}"),
        }
    }

    fn run(self: Arc<Self>) {
        let list = Arc::clone(self.list.get().expect("threads come after it"));
        let mut state = self.lock();
        while !state.stopped {
            let Some(directory) = state.ahead.begin(Instant::now()) else {
                state.idle += 1;
                let (again, waited) =
                    self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = again;
                state.idle -= 1;
                if waited.timed_out() && !state.ahead.has_work() {
                    break;
                }
                continue;
            };
            // There may be more.
            self.call(&mut state);
            drop(state);
            // Nobody is to wait for a listing that has panicked, which has said so.
            let found = catch_unwind(AssertUnwindSafe(|| list(directory))).unwrap_or(None);
            state = self.lock();
            state.ahead.end(directory, found, Instant::now());
            self.ended.notify_all();
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    const AGE: Duration = Duration::from_secs(600);

    #[test]
    fn whoever_comes_to_a_directory_that_is_being_listed_waits_for_that_alone() {
        let listers = Listers::new(AGE);
        let (begun, began) = channel();
        let (allow, allowed) = channel::<()>();
        let (begun, allowed) = (Mutex::new(begun), Mutex::new(allowed));
        listers.start(move |directory| {
            begun.lock().unwrap().send(directory).unwrap();
            allowed.lock().unwrap().recv().unwrap();
            Some((1, Vec::new()))
        });
        listers.next_are(&[NodeId(7)]);
        assert_eq!(began.recv().unwrap(), NodeId(7));
        // Another one does not wait.
        listers.used(NodeId(8));
        thread::scope(|scope| {
            let waits = scope.spawn(|| listers.used(NodeId(7)));
            allow.send(()).unwrap();
            waits.join().unwrap();
        });
        assert!(!listers.0.lock().ahead.is_under_way(NodeId(7)));
        listers.stop();
    }

    #[test]
    fn threads_are_bounded_and_end_with_the_mount() {
        let listers = Listers::new(AGE);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (of_now, of_most) = (Arc::clone(&now), Arc::clone(&most));
        listers.start(move |_| {
            of_most.fetch_max(of_now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            of_now.fetch_sub(1, Ordering::SeqCst);
            // As large a directory as may be: it counts for nobody's use.
            None
        });
        let many: Vec<NodeId> = (0..400).map(NodeId).collect();
        listers.next_are(&many);
        while listers.0.lock().ahead.has_work() {
            thread::sleep(Duration::from_millis(1));
        }
        listers.next_are(&many);
        listers.stop();
        assert_eq!((now.load(Ordering::SeqCst), listers.0.lock().threads), (0, 0));
        assert!((2..=THREADS_MAX).contains(&most.load(Ordering::SeqCst)));
        listers.next_are(&many);
        assert_eq!(listers.0.lock().threads, 0, "none begins after that");
    }
}
