//! The service manager that started the daemon, as a rule systemd: it is told when the mount answers, what there is to write home,
//! that the daemon is alive, and for how long its end may take (sd_notify(3)).
//!
//! Owns the socket, and the thread that sends. Does not decide when a mount ends: [`super::lifecycle`] does.
//!
//! Invariants:
//! - without NOTIFY_SOCKET nothing is done;
//! - programs that the daemon starts get neither the socket nor its name;
//! - the daemon is said to be alive when its engine's lock can be had, whatever home does: an unreachable home is no
//!   reason to kill it;
//! - the end may take as long as something goes home. When nothing went home for [`PATIENCE`], the lifecycle is sent a second
//!   signal: programs that still have files open are cut off, and a home that refuses is not waited for any longer if
//!   everything is in the redo log. After [`STUCK`] the manager's own limit counts.

#![allow(unsafe_code, reason = "taking a variable out of the environment has no safe form")]

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use weir_engine::PAGE_BYTES;
use weir_fuse::Observer;
use weir_shard::Shard;

use super::lifecycle::Event;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often the manager is told what there is to do.
const TELL: Duration = Duration::from_secs(5);
/// How long the manager is asked to wait, each time it is told.
const EXTENSION: Duration = Duration::from_secs(30);
/// How long an end without progress may take before the lifecycle is told.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an end without progress is extended.
const STUCK: Duration = Duration::from_secs(5 * 60);
/// How long a message may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The service manager.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    /// How often it wants to know that the daemon is alive.
    watchdog: Option<Duration>,
}

/// What the daemon does when it serves.
pub struct Served {
    /// Its engine.
    pub shard: Arc<Shard>,
    /// Its names.
    pub observer: Observer,
    /// Set when the end begins.
    pub stopping: Arc<AtomicBool>,
    /// Where the lifecycle is told that the end takes too long.
    pub events: Sender<Event>,
    /// What is served, for people.
    pub what: String,
}

/// Tells the manager what the daemon does, until it is dropped.
pub struct Reports {
    /// What begins when the mount answers. Dropped at the end.
    ready: Option<Sender<Served>>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceManager {
    /// The manager that started this process, if one did. Takes its variables out of the environment.
    ///
    /// Call it while the process has one thread, and before it starts any program.
    ///
    /// # Errors
    /// The manager cannot be told anything: those of connecting to its socket.
    pub fn take() -> io::Result<Option<ServiceManager>> {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let watchdog = sd_notify::watchdog_enabled();
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            // SAFETY: no other thread runs that could read the environment.
            unsafe { std::env::remove_var(name) };
        }
        let socket = UnixDatagram::unbound()?;
        match address.as_bytes() {
            [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            _ => socket.connect(&address)?,
        }
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Some(ServiceManager { socket, watchdog }))
    }

    /// Begins to tell it what the daemon does.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn begin(self) -> io::Result<Reports> {
        let (ready, served) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("weir-service".into())
            .spawn(move || self.report(&served))?;
        Ok(Reports { ready: Some(ready), thread: Some(thread) })
    }

    /// Until the other end is dropped.
    fn report(&self, ready: &Receiver<Served>) {
        let served = loop {
            // What the log holds is brought home before the mount is made, however long that takes.
            self.tell(&[
                NotifyState::Status("bringing home what the redo log holds, and mounting"),
                extension(),
            ]);
            match ready.recv_timeout(TELL) {
                Ok(served) => break served,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        };
        let status = served.status();
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status), NotifyState::Watchdog]);
        let often = self.watchdog.map_or(TELL, |watchdog| TELL.min(watchdog / 3));
        let mut told = Instant::now();
        let mut end: Option<End> = None;
        while matches!(ready.recv_timeout(LOOK.min(often)), Err(RecvTimeoutError::Timeout)) {
            let begins = end.is_none() && served.stopping.load(Ordering::Relaxed);
            if begins {
                end = Some(End::new(Instant::now()));
                self.tell(&[NotifyState::Stopping]);
            }
            if !begins && told.elapsed() < often {
                continue;
            }
            told = Instant::now();
            let status = served.status();
            self.tell(&[NotifyState::Status(&status), NotifyState::Watchdog]);
            let Some(end) = &mut end else { continue };
            match end.look(served.left(), told) {
                Wait::Longer => self.tell(&[extension()]),
                Wait::Impatient => {
                    // If the receiver is gone, the daemon is ending.
                    let _ = served.events.send(Event::Signal("no progress for a minute"));
                    self.tell(&[extension()]);
                }
                Wait::NoLonger => {}
            }
        }
        if end.is_none() {
            // It ended too soon for the loop to see it.
            self.tell(&[NotifyState::Stopping]);
        }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        if let Err(error) = self.socket.send(message.as_bytes()) {
            tracing::debug!("cannot tell the service manager: {error}");
        }
    }
}

