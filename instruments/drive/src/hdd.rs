//! The hard disk: one arm, a queue it chooses from, a write cache it empties when it has time, and
//! what it reads ahead.
//!
//! Owns the order and the times of all the arm does. Time is virtual: each access begins when the
//! one before ended or when its request came, whatever the clock of the machine says by the time
//! this is called, so that late wake-ups do not add up.
//!
//! Invariants:
//! 1. One access at a time.
//! 2. Of the first [`QUEUE`] reads the one the arm reaches first is next; cached writes compete
//!    with them only when urgent; no read waits much longer than [`STARVING_AGE`].
//! 3. A read is complete when its last byte passed under the head; a write when it is in the cache
//!    and the cache had room; a flush when no write that was complete before it came is dirty.

use std::collections::VecDeque;
use std::ops::Range;

use super::arm::{Access, Arm};
use super::backlog::{Backlog, Done, Job};
use super::cache::{Cache, Run};
use super::counts::{Counts, us};
use super::parameters::hdd::{
    CACHE_BYTES, CANDIDATES, IDLE_BEFORE_WRITING, INTERFACE, QUEUE, READ_AHEAD_BYTES,
    RUN_BYTES_MAX, SEGMENTS, STARVING_AGE, STARVING_WRITE_AGE, TRANSFER, URGENT_AGE, URGENT_BYTES,
};
use super::parameters::{Ns, SECOND, time_at};

/// The drive's own reading on after a read.
#[derive(Clone, Debug)]
struct Ahead {
    /// The first byte of what is kept of the stream.
    start: u64,
    /// Where the head was at `since`.
    from: u64,
    since: Ns,
    /// Where it stops.
    limit: u64,
}

impl Ahead {
    /// The end of what has been read at `now`.
    fn end(&self, now: Ns) -> u64 {
        let passed = u128::from(now.saturating_sub(self.since)) * u128::from(TRANSFER);
        self.limit.min(self.from + (passed / u128::from(SECOND)) as u64)
    }

    /// Whether a read begins in what was read, or right behind it.
    fn reaches(&self, now: Ns, job: &Job) -> bool {
        (self.start..=self.end(now)).contains(&job.offset)
    }
}

enum Task {
    Read { job: Job, until: Ns },
    WriteBack { until: Ns },
}

/// A hard disk's queue and arm.
pub struct Hdd {
    arm: Arm,
    free_at: Ns,
    task: Option<Task>,
    reads: VecDeque<Job>,
    backlog: Backlog,
    /// When the last read came.
    last_read: Ns,
    interface_free: Ns,
    ahead: Option<Ahead>,
    segments: VecDeque<Range<u64>>,
}

/// What the arm does next.
enum Choice {
    Read(usize),
    WriteBack(Run),
}

impl Hdd {
    /// At rest, with an image of `image_bytes`.
    pub fn new(image_bytes: u64) -> Hdd {
        Hdd {
            arm: Arm::new(image_bytes),
            free_at: 0,
            task: None,
            reads: VecDeque::new(),
            backlog: Backlog::new(CACHE_BYTES),
            last_read: 0,
            interface_free: 0,
            ahead: None,
            segments: VecDeque::new(),
        }
    }

    /// Takes in a read.
    pub fn read(&mut self, job: Job, cache: &Cache, counts: &mut Counts, done: &mut Vec<Done>) {
        self.last_read = job.arrived;
        let range = job.offset..job.offset + job.bytes;
        let segment =
            self.segments.iter().any(|kept| kept.start <= range.start && range.end <= kept.end);
        if segment || cache.holds(job.offset, job.bytes) {
            counts.cache_hits += 1;
            done.push(Done { id: job.id, at: self.transferred(job.arrived, job.bytes) });
        } else {
            self.reads.push_back(job);
        }
    }

    /// Takes in a write whose data is in `cache`.
    pub fn write(&mut self, job: Job, cache: &Cache, done: &mut Vec<Done>) {
        if self.backlog.fits(job, cache) {
            done.push(Done { id: job.id, at: self.transferred(job.arrived, job.bytes) });
        }
    }

