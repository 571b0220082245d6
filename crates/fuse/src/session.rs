//! One mount from beginning to end: made, served, unmounted.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::thread::{self, Builder, JoinHandle, available_parallelism};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use weir_engine::FileId;
use weir_shard::Shard;

use crate::descriptors::Descriptors;
use crate::file_system::{FileSystem, MountOptions};
use crate::inode::NodeId;
use crate::lane::server::Server;
use crate::lane::{Lane, LaneStatus};
use crate::reclaimer::Reclaimer;
use crate::requests::RequestCounts;
use crate::sessions::{self, SessionStatus};
use crate::transport::Transport;
use crate::transport::device::Connection;
use crate::transport::mount::{
    DeviceNumber, MountError, MountRequest, find_mount, mount as mount_device, unmount,
};
use crate::transport::uring::{KernelSetting, Queues};
use crate::write_behind::Awaited;

/// How long the kernel relies on names and attributes by default. It sees every change made through the mount; the bound
/// is for changes made directly at home.
pub const CACHE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How long the kernel relies on a name's absence by default. Most programs that look for a missing name look again at
/// once, and names made directly at home should show soon.
pub const NEGATIVE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// What to mount, and how.
#[derive(Debug)]
pub struct Options {
    /// SOURCE: a directory opened for reading.
    pub source: OwnedFd,
    /// What the mount is called in the mount table: SOURCE's path.
    pub name: String,
    /// Let other users than the daemon's use the mount.
    pub allow_other: bool,
    /// Refuse all changes.
    pub read_only: bool,
    /// Keep data out of the kernel's page cache.
    pub direct_io: bool,
    /// How long the kernel may rely on a name.
    pub entry_timeout: Duration,
    /// How long the kernel may rely on attributes.
    pub attr_timeout: Duration,
    /// How long the kernel may rely on a name's absence, in directories that do not ignore case.
    pub negative_timeout: Duration,
    /// Changes of names and attributes do not wait for home.
    pub names_behind: bool,
    /// They do not wait either where nodes are found by path: a power cut may undo at home what the log takes for done there.
    pub names_behind_by_path: bool,
    /// They are logged, if there is a log by whose recovery files are found by their handles; else syncs wait for home.
    pub names_logged: bool,
    /// Home is on another machine: where names are written back, all names of a directory are asked for at once.
    pub is_elsewhere: bool,
    /// Home's listings bring attributes, or these cost nothing: answers to listings of home have them.
    pub lists_attributes: bool,
    /// How requests are to come; if nothing is said, over io_uring where the kernel has it on.
    pub transport: Option<Transport>,
    /// Users (numbers) besides the daemon's own whose programs may use the lane: these can read all that the
    /// daemon has in memory.
    pub lane_users: Vec<u32>,
    /// Threads that serve the device; by default one for each CPU, two at least.
    pub threads: Option<NonZeroUsize>,
    /// Options of mount(8), one each.
    pub mount_options: Vec<String>,
}

impl Options {
    /// The defaults, for the directory `source`, known as `name`.
    pub fn new(source: OwnedFd, name: String) -> Options {
        Options {
            source,
            name,
            allow_other: false,
            read_only: false,
            direct_io: false,
            entry_timeout: CACHE_TIMEOUT_DEFAULT,
            attr_timeout: CACHE_TIMEOUT_DEFAULT,
            negative_timeout: NEGATIVE_TIMEOUT_DEFAULT,
            names_behind: false,
            names_behind_by_path: true,
            names_logged: false,
            is_elsewhere: false,
            lists_attributes: true,
            transport: None,
            lane_users: Vec::new(),
            threads: None,
            mount_options: Vec::new(),
        }
    }
}

/// A mount being served.
pub struct Session {
    mountpoint: PathBuf,
    number: Option<DeviceNumber>,
    transport: Transport,
    server: JoinHandle<io::Result<()>>,
    fs: Arc<FileSystem>,
}

