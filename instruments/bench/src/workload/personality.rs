//! Filebench's micro-benchmarks as the paper runs them (section 6.1): one operation size, one large
//! preallocated file, for a time.
//!
//! `random-readwrite` has one reader and one writer thread, the others one thread. Random offsets
//! are multiples of the operation's size, uniform over the file.
//!
//! Invariant: the writer announces a write before it begins and after it has ended, so a reader
//! knows which writes it must see and which it may.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use strum::{Display, VariantArray};

use serde::{Deserialize, Serialize};

use crate::cold::make_file;
use crate::error::{Doing, Error, Result};
use crate::page::PAGE;
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome, Tally};
use crate::workload::prepared::Prepared;
use crate::workload::read_log::ReadLog;
use crate::workload::slots::{PREPARED_SEED, Slots};
use crate::workload::timeline::Timeline;

/// The file's name in its directory.
pub const FILE: &str = "personality.data";
/// Smallest and largest operation.
const IO_BYTES: std::ops::RangeInclusive<u64> = 8..=1 << 20;

/// Which micro-benchmark, in the paper's order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Overwrites the file from the start on.
    SequentialWrite,
    /// Overwrites anywhere.
    RandomWrite,
    /// The same, and another thread reads anywhere.
    RandomReadwrite,
    /// Reads the file from the start on.
    SequentialRead,
    /// Reads anywhere.
    RandomRead,
}

impl Kind {
    fn reads(self) -> bool {
        !matches!(self, Kind::SequentialWrite | Kind::RandomWrite)
    }

    fn writes(self) -> bool {
        !matches!(self, Kind::SequentialRead | Kind::RandomRead)
    }

    fn is_random(self) -> bool {
        !matches!(self, Kind::SequentialRead | Kind::SequentialWrite)
    }
}

/// One run of a micro-benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Personality {
    /// Which.
    pub kind: Kind,
    /// Bytes of each operation, 8 to 1 MiB.
    pub io_bytes: u64,
    /// Bytes of the file: a multiple of the page size, and at least one operation.
    pub file_bytes: u64,
    /// For how long operations are begun; the last one is waited for and counted.
    pub seconds: f64,
    /// What offsets and written bytes follow from. The prepared content does not.
    pub seed: u64,
}

impl Personality {
    fn slots(&self) -> Result<Slots> {
        let slots = Slots {
            io_bytes: self.io_bytes,
            file_bytes: self.file_bytes,
            random: self.kind.is_random(),
            seed: self.seed,
        };
        let pages = self.file_bytes.is_multiple_of(PAGE);
        // Beyond 32 bits' worth of slots reads and writes could not be checked.
        let countable =
            pages && self.file_bytes >= self.io_bytes && IO_BYTES.contains(&self.io_bytes);
        if countable && u32::try_from(slots.count()).is_ok() {
            return Ok(slots);
        }
        Err(Error::Missing {
            what: format!(
                "operations of {} bytes on a file of {} bytes cannot be run",
                self.io_bytes, self.file_bytes
            ),
            remedy: "give 8 bytes to 1 MiB, and a file of whole pages that holds an operation"
                .into(),
        })
    }
}

impl Job for Personality {
    fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let slots = self.slots()?;
        make_file(&home.join(FILE), PREPARED_SEED, slots.file_bytes / PAGE)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let path = directory.join(FILE);
        let file = OpenOptions::new().read(true).write(true).open(&path).doing("open", &path)?;
        let start = Instant::now();
        let load = Load {
            slots: self.slots()?,
            path,
            file,
            start,
            deadline: start + Duration::from_secs_f64(self.seconds),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        };
        let (written, read) = thread::scope(|scope| {
            let writer = self.kind.writes().then(|| scope.spawn(|| load.write()));
            let read = self.kind.reads().then(|| load.read());
            (writer.map(|writer| writer.join().expect("a writer does not panic")), read)
        });
        let mut tallies = Vec::new();
        let (mut writes, mut reads) = (0, 0);
        let mut writes_over_time = None;
        if let Some(written) = written {
            let (tally, timeline) = written?;
            tallies.push(tally);
            writes_over_time = Some(timeline);
            writes = load.ended.into_inner();
        }
        if let Some(read) = read {
            let (tally, log, count) = read?;
            log.check(load.slots)?;
            tallies.push(tally);
            reads = count;
        }
        let outcome = Outcome::new(&tallies, vec![writes], reads);
        Ok(Outcome { writes_over_time, ..outcome })
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        self.slots()?.verify(&home.join(FILE), writes_of(outcome)?)
    }

    fn reset(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        self.slots()?.reset(&home.join(FILE), writes_of(outcome)?)
    }
}

