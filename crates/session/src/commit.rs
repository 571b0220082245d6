//! Promises and commits: what was promised on which mount, what waits for it, and the thread that commits.
//!
//! Owns: the count of promises, and the stopped calls that wait. A call that waits may go on when every promise that was made
//! before it is durable.
//!
//! Invariants:
//! - a commit covers the promises that were counted when it began, and no others;
//! - while a daemon is being asked to count its promises, which it may make from then on, no member has a door, and nobody is told that nothing
//!   is promised;
//! - after a commit has failed no call goes on. The death of a daemon after which nothing was left to commit ends the session as well, within
//!   [`LOOK`].
//!
//! While a promise is not durable, calls are judged, which takes time. When that was as long as a commit takes, there is one: so at most as
//! much is spent on judging as on commits.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use weir_lane::commits::{Made, Reason, Waits};
use weir_lane::door::{self, ASK_PAGE, Page};
use weir_lane::promises::{Promises, Side};

use crate::listener::{Listener, Stopped};
use crate::mounts::{self, Ordered};
use crate::task::Device;

/// Without output, promises become durable after this time at the latest, and after [`LOOK`].
const INTERVAL: Duration = Duration::from_millis(4500);
/// How often the counts are looked at without a stopped call.
const LOOK: Duration = Duration::from_millis(500);
/// What the first commit is expected to take.
const COMMIT_TAKES: Duration = Duration::from_millis(20);
/// How long to wait for the end of a daemon whose mount fails: it dies, or brings its data home first.
const CUT_OFF: Duration = Duration::from_secs(10);
/// What members do that wait for commits of their own.
const BY_MEMBERS: &str = "writing or sending";

/// Why no call of a session goes on.
#[derive(Debug)]
pub enum Failure {
    /// What was promised cannot be made durable.
    Commit(io::Error),
    /// The daemon of a mount on which something was promised has died.
    DaemonDied,
}

/// Promises that are not durable yet, and the calls that wait for them.
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Something waits, or the session is to end.
    changed: Condvar,
    /// Promises, calls that wait or daemons that are being asked have become fewer.
    progress: Condvar,
}

struct State {
    /// Promises made so far.
    promised: u64,
    /// How many of them, from the first on, are durable.
    durable: u64,
    /// Mounts with promises that are not durable, each with the number of the last one.
    mounts: Vec<(Ordered, u64)>,
    /// Mounts whose daemons and members make promises, too.
    joined: Vec<Joined>,
    /// The counts of mounts whose numbers others have by now.
    former: Vec<Arc<Promises>>,
    door: Door,
    /// Daemons that are being asked to count: they may have promised what is not known yet.
    joining: usize,
    waiting: Vec<Waiting>,
    /// Somebody waits for everything to be durable.
    is_wanted: bool,
    oldest: Option<Instant>,
    /// What judging calls has taken since the last commit began.
    judging: Duration,
    /// What a commit takes, by those that were.
    commit_takes: Duration,
    has_failed: bool,
    /// A mount on which something was promised, and whose daemon has died.
    dead: Option<Ordered>,
    counts: Counts,
}

/// A daemon that makes promises.
struct Joined {
    mount: Ordered,
    promises: Arc<Promises>,
    /// The daemon closes it when it ends, or the mount does.
    connection: Arc<OwnedFd>,
    /// How many promises of the daemon and of members are counted here.
    noticed: u64,
}

impl Joined {
    /// The mount and its connection, if something was promised on it and it has not ended cleanly.
    fn doubtful(&self) -> Option<(Ordered, Arc<OwnedFd>)> {
        let is_doubtful = self.promises.made().total() > 0 && !self.promises.has_ended();
        is_doubtful.then(|| (self.mount.clone(), Arc::clone(&self.connection)))
    }

    /// Whether the daemon counts what it promises, or what it has promised is not durable.
    fn is_counting(&self) -> bool {
        !has_hung_up(&self.connection) || self.promises.is_pending()
    }

    fn is_dead(&self) -> bool {
        // In this order: the daemon says that it has ended before its connection closes.
        self.promises.made().total() > 0
            && has_hung_up(&self.connection)
            && !self.promises.has_ended()
    }
}

/// What members are given.
struct Door {
    page: Page,
    memory: Arc<OwnedFd>,
    /// The counts of each mount of the page.
    counts: Vec<Arc<OwnedFd>>,
}

