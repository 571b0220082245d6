//! The daemon: connects SOURCE, shard, front end and control socket, from the first check to the last
//! byte home.
//!
//! Owns the lock on SOURCE while it lives. All checks that change nothing are made before the lock is taken,
//! and the lock is released when nothing dirty is left.

mod account;
mod guard;
mod lifecycle;
pub mod log_plan;
pub mod protection;
mod record;
mod scraped;
pub mod service;
mod unwritten;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Instant;

use weir_backend::home_names::HomeNames;
use weir_backend::{RedoLog, is_rotational};
use weir_engine::{Config, Order};
use weir_fuse::{KernelSetting, Observer, Transport};
use weir_shard::Shard;

use crate::allocator;
use crate::bucket::{self, Bucket, BucketError};
use crate::control::server::Server;
use crate::fuse_access::{self, FuseAccessError};
use crate::http::{ListenError, Listener};
use crate::local_log;
use crate::log_place::{BroughtHome, LogPlaceError, Logs, Wanted};
use crate::mountpoint::{self, MountpointError};
use crate::mounts::{Device, MountTable};
use crate::own_directory::OwnDirectory;
use crate::quantity::Size;
use crate::settings::{LogChoice, NamesChoice, ORDERED_LOG_BYTES_MIN, Settings};
use crate::signals;
use crate::source::{Source, SourceError, SourceLock};

use account::Account;
use lifecycle::{Event, Lifecycle, Place};
use log_plan::{InSource, LogPlan};
use record::{Record, RecordError, Subject};
use service::{Served, ServiceManager};

/// A mount to be made: what, where and how.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// SOURCE, absolute.
    pub source: PathBuf,
    /// The bucket that is to be served there, if it is one.
    pub bucket: Option<Bucket>,
    /// MOUNTPOINT, absolute.
    pub mountpoint: PathBuf,
    /// Everything else.
    pub settings: Settings,
}

/// Why a daemon did not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// SOURCE cannot be served.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The bucket cannot be served, or not everything is in it.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// Nothing can be mounted at MOUNTPOINT.
    #[error(transparent)]
    Mountpoint(#[from] MountpointError),
    /// The mount table would show another directory than SOURCE.
    #[error(
        "-o fsname={name}: a name that begins with / is taken for the directory that is served, which is {source_name}: leave fsname out, \
         or give a name without /"
    )]
    Name {
        /// The name.
        name: String,
        /// SOURCE, or the bucket's address.
        source_name: String,
    },
    /// FUSE cannot be used.
    #[error(transparent)]
    FuseAccess(#[from] FuseAccessError),
    /// The back end or the engine did not start.
    #[error("cannot serve {}: {error}", source_path.display())]
    Shard {
        /// SOURCE.
        source_path: PathBuf,
        /// Why.
        error: weir_shard::StartError,
    },
    /// The front end did not start.
    #[error(transparent)]
    Mount(#[from] weir_fuse::MountError),
    /// The mount was made but is not in the mount table.
    #[error("the mount at {} vanished while it was made", .0.display())]
    Vanished(PathBuf),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] crate::log::LogError),
    /// The record cannot be made.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Metrics cannot be served.
    #[error("{0}; this is what --metrics asks for")]
    Metrics(#[from] ListenError),
    /// The redo log cannot be used.
    #[error(transparent)]
    RedoLog(#[from] LogPlaceError),
    /// Everything is to be logged, and there is no log.
    #[error(
        "--order all keeps every change in the redo log, and {} has none: give --log the path of a file elsewhere, or \
         --order sync", .0.display()
    )]
    OrderWithoutLog(PathBuf),
    /// Everything is to be logged, and recovery may not find files.
    #[error(
        "--order all needs a SOURCE that finds files by handle, which {} does not do for this user: give --order sync",
        .0.display()
    )]
    OrderWithoutHandles(PathBuf),
    /// Everything is to be logged, and the log does not hold enough.
    #[error(
        "the redo log of {} is too small for --order all: give --log-size at least {}, and --log the path of a new file \
         if it is not in SOURCE; or give --order sync",
        .0.display(),
        Size(ORDERED_LOG_BYTES_MIN)
    )]
    LogTooSmallForOrder(PathBuf),
    /// Something the daemon needs from the system.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// It ended before everything was home.
    #[error("{0}")]
    Lost(String),
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |error| DaemonError::System { doing, error }
}