/// Mounts on the directory `mountpoint` and serves requests there, with `shard` for the files'
/// data. Raises the process's limit of open descriptors as far as it may.
///
/// # Errors
/// See [`MountError`]; nothing is mounted then.
pub fn mount(
    shard: Arc<Shard>,
    mountpoint: &Path,
    options: Options,
) -> Result<Session, MountError> {
    let failed = |source| MountError::Mount { mountpoint: mountpoint.to_owned(), source };
    let mountpoint = std::fs::canonicalize(mountpoint).map_err(failed)?;
    let request = MountRequest {
        name: options.name,
        allow_other: options.allow_other,
        read_only: options.read_only,
        options: options.mount_options,
    };
    let known = MountOptions {
        read_only: options.read_only,
        direct_io: options.direct_io,
        entry_timeout: options.entry_timeout,
        attr_timeout: options.attr_timeout,
        negative_timeout: options.negative_timeout,
        names_behind: options.names_behind,
        names_behind_by_path: options.names_behind_by_path,
        names_logged: options.names_logged,
        is_elsewhere: options.is_elsewhere,
        lists_attributes: options.lists_attributes,
    };
    let descriptors = Descriptors::new(raise_descriptor_limit());
    let (reclaimer, queue) = Reclaimer::new(descriptors.inodes_max());
    let lane = Lane::new(&shard, options.lane_users).map_err(MountError::Lane)?;
    let fs = FileSystem::new(shard, lane, &options.source, known, descriptors, reclaimer);
    let fs = Arc::new(fs.map_err(MountError::Source)?);
    fs.shard.settle_own_home();
    if let Some(behind) = &fs.write_behind {
        let of = Arc::downgrade(&fs);
        let for_log = Weak::clone(&of);
        behind.start(
            move || of.upgrade().is_some_and(|fs| fs.bring_names_home()),
            move |job| {
                if let Some(fs) = for_log.upgrade()
                    && let Some(behind) = &fs.write_behind
                {
                    fs.work_on_log(behind, job);
                }
            },
        );
        if fs.options.is_elsewhere {
            let of = Arc::downgrade(&fs);
            behind.listers.start(move |directory| of.upgrade()?.list_ahead(directory));
        }
    }

    let device = mount_device(&mountpoint, &request)?;
    let served = (|| {
        let threads = options.threads.unwrap_or_else(default_threads);
        let queues = prepare_queues(&fs, &device, options.transport)?;
        let connection = Connection::new(Arc::clone(&fs), device, threads.get(), queues)
            .map_err(MountError::Connection)?;
        let transport = connection.transport();
        let kernel = connection.kernel_cache();
        let cleaner = {
            let fs = Arc::clone(&fs);
            Builder::new()
                .name("weir-reclaimer".to_owned())
                .spawn(move || queue.run(&fs, &kernel))
                .map_err(MountError::Threads)?
        };
        let lane = Server::start(&fs).map_err(MountError::Lane)?;
        let fs = Arc::clone(&fs);
        let serve = move || {
            let served = connection.serve();
            if let Some(lane) = lane {
                lane.stop();
            }
            fs.reclaimer.stop();
            let cleaned = cleaner.join();
            served.and(cleaned.map_err(|_| io::Error::other("the reclaimer's thread panicked")))
        };
        let server = Builder::new().name("weir-mount".to_owned()).spawn(serve);
        Ok((server.map_err(MountError::Threads)?, transport))
    })();
    match served {
        Ok((server, transport)) => {
            let number = find_mount(&mountpoint).ok().flatten();
            Ok(Session { mountpoint, number, transport, server, fs })
        }
        Err(error) => {
            // No thread serves the mount, so it cannot stay in use for long.
            if let Err(error) = unmount(&mountpoint, true) {
                tracing::warn!("{error}");
            }
            Err(error)
        }
    }
}

impl Session {
    /// Where it is mounted, with no symbolic link in it.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The device number that stat(2) shows of files in the mount, for finding the mount again.
    /// `None` if it is not known.
    pub fn device_number(&self) -> Option<DeviceNumber> {
        self.number
    }

