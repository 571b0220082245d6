//! `weir run --group NAME`: several `weir run` of one user are one session.
//!
//! The first one of a name has the session's supervisor, which listens on a socket in the abstract namespace (unix(7)): the name is given to
//! one process at a time, and is free when that ends. The second process of every other one is the root of its own tree
//! ([`weir_session::run_tree`]): it joins the daemons of the mounts, puts up the fence, gives the listener to the supervisor, and asks it to
//! settle before its front is told how the program has ended.
//!
//! Invariants:
//! - each end speaks only with a process of its own user, as the kernel says;
//! - a root that hears no more of the supervisor, or that a commit has failed, kills its tree.

use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use weir_session::{Group, Promised, Refusal, Tree, TreeEvent};

use crate::connection;
use crate::control::client::Daemon;
use crate::control::conversation::Deadline;
use crate::control::protocol;
use crate::control::server::process_of_peer;
use crate::mounts::{Device, MountTable};
use crate::run::front::{Front, Message, Report};
use crate::run::group_name::Name;
use crate::run::outcome::status_code;

/// How long a group of the same name may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// The address of a group's socket: other users have groups of their own.
fn address(name: &Name) -> io::Result<SocketAddr> {
    let user = rustix::process::geteuid().as_raw();
    SocketAddr::from_abstract_name(format!("weir/group/{user}/{name}"))
}

/// What a root asks, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Question {
    /// First: may this process join?
    Join { every_write: bool },
    /// With the listener of its fence.
    Begin,
    /// The program, or all of the tree, has ended.
    Settle,
    /// What the program inherited is about to be closed.
    ForgetInherited,
}

/// What the supervisor answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// It may, and is to tell the daemons of these mounts this secret.
    Welcome {
        secret: String,
        mounts: Vec<(u32, u32)>,
    },
    /// It may not.
    Refused {
        why: String,
    },
    /// The session is ending.
    Ending,
    Done,
    /// All that was promised is durable.
    Settled {
        report: Report,
    },
    /// To no question: a commit has failed.
    Failed {
        message: String,
    },
}

/// What a process is to the group.
pub enum Place {
    /// Its supervisor.
    First(UnixListener),
    Member(Membership),
}

/// The right to join.
pub struct Membership {
    supervisor: UnixStream,
    secret: String,
    mounts: Vec<(u32, u32)>,
    promised: Promised,
}

/// Finds the group of a name, or begins it.
///
/// # Errors
/// Why that cannot be.
pub fn enter(name: &Name, promised: Promised) -> Result<Place, String> {
    let cannot = |error: io::Error| format!("group {name} cannot be found: {error}");
    let address = address(name).map_err(cannot)?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Place::First(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(cannot(error)),
        }
        if let Ok(supervisor) = UnixStream::connect_addr(&address) {
            if !is_of_own_user(&supervisor) {
                return Err(format!("group {name} cannot be found: another user has its place"));
            }
            match ask_to_join(&supervisor, promised) {
                Ok(Answer::Welcome { secret, mounts }) => {
                    return Ok(Place::Member(Membership { supervisor, secret, mounts, promised }));
                }
                Ok(Answer::Refused { why }) => return Err(format!("group {name}: {why}")),
                // It is ending, or has ended, or its session could not begin: the next attempt may be the first of the group.
                _ => {}
            }
        }
        thread::sleep(PAUSE);
    }
    Err(format!("group {name} neither answers nor ends"))
}

fn ask_to_join(supervisor: &UnixStream, promised: Promised) -> io::Result<Answer> {
    supervisor.set_read_timeout(Some(PATIENCE))?;
    let every_write = promised == Promised::Changes;
    protocol::send(supervisor, &Question::Join { every_write })?;
    let answer = protocol::receive(supervisor)?;
    supervisor.set_read_timeout(None)?;
    Ok(answer)
}