    /// Takes in a flush.
    pub fn flush(&mut self, job: Job, cache: &mut Cache, done: &mut Vec<Done>) {
        self.backlog.flush(job.id, cache);
        self.settle(job.arrived, cache, done);
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
            if let Some(Task::Read { until, .. } | Task::WriteBack { until }) = self.task {
                if until > now {
                    return Some(until);
                }
                self.finish(cache, done);
                at = until;
            }
            match self.choose(at, cache) {
                Some(Choice::Read(index)) => self.begin_read(at, index, counts, done),
                Some(Choice::WriteBack(run)) => self.begin_write_back(at, run, cache, counts),
                // What was decided for a moment that has passed is decided again for this one.
                None if at < now => at = now,
                None => return self.wakes_at(cache),
            }
        }
    }

    /// When bytes that go through the interface from `now` on are all over.
    fn transferred(&mut self, now: Ns, bytes: u64) -> Ns {
        self.interface_free = self.interface_free.max(now) + time_at(INTERFACE, bytes);
        self.interface_free
    }

    fn settle(&mut self, at: Ns, cache: &mut Cache, done: &mut Vec<Done>) {
        done.extend(self.backlog.settled(at, cache));
    }

    fn finish(&mut self, cache: &mut Cache, done: &mut Vec<Done>) {
        match self.task.take() {
            Some(Task::Read { job, until }) => {
                self.free_at = until;
                self.read_on(job, until);
            }
            Some(Task::WriteBack { until }) => {
                self.free_at = until;
                for job in self.backlog.end(cache) {
                    let at = self.transferred(until, job.bytes);
                    done.push(Done { id: job.id, at });
                }
                self.settle(until, cache, done);
            }
            None => {}
        }
    }

    /// Sets the stream that follows a read that ended at `now`.
    fn read_on(&mut self, job: Job, now: Ns) {
        let end = job.offset + job.bytes;
        let limit = end + READ_AHEAD_BYTES;
        let Some(ahead) = &mut self.ahead else {
            self.ahead = Some(Ahead { start: job.offset, from: end, since: now, limit });
            return;
        };
        let reached = ahead.end(now);
        let stopped = reached == ahead.limit;
        if end >= reached {
            ahead.from = end;
            ahead.since = now;
            ahead.limit = limit;
        } else if !stopped {
            ahead.limit = ahead.limit.max(limit);
        } else if end > reached - READ_AHEAD_BYTES / 2 {
            // Half of what was read ahead is used up: go on, when the medium has come round.
            ahead.from = reached;
            ahead.since = now + self.arm.access(now, reached, 0).rotation;
            ahead.limit = limit;
        }
        ahead.start = ahead.start.max(end.saturating_sub(READ_AHEAD_BYTES));
        self.arm.moved_over(ahead.from, 0);
    }

    /// The arm leaves the stream: what it read is kept as a segment.
    fn leave_stream(&mut self, now: Ns) {
        let Some(ahead) = self.ahead.take() else { return };
        let end = ahead.end(now);
        self.arm.moved_over(end, 0);
        if self.segments.len() == SEGMENTS {
            self.segments.pop_front();
        }
        self.segments.push_back(ahead.start..end);
    }

    fn choose(&mut self, at: Ns, cache: &mut Cache) -> Option<Choice> {
        if self.reads.front().is_some_and(|job| job.arrived + STARVING_AGE <= at) {
            return Some(Choice::Read(0));
        }
        let oldest = cache.oldest();
        if let Some((_, since, offset)) = oldest
            && since + STARVING_WRITE_AGE <= at
        {
            return Some(Choice::WriteBack(cache.run_from(offset, RUN_BYTES_MAX)));
        }
        let urgent = self.urgent(at, cache);
        let idle = self.reads.is_empty() && self.last_read + IDLE_BEFORE_WRITING <= at;
        let read = self.nearest_read(at);
        let write = if urgent || idle { self.nearest_run(at, cache) } else { None };
        match (read, write) {
            (Some((read, _)), None) => Some(Choice::Read(read)),
            (None, Some((run, _))) => Some(Choice::WriteBack(run)),
            (Some((read, reaches)), Some((run, writes))) => {
                Some(if reaches <= writes { Choice::Read(read) } else { Choice::WriteBack(run) })
            }
            (None, None) => None,
        }
    }

    fn urgent(&self, at: Ns, cache: &mut Cache) -> bool {
        self.backlog.waits()
            || cache.dirty_bytes() > URGENT_BYTES
            || cache.oldest().is_some_and(|(_, since, _)| since + URGENT_AGE <= at)
    }

    /// The queued read whose first byte is reached first, and after how long.
    fn nearest_read(&self, at: Ns) -> Option<(usize, Ns)> {
        let reach = |job: &Job| {
            let begin = at.max(job.arrived);
            begin - at + self.cost(begin, job).positioning()
        };
        let queued = self.reads.iter().take(QUEUE).map(reach).enumerate();
        queued.min_by_key(|(_, reach)| *reach)
    }

    /// The same of the cached runs around the arm.
    fn nearest_run(&self, at: Ns, cache: &Cache) -> Option<(Run, Ns)> {
        let head = self.ahead.as_ref().map_or(self.arm.head(), |ahead| ahead.end(at));
        let after = cache.runs_after(head, RUN_BYTES_MAX).take(CANDIDATES);
        let before = cache.runs_before(head, RUN_BYTES_MAX).take(CANDIDATES);
        let reach = |run: Run| (run, self.arm.access(at, run.offset, 0).positioning());
        after.chain(before).map(reach).min_by_key(|(_, reach)| *reach)
    }

    /// What a read costs if begun at `now`, wherever its data comes from.
    fn cost(&self, now: Ns, job: &Job) -> Access {
        let end = job.offset + job.bytes;
        let Some(ahead) = self.ahead.as_ref().filter(|ahead| ahead.reaches(now, job)) else {
            return self.arm.access(now, job.offset, job.bytes);
        };
        let reached = ahead.end(now);
        if end <= reached {
            Access { transfer: time_at(INTERFACE, job.bytes), ..Access::default() }
        } else if reached < ahead.limit {
            let read = ahead.since + time_at(TRANSFER, end - ahead.from);
            Access { transfer: read.saturating_sub(now), ..Access::default() }
        } else {
            let mut arm = self.arm.clone();
            arm.moved_over(reached, 0);
            Access { seek: 0, ..arm.access(now, reached, end - reached) }
        }
    }

    fn begin_read(&mut self, at: Ns, index: usize, counts: &mut Counts, done: &mut Vec<Done>) {
        let Some(job) = self.reads.remove(index) else { return };
        let begin = at.max(job.arrived);
        let cost = self.cost(begin, &job);
        match &self.ahead {
            Some(ahead) if ahead.reaches(begin, &job) => {
                counts.cache_hits += u64::from(job.offset + job.bytes <= ahead.end(begin));
            }
            _ => {
                self.leave_stream(begin);
                self.arm.moved_over(job.offset, job.bytes);
            }
        }
        count(counts, cost);
        let until = begin + cost.total();
        done.push(Done { id: job.id, at: until });
        self.task = Some(Task::Read { job, until });
    }

    fn begin_write_back(&mut self, at: Ns, run: Run, cache: &mut Cache, counts: &mut Counts) {
        self.leave_stream(at);
        let cost = self.arm.access(at, run.offset, run.bytes);
        self.arm.moved_over(run.offset, run.bytes);
        count(counts, cost);
        counts.write_backs += 1;
        let until = at + cost.total();
        cache.write_back(run);
        self.backlog.begin(run, until);
        self.task = Some(Task::WriteBack { until });
    }

    /// When cached writes are written though nothing else happens.
    fn wakes_at(&self, cache: &mut Cache) -> Option<Ns> {
        let (_, since, _) = cache.oldest()?;
        Some((self.last_read + IDLE_BEFORE_WRITING).min(since + URGENT_AGE))
    }
}

