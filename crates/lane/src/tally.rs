//! The counters of programs under `weir run --report`, in a file that they share with it.
//!
//! Layout: `Head`, then [`PROGRAMS`] of [`Program`]. Each process has a place of its own and adds to it. The counters
//! stay when the process ends, even if it is killed, and its place goes to the next process of the same name.
//!
//! The file is the user's own: its contents are only shown.

#![allow(unsafe_code)] // Shared memory cannot be used without it.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::memory::{Access, Memory};

/// Places for processes.
pub const PROGRAMS: usize = 1024;
/// The environment variable that names the file.
pub const VARIABLE: &std::ffi::CStr = c"WEIR_RUN_TALLY";
const MAGIC: u64 = u64::from_le_bytes(*b"weirtal1");
const NAME_BYTES: usize = 16;

/// Why a read or write fell back to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fallback {
    /// The description was not yet used often enough to be put into the lane.
    Early,
    /// The mount has no lane, or the daemon did not take this description or this process.
    Refused,
    /// Not all of the pages are in memory.
    Absent,
    /// A write to one of the pages was pending.
    Pending,
    /// The file's mode does not allow it: other programs use the file, or it is used by the kernel.
    Mode,
    /// The read reaches past the end of the file.
    End,
    /// The write reaches past what is reserved for the file.
    Reserved,
    /// The ring was full.
    Full,
    /// More bytes than a ring's entry takes.
    Large,
    /// O_SYNC or O_DSYNC.
    Synchronous,
    /// The program asked for O_DIRECT.
    Direct,
    /// The file is mapped.
    Mapped,
    /// The description was passed on to another program.
    Passed,
    /// The daemon is gone.
    Gone,
    /// All rings are taken.
    NoRing,
    /// Inside a signal handler that interrupted a write, or a child of vfork(2).
    Nested,
    /// The process has a limit on the size of files.
    Limited,
    /// In a session: another program posts at the moment, or promises of another mount are not durable.
    Order,
    /// Flags of preadv2(2), a size or an offset that the lane does not handle.
    Special,
}

impl Fallback {
    /// All of them, in order.
    pub const ALL: [Fallback; 19] = [
        Fallback::Early,
        Fallback::Refused,
        Fallback::Absent,
        Fallback::Pending,
        Fallback::Mode,
        Fallback::End,
        Fallback::Reserved,
        Fallback::Full,
        Fallback::Large,
        Fallback::Synchronous,
        Fallback::Direct,
        Fallback::Mapped,
        Fallback::Passed,
        Fallback::Gone,
        Fallback::NoRing,
        Fallback::Nested,
        Fallback::Limited,
        Fallback::Order,
        Fallback::Special,
    ];
}

/// The other counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Count {
    /// Reads by the lane.
    LaneReads,
    /// Their bytes.
    LaneReadBytes,
    /// Writes posted.
    LaneWrites,
    /// Their bytes.
    LaneWriteBytes,
    /// Appends among the writes posted.
    LaneAppends,
    /// Bytes read by the kernel.
    KernelReadBytes,
    /// Bytes written by the kernel.
    KernelWriteBytes,
    /// fsync(2) and its like.
    Syncs,
    /// Descriptions put into the lane.
    Attached,
}

const COUNTS: usize = Count::Attached as usize + 1;
const FALLBACKS: usize = Fallback::ALL.len();

#[repr(C, align(64))]
struct Head {
    magic: AtomicU64,
    /// Places ever taken.
    taken: AtomicU32,
}

/// The counters of one process, or of several processes of the same name, one after the other.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Program {
    process: AtomicU32,
    processes: AtomicU32,
    name: [AtomicU8; NAME_BYTES],
    counts: [AtomicU64; COUNTS],
    reads: [AtomicU64; FALLBACKS],
    writes: [AtomicU64; FALLBACKS],
}

impl Program {
    /// Adds to a counter.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        self.counts[count as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// A read of `bytes` went by the kernel.
    pub fn add_kernel_read(&self, fallback: Fallback, bytes: u64) {
        self.reads[fallback as usize].fetch_add(1, Ordering::Relaxed);
        self.add(Count::KernelReadBytes, bytes);
    }

    /// A write of `bytes` went by the kernel.
    pub fn add_kernel_write(&self, fallback: Fallback, bytes: u64) {
        self.writes[fallback as usize].fetch_add(1, Ordering::Relaxed);
        self.add(Count::KernelWriteBytes, bytes);
    }

    /// A counter's value.
    pub fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// Reads that went by the kernel for this reason.
    pub fn kernel_reads(&self, fallback: Fallback) -> u64 {
        self.reads[fallback as usize].load(Ordering::Relaxed)
    }

    /// Writes that went by the kernel for this reason.
    pub fn kernel_writes(&self, fallback: Fallback) -> u64 {
        self.writes[fallback as usize].load(Ordering::Relaxed)
    }

    /// Processes that had this place.
    pub fn processes(&self) -> u32 {
        self.processes.load(Ordering::Relaxed)
    }

