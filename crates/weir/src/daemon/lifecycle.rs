//! The end of a mount: by a command, by a signal, or unmounted by hand.
//!
//! One thread decides, from events. In each case everything dirty goes home before the daemon ends; if
//! that fails the daemon stays and tries again. Only `weir umount --force` drops data, and says how much. Once the mount has
//! ended, a signal ends a daemon that has in the redo log what it cannot bring home.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use weir_backend::Failures;
use weir_engine::{Durability, Error, ErrorKind};
use weir_fuse::Observer;
use weir_shard::Shard;

use super::account::Account;
use super::guard::Guard;
use super::unwritten;
use crate::connection::Connection;
use crate::control::protocol::{Reply, Request};
use crate::control::server::Responder;
use crate::mounts::{Device, Mount, MountTable};
use crate::namespaces::{self, Holder};
use crate::shell_word::word;
use crate::unmount::{self, How, UnmountError};

/// Pause before another attempt to write home and unmount.
const RETRY: Duration = Duration::from_secs(5);

/// How often it is looked whether the log has failed.
const LOG_WATCH: Duration = Duration::from_secs(1);

/// How long an unmounted mount may take to end before the waiting command is told which processes still
/// have it. A namespace that is just ending releases it within this time.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the end of a mount is waited for whose programs were cut off, and after that what they had posted to the lane. Nothing comes
/// if the connection cannot be aborted, a request is stuck at home, or there is no memory since home refuses data.
const CUT_OFF_TIMEOUT: Duration = Duration::from_secs(10);

/// Places of a mount that are unmounted by force, at most.
const PLACES_MAX: usize = 100;

/// Attempts to unmount a mount in use, and the pause between them: a process that is just ending, or
/// that forked another one, releases it in a moment.
const UNMOUNT_TRIES: u32 = 10;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(20);

/// Sessions of programs on one mount, at most: each of them is looked at for each request.
const SESSIONS_MAX: usize = 256;

/// Names that SOURCE refused, named in a message.
const REFUSED_NAMED: usize = 3;

/// What can happen to a mount.
pub enum Event {
    /// A signal asks the daemon to end.
    Signal(&'static str),
    /// `weir umount` asks for it.
    Unmount {
        /// `--force`.
        force: bool,
        /// Where the answer goes.
        responder: Responder,
    },
    /// The kernel has closed the connection.
    SessionEnded {
        /// The connection broke without an unmount: the mount may still be there.
        broken: bool,
    },
}

/// Answers a request on the control socket, or hands it to the lifecycle.
pub fn handle(request: Request, responder: Responder, account: &Account, events: &Sender<Event>) {
    match request {
        Request::Status => {
            responder.send(&Reply::Status { status: Box::new(account.status()) });
        }
        Request::Sync => {
            let done = move |synced: Result<(), String>| {
                responder.send(&match synced {
                    Ok(()) => Reply::Done,
                    Err(message) => Reply::Failed { message },
                });
            };
            sync(account.shard.clone(), account.observer.clone(), account.source.clone(), done);
        }
        Request::Session { every_write, group } => {
            if let Err(error) = begin_session(responder, account, every_write, group) {
                tracing::debug!("a session cannot be begun: {error}");
            }
        }
        Request::JoinSession { group } => {
            if let Err(error) = join_session(responder, account, &group) {
                tracing::debug!("a session cannot be joined: {error}");
            }
        }
        Request::Unmount { force } => {
            // If the receiver is gone, the daemon is about to end: the client sees the hang-up.
            let _ = events.send(Event::Unmount { force, responder });
        }
    }
}

/// Begins a session of programs, which ends with the client's connection.
fn begin_session(
    responder: Responder,
    account: &Account,
    every_write: bool,
    group: Option<String>,
) -> io::Result<()> {
    let begun = match account.observer.sessions().len() < SESSIONS_MAX {
        true => account.observer.begin_session(responder.peer(), every_write, group),
        false => Err(io::Error::other("there are too many sessions")),
    };
    let (session, memory) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            responder.send(&Reply::Failed { message: error.to_string() });
            return Ok(());
        }
    };
    let connection = responder.send_with(&Reply::Session, memory.as_fd())?;
    std::thread::Builder::new().name("session".into()).spawn(move || {
        connection.wait_for_end();
        drop(session);
    })?;
    Ok(())
}

