//! The supervisor: starts the program behind the fence, answers the calls that the fence stops, and ends the session.

#![allow(unsafe_code, reason = "a parent's death signal is set between fork and execve")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};
use rustix::time::ClockId;

use crate::admission::Admission;
use crate::call::Call;
use crate::commit::{Commits, Counts, Failure};
use crate::judge::Judge;
use crate::kill::kill_descendants;
use crate::listener::{Listener, Stopped};
use crate::mounts::{FindMounts, Mount, Mounts, Ordered, Promised};
use crate::task::{Place, Synced, Task, lives, write_out};

/// What happens to a session.
#[derive(Debug)]
pub enum Event {
    /// The program runs, as this process.
    Started(u32),
    /// The fence cannot be put up; nothing was started.
    NoFence(io::Error),
    /// What was asked for cannot be promised, for this reason; nothing was started.
    CannotBegin(String),
    /// The program cannot be run.
    CannotRun(io::Error),
    /// The program has ended, and all that was promised is durable. Other members may go on.
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// What was done until then.
        counts: Counts,
        /// Mounts whose syncs were done at once, each with the reason.
        fallbacks: Vec<String>,
    },
    /// A commit failed, or a daemon died, and the session was killed: nothing that was promised has left it since.
    Failed {
        /// Of which mount.
        mount: Ordered,
        /// Why.
        failure: Failure,
    },
}

pub(crate) enum Step {
    Tell(Event),
    Exited(ExitStatus),
    AllGone,
    /// Another tree of the session has ended.
    TreeEnded,
}

/// Lets the programs of other processes into a session (`group`).
pub struct Group {
    pub(crate) session: Arc<Session>,
    pub(crate) steps: Sender<Step>,
}

/// Shared by the threads.
pub(crate) struct Session {
    pub(crate) commits: Commits,
    fallbacks: Mutex<Vec<String>>,
    judge: Mutex<Judge>,
    mounts: Mutex<Mounts>,
    pub(crate) admission: Admission,
}

impl Session {
    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().expect("no thread panics")
    }

    pub(crate) fn mounts(&self) -> MutexGuard<'_, Mounts> {
        self.mounts.lock().expect("no thread panics")
    }

    /// Mounts on which nothing is promised, each with the reason.
    pub(crate) fn fallbacks(&self) -> Vec<String> {
        self.fallbacks.lock().expect("no thread panics").clone()
    }

    /// A mount on which nothing is promised.
    fn note_fallback(&self, reason: String) {
        let mut fallbacks = self.fallbacks.lock().expect("no thread panics");
        if !fallbacks.contains(&reason) {
            fallbacks.push(reason);
        }
    }
}

/// Runs a program as a session, in this process, which must have no other children and see itself in /proc ([`crate::sees_itself`]);
/// returns when the last member has ended, or was killed. `tell` is called with what happens; and `open` once the program runs, with what
/// lets the programs of other processes into the session.
pub fn run(
    command: Command,
    finder: Box<dyn FindMounts>,
    promised: Promised,
    open: impl FnOnce(Group),
    mut tell: impl FnMut(Event),
) -> io::Result<()> {
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    let inherited = inherited()?;
    let session = Arc::new(Session {
        commits: Commits::new()?,
        fallbacks: Mutex::new(Vec::new()),
        judge: Mutex::new(Judge::new()?),
        mounts: Mutex::new(Mounts::new(finder, promised)),
        admission: Admission::default(),
    });
    if let Err(reason) = join_all(&session) {
        tell(Event::CannotBegin(reason));
        return Ok(());
    }
    let (steps, happened) = channel();
    let group = Group { session: Arc::clone(&session), steps: steps.clone() };
    let (listeners, made) = channel();
    {
        let steps = steps.clone();
        thread::Builder::new()
            .name("program".into())
            .spawn(move || run_program(command, &listeners, &steps))?;
    }
    let open = || open(group);
    let Ok(listener) = made.recv() else {
        return end(&happened, &session, &mut tell, open, inherited);
    };
    receive_calls(&session, listener, None)?;
    {
        let session = Arc::clone(&session);
        thread::Builder::new().name("commits".into()).spawn(move || {
            let _ends = EndsByPanic;
            let (mount, failure) = session.commits.run();
            kill_descendants();
            // The receiver is gone if the session has ended.
            let _ = steps.send(Step::Tell(Event::Failed { mount, failure }));
        })?;
    }
    end(&happened, &session, &mut tell, open, inherited)
}

