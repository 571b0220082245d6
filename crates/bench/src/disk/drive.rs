//! A drive: a model's timing over a cache over an image, without threads, clocks or a protocol.
//!
//! Owns what a request means (its effect on the content is there as soon as it came) and when it is
//! complete. The caller tells the time and answers requests when they are due.
//!
//! Invariants:
//! 1. Each request taken in gets a number and is due exactly once, or is given up by a power cut.
//! 2. Unpaced, and in the model `none`, a request is due when it comes.
//! 3. Without power every request fails and the content stays as it is.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;

use super::Model;
use super::backlog::{Done, Job};
use super::cache::{Cache, Image};
use super::counts::Counts;
use super::hdd::Hdd;
use super::parameters::{self, Ns};
use super::remote::Remote;
use super::ssd::Ssd;

enum Timing {
    Hdd(Box<Hdd>),
    Ssd(Ssd),
    Remote(Remote),
    None,
}

impl Timing {
    fn new(model: Model, image_bytes: u64) -> Timing {
        match model {
            Model::Hdd => Timing::Hdd(Box::new(Hdd::new(image_bytes))),
            Model::Ssd => Timing::Ssd(Ssd::new()),
            Model::Remote => Timing::Remote(Remote::default()),
            Model::None => Timing::None,
        }
    }
}

/// How many bytes the cache of a model without write-back in the background holds.
fn cache_bytes(model: Model) -> u64 {
    match model {
        Model::Hdd => parameters::hdd::CACHE_BYTES,
        Model::Ssd => parameters::ssd::CACHE_BYTES,
        Model::Remote => parameters::remote::CACHE_BYTES,
        Model::None => parameters::none::CACHE_BYTES,
    }
}

/// A drive with its medium.
pub struct Drive {
    model: Model,
    image_bytes: u64,
    timing: Timing,
    cache: Cache,
    counts: Counts,
    paced: bool,
    powered: bool,
    next_id: u64,
    open: BTreeSet<u64>,
    due: BinaryHeap<Reverse<(Ns, u64)>>,
    depth_since: Ns,
}

impl Drive {
    /// Switched on, paced, its cache empty.
    pub fn new(model: Model, image_bytes: u64, image: Box<dyn Image>) -> Drive {
        Drive {
            model,
            image_bytes,
            timing: Timing::new(model, image_bytes),
            cache: Cache::new(image),
            counts: Counts::default(),
            paced: true,
            powered: true,
            next_id: 0,
            open: BTreeSet::new(),
            due: BinaryHeap::new(),
            depth_since: 0,
        }
    }

    /// Totals so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Fills `bytes`; they are the host's when the request of this number is due.
    pub fn read(&mut self, now: Ns, offset: u64, bytes: &mut [u8]) -> io::Result<u64> {
        let job = self.take(now, offset, bytes.len() as u64)?;
        self.cache.read(offset, bytes)?;
        self.counts.reads += 1;
        self.counts.read_bytes += job.bytes;
        self.open(now, job.id);
        let mut done = Vec::new();
        match &mut self.timing {
            Timing::Hdd(hdd) if self.paced => {
                hdd.read(job, &self.cache, &mut self.counts, &mut done);
            }
            Timing::Ssd(ssd) if self.paced => {
                ssd.read(job, &self.cache, &mut self.counts, &mut done);
            }
            Timing::Remote(remote) if self.paced => done.push(remote.read(job)),
            _ => done.push(Done { id: job.id, at: now }),
        }
        self.add(done);
        Ok(job.id)
    }

    /// Takes in `bytes`.
    pub fn write(&mut self, now: Ns, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        let job = self.take(now, offset, bytes.len() as u64)?;
        self.cache.write(now, offset, bytes);
        self.counts.writes += 1;
        self.counts.written_bytes += job.bytes;
        self.open(now, job.id);
        let mut done = Vec::new();
        match &mut self.timing {
            Timing::Hdd(hdd) if self.paced => hdd.write(job, &self.cache, &mut done),
            Timing::Ssd(ssd) if self.paced => {
                ssd.write(job, &self.cache, &mut self.counts, &mut done);
            }
            Timing::Remote(remote) if self.paced => {
                done.push(remote.write(job));
                self.keep_cache_below_its_size();
            }
            _ => {
                done.push(Done { id: job.id, at: now });
                self.keep_cache_below_its_size();
            }
        }
        self.add(done);
        Ok(job.id)
    }

