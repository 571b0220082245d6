//! Sessions of programs (`weir run --sync external`, output commit) that use the mount: which requests come from one, what was promised to it,
//! and who has to wait for that.
//!
//! Owns: the sessions, from when their supervisor says so until its connection ends. Does not own: what leaves a session, which its
//! supervisor holds back.
//!
//! A process is a member if a *root* of the session is one of its ancestors: the supervisor, or a process that has joined it with a program of
//! its own (`weir run --group`). The root is also the reaper of orphans among them (PR_SET_CHILD_SUBREAPER). A thread keeps for its life
//! what it is to a session, so it is found out once.
//!
//! Invariants:
//! - a sync of a member is answered after it was counted as a promise;
//! - in doubt a process is not a member: its syncs are done, and it waits for what was promised to others. Its changes count for all.
//!
//! Lock order: `open`, then one of the others, none of which is waited for under another one.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use weir_lane::commits;
use weir_lane::post_order::{PostOrder, Posts};
use weir_lane::promises::{Made, Promises};

/// Threads that are remembered, each with a descriptor.
const KNOWN_MAX: usize = 512;
/// Processes between a member and its supervisor, at most.
const ANCESTORS_MAX: usize = 4096;
/// `PIDFD_THREAD` (linux/pidfd.h), since Linux 6.9.
const PIDFD_THREAD: u32 = 0o200;

/// One session on the mount.
#[derive(Debug)]
pub(crate) struct Session {
    supervisor: u32,
    /// Processes that have joined it.
    joined: Mutex<Vec<u32>>,
    /// Who knows this may join: it is a secret of the supervisor.
    group: Option<String>,
    /// Every change of its members is a promise, not only syncs.
    every_change: bool,
    promises: Promises,
}

/// What is known of a session; see [`crate::Observer::sessions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// The process of its supervisor.
    pub supervisor: u32,
    /// Whether every change is a promise.
    pub every_change: bool,
    /// Promises made on this mount.
    pub promises: u64,
    /// Whether some of them are not durable.
    pub is_pending: bool,
    /// Commits of the mount for this session, or for those who looked at it.
    pub commits: commits::Made,
    /// How long what left waited for them.
    pub waits: commits::Waits,
}

/// What a thread is to the sessions.
#[derive(Clone, Debug)]
enum Standing {
    /// It is a root's own, or the daemon's.
    Exempt,
    Member(Arc<Session>),
    Outsider,
}

/// What sessions mean for a request.
pub(crate) enum Verdict {
    Nothing,
    /// A sync: to be counted as a promise of the session, and not to be done.
    Promise(Arc<Session>),
    /// A change: these sessions count it as a promise before it is answered. If it is a member's write that syncs, it does not wait for that.
    Counts {
        sessions: Vec<Arc<Session>>,
        is_members: bool,
    },
    /// A change that is to be durable before it is answered.
    Commits,
}

/// Sessions of others, of which an answer may show what was changed after a promise.
pub(crate) struct Shown(Vec<Arc<Session>>);

impl Shown {
    /// What must be durable before the answer is given, which is ready.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        self.0.iter().filter_map(Session::pending).collect()
    }
}

/// What was promised to a session, and is not durable. As long as this exists, syncs in the session are done instead of promised, so that the
/// wait for it ends.
pub(crate) struct Pending {
    session: Arc<Session>,
    made: Made,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.session.promises.end_wait();
    }
}

/// What members of sessions have posted by the lane until some moment.
pub(crate) struct Unapplied(Vec<(Arc<Session>, Posts)>);

impl Unapplied {
    /// It is applied.
    pub(crate) fn are_applied(self) {
        for (session, posts) in self.0 {
            session.promises.posts().are_applied(posts);
        }
    }
}

struct Known {
    /// Says when the thread has ended, and its number may belong to another one.
    thread: OwnedFd,
    standing: Standing,
}