/// Adds the client's programs to a session, until its connection ends.
fn join_session(responder: Responder, account: &Account, group: &str) -> io::Result<()> {
    let tree = match account.observer.join_session(responder.peer(), group) {
        Ok(tree) => tree,
        Err(error) => {
            responder.send(&Reply::Failed { message: error.to_string() });
            return Ok(());
        }
    };
    let connection = responder.send_and_go_on(&Reply::Done)?;
    std::thread::Builder::new().name("session".into()).spawn(move || {
        connection.wait_for_end();
        drop(tree);
    })?;
    Ok(())
}

/// Brings home what was changed until now, durably, and runs `done`, with a message if that failed. Afterwards a log that has
/// failed is not replayed.
fn sync(
    shard: Arc<Shard>,
    observer: Observer,
    source: PathBuf,
    done: impl FnOnce(Result<(), String>) + Send + 'static,
) {
    observer.clone().when_applied(move || {
        observer.clone().when_named_so_far(move |named| {
            if let Err(error) = named {
                observer.set_log_ending(false);
                std::thread::spawn(move || {
                    // Why SOURCE refuses names says why it does not have their data.
                    let _ = bring_data_home(&shard, true);
                    done(Err(names_not_home(&observer, &error)));
                });
                return;
            }
            shard.clone().sync_durably(move |result| match result {
                // What is left of names was changed after this sync had begun.
                Ok(()) if shard.has_stale_log() => {
                    observer.set_log_ending(true);
                    sync(shard, observer, source, done);
                }
                Ok(()) => done(Ok(())),
                Err(error) => {
                    observer.set_log_ending(false);
                    done(Err(not_home(&shard, &source, error)));
                }
            });
        });
    });
}

/// Everything that is dirty goes home and is made durable; blocks. If SOURCE has refused names, the data of the files that
/// it does not have is not waited for, and what went home is made durable all the same.
fn bring_data_home(shard: &Arc<Shard>, is_refused: bool) -> Result<(), NotHome> {
    let failures = shard.home_failures();
    let (done, result) = mpsc::sync_channel(1);
    shard.sync_durably(move |result| {
        // The receiver waits below.
        let _ = done.send(result);
    });
    if is_refused {
        shard.sync_all_without_unbound(ErrorKind::Stale);
    }
    let result = result.recv().expect("a shard answers every request before it is stopped");
    if is_refused && result.is_err() {
        let settled = shard.settle_home_since(failures);
        settled.map_err(|failed| NotHome::Unsettled(Error::Home(failed.kind)))?;
    }
    result.map_err(NotHome::Data)
}

/// The message about data that is not home, and the reason.
fn not_home(shard: &Shard, source: &Path, error: Error) -> String {
    if shard.stats().dirty_pages == 0 {
        return format!(
            "everything is written home, but the file system of {} says that it could not make all of \
             it durable: {error}; it reports that only once: check it, and try again",
            source.display()
        );
    }
    let what = unwritten::describe(shard, source);
    format!("{what}, could not be written home: {error}; it is kept and tried again")
}

/// The message about names that SOURCE refused, and the first reason.
fn names_not_home(observer: &Observer, error: &io::Error) -> String {
    let (_, refused) = observer.names_pending().unwrap_or_default();
    let places: Vec<String> = observer.names_refused(REFUSED_NAMED);
    let named = places.join(", ");
    format!(
        "{refused} changes of names or attributes could not be made in SOURCE: {error} ({named}); they are kept \
         and tried again"
    )
}

/// The message about names that SOURCE does not have when the mount has ended, and the first reason.
fn names_left(observer: &Observer, error: &io::Error) -> String {
    let (left, _) = observer.names_pending().unwrap_or_default();
    let named = observer.names_left(REFUSED_NAMED).join(", ");
    let what =
        format!("{left} changes of names or attributes are not in SOURCE: {error} ({named})");
    match observer.names_are_logged() {
        true => format!(
            "{what}; they are in the redo log, and tried again by the next mount of SOURCE and 'weir recover'"
        ),
        false => format!("{what}; they are lost"),
    }
}

