//! Replaying a trace: each of its threads a thread, each operation at its time or as soon as the
//! thread's one before it has ended, as MobiBench's replayer does.
//!
//! Owns the files' handles. Only system calls are timed, as in MobiBench; how late they begin is
//! not counted.
//!
//! Invariant: operations on one file are done in the trace's order, whichever threads they are of,
//! as the programs' own locks had it. The earliest operation not yet done can always be done, so
//! nobody waits for ever. Lock order: a thread holds the lock of one file at a time.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, Mode, OFlags, access};

use crate::error::{Doing, Error, Result};
use crate::threads::at_once;
use crate::workload::mobibench::contents::Contents;
use crate::workload::mobibench::parse::OpenFlags;
use crate::workload::mobibench::plan::{Action, Plan, Planned};
use crate::workload::outcome::{Class, Outcome, Tally};

/// Replays those `operations` of a plan, by their numbers in ascending order, on the files in
/// `root`.
pub fn run(plan: &Plan, operations: &[usize], root: &Path) -> Result<Outcome> {
    let contents = Contents::new(plan);
    let mut files: Vec<Shared> = plan.files.iter().map(|_| Shared::default()).collect();
    let mut threads: BTreeMap<u32, Vec<Turn>> = BTreeMap::new();
    let mut turns = vec![0; plan.files.len()];
    for number in operations.iter().copied() {
        let Planned { thread, file, action, .. } = plan.operations[number];
        if let Action::Open { handle, flags, inherited: true } = action {
            let path = root.join(&plan.files[file].path);
            let opened = open(&path, flags, false).doing("open", &path)?;
            let state = files[file].state.get_mut().unwrap_or_else(PoisonError::into_inner);
            state.handles.insert(handle, opened);
        } else {
            threads.entry(thread).or_default().push(Turn { number, turn: turns[file] });
            turns[file] += 1;
        }
    }
    let start = Instant::now();
    let failed = AtomicBool::new(false);
    let replay = Replay { plan, contents: &contents, root, files: &files, start, failed: &failed };
    let mut tallies = Vec::new();
    let mut checked_reads = 0;
    for Done { tally, reads } in at_once(threads.values().map(|turns| || replay.thread(turns)))? {
        tallies.push(tally);
        checked_reads += reads;
    }
    let mut outcome = Outcome::new(&tallies, vec![operations.len() as u64], checked_reads);
    // The rate is the trace's, not a sum of rates: its threads live at different times.
    for class in &mut outcome.classes {
        class.ops_per_s = class.ops as f64 / outcome.seconds.max(f64::MIN_POSITIVE);
    }
    Ok(outcome)
}

/// An operation, and how many on the same file come before it.
struct Turn {
    number: usize,
    turn: usize,
}

/// What a thread got through.
struct Done {
    tally: Tally,
    reads: u64,
}

/// A file's part of the replay.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Told of each operation that has ended.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// Operations done.
    done: usize,
    handles: HashMap<usize, File>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy)]
struct Replay<'a> {
    plan: &'a Plan,
    contents: &'a Contents<'a>,
    root: &'a Path,
    files: &'a [Shared],
    start: Instant,
    /// A thread has stopped early: the others would wait for its operations.
    failed: &'a AtomicBool,
}