/// A daemon that passed the checks; nothing has been changed yet.
pub struct Checked {
    bucket: Option<bucket::Served>,
    source: Source,
    mountpoint: PathBuf,
    settings: Settings,
}

/// Checks everything that can be checked without changing anything.
pub fn check(request: MountRequest) -> Result<Checked, DaemonError> {
    fuse_access::check(request.settings.allow_other)?;
    let bucket = request.bucket.map(|bucket| bucket.start()).transpose()?;
    let mounts = MountTable::read().map_err(system("read the mount table"))?;
    let source = Source::open(&request.source, &mounts)?;
    let mountpoint = mountpoint::check(&request.mountpoint, source.path(), &mounts)?;
    let settings = named_truly(request.settings, &request.source, &source, bucket.as_ref())?;
    Ok(Checked { bucket, source, mountpoint, settings })
}

/// The settings without a name that is SOURCE, which the mount table shows in any case. Another path is refused: others look in the
/// mount table for what is served.
fn named_truly(
    settings: Settings,
    asked_for: &Path,
    source: &Source,
    bucket: Option<&bucket::Served>,
) -> Result<Settings, DaemonError> {
    match &settings.fsname {
        Some(name) if name.starts_with('/') => {
            let path = Path::new(name);
            if path != asked_for && path != source.path() {
                let path = || source.path().display().to_string();
                let source_name = bucket.map_or_else(path, |bucket| bucket.address().to_owned());
                return Err(DaemonError::Name { name: name.clone(), source_name });
            }
            Ok(Settings { fsname: None, ..settings })
        }
        _ => Ok(settings),
    }
}

impl Checked {
    /// Locks SOURCE. From here on a failure has to undo changes.
    pub fn lock(self) -> Result<Locked, DaemonError> {
        let lock = self.source.lock(&self.mountpoint, self.settings.no_recovery)?;
        let Checked { bucket, source, mountpoint, settings } = self;
        Ok(Locked { source, mountpoint, settings, lock, bucket })
    }
}

/// SOURCE, locked by this process; dropping this releases it.
pub struct Locked {
    source: Source,
    mountpoint: PathBuf,
    settings: Settings,
    lock: SourceLock,
    // Goes last.
    bucket: Option<bucket::Served>,
}