/// Why not everything is home.
#[derive(Debug)]
enum NotHome {
    /// SOURCE refused changes of names.
    Names(io::Error),
    /// Data could not be written, or made durable.
    Data(Error),
    /// SOURCE refused changes of names, and what went home could not be made durable.
    Unsettled(Error),
    /// What programs that were cut off had posted to the lane is not applied; and why the rest is not home, if it is not.
    Posted(Option<Box<NotHome>>),
}

/// The state of the mount in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mounted {
    /// Programs can reach it.
    Visible,
    /// Only programs that had it open can reach it.
    Detached,
}

/// Whether the loop continues, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Wait for the next event.
    Wait,
    /// The kernel has ended the mount.
    Gone,
    /// Programs may still reach the mount, and must be cut off.
    CutOff,
}

/// Which mount this is.
pub struct Place {
    /// SOURCE, canonical.
    pub source: PathBuf,
    /// MOUNTPOINT, canonical.
    pub mountpoint: PathBuf,
    /// The mount's device number. When the mount has ended, another one may have it at once.
    pub device: Device,
    /// What the mount table shows as its source.
    pub shown: PathBuf,
    /// Its redo log.
    pub log: Option<PathBuf>,
}

/// A mount until its end.
pub struct Lifecycle {
    shard: Arc<Shard>,
    observer: Observer,
    place: Place,
    /// Opened while the mount was certainly there: it is never another one's.
    connection: io::Result<Connection>,
    events: Receiver<Event>,
    stopping: Arc<AtomicBool>,
    /// Set when the mount has ended, or its programs were cut off.
    has_ended: Arc<AtomicBool>,
    /// Its session has ended: all that programs had posted is applied.
    has_session_ended: bool,
    /// What happened while the session's end was waited for.
    early: VecDeque<Event>,
    mounted: Mounted,
    /// A signal asked for the end, which has not succeeded yet: try again after [`RETRY`].
    retry: bool,
    /// Requests that wait for the outcome.
    responders: Vec<Responder>,
    /// Data may be dropped (`--force`).
    forced: bool,
    /// Aborts the mount's connection if the daemon dies; released when the mount has ended.
    guard: Option<Guard>,
}

/// A mount that has ended.
pub struct Ended {
    responders: Vec<Responder>,
    lost: Option<String>,
    log_is_void: bool,
}

impl Ended {
    /// Whether the redo log, if there is one, holds nothing that is not home.
    pub fn log_is_void(&self) -> bool {
        self.log_is_void
    }

    /// Answers the requests that wait for the end. An error says what was lost; `after` is what went wrong after that, if anything.
    pub fn finish(self, after: Result<(), String>) -> Result<(), String> {
        let outcome = self.lost.map_or(after, Err);
        let reply = match &outcome {
            Ok(()) => Reply::Done,
            Err(message) => Reply::Failed { message: message.clone() },
        };
        for responder in self.responders {
            responder.send(&reply);
        }
        outcome
    }
}

impl Lifecycle {
    /// For the mount at `place`; `events` reports what happens. `stopping` is set when a signal has asked for the end, or the mount
    /// has ended.
    pub fn new(
        shard: Arc<Shard>,
        observer: Observer,
        place: Place,
        events: Receiver<Event>,
        stopping: Arc<AtomicBool>,
        guard: Option<Guard>,
    ) -> Lifecycle {
        Lifecycle {
            shard,
            observer,
            connection: Connection::of(place.device),
            place,
            events,
            stopping,
            has_ended: Arc::default(),
            has_session_ended: false,
            early: VecDeque::new(),
            mounted: Mounted::Visible,
            retry: false,
            responders: Vec::new(),
            forced: false,
            guard,
        }
    }

    /// Unmounts a mount that was never announced.
    pub fn abandon(self) {
        self.cut_off();
        drop(self.bring_home());
    }