/// The sessions on a mount.
#[derive(Default)]
pub(crate) struct Sessions {
    list: RwLock<Vec<Arc<Session>>>,
    are_there: AtomicBool,
    /// How often the sessions or their roots have changed.
    changes: AtomicU64,
    known: Mutex<HashMap<u32, Known>>,
    /// Open descriptions of files. Changed, and sessions added, under its lock, so that each session knows how many of them are not its members'.
    open: Mutex<u64>,
}

/// The session whose member opened a description, if it was one.
#[derive(Debug)]
pub(crate) struct Opened(Option<Arc<Session>>);

impl Opened {
    fn is_of(&self, session: &Arc<Session>) -> bool {
        self.0.as_ref().is_some_and(|own| Arc::ptr_eq(own, session))
    }
}

impl Session {
    /// Counts a promise.
    pub(crate) fn promise(&self) {
        self.promises.promise();
    }

    /// What a member has posted by the lane could not be applied: what it was told of later syncs is not true.
    pub(crate) fn lose(&self) {
        if self.promises.lose() {
            tracing::error!(
                "what a program in a session had written could not be kept: nothing that was promised to the session since will be durable"
            );
        }
    }

    /// The order of what its members post by the lane. Members may change the mount from now on without a request.
    pub(crate) fn posts(&self) -> &PostOrder {
        self.promises.note_change();
        self.promises.posts()
    }

    fn joined(&self) -> MutexGuard<'_, Vec<u32>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_root(&self, process: u32) -> bool {
        self.supervisor == process || self.joined().contains(&process)
    }

    fn pending(self: &Arc<Session>) -> Option<Pending> {
        if !self.promises.is_pending() {
            return None;
        }
        // First: what is promised afterwards is little.
        self.promises.begin_wait();
        Some(Pending { session: Arc::clone(self), made: self.promises.made() })
    }
}

impl Pending {
    /// A commit that began after this was taken has succeeded. Whether it made what was promised durable.
    #[must_use]
    pub(crate) fn is_durable(&self) -> bool {
        let is_durable = self.session.promises.set_durable(self.made);
        if is_durable {
            self.session.promises.commits().count(commits::Reason::Outside);
        }
        is_durable
    }
}

impl Sessions {
    /// Adds the session of a supervisor, as the daemon's PID namespace numbers it. The descriptor is of the memory in which promises are
    /// counted, for the supervisor. Processes that know `group` may join.
    ///
    /// # Errors
    /// Those of making the memory.
    pub(crate) fn add(
        &self,
        supervisor: u32,
        every_change: bool,
        group: Option<String>,
    ) -> io::Result<(Arc<Session>, OwnedFd)> {
        let (promises, memory) = Promises::create()?;
        let joined = Mutex::default();
        let session = Arc::new(Session { supervisor, joined, group, every_change, promises });
        let open = self.open();
        // They were opened before there was a member.
        session.promises.add_opened_outside(*open);
        self.change(|list| list.push(Arc::clone(&session)));
        Ok((session, memory))
    }

    fn open(&self) -> MutexGuard<'_, u64> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread opens a description of a file. To be called before that is answered.
    pub(crate) fn opened(&self, thread: u32) -> Opened {
        let is_known = self.are_there.load(Ordering::SeqCst);
        let opened = Opened(is_known.then(|| self.of_member(thread)).flatten());
        let mut open = self.open();
        *open += 1;
        for session in self.all() {
            if !opened.is_of(&session) {
                session.promises.add_opened_outside(1);
            }
        }
        opened
    }

    /// It is closed.
    pub(crate) fn closed(&self, opened: &Opened) {
        let mut open = self.open();
        *open -= 1;
        for session in self.all() {
            if !opened.is_of(&session) {
                session.promises.closed_outside();
            }
        }
    }

    /// What comes from a process belongs to the session with this group, too. `None`: no session has it.
    pub(crate) fn join(&self, root: u32, group: &str) -> Option<Arc<Session>> {
        let all = self.all();
        let session = all.iter().find(|session| session.group.as_deref() == Some(group))?;
        session.joined().push(root);
        self.change(|_| {});
        Some(Arc::clone(session))
    }

