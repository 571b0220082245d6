//! What a run has made outside of its own memory, written down before it is made.
//!
//! Owns one file a run in [`directory`], one JSON record a line: first who the run is, then
//! `list`s and `strike`s. The run holds a lock on it as long as it lives, whatever ends it, so a
//! ledger whose lock is free is that of a dead run, and what is listed there and not struck is what
//! it left.
//!
//! Invariants: a thing is listed before it is made and struck after it is gone. A line that is not
//! whole was never acted upon, for the run died in writing it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::error::{Doing, Error, Result};

/// Where root's ledgers are. Those of other users are in their runtime directory, or in /tmp where there is none.
const DIRECTORY: &str = "/run/weir-bench";

/// Where this user's ledgers are.
fn directory() -> PathBuf {
    let user = geteuid();
    if user.is_root() {
        return DIRECTORY.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => runtime.join("weir-bench"),
        _ => PathBuf::from(format!("/tmp/weir-bench-{}", user.as_raw())),
    }
}

/// Makes it if it is not there; an error if another user could write in it.
fn make_private(directory: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).doing("create", directory);
        }
        _ => {}
    }
    let status = fs::symlink_metadata(directory).doing("look at", directory)?;
    let is_own = status.is_dir() && status.uid() == geteuid().as_raw();
    if is_own && status.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("{} is not this user's own directory", directory.display()),
        remedy: "remove it".into(),
    })
}

/// Something that outlives a killed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "thing", rename_all = "kebab-case")]
pub enum Thing {
    /// The run's working directory, with its marker.
    Directory {
        /// Which.
        path: PathBuf,
    },
    /// An emulated disk: its server, its FUSE mount, its loop device.
    Disk {
        /// Where its mount point and its socket are.
        directory: PathBuf,
    },
    /// A process that may be killed.
    Process {
        /// Which.
        process: Process,
    },
    /// A file system on an emulated disk of the run.
    FileSystem {
        /// Its type as in /proc/filesystems.
        kind: String,
        /// Where.
        mountpoint: PathBuf,
    },
    /// A mount by `weir mount`, and its daemon.
    Weir {
        /// The weir program.
        program: PathBuf,
        /// What it serves.
        source: PathBuf,
        /// Where.
        mountpoint: PathBuf,
    },
    /// A directory reached through sshfs, s3fs or rclone, and the processes between it and its server, or that server: all have a path in
    /// `directory` among their arguments.
    Remote {
        /// The programs of the mount and of its server; the relay between them is the run's own program.
        programs: Vec<PathBuf>,
        /// Where the files and the mount point are.
        directory: PathBuf,
    },
    /// A memory cgroup, and whatever runs in it.
    Group {
        /// Its directory.
        path: PathBuf,
    },
}

/// Who a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process.
    pub process: Process,
    /// The machine's start it lived in: nothing but files outlives a restart.
    pub boot: String,
    /// The program it is; the servers of its disks are the same.
    pub program: PathBuf,
    /// The directory it was told to work in.
    pub dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Record {
    Run(Owner),
    List { number: u64, thing: Thing },
    Strike { number: u64 },
}

/// What a ledger says.
#[derive(Clone, Debug)]
pub struct Account {
    /// Whose it is.
    pub owner: Owner,
    /// What is listed and not struck, oldest first.
    pub things: Vec<(u64, Thing)>,
}

impl Account {
    fn read(text: &str) -> Option<Account> {
        // The last piece is empty, or the part of a line that its writer did not finish.
        let (whole, _) = text.rsplit_once('\n')?;
        let mut lines = whole.lines().map(serde_json::from_str::<Record>);
        let Ok(Record::Run(owner)) = lines.next()? else { return None };
        let mut things = Vec::new();
        for record in lines {
            match record.ok()? {
                Record::Run(_) => return None,
                Record::List { number, thing } => things.push((number, thing)),
                Record::Strike { number } => things.retain(|(other, _)| *other != number),
            }
        }
        Some(Account { owner, things })
    }
}

struct Book {
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    account: Account,
    next: u64,
}

/// A run's own ledger, or that of a dead run whose place this process has taken.
#[derive(Clone)]
pub struct Ledger(Arc<Mutex<Book>>);

impl Ledger {
    /// Begins the ledger of this process, which works in `dir`.
    pub fn begin(dir: &Path) -> Result<Ledger> {
        Ledger::begin_in(&directory(), dir)
    }

    fn begin_in(ledgers: &Path, dir: &Path) -> Result<Ledger> {
        make_private(ledgers)?;
        let owner = Owner::this(dir)?;
        let pid = owner.process.pid;
        let path = ledgers.join(format!("run-{pid}-{}.jsonl", owner.process.start));
        // Under its own name only once it is locked: without a lock it would be a dead run's.
        let unready = ledgers.join(format!("new-{pid}"));
        let file = File::create(&unready).doing("create", &unready)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).doing("lock", &unready)?;
        let account = Account { owner, things: Vec::new() };
        let mut book = Book { file, path, account, next: 0 };
        let first = Record::Run(book.account.owner.clone());
        book.append(&first)?;
        fs::rename(&unready, &book.path).doing("create", &book.path)?;
        Ok(Ledger(Arc::new(Mutex::new(book))))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists what is about to be made.
    pub fn list(&self, thing: Thing) -> Result<Listed> {
        let mut book = self.book();
        let number = book.next;
        book.next += 1;
        book.append(&Record::List { number, thing: thing.clone() })?;
        book.account.things.push((number, thing));
        Ok(Listed { ledger: self.clone(), number })
    }