    /// Reports on the mount. May be kept longer than the session.
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.fs))
    }

    /// The transport in use.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the mount is gone.
    pub fn is_over(&self) -> bool {
        self.server.is_finished()
    }

    /// Unmounts. With `lazy` also if the mount is in use: it then disappears from the tree of names at once, and ends with
    /// its last user. Dirty data stays in the shard: call [`Shard::sync_all`] before, to report errors, and again after.
    ///
    /// # Errors
    /// [`MountError::Unmount`] if the mount is in use, or the helper refused. It is not an error if the mount has ended
    /// already.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        if self.is_over() {
            return Ok(());
        }
        let there = find_mount(&self.mountpoint).ok().flatten();
        if self.number.is_some() && there != self.number {
            return Ok(());
        }
        unmount(&self.mountpoint, lazy)
    }

    /// Waits until the mount has ended, in any way; then brings the remaining data home, and closes the files. Data that
    /// home refuses stays in the shard: [`Shard::sync_all`] reports it. Names that it refuses are tried again until
    /// [`Observer::stop_names`]. The shard must not be stopped before.
    ///
    /// # Errors
    /// The connection to the kernel failed, or a thread panicked.
    pub fn wait(self) -> io::Result<()> {
        let served = self.server.join();
        self.fs.no_requests_come();
        let mut named = Ok(());
        if let Some(behind) = &self.fs.write_behind {
            behind.listers.stop();
            // Data of files that home does not have goes there with their names.
            named = behind.wait(&Awaited::All);
        }
        let (sender, receiver) = channel();
        self.fs.shard.sync_all(move |synced| {
            // The receiver lives until this is sent.
            let _ = sender.send(synced);
        });
        if let Err(error) = named {
            tracing::warn!("not all names could be brought home: {error}");
            // Before it was asked, nothing told it what it need not wait for.
            self.fs.fail_files_that_home_lacks();
        }
        // Fails only if the shard is stopped in the meantime.
        if let Ok(Err(error)) = receiver.recv() {
            tracing::warn!("not everything could be written home: {error}");
        }
        self.fs.close_all();
        served
            .unwrap_or_else(|_| Err(io::Error::other("the thread that serves the mount panicked")))
    }
}

/// Reports on a mount's requests and on its lane.
#[derive(Clone)]
pub struct Observer(Arc<FileSystem>);

impl Observer {
    /// The state of the lane; `None` if there is no lane.
    pub fn lane(&self) -> Option<LaneStatus> {
        let lane = self.0.lane.as_ref()?;
        Some(lane.status(self.0.shard.posted()))
    }

    /// The path of a file below the mount, if it is known without asking home; words, if it has no name.
    pub fn path_of(&self, file: FileId) -> Option<PathBuf> {
        self.0.known_path(NodeId(file.0))
    }

    /// How many requests of each kind the kernel sent.
    pub fn requests(&self) -> RequestCounts {
        self.0.requests.counts()
    }