impl Replay<'_> {
    fn thread(self, turns: &[Turn]) -> Result<Done> {
        let mut done = Done { tally: Tally::new(), reads: 0 };
        for Turn { number, turn } in turns {
            let operation = &self.plan.operations[*number];
            let due = self.start + Duration::from_micros(operation.time_us);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let shared = &self.files[operation.file];
            let mut state = shared.lock();
            while state.done < *turn && !self.failed.load(Ordering::Relaxed) {
                state = shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            let result = self.perform(*number, &mut state, &mut done);
            state.done += 1;
            drop(state);
            shared.moved.notify_all();
            if let Err(error) = result {
                self.fail();
                return Err(error);
            }
        }
        Ok(done)
    }

    /// Wakes everyone, to stop.
    fn fail(self) {
        self.failed.store(true, Ordering::Relaxed);
        for shared in self.files {
            // Locked, so that nobody is between looking at the flag and waiting.
            drop(shared.lock());
            shared.moved.notify_all();
        }
    }

    fn perform(self, number: usize, state: &mut State, done: &mut Done) -> Result<()> {
        let Planned { file, action, .. } = self.plan.operations[number];
        let path = self.root.join(&self.plan.files[file].path);
        let handle = |handle| {
            state.handles.get(&handle).ok_or_else(|| {
                Error::Different(format!("{} is not open in the replay", path.display()))
            })
        };
        let (class, latency) = match action {
            Action::Open { handle, flags, .. } => {
                let directory = self.plan.files[file].directory;
                let (opened, latency) = timed(|| open(&path, flags, directory));
                state.handles.insert(handle, opened.doing("open", &path)?);
                (Class::Other, latency)
            }
            Action::Close { handle } => {
                let closed = state.handles.remove(&handle);
                (Class::Other, timed(|| drop(closed)).1)
            }
            Action::Read { handle: from, offset, length } => {
                let from = handle(from)?;
                let mut buffer = vec![0; length as usize];
                let (read, latency) = timed(|| from.read_at(&mut buffer, offset));
                buffer.truncate(read.doing("read", &path)?);
                self.check_read(number, &path, offset, length, &buffer)?;
                done.reads += 1;
                (Class::Read, latency)
            }
            Action::Write { handle: to, offset, length } => {
                let to = handle(to)?;
                let mut buffer = vec![0; length as usize];
                self.contents.fill(number, &mut buffer);
                let (written, latency) = timed(|| to.write_all_at(&buffer, offset));
                written.doing("write", &path)?;
                (Class::Write, latency)
            }
            Action::Sync { handle: of } => {
                let of = handle(of)?;
                let (synced, latency) = timed(|| of.sync_all());
                synced.doing("sync", &path)?;
                (Class::Sync, latency)
            }
            Action::HandleStat { handle: of } => {
                let of = handle(of)?;
                let (found, latency) = timed(|| of.metadata());
                black_box(found.doing("look at", &path)?);
                (Class::Other, latency)
            }
            Action::Access | Action::Stat | Action::LinkStat | Action::Unlink => {
                let (found, latency) = timed(|| match action {
                    Action::Access => access(&path, Access::EXISTS).map_err(io::Error::from),
                    Action::Stat => fs::metadata(&path).map(drop),
                    Action::LinkStat => fs::symlink_metadata(&path).map(drop),
                    _ => fs::remove_file(&path),
                });
                self.check_found(number, &path, found)?;
                (Class::Other, latency)
            }
        };
        done.tally.note(class, latency);
        done.tally.seconds = self.start.elapsed().as_secs_f64();
        Ok(())
    }

    fn check_read(
        self,
        number: usize,
        path: &Path,
        offset: u64,
        length: u64,
        found: &[u8],
    ) -> Result<()> {
        let file = self.plan.operations[number].file;
        if self.contents.bytes(file, number, offset..offset + length) == found {
            return Ok(());
        }
        Err(Error::Different(format!(
            "a read of {length} bytes of {} at byte {offset} saw something else than what is there \
             (operation number {number}, {} bytes read)",
            path.display(),
            found.len()
        )))
    }

    /// A name is to be found when it is there, and not when it is not.
    fn check_found(self, number: usize, path: &Path, found: io::Result<()>) -> Result<()> {
        let file = self.plan.operations[number].file;
        let there = self.plan.files[file].directory || self.contents.size(file, number).is_some();
        let found = match found {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error).doing("look up", path),
        };
        if found == there {
            return Ok(());
        }
        let state = if there { "was not found" } else { "was found and should be gone" };
        Err(Error::Different(format!("{} {state} (operation number {number})", path.display())))
    }
}

/// Opens as the trace does, but for reading too whatever is opened for writing: MobiGen did not
/// record how descriptors it gives an open of its own were opened.
fn open(path: &PathBuf, flags: OpenFlags, directory: bool) -> io::Result<File> {
    let mut to = OFlags::CLOEXEC;
    to |= if flags.read_only || directory { OFlags::RDONLY } else { OFlags::RDWR };
    to.set(OFlags::CREATE, flags.create && !directory);
    to.set(OFlags::EXCL, flags.exclusive);
    to.set(OFlags::TRUNC, flags.truncate && !directory);
    Ok(File::from(rustix::fs::open(path, to, Mode::from_raw_mode(0o644))?))
}

fn timed<T>(operation: impl FnOnce() -> T) -> (T, Duration) {
    let before = Instant::now();
    let result = operation();
    (result, before.elapsed())
}