/// Starts a thread that receives the calls of one tree, as long as its root lives; `None`: that is this process.
pub(crate) fn receive_calls(
    session: &Arc<Session>,
    listener: Listener,
    root: Option<OwnedFd>,
) -> io::Result<()> {
    let (session, listener) = (Arc::clone(session), Arc::new(listener));
    let mut receiver = CallReceiver { session, listener, root };
    thread::Builder::new().name("calls".into()).spawn(move || receiver.run())?;
    Ok(())
}

/// How long a daemon may take to answer before there is no session.
const DAEMONS_ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// How long a daemon that did not answer is left alone.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Has the daemons of all mounts with one order count what they promise. One that is just stopped or killed is asked again: what it
/// does not count matters only while it lives.
///
/// # Errors
/// One does not, and what it would count cannot be known otherwise.
pub(crate) fn join_all(session: &Session) -> Result<(), String> {
    let until = Instant::now() + DAEMONS_ANSWER_WITHIN;
    loop {
        match join_those_that_answer(session) {
            Err(_) if Instant::now() < until => thread::sleep(ASK_AGAIN_AFTER),
            result => return result,
        }
    }
}

fn join_those_that_answer(session: &Session) -> Result<(), String> {
    let mounts = session.mounts();
    let counts_changes = mounts.promised() == Promised::Changes;
    for mount in mounts.all() {
        match mount {
            Mount::Ordered(mount) => match join(session, &mounts, &mount) {
                Err(error) if counts_changes => {
                    return Err(format!("{}: {error}", mount.path.display()));
                }
                // Its syncs are done at once.
                _ => {}
            },
            Mount::Unordered(reason) if counts_changes => session.note_fallback(reason),
            Mount::Unknown(reason) if counts_changes => return Err(reason),
            _ => {}
        }
    }
    Ok(())
}

/// The same of one mount.
fn join(session: &Session, mounts: &Mounts, mount: &Ordered) -> io::Result<()> {
    if !session.commits.has_joined(mount.device) {
        // First: it may promise something before it answers.
        let _joining = session.commits.joining();
        let joined = mounts.join(mount)?;
        session.judge().note_daemon(joined.connection.as_fd())?;
        session.commits.join(mount.clone(), joined)?;
    }
    Ok(())
}