    /// Sessions of programs on the mount.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.0.sessions.status()
    }

    /// To be called when the mount has ended and everything is durable: sessions need not wait for what was promised to them.
    pub fn tell_sessions_that_all_is_durable(&self) {
        self.0.sessions.all_is_durable();
    }

    /// Begins a session of programs: syncs by processes that come from process `supervisor`, a number of this process's PID namespace, are
    /// promises from now on, with `every_change` all their changes. The descriptor is for the supervisor ([`weir_lane::promises`]). Processes
    /// that know `group` may join it.
    ///
    /// # Errors
    /// The mount has no one order, the supervisor is in another PID namespace, or there is no memory.
    pub fn begin_session(
        &self,
        supervisor: u32,
        every_change: bool,
        group: Option<String>,
    ) -> io::Result<(SessionOfPrograms, OwnedFd)> {
        if !self.0.shard.is_ordered() {
            return Err(io::Error::other("it is mounted without --order all"));
        }
        if supervisor == 0 {
            return Err(io::Error::other("the session is in another PID namespace"));
        }
        // Members are found by their numbers in /proc.
        let own = std::fs::read_link("/proc/self")?;
        if own != Path::new(&std::process::id().to_string()) {
            return Err(io::Error::other("the daemon's /proc is of another PID namespace"));
        }
        let (session, memory) = self.0.sessions.add(supervisor, every_change, group)?;
        Ok((SessionOfPrograms { fs: Arc::clone(&self.0), session }, memory))
    }

    /// What comes from process `root`, a number as above, belongs to the session with this group from now on.
    ///
    /// # Errors
    /// No session has this group, or the process is in another PID namespace.
    pub fn join_session(&self, root: u32, group: &str) -> io::Result<TreeOfPrograms> {
        if root == 0 {
            return Err(io::Error::other("the program is in another PID namespace"));
        }
        let session = self.0.sessions.join(root, group);
        let session = session.ok_or_else(|| io::Error::other("there is no such session"))?;
        Ok(TreeOfPrograms { fs: Arc::clone(&self.0), session, root })
    }

    /// Runs `then` when all writes that programs posted before this call are applied. To be called before a sync of
    /// everything.
    pub fn when_applied(&self, then: impl FnOnce() + Send + 'static) {
        self.0.all_drained(then);
    }

    /// Runs `then` when home has all names, or has refused some. Those that are changed meanwhile are waited for, too.
    pub fn when_named(&self, then: impl FnOnce(io::Result<()>) + Send + 'static) {
        match &self.0.write_behind {
            None => then(Ok(())),
            Some(behind) => {
                behind.when(Awaited::All, |named| then(named.map_err(io::Error::other)))
            }
        }
    }

    /// Runs `then` when home has all names that were changed until now, or has refused some of them. Where there is a log, also
    /// one that has failed, they are durable there, and `then` runs on another thread.
    pub fn when_named_so_far(&self, then: impl FnOnce(io::Result<()>) + Send + 'static) {
        let Some(behind) = &self.0.write_behind else { return then(Ok(())) };
        let until = behind.until_now();
        if !behind.has_log() {
            let awaited = Awaited::Until(until);
            return behind.when(awaited, |named| then(named.map_err(io::Error::other)));
        }
        let fs = Arc::clone(&self.0);
        thread::spawn(move || {
            let behind = fs.write_behind.as_ref().expect("there are names");
            then(fs.settle_names_until(behind, until, true).map_err(io::Error::other));
        });
    }

    /// The log has failed, and a sync has brought home what was changed before it began. If `is_ending`, programs' changes of names go
    /// home at once from now on, after what is not there yet, so that nothing is left to be replayed; if not, they are logged.
    pub fn set_log_ending(&self, is_ending: bool) {
        if let Some(behind) = &self.0.write_behind {
            behind.set_log_ending(is_ending);
        }
    }

    /// Brings all names home, durably, so that the redo log is not needed for them. Blocks.
    ///
    /// # Errors
    /// Why home refuses one, or cannot be synced.
    pub fn settle_names(&self) -> io::Result<()> {
        self.0.settle_names().map_err(|errno| io::Error::from_raw_os_error(errno.code()))
    }

    /// Home need not get what it does not have once the mount has ended: what cannot be brought there then, names and data of
    /// files that it does not have, is not waited for. With a log, what was changed before is durable there.
    pub fn give_up_names(&self) {
        self.0.give_up_names();
    }

    /// Nothing more is done to names at home. To be called after [`Session::wait`], before the shard is stopped.
    pub fn stop_names(&self) {
        if let Some(behind) = &self.0.write_behind {
            behind.stop();
        }
    }

    /// Whether what home does not have of names and attributes is in the log, from which the next mount brings it home.
    pub fn names_are_logged(&self) -> bool {
        self.0.write_behind.as_ref().is_some_and(|behind| behind.is_logged())
    }

    /// Names that home refused, at most `most`, each as a path below the mount.
    pub fn names_refused(&self, most: usize) -> Vec<String> {
        let refused = self.0.write_behind.as_ref().map(|behind| behind.refused(most));
        let path = |above, below: PathBuf| self.0.path_at_home(above).join(below);
        let described = refused.into_iter().flatten();
        described
            .map(|(above, below, error)| format!("{}: {error}", path(above, below).display()))
            .collect()
    }

    /// What home does not have of names and attributes, at most `most` paths below the mount.
    pub fn names_left(&self, most: usize) -> Vec<String> {
        let left = self.0.write_behind.as_ref().map(|behind| behind.left(most));
        let path = |above, below: PathBuf| self.0.path_at_home(above).join(below);
        left.into_iter()
            .flatten()
            .map(|(above, below)| path(above, below).display().to_string())
            .collect()
    }

    /// How many names somebody else took in SOURCE where the mount wanted something else, and the last few of them, as paths
    /// below the mount.
    pub fn names_taken(&self) -> (u64, Vec<String>) {
        let Some(behind) = &self.0.write_behind else { return (0, Vec::new()) };
        let conflicts = behind.conflicts();
        let paths = conflicts.last.iter().map(|path| path.display().to_string());
        (conflicts.count, paths.collect())
    }

    /// How much of names and attributes is not home yet, and how much of that home refused.
    pub fn names_pending(&self) -> Option<(usize, usize)> {
        Some(self.0.write_behind.as_ref()?.dirty())
    }
}

