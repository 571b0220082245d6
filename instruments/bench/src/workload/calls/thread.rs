//! One thread that makes calls.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::call::{Call, Calls};
use super::order::Order;
use crate::error::{Doing, Error, Result};
use crate::measure::Latencies;
use crate::page::PAGE_BYTES;
use crate::workload::prepared::Prepared;
use crate::workload::slots::PREPARED_SEED;

/// Calls before any is measured: what is done at a description's first calls is done by then.
const CALLS_BEFORE: u64 = 64;
/// Calls between two looks at the clock.
const CALLS_A_LOOK: u64 = 32;
/// The most that the bytes of all different writes take, so that they stay in the processor's cache.
const CONTENTS_BYTES: u64 = 256 << 10;
/// How many different contents there are: primes, so that a slot that is written again gets others.
const PERIODS: [u64; 6] = [4093, 1021, 251, 61, 13, 3];

/// What all threads of a run have in common.
pub struct Calling {
    /// For how long calls are made as fast as they go.
    pub time: Duration,
    /// For how long they are timed.
    pub timed: Duration,
    /// Where the threads wait for each other.
    pub together: Barrier,
}

/// What one thread did.
pub struct Done {
    /// Calls in all.
    pub calls: u64,
    /// Calls made as fast as they go.
    pub sustained: u64,
    /// Seconds these took.
    pub seconds: f64,
    /// Those timed one by one.
    pub latencies: Latencies,
    /// Reads that were compared.
    pub checked: u64,
}

impl Done {
    /// Calls a second. Where all were timed, by those.
    pub fn per_second(&self) -> f64 {
        if self.sustained > 0 && self.seconds > 0.0 {
            self.sustained as f64 / self.seconds
        } else {
            self.latencies.summary().per_second
        }
    }
}

impl Calls {
    /// How many different contents its writes have.
    fn period(&self) -> u64 {
        let fits = |period: &&u64| **period * self.io_bytes <= CONTENTS_BYTES;
        *PERIODS.iter().find(fits).unwrap_or(&PERIODS[PERIODS.len() - 1])
    }

    /// The number that the bytes of a thread's write number `call` follow from.
    pub fn content_number(&self, thread: u32, call: u64) -> u64 {
        (call % self.period()) * u64::from(self.threads) + u64::from(thread)
    }
}

/// Bytes that begin at a page, as O_DIRECT wants them.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Aligned { bytes, start }
    }
}

/// A thread before it begins.
pub struct Caller {
    file: Arc<File>,
    path: PathBuf,
    order: Order,
    io_bytes: usize,
    /// All contents of writes in a row; for reads, where they go.
    buffer: Aligned,
    /// Where in it the next write's bytes are.
    at: usize,
    contents_bytes: usize,
    calls: u64,
    call: Call,
}

impl Caller {
    /// Thread `number` of a run.
    pub fn new(calls: &Calls, number: u32, file: Arc<File>, path: &Path) -> Caller {
        let io_bytes = calls.io_bytes as usize;
        let contents_bytes = match calls.call {
            Call::Read => io_bytes,
            Call::Write => calls.period() as usize * io_bytes,
        };
        let mut buffer = Aligned::new(contents_bytes);
        if calls.call == Call::Write {
            let stamps = calls.slots().stamps();
            let all = &mut buffer.bytes[buffer.start..][..contents_bytes];
            for (call, bytes) in (0..).zip(all.chunks_exact_mut(io_bytes)) {
                stamps.fill(calls.content_number(number, call), bytes);
            }
        }
        Caller {
            file,
            path: path.to_owned(),
            order: calls.order(number),
            io_bytes,
            buffer,
            at: 0,
            contents_bytes,
            calls: 0,
            call: calls.call,
        }
    }

    /// Makes one call; its offset.
    #[inline]
    fn make(&mut self) -> io::Result<u64> {
        let offset = self.order.next_slot() * self.io_bytes as u64;
        let bytes = &mut self.buffer.bytes[self.buffer.start + self.at..][..self.io_bytes];
        let done = match self.call {
            Call::Read => self.file.read_at(bytes, offset)?,
            Call::Write => self.file.write_at(bytes, offset)?,
        };
        if done != self.io_bytes {
            return Err(io::Error::other(format!("{done} bytes of {} at {offset}", self.io_bytes)));
        }
        self.at += self.io_bytes;
        if self.at == self.contents_bytes {
            self.at = 0;
        }
        self.calls += 1;
        Ok(offset)
    }

    fn doing<T>(&self, result: io::Result<T>) -> Result<T> {
        result.doing(self.call.name(), &self.path)
    }

    /// Runs it.
    pub fn run(mut self, calling: &Calling) -> Result<Done> {
        let mut failed = None;
        for _ in 0..CALLS_BEFORE.min(self.order.calls_max() / 2) {
            if let Err(error) = self.make() {
                failed = Some(error);
                break;
            }
        }
        // Also if it failed: the others wait for it.
        calling.together.wait();
        if let Some(error) = failed {
            return self.doing(Err(error));
        }
        let before = self.calls;
        let seconds = self.as_fast_as_it_goes(calling.time)?;
        let sustained = self.calls - before;
        let (latencies, checked) = self.timed(calling.timed)?;
        Ok(Done { calls: self.calls, sustained, seconds, latencies, checked })
    }

    /// Seconds it took.
    fn as_fast_as_it_goes(&mut self, time: Duration) -> Result<f64> {
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed();
            if elapsed >= time {
                return Ok(elapsed.as_secs_f64());
            }
            for _ in 0..CALLS_A_LOOK {
                let made = self.make();
                self.doing(made)?;
            }
        }
    }

    fn timed(&mut self, time: Duration) -> Result<(Latencies, u64)> {
        let mut latencies = Latencies::new();
        let mut prepared = Prepared::new(PREPARED_SEED);
        let mut checked = 0;
        let start = Instant::now();
        while start.elapsed() < time && self.calls < self.order.calls_max() {
            let made = latencies.time(|| self.make());
            let offset = self.doing(made)?;
            if self.call == Call::Read {
                let found = &self.buffer.bytes[self.buffer.start..][..self.io_bytes];
                if !prepared.matches(offset, found) {
                    return Err(Error::Different(format!(
                        "{} bytes of {} at {offset} are others instead of what was prepared",
                        self.io_bytes,
                        self.path.display()
                    )));
                }
                checked += 1;
            }
        }
        Ok((latencies, checked))
    }
}
