//! The server of an emulated disk: a FUSE file system with one file, the disk's content, which the
//! loop device above it reads and writes, and the thread that answers requests when they are due.
//!
//! Owns the clock and the answers that are outstanding. A request is carried out by the thread that
//! received it and answered there if it is due; otherwise by the thread that keeps time, which
//! sleeps to the next deadline and wakes earlier by as much as it lately woke too late.
//!
//! Flushes come as FSYNC. The loop driver hands over nothing that came behind a flush until the
//! flush is answered, as with ATA drives, whose FLUSH CACHE is not queued.
//!
//! Lock order: there is one lock.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::InitFlags;
use weir_drive::parameters::Ns;
use weir_drive::{Counts, Drive, Image, Lost, Model, PAGE_BYTES, Ways};

use crate::fuse_server::{
    self, Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, Limits, OpenFlags, ReplyData,
    ReplyEmpty, ReplyWrite, Served,
};

/// The name of the one file.
pub const FILE: &str = "disk";
/// What the mount is called in the table of mounts.
pub const NAME: &str = "weir-bench-disk";

const INODE: INodeNo = INodeNo(2);
const FOREVER: Duration = Duration::from_secs(86_400);
/// The largest request; the loop device's are no larger than a few of these.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// As many as a loop device has under way.
const BACKGROUND_MAX: u16 = 128;
/// Threads that receive requests: as many as are needed to take in one while another is copied.
const RECEIVERS: usize = 2;
/// No deadline is met by waking earlier than this before it.
const EARLY_MAX: Ns = 100_000;
/// For a request that is alone, no more than this of the time before its deadline is spent looking
/// at the clock; where there are others, the processor has better things to do.
const WATCHED_MAX: Ns = 10_000;
/// A way longer than this is a busy machine's, and not to be made up for.
const WAY_MAX: Ns = 100_000;
/// Deadlines closer than this are met by answering now.
const AT_ONCE: Ns = 3_000;

enum Answer {
    Read(ReplyData, Vec<u8>),
    Write(ReplyWrite, u32),
    Empty(ReplyEmpty),
}

impl Answer {
    fn give(self) {
        match self {
            Answer::Read(reply, bytes) => reply.data(&bytes),
            Answer::Write(reply, count) => reply.written(count),
            Answer::Empty(reply) => reply.ok(),
        }
    }

    fn fail(self) {
        match self {
            Answer::Read(reply, _) => reply.error(Errno::EIO),
            Answer::Write(reply, _) => reply.error(Errno::EIO),
            Answer::Empty(reply) => reply.error(Errno::EIO),
        }
    }
}

struct State {
    drive: Drive,
    answers: HashMap<u64, Answer>,
    /// Until when the time-keeper sleeps.
    asleep_until: Ns,
    /// By how much it lately woke too late.
    late: Ns,
}

/// What the threads of a server share.
pub struct Station {
    start: Instant,
    bytes: u64,
    state: Mutex<State>,
    wake: Condvar,
}