    /// The process is no root any more.
    pub(crate) fn leave(&self, root: u32, session: &Session) {
        {
            let mut joined = session.joined();
            if let Some(at) = joined.iter().position(|other| *other == root) {
                joined.swap_remove(at);
            }
        }
        self.change(|_| {});
    }

    /// The session has ended. What was promised to it and is not durable was seen by nobody.
    pub(crate) fn remove(&self, session: &Arc<Session>) {
        self.change(|list| list.retain(|other| !Arc::ptr_eq(other, session)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Session>>)) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut list);
        self.are_there.store(!list.is_empty(), Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        drop(list);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// All that was changed is durable, and no request comes any more.
    pub(crate) fn all_is_durable(&self) {
        for session in self.all() {
            session.promises.end();
        }
    }

    /// Each session's state.
    pub(crate) fn status(&self) -> Vec<SessionStatus> {
        let status = |session: Arc<Session>| {
            let (mut made, mut waits) = (commits::Made::default(), commits::Waits::default());
            made.add(session.promises.commits());
            waits.add(session.promises.commits());
            SessionStatus {
                supervisor: session.supervisor,
                every_change: session.every_change,
                promises: session.promises.made().total(),
                is_pending: session.promises.is_pending(),
                commits: made,
                waits,
            }
        };
        self.all().into_iter().map(status).collect()
    }

    /// Whether a thread's program may use the lane. What is posted is applied without a request that could count it as a promise; and one that is to
    /// keep the order of its session must say that it does.
    pub(crate) fn may_use_lane(&self, thread: u32, keeps_order: bool) -> bool {
        if !self.are_there.load(Ordering::SeqCst) {
            return true;
        }
        match self.standing(thread) {
            Some(Standing::Member(session)) => keeps_order && !session.every_change,
            Some(Standing::Exempt | Standing::Outsider) => true,
            None => false,
        }
    }

    /// The session that a thread is a member of.
    pub(crate) fn of_member(&self, thread: u32) -> Option<Arc<Session>> {
        match self.standing(thread) {
            Some(Standing::Member(session)) => Some(session),
            _ => None,
        }
    }

    /// Whether a thread is a root's own: a supervisor, which also closes duplicates of its members' descriptors.
    pub(crate) fn is_root(&self, thread: u32) -> bool {
        self.are_there.load(Ordering::SeqCst)
            && matches!(self.standing(thread), Some(Standing::Exempt))
    }

    /// What members have posted by the lane and is to be applied before a change, if there is any.
    pub(crate) fn unapplied(&self) -> Option<Unapplied> {
        if !self.are_there.load(Ordering::SeqCst) {
            return None;
        }
        let unapplied = |session: Arc<Session>| {
            let posts = session.promises.posts().unapplied()?;
            Some((session, posts))
        };
        let unapplied = self.all().into_iter().filter_map(unapplied).collect::<Vec<_>>();
        (!unapplied.is_empty()).then_some(Unapplied(unapplied))
    }

    /// What the sessions mean for a request of `thread`, a number of the daemon's PID namespace, or 0; and whose promises its answer may show. `kind` is
    /// asked for if there are any.
    pub(crate) fn judge(
        &self,
        thread: u32,
        kind: impl FnOnce() -> Kind,
    ) -> (Verdict, Option<Shown>) {
        if !self.are_there.load(Ordering::SeqCst) {
            return (Verdict::Nothing, None);
        }
        let kind = kind();
        if kind == Kind::Other {
            return (Verdict::Nothing, None);
        }
        let all = self.all();
        let counts = |all: &[Arc<Session>]| {
            let counting = all.iter().filter(|session| session.every_change);
            counting.map(Arc::clone).collect::<Vec<_>>()
        };
        let is_change = kind.is_change();
        let syncs = kind == (Kind::Write { written_back: false, syncs: true });
        // The kernel itself writes pages back that were changed by mappings; whose they are is not known.
        if matches!(kind, Kind::Write { written_back: true, .. }) {
            all.iter().for_each(|session| session.promises.note_change());
            return (Verdict::counts(counts(&all)), None);
        }
        let standing = self.standing(thread);
        match &standing {
            Some(Standing::Member(session)) if is_change => session.promises.note_change(),
            None if is_change => all.iter().for_each(|session| session.promises.note_change()),
            _ => {}
        }
        // Of a write nothing is seen.
        let shown = |of: Vec<Arc<Session>>| {
            (matches!(kind, Kind::Look | Kind::Change) && !of.is_empty()).then_some(Shown(of))
        };
        match standing {
            Some(Standing::Exempt) => (Verdict::Nothing, None),
            Some(Standing::Member(session)) => {
                let is_waited_for = session.promises.is_waited_for();
                let counts = syncs || is_change && session.every_change;
                // What was promised to other sessions is not this one's.
                let others = all.iter().filter(|other| !Arc::ptr_eq(other, &session));
                let others = others.map(Arc::clone).collect();
                let verdict = match kind {
                    Kind::Sync if is_waited_for => Verdict::Nothing,
                    Kind::Sync => Verdict::Promise(session),
                    _ if counts && is_waited_for => Verdict::Commits,
                    _ if counts => Verdict::Counts { sessions: vec![session], is_members: true },
                    _ => Verdict::Nothing,
                };
                (verdict, shown(others))
            }
            None if is_change => (Verdict::counts(counts(&all)), shown(all)),
            _ => (Verdict::Nothing, shown(all)),
        }
    }

    fn all(&self) -> Vec<Arc<Session>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a thread is to the sessions; `None` if that cannot be found out.
    fn standing(&self, thread: u32) -> Option<Standing> {
        if thread == 0 {
            return None;
        }
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match known.get(&thread) {
                Some(found) if !has_ended(&found.thread) => return Some(found.standing.clone()),
                Some(_) => drop(known.remove(&thread)),
                None => {}
            }
        }
        let number = Pid::from_raw(thread.cast_signed())?;
        // First, so that what is found out after that is of this thread.
        let opened = pidfd_open(number, PidfdFlags::from_bits_retain(PIDFD_THREAD));
        let changes = self.changes.load(Ordering::SeqCst);
        let all = self.all();
        let standing = find(thread, |process| {
            all.iter().find(|session| session.has_root(process)).map(Arc::clone)
        })?;
        if let Ok(opened) = opened {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // When a session or a root comes or goes, what is known is forgotten: so must this be.
            let is_same = self.changes.load(Ordering::SeqCst) == changes;
            if is_same && !has_ended(&opened) {
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                known.insert(thread, Known { thread: opened, standing: standing.clone() });
            }
        }
        Some(standing)
    }
}

