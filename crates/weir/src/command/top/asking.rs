//! Asks daemons how they are, in threads of their own, so that one that does not answer holds up nobody.
//!
//! Owns the threads. Does not own what is made of the answers: the caller gets them as [`Told`].
//!
//! Invariants:
//! - no mount is accessed: only the mount table of the kernel and the control sockets are;
//! - one question at a time is under way to a mount, however long that takes. A stopped daemon lets the kernel take connections
//!   until its queue is full, and from then on a connection waits for ever.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::client::{self, ControlError, Daemon};
use crate::control::protocol::{Reply, Request, Status};
use crate::mounts::{Device, Mount, MountTable};

/// How long a daemon may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How often mounts are looked for that are gone and whose daemons still bring things home, at most.
const FORMER_INTERVAL: Duration = Duration::from_secs(1);

/// What tells a mount from others, also from a later one at the same place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) mountpoint: PathBuf,
    pub(super) device: Device,
    /// The daemon of a mount that is gone.
    pub(super) former_of: Option<u32>,
}

impl Key {
    pub(super) fn of(mount: &Mount) -> Key {
        Key {
            mountpoint: mount.mount_point.clone(),
            device: mount.device,
            former_of: mount.former_of,
        }
    }
}

/// What came of one question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Status(Box<Status>),
    /// The daemon did not answer; the reason in a few words.
    None(String),
    /// The mount is another user's.
    Denied,
}

/// What the asking threads tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// The mounts that there are now; others have ended.
    Mounts(Vec<Mount>),
    /// An answer.
    Answer(Key, Instant, Answer),
    /// The mount table cannot be read.
    NoTable(String),
}

/// Whether a mount is to be shown.
pub(super) type Wanted = Arc<dyn Fn(&Mount) -> bool + Send + Sync>;

/// Asks until it is dropped.
pub(super) struct Asker {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wanted: Wanted,
    told: Box<dyn Fn(Told) + Send + Sync>,
}

struct State {
    interval: Duration,
    is_ending: bool,
    /// Since when mounts are being asked.
    under_way: HashMap<Key, Instant>,
    /// Processes that serve mounts that are there.
    serving: HashMap<Key, u32>,
    former: Vec<(Mount, Status)>,
    looks_for_former: bool,
    looked_for_former: Option<Instant>,
}

impl Asker {
    /// Asks all mounts that are `wanted` now and once in each `interval`.
    pub(super) fn start(
        wanted: Wanted,
        interval: Duration,
        told: impl Fn(Told) + Send + Sync + 'static,
    ) -> io::Result<Asker> {
        let state = Mutex::new(State {
            interval,
            is_ending: false,
            under_way: HashMap::new(),
            serving: HashMap::new(),
            former: Vec::new(),
            looks_for_former: false,
            looked_for_former: None,
        });
        let told = Box::new(told);
        let shared = Arc::new(Shared { state, changed: Condvar::new(), wanted, told });
        let of = Arc::clone(&shared);
        thread::Builder::new().name("top-asker".to_owned()).spawn(move || of.run())?;
        Ok(Asker { shared })
    }