impl State {
    /// The last promise is of this mount. Says whether the committing thread has a time to wait for now.
    fn promise(&mut self, mount: &Ordered) -> bool {
        let number = self.promised;
        match self.mounts.iter_mut().find(|(known, _)| known.device == mount.device) {
            Some((_, last)) => *last = number,
            None => self.mounts.push((mount.clone(), number)),
        }
        let is_first = self.oldest.is_none();
        self.oldest.get_or_insert_with(Instant::now);
        is_first
    }

    /// Counts what daemons and members have promised since, and what others have committed.
    fn notice(&mut self) {
        let mut made = Vec::new();
        for joined in &mut self.joined {
            let counted = joined.promises.made();
            let by_others = counted.by_daemon.saturating_add(counted.by_members);
            let new = by_others.saturating_sub(joined.noticed);
            if new > 0 {
                joined.noticed = by_others;
                made.push((joined.mount.clone(), new, joined.promises.is_pending()));
            }
        }
        for (mount, new, is_pending) in made {
            self.counts.promises += new;
            // Otherwise somebody outside has waited for them.
            if is_pending {
                self.promised += 1;
                self.promise(&mount);
            }
        }
        let State { mounts, joined, oldest, .. } = self;
        mounts.retain(|(mount, _)| {
            let of = joined.iter().find(|joined| joined.mount.device == mount.device);
            of.is_none_or(|joined| joined.promises.is_pending())
        });
        if mounts.is_empty() {
            *oldest = None;
            self.judging = Duration::ZERO;
        }
    }

    /// Members ask about mounts whose daemons have ended.
    fn forget_ended(&mut self) {
        for joined in &self.joined {
            if has_hung_up(&joined.connection) && !joined.promises.is_pending() {
                self.door.page.remove(joined.mount.device);
            }
        }
    }

    /// The first mount found on which something was promised, and whose daemon has died.
    fn dead(&mut self) -> Option<Ordered> {
        if self.dead.is_none() {
            let dead = self.joined.iter().find(|joined| joined.is_dead());
            self.dead = dead.map(|joined| joined.mount.clone());
        }
        self.dead.clone()
    }

    fn joined(&self, mount: &Ordered) -> Option<&Joined> {
        self.joined.iter().find(|joined| joined.mount.device == mount.device)
    }

    /// The first promises are durable: the calls that may go on.
    fn note_durable(&mut self, durable: u64) -> Vec<Waiting> {
        self.durable = self.durable.max(durable);
        self.mounts.retain(|(_, last)| *last > durable);
        self.oldest = (!self.mounts.is_empty()).then(Instant::now);
        self.is_wanted &= !self.mounts.is_empty();
        let (released, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting: &Waiting| waiting.needs <= durable);
        self.waiting = waiting;
        released
    }
}

struct Waiting {
    listener: Arc<Listener>,
    stopped: Stopped,
    /// The number of promises that must be durable before it goes on.
    needs: u64,
    /// One of the mounts with promises.
    mount: Option<Device>,
    since: Instant,
}

/// A commit that is due.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    /// How many promises it covers, from the first on.
    until: u64,
    mounts: Vec<Ordered>,
    reason: Reason,
}

/// What a session did.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Calls that were stopped.
    pub calls: u64,
    /// Syncs that returned before what they promised was durable.
    pub promises: u64,
    /// Commits, each of one mount.
    pub commits: Made,
    /// How long output waited.
    pub waits: Waits,
    /// How many calls waited, by what they do.
    pub waited: BTreeMap<String, u64>,
}

impl Commits {
    /// Of a session that begins.
    ///
    /// # Errors
    /// Those of making memory.
    pub(crate) fn new() -> io::Result<Commits> {
        let (page, memory) = Page::create()?;
        let state = State {
            door: Door { page, memory: Arc::new(memory), counts: Vec::new() },
            promised: 0,
            durable: 0,
            mounts: Vec::new(),
            joined: Vec::new(),
            former: Vec::new(),
            joining: 0,
            waiting: Vec::new(),
            is_wanted: false,
            oldest: None,
            judging: Duration::ZERO,
            commit_takes: COMMIT_TAKES,
            has_failed: false,
            dead: None,
            counts: Counts::default(),
        };
        Ok(Commits { state: Mutex::new(state), changed: Condvar::new(), progress: Condvar::new() })
    }

