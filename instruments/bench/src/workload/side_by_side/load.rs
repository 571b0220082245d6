//! Readers and writers at work: a thread for each writer and one for each reader, all from the same
//! start.
//!
//! Nothing but pread(2) and pwrite(2) of one page is timed.

use std::fs::{File, OpenOptions};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_sim::side_by_side::{Client, Order, Side, SideBySide};

use super::files::{file_read, file_written, prepared, slots};
use crate::error::{Doing, Error, Result};
use crate::page::{PAGE, PAGE_BYTES};
use crate::threads::at_once;
use crate::workload::outcome::{Class, Outcome, Tally};

/// How long a client that waits for its session sleeps at a time.
const NAP: Duration = Duration::from_millis(20);

/// Runs `workload`, whose clients these are, on the files in `directory`.
pub fn run(workload: &SideBySide, clients: &[Client], directory: &Path) -> Result<Outcome> {
    let mut threads = Vec::new();
    for client in clients {
        threads.push(Thread::writer(client, directory)?);
        if workload.reader.is_some() {
            let most = workload.most(client, Side::Reads);
            threads.push(Thread::reader(client, directory, most)?);
        }
    }
    let load = Load {
        start: Instant::now(),
        // Clients that come and go are there to the end of the schedule, running or not.
        seconds: if clients.len() > 1 { workload.seconds } else { 0.0 },
        to_its_end: workload.ends_with_its_reader(),
        over: AtomicBool::new(false),
    };
    let load = &load;
    let ended = at_once(threads.iter().map(|thread| move || load.follow(thread)))?;
    let (mut tallies, mut written, mut reads) = (Vec::new(), Vec::new(), 0);
    for (thread, (tally, done)) in threads.iter().zip(ended) {
        tallies.push(tally);
        match thread.class {
            Class::Read => reads += done.iter().sum::<u64>(),
            _ => written.extend(done),
        }
    }
    Ok(Outcome::new(&tallies, written, reads))
}

/// What one thread is to do.
struct Thread<'a> {
    class: Class,
    client: &'a Client,
    path: PathBuf,
    file: File,
    /// The most operations of a session.
    most: u64,
}

impl<'a> Thread<'a> {
    fn writer(client: &'a Client, directory: &Path) -> Result<Thread<'a>> {
        let path = file_written(client, directory);
        let file = OpenOptions::new().write(true).open(&path).doing("open", &path)?;
        Ok(Thread { class: Class::Write, client, path, file, most: u64::MAX })
    }

    fn reader(client: &'a Client, directory: &Path, most: u64) -> Result<Thread<'a>> {
        let path = file_read(client, directory);
        let file = File::open(&path).doing("open", &path)?;
        Ok(Thread { class: Class::Read, client, path, file, most })
    }
}

/// A run under way.
struct Load {
    start: Instant,
    /// The least time that rates are over.
    seconds: f64,
    /// Whether the load is over when the reader has read its file once.
    to_its_end: bool,
    /// Nobody is to begin an operation any more.
    over: AtomicBool,
}

impl Load {
    /// Does all of a thread's sessions; how many operations there were in each.
    fn follow(&self, thread: &Thread<'_>) -> Result<(Tally, Vec<u64>)> {
        let mut tally = Tally::new();
        let followed = match thread.class {
            Class::Read => self.read(thread, &mut tally),
            _ => self.write(thread, &mut tally),
        };
        if followed.is_err() || (thread.class == Class::Read && self.to_its_end) {
            self.over.store(true, Ordering::Relaxed);
        }
        let done = followed?;
        tally.seconds = tally.seconds.max(self.seconds);
        Ok((tally, done))
    }

    fn write(&self, thread: &Thread<'_>, tally: &mut Tally) -> Result<Vec<u64>> {
        let stamps = slots(thread.client).stamps();
        let mut bytes = vec![0; PAGE_BYTES];
        let mut number = 0;
        self.each(thread, Side::Writes, tally, |page| {
            stamps.fill(number, &mut bytes);
            number += 1;
            let before = Instant::now();
            let result = thread.file.write_all_at(&bytes, page * PAGE);
            let after = Instant::now();
            result.doing("write", &thread.path)?;
            Ok((before, after))
        })
    }

    fn read(&self, thread: &Thread<'_>, tally: &mut Tally) -> Result<Vec<u64>> {
        let mut prepared = prepared(thread.client);
        let mut bytes = vec![0; PAGE_BYTES];
        self.each(thread, Side::Reads, tally, |page| {
            let before = Instant::now();
            let result = thread.file.read_exact_at(&mut bytes, page * PAGE);
            let after = Instant::now();
            result.doing("read", &thread.path)?;
            if prepared.page(page)[..] != bytes {
                return Err(Error::Different(format!(
                    "a read of page {page} of {} saw something else than what was prepared",
                    thread.path.display()
                )));
            }
            Ok((before, after))
        })
    }

    /// Has `operation` done on one page after the other, as the thread's sessions say. It tells
    /// when it began and ended.
    fn each(
        &self,
        thread: &Thread<'_>,
        side: Side,
        tally: &mut Tally,
        mut operation: impl FnMut(u64) -> Result<(Instant, Instant)>,
    ) -> Result<Vec<u64>> {
        let mut done = Vec::new();
        for (session, order) in thread.client.orders(side) {
            self.wait_until(self.at(session.begin));
            let end = self.at(session.end);
            // A reader may be through before its writer had a turn.
            let least = u64::from(done.is_empty());
            done.push(self.until(end, least..=thread.most, &order, |page| {
                let (before, after) = operation(page)?;
                tally.note(thread.class, after - before);
                tally.seconds = (after - self.start).as_secs_f64();
                Ok(after)
            })?);
        }
        Ok(done)
    }

    /// Until it is `end` or over; how many operations there were.
    fn until(
        &self,
        end: Instant,
        count: RangeInclusive<u64>,
        order: &Order,
        mut operation: impl FnMut(u64) -> Result<Instant>,
    ) -> Result<u64> {
        let mut now = Instant::now();
        let mut number = 0;
        while number < *count.end() && now < end {
            if self.over.load(Ordering::Relaxed) && number >= *count.start() {
                break;
            }
            now = operation(order.page(number))?;
            number += 1;
        }
        Ok(number)
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn wait_until(&self, time: Instant) {
        while !self.over.load(Ordering::Relaxed) {
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(NAP));
        }
    }
}
