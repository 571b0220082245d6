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
use std::collections::{BTreeMap, BinaryHeap};
use std::io;

use serde::{Deserialize, Serialize};

use super::Model;
use super::backlog::{Done, Job};
use super::cache::{Cache, Image, Lost};
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

/// How long the kinds of requests take from a program to the drive and back beside the drive's own time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// Of a read.
    pub read: Ns,
    /// Of a write.
    pub write: Ns,
    /// Of a flush.
    pub flush: Ns,
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
    /// What has not been answered, with its kind's way: it is due so much earlier than it is
    /// complete, since it takes so long to reach the host.
    open: BTreeMap<u64, Ns>,
    ways: Ways,
    /// What a request takes while the model sets no delay.
    delay: Ns,
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
            open: BTreeMap::new(),
            ways: Ways::default(),
            delay: 0,
            due: BinaryHeap::new(),
            depth_since: 0,
        }
    }

    /// What requests without delay take to get here and back.
    pub fn set_ways(&mut self, ways: Ways) {
        self.ways = ways;
    }

    /// How long requests take while the model sets no delay.
    pub fn set_delay(&mut self, delay: Ns) {
        self.delay = delay;
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
        self.open(now, job.id, self.ways.read);
        let mut done = Vec::new();
        match &mut self.timing {
            Timing::Hdd(hdd) if self.paced => {
                hdd.read(job, &self.cache, &mut self.counts, &mut done);
            }
            Timing::Ssd(ssd) if self.paced => {
                ssd.read(job, &self.cache, &mut self.counts, &mut done);
            }
            Timing::Remote(remote) if self.paced => done.push(remote.read(job)),
            _ => done.push(Done { id: job.id, at: now + self.delay }),
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
        self.open(now, job.id, self.ways.write);
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
                done.push(Done { id: job.id, at: now + self.delay });
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
        self.open(now, job.id, self.ways.flush);
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
                done.push(Done { id: job.id, at: now + self.delay });
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
        self.open(now, job.id, self.ways.write);
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

    /// Whether all requests fail: a write-back failed, or the power is off.
    pub fn dead(&self) -> bool {
        !self.powered || self.cache.fault().is_some()
    }

    /// Ends all delays, or begins them with the drive at rest: what is under way is due at once,
    /// and all that was written is durable.
    pub fn set_paced(&mut self, now: Ns, paced: bool) -> io::Result<()> {
        self.paced = paced;
        self.cache.write_back_all();
        self.timing = Timing::new(self.model, self.image_bytes);
        self.due = self.open.keys().map(|id| Reverse((now, *id))).collect();
        if paced { self.cache.warm() } else { Ok(()) }
    }

    /// Cuts the power: see `Cache::power_cut`. What is under way is given up.
    pub fn power_cut(&mut self, now: Ns, seed: u64) -> io::Result<Lost> {
        self.advance(now);
        self.pass(now);
        self.powered = false;
        self.open.clear();
        self.due.clear();
        self.timing = Timing::new(self.model, self.image_bytes);
        self.cache.power_cut(seed)
    }

    /// Switches the power on again.
    pub fn restore(&mut self) {
        self.powered = true;
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

    fn open(&mut self, now: Ns, id: u64, way: Ns) {
        self.pass(now);
        self.open.insert(id, way);
        self.counts.depth_max = self.counts.depth_max.max(self.open.len() as u64);
    }

    fn pass(&mut self, now: Ns) {
        let time = now.saturating_sub(self.depth_since);
        self.counts.pass(self.open.len() as u64, time);
        self.depth_since = self.depth_since.max(now);
    }

    fn add(&mut self, done: Vec<Done>) {
        for Done { id, at } in done {
            let way = self.open.get(&id).copied().unwrap_or(0);
            self.due.push(Reverse((at.saturating_sub(way), id)));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::SECTOR_BYTES;
    use crate::parameters::{MS, SECOND};

    /// An image in memory.
    pub struct Memory(Vec<u8>);

    impl Memory {
        pub fn new(bytes: u64) -> Memory {
            Memory(vec![0; bytes as usize])
        }
    }

    impl Image for Memory {
        fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            bytes.copy_from_slice(&self.0[offset as usize..][..bytes.len()]);
            Ok(())
        }

        fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn zero(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
            self.0[offset as usize..][..bytes as usize].fill(0);
            Ok(())
        }
    }

    const SECTORS: u64 = 2048;
    const BYTES: u64 = SECTORS * SECTOR_BYTES;

    #[derive(Clone, Debug)]
    enum Step {
        Write { sector: u64, count: u64 },
        Read { sector: u64, count: u64 },
        Discard { sector: u64, count: u64 },
        Flush,
        Wait { ms: u64 },
        Pace { on: bool },
        Cut { seed: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0..SECTORS - 64, 1..64u64);
        prop_oneof![
            6 => range().prop_map(|(sector, count)| Step::Write { sector, count }),
            3 => range().prop_map(|(sector, count)| Step::Read { sector, count }),
            1 => range().prop_map(|(sector, count)| Step::Discard { sector, count }),
            1 => Just(Step::Flush),
            1 => (0..60u64).prop_map(|ms| Step::Wait { ms }),
            1 => any::<bool>().prop_map(|on| Step::Pace { on }),
            1 => any::<u64>().prop_map(|seed| Step::Cut { seed }),
        ]
    }

    /// A disk as an array: what each sector holds, and what it may hold after a power cut.
    struct Reference {
        now: Vec<u64>,
        possible: Vec<Vec<u64>>,
    }

    impl Reference {
        fn set(&mut self, sector: u64, version: u64) {
            self.now[sector as usize] = version;
            self.possible[sector as usize].push(version);
        }

        fn settle(&mut self) {
            for (possible, now) in self.possible.iter_mut().zip(&self.now) {
                *possible = vec![*now];
            }
        }
    }

    fn sector_of(version: u64) -> [u8; SECTOR_BYTES as usize] {
        let mut sector = [0; SECTOR_BYTES as usize];
        for part in sector.chunks_exact_mut(8) {
            part.copy_from_slice(&version.to_le_bytes());
        }
        sector
    }

    fn version_of(sector: &[u8]) -> u64 {
        let version = u64::from_le_bytes(sector[..8].try_into().unwrap());
        assert_eq!(sector, sector_of(version), "a sector is whole");
        version
    }

    fn read(drive: &mut Drive, now: Ns, sector: u64, count: u64) -> (u64, Vec<u64>) {
        let mut bytes = vec![1; (count * SECTOR_BYTES) as usize];
        let id = drive.read(now, sector * SECTOR_BYTES, &mut bytes).unwrap();
        (id, bytes.chunks_exact(SECTOR_BYTES as usize).map(version_of).collect())
    }

    /// Lets the drive work until `id` is due; all that is due on the way is taken from `open`.
    fn finish(drive: &mut Drive, mut now: Ns, id: u64, open: &mut Vec<u64>) -> Ns {
        let deadline = now + 100 * SECOND;
        while open.contains(&id) {
            let wakes = drive.advance(now);
            while let Some(due) = drive.take_due(now) {
                let at = open.iter().position(|other| *other == due);
                open.remove(at.expect("a request is due once"));
            }
            if open.contains(&id) {
                let next = [wakes, drive.next_due()].into_iter().flatten().min();
                now = now.max(next.expect("something will happen"));
                assert!(now < deadline, "a request is never due");
            }
        }
        now
    }

    fn behaves(model: Model, steps: Vec<Step>) {
        let mut drive = Drive::new(model, BYTES, Box::new(Memory::new(BYTES)));
        let mut reference =
            Reference { now: vec![0; SECTORS as usize], possible: vec![vec![0]; SECTORS as usize] };
        let (mut now, mut version, mut open) = (0, 0, Vec::new());
        for step in steps {
            now += MS / 10;
            match step {
                Step::Write { sector, count } => {
                    version += 1;
                    let bytes = sector_of(version).repeat(count as usize);
                    open.push(drive.write(now, sector * SECTOR_BYTES, &bytes).unwrap());
                    (sector..sector + count).for_each(|sector| reference.set(sector, version));
                }
                Step::Read { sector, count } => {
                    let (id, versions) = read(&mut drive, now, sector, count);
                    open.push(id);
                    assert_eq!(versions, reference.now[sector as usize..][..count as usize]);
                }
                Step::Discard { sector, count } => {
                    let (offset, bytes) = (sector * SECTOR_BYTES, count * SECTOR_BYTES);
                    open.push(drive.discard(now, offset, bytes).unwrap());
                    (sector..sector + count).for_each(|sector| reference.set(sector, 0));
                }
                Step::Flush => {
                    let id = drive.flush(now).unwrap();
                    open.push(id);
                    now = finish(&mut drive, now, id, &mut open);
                    reference.settle();
                }
                Step::Wait { ms } => {
                    now += ms * MS;
                    drive.advance(now);
                }
                Step::Pace { on } => {
                    drive.set_paced(now, on).unwrap();
                    reference.settle();
                }
                Step::Cut { seed } => {
                    drive.power_cut(now, seed).unwrap();
                    open.clear();
                    assert!(drive.flush(now).is_err() && drive.take_due(Ns::MAX).is_none());
                    drive.restore();
                    let (id, versions) = read(&mut drive, now, 0, SECTORS);
                    open.push(id);
                    for (sector, version) in versions.into_iter().enumerate() {
                        let possible = &reference.possible[sector];
                        assert!(possible.contains(&version), "{version} in {sector}: {possible:?}");
                        reference.now[sector] = version;
                    }
                    reference.settle();
                }
            }
        }
        let flush = drive.flush(now).unwrap();
        open.push(flush);
        while let Some(id) = open.first().copied() {
            now = finish(&mut drive, now, id, &mut open);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn what_was_flushed_survives_and_every_request_is_answered_once(
            model in prop::sample::select(vec![Model::Hdd, Model::Ssd, Model::Remote, Model::None]),
            steps in prop::collection::vec(step(), 1..60),
        ) {
            behaves(model, steps);
        }
    }

    #[test]
    fn a_request_beyond_the_end_fails() {
        let mut drive = Drive::new(Model::None, BYTES, Box::new(Memory::new(BYTES)));
        assert!(drive.write(0, BYTES - 512, &[0; 1024]).is_err());
        assert!(drive.read(0, u64::MAX - 511, &mut [0; 512]).is_err());
    }

    #[test]
    fn depth_and_busy_time_are_those_of_the_requests() {
        let mut drive = Drive::new(Model::Remote, BYTES, Box::new(Memory::new(BYTES)));
        let (one, two) = (drive.flush(0).unwrap(), drive.flush(0).unwrap());
        assert_eq!(drive.take_due(MS), Some(one));
        assert_eq!(drive.take_due(MS), Some(two));
        let counts = drive.counts();
        assert_eq!((counts.busy_us, counts.depth_us, counts.depth_max), (1000.0, 2000.0, 2));
        assert!((counts.depth_mean() - 2.0).abs() < 1e-9);
    }
}