    /// Counts a stopped call.
    pub(crate) fn count_call(&self) {
        self.lock().counts.calls += 1;
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let mut counts = state.counts.clone();
        let joined = state.joined.iter().map(|joined| &joined.promises);
        for promises in joined.chain(&state.former) {
            counts.commits.add(promises.commits());
            counts.waits.add(promises.commits());
        }
        let by_members = counts.waits.count().saturating_sub(counts.waited.values().sum());
        if by_members > 0 {
            *counts.waited.entry(BY_MEMBERS.to_owned()).or_default() += by_members;
        }
        counts
    }

    /// The daemon of a mount is about to be asked to count what it promises: to be held until it has [joined](Commits::join), or does not.
    pub(crate) fn joining(&self) -> Joining<'_> {
        let mut state = self.lock();
        state.joining += 1;
        state.door.page.begin_joining();
        Joining(self)
    }

    /// The daemon of a mount counts what it promises.
    ///
    /// # Errors
    /// Those of mapping the counts.
    pub(crate) fn join(&self, mount: Ordered, joined: mounts::Joined) -> io::Result<()> {
        let promises = Arc::new(Promises::open(&joined.memory, Side::Supervisor)?);
        // Of this daemon's mount if the daemon is there afterwards.
        let number = mount.number().unwrap_or(0);
        let number = if has_hung_up(&joined.connection) { 0 } else { number };
        let mut state = self.lock();
        // A dead one that is replaced here would not be found any more.
        state.dead();
        // The number of a mount that is gone is used again.
        let is_former = |joined: &mut Joined| joined.mount.device == mount.device;
        let former: Vec<_> = state.joined.extract_if(.., is_former).collect();
        state.former.extend(former.into_iter().map(|joined| joined.promises));
        state.door.page.remove(mount.device);
        state.door.counts.push(Arc::new(joined.memory));
        let path = mount.path.as_os_str().as_bytes();
        state.door.page.add(door::Mount { device: mount.device, number, path });
        let connection = Arc::new(joined.connection);
        state.joined.push(Joined { mount, promises, connection, noticed: 0 });
        Ok(())
    }

    /// The judge trusts fewer descriptors than before.
    pub(crate) fn distrust(&self) {
        self.lock().door.page.distrust();
    }

    /// A socket that was inside may be connected to somebody outside next.
    pub(crate) fn disconnected(&self) {
        self.lock().door.page.disconnected();
    }

    /// The memory that a member asks for ([`weir_lane::door::ASK`]).
    pub(crate) fn memory_for_member(&self, asked: u64) -> Option<Arc<OwnedFd>> {
        let state = self.lock();
        match usize::try_from(asked) {
            _ if asked == ASK_PAGE => Some(Arc::clone(&state.door.memory)),
            Ok(index) => state.door.counts.get(index).map(Arc::clone),
            Err(_) => None,
        }
    }

    /// The devices of the mounts whose daemons do so; not of those that have ended.
    pub(crate) fn joined(&self) -> Vec<Device> {
        let state = self.lock();
        let living = state.joined.iter().filter(|joined| joined.is_counting());
        living.map(|joined| joined.mount.device).collect()
    }

    /// Whether the daemon of the mount with this device does so.
    pub(crate) fn has_joined(&self, device: Device) -> bool {
        let state = self.lock();
        let joined = state.joined.iter().find(|joined| joined.mount.device == device);
        joined.is_some_and(Joined::is_counting)
    }

    /// Whether somebody outside waits for what was promised on a mount, so that no more is to be.
    pub(crate) fn is_waited_for(&self, mount: &Ordered) -> bool {
        self.lock().joined(mount).is_some_and(|joined| joined.promises.is_waited_for())
    }

    /// The mounts that the session may have changed.
    pub(crate) fn changed(&self) -> Vec<Ordered> {
        let state = self.lock();
        let changed = state.joined.iter().filter(|joined| joined.promises.has_changes());
        changed.map(|joined| joined.mount.clone()).collect()
    }

    /// Promises that everything changed on the mounts so far will be durable before anybody outside notices.
    pub(crate) fn promise(&self, mounts: Vec<Ordered>) {
        let mut state = self.lock();
        state.promised += 1;
        state.counts.promises += 1;
        let mut is_first = false;
        for mount in &mounts {
            match state.joined(mount) {
                Some(joined) => joined.promises.promise(),
                None => state.door.page.close(),
            }
            is_first |= state.promise(mount);
        }
        if is_first {
            self.changed.notify_one();
        }
    }

    /// The devices of the mounts with promises that are not durable.
    pub(crate) fn promised(&self) -> Vec<Device> {
        let mut state = self.lock_joined();
        state.notice();
        state.mounts.iter().map(|(mount, _)| mount.device).collect()
    }

    /// Whether processes outside have files open on mounts with promises that are not durable: they may wait for members' locks.
    pub(crate) fn is_open_outside(&self) -> bool {
        let state = self.lock();
        let mut joined = state.joined.iter().map(|joined| &joined.promises);
        joined.any(|promises| promises.is_pending() && promises.is_open_outside())
    }

    /// Judging a call has taken so much time of a processor.
    pub(crate) fn judged(&self, took: Duration) {
        let mut state = self.lock();
        state.judging += took;
        if state.judging >= state.commit_takes {
            self.changed.notify_one();
        }
    }

    /// Lets a call go on when all that was promised so far is durable.
    pub(crate) fn wait(&self, listener: &Arc<Listener>, stopped: Stopped) {
        let mut state = self.lock_joined();
        state.notice();
        if state.mounts.is_empty() && !state.has_failed {
            drop(state);
            return listener.pass(&stopped);
        }
        let needs = state.promised;
        let mount = state.mounts.first().map(|(mount, _)| mount.device);
        let listener = Arc::clone(listener);
        state.waiting.push(Waiting { listener, stopped, needs, mount, since: Instant::now() });
        self.changed.notify_one();
    }

    /// Waits until all promises made so far are durable; returns whether they are.
    pub(crate) fn settle(&self) -> bool {
        let mut state = self.lock_joined();
        state.notice();
        let needs = state.promised;
        // Others may go on promising.
        while !state.mounts.is_empty() && state.durable < needs && !state.has_failed {
            state.is_wanted = true;
            self.changed.notify_one();
            state = self.progress.wait(state).expect(NOT_POISONED);
        }
        let doubtful: Vec<_> = state.joined.iter().filter_map(Joined::doubtful).collect();
        drop(state);
        wait_for_those_cut_off(doubtful);
        let mut state = self.lock();
        if state.dead().is_some() {
            // The committing thread reports it.
            self.changed.notify_one();
            return false;
        }
        !state.has_failed
    }

    /// Commits whenever somebody waits, and every 5 s. Returns when no call may go on any more, with the mount and the reason.
    pub(crate) fn run(&self) -> (Ordered, Failure) {
        let failed = |mount, failure| {
            self.lock().has_failed = true;
            self.progress.notify_all();
            (mount, failure)
        };
        loop {
            let Due { until, mounts, reason } = match self.next() {
                Ok(due) => due,
                Err(mount) => return failed(mount, Failure::DaemonDied),
            };
            let began = Instant::now();
            for mount in &mounts {
                if let Err(error) = self.commit(mount, reason) {
                    return failed(mount.clone(), Failure::Commit(error));
                }
            }
            if !mounts.is_empty() {
                let mut state = self.lock();
                state.commit_takes = (state.commit_takes + began.elapsed()) / 2;
            }
            self.release(until);
        }
    }

    /// Makes all that was changed on a mount so far durable.
    fn commit(&self, mount: &Ordered, reason: Reason) -> io::Result<()> {
        let joined = {
            let state = self.lock();
            let of = state.joined(mount);
            of.map(|joined| (Arc::clone(&joined.promises), Arc::clone(&joined.connection)))
        };
        let Some((promises, connection)) = joined else {
            return Err(io::Error::other("its daemon does not count promises"));
        };
        let made = promises.made();
        mount.commit()?;
        if has_hung_up(&connection) {
            // Then what was committed may be another mount with its number.
            return Err(io::Error::other("its daemon has ended"));
        }
        if !promises.set_durable(made) {
            return Err(io::Error::other(
                "what a program had written could not be kept; the daemon's log says why",
            ));
        }
        promises.commits().count(reason);
        Ok(())
    }

    /// Waits until a commit is due. It has no mounts if others have made all durable meanwhile.
    ///
    /// # Errors
    /// A mount on which something was promised, and whose daemon has died while nothing waited for a commit.
    fn next(&self) -> Result<Due, Ordered> {
        let mut state = self.lock();
        loop {
            state.notice();
            state.forget_ended();
            let is_for_output = !state.waiting.is_empty();
            let left = state.oldest.map(|oldest| INTERVAL.saturating_sub(oldest.elapsed()));
            let is_late = left.is_some_and(|left| left.is_zero());
            // Nobody is to wait for long for what will never be durable.
            let mut promised = state.mounts.iter().filter_map(|(mount, _)| state.joined(mount));
            let is_late = is_late || promised.any(|joined| joined.promises.is_lost());
            let is_judged_for_long =
                !state.mounts.is_empty() && state.judging >= state.commit_takes;
            if is_for_output || state.is_wanted || is_late || is_judged_for_long {
                let reason = match () {
                    () if is_for_output => Reason::Output,
                    () if is_late => Reason::Time,
                    () if state.is_wanted => Reason::End,
                    () => Reason::Judging,
                };
                state.judging = Duration::ZERO;
                let mounts = state.mounts.iter().map(|(mount, _)| mount.clone()).collect();
                return Ok(Due { until: state.promised, mounts, reason });
            }
            if let Some(mount) = state.dead() {
                return Err(mount);
            }
            // Members promise without a word.
            let until = left.map_or(LOOK, |left| left.min(LOOK));
            state = self.changed.wait_timeout(state, until).expect(NOT_POISONED).0;
        }
    }

    /// The first promises are durable: what waited for them goes on.
    fn release(&self, durable: u64) {
        let mut state = self.lock();
        let released = state.note_durable(durable);
        for waiting in &released {
            let waited_us = u64::try_from(waiting.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            let joined =
                state.joined.iter().find(|joined| Some(joined.mount.device) == waiting.mount);
            // A mount without counts has been away.
            if let Some(joined) = joined {
                joined.promises.commits().count_wait(waited_us);
                *state
                    .counts
                    .waited
                    .entry(waiting.stopped.call.what().into_owned())
                    .or_default() += 1;
            }
        }
        drop(state);
        self.progress.notify_all();
        for Waiting { listener, stopped, .. } in released {
            listener.pass(&stopped);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NOT_POISONED)
    }

    /// When the promises of all daemons that may make some are known. A daemon that is asked answers soon, or is given up.
    fn lock_joined(&self) -> MutexGuard<'_, State> {
        self.progress.wait_while(self.lock(), |state| state.joining > 0).expect(NOT_POISONED)
    }
}

