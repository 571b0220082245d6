//! The flash drive: a controller that takes one command after the other, channels of flash behind
//! it that work at the same time, and a small buffer that is written to flash in the background.
//!
//! A read of a page takes the controller for as long as the drive's command rate allows one and the
//! flash for the rest of its latency; a large one takes the controller for its transfer. A write is
//! complete when it is in the buffer; the buffer empties at the sustained rates, which are those
//! random and sequential writing settle at. Reads do not wait for the flash to be written.

use super::backlog::{Backlog, Done, Job};
use super::cache::Cache;
use super::counts::{Counts, us};
use super::parameters::ssd::{
    CACHE_BYTES, CHANNELS, READ, READ_RATE, READS_A_SECOND, RUN_BYTES_MAX, STRIPE_BYTES, WRITE,
    WRITE_RATE, WRITES_A_SECOND,
};
use super::parameters::{Ns, SECOND, time_at};

/// The controller's time for the shortest command.
const COMMAND: Ns = SECOND / READS_A_SECOND;
/// The time of one page's flash.
const FLASH: Ns = READ - COMMAND;

/// A flash drive's controller, channels and buffer.
pub struct Ssd {
    controller_free: Ns,
    channels_free: [Ns; CHANNELS],
    backlog: Backlog,
}

impl Ssd {
    /// At rest.
    pub fn new() -> Ssd {
        Ssd { controller_free: 0, channels_free: [0; CHANNELS], backlog: Backlog::new(CACHE_BYTES) }
    }

    /// Takes in a read.
    pub fn read(&mut self, job: Job, cache: &Cache, counts: &mut Counts, done: &mut Vec<Done>) {
        let (begin, passed) = self.controlled(job.arrived, job.bytes);
        counts.transfer_us += us(passed);
        if cache.holds(job.offset, job.bytes) {
            counts.cache_hits += 1;
            done.push(Done { id: job.id, at: begin + passed });
            return;
        }
        let pages = job.offset / STRIPE_BYTES..(job.offset + job.bytes).div_ceil(STRIPE_BYTES);
        let mut first = begin + FLASH;
        let mut last = 0;
        for (index, page) in pages.enumerate() {
            let free = &mut self.channels_free[(page % CHANNELS as u64) as usize];
            *free = begin.max(*free) + FLASH;
            if index == 0 {
                first = *free;
            }
            last = last.max(*free);
        }
        done.push(Done { id: job.id, at: last.max(first + passed) });
    }

    /// Takes in a write whose data is in `cache`.
    pub fn write(&mut self, job: Job, cache: &Cache, counts: &mut Counts, done: &mut Vec<Done>) {
        if self.backlog.fits(job, cache) {
            done.push(self.written(job, job.arrived, counts));
        }
    }

    /// Takes in a flush.
    pub fn flush(&mut self, job: Job, cache: &mut Cache, done: &mut Vec<Done>) {
        self.backlog.flush(job.id, cache);
        self.settle(job.arrived, cache, done);
        done.extend(self.backlog.settling(cache));
    }

    /// Does what is to be done until `now`; the time at which there will be more to do by itself.
    pub fn advance(
        &mut self,
        now: Ns,
        cache: &mut Cache,
        counts: &mut Counts,
        done: &mut Vec<Done>,
    ) -> Option<Ns> {
        let mut at = now;
        loop {
            if let Some(until) = self.backlog.writing_until() {
                if until > now {
                    return Some(until);
                }
                at = until;
                for job in self.backlog.end(cache) {
                    done.push(self.written(job, until, counts));
                }
                self.settle(until, cache, done);
            }
            let (_, since, offset) = cache.oldest()?;
            let run = cache.run_from(offset, RUN_BYTES_MAX);
            let time = time_at(WRITE_RATE, run.bytes).max(SECOND / WRITES_A_SECOND);
            // One that was written to while the flash was idle began at once.
            let begin = if at < now { at.max(since) } else { at };
            cache.write_back(run);
            counts.write_backs += 1;
            self.backlog.begin(run, begin + time);
            done.extend(self.backlog.settling(cache));
        }
    }

    /// A place in the controller's order from `now` on: when it begins, and how long it takes.
    fn controlled(&mut self, now: Ns, bytes: u64) -> (Ns, Ns) {
        let begin = self.controller_free.max(now);
        let passed = time_at(READ_RATE, bytes).max(COMMAND);
        self.controller_free = begin + passed;
        (begin, passed)
    }

    fn written(&mut self, job: Job, now: Ns, counts: &mut Counts) -> Done {
        let (begin, passed) = self.controlled(now, job.bytes);
        counts.transfer_us += us(passed);
        Done { id: job.id, at: begin + passed + (WRITE - COMMAND) }
    }

    fn settle(&mut self, at: Ns, cache: &mut Cache, done: &mut Vec<Done>) {
        done.extend(self.backlog.settled(at, cache));
    }
}