/// The number of writes is the one thing an outcome keeps of them.
fn writes_of(outcome: &Outcome) -> Result<u64> {
    match outcome.done[..] {
        [writes] => Ok(writes),
        _ => Err(Error::answer("the load", "it does not say how much it wrote")),
    }
}

/// A run under way.
struct Load {
    slots: Slots,
    path: PathBuf,
    file: File,
    start: Instant,
    deadline: Instant,
    /// Writes begun, and those ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// One of the threads has stopped early, so the other need not go on.
    failed: AtomicBool,
}

impl Load {
    fn write(&self) -> Result<(Tally, Timeline)> {
        let mut timeline = Timeline::begun_at(self.start);
        let mut bytes = vec![0; self.slots.io_bytes as usize];
        let (tally, _) = self.until_deadline(|write, tally| {
            let slot = self.slots.of_write(write);
            self.slots.stamps().fill(write, &mut bytes);
            self.begun.store(write + 1, Ordering::Release);
            let before = Instant::now();
            let result = self.file.write_all_at(&bytes, self.slots.offset(slot));
            let after = Instant::now();
            result.doing("write", &self.path)?;
            self.ended.store(write + 1, Ordering::Release);
            tally.note(Class::Write, after - before);
            timeline.note(after - self.start);
            Ok(after)
        })?;
        Ok((tally, timeline))
    }

    fn read(&self) -> Result<(Tally, ReadLog, u64)> {
        let mut log = ReadLog::new();
        let mut check = ReadCheck::new(self.slots);
        let mut bytes = vec![0; self.slots.io_bytes as usize];
        let (tally, reads) = self.until_deadline(|read, tally| {
            let slot = self.slots.of_read(read);
            let ended = self.ended.load(Ordering::Acquire);
            let before = Instant::now();
            let result = self.file.read_exact_at(&mut bytes, self.slots.offset(slot));
            let after = Instant::now();
            result.doing("read", &self.path)?;
            let begun = self.begun.load(Ordering::Acquire);
            tally.note(Class::Read, after - before);
            match check.saw(slot, &bytes, ended..begun) {
                Saw::Prepared => log.note(slot, 0, ended),
                Saw::Write(write) => log.note(slot, write + 1, ended),
                Saw::Torn => {}
                Saw::Neither => {
                    return Err(Error::Different(format!(
                        "a read of {} at byte {} saw neither what was prepared nor a write that was \
                         made there (read number {read}, {begun} writes begun)",
                        self.path.display(),
                        self.slots.offset(slot)
                    )));
                }
            }
            Ok(after)
        })?;
        Ok((tally, log, reads))
    }

    /// Has `operation` done, which is given a number from 0 on and returns when it ended, until the
    /// time is over. Returns how many there were.
    fn until_deadline(
        &self,
        mut operation: impl FnMut(u64, &mut Tally) -> Result<Instant>,
    ) -> Result<(Tally, u64)> {
        let mut tally = Tally::new();
        let mut number = 0;
        loop {
            let ended = operation(number, &mut tally)
                .inspect_err(|_| self.failed.store(true, Ordering::Relaxed))?;
            number += 1;
            if ended >= self.deadline || self.failed.load(Ordering::Relaxed) {
                tally.seconds = (ended - self.start).as_secs_f64();
                return Ok((tally, number));
            }
        }
    }
}

/// What a read saw.
#[derive(Debug, PartialEq)]
enum Saw {
    /// What was prepared.
    Prepared,
    /// A whole write, by its number.
    Write(u64),
    /// A mixture, while a write to the same bytes was under way. Kernel file systems do not make
    /// reads and writes of a page atomic.
    Torn,
    /// Something that was never there.
    Neither,
}

/// Tells what reads saw.
struct ReadCheck {
    slots: Slots,
    prepared: Prepared,
    expected: Vec<u8>,
}