    /// Their name, as ps(1) shows it: up to 15 bytes.
    pub fn name(&self) -> Vec<u8> {
        let bytes = self.name_bytes();
        bytes.iter().copied().take_while(|byte| *byte != 0).collect()
    }

    fn name_bytes(&self) -> [u8; NAME_BYTES] {
        std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed))
    }
}

/// The shared file, mapped.
#[derive(Debug)]
pub struct Tally {
    memory: Memory,
}

impl Tally {
    /// Bytes of the file, all zero at first.
    pub const BYTES: usize = size_of::<Head>() + PROGRAMS * size_of::<Program>();

    /// Maps the file; initializes it if it is new.
    ///
    /// # Errors
    /// That of mmap(2); `InvalidData` if the file holds something else.
    pub fn map(file: impl AsFd) -> io::Result<Tally> {
        let tally = Tally { memory: Memory::map(file, Tally::BYTES, Access::ReadWrite)? };
        let magic = &tally.head().magic;
        let before = magic.compare_exchange(0, MAGIC, Ordering::AcqRel, Ordering::Acquire);
        match before {
            Ok(_) | Err(MAGIC) => Ok(tally),
            Err(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn head(&self) -> &Head {
        // SAFETY: atomics alone.
        unsafe { self.memory.at(0) }
    }

    fn places(&self) -> &[Program] {
        // SAFETY: atomics alone.
        unsafe { self.memory.array(size_of::<Head>(), PROGRAMS) }
    }

    /// Takes a place for a process: that of a dead process of the same name, else a new place, else the last one, which
    /// several processes then share.
    pub fn take(&self, process: u32, name: [u8; 15], is_alive: impl Fn(u32) -> bool) -> &Program {
        let mut whole = [0; NAME_BYTES];
        whole[..15].copy_from_slice(&name);
        let places = self.places();
        let known = (self.head().taken.load(Ordering::Acquire) as usize).min(PROGRAMS);
        let left = places[..known].iter().find(|place| {
            let before = place.process.load(Ordering::Relaxed);
            let is_left = before != 0 && place.name_bytes() == whole && !is_alive(before);
            let take = || {
                let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
                place.process.compare_exchange(before, process, success, failure).is_ok()
            };
            is_left && take()
        });
        let place = left.unwrap_or_else(|| {
            let next = self.head().taken.fetch_add(1, Ordering::AcqRel) as usize;
            let place = &places[next.min(PROGRAMS - 1)];
            for (to, from) in place.name.iter().zip(whole) {
                to.store(from, Ordering::Relaxed);
            }
            place.process.store(process, Ordering::Release);
            place
        });
        place.processes.fetch_add(1, Ordering::Relaxed);
        place
    }

    /// The places that are or were taken.
    pub fn programs(&self) -> &[Program] {
        let taken = (self.head().taken.load(Ordering::Acquire) as usize).min(PROGRAMS);
        &self.places()[..taken]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd_create(2)")]
    fn the_place_of_a_dead_process_goes_to_the_next_of_the_same_name() {
        let fd = crate::memory::create("tally", Tally::BYTES).unwrap();
        let tally = Tally::map(&fd).unwrap();
        let name = |text: &[u8]| {
            let mut name = [0; 15];
            name[..text.len()].copy_from_slice(text);
            name
        };
        let first = tally.take(10, name(b"cc1"), |_| true);
        first.add(Count::LaneReads, 3);
        first.add_kernel_write(Fallback::Full, 100);
        tally.take(11, name(b"cc1"), |_| true).add(Count::LaneReads, 1);
        tally.take(12, name(b"ld"), |_| false);
        // Another process's view of the file.
        let other = Tally::map(&fd).unwrap();
        assert_eq!(other.programs().len(), 3);
        let again = other.take(13, name(b"cc1"), |process| process != 10);
        assert_eq!((again.count(Count::LaneReads), again.processes()), (3, 2));
        assert_eq!((again.kernel_writes(Fallback::Full), again.name()), (1, b"cc1".to_vec()));
        assert_eq!(again.count(Count::KernelWriteBytes), 100);
        assert_eq!(tally.programs().len(), 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd_create(2)")]
    fn more_processes_than_places_share_the_last() {
        let fd = crate::memory::create("tally", Tally::BYTES).unwrap();
        let tally = Tally::map(&fd).unwrap();
        for process in 1..PROGRAMS as u32 + 10 {
            tally.take(process, [b'x'; 15], |_| true).add(Count::Syncs, 1);
        }
        assert_eq!(tally.programs().len(), PROGRAMS);
        let syncs: u64 = tally.programs().iter().map(|place| place.count(Count::Syncs)).sum();
        assert_eq!(syncs, PROGRAMS as u64 + 9);
    }

    #[test]
    fn fallbacks_are_in_order() {
        for (at, fallback) in Fallback::ALL.into_iter().enumerate() {
            assert_eq!(fallback as usize, at);
        }
    }
}