impl Verdict {
    fn counts(sessions: Vec<Arc<Session>>) -> Verdict {
        match sessions.is_empty() {
            true => Verdict::Nothing,
            false => Verdict::Counts { sessions, is_members: false },
        }
    }
}

/// What an operation is to sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its answer tells what is in the mount.
    Look,
    /// The same, and it changes the mount.
    Change,
    Write {
        written_back: bool,
        /// It is to be durable before it is answered.
        syncs: bool,
    },
    Sync,
    Other,
}

impl Kind {
    /// Whether it changes the mount.
    pub(crate) fn is_change(self) -> bool {
        matches!(self, Kind::Change | Kind::Write { .. })
    }
}

/// Finds the session that a thread comes from, by its root. `None` if an ancestor ends meanwhile.
fn find(thread: u32, session_of: impl Fn(u32) -> Option<Arc<Session>>) -> Option<Standing> {
    let (process, mut parent) = process_and_parent(thread)?;
    if process == std::process::id() || session_of(process).is_some() {
        return Some(Standing::Exempt);
    }
    for _ in 0..ANCESTORS_MAX {
        if parent == 0 {
            return Some(Standing::Outsider);
        }
        if let Some(session) = session_of(parent) {
            return Some(Standing::Member(session));
        }
        (_, parent) = process_and_parent(parent)?;
    }
    None
}

