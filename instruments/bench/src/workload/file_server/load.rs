//! Doing a file server's operations: each thread its own stream, at its times.
//!
//! Owns the handles. Timed are the system calls of an operation and what of the wait for them is
//! the contestant's: an operation whose time has passed when the thread comes to it counts from
//! its time; one the thread slept for counts from when the thread woke up.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, access, statvfs};

use crate::error::{Doing, Error, Result};
use crate::threads::at_once;
use crate::workload::file_server::contents::Contents;
use crate::workload::file_server::server::FileServer;
use crate::workload::file_server::set::{LINK, ROOT, Share};
use crate::workload::file_server::stream::{Operation, Stream};
use crate::workload::outcome::{Class, Outcome, Tally};

/// How late a load may be in any case before it is given up.
const LATE_SECONDS_MIN: f64 = 10.0;

/// See [`crate::workload::job::Job::run`].
pub fn run(server: &FileServer, directory: &Path) -> Result<Outcome> {
    let shares: Vec<Share> = (0..server.threads).map(|thread| server.share(thread)).collect();
    let mut sessions = Vec::new();
    for (thread, share) in (0..server.threads).zip(&shares) {
        sessions.push(Session::new(server, directory, share, thread)?);
    }
    let start = Instant::now();
    let (mut tallies, mut done, mut checked_reads) = (Vec::new(), Vec::new(), 0);
    for ended in at_once(sessions.into_iter().map(|session| move || session.run(server, start)))? {
        tallies.push(ended.tally);
        done.push(ended.operations);
        checked_reads += ended.checked_reads;
    }
    Ok(Outcome::new(&tallies, done, checked_reads))
}

/// What a thread got through.
struct Done {
    tally: Tally,
    operations: u64,
    checked_reads: u64,
}

/// One thread's part.
struct Session<'a> {
    thread: u32,
    directory: &'a Path,
    share: &'a Share,
    stream: Stream<'a>,
    contents: Contents,
    handles: HashMap<u32, File>,
    buffer: Vec<u8>,
}

