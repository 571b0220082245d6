//! Several trees of processes in one session: programs that other processes start join it, each with a fence of its own.
//!
//! The supervisor answers the calls of all trees, and what leaves one of them waits for what was promised to any. The process that starts
//! the program of a joined tree is its *root*: it puts up the fence, gives the listener to the supervisor, and reaps the tree's orphans. How
//! the two speak with each other is the business of who uses this crate.
//!
//! Owns: what a tree is, from its admission to its end. Does not own: how many there are, which `admission` has; what the roots inherited, which
//! `judge` has.
//!
//! Invariants:
//! - a root is a root as long as its process lives, and not because of its number;
//! - when it has ended, nothing of its tree leaves any more.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::Pid;

use crate::admission::Refusal;
use crate::commit::Counts;
use crate::mounts::Promised;
use crate::supervisor::{
    Event, Group, Session, Step, close, inherited, join_all, receive_calls, run_program,
};
use crate::task::{Task, lives};

impl Group {
    /// What is promised to the session.
    pub fn promised(&self) -> Promised {
        self.session.mounts().promised()
    }

    /// The devices of the mounts whose daemons count what they promise: they are to know of each tree.
    pub fn mounts(&self) -> Vec<(u32, u32)> {
        self.session.commits.joined()
    }

    /// Lets the tree of a process join that is about to start a program. `living` is a descriptor of the process (pidfd_open(2)), which must
    /// have been opened while the process was known to have this number.
    ///
    /// # Errors
    /// It cannot join.
    pub fn admit(&self, root: u32, living: OwnedFd) -> Result<Tree, Refusal> {
        // The same is asked of its members for each call.
        if let Err(error) = Task(root).duplicate(0, |_| true)
            && error.raw_os_error() == Some(libc::EPERM)
        {
            return Err(Refusal::Because(
                "its supervisor may not look into this process (see kernel.yama.ptrace_scope in ptrace(2))".to_owned(),
            ));
        }
        let cannot = |error: io::Error| Refusal::Because(error.to_string());
        let kept = living.try_clone().map_err(cannot)?;
        self.session.admission.enter()?;
        let (session, steps) = (Arc::clone(&self.session), self.steps.clone());
        let tree = Tree { session, steps, root, living: kept };
        // Mounts may have come since the session began.
        join_all(&self.session).map_err(Refusal::Because)?;
        if !lives(&living) {
            return Err(Refusal::Because("the process has ended".to_owned()));
        }
        let added = self.session.judge().add(root, Some(living));
        // What it has from outside.
        self.session.commits.distrust();
        added.map_err(|error| {
            Refusal::Because(format!("the descriptors of this process are not known: {error}"))
        })?;
        Ok(tree)
    }
}

/// A tree that has joined, until this is dropped.
pub struct Tree {
    session: Arc<Session>,
    steps: Sender<Step>,
    root: u32,
    living: OwnedFd,
}

impl Tree {
    /// Answers the calls that stop at a fence, which the root has put up.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(&self, listener: OwnedFd) -> io::Result<()> {
        receive_calls(&self.session, listener.into(), Some(self.living.try_clone()?))
    }

    /// Waits until all that was promised is durable: what the whole session did until then, and the mounts whose syncs were done at once,
    /// each with the reason. `None` if a commit has failed.
    pub fn settle(&self) -> Option<(Counts, Vec<String>)> {
        let commits = &self.session.commits;
        commits.settle().then(|| (commits.counts(), self.session.fallbacks()))
    }

    /// The root is about to close what the program inherited.
    pub fn forget_inherited(&self) {
        self.session.judge().forget_inherited(self.root);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.session.judge().remove(self.root);
        self.session.admission.leave();
        // The supervisor may have ended.
        let _ = self.steps.send(Step::TreeEnded);
    }
}

/// What happens to a tree, in the process that is its root.
#[derive(Debug)]
pub enum TreeEvent {
    /// The program runs, as this process.
    Started(u32),
    /// The fence cannot be put up; nothing was started.
    NoFence(io::Error),
    /// The program cannot be run.
    CannotRun(io::Error),
    /// The program has ended. When `tell` returns, what the program inherited is closed.
    Ended(ExitStatus),
    /// No member is left.
    AllGone,
}

/// Runs a program as a tree of a session that another process supervises; this process must have no other children, and see itself in
/// /proc. Returns when the last member has ended. `begin` gives the listener to the supervisor, which must be ready for it.
///
/// # Errors
/// Those of `begin`, and of the system: nothing was started, or what was started is to be killed.
pub fn run_tree(
    command: Command,
    begin: impl FnOnce(OwnedFd) -> io::Result<()>,
    mut tell: impl FnMut(TreeEvent),
) -> io::Result<()> {
    rustix::process::set_child_subreaper(Pid::from_raw(1))?;
    let mut inherited = inherited()?;
    let (steps, happened) = channel();
    let (listeners, made) = channel();
    thread::Builder::new()
        .name("program".into())
        .spawn(move || run_program(command, &listeners, &steps))?;
    // Without a listener the next step says why.
    if let Ok(listener) = made.recv() {
        begin(listener.into())?;
    }
    while let Ok(step) = happened.recv() {
        match step {
            Step::Tell(Event::Started(process)) => tell(TreeEvent::Started(process)),
            Step::Tell(Event::NoFence(error)) => {
                tell(TreeEvent::NoFence(error));
                break;
            }
            Step::Tell(Event::CannotRun(error)) => {
                tell(TreeEvent::CannotRun(error));
                break;
            }
            Step::Exited(status) => {
                tell(TreeEvent::Ended(status));
                close(std::mem::take(&mut inherited))?;
            }
            Step::AllGone => {
                tell(TreeEvent::AllGone);
                break;
            }
            Step::Tell(_) | Step::TreeEnded => {}
        }
    }
    Ok(())
}