/// The process that a thread belongs to, and its parent (proc_pid_status(5)).
fn process_and_parent(thread: u32) -> Option<(u32, u32)> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok())
    };
    Some((field("Tgid:")?, field("PPid:")?))
}

fn has_ended(thread: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(thread, PollFlags::IN)];
    rustix::event::poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap()
    }

    fn verdict(sessions: &Sessions, thread: u32, kind: Kind) -> Verdict {
        sessions.judge(thread, || kind).0
    }

    /// What must be durable before the answer to a look is given.
    fn pending(sessions: &Sessions, thread: u32, kind: Kind) -> Vec<Pending> {
        sessions.judge(thread, || kind).1.map(|shown| shown.pending()).unwrap_or_default()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn without_a_session_nothing_is_asked() {
        let sessions = Sessions::default();
        assert!(matches!(sessions.judge(1, || Kind::Sync), (Verdict::Nothing, None)));
        let (session, _memory) = sessions.add(1, false, None).unwrap();
        sessions.remove(&session);
        assert!(matches!(sessions.judge(2, || Kind::Sync), (Verdict::Nothing, None)));
    }

    #[test]
    fn a_members_sync_is_a_promise_and_outsiders_wait_for_it() {
        let (supervisor, outsider) = (std::process::id(), 1);
        let member = sleeper();
        let sessions = Sessions::default();
        let (session, _memory) = sessions.add(supervisor, false, None).unwrap();
        assert!(matches!(sessions.standing(supervisor), Some(Standing::Exempt)));
        assert!(sessions.is_root(supervisor) && !sessions.is_root(member.id()));
        let Verdict::Promise(of) = verdict(&sessions, member.id(), Kind::Sync) else { panic!() };
        assert!(Arc::ptr_eq(&of, &session));
        assert!(sessions.may_use_lane(outsider, false) && sessions.may_use_lane(member.id(), true));
        assert!(!sessions.may_use_lane(member.id(), false), "its posts have no place in the order");
        assert!(matches!(verdict(&sessions, outsider, Kind::Change), Verdict::Nothing));
        assert!(!session.promises.has_changes());
        session.promise();
        assert!(matches!(verdict(&sessions, member.id(), Kind::Look), Verdict::Nothing));
        assert!(matches!(verdict(&sessions, member.id(), Kind::Change), Verdict::Nothing));
        assert!(matches!(verdict(&sessions, outsider, Kind::Sync), Verdict::Nothing));
        for thread in [outsider, 0] {
            assert_eq!(pending(&sessions, thread, Kind::Look).len(), 1);
            assert_eq!(pending(&sessions, thread, Kind::Change).len(), 1);
        }
        assert!(session.promises.has_changes());
        let waited_for = pending(&sessions, outsider, Kind::Look);
        // Nothing more is promised.
        assert!(matches!(verdict(&sessions, member.id(), Kind::Sync), Verdict::Nothing));
        // What is promised while the commit is under way is not covered.
        session.promise();
        assert!(waited_for[0].is_durable());
        drop(waited_for);
        let waited_for = pending(&sessions, outsider, Kind::Look);
        assert!(waited_for[0].is_durable());
        drop(waited_for);
        assert!(matches!(verdict(&sessions, outsider, Kind::Look), Verdict::Nothing));
        assert!(matches!(verdict(&sessions, member.id(), Kind::Sync), Verdict::Promise(_)));
        end(member);
    }

    #[test]
    fn what_outsiders_have_open_is_counted() {
        let member = sleeper();
        let sessions = Sessions::default();
        let before = sessions.opened(member.id());
        let (session, _memory) = sessions.add(std::process::id(), false, None).unwrap();
        assert!(session.promises.is_open_outside(), "it was opened before the session began");
        let own = sessions.opened(member.id());
        sessions.closed(&before);
        assert!(!session.promises.is_open_outside());
        let (other, _memory) = sessions.add(u32::MAX, false, None).unwrap();
        assert!(other.promises.is_open_outside());
        let outsiders = sessions.opened(1);
        assert!(session.promises.is_open_outside());
        sessions.closed(&outsiders);
        assert!(!session.promises.is_open_outside());
        sessions.closed(&own);
        assert!(!session.promises.is_open_outside() && !other.promises.is_open_outside());
        end(member);
    }

    #[test]
    fn every_change_of_a_member_counts_if_that_is_wanted() {
        let member = sleeper();
        let sessions = Sessions::default();
        let (session, _memory) = sessions.add(std::process::id(), true, None).unwrap();
        let Verdict::Counts { sessions: counting, is_members: true } =
            verdict(&sessions, member.id(), Kind::Change)
        else {
            panic!()
        };
        assert!(Arc::ptr_eq(&counting[0], &session));
        assert!(matches!(verdict(&sessions, member.id(), Kind::Look), Verdict::Nothing));
        assert!(matches!(verdict(&sessions, 1, Kind::Change), Verdict::Nothing));
        session.promise();
        let waited_for = pending(&sessions, 1, Kind::Look);
        assert!(matches!(verdict(&sessions, member.id(), Kind::Change), Verdict::Commits));
        assert!(waited_for[0].is_durable());
        drop(waited_for);
        let by_member = verdict(&sessions, member.id(), Kind::Change);
        assert!(matches!(by_member, Verdict::Counts { is_members: true, .. }));
        // Whose it is cannot be found out: it is counted, and a sync of it is done.
        let kind = || Kind::Write { written_back: false, syncs: true };
        let (verdict, _) = sessions.judge(0, kind);
        assert!(matches!(verdict, Verdict::Counts { is_members: false, .. }));
        end(member);
    }

    #[test]
    fn what_comes_from_a_process_that_joined_is_a_member() {
        let member = sleeper();
        let sessions = Sessions::default();
        let (session, _memory) = sessions.add(u32::MAX, false, Some("secret".into())).unwrap();
        let (_other, _memory) = sessions.add(u32::MAX - 1, false, None).unwrap();
        assert!(matches!(sessions.standing(member.id()), Some(Standing::Outsider)));
        assert!(sessions.join(std::process::id(), "another").is_none());
        let joined = sessions.join(std::process::id(), "secret").unwrap();
        assert!(Arc::ptr_eq(&joined, &session));
        let Verdict::Promise(of) = verdict(&sessions, member.id(), Kind::Sync) else { panic!() };
        assert!(Arc::ptr_eq(&of, &session));
        assert!(matches!(sessions.standing(std::process::id()), Some(Standing::Exempt)));
        sessions.leave(std::process::id(), &session);
        assert!(matches!(sessions.standing(member.id()), Some(Standing::Outsider)));
        end(member);
    }

    #[test]
    fn what_a_thread_is_is_remembered_until_it_ends_or_a_session_begins() {
        let member = sleeper();
        let sessions = Sessions::default();
        let (_session, _memory) = sessions.add(u32::MAX, false, None).unwrap();
        assert!(matches!(sessions.standing(member.id()), Some(Standing::Outsider)));
        assert!(sessions.known.lock().unwrap().contains_key(&member.id()));
        let (_session, _memory) = sessions.add(std::process::id(), false, None).unwrap();
        assert!(matches!(sessions.standing(member.id()), Some(Standing::Member(_))));
        assert!(sessions.known.lock().unwrap().contains_key(&member.id()));
        let number = member.id();
        end(member);
        assert!(sessions.standing(number).is_none());
        assert!(sessions.known.lock().unwrap().is_empty());
    }
}
