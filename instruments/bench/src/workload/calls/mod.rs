//! Calls of one kind, one after the other: pread(2) or pwrite(2) of one size, by the C library's functions, as
//! programs make them. What is measured is a call, so little else is done between two of them: where it goes and
//! what it writes are drawn beforehand or cheap.
//!
//! A run has two parts: as many calls as there is time for, of which only the rate is known, and then calls that
//! are timed one by one.
//!
//! Invariants: no two threads write one place; where a thread's calls go, and what they write, follows from the
//! seed, the thread and the call's number, so that what must stand in the files at the end is known from the
//! number of calls.

mod call;
mod order;
mod thread;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use self::thread::{Caller, Calling};
use crate::cold::make_file;
use crate::error::{Doing, Error, Result};
use crate::measure::Latencies;
use crate::page::PAGE;
use crate::threads::at_once;
use crate::workload::job::Job;
use crate::workload::outcome::{ALL, ClassOutcome, Outcome};
use crate::workload::slots::PREPARED_SEED;

pub use self::call::{Call, Calls, Where};

impl Calls {
    fn sum_up(&self, ended: &[thread::Done]) -> Outcome {
        let mut latencies = Latencies::new();
        ended.iter().for_each(|done| latencies.add(&done.latencies));
        let summary = latencies.summary();
        let of = |class: &str| ClassOutcome {
            class: class.into(),
            ops: ended.iter().map(|done| done.sustained).sum(),
            ops_per_s: ended.iter().map(thread::Done::per_second).sum(),
            mean_us: summary.mean_us,
            p50_us: summary.median_us,
            p99_us: summary.p99_us,
            max_us: summary.max_us,
        };
        Outcome {
            seconds: ended.iter().map(|done| done.seconds).fold(0.0, f64::max),
            classes: vec![of(self.call.name()), of(ALL)],
            done: ended.iter().map(|done| done.calls).collect(),
            checked_reads: ended.iter().map(|done| done.checked).sum(),
            writes_over_time: None,
        }
    }

    /// For each file, and each of its slots, the number of the last write's bytes plus one, or 0.
    fn last_writes(&self, outcome: &Outcome) -> Result<Vec<Vec<u32>>> {
        if outcome.done.len() != self.threads as usize {
            return Err(Error::answer("the load", "it does not say how many calls it made"));
        }
        let slots = if self.call == Call::Write { self.slots().count() } else { 0 };
        let mut last = vec![vec![0; slots as usize]; self.files() as usize];
        if self.call == Call::Read {
            return Ok(last);
        }
        for (thread, calls) in (0..).zip(&outcome.done) {
            let file = if self.shared { 0 } else { thread as usize };
            let mut order = self.order(thread);
            for call in 0..*calls {
                last[file][order.next_slot() as usize] =
                    self.content_number(thread, call) as u32 + 1;
            }
        }
        Ok(last)
    }
}

impl Job for Calls {
    fn file_bytes(&self) -> u64 {
        u64::from(self.files()) * self.file_bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        self.paths(home)
            .try_for_each(|path| make_file(&path, PREPARED_SEED, self.file_bytes / PAGE))
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        if self.place != Where::Cold {
            for path in self.paths(directory) {
                fs::read(&path).doing("read", &path)?;
            }
        }
        let flags = if self.direct { libc::O_DIRECT } else { 0 };
        let open = |path: PathBuf| -> Result<(Arc<File>, PathBuf)> {
            let write = self.call == Call::Write;
            let mut options = OpenOptions::new();
            let file = options.read(true).write(write).custom_flags(flags).open(&path);
            Ok((Arc::new(file.doing("open", &path)?), path))
        };
        let opened = self.paths(directory).map(open).collect::<Result<Vec<_>>>()?;
        let calling = Calling {
            time: Duration::from_secs_f64(self.seconds),
            timed: Duration::from_secs_f64(self.timed_seconds),
            together: Barrier::new(self.threads as usize),
        };
        let ended = at_once((0..self.threads).map(|number| {
            let (file, path) = &opened[number as usize % opened.len()];
            let caller = Caller::new(self, number, file.clone(), path);
            let calling = &calling;
            move || caller.run(calling)
        }))?;
        Ok(self.sum_up(&ended))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (path, last) in self.paths(home).zip(self.last_writes(outcome)?) {
            if self.call == Call::Write {
                self.slots().verify_last(&path, &last)?;
            }
        }
        Ok(())
    }

    fn reset(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (path, last) in self.paths(home).zip(self.last_writes(outcome)?) {
            self.slots().reset_last(&path, &last)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    fn calls(call: Call, place: Where) -> Calls {
        Calls {
            call,
            place,
            io_bytes: 64,
            direct: false,
            threads: 3,
            shared: false,
            file_bytes: 64 * PAGE,
            seconds: 0.02,
            timed_seconds: 0.01,
            seed: 9,
        }
    }

    #[test]
    fn what_was_written_is_checked_and_put_back() {
        for (shared, place) in [
            (false, Where::Sequential),
            (true, Where::Sequential),
            (true, Where::Random),
            (false, Where::Cold),
        ] {
            let workload = Workload::Calls(Calls { shared, ..calls(Call::Write, place) });
            let home = Scratch::new(&workload);
            let outcome = workload.run(&home).unwrap();
            assert_eq!(outcome.done.len(), 3);
            assert!(place == Where::Cold || outcome.class("write").unwrap().ops > 0);
            workload.verify(&home, &outcome).unwrap();
            let mut less = outcome.clone();
            less.done[2] -= 1;
            assert_different(workload.verify(&home, &less), "slot");
            workload.reset(&home, &outcome).unwrap();
            assert_different(workload.verify(&home, &outcome), "holds what was prepared");
        }
    }

    #[test]
    fn reads_are_compared() {
        let workload = Workload::Calls(calls(Call::Read, Where::Random));
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert!(outcome.checked_reads > 100);
        let Workload::Calls(calls) = &workload else { unreachable!() };
        let path = calls.path(&home, 1);
        fs::write(&path, vec![7; calls.file_bytes as usize]).unwrap();
        assert_different(workload.run(&home), "instead of");
    }
}