    /// Strikes what is gone.
    pub fn strike(&self, number: u64) -> Result<()> {
        let mut book = self.book();
        book.append(&Record::Strike { number })?;
        book.account.things.retain(|(other, _)| *other != number);
        Ok(())
    }

    /// What it says now.
    pub fn account(&self) -> Account {
        self.book().account.clone()
    }

    /// Removes the file if nothing is listed any more. What is left is for `weir-bench clean`.
    pub fn close(&self) -> Result<()> {
        let book = self.book();
        if book.account.things.is_empty() {
            fs::remove_file(&book.path).doing("remove", &book.path)?;
        }
        Ok(())
    }
}

impl Book {
    fn append(&mut self, record: &Record) -> Result<()> {
        let mut line =
            serde_json::to_vec(record).map_err(io::Error::from).doing("write", &self.path)?;
        line.push(b'\n');
        self.file.write_all(&line).doing("write", &self.path)
    }
}

/// A thing in a ledger.
#[must_use]
pub struct Listed {
    ledger: Ledger,
    number: u64,
}

impl Listed {
    /// Strikes it: it is gone, or never was.
    pub fn strike(self) -> Result<()> {
        self.ledger.strike(self.number)
    }
}

impl Owner {
    fn this(dir: &Path) -> Result<Owner> {
        let proc = Path::new("/proc/self/stat");
        let process = Process::with_pid(std::process::id())
            .ok_or_else(|| io::Error::other("it cannot be read"))
            .doing("find this process in", proc)?;
        let program = std::env::current_exe().doing("find", Path::new("this program"))?;
        Ok(Owner { process, boot: boot(), program, dir: dir.to_owned() })
    }
}

/// Which start of the machine this is.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// A ledger found in [`directory`].
pub enum Found {
    /// Of a run that lives, or that another `weir-bench clean` is seeing to.
    Alive(Account),
    /// Of a dead run; its lock is now held here.
    Dead(Ledger),
}

/// Every ledger there is, the newest run first.
pub fn find() -> Result<Vec<Found>> {
    find_in(&directory())
}

fn find_in(ledgers: &Path) -> Result<Vec<Found>> {
    let entries = match fs::read_dir(ledgers) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing("read", ledgers)?,
    };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("run-") && name.ends_with(".jsonl") {
            found.extend(open(&path)?);
        }
    }
    let start = |found: &Found| match found {
        Found::Alive(account) => account.owner.process.start,
        Found::Dead(ledger) => ledger.account().owner.process.start,
    };
    found.sort_by_key(|one| std::cmp::Reverse(start(one)));
    Ok(found)
}

/// `None` if it went in the meantime.
fn open(path: &Path) -> Result<Option<Found>> {
    let file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.doing("open", path)?,
    };
    let free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    let text = fs::read_to_string(path).doing("read", path)?;
    let account = Account::read(&text).ok_or_else(|| Error::Missing {
        what: format!("{} is not a ledger of weir-bench", path.display()),
        remedy: "look at it, undo by hand what it lists, and remove it".into(),
    })?;
    if !free {
        return Ok(Some(Found::Alive(account)));
    }
    // An unfinished line is taken off, or the next record would be part of it.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64).doing("mend", path)?;
    let next = text.lines().count() as u64;
    let book = Book { file, path: path.to_owned(), account, next };
    Ok(Some(Found::Dead(Ledger(Arc::new(Mutex::new(book))))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> Thing {
        Thing::Group { path: name.into() }
    }

    #[test]
    fn a_living_run_is_known_by_its_lock_and_a_dead_one_by_what_it_listed() {
        let directory = tempfile::tempdir().unwrap();
        let ledgers = directory.path();
        let ledger = Ledger::begin_in(ledgers, Path::new("/nowhere/at/all")).unwrap();
        let first = ledger.list(group("a")).unwrap();
        let _second = ledger.list(group("b")).unwrap();
        first.strike().unwrap();
        let [Found::Alive(account)] = &find_in(ledgers).unwrap()[..] else { panic!("not alive") };
        assert_eq!(account.things, [(1, group("b"))]);
        assert_eq!(account.owner.dir, Path::new("/nowhere/at/all"));
        assert_eq!(account.owner.process.pid, std::process::id());
        ledger.close().unwrap();
        // As a kill would: the file is closed and stays.
        let path = ledger.book().path.clone();
        drop((ledger, _second));
        assert!(path.exists(), "something is listed");

        // A kill in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"record\":\"list\",\"num").unwrap();
        let [Found::Dead(ledger)] = &find_in(ledgers).unwrap()[..] else { panic!("not dead") };
        assert_eq!(ledger.account().things, [(1, group("b"))]);
        let [Found::Alive(_)] = &find_in(ledgers).unwrap()[..] else { panic!("taken twice") };
        ledger.strike(1).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(Account::read(&text).unwrap().things.is_empty());
        ledger.close().unwrap();
        assert!(find_in(ledgers).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_ledger_is_an_error_and_not_acted_upon() {
        let directory = tempfile::tempdir().unwrap();
        let ledgers = directory.path();
        fs::write(ledgers.join("run-1-2.jsonl"), "{\"record\":\"strike\",\"number\":1}\n").unwrap();
        assert!(find_in(ledgers).is_err());
        assert!(find_in(&ledgers.join("none")).unwrap().is_empty());
    }
}