fn extension() -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(EXTENSION.as_micros() as u32)
}

impl Reports {
    /// The mount answers.
    pub fn ready(&self, served: Served) {
        if let Some(ready) = &self.ready {
            // If the thread has panicked nobody is told.
            let _ = ready.send(served);
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        drop(self.ready.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked there is nothing more to tell.
            let _ = thread.join();
        }
    }
}

impl Served {
    /// Bytes and names that are not home.
    fn left(&self) -> (u64, u64) {
        let bytes = self.shard.stats().dirty_pages * PAGE_BYTES as u64;
        (bytes, self.observer.names_pending().map_or(0, |(pending, _)| pending as u64))
    }

    fn status(&self) -> String {
        let (bytes, names) = self.left();
        let left = match (bytes.div_ceil(1 << 20), names) {
            (0, 0) => "everything is home".to_owned(),
            (mib, 0) => format!("{mib} MiB to write home"),
            (0, names) => format!("{names} names to bring home"),
            (mib, names) => format!("{mib} MiB and {names} names to bring home"),
        };
        let ending = if self.stopping.load(Ordering::Relaxed) { "ending, " } else { "" };
        format!("{}: {ending}{left}", self.what)
    }
}

/// Whether the manager is to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Something went home lately.
    Longer,
    /// The same, but the lifecycle is to hear that it takes long.
    Impatient,
    /// Nothing has happened for too long.
    NoLonger,
}

/// An end that goes on.
#[derive(Debug)]
struct End {
    /// The least that was left, and since when.
    least: Option<(u64, u64)>,
    since: Instant,
    /// When the lifecycle was told.
    told: Instant,
}

impl End {
    fn new(now: Instant) -> End {
        End { least: None, since: now, told: now }
    }

    fn look(&mut self, left: (u64, u64), now: Instant) -> Wait {
        if self.least.is_none_or(|least| left.0 < least.0 || left.1 < least.1) {
            let least = self.least.unwrap_or(left);
            self.least = Some((least.0.min(left.0), least.1.min(left.1)));
            (self.since, self.told) = (now, now);
        }
        if now - self.since >= STUCK {
            return Wait::NoLonger;
        }
        if now - self.told >= PATIENCE {
            self.told = now;
            return Wait::Impatient;
        }
        Wait::Longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_extended_while_something_goes_home() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut end = End::new(start);
        assert_eq!(end.look((100, 0), at(0)), Wait::Longer);
        assert_eq!(end.look((90, 0), at(50)), Wait::Longer);
        assert_eq!(end.look((90, 0), at(109)), Wait::Longer);
        assert_eq!(end.look((90, 0), at(110)), Wait::Impatient);
        assert_eq!(end.look((95, 0), at(111)), Wait::Longer, "it was told");
        assert_eq!(end.look((95, 0), at(170)), Wait::Impatient, "and again");
        assert_eq!(end.look((95, 0), at(350)), Wait::NoLonger);
        assert_eq!(end.look((95, 0), at(351)), Wait::NoLonger);
        assert_eq!(end.look((10, 0), at(352)), Wait::Longer, "it goes on");
    }

    #[test]
    fn messages_reach_the_socket() {
        let path = std::env::temp_dir().join(format!("weir-service-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(&path).unwrap();
        let told = ServiceManager { socket, watchdog: None };
        told.tell(&[NotifyState::Ready, NotifyState::Status("up")]);
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1\nSTATUS=up\n");
        std::fs::remove_file(&path).unwrap();
    }
}