impl Locked {
    /// MOUNTPOINT, canonical.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// How it is to be mounted.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Mounts, calls `ready` when the mount answers, and serves until it is unmounted and
    /// everything is home. If `ready` fails, unmounts at once.
    ///
    /// The manager, if there is one, is told of it, and of all that follows. Call it while the process has one thread.
    pub fn serve(
        self,
        manager: Option<ServiceManager>,
        ready: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), DaemonError> {
        allocator::bound();
        abort_on_panic();
        protection::set_io_flusher();
        let signals = signals::block().map_err(system("block signals"))?;
        let mut guard = guard::start()
            .inspect_err(|error| {
                tracing::warn!("no process guards the mount: cannot fork: {error}")
            })
            .ok();
        let reports = manager.map(ServiceManager::begin).transpose();
        let reports = reports.map_err(system("start the thread for the service manager"))?;
        let Locked { source, mountpoint, settings, lock, mut bucket } = self;
        if let Some(bucket) = &mut bucket {
            bucket.listen()?;
        }
        let named =
            bucket.as_ref().map_or_else(|| source.path(), |bucket| bucket.address().as_ref());
        let named = named.to_owned();
        let start_error =
            |error| DaemonError::Shard { source_path: source.path().to_owned(), error };
        let metrics = settings.metrics.map(Listener::bind).transpose()?;
        let record = begin_record(&source, &mountpoint, &settings)?;
        let log = open_log(&source, lock.own(), &settings)?;
        let (has_log, log_path) = (log.is_some(), log.as_ref().map(|log| log.path().to_owned()));
        let is_ordered = settings.engine.order == Order::All && !settings.read_only;
        if is_ordered {
            check_order(&source, has_log)?;
        }
        let settings = match settings.names {
            None | Some(NamesChoice::Log) if !has_log => {
                Settings { names: Some(NamesChoice::Sync), ..settings }
            }
            _ => settings,
        };
        let config = Config {
            rotational: is_rotational(source.as_fd()),
            keeps_unsynced: local_log::is_bucket(&source),
            ..settings.engine.clone()
        };
        let shard =
            Shard::start_with(config, source.as_fd(), log, settings.lane).map_err(start_error)?;
        if is_ordered && !shard.log_holds_any_write() {
            shard.stop();
            return Err(DaemonError::LogTooSmallForOrder(source.path().to_owned()));
        }
        let (events, received) = mpsc::channel();
        let (device, observer, transport) =
            mount(&shard, &source, &named, &mountpoint, &settings, events.clone())
                .inspect_err(|_| shard.stop())?;
        // After mounting: fusermount3, which may have mounted it, would inherit the score.
        protection::spare_from_oom_killer();
        let stopping = Arc::new(AtomicBool::new(false));
        let account = Arc::new(Account {
            shard: shard.clone(),
            source: named.clone(),
            mountpoint: mountpoint.clone(),
            fetch_policy: settings.engine.fetch_policy,
            write_back: settings.engine.write_back,
            transport,
            order: settings.engine.order,
            device,
            metrics: metrics.as_ref().map(Listener::address),
            mounted_read_only: settings.read_only,
            mounted_at: Instant::now(),
            observer: observer.clone(),
            bucket: bucket.as_ref().map(bucket::Served::said),
            stopping: stopping.clone(),
        });
        let place = Place {
            source: source.path().to_owned(),
            mountpoint: mountpoint.clone(),
            device,
            shown: shown_source(device, &mountpoint).unwrap_or_else(|| named.clone()),
            log: log_path,
        };
        if let Some(guard) = &mut guard
            && let Err(error) = guard.watch_over(device, &mountpoint)
        {
            tracing::warn!("no process guards the mount: {error}");
        }
        let looked_at = shard.clone();
        let served = Served {
            shard: shard.clone(),
            observer: observer.clone(),
            stopping: stopping.clone(),
            events: events.clone(),
            what: format!("{} at {}", named.display(), mountpoint.display()),
        };
        let lifecycle = Lifecycle::new(shard, observer, place, received, stopping, guard);
        let started = source
            .check_nesting()
            .map_err(DaemonError::from)
            .and_then(|()| attend(device, account.clone(), signals, &events))
            .and_then(|server| {
                let scraped = scraped::start(metrics, account);
                Ok((server, scraped.map_err(system("start the thread of metrics"))?))
            });
        // The session's thread then holds the last sender.
        drop(events);
        let (_server, _scraped) = match started {
            Ok(server) => server,
            Err(error) => {
                lifecycle.abandon();
                return Err(error);
            }
        };
        let (from, at) = (named.display(), mountpoint.display());
        tracing::info!(transport = transport.name(), "mounted {from} at {at}");
        if let Some(advice) = faster_transport(&settings) {
            tracing::info!("{advice}");
        }
        if looked_at.has_log()
            && let Err(error) = lifecycle.watch_log()
        {
            tracing::warn!("nothing watches whether the log fails: cannot start a thread: {error}");
        }
        // Before the mount is announced, so that the first line shows the state before any request.
        let recording = record.map(|record| record.start(move || looked_at.stats()));
        let recording = recording.transpose().inspect_err(|error| {
            tracing::warn!("nothing is recorded: cannot start a thread: {error}");
        });
        if let Err(error) = ready() {
            tracing::warn!("the command that waited for the mount is gone ({error}): unmounting");
            lifecycle.abandon();
            return Ok(());
        }
        if let Some(reports) = &reports {
            reports.ready(served);
        }
        let ended = lifecycle.run();
        drop(recording);
        if !settings.no_recovery {
            Logs::new(&source, lock.own()).give_back_reserved();
        }
        if has_log
            && ended.log_is_void()
            && let Err(error) = Logs::new(&source, lock.own()).put_away()
        {
            tracing::warn!("cannot close the log, which has nothing to replay: {error}");
        }
        // Before the answer to `weir umount`: SOURCE can be mounted again at once.
        drop(lock);
        let brought = bucket.map_or(Ok(()), bucket::Served::end);
        let brought = brought.map_err(|error| error.to_string());
        ended.finish(brought).map_err(DaemonError::Lost)
    }
}