/// A session of programs on a mount, until it is dropped.
pub struct SessionOfPrograms {
    fs: Arc<FileSystem>,
    session: Arc<sessions::Session>,
}

impl Drop for SessionOfPrograms {
    fn drop(&mut self) {
        self.fs.sessions.remove(&self.session);
    }
}

/// A program that has joined a session, with all that comes from it, until this is dropped.
pub struct TreeOfPrograms {
    fs: Arc<FileSystem>,
    session: Arc<sessions::Session>,
    root: u32,
}

impl Drop for TreeOfPrograms {
    fn drop(&mut self) {
        self.fs.sessions.leave(self.root, &self.session);
    }
}

impl fmt::Debug for TreeOfPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeOfPrograms({})", self.root)
    }
}

impl fmt::Debug for SessionOfPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(f)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.mountpoint.display())
    }
}

/// The queues of FUSE over io_uring, if they are wanted and available.
///
/// # Errors
/// [`MountError::NoIoUring`] if io_uring was asked for and is not available.
fn prepare_queues(
    fs: &Arc<FileSystem>,
    device: &OwnedFd,
    wanted: Option<Transport>,
) -> Result<Option<Queues>, MountError> {
    if wanted == Some(Transport::Device) {
        return Ok(None);
    }
    let prepared = match KernelSetting::read().advice() {
        None => Queues::prepare(fs, device.as_fd()).map_err(|error| error.to_string()),
        Some(_) if wanted.is_none() => return Ok(None),
        Some(advice) => Err(advice.to_owned()),
    };
    match prepared {
        Ok(queues) => Ok(Some(queues)),
        Err(reason) if wanted == Some(Transport::IoUring) => Err(MountError::NoIoUring(reason)),
        Err(reason) => {
            tracing::warn!("FUSE over io_uring cannot be used, serving the device: {reason}");
            Ok(None)
        }
    }
}

fn default_threads() -> NonZeroUsize {
    const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);
    available_parallelism().unwrap_or(TWO).max(TWO)
}

/// Raises the limit of open descriptors to the most that is allowed, and returns it.
fn raise_descriptor_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if geteuid().is_root() {
        let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
        if let Some(most) = most.and_then(|most| most.trim().parse().ok()) {
            let most = Some(limit.maximum.map_or(most, |maximum: u64| maximum.max(most)));
            let wanted = Rlimit { current: most, maximum: most };
            if setrlimit(Resource::Nofile, wanted).is_ok() {
                limit = wanted;
            }
        }
    }
    if limit.current != limit.maximum {
        let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, wanted).is_ok() {
            limit = wanted;
        }
    }
    limit.current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX))
}