/// Waits for the end of the program, and of the session.
fn end(
    happened: &Receiver<Step>,
    session: &Session,
    tell: &mut impl FnMut(Event),
    open: impl FnOnce(),
    inherited: Vec<OwnedFd>,
) -> io::Result<()> {
    let (mut open, mut inherited) = (Some(open), Some(inherited));
    let mut is_own_gone = false;
    while let Ok(step) = happened.recv() {
        match step {
            Step::Tell(event) => {
                let is_last =
                    matches!(event, Event::NoFence(_) | Event::CannotRun(_) | Event::Failed { .. });
                let has_begun = matches!(event, Event::Started(_));
                tell(event);
                if is_last {
                    return Ok(());
                }
                if let Some(open) = open.take_if(|_| has_begun) {
                    open();
                }
            }
            // After a failure, Failed comes as well.
            Step::Exited(status) => {
                if session.commits.settle() {
                    let (counts, fallbacks) = (session.commits.counts(), session.fallbacks());
                    tell(Event::Ended { status, counts, fallbacks });
                    session.judge().forget_inherited(std::process::id());
                    close(inherited.take().unwrap_or_default())?;
                }
            }
            Step::AllGone | Step::TreeEnded => {
                is_own_gone |= matches!(step, Step::AllGone);
                if is_own_gone && session.admission.close() && session.commits.settle() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Descriptors that the program inherits beside the standard ones.
pub(crate) fn inherited() -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // SAFETY: the call takes a number, and fails if nothing is open by it.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if fd > 2 && flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: what this program opens is closed on execve(2): nobody here owns the descriptor.
            found.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Ok(found)
}

/// Closes this process's copies of the descriptors that the program inherited. If it kept them, a reader outside would wait for the end
/// of a pipe that every member has closed.
pub(crate) fn close(inherited: Vec<OwnedFd>) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    drop(inherited);
    Ok(())
}

/// Starts the program from behind the fence, and reaps it and all members that are left without a parent. The thread does not
/// end: the program is killed when its parent's thread ends.
pub(crate) fn run_program(
    mut command: Command,
    listeners: &Sender<Listener>,
    steps: &Sender<Step>,
) {
    let tell = |step| drop(steps.send(step));
    match Listener::around_this_thread() {
        Ok(listener) => drop(listeners.send(listener)),
        Err(error) => return tell(Step::Tell(Event::NoFence(error))),
    }
    // SAFETY: it makes one system call.
    unsafe {
        command
            .pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let program = match command.spawn() {
        Ok(child) => child.id(),
        Err(error) => return tell(Step::Tell(Event::CannotRun(error))),
    };
    tell(Step::Tell(Event::Started(program)));
    // Members may outlive the program, and leave its directory so that its file system can be unmounted. If this fails, that waits.
    let _ = rustix::process::chdir(c"/");
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((process, status))) if process.as_raw_pid() as u32 == program => {
                tell(Step::Exited(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    tell(Step::AllGone);
    loop {
        thread::park();
    }
}

/// What the calling thread has used of a processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The thread that receives stopped calls.
struct CallReceiver {
    session: Arc<Session>,
    listener: Arc<Listener>,
    /// A descriptor of the process (pidfd_open(2)).
    root: Option<OwnedFd>,
}

/// If a thread that has it panics the process ends, and with it the session: nobody would answer its calls.
struct EndsByPanic;

impl Drop for EndsByPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl CallReceiver {
    fn run(&mut self) {
        let _ends = EndsByPanic;
        self.listener.begin();
        loop {
            match self.listener.receive() {
                // Daemons do not count any more what the tree changes: nothing of it may leave.
                Ok(Some(_)) if self.root.as_ref().is_some_and(|root| !lives(root)) => return,
                Ok(Some(stopped)) => self.answer(stopped),
                Ok(None) if self.listener.has_ended() => return,
                Ok(None) => {}
                Err(error) => {
                    // The front takes the end of this process for a failure, and kills the session.
                    eprintln!("weir: the calls of the session cannot be received: {error}");
                    std::process::exit(1);
                }
            }
        }
    }

    fn answer(&mut self, stopped: Stopped) {
        self.session.commits.count_call();
        let trusts_less = self.session.judge().note(&stopped);
        if trusts_less {
            self.session.commits.distrust();
        }
        if self.session.judge().disconnects(&stopped) {
            self.session.commits.disconnected();
        }
        if let Some(errno) = stopped.call.refused() {
            return self.listener.fail(&stopped, errno);
        }
        match stopped.call {
            Call::Sync { fd } => self.sync(stopped, fd),
            Call::SyncFileSystem { fd } => {
                if let Some(mount) = self.ordered(&stopped, fd) {
                    self.session.commits.promise(vec![mount]);
                }
                // The kernel begins to write what mappings changed; a mount by FUSE is not asked for more.
                self.let_kernel_sync(stopped, fd, Synced::FileSystem);
            }
            Call::WriteOut { fd } => self.let_kernel_sync(stopped, fd, Synced::File),
            Call::SyncAll => {
                // What others have changed there it does not cover on a FUSE mount.
                let commits = &self.session.commits;
                let ordered = self.session.mounts().ordered();
                for mount in ordered {
                    let joined = join(&self.session, &self.session.mounts(), &mount);
                    if let Err(error) = joined {
                        self.session.note_fallback(format!("{}: {error}", mount.path.display()));
                    }
                }
                let mounts = commits.changed();
                if !mounts.is_empty() {
                    self.session.commits.promise(mounts);
                }
                // The kernel syncs all other file systems. If it waited because one may tell a server of it, each sync(2) would wait.
                self.listener.pass(&stopped);
            }
            // Programs then read and write, as where the kernel cannot do it.
            Call::Moves { from, into }
                if gives_pages(&stopped, from, into) || self.leads_outside(&stopped, into) =>
            {
                self.listener.fail(&stopped, libc::EINVAL);
            }
            Call::Sends { fd } if is_stream(&stopped, fd) => {
                self.listener.fail(&stopped, libc::EINVAL);
            }
            Call::AsksForDoor { what } => self.give_memory(&stopped, what),
            Call::AsksWhetherOutside { fd } => {
                let is_outside = self.session.judge().leads_outside(&stopped, fd);
                self.listener.answer(&stopped, is_outside.into());
            }
            Call::Pipe { address, flags } => {
                self.session.judge().make_pipe(&self.listener, &stopped, address, flags);
            }
            _ => {
                let promised = self.session.commits.promised();
                if promised.is_empty() {
                    return self.listener.pass(&stopped);
                }
                let began = processor_time();
                let shows_locks = self.session.commits.is_open_outside();
                if self.session.judge().stays_inside(&stopped, &promised, shows_locks)
                    && self.listener.still_waits(&stopped)
                {
                    self.listener.pass(&stopped);
                    self.session.commits.judged(processor_time().saturating_sub(began));
                } else {
                    self.session.commits.wait(&self.listener, stopped);
                }
            }
        }
    }

    /// Gives a member what it asked for.
    fn give_memory(&self, stopped: &Stopped, what: u64) {
        let given = self.session.commits.memory_for_member(what).ok_or(io::ErrorKind::NotFound);
        let given = given.map_err(io::Error::from);
        match given.and_then(|memory| self.listener.add_descriptor(stopped, memory.as_fd(), true)) {
            Ok(number) => self.listener.answer(stopped, number.into()),
            Err(_) => self.listener.fail(stopped, libc::ENOSYS),
        }
    }

    /// Whether a call moves to somebody outside, and also what comes while it is under way.
    fn leads_outside(&mut self, stopped: &Stopped, into: i32) -> bool {
        let is_in_order = Task(stopped.thread).descriptor(into).is_ok_and(|place| {
            place.kind == FileType::RegularFile
                && matches!(self.session.mounts().of(place), Mount::Ordered(_))
        });
        !is_in_order && self.session.judge().leads_outside(stopped, into)
    }

    /// Promises, where the mount has an order, else lets the kernel sync.
    fn sync(&mut self, stopped: Stopped, fd: i32) {
        match self.promise(&stopped, fd) {
            Ok(Some(mount)) if self.session.commits.is_waited_for(&mount) => {
                self.listener.pass(&stopped);
            }
            Ok(Some(mount)) => {
                self.session.commits.promise(vec![mount]);
                self.listener.succeed(&stopped);
            }
            Ok(None) => self.let_kernel_sync(stopped, fd, Synced::File),
            Err(errno) => self.listener.fail(&stopped, errno.raw_os_error()),
        }
    }

    /// Lets the kernel sync, when what was promised is durable if the file's server or daemon is told.
    fn let_kernel_sync(&self, stopped: Stopped, fd: i32, synced: Synced) {
        let task = Task(stopped.thread);
        let commits = &self.session.commits;
        let has_joined = || task.descriptor(fd).is_ok_and(|place| commits.has_joined(place.device));
        let is_promised = !commits.promised().is_empty();
        if is_promised && !has_joined() && task.sync_is_noticed(fd, synced).unwrap_or(true) {
            commits.wait(&self.listener, stopped);
        } else {
            self.listener.pass(&stopped);
        }
    }

    /// The mount, when what memory-mapped pages of the file have was given to its daemon, and so has its place in the order.
    /// `None` if the kernel must sync; errors are those of the sync.
    fn promise(&mut self, stopped: &Stopped, fd: i32) -> Result<Option<Ordered>, Errno> {
        let Some(mount) = self.ordered(stopped, fd) else { return Ok(None) };
        // Its daemon is no member.
        let is_of_mount = |place: Place| place.device == mount.device;
        let Ok(file) = Task(stopped.thread).duplicate(fd, is_of_mount) else { return Ok(None) };
        if !self.listener.still_waits(stopped) {
            return Ok(None);
        }
        match write_out(file.as_fd()) {
            // Of a FIFO or a socket: the kernel knows what fsync(2) says of it.
            Err(Errno::SPIPE) => return Ok(None),
            written => written?,
        }
        // Before Linux 6.16 the pages may still be on their way: closing the duplicate waits for them (`fuse_flush`).
        drop(file);
        Ok(Some(mount))
    }

    /// The mount of a descriptor's file, if a sync is a promise there.
    fn ordered(&mut self, stopped: &Stopped, fd: i32) -> Option<Ordered> {
        let place = Task(stopped.thread).descriptor(fd).ok()?;
        if !self.listener.still_waits(stopped) {
            return None;
        }
        let mount = self.session.mounts().of(place);
        match mount {
            Mount::Ordered(mount) => {
                let joined = join(&self.session, &self.session.mounts(), &mount);
                match joined {
                    Ok(()) => Some(mount),
                    Err(error) => {
                        let place = mount.path.display();
                        self.session.note_fallback(format!("{place}: {error}"));
                        None
                    }
                }
            }
            Mount::Unordered(reason) | Mount::Unknown(reason) => {
                self.session.note_fallback(reason);
                None
            }
            Mount::Other => None,
        }
    }
}

/// Whether a pipe or socket gets pages of a file. Also among members: an end of it may be passed out before they are read. What is in pipes
/// is never changed, as only such calls, sendfile(2) and vmsplice(2) bring pages there.
fn gives_pages(stopped: &Stopped, from: i32, into: i32) -> bool {
    let from = Task(stopped.thread).descriptor(from);
    let is_from_stream =
        from.is_ok_and(|place| matches!(place.kind, FileType::Fifo | FileType::Socket));
    is_stream(stopped, into) && !is_from_stream
}

/// Whether a descriptor may be a pipe or socket.
fn is_stream(stopped: &Stopped, fd: i32) -> bool {
    match Task(stopped.thread).descriptor(fd) {
        Ok(place) => matches!(place.kind, FileType::Fifo | FileType::Socket),
        // The call will fail.
        Err(Errno::NOENT) => false,
        // Whoever may not be looked into may have one.
        Err(_) => true,
    }
}
