//! What the page shows: the last status of each mount, asked for each second while somebody looks.
//!
//! Owns the threads that ask. Each daemon is asked by a thread of its own, so that one that does not answer holds up no other,
//! and by one at a time. Mounts whose daemons still bring things home after the unmount are looked for less often.
//!
//! Invariants: the answer to a page waits for no daemon; when nobody looks, no daemon is asked.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::control::ControlError;
use crate::control::client::{self, Daemon};
use crate::control::protocol::{Reply, Request, Status};
use crate::failure::one_line;
use crate::mounts::{Device, Mount, MountTable, shown};

/// How often daemons are asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Rounds between two searches for daemons whose mount is gone.
const FORMER_ROUNDS: u64 = 3;
/// How long after a page's last question daemons are still asked.
const ATTENTION: Duration = Duration::from_secs(10);
/// How long a daemon may take before the page says that it does not answer.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Asks daemons.
pub struct Watch(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    looked_at: Condvar,
}

#[derive(Default)]
struct State {
    /// When a page asked last.
    looked: Option<Instant>,
    /// How often all daemons were asked.
    rounds: u64,
    /// Why the mounts are not known.
    trouble: Option<String>,
    mounts: BTreeMap<Device, Watched>,
    former: Vec<Status>,
    looks_for_former: bool,
}

/// A mount.
struct Watched {
    mount: Mount,
    /// Set while a thread asks.
    asked: Option<Instant>,
    status: Option<Box<Status>>,
    trouble: Option<String>,
    /// Another user's.
    is_hidden: bool,
}

/// What a page is told.
#[derive(Serialize)]
struct Page<'a> {
    weir_version: &'a str,
    host: String,
    rounds: u64,
    trouble: Option<&'a str>,
    mounts: Vec<Row<'a>>,
}

/// One mount.
#[derive(Serialize)]
struct Row<'a> {
    mountpoint: String,
    source: String,
    /// The mount is gone, and its daemon brings things home.
    ended: bool,
    /// Why the status is old or absent.
    trouble: Option<String>,
    status: Option<&'a Status>,
}