/// Checks that everything can be logged.
fn check_order(source: &Source, has_log: bool) -> Result<(), DaemonError> {
    if !has_log {
        return Err(DaemonError::OrderWithoutLog(source.path().to_owned()));
    }
    let names = HomeNames::new(source.as_fd()).map_err(system("look at SOURCE"))?;
    match names.are_by_handle() {
        true => Ok(()),
        false => Err(DaemonError::OrderWithoutHandles(source.path().to_owned())),
    }
}

/// Begins the record, if there is to be one.
fn begin_record(
    source: &Source,
    mountpoint: &Path,
    settings: &Settings,
) -> Result<Option<Record>, RecordError> {
    let subject = Subject {
        source: source.path(),
        mountpoint,
        write_back: settings.engine.write_back.name(),
        interval: settings.engine.write_back_interval,
    };
    settings.record.as_deref().map(|path| Record::begin(path, &subject)).transpose()
}

/// Brings home the data that the last mount logged, from any place of its log, and opens the log that this
/// mount writes.
fn open_log(
    source: &Source,
    own: Option<&OwnDirectory>,
    settings: &Settings,
) -> Result<Option<RedoLog>, DaemonError> {
    let logs = Logs::new(source, own);
    if settings.no_recovery {
        match logs.left() {
            Ok(None) => {}
            Ok(Some(path)) => tracing::warn!("the log {} is not replayed", path.display()),
            Err(error) => tracing::warn!("cannot determine whether a log is left: {error}"),
        }
        return Ok(None);
    }
    let given = log_plan::given(source, settings);
    if let Some(brought) = logs.bring_home(given, false)? {
        tell(&brought);
    }
    logs.give_back_reserved();
    let (is_new, bytes) = match log_plan::of(source, settings) {
        LogPlan::Without => {
            if source.is_writable() {
                logs.take(Wanted::None)?;
            }
            return Ok(None);
        }
        LogPlan::At(path) => return Ok(logs.take(Wanted::At(path, settings.log_bytes))?),
        LogPlan::OnThisMachine { instead } => match take_local(&logs, settings) {
            Ok(log) => return Ok(log),
            Err(error) => {
                tracing::warn!(
                    "the redo log is in SOURCE, so that each fsync waits for the network: none can be made on this \
                     machine: {error}"
                );
                (instead.is_new, instead.bytes)
            }
        },
        LogPlan::InSource(InSource { is_new, bytes }) => (is_new, bytes),
    };
    let bytes = match bytes {
        None if is_new => {
            tracing::warn!("SOURCE has too little space left for a redo log: mounted without one");
            return Ok(logs.take(Wanted::None)?);
        }
        bytes => bytes.unwrap_or(settings.log_bytes),
    };
    let exactly = !settings.log_bytes_by_default;
    match logs.take(Wanted::InSource { bytes, exactly }) {
        // No log was asked for by option, and this one cannot hold anything.
        Err(error) if is_new && settings.log == LogChoice::Auto => {
            tracing::warn!("mounted without a redo log: {error}");
            Ok(logs.take(Wanted::None)?)
        }
        taken => Ok(taken?),
    }
}

/// Opens a log on this machine for a SOURCE that is on another one.
fn take_local(logs: &Logs<'_>, settings: &Settings) -> Result<Option<RedoLog>, LogPlaceError> {
    let system = |error| LogPlaceError::System { doing: "make a place for the log", error };
    let path = local_log::path(logs.last_outside()?.as_ref()).map_err(system)?;
    let directory = File::open(path.parent().expect("it is in a directory")).map_err(system)?;
    let bytes = log_plan::local_bytes(directory.as_fd(), settings)
        .ok_or_else(|| system(io::Error::from_raw_os_error(libc::ENOSPC)))?;
    logs.take(Wanted::At(&path, bytes))
}

/// Logs the result of a replay.
fn tell(brought: &BroughtHome) {
    let recovered = &brought.report;
    if recovered.groups > 0 {
        tracing::info!(
            records = recovered.applied,
            bytes = recovered.applied_bytes,
            files = recovered.files,
            "brought home what the last mount had logged in {}",
            brought.path.display()
        );
    }
    brought.told.iter().for_each(|told| tracing::warn!("recovery: {told}"));
}

/// Advice on turning on FUSE over io_uring, if the kernel has it turned off.
pub fn faster_transport(settings: &Settings) -> Option<&'static str> {
    let setting = KernelSetting::read();
    let is_open = settings.transport.0.is_none() && setting == KernelSetting::Off;
    setting.advice().filter(|_| is_open)
}