    /// Changes the interval, from now on.
    pub(super) fn set_interval(&self, interval: Duration) {
        self.shared.lock().interval = interval;
        self.shared.changed.notify_all();
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: &Arc<Shared>) {
        loop {
            let began = Instant::now();
            self.ask_all();
            let mut state = self.lock();
            loop {
                let left = state.interval.saturating_sub(began.elapsed());
                if state.is_ending {
                    return;
                }
                if left.is_zero() {
                    break;
                }
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    fn ask_all(self: &Arc<Shared>) {
        let table = match MountTable::read() {
            Ok(table) => table,
            Err(error) => return (self.told)(Told::NoTable(error.to_string())),
        };
        let mut mounts: Vec<Mount> = table.weir().into_iter().cloned().collect();
        mounts.extend(self.lock().former.iter().map(|(mount, _)| mount.clone()));
        mounts.retain(|mount| (self.wanted)(mount));
        (self.told)(Told::Mounts(mounts.clone()));
        {
            let keys: HashSet<Key> = mounts.iter().map(Key::of).collect();
            self.lock().serving.retain(|key, _| keys.contains(key));
        }
        for mount in mounts {
            self.ask(mount);
        }
        self.look_for_former(table);
    }

    /// Asks one mount, on a thread of its own.
    fn ask(self: &Arc<Shared>, mount: Mount) {
        let key = Key::of(&mount);
        let now = Instant::now();
        let since = self.lock().under_way.get(&key).copied();
        if let Some(since) = since {
            if now.duration_since(since) > PATIENCE {
                (self.told)(Told::Answer(key, now, Answer::None("no answer".to_owned())));
            }
            return;
        }
        self.lock().under_way.insert(key.clone(), now);
        let (of, asked) = (Arc::clone(self), key.clone());
        let started = thread::Builder::new().name("top-asks".to_owned()).spawn(move || {
            let serves = |pid| {
                if asked.former_of.is_none() {
                    of.lock().serving.insert(asked.clone(), pid);
                }
            };
            let answer = ask(&mount, serves);
            of.lock().under_way.remove(&asked);
            (of.told)(Told::Answer(asked, Instant::now(), answer));
        });
        if let Err(error) = started {
            self.lock().under_way.remove(&key);
            let reason = format!("no thread to ask it: {error}");
            (self.told)(Told::Answer(key, now, Answer::None(reason)));
        }
    }

    /// Looks for mounts that are gone and whose daemons still bring things home, on a thread of its own.
    fn look_for_former(self: &Arc<Shared>, table: MountTable) {
        let serving: HashSet<u32> = {
            let mut state = self.lock();
            let is_due = state.looked_for_former.is_none_or(|at| at.elapsed() >= FORMER_INTERVAL);
            if state.looks_for_former || !is_due {
                return;
            }
            state.looks_for_former = true;
            state.serving.values().copied().collect()
        };
        let of = Arc::clone(self);
        let started = thread::Builder::new().name("top-former".to_owned()).spawn(move || {
            let former = client::unmounted_but(&table, &serving);
            let mut state = of.lock();
            state.former = former;
            state.looks_for_former = false;
            state.looked_for_former = Some(Instant::now());
        });
        if started.is_err() {
            self.lock().looks_for_former = false;
        }
    }
}

/// Asks each of these mounts once, all at the same time. The answers are in the order of the mounts.
pub(super) fn ask_once(mounts: &[Mount]) -> Vec<(Instant, Answer)> {
    let (sender, receiver) = channel();
    for (index, mount) in mounts.iter().enumerate() {
        ask_for(index, mount.clone(), sender.clone());
    }
    drop(sender);
    let until = Instant::now() + PATIENCE;
    let mut answers: Vec<Option<(Instant, Answer)>> = vec![None; mounts.len()];
    while answers.iter().any(Option::is_none) {
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((index, at, answer)) => answers[index] = Some((at, answer)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    let none = || (Instant::now(), Answer::None("no answer".to_owned()));
    answers.into_iter().map(|answer| answer.unwrap_or_else(none)).collect()
}

fn ask_for(index: usize, mount: Mount, sender: Sender<(usize, Instant, Answer)>) {
    let asked = move || {
        let answer = ask(&mount, |_| {});
        // Nobody waits any longer if it took too long.
        let _ = sender.send((index, Instant::now(), answer));
    };
    // Without a thread there is no answer.
    let _ = thread::Builder::new().name("top-asks".to_owned()).spawn(asked);
}

/// Asks a daemon; `serves` is told its process.
fn ask(mount: &Mount, serves: impl FnOnce(u32)) -> Answer {
    let asked = Daemon::connect_by_socket(mount).and_then(|daemon| {
        serves(daemon.pid());
        daemon.ask_within(&Request::Status, Some(PATIENCE))
    });
    match asked {
        Ok(Reply::Status { status }) => Answer::Status(status),
        Ok(_) => Answer::None("another version".to_owned()),
        Err(ControlError::Denied { .. }) => Answer::Denied,
        Err(ControlError::Dead(_)) => Answer::None("the daemon has died".to_owned()),
        Err(ControlError::Unreachable(_)) => Answer::None("the socket is gone".to_owned()),
        Err(ControlError::Impostor { .. } | ControlError::Exposed { .. }) => {
            Answer::None("not its daemon answers".to_owned())
        }
        Err(_) => Answer::None("no answer".to_owned()),
    }
}