impl<'a> Session<'a> {
    /// Takes the first handles, which users of a file server have before the load begins.
    fn new(
        server: &FileServer,
        directory: &'a Path,
        share: &'a Share,
        thread: u32,
    ) -> Result<Session<'a>> {
        let stream = server.stream(share, thread);
        let mut session = Session {
            thread,
            directory,
            share,
            stream,
            contents: Contents::new(server.seed, thread),
            handles: HashMap::new(),
            buffer: Vec::new(),
        };
        let first: Vec<u32> = session.stream.handles().collect();
        for file in first {
            session.handle(file)?;
        }
        Ok(session)
    }

    fn run(mut self, server: &FileServer, start: Instant) -> Result<Done> {
        let mut done = Done { tally: Tally::new(), operations: 0, checked_reads: 0 };
        let late = server.seconds.max(LATE_SECONDS_MIN);
        let give_up = start + Duration::from_secs_f64(server.seconds + late);
        let mut ended = start;
        loop {
            let place = done.operations as f64 * f64::from(server.threads) + f64::from(self.thread);
            let seconds = place / server.offered_per_s;
            if seconds >= server.seconds || ended >= give_up {
                break;
            }
            let due = start + Duration::from_secs_f64(seconds);
            let operation = self.stream.next();
            self.make_ready(operation);
            let begun = wait_until(due);
            let class = self.perform(operation)?;
            ended = Instant::now();
            done.tally.note(class, ended - begun);
            done.operations += 1;
            done.checked_reads += u64::from(self.settle(operation)?);
        }
        done.tally.seconds = (ended - start).as_secs_f64().max(server.seconds);
        Ok(done)
    }

    /// Makes the bytes of a write, before it is timed, and room for those of a read.
    fn make_ready(&mut self, operation: Operation) {
        match operation {
            Operation::Write(extent) => {
                self.buffer.resize(extent.length as usize, 0);
                self.contents.next_write(&mut self.buffer);
            }
            Operation::Read(extent) => self.buffer.resize(extent.length as usize, 0),
            _ => {}
        }
    }

    /// The system calls of one operation.
    fn perform(&mut self, operation: Operation) -> Result<Class> {
        let (share, root) = (self.share, self.directory);
        match operation {
            Operation::Read(extent) => {
                let mut buffer = std::mem::take(&mut self.buffer);
                let result =
                    self.handle(extent.file)?.read_exact_at(&mut buffer, extent.offset.into());
                self.buffer = buffer;
                result.doing("read", &share.file(root, extent.file))?;
                return Ok(Class::Read);
            }
            Operation::Write(extent) => {
                let buffer = std::mem::take(&mut self.buffer);
                let result = self.handle(extent.file)?.write_all_at(&buffer, extent.offset.into());
                self.buffer = buffer;
                result.doing("write", &share.file(root, extent.file))?;
                return Ok(Class::Write);
            }
            Operation::Lookup(file) => {
                let opened = self.open(file)?;
                self.handles.insert(file, opened);
            }
            Operation::GetAttr(file) => {
                let path = share.file(root, file);
                black_box(fs::metadata(&path).doing("look at", &path)?);
            }
            Operation::Access(file) => {
                let path = share.file(root, file);
                access(&path, Access::READ_OK).doing("ask for access to", &path)?;
            }
            Operation::SetAttr(file, mode) => {
                let path = share.file(root, file);
                fs::set_permissions(&path, Permissions::from_mode(mode))
                    .doing("set the mode of", &path)?;
            }
            Operation::ReadLink(directory) => {
                let path = share.directory(root, directory).join(LINK);
                black_box(fs::read_link(&path).doing("read", &path)?);
            }
            Operation::ReadDir(directory) => self.read_directory(directory, false)?,
            Operation::ReadDirPlus(directory) => self.read_directory(directory, true)?,
            Operation::FsStat => {
                let path = root.join(ROOT);
                black_box(statvfs(&path).doing("look up free space of", &path)?);
            }
            Operation::Create(directory, number) => {
                let path = share.directory(root, directory).join(Share::new_name(number));
                File::create_new(&path).doing("create", &path)?;
            }
            Operation::Remove(directory, number) => {
                let path = share.directory(root, directory).join(Share::new_name(number));
                fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        Ok(Class::Other)
    }

    fn read_directory(&self, directory: u32, attributes: bool) -> Result<()> {
        let path = self.share.directory(self.directory, directory);
        for entry in fs::read_dir(&path).doing("read", &path)? {
            let entry = entry.doing("read", &path)?;
            if attributes {
                black_box(entry.metadata().doing("look at", &entry.path())?);
            }
        }
        Ok(())
    }

    /// The file, opened if the thread has no handle to it yet.
    fn handle(&mut self, file: u32) -> Result<&File> {
        if !self.handles.contains_key(&file) {
            let opened = self.open(file)?;
            self.handles.insert(file, opened);
        }
        Ok(&self.handles[&file])
    }

    fn open(&self, file: u32) -> Result<File> {
        let path = self.share.file(self.directory, file);
        OpenOptions::new().read(true).write(true).open(&path).doing("open", &path)
    }

    /// After an operation, outside of its time: compares what was read, and closes the file whose
    /// handle was given up. Returns whether something was compared.
    fn settle(&mut self, operation: Operation) -> Result<bool> {
        let kept: Vec<u32> = self.stream.handles().collect();
        self.handles.retain(|file, _| kept.contains(file));
        let compared = match operation {
            Operation::Read(extent) => {
                if self.buffer != self.contents.bytes(self.share, extent) {
                    return Err(Error::Different(format!(
                        "a read of {} bytes of {} at byte {} saw something else than what is there",
                        extent.length,
                        self.share.file(self.directory, extent.file).display(),
                        extent.offset
                    )));
                }
                true
            }
            _ => false,
        };
        self.contents.apply(operation);
        Ok(compared)
    }
}

/// Sleeps until `due`, if that is to come. Returns from when on an operation due then counts.
fn wait_until(due: Instant) -> Instant {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return due;
    }
    thread::sleep(left);
    Instant::now()
}