fn is_of_own_user(connection: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(connection);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// What the supervisor of a group knows of it.
pub struct Host {
    secret: String,
    name: Name,
    roots: Mutex<Vec<u32>>,
    links: Mutex<Vec<Arc<UnixStream>>>,
}

impl Host {
    /// Of a group that has nobody else yet.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new(name: &Name) -> io::Result<Host> {
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(Host {
            secret: format!("{:032x}", u128::from_ne_bytes(random)),
            name: name.clone(),
            roots: Mutex::default(),
            links: Mutex::default(),
        })
    }

    /// By which daemons know who may join.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Whether a process is the root of a tree that has joined.
    pub fn has_root(&self, process: u32) -> bool {
        self.roots().contains(&process)
    }

    /// Tells all that have joined that a commit has failed: they kill their trees.
    pub fn tell_of_failure(&self, message: &str) {
        for link in self.links().iter() {
            let failed = Answer::Failed { message: message.to_owned() };
            // Who cannot be told sees the end of the connection.
            let _ = protocol::send(&**link, &failed);
        }
    }

    /// Lets others join from now on.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(self: &Arc<Host>, listener: UnixListener, group: Group) -> io::Result<()> {
        let (host, group) = (Arc::clone(self), Arc::new(group));
        thread::Builder::new().name("group".into()).spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let (host, group) = (Arc::clone(&host), Arc::clone(&group));
                // Who is not answered sees the end of the connection.
                let _ = thread::Builder::new().name("tree".into()).spawn(move || {
                    let _ = host.answer(&Arc::new(connection), &group);
                });
            }
        })?;
        Ok(())
    }

    fn answer(&self, link: &Arc<UnixStream>, group: &Group) -> io::Result<()> {
        link.set_write_timeout(Some(PATIENCE))?;
        let (question, _) = protocol::receive_with(link.as_fd(), Deadline::within(PATIENCE))?;
        let Question::Join { every_write } = question else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let root = process_of_peer(link.as_fd());
        let tree = match self.admit(link, root, every_write, group) {
            Ok(tree) => tree,
            Err(Refusal::Ending) => return protocol::send(&**link, &Answer::Ending),
            Err(Refusal::Because(why)) => return protocol::send(&**link, &Answer::Refused { why }),
        };
        self.roots().push(root);
        self.links().push(Arc::clone(link));
        let ended = self.serve(link, &tree, group.mounts());
        self.links().retain(|other| !Arc::ptr_eq(other, link));
        let mut roots = self.roots();
        if let Some(at) = roots.iter().position(|other| *other == root) {
            roots.swap_remove(at);
        }
        ended
    }

    fn admit(
        &self,
        link: &UnixStream,
        root: u32,
        every_write: bool,
        group: &Group,
    ) -> Result<Tree, Refusal> {
        if !is_of_own_user(link) {
            return Err(Refusal::Because("it is another user's".to_owned()));
        }
        let (mode, other) = match group.promised() {
            Promised::Changes => ("every-write", !every_write),
            Promised::Syncs => ("external", every_write),
        };
        if other {
            return Err(Refusal::Because(format!("it runs with --sync {mode}: give that, too")));
        }
        let elsewhere = || Refusal::Because("it is in another PID namespace".to_owned());
        let number = Pid::from_raw(root.cast_signed()).ok_or_else(elsewhere)?;
        let living = pidfd_open(number, PidfdFlags::empty()).map_err(|_| elsewhere())?;
        // Nobody else has the connection yet: as long as it is open, the process has its number.
        let mut state = [PollFd::new(link, PollFlags::IN)];
        if rustix::event::poll(&mut state, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0) {
            return Err(Refusal::Ending);
        }
        group.admit(root, living)
    }

    /// Answers what the root of a tree asks, until it ends.
    fn serve(&self, link: &UnixStream, tree: &Tree, mounts: Vec<(u32, u32)>) -> io::Result<()> {
        protocol::send(link, &Answer::Welcome { secret: self.secret.clone(), mounts })?;
        loop {
            let answer = match protocol::receive_with(link.as_fd(), Deadline::NEVER)? {
                (Question::Begin, Some(listener)) => {
                    tree.begin(listener)?;
                    Answer::Done
                }
                (Question::Settle, _) => match tree.settle() {
                    Some((counts, fallbacks)) => Answer::Settled {
                        report: Report::new(&[], 0, &counts, fallbacks, Some(&self.name)),
                    },
                    // All are told why.
                    None => continue,
                },
                (Question::ForgetInherited, _) => {
                    tree.forget_inherited();
                    Answer::Done
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            protocol::send(link, &answer)?;
        }
    }

    fn roots(&self) -> MutexGuard<'_, Vec<u32>> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<UnixStream>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a program in the session of a group; returns when the last process that came from it has ended.
///
/// # Errors
/// The supervisor cannot be asked, and what was started is to be killed.
pub(super) fn run_member(
    command: Command,
    membership: Membership,
    words: &[String],
    front: &Arc<Front>,
) -> io::Result<()> {
    let _daemons = match membership.join_daemons() {
        Ok(daemons) => daemons,
        Err(why) => {
            front.tell(&Message::CannotBegin { why });
            return Ok(());
        }
    };
    let link = Link::new(membership.supervisor, Arc::clone(front))?;
    let begin = |listener: OwnedFd| {
        protocol::send_with(link.supervisor.as_fd(), &Question::Begin, listener.as_fd())?;
        link.answer();
        Ok(())
    };
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    weir_session::run_tree(command, begin, |event| match event {
        TreeEvent::Started(process) => front.tell(&Message::Started { process }),
        TreeEvent::NoFence(error) => front.tell(&Message::NoFence { errno: number(error) }),
        TreeEvent::CannotRun(error) => front.tell(&Message::CannotRun { errno: number(error) }),
        TreeEvent::Ended(status) => {
            let report = Box::new(link.settle().of_program(words, status_code(status)));
            front.tell(&Message::Ended { status: status.into_raw(), report });
            link.ask(&Question::ForgetInherited);
        }
        TreeEvent::AllGone => drop(link.settle()),
    })
}

impl Membership {
    /// Tells the daemons of the session's mounts that what comes from this process is in the session, as long as the connections are open.
    fn join_daemons(&self) -> Result<Vec<OwnedFd>, String> {
        let mut joined = Vec::new();
        for (major, minor) in self.mounts.iter().copied() {
            let join = || -> io::Result<OwnedFd> {
                let table = MountTable::read()?;
                let mount =
                    table.of_device(Device { major, minor }).ok_or(io::ErrorKind::NotFound)?;
                let daemon = Daemon::connect_by_socket(mount).map_err(io::Error::other)?;
                let joined = daemon.join_session(self.secret.clone());
                let at = mount.mount_point.display();
                joined.map_err(|error| io::Error::other(format!("{at}: {error}")))
            };
            match join() {
                Ok(connection) => joined.push(connection),
                // Nobody can change it any more.
                Err(_) if connection::is_gone(Device { major, minor }) => {}
                Err(error) if self.promised == Promised::Changes => {
                    return Err(format!("a mount of the group cannot be joined: {error}"));
                }
                // Its daemon takes the tree for programs outside: they wait for what was promised.
                Err(_) => {}
            }
        }
        Ok(joined)
    }
}

/// The supervisor, for a root.
struct Link {
    supervisor: UnixStream,
    answers: Receiver<Answer>,
}

impl Link {
    fn new(supervisor: UnixStream, front: Arc<Front>) -> io::Result<Link> {
        let (answered, answers) = channel();
        let from = supervisor.try_clone()?;
        thread::Builder::new().name("group".into()).spawn(move || {
            for line in BufReader::new(from).lines() {
                let answer = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                match answer {
                    Some(Answer::Failed { message }) => {
                        weir_session::kill_descendants();
                        front.tell(&Message::Failed { message });
                        std::process::exit(0);
                    }
                    Some(answer) => drop(answered.send(answer)),
                    None => break,
                }
            }
            end();
        })?;
        Ok(Link { supervisor, answers })
    }

    fn ask(&self, question: &Question) -> Answer {
        // If it cannot be asked, there is no answer either.
        let _ = protocol::send(&self.supervisor, question);
        self.answer()
    }

    /// If there is none, the thread that receives ends this process: it may have heard why.
    fn answer(&self) -> Answer {
        self.answers.recv().unwrap_or_else(|_| {
            loop {
                thread::park();
            }
        })
    }

    /// Waits until all that was promised is durable: what the session did until then.
    fn settle(&self) -> Report {
        match self.ask(&Question::Settle) {
            Answer::Settled { report } => report,
            // No version of the supervisor says this.
            _ => end(),
        }
    }
}

/// Without the supervisor nothing may go on. The front takes the end of this process for the supervisor's.
fn end() -> ! {
    weir_session::kill_descendants();
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_supervisor_which_says_who_joins() {
        let name: Name = format!("test-{}", std::process::id()).parse().unwrap();
        let Ok(Place::First(listener)) = enter(&name, Promised::Syncs) else { panic!() };
        let answering = thread::spawn(move || {
            let (link, _) = listener.accept().unwrap();
            let (question, _) = protocol::receive_with(link.as_fd(), Deadline::NEVER).unwrap();
            assert!(matches!(question, Question::Join { every_write: true }));
            assert!(is_of_own_user(&link));
            assert_eq!(process_of_peer(link.as_fd()), std::process::id());
            protocol::send(&link, &Answer::Refused { why: "not so".into() }).unwrap();
            let (link, _) = listener.accept().unwrap();
            protocol::send(&link, &Answer::Ending).unwrap();
        });
        let refused = enter(&name, Promised::Changes).err().unwrap();
        assert!(refused.ends_with("not so"), "{refused}");
        // When the first has ended the next one is the first.
        assert!(matches!(enter(&name, Promised::Syncs), Ok(Place::First(_))));
        answering.join().unwrap();
    }
}