impl Station {
    /// A disk of `bytes` in `image`.
    pub fn new(model: Model, bytes: u64, image: Box<dyn Image>) -> Station {
        let drive = Drive::new(model, bytes, image);
        let state = State { drive, answers: HashMap::new(), asleep_until: Ns::MAX, late: 0 };
        Station { start: Instant::now(), bytes, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Totals so far.
    pub fn counts(&self) -> Counts {
        self.lock().drive.counts()
    }

    /// Ends or begins the delays; either way everything is drained first.
    pub fn set_paced(&self, paced: bool) -> io::Result<()> {
        let mut state = self.lock();
        let now = self.now();
        let done = state.drive.set_paced(now, paced);
        let dead = state.drive.dead();
        self.finish(state, now);
        done?;
        if dead { Err(io::Error::other("the disk is dead")) } else { Ok(()) }
    }

    /// Takes the times that requests without delay take off every delay.
    pub fn set_ways(&self, ways: Ways) {
        let [read, write, flush] = [ways.read, ways.write, ways.flush].map(|way| way.min(WAY_MAX));
        self.lock().drive.set_ways(Ways { read, write, flush });
    }

    /// Makes every request take `delay` while the disk is not paced.
    pub fn delay(&self, delay: Ns) {
        self.lock().drive.set_delay(delay);
    }

    /// Cuts the power: all that is under way fails, and all that comes.
    pub fn power_cut(&self, seed: u64) -> io::Result<Lost> {
        let mut state = self.lock();
        let lost = state.drive.power_cut(self.now(), seed);
        let given_up = std::mem::take(&mut state.answers);
        drop(state);
        given_up.into_values().for_each(Answer::fail);
        lost
    }

    /// Switches the power on again.
    pub fn restore(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.drive.restore();
        if state.drive.dead() { Err(io::Error::other("the disk is dead")) } else { Ok(()) }
    }

    fn now(&self) -> Ns {
        self.start.elapsed().as_nanos() as Ns
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a request by `act` and answers it when it is due.
    fn submit(
        &self,
        answer: Answer,
        act: impl FnOnce(&mut Drive, Ns, &mut Answer) -> io::Result<u64>,
    ) {
        let mut state = self.lock();
        let now = self.now();
        let mut answer = answer;
        match act(&mut state.drive, now, &mut answer) {
            Ok(id) => {
                state.answers.insert(id, answer);
                self.finish(state, now);
            }
            Err(_) => {
                drop(state);
                answer.fail();
            }
        }
    }

    /// Answers what is due at `now`, and has the time-keeper wake for the rest.
    fn finish(&self, mut state: MutexGuard<'_, State>, now: Ns) {
        let (next, due) = state.due(now, 0);
        let wake = next < state.asleep_until;
        let dead = state.drive.dead();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        for answer in due {
            if dead { answer.fail() } else { answer.give() }
        }
    }

    /// The time-keeper: answers requests when they are due, until the process ends.
    fn keep_time(&self) {
        let mut state = self.lock();
        loop {
            let now = self.now();
            let alone = state.answers.len() <= 1;
            // Nearer than half of what a wake-up is late: answering now is the smaller error.
            let slack = if alone { 0 } else { state.late / 2 };
            let (next, due) = state.due(now, slack);
            if !due.is_empty() {
                let dead = state.drive.dead();
                drop(state);
                for answer in due {
                    if dead { answer.fail() } else { answer.give() }
                }
                state = self.lock();
                continue;
            }
            let early = if alone { state.late.min(WATCHED_MAX) } else { state.late };
            let until = next.saturating_sub(early).max(now + u64::from(!alone));
            if until <= now {
                // Too near to sleep. Not under the lock: what comes meanwhile is taken in.
                drop(state);
                while self.now() + AT_ONCE < next {
                    std::hint::spin_loop();
                }
                state = self.lock();
                continue;
            }
            let time = until - now;
            state.asleep_until = next;
            let (woken, timeout) = self
                .wake
                .wait_timeout(state, Duration::from_nanos(time.min(3_600_000_000_000)))
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.asleep_until = 0;
            if timeout.timed_out() {
                let late = self.now().saturating_sub(until);
                // A moving average, so that one preemption does not make the disk early.
                state.late = ((state.late * 7 + late.min(EARLY_MAX)) / 8).min(EARLY_MAX);
            }
        }
    }
}

impl State {
    /// The answers due at `now`, or not more than `slack` later, and when there is something to do
    /// next.
    fn due(&mut self, now: Ns, slack: Ns) -> (Ns, Vec<Answer>) {
        let next = self.drive.advance(now);
        let mut due = Vec::new();
        while let Some(id) = self.drive.take_due(now + slack.max(AT_ONCE)) {
            due.extend(self.answers.remove(&id));
        }
        let next = [next, self.drive.next_due()].into_iter().flatten().min();
        (next.unwrap_or(Ns::MAX), due)
    }
}

/// Serves `station` on `mountpoint` until it is unmounted.
pub fn serve(station: &Arc<Station>, mountpoint: &Path) -> io::Result<()> {
    let keeper = station.clone();
    thread::Builder::new().name("time".into()).spawn(move || keeper.keep_time())?;
    fuse_server::serve(DiskFile(station.clone()), mountpoint, NAME, NAME)
}

/// The file system with the disk's content.
struct DiskFile(Arc<Station>);

impl DiskFile {
    fn of(&self, ino: INodeNo) -> FileAttr {
        let file = ino == INODE;
        let bytes = if file { self.0.bytes } else { 0 };
        FileAttr {
            ino,
            size: bytes,
            blocks: bytes / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: if file { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        }
    }
}

impl Served for DiskFile {
    fn limits(&self) -> Limits {
        Limits {
            capability: InitFlags::FUSE_ASYNC_DIO,
            required: Some("this kernel's FUSE has no asynchronous direct I/O"),
            write_bytes_max: REQUEST_BYTES_MAX,
            background_max: BACKGROUND_MAX,
            threads: RECEIVERS,
            valid: FOREVER,
        }
    }

    fn lookup(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let found = parent == INodeNo::ROOT && name == FILE;
        found.then(|| self.of(INODE)).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn attributes(&self, ino: INodeNo, size: Option<u64>) -> io::Result<FileAttr> {
        match size {
            None => Ok(self.of(ino)),
            Some(_) => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
    }

    fn blocks(&self) -> (u64, u32) {
        // The block size is what the loop device discards by.
        (self.0.bytes / PAGE_BYTES, PAGE_BYTES as u32)
    }

    fn open(&self, _ino: INodeNo, _flags: OpenFlags) -> io::Result<(FileHandle, FopenFlags)> {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        Ok((FileHandle(0), flags))
    }

    fn read(&self, _handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        let size = u64::from(size).min(self.0.bytes.saturating_sub(offset));
        let answer = Answer::Read(reply, vec![0; size as usize]);
        self.0.submit(answer, |drive, now, answer| match answer {
            Answer::Read(_, bytes) => drive.read(now, offset, bytes),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        });
    }

    fn write(&self, _handle: FileHandle, offset: u64, data: &[u8], reply: ReplyWrite) {
        let answer = Answer::Write(reply, data.len() as u32);
        self.0.submit(answer, |drive, now, _| drive.write(now, offset, data));
    }

    fn fsync(&self, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.0.submit(Answer::Empty(reply), |drive, now, _| drive.flush(now));
    }

    fn fallocate(&self, offset: u64, length: u64, mode: i32, reply: ReplyEmpty) {
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        self.0.submit(Answer::Empty(reply), |drive, now, _| drive.discard(now, offset, length));
    }
}