/// A daemon is being asked to count what it promises.
#[must_use]
pub(crate) struct Joining<'a>(&'a Commits);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.joining -= 1;
        state.door.page.end_joining();
        drop(state);
        self.0.progress.notify_all();
    }
}

/// Whether the other side has closed a connection.
fn has_hung_up(connection: &OwnedFd) -> bool {
    wait_for_end(connection, Duration::ZERO)
}

/// Waits up to `at_most` until the other side has closed a connection; returns whether it has.
fn wait_for_end(connection: &OwnedFd, at_most: Duration) -> bool {
    let until = Instant::now() + at_most;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut events = [PollFd::new(connection, PollFlags::IN)];
        match rustix::event::poll(&mut events, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return polled.is_ok_and(|ready| ready > 0),
        }
    }
}

/// A daemon's mount fails before its connections end, when it dies: waits for the end of those whose mounts fail, [`CUT_OFF`] at most for all. A daemon that
/// does not answer is not waited for longer.
fn wait_for_those_cut_off(mounts: Vec<(Ordered, Arc<OwnedFd>)>) {
    let until = Instant::now() + CUT_OFF;
    let (asked, answers) = std::sync::mpsc::channel();
    for (mount, connection) in mounts {
        let asked = asked.clone();
        // If no thread can be started, the committing thread finds the end of the connection later.
        let _ = std::thread::Builder::new().name("asks".into()).spawn(move || {
            if mount.is_cut_off() {
                wait_for_end(&connection, CUT_OFF);
            }
            // Nobody waits any more.
            let _ = asked.send(());
        });
    }
    drop(asked);
    while answers.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
}

