//! Every number of the emulated disks, and where it comes from. Nothing else in the emulator
//! chooses a time, a rate or a size of a disk.
//!
//! The two drives are those of the paper's evaluation (section 6: "500 GB WDC WD5002ABYS hard
//! disk-drive, a 32 GB Intel X25-E SSD, and Gigabit Ethernet"). Times are nanoseconds, rates bytes
//! a second, sizes bytes.
//!
//! What no model has: a cost of TRIM and of writing zeroes (neither drive knows them; they are
//! carried out at once), command overhead beyond what the way through this machine costs by itself,
//! zones of different density, and errors other than a power cut.

/// Nanoseconds: durations, and times since the drive was switched on.
pub type Ns = u64;

/// Nanoseconds in a microsecond.
pub const US: Ns = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: Ns = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: Ns = 1_000_000_000;

/// The time `bytes` take at `rate` bytes a second, ns.
pub fn time_at(rate: u64, bytes: u64) -> Ns {
    (u128::from(bytes) * u128::from(SECOND) / u128::from(rate)) as Ns
}

/// The hard disk: Western Digital RE3 WD5002ABYS.
pub mod hdd {
    use super::{MS, Ns};

    /// Data sheet: 500 GB.
    pub const DRIVE_BYTES: u64 = 500_000_000_000;
    /// Data sheet: 7200 revolutions a minute, hence 4.17 ms of rotation on average.
    pub const REVOLUTION: Ns = 60_000_000_000 / 7200;
    /// Data sheet: average read seek, over all pairs of places on the drive.
    pub const SEEK_MEAN: Ns = 8_900_000;
    /// Data sheet: seek from a track to the next.
    pub const SEEK_TRACK: Ns = 2 * MS;
    /// Where the curve of seek time over distance passes from square root to line, as a part of
    /// the stroke. The shape is that of Ruemmler and Wilkes, "An introduction to disk drive
    /// modeling" (1994); a third of the stroke is the mean distance of random seeks.
    pub const SEEK_KNEE: f64 = 1.0 / 3.0;
    /// Data sheet: sustained transfer between host and medium. A track holds what passes in a
    /// revolution at this rate, switches of head and cylinder included.
    pub const TRANSFER: u64 = 113_000_000;
    /// SATA 3 Gbit/s: what the drive's own memory is read and written at.
    pub const INTERFACE: u64 = 300_000_000;
    /// Data sheet: 16 MB cache. Writes may take all of it.
    pub const CACHE_BYTES: u64 = 16 << 20;
    /// SATA native command queueing: commands the drive chooses from.
    pub const QUEUE: usize = 32;
    /// Runs of cached writes considered on each side of the arm when one is to be written: as
    /// many in all as commands in the queue.
    pub const CANDIDATES: usize = QUEUE / 2;
    /// The most that is written in one go.
    pub const RUN_BYTES_MAX: u64 = 1 << 20;
    /// How far the drive reads on by itself after a read, and the size of a segment of its read
    /// cache. Not published for this drive; common for its generation.
    pub const READ_AHEAD_BYTES: u64 = 1 << 20;
    /// Segments of what was read and read ahead that are kept.
    pub const SEGMENTS: usize = 8;
    /// Cached writes are written when no read came for this time. Not published; longer than the
    /// host takes to ask for the next block of a file, shorter than a person waits.
    pub const IDLE_BEFORE_WRITING: Ns = 20 * MS;
    /// Cached writes compete with reads when they take more of the cache than this ...
    pub const URGENT_BYTES: u64 = CACHE_BYTES / 4 * 3;
    /// ... or the oldest of them is older than this.
    pub const URGENT_AGE: Ns = 1_000 * MS;
    /// A read that waited this long is served next wherever it is, so that none starves.
    pub const STARVING_AGE: Ns = 2_000 * MS;
    /// The same of a cached write: longer than the 8 s a full cache takes to be written in the
    /// order of the arm.
    pub const STARVING_WRITE_AGE: Ns = 30_000 * MS;
    /// The image stands for the first bytes of the drive: of this many at least, so that seeks on
    /// a small image are those of a file system of this size. (At one to one the drive makes about
    /// 145 random reads a second in 5 GB: with the write-back of the pages that were written, the
    /// paper's 97 random writes a second of the blocking kernel.)
    pub const BAND_BYTES: u64 = 16_000_000_000;
}

/// The flash drive: Intel X25-E, 32 GB.
pub mod ssd {
    use super::{Ns, US};

    /// Data sheet: 32 GB.
    pub const DRIVE_BYTES: u64 = 32_000_000_000;
    /// Data sheet: typical latency of a 4 KiB read.
    pub const READ: Ns = 75 * US;
    /// Data sheet: typical latency of a 4 KiB write (into the drive's buffer).
    pub const WRITE: Ns = 85 * US;
    /// Data sheet: random 4 KiB reads a second, queue of 32.
    pub const READS_A_SECOND: u64 = 35_000;
    /// Data sheet: random 4 KiB writes a second, sustained.
    pub const WRITES_A_SECOND: u64 = 3_300;
    /// Data sheet: sequential reading.
    pub const READ_RATE: u64 = 250_000_000;
    /// Data sheet: sequential writing.
    pub const WRITE_RATE: u64 = 170_000_000;
    /// Data sheet: ten parallel channels of flash.
    pub const CHANNELS: usize = 10;
    /// Consecutive bytes on one channel: a page of its flash.
    pub const STRIPE_BYTES: u64 = 4096;
    /// SATA native command queueing.
    pub const QUEUE: usize = 32;
    /// The controller's memory for data not yet on flash (its DRAM holds the mapping alone).
    pub const CACHE_BYTES: u64 = 256 << 10;
    /// The most that is written in one go: one page on each channel, and as much again in flight.
    pub const RUN_BYTES_MAX: u64 = 128 << 10;
}

/// Storage across a network: a block device on a server of the paper's time, as its NFS server was
/// ("Gigabit Ethernet"), that serves from memory.
pub mod remote {
    use super::{MS, Ns};

    /// One round trip with a small message, the server's own time included.
    pub const ROUND_TRIP: Ns = MS;
    /// Requests under way at a time.
    pub const QUEUE: usize = 64;
    /// What is granted: clouds sell such volumes by it (AWS EBS gp3: 3,000 to 16,000 a second).
    pub const REQUESTS_A_SECOND: u64 = 8_000;
    /// 1 Gbit/s each way, less the headers of Ethernet, IP and TCP.
    pub const RATE: u64 = 117_000_000;
    /// What the server holds in memory until it is told to make it durable.
    pub const CACHE_BYTES: u64 = 64 << 20;
}

/// No delays: this machine's own storage behind a volatile cache.
pub mod none {
    /// The cache is that of the hard disk, so that a power cut loses as much.
    pub const CACHE_BYTES: u64 = super::hdd::CACHE_BYTES;
}