/// Mounts. Returns the mount's device number, its observer and the transport. The end of the session arrives as
/// an event.
fn mount(
    shard: &Arc<Shard>,
    source: &Source,
    named: &Path,
    mountpoint: &Path,
    settings: &Settings,
    events: mpsc::Sender<Event>,
) -> Result<(Device, Observer, Transport), DaemonError> {
    let directory = source.as_fd().try_clone_to_owned().map_err(system("duplicate SOURCE"))?;
    let mut options = front_options(directory, named, settings);
    options.is_elsewhere = local_log::is_elsewhere(source);
    options.lists_attributes = !local_log::is_bucket(source);
    options.names_behind_by_path = settings.names.is_some() || options.is_elsewhere;
    let session = weir_fuse::mount(shard.clone(), mountpoint, options)?;
    let device = session.device_number();
    let observer = session.observer();
    let transport = session.transport();
    std::thread::Builder::new()
        .name("session".into())
        .spawn(move || {
            let ended = session.wait();
            if let Err(error) = &ended {
                tracing::error!("the connection to the kernel broke: {error}");
            }
            // If the receiver is gone, the daemon is ending.
            let _ = events.send(Event::SessionEnded { broken: ended.is_err() });
        })
        .map_err(system("start the session's thread"))?;
    let gone = || DaemonError::Vanished(mountpoint.to_owned());
    let device = device.ok_or_else(gone)?;
    // Wait until the mount answers.
    rustix::fs::stat(mountpoint).map_err(|_| gone())?;
    Ok((Device { major: device.major, minor: device.minor }, observer, transport))
}

/// What the mount table shows as the source of a mount that was just made.
fn shown_source(device: Device, mountpoint: &Path) -> Option<PathBuf> {
    let table = MountTable::read().ok()?;
    let mount = table.at(mountpoint).filter(|mount| mount.device == device)?;
    Some(mount.source.clone())
}

/// The front end's options.
fn front_options(directory: OwnedFd, path: &Path, settings: &Settings) -> weir_fuse::Options {
    let name = settings.fsname.clone().unwrap_or_else(|| path.to_string_lossy().into_owned());
    let mut options = weir_fuse::Options::new(directory, name);
    options.allow_other = settings.allow_other;
    options.read_only = settings.read_only;
    options.direct_io = settings.direct_io;
    options.transport = settings.transport.0;
    options.names_behind = settings.names != Some(NamesChoice::Sync) && !settings.read_only;
    options.names_logged = matches!(settings.names, None | Some(NamesChoice::Log));
    options.lane_users = settings.lane_users.0.clone();
    options.entry_timeout = settings.entry_timeout.unwrap_or(options.entry_timeout);
    let negative = options.negative_timeout.min(options.entry_timeout);
    options.negative_timeout = settings.negative_timeout.unwrap_or(negative);
    options.attr_timeout = settings.attr_timeout.unwrap_or(options.attr_timeout);
    for (on, yes, no) in [
        (settings.dev, "dev", "nodev"),
        (settings.suid, "suid", "nosuid"),
        (settings.exec, "exec", "noexec"),
        (settings.atime, "atime", "noatime"),
    ] {
        options.mount_options.push(if on { yes } else { no }.to_owned());
    }
    options
}

/// Starts listening on the control socket and for signals.
fn attend(
    device: Device,
    account: Arc<Account>,
    signals: signals::Blocked,
    events: &mpsc::Sender<Event>,
) -> Result<Server, DaemonError> {
    let mut server = Server::bind(device).map_err(system("create the control socket"))?;
    let asked = events.clone();
    server
        .start(move |request, responder| lifecycle::handle(request, responder, &account, &asked))
        .map_err(system("start the control socket's thread"))?;
    let signalled = events.clone();
    signals
        .listen(move |name| {
            // If the receiver is gone, the daemon is ending.
            let _ = signalled.send(Event::Signal(name));
        })
        .map_err(system("start the signal thread"))?;
    Ok(server)
}

/// A thread that panics ends the daemon. Otherwise its requests would never be answered and programs
/// would hang; when the daemon ends they get ENOTCONN, and SOURCE keeps what was home.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        tracing::error!("{panic}: a defect in weir; what was not home yet is lost");
        std::process::abort();
    }));
}