impl ReadCheck {
    fn new(slots: Slots) -> ReadCheck {
        let expected = vec![0; slots.io_bytes as usize];
        ReadCheck { slots, prepared: Prepared::new(PREPARED_SEED), expected }
    }

    /// What `bytes` of `slot` are. The writes below `meanwhile` had ended when the read began,
    /// those from its end on had not begun when the read ended.
    fn saw(&mut self, slot: u64, bytes: &[u8], mut meanwhile: std::ops::Range<u64>) -> Saw {
        let write = self.slots.stamps().write_of(bytes);
        let writes_begun = meanwhile.end;
        if write < writes_begun && self.slots.of_write(write) == slot {
            self.slots.stamps().fill(write, &mut self.expected);
            if self.expected == bytes {
                return Saw::Write(write);
            }
        }
        if self.prepared.matches(self.slots.offset(slot), bytes) {
            Saw::Prepared
        } else if meanwhile.any(|write| self.slots.of_write(write) == slot)
            && self.is_mixture(slot, bytes, writes_begun)
        {
            Saw::Torn
        } else {
            Saw::Neither
        }
    }

    /// Whether each byte is what was prepared there or what one of the first `writes` writes put
    /// there. Looks at all of them: for the rare read that saw nothing whole.
    fn is_mixture(&mut self, slot: u64, bytes: &[u8], writes: u64) -> bool {
        let mut known = vec![false; bytes.len()];
        let mut mark = |from: &[u8]| {
            for (known, (one, other)) in known.iter_mut().zip(from.iter().zip(bytes)) {
                *known |= one == other;
            }
        };
        self.prepared.copy(self.slots.offset(slot), &mut self.expected);
        mark(&self.expected);
        for write in (0..writes).filter(|write| self.slots.of_write(*write) == slot) {
            self.slots.stamps().fill(write, &mut self.expected);
            mark(&self.expected);
        }
        known.iter().all(|known| *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    fn open(home: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(home.join(FILE)).unwrap()
    }

    /// As a run that got so far.
    fn write(home: &Path, workload: &Workload, writes: u64) -> Outcome {
        let slots = slots(workload);
        let mut bytes = vec![0; slots.io_bytes as usize];
        for write in 0..writes {
            slots.stamps().fill(write, &mut bytes);
            open(home).write_all_at(&bytes, slots.offset(slots.of_write(write))).unwrap();
        }
        Outcome::new(&[], vec![writes], 0)
    }

    fn personality(kind: Kind, io_bytes: u64) -> Workload {
        let file_bytes = 64 * PAGE;
        Workload::Personality(Personality { kind, io_bytes, file_bytes, seconds: 0.02, seed: 9 })
    }

    fn slots(workload: &Workload) -> Slots {
        let Workload::Personality(personality) = workload else { unreachable!() };
        personality.slots().unwrap()
    }

    #[test]
    fn each_leaves_what_it_must_and_can_be_put_back() {
        for (kind, io_bytes) in Kind::VARIANTS.iter().zip([128, 1536, 512, 2048, 4096]) {
            let workload = personality(*kind, io_bytes);
            let home = Scratch::new(&workload);
            let outcome = workload.run(&home).unwrap();
            workload.verify(&home, &outcome).unwrap();
            let ops = |class| outcome.class(class).map_or(0, |class| class.ops);
            assert_eq!(ops("write") > 0, kind.writes(), "{kind}");
            assert_eq!(ops("read") > 0, kind.reads(), "{kind}");
            assert_eq!(ops("write"), outcome.done[0]);
            assert_eq!(ops("read"), outcome.checked_reads);
            assert_eq!(ops("all"), ops("read") + ops("write"));
            workload.reset(&home, &outcome).unwrap();
            let nothing = Outcome { done: vec![0], ..outcome };
            workload.verify(&home, &nothing).unwrap();
        }
    }

    #[test]
    fn sequential_writes_go_around_and_are_put_back() {
        let workload = personality(Kind::SequentialWrite, 3072);
        let home = Scratch::new(&workload);
        let mut outcome = write(&home, &workload, slots(&workload).count() + 2);
        workload.verify(&home, &outcome).unwrap();
        workload.reset(&home, &outcome).unwrap();
        outcome.done = vec![0];
        workload.verify(&home, &outcome).unwrap();
    }

    #[test]
    fn verification_finds_every_kind_of_fault() {
        let workload = personality(Kind::RandomWrite, 512);
        let home = Scratch::new(&workload);
        let outcome = write(&home, &workload, 2000);
        workload.verify(&home, &outcome).unwrap();
        let slots = slots(&workload);
        let last = outcome.done[0] - 1;
        let slot = slots.of_write(last);
        let older = (0..last).rev().find(|write| slots.of_write(*write) == slot).unwrap();
        let file = open(&home);
        let mut good = vec![0; 512];
        file.read_exact_at(&mut good, slots.offset(slot)).unwrap();
        let put = |bytes: &[u8]| file.write_all_at(bytes, slots.offset(slot)).unwrap();
        let fails = |why: &str| assert_different(workload.verify(&home, &outcome), why);

        let mut bytes = good.clone();
        bytes[500] ^= 1;
        put(&bytes);
        fails("instead of");
        Prepared::new(PREPARED_SEED).copy(slots.offset(slot), &mut bytes);
        put(&bytes);
        fails("holds what was prepared");
        slots.stamps().fill(older, &mut bytes);
        put(&bytes);
        fails(&format!("begins like write number {older}"));
        put(&good);
        workload.verify(&home, &outcome).unwrap();
        file.set_len(63 * PAGE).unwrap();
        fails("bytes instead of");
    }

    #[test]
    fn a_byte_that_no_write_touched_is_checked_too() {
        let workload = personality(Kind::SequentialWrite, 4096);
        let home = Scratch::new(&workload);
        open(&home).write_all_at(b"!", 40 * PAGE + 17).unwrap();
        let outcome = write(&home, &workload, 3);
        assert_different(workload.verify(&home, &outcome), "it was never written");
    }

    #[test]
    fn a_load_that_reads_a_wrong_byte_says_so() {
        for kind in [Kind::SequentialRead, Kind::RandomRead, Kind::RandomReadwrite] {
            // One read and at most one write, to another page: no write can put the wrong byte
            // right before it is read.
            let Workload::Personality(personality) = personality(kind, 4096) else {
                unreachable!()
            };
            let workload = Workload::Personality(Personality { seconds: 0.0, ..personality });
            let home = Scratch::new(&workload);
            for page in 0..64 {
                open(&home).write_all_at(b"!", page * 4096 + 100).unwrap();
            }
            let failed = workload.run(&home);
            assert_different(failed, "neither what was prepared nor");
        }
    }

    #[test]
    fn reads_are_told_apart() {
        let slots = slots(&personality(Kind::RandomReadwrite, 1536));
        let mut check = ReadCheck::new(slots);
        let slot = slots.of_write(40);
        let stamped = |write| {
            let mut bytes = vec![0; 1536];
            slots.stamps().fill(write, &mut bytes);
            bytes
        };
        let mut prepared = vec![0; 1536];
        Prepared::new(PREPARED_SEED).copy(slots.offset(slot), &mut prepared);
        assert_eq!(check.saw(slot, &prepared, 0..50), Saw::Prepared);
        assert_eq!(check.saw(slot, &stamped(40), 41..50), Saw::Write(40));
        assert_eq!(check.saw(slot, &stamped(40), 10..40), Saw::Neither, "not yet begun");
        assert_eq!(check.saw(slot + 1, &stamped(40), 41..41), Saw::Neither, "another slot's");
        let mut torn = stamped(40);
        torn[700..].copy_from_slice(&prepared[700..]);
        assert_eq!(check.saw(slot, &torn, 40..41), Saw::Torn);
        assert_eq!(check.saw(slot, &torn, 41..41), Saw::Neither, "nothing was under way");
        torn[800] ^= 1;
        assert_eq!(check.saw(slot, &torn, 40..41), Saw::Neither, "a byte of neither");
    }

    #[test]
    fn what_cannot_be_run_or_checked_is_refused() {
        for (io_bytes, file_bytes) in [(4, 1 << 20), (4096, 5000), (8192, 4096), (8, 1 << 36)] {
            let kind = Kind::RandomWrite;
            let one = Personality { kind, io_bytes, file_bytes, seconds: 1.0, seed: 0 };
            assert!(one.slots().is_err(), "{io_bytes} {file_bytes}");
        }
    }
}