const NOT_POISONED: &str = "no thread panics while it holds the lock";

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(minor: u32) -> Ordered {
        Ordered { device: (0, minor), path: "/nowhere".into() }
    }

    #[test]
    fn a_commit_covers_what_was_promised_when_it_began() {
        let commits = Commits::new().unwrap();
        commits.promise(vec![mount(1)]);
        commits.lock().is_wanted = true;
        let Due { until, mounts, reason } = commits.next().unwrap();
        assert_eq!((until, mounts, reason), (1, vec![mount(1)], Reason::End));
        commits.promise(vec![mount(1), mount(2)]);
        assert_eq!(commits.promised(), [(0, 1), (0, 2)]);
        assert_eq!(commits.lock().note_durable(until).len(), 0);
        assert_eq!(commits.promised(), [(0, 1), (0, 2)]);
        assert_eq!(commits.next().unwrap().until, 2);
        assert_eq!(commits.lock().note_durable(2).len(), 0);
        assert!(commits.promised().is_empty());
        assert!(!commits.lock().is_wanted);
    }

    #[test]
    fn what_a_daemon_promised_is_noticed_and_said_to_be_durable() {
        let (daemon, memory) = Promises::create().unwrap();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let commits = Commits::new().unwrap();
        assert!(!commits.has_joined((0, 1)));
        commits.join(mount(1), mounts::Joined { connection: here.into(), memory }).unwrap();
        assert!(commits.has_joined((0, 1)));
        assert!(commits.promised().is_empty());
        daemon.promise();
        daemon.promise();
        assert_eq!(commits.promised(), [(0, 1)]);
        // For others the supervisor's promises count as well.
        commits.promise(vec![mount(1)]);
        assert_eq!(daemon.made().by_supervisor, 1);
        assert_eq!((commits.counts().promises, commits.lock().promised), (3, 2));
        assert_eq!(commits.lock().note_durable(2).len(), 0);
        assert!(daemon.is_pending());
        assert!(daemon.set_durable(daemon.made()));
        daemon.promise();
        assert!(daemon.set_durable(daemon.made()));
        // Somebody outside has waited for it.
        assert!(commits.promised().is_empty());
        assert_eq!(commits.counts().promises, 4);
        assert_eq!(commits.joined(), [(0, 1)]);
        drop(there);
        assert!(!commits.has_joined((0, 1)) && commits.joined().is_empty());
        daemon.promise();
        assert!(commits.has_joined((0, 1)));
        assert_eq!(commits.promised(), [(0, 1)]);
    }

    #[test]
    fn nothing_is_judged_while_a_daemon_may_promise_what_is_not_known() {
        let (daemon, memory) = Promises::create().unwrap();
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        let commits = Commits::new().unwrap();
        let member = Page::open(commits.memory_for_member(ASK_PAGE).unwrap()).unwrap();
        let joining = commits.joining();
        assert!(!member.has_only(0), "a member has a door");
        daemon.promise();
        std::thread::scope(|scope| {
            let promised = scope.spawn(|| commits.promised());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!promised.is_finished(), "a promise was missed");
            commits.join(mount(1), mounts::Joined { connection: here.into(), memory }).unwrap();
            assert!(!member.has_only(1), "a member has a door");
            drop(joining);
            assert_eq!(promised.join().unwrap(), [(0, 1)]);
        });
        assert!(member.has_only(1));
    }

    #[test]
    fn judging_takes_no_longer_than_commits() {
        let commits = Commits::new().unwrap();
        commits.promise(vec![mount(1)]);
        commits.judged(COMMIT_TAKES);
        let due = Due { until: 1, mounts: vec![mount(1)], reason: Reason::Judging };
        assert_eq!(commits.next(), Ok(due));
        commits.judged(COMMIT_TAKES / 2);
        assert_eq!(commits.lock().note_durable(1).len(), 0);
        assert!(commits.promised().is_empty());
        // Begun anew with the next promise.
        assert_eq!(commits.lock().judging, Duration::ZERO);
    }

    #[test]
    fn a_daemon_that_dies_is_a_failure_if_something_was_promised_on_its_mount() {
        for (is_promised, has_ended) in [(false, false), (true, true), (true, false)] {
            let (daemon, memory) = Promises::create().unwrap();
            let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
            let commits = Commits::new().unwrap();
            commits.join(mount(1), mounts::Joined { connection: here.into(), memory }).unwrap();
            if is_promised {
                daemon.promise();
                assert!(daemon.set_durable(daemon.made()));
            }
            assert!(commits.settle());
            if has_ended {
                daemon.end();
            }
            drop(there);
            let is_dead = is_promised && !has_ended;
            assert_eq!(commits.settle(), !is_dead);
            if is_dead {
                assert_eq!(commits.next(), Err(mount(1)));
            }
        }
    }

    #[test]
    fn nothing_settles_after_a_failure() {
        let commits = Commits::new().unwrap();
        assert!(commits.settle());
        commits.promise(vec![mount(1)]);
        commits.lock().has_failed = true;
        assert!(!commits.settle());
    }
}