fn count(counts: &mut Counts, cost: Access) {
    counts.seeks += u64::from(cost.seek > 0);
    counts.seek_us += us(cost.seek);
    counts.rotation_us += us(cost.rotation);
    counts.transfer_us += us(cost.transfer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::drive::Drive;
    use crate::drive::tests::Memory;
    use crate::parameters::hdd::{REVOLUTION, SEEK_TRACK};
    use crate::parameters::{MS, US};

    const BYTES: u64 = 64 << 20;

    fn drive() -> Drive {
        Drive::new(Model::Hdd, BYTES, Box::new(Memory::new(BYTES)))
    }

    /// Runs the drive until `id` is due; when.
    fn finish(drive: &mut Drive, mut now: Ns, id: u64) -> Ns {
        loop {
            let wakes = drive.advance(now);
            while let Some(due) = drive.take_due(now) {
                if due == id {
                    return now;
                }
            }
            let next = [wakes, drive.next_due()].into_iter().flatten().min();
            now = now.max(next.expect("it will be due"));
        }
    }

    #[test]
    fn reading_on_is_as_fast_as_the_medium_though_the_host_takes_its_time() {
        let mut drive = drive();
        let mut block = vec![0; 128 << 10];
        let (mut now, mut from) = (0, 0);
        for at in 0..200 {
            let id = drive.read(now, at * block.len() as u64, &mut block).unwrap();
            now = finish(&mut drive, now, id) + 100 * US;
            if at == 0 {
                from = now;
            }
        }
        let rate = 199.0 * block.len() as f64 / ((now - from) as f64 / SECOND as f64);
        assert!((rate / TRANSFER as f64 - 1.0).abs() < 0.02, "{rate} bytes a second");
        assert!(drive.counts().seeks <= 1);
    }

    #[test]
    fn a_far_read_is_not_starved_by_near_ones() {
        let mut drive = drive();
        let mut page = [0; 4096];
        let far = drive.read(0, BYTES - 4096, &mut page).unwrap();
        let mut near = 0;
        let mut now = 0;
        let mut reads = 0;
        let over = loop {
            while reads < 16 {
                near = (near + 65_536) % (1 << 20);
                drive.read(now, near, &mut page).unwrap();
                reads += 1;
            }
            let wakes = drive.advance(now);
            let mut over = false;
            while let Some(due) = drive.take_due(now) {
                over |= due == far;
                reads -= 1;
            }
            if over {
                break now;
            }
            now = now.max([wakes, drive.next_due()].into_iter().flatten().min().unwrap());
            // The host answers a completion with the next request a little later.
            now += 20 * US;
        };
        assert!(over < STARVING_AGE + 3 * REVOLUTION + 20 * MS, "after {over} ns");
    }

    #[test]
    fn reads_come_before_cached_writes_which_a_flush_waits_for() {
        let mut drive = drive();
        let mut page = [1; 4096];
        let write = drive.write(0, 32 << 20, &page).unwrap();
        let written = finish(&mut drive, 0, write);
        assert!(written < MS, "a write is complete in the cache");
        let mut now = written;
        for at in 0..50 {
            let id = drive.read(now, (at % 7) * (3 << 20), &mut page).unwrap();
            now = finish(&mut drive, now, id);
        }
        assert_eq!(drive.counts().write_backs, 0, "reads kept the arm");
        let flush = drive.flush(now).unwrap();
        let flushed = finish(&mut drive, now, flush) - now;
        assert_eq!(drive.counts().write_backs, 1);
        assert!((SEEK_TRACK..SEEK_TRACK + 2 * REVOLUTION).contains(&flushed), "{flushed} ns");
        let hit = drive.counts().cache_hits;
        let id = drive.read(now + flushed, 10 << 20, &mut page).unwrap();
        finish(&mut drive, now + flushed, id);
        assert_eq!(drive.counts().cache_hits, hit, "what was written back is not in the cache");
    }

    #[test]
    fn a_full_cache_makes_writes_wait_for_the_arm() {
        let mut drive = drive();
        let page = [1; 4096];
        let pages = CACHE_BYTES / 4096;
        let mut now = 0;
        for at in 0..pages {
            let id = drive.write(now, at * 3 * 4096, &page).unwrap();
            now = finish(&mut drive, now, id);
        }
        let filled = now;
        assert!(filled < SECOND, "{filled} ns to fill the cache");
        for at in 0..pages {
            let id = drive.write(now, (at * 3 + 1) * 4096, &page).unwrap();
            now = finish(&mut drive, now, id);
        }
        assert!(drive.counts().write_backs > 0 && now > 3 * filled, "they waited");
    }
}