    /// Watches the redo log until it fails, and then syncs until it is noted in SOURCE that the log must not be replayed. Otherwise a
    /// crash much later would have old names and data replayed over what SOURCE was given since.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn watch_log(&self) -> io::Result<()> {
        let (shard, observer) = (self.shard.clone(), self.observer.clone());
        let (source, has_ended) = (self.place.source.clone(), self.has_ended.clone());
        let watch = move || {
            // The end brings everything home itself. Until then a detached mount may be used for days.
            while !has_ended.load(Ordering::Relaxed) {
                std::thread::sleep(LOG_WATCH);
                if !shard.has_stale_log() {
                    continue;
                }
                let (done, result) = mpsc::sync_channel(1);
                sync(shard.clone(), observer.clone(), source.clone(), move |synced| {
                    // The receiver waits below.
                    let _ = done.send(synced);
                });
                // It is not answered if the mount ends meanwhile.
                match result.recv() {
                    Ok(Ok(())) => return,
                    Ok(Err(message)) => {
                        tracing::warn!(
                            "the log failed, and may be replayed after a crash: {message}"
                        );
                    }
                    Err(_) => return,
                }
                std::thread::sleep(RETRY);
            }
        };
        std::thread::Builder::new().name("weir-log-watch".to_owned()).spawn(watch).map(drop)
    }

    /// Serves until the mount has ended and everything is home.
    pub fn run(mut self) -> Ended {
        let mut next = Next::Wait;
        while next == Next::Wait {
            next = match self.receive() {
                None if self.retry => self.stop(),
                None => self.tell_what_holds_it(),
                Some(Event::Signal(name)) => {
                    tracing::info!("{name}: writing everything home");
                    self.signalled()
                }
                Some(Event::Unmount { force, responder }) => self.asked(force, responder),
                Some(Event::SessionEnded { broken }) => {
                    self.has_session_ended = true;
                    if broken { Next::CutOff } else { Next::Gone }
                }
            };
        }
        if next == Next::CutOff {
            self.cut_off();
        }
        self.bring_home()
    }

    /// The next event; `None` when it is time to retry, or to report why the end takes long.
    fn receive(&self) -> Option<Event> {
        let received = if self.retry {
            self.events.recv_timeout(RETRY)
        } else if !self.responders.is_empty() {
            self.events.recv_timeout(END_TIMEOUT)
        } else {
            self.events.recv().map_err(RecvTimeoutError::from)
        };
        match received {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            // The session's thread sends an event before it drops its sender, unless it panicked.
            Err(RecvTimeoutError::Disconnected) => Some(Event::SessionEnded { broken: true }),
        }
    }

    fn signalled(&mut self) -> Next {
        if self.mounted == Mounted::Detached {
            // The second signal: programs that still use the mount get errors from now on.
            tracing::warn!("ending although programs still use the mount");
            return Next::CutOff;
        }
        self.stop()
    }

    /// Writes home and unmounts; detaches a mount in use.
    fn stop(&mut self) -> Next {
        self.stopping.store(true, Ordering::Relaxed);
        let home = self.write_home();
        let unmounted = match home {
            Ok(()) => self.unmount_idle(),
            Err(error) => {
                tracing::error!("{}: {}", self.is_still(), self.not_home(&error));
                self.retry = true;
                return Next::Wait;
            }
        };
        let outcome = match unmounted {
            Err(UnmountError::Busy) => {
                tracing::warn!(
                    "in use by {}: detached, ending when the last file is closed",
                    self.named_users()
                );
                self.mounted = Mounted::Detached;
                self.unmount(How::Detach)
            }
            outcome => outcome,
        };
        self.retry = match outcome {
            Ok(()) | Err(UnmountError::NotMounted) => {
                let holders = self.holders();
                if !holders.is_empty() {
                    tracing::warn!("{}", self.held(&holders));
                    self.mounted = Mounted::Detached;
                }
                false
            }
            Err(error) => {
                tracing::error!("cannot unmount: {error}; trying again");
                self.mounted = Mounted::Visible;
                true
            }
        };
        Next::Wait
    }

    /// `weir umount`: succeeds completely or changes nothing, unless forced.
    fn asked(&mut self, force: bool, responder: Responder) -> Next {
        let refused = |responder: Responder, message: String| {
            tracing::warn!("not unmounted: {message}");
            responder.send(&Reply::Failed { message });
            Next::Wait
        };
        let home = self.write_home();
        if let (Err(error), false) = (home, force) {
            let message = format!("{}: {}", self.is_still(), self.not_home(&error));
            return refused(responder, message);
        }
        match self.unmount_idle() {
            Ok(()) | Err(UnmountError::NotMounted) => {}
            Err(UnmountError::Busy) if force => {
                tracing::warn!("unmounting by force, in use by {}", self.named_users());
                if let Err(error) = self.unmount(How::Detach) {
                    return refused(responder, format!("cannot unmount: {error}"));
                }
                self.accept(force, responder);
                return Next::CutOff;
            }
            Err(UnmountError::Busy) => {
                let message = format!(
                    "{} is in use by {}: end them and try again, or use --force",
                    self.place.mountpoint.display(),
                    self.named_users()
                );
                return refused(responder, message);
            }
            Err(error) => {
                let message =
                    format!("cannot unmount {}: {error}", self.place.mountpoint.display());
                return refused(responder, message);
            }
        }
        let left = self.places();
        if let (Some(left), false) = (left.first(), force) {
            let message = format!(
                "everything is home and durable, and one place of the mount is unmounted, but it is also mounted at {0}: unmount that, too \
                 ('weir umount {0}')",
                word(left)
            );
            return refused(responder, message);
        }
        self.accept(force, responder);
        if !left.is_empty() {
            tracing::warn!("unmounting by force, mounted at other places, too");
            return Next::CutOff;
        }
        if force {
            let holders = self.holders();
            if !holders.is_empty() {
                tracing::warn!("unmounting by force, mounted by {}", join(&holders));
                return Next::CutOff;
            }
        }
        // The session's end arrives as an event when the kernel has ended the mount.
        Next::Wait
    }

    /// The mount is unmounted here but not ended by the kernel: reports that to the waiting
    /// commands, since the end may never come.
    fn tell_what_holds_it(&mut self) -> Next {
        let holders = self.holders();
        if holders.is_empty() && !self.is_connected() {
            // The last writes are going home.
            return Next::Wait;
        }
        self.give_up_waiting(self.held(&holders))
    }

    /// Whether the kernel still has the mount although it is gone from this namespace; false where
    /// that cannot be determined.
    fn is_connected(&self) -> bool {
        self.connection.as_ref().is_ok_and(|connection| !connection.is_gone())
    }

    /// Answers all commands that wait for the end. The mount stays for the namespaces that still have it, and
    /// ends with the last of them.
    fn give_up_waiting(&mut self, message: String) -> Next {
        tracing::warn!("{message}");
        self.mounted = Mounted::Detached;
        for responder in self.responders.drain(..) {
            responder.send(&Reply::Failed { message: message.clone() });
        }
        Next::Wait
    }

    /// The message about a mount that is unmounted here and has not ended.
    fn held(&self, holders: &[Holder]) -> String {
        let place = self.place.mountpoint.display();
        let daemon = std::process::id();
        let by = match holders.first() {
            Some(Holder { pid, mount_point, .. }) => format!(
                "another mount namespace still has it, that of {}: unmount it there \
                 ('nsenter --target {pid} --mount umount {mount_point}') or end these programs",
                join(holders)
            ),
            None => "something that weir cannot see still has it, such as a mount namespace \
                     without processes: unmount it there"
                .to_owned(),
        };
        format!(
            "everything is home and durable, and {place} is unmounted here, but {by}; until then its \
             daemon, process {daemon}, serves it and keeps SOURCE locked ('kill {daemon}' cuts it off)"
        )
    }

    /// Does not say that the mount is stopping: another namespace may keep it. A service manager that is told so waits no longer than it
    /// has patience.
    fn accept(&mut self, force: bool, responder: Responder) {
        self.forced |= force;
        if force {
            self.observer.give_up_names();
        }
        self.retry = false;
        self.responders.push(responder);
    }

    /// The kernel has ended the mount: brings home the last writes, however long it takes.
    fn bring_home(mut self) -> Ended {
        self.stopping.store(true, Ordering::Relaxed);
        self.await_session_end();
        self.has_ended.store(true, Ordering::Relaxed);
        // From here on the device number may belong to another mount.
        drop(self.guard.take());
        let (mut lost, mut told) = (None, String::new());
        let (mut is_logged, mut is_durable) = (false, true);
        let failures = self.shard.home_failures();
        while let Err(error) = self.write_all_home() {
            if self.forced {
                lost = Some(self.lost(&error));
                is_durable = false;
                break;
            }
            let is_in_log = !matches!(error, NotHome::Unsettled(_) | NotHome::Posted(_));
            if is_logged && is_in_log {
                lost = Some(self.left_in_log(&error));
                break;
            }
            is_logged = false;
            let message = self.goes_on(&error);
            if message != told {
                tracing::error!("{message}");
                told.clone_from(&message);
            }
            for responder in self.responders.drain(..) {
                responder.send(&Reply::Failed { message: message.clone() });
            }
            let early = self.early.pop_front();
            match early.map_or_else(|| self.events.recv_timeout(RETRY), Ok) {
                Ok(Event::Unmount { force, responder }) => self.accept(force, responder),
                Ok(Event::Signal(name)) => {
                    is_logged = self.write_log(&error, failures);
                    if is_logged {
                        self.observer.give_up_names();
                    } else {
                        tracing::error!("{name}: not everything is in a redo log: going on");
                    }
                }
                Ok(Event::SessionEnded { .. }) => self.has_session_ended = true,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(RETRY),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.observer.stop_names();
        let log_is_void = lost.is_none() && self.shard.close_log();
        self.shard.stop();
        if is_durable {
            self.observer.tell_sessions_that_all_is_durable();
        }
        match &lost {
            None => tracing::info!("everything is home"),
            Some(lost) => tracing::error!("{lost}"),
        }
        // A request that came while the mount was ending gets its answer.
        for event in self.early.drain(..).chain(self.events.try_iter()) {
            if let Event::Unmount { responder, .. } = event {
                self.responders.push(responder);
            }
        }
        Ended { responders: self.responders, lost, log_is_void }
    }

    /// Waits until the session of programs that were cut off has ended, for some time.
    fn await_session_end(&mut self) {
        let until = Instant::now() + CUT_OFF_TIMEOUT;
        while !self.has_session_ended {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::SessionEnded { .. }) | Err(RecvTimeoutError::Disconnected) => {
                    self.has_session_ended = true;
                }
                Ok(event) => self.early.push_back(event),
                Err(RecvTimeoutError::Timeout) => return,
            }
        }
    }

    /// Prevents further writes by programs, so that everything can be brought home.
    fn cut_off(&self) {
        for _ in 0..PLACES_MAX {
            if self.places().is_empty() {
                break;
            }
            match self.unmount(How::Detach) {
                Ok(()) | Err(UnmountError::NotMounted) => {}
                Err(error) => tracing::error!("cannot unmount: {error}"),
            }
        }
        // If that fails, programs can write until this process has ended: writes after the last sync are lost,
        // as in a crash.
        let aborted = match &self.connection {
            Ok(connection) => connection.abort(),
            Err(error) => Err(error.kind().into()),
        };
        if let Err(error) = aborted {
            tracing::debug!("cannot cut off programs that still use the mount: {error}");
        }
    }

    fn not_home(&self, error: &NotHome) -> String {
        match error {
            NotHome::Names(error) => names_not_home(&self.observer, error),
            NotHome::Data(error) => not_home(&self.shard, &self.place.source, *error),
            NotHome::Unsettled(error) => format!(
                "the file system of {} says that it could not make all of it durable that it was given: {error}; that is tried again",
                self.place.source.display()
            ),
            NotHome::Posted(home) => {
                let home =
                    home.as_ref().map_or_else(String::new, |home| self.not_home(home) + "; ");
                format!(
                    "{home}what programs wrote last by the lane waits for memory; it is kept and tried again"
                )
            }
        }
    }

    /// Whether programs can reach the mount, in words.
    fn is_still(&self) -> &'static str {
        match MountTable::read().map(|table| table.iter().any(|mount| self.is_ours(mount))) {
            Ok(false) => "unmounted",
            _ => "still mounted",
        }
    }

    /// The message about what is not home after the mount has ended, and how to end the daemon.
    fn goes_on(&self, error: &NotHome) -> String {
        let (pid, source) = (std::process::id(), word(&self.place.source));
        let kept = self.not_home(error);
        let end = format!("'weir umount --force {source}' ends it before");
        let left = match &self.place.log {
            Some(log) => format!(
                "{end}: what is in the redo log, {}, stays there for the next mount or 'weir recover {source}'",
                log.display()
            ),
            None => format!("{end}, and drops what SOURCE does not have"),
        };
        format!(
            "unmounted, but {kept} by process {pid}, which ends when SOURCE has taken them; {left}"
        )
    }

    fn lost(&self, error: &NotHome) -> String {
        let data = || match self.shard.stats().dirty_pages {
            0 => String::new(),
            _ => {
                let what = unwritten::describe(&self.shard, &self.place.source);
                format!("; of {what}, which SOURCE does not have, what was not synced is lost")
            }
        };
        match error {
            NotHome::Names(error) => {
                let names = names_left(&self.observer, error);
                format!("unmounted by force, but {names}{}", data())
            }
            NotHome::Posted(None) => format!(
                "unmounted by force, and what programs wrote last by the lane is lost{}",
                data()
            ),
            NotHome::Posted(Some(home)) => {
                format!("{}; what programs wrote last by the lane is lost, too", self.lost(home))
            }
            NotHome::Data(error) => {
                let what = unwritten::describe(&self.shard, &self.place.source);
                format!("unmounted by force, and {what}, is lost: {error}")
            }
            NotHome::Unsettled(error) => format!(
                "unmounted by force, and what SOURCE could not make durable may be lost: {error}{}",
                data()
            ),
        }
    }

    /// The message about what is in the redo log when the daemon ends, and not home.
    fn left_in_log(&self, error: &NotHome) -> String {
        let what = || unwritten::describe(&self.shard, &self.place.source);
        let left = match error {
            NotHome::Names(error) => {
                let names = names_left(&self.observer, error);
                match self.shard.stats().dirty_pages {
                    0 => names,
                    _ => format!("{names}; the redo log also has {}", what()),
                }
            }
            NotHome::Data(error) => format!(
                "{}, could not be written home: {error}; it is in the redo log, for the next mount of SOURCE and \
                 'weir recover'",
                what()
            ),
            NotHome::Unsettled(_) | NotHome::Posted(_) => self.not_home(error),
        };
        format!("unmounted, and nothing is lost, but {left}")
    }

    /// Everything is in the redo log, durably, or home. Says whether it is. To be called when the mount has ended, and not everything
    /// could be brought home for this reason; `failures` are those of home's syncs when the mount had ended.
    fn write_log(&self, error: &NotHome, failures: Failures) -> bool {
        let has_names = self.observer.names_pending().is_none_or(|(left, _)| left == 0);
        if self.place.log.is_none() || !has_names && !self.observer.names_are_logged() {
            return false;
        }
        let files = self.shard.dirty_files();
        match error {
            // Home has it and could not make it durable: whether the log has it, too, no file tells.
            NotHome::Data(_) if files.is_empty() => return false,
            // It may be anybody's data; or no file has it yet.
            NotHome::Unsettled(_) | NotHome::Posted(_) => return false,
            NotHome::Names(_) | NotHome::Data(_) => {}
        }
        let (done, results) = mpsc::channel();
        for file in files {
            let done = done.clone();
            self.shard.sync(file, Durability::All, move |result| {
                // The receiver waits below.
                let _ = done.send(result);
            });
        }
        drop(done);
        // What is clean is home, and may not be durable there: what cannot be written keeps home from being synced. A failure may have lost
        // it, which home reports once.
        results.iter().all(|result| result.is_ok())
            && self.shard.settle_home_since(failures).is_ok()
    }

    /// As [`Lifecycle::write_home`], with what programs that were cut off had posted to the lane.
    fn write_all_home(&self) -> Result<(), NotHome> {
        let is_applied = self.has_session_ended || self.apply_posted();
        // Also to have memory for the rest.
        let home = self.write_home();
        if is_applied { home } else { Err(NotHome::Posted(home.err().map(Box::new))) }
    }

    /// Applies what was posted to the lane; says whether that is done in time.
    fn apply_posted(&self) -> bool {
        let (done, applied) = mpsc::channel();
        let observer = self.observer.clone();
        let apply = move || {
            observer.when_applied(move || {
                // The receiver may have stopped waiting.
                let _ = done.send(());
            });
        };
        // Another thread that applies it may be stuck.
        let started = std::thread::Builder::new().name("weir-posted".to_owned()).spawn(apply);
        started.is_ok() && applied.recv_timeout(CUT_OFF_TIMEOUT).is_ok()
    }

    /// Everything is home and durable, or the first error met: then all else is. Names first: a file's data goes where its name
    /// is.
    fn write_home(&self) -> Result<(), NotHome> {
        let (done, named) = mpsc::sync_channel(1);
        self.observer.when_named(move |result| {
            // The receiver waits below.
            let _ = done.send(result);
        });
        let named = named.recv().expect("names are answered for as long as the mount lives");
        let data = bring_data_home(&self.shard, named.is_err());
        if let Err(error @ NotHome::Unsettled(_)) = data {
            return Err(error);
        }
        named.map_err(NotHome::Names)?;
        data?;
        self.observer.settle_names().map_err(NotHome::Names)
    }

    /// Whether it is this mount: another one may have its device number as soon as it has ended.
    fn is_ours(&self, mount: &Mount) -> bool {
        let place = &self.place;
        let is_shown_so =
            mount.is_weir() && mount.device == place.device && mount.source == place.shown;
        is_shown_so && !self.connection.as_ref().is_ok_and(Connection::is_gone)
    }

    /// Other mount namespaces that have it.
    fn holders(&self) -> Vec<Holder> {
        namespaces::holders_where(|mount| self.is_ours(mount))
    }

    /// Where the mount is in this namespace: at several places after `mount --bind`.
    fn places(&self) -> Vec<PathBuf> {
        let table = MountTable::read().unwrap_or_default();
        let ours = table.iter().filter(|mount| self.is_ours(mount));
        ours.map(|mount| mount.mount_point.clone()).collect()
    }

    /// Unmounts if no program uses the mount; waits briefly for programs that are just ending.
    fn unmount_idle(&self) -> Result<(), UnmountError> {
        for _ in 0..UNMOUNT_TRIES {
            match self.unmount(How::Idle) {
                Err(UnmountError::Busy) => std::thread::sleep(UNMOUNT_PAUSE),
                outcome => return outcome,
            }
        }
        Err(UnmountError::Busy)
    }

    fn unmount(&self, how: How) -> Result<(), UnmountError> {
        let table = MountTable::read().map_err(UnmountError::Kernel)?;
        let is_ours = |mount: &&Mount| self.is_ours(mount);
        let ours = table.at(&self.place.mountpoint).filter(is_ours);
        // It may have been moved (`mount --move`).
        let Some(ours) = ours.or_else(|| table.iter().find(is_ours)) else {
            return Err(UnmountError::NotMounted);
        };
        match table.at(&ours.mount_point).filter(is_ours) {
            Some(_) => unmount::unmount(&ours.mount_point, how),
            None => Err(UnmountError::Covered),
        }
    }

    fn named_users(&self) -> String {
        name(&unmount::users(&self.place.mountpoint), &self.place.mountpoint)
    }
}

/// `a (1), b (2)`: one program of each namespace.
fn join(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}

/// `a (1), b (2)`, or a hint if none can be seen.
fn name(users: &[String], mountpoint: &Path) -> String {
    if users.is_empty() {
        format!("programs of other users or another mount below {}", mountpoint.display())
    } else {
        users.join(", ")
    }
}