    /// Makes durable what was written before.
    pub fn flush(&mut self, now: Ns) -> io::Result<u64> {
        let job = self.take(now, 0, 0)?;
        self.counts.flushes += 1;
        self.open(now, job.id);
        let mut done = Vec::new();
        match &mut self.timing {
            Timing::Hdd(hdd) if self.paced => hdd.flush(job, &mut self.cache, &mut done),
            Timing::Ssd(ssd) if self.paced => ssd.flush(job, &mut self.cache, &mut done),
            Timing::Remote(remote) if self.paced => {
                self.cache.write_back_all();
                done.push(remote.flush(job));
            }
            _ => {
                self.cache.write_back_all();
                done.push(Done { id: job.id, at: now });
            }
        }
        self.add(done);
        Ok(job.id)
    }

    /// Makes a range read as zeroes; takes no time.
    pub fn discard(&mut self, now: Ns, offset: u64, bytes: u64) -> io::Result<u64> {
        let job = self.take(now, offset, bytes)?;
        self.cache.zero(offset, bytes)?;
        self.counts.discards += 1;
        self.open(now, job.id);
        self.add(vec![Done { id: job.id, at: now }]);
        Ok(job.id)
    }

    /// Does what the drive does by itself until `now`; when to call again if nothing comes.
    pub fn advance(&mut self, now: Ns) -> Option<Ns> {
        let mut done = Vec::new();
        let next = match &mut self.timing {
            Timing::Hdd(hdd) => hdd.advance(now, &mut self.cache, &mut self.counts, &mut done),
            Timing::Ssd(ssd) => ssd.advance(now, &mut self.cache, &mut self.counts, &mut done),
            Timing::Remote(_) | Timing::None => None,
        };
        self.add(done);
        next
    }

    /// When the next request is due, if it is known yet.
    pub fn next_due(&self) -> Option<Ns> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// A request that is due at `by`; the depth is counted as of then.
    pub fn take_due(&mut self, by: Ns) -> Option<u64> {
        let Reverse((at, id)) = *self.due.peek().filter(|Reverse((at, _))| *at <= by)?;
        self.due.pop();
        self.pass(at);
        self.open.remove(&id);
        Some(id)
    }

    /// Whether requests fail for good: a write-back failed, or the power is off.
    pub fn dead(&self) -> bool {
        !self.powered || self.cache.fault().is_some()
    }

    /// Ends all delays, or begins them with the drive at rest: what is under way is due at once,
    /// and all that was written is durable.
    pub fn set_paced(&mut self, now: Ns, paced: bool) {
        self.paced = paced;
        self.cache.write_back_all();
        self.timing = Timing::new(self.model, self.image_bytes);
        self.due = self.open.iter().map(|id| Reverse((now, *id))).collect();
    }

    fn keep_cache_below_its_size(&mut self) {
        while self.cache.dirty_bytes() > cache_bytes(self.model) {
            let Some((_, _, offset)) = self.cache.oldest() else { break };
            let run = self.cache.run_from(offset, 1 << 20);
            self.cache.write_back(run);
            self.counts.write_backs += 1;
        }
    }

    fn take(&mut self, now: Ns, offset: u64, bytes: u64) -> io::Result<Job> {
        if self.dead() || offset.checked_add(bytes).is_none_or(|end| end > self.image_bytes) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        // What the drive did before this came must not know of it.
        self.advance(now);
        self.next_id += 1;
        Ok(Job { id: self.next_id, offset, bytes, arrived: now })
    }

    fn open(&mut self, now: Ns, id: u64) {
        self.pass(now);
        self.open.insert(id);
        self.counts.depth_max = self.counts.depth_max.max(self.open.len() as u64);
    }

    fn pass(&mut self, now: Ns) {
        let time = now.saturating_sub(self.depth_since);
        self.counts.pass(self.open.len() as u64, time);
        self.depth_since = self.depth_since.max(now);
    }

    fn add(&mut self, done: Vec<Done>) {
        self.due.extend(done.into_iter().map(|done| Reverse((done.at, done.id))));
    }
}