impl Watch {
    /// Starts the thread that sees which mounts there are.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start() -> io::Result<Watch> {
        let shared = Arc::new(Shared { state: Mutex::default(), looked_at: Condvar::new() });
        let watching = shared.clone();
        thread::Builder::new().name("watch".into()).spawn(move || watching.watch())?;
        Ok(Watch(shared))
    }

    /// What is known now, as JSON.
    pub fn shown(&self) -> String {
        let mut state = self.0.lock();
        state.looked = Some(Instant::now());
        self.0.looked_at.notify_all();
        state.page()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics with the lock; the state is whole in any case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(self: Arc<Shared>) {
        loop {
            let began = Instant::now();
            let mut state = self.lock();
            while state.looked.is_none_or(|at| at.elapsed() > ATTENTION) {
                // What was seen before is not shown as if it were of now.
                *state = State { looks_for_former: state.looks_for_former, ..State::default() };
                let waited = self.looked_at.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
            self.begin_round(&mut state);
            drop(state);
            thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
        }
    }

    /// Has a thread ask each daemon that is not being asked.
    fn begin_round(self: &Arc<Shared>, state: &mut State) {
        let table = match MountTable::read() {
            Ok(table) => table,
            Err(error) => {
                state.trouble = Some(format!("cannot read the mount table: {error}"));
                return;
            }
        };
        state.trouble = None;
        state.see(table.weir());
        for (device, watched) in &mut state.mounts {
            if watched.asked.is_none() {
                let (shared, mount, device) = (self.clone(), watched.mount.clone(), *device);
                let asks = move || shared.ask(device, &mount);
                let started = thread::Builder::new().name("ask".into()).spawn(asks);
                watched.asked = started.is_ok().then(Instant::now);
            }
        }
        if state.rounds.is_multiple_of(FORMER_ROUNDS) && !state.looks_for_former {
            let shared = self.clone();
            let looks = move || shared.look_for_former(&table);
            state.looks_for_former = thread::Builder::new().spawn(looks).is_ok();
        }
        state.rounds += 1;
    }

    fn ask(&self, device: Device, mount: &Mount) {
        let answered =
            Daemon::connect(mount).and_then(|daemon| daemon.ask_briefly(&Request::Status));
        let mut state = self.lock();
        let Some(watched) = state.mounts.get_mut(&device).filter(|known| known.is_of(mount)) else {
            return;
        };
        watched.asked = None;
        watched.trouble = None;
        watched.is_hidden = false;
        match answered {
            Ok(Reply::Status { status }) => watched.status = Some(status),
            Ok(_) => watched.trouble = Some("the daemon is of another version".to_owned()),
            Err(ControlError::Denied { .. }) => watched.is_hidden = true,
            Err(error) => watched.trouble = Some(one_line(&error.to_string())),
        }
    }

    fn look_for_former(&self, table: &MountTable) {
        let former = client::unmounted(table).into_iter().map(|(_, status)| status).collect();
        let mut state = self.lock();
        state.former = former;
        state.looks_for_former = false;
    }
}

impl State {
    /// Takes over which mounts there are.
    fn see(&mut self, mounts: Vec<&Mount>) {
        self.mounts.retain(|device, known| {
            mounts.iter().any(|mount| mount.device == *device && known.is_of(mount))
        });
        for mount in mounts {
            self.mounts.entry(mount.device).or_insert_with(|| Watched {
                mount: mount.clone(),
                asked: None,
                status: None,
                trouble: None,
                is_hidden: false,
            });
        }
    }

    fn page(&self) -> String {
        let shown = self.mounts.values().filter(|watched| !watched.is_hidden);
        let mut mounts: Vec<Row<'_>> = shown.filter_map(Watched::row).collect();
        mounts.extend(self.former.iter().map(|status| Row {
            mountpoint: status.mountpoint.clone(),
            source: status.source.clone(),
            ended: true,
            trouble: None,
            status: Some(status),
        }));
        mounts.sort_by(|one, other| one.mountpoint.cmp(&other.mountpoint));
        let page = Page {
            weir_version: env!("CARGO_PKG_VERSION"),
            host: std::fs::read_to_string("/proc/sys/kernel/hostname")
                .map_or_else(|_| String::new(), |name| name.trim().to_owned()),
            rounds: self.rounds,
            trouble: self.trouble.as_deref(),
            mounts,
        };
        serde_json::to_string(&page).expect("plain structures of strings and numbers")
    }
}

impl Watched {
    /// Whether it is the same mount; a remount changes its options.
    fn is_of(&self, mount: &Mount) -> bool {
        self.mount.mount_point == mount.mount_point && self.mount.source == mount.source
    }

    /// `None` until something is known.
    fn row(&self) -> Option<Row<'_>> {
        let is_late = self.asked.is_some_and(|since| since.elapsed() > PATIENCE);
        let trouble = match &self.trouble {
            None if is_late => Some("the daemon does not answer".to_owned()),
            trouble => trouble.clone(),
        };
        let is_known = self.status.is_some() || trouble.is_some();
        is_known.then(|| Row {
            mountpoint: shown(&self.mount.mount_point),
            source: shown(&self.mount.source),
            ended: false,
            trouble,
            status: self.status.as_deref(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &str) -> MountTable {
        MountTable::parse(lines.as_bytes())
    }

    #[test]
    fn mounts_come_and_go() {
        let mut state = State::default();
        let line = |device: u32, at: &str| {
            format!("9 1 0:{device} / {at} rw - fuse.weir /srv{at} rw,user_id=0\n")
        };
        state.see(table(&(line(7, "/a") + &line(8, "/b"))).weir());
        assert!(state.page().contains("\"mounts\":[]"), "nothing is known yet");
        let of_a = state.mounts.values_mut().next().unwrap();
        of_a.status = Some(Box::new(Status { pid: 4711, ..Status::default() }));
        let page = state.page();
        assert!(page.contains("\"mountpoint\":\"/a\"") && page.contains("\"pid\":4711"), "{page}");
        assert!(!page.contains("\"/b\""), "{page}");
        // Another mount has the number now: the former one's status is not shown as its.
        state.see(table(&line(7, "/c")).weir());
        assert!(state.page().contains("\"mounts\":[]"));
        let of_c = state.mounts.values_mut().next().unwrap();
        of_c.asked = Instant::now().checked_sub(2 * PATIENCE);
        assert!(of_c.asked.is_none() || state.page().contains("the daemon does not answer"));
    }
}
