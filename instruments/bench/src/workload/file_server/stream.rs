//! The operations of one thread of the load, in their order.
//!
//! The mix is SPECsfs2008's for NFSv3, with reads, writes and others in the proportions of the
//! paper's section 6.2. Sizes of writes are those of its Table 2, those of reads alike; offsets
//! are multiples of the page size, so that 39 % of the writes end inside a page, as the paper
//! says. As with NFS, reads and writes are on files whose handle a lookup has given: a thread
//! keeps its newest [`HANDLES`] handles.
//!
//! Invariant: the stream follows from the seed; it does not know what became of an operation.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::content::Random;
use crate::page::PAGE_BYTES;
use crate::workload::file_server::set::Share;

/// Handles a thread has at a time.
pub const HANDLES: usize = 64;

/// How many of the operations are reads, writes and others, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Reads.
    pub reads: u32,
    /// Writes.
    pub writes: u32,
    /// All others.
    pub others: u32,
}

impl Mix {
    /// SPECsfs2008's own.
    pub const STANDARD: Mix = Mix { reads: 18, writes: 10, others: 72 };
    /// Its writes made reads.
    pub const NO_WRITES: Mix = Mix { reads: 28, writes: 0, others: 72 };
    /// Its reads made writes.
    pub const NO_READS: Mix = Mix { reads: 0, writes: 28, others: 72 };
    /// Reads and writes exchanged.
    pub const MORE_WRITES: Mix = Mix { reads: 10, writes: 18, others: 72 };
}

/// As the paper's Figure 12 names it: reads, writes, others.
impl std::fmt::Display for Mix {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}-{}-{}", self.reads, self.writes, self.others)
    }
}

/// One operation. Files and directories by their numbers in the [`Share`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a part of a file whose handle the thread has.
    Read(Extent),
    /// Overwrites such a part.
    Write(Extent),
    /// Looks a file up by its path and keeps its handle; the oldest one is given up.
    Lookup(u32),
    /// Asks for a file's attributes.
    GetAttr(u32),
    /// Asks whether a file may be read.
    Access(u32),
    /// Sets a file's mode.
    SetAttr(u32, u32),
    /// Reads a directory's symbolic link.
    ReadLink(u32),
    /// Reads a directory.
    ReadDir(u32),
    /// Reads a directory and the attributes of all that is in it.
    ReadDirPlus(u32),
    /// Asks how full the file system is.
    FsStat,
    /// Makes an empty file, the number of which is its name, in a directory.
    Create(u32, u32),
    /// Removes a file that was made so.
    Remove(u32, u32),
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub file: u32,
    /// Where it begins, bytes.
    pub offset: u32,
    /// How long it is, bytes.
    pub length: u32,
}

/// Makes an operation of one kind, on a file or in a directory that was drawn.
type Make = fn(&mut Stream<'_>, u32, u32) -> Operation;

/// SPECsfs2008's operations that are neither reads nor writes, in percent of all operations.
const OTHERS: [(u64, Make); 10] = [
    (26, |_, file, _| Operation::GetAttr(file)),
    (24, |stream, file, _| stream.look_up(file)),
    (11, |_, file, _| Operation::Access(file)),
    (4, |stream, file, _| {
        Operation::SetAttr(file, [0o600, 0o640, 0o664][stream.below(3) as usize])
    }),
    (2, |_, _, directory| Operation::ReadDirPlus(directory)),
    (1, |_, _, directory| Operation::ReadDir(directory)),
    (1, |_, _, directory| Operation::ReadLink(directory)),
    (1, |_, _, _| Operation::FsStat),
    (1, |stream, _, directory| stream.create(directory)),
    (1, |stream, _, directory| stream.remove_or_create(directory)),
];

/// The operations of one thread.
pub struct Stream<'a> {
    share: &'a Share,
    mix: Mix,
    random: Random,
    handles: VecDeque<u32>,
    made: VecDeque<(u32, u32)>,
    made_count: u32,
}

impl<'a> Stream<'a> {
    /// The stream of `thread`. Its first handles are there from the start, see
    /// [`Stream::handles`].
    pub fn new(share: &'a Share, mix: Mix, seed: u64, thread: u32) -> Stream<'a> {
        let mut random = Random::of(seed, u64::from(thread));
        let handles = (0..HANDLES).map(|_| random.below(u64::from(share.files())) as u32).collect();
        Stream { share, mix, random, handles, made: VecDeque::new(), made_count: 0 }
    }

    /// The handles the thread has now, the oldest first. A file may be among them twice.
    pub fn handles(&self) -> impl Iterator<Item = u32> {
        self.handles.iter().copied()
    }

    /// The next operation.
    pub fn next(&mut self) -> Operation {
        let draw = self.below(self.mix.reads + self.mix.writes + self.mix.others);
        if draw < self.mix.reads {
            Operation::Read(self.extent())
        } else if draw < self.mix.reads + self.mix.writes {
            Operation::Write(self.extent())
        } else {
            self.other()
        }
    }

    fn other(&mut self) -> Operation {
        let make = self.random.pick(&OTHERS);
        let file = self.below(self.share.files());
        let directory = self.below(self.share.directories());
        make(self, file, directory)
    }

    fn look_up(&mut self, file: u32) -> Operation {
        self.keep(file);
        Operation::Lookup(file)
    }

    fn create(&mut self, directory: u32) -> Operation {
        self.made_count += 1;
        self.made.push_back((directory, self.made_count));
        Operation::Create(directory, self.made_count)
    }

    /// Of the files made the oldest goes; if there is none, one is made.
    fn remove_or_create(&mut self, directory: u32) -> Operation {
        match self.made.pop_front() {
            Some((directory, number)) => Operation::Remove(directory, number),
            None => self.create(directory),
        }
    }

    /// Draws a size, a file with a handle that has as much (or, if there is none, another, to which
    /// the thread thereby has a handle), and an offset.
    fn extent(&mut self) -> Extent {
        let length = self.length();
        let large: Vec<u32> =
            self.handles().filter(|file| self.share.bytes(*file) >= length).collect();
        let file = if large.is_empty() {
            let among = self.share.at_least(length);
            let file = among[self.below(among.len() as u32) as usize];
            self.keep(file);
            file
        } else {
            large[self.below(large.len() as u32) as usize]
        };
        let page = PAGE_BYTES as u32;
        let offset = self.below((self.share.bytes(file) - length) / page + 1) * page;
        Extent { file, offset, length }
    }

    /// Table 2, where the last row's sizes are taken as equally frequent.
    fn length(&mut self) -> u32 {
        const KIB: u32 = 1 << 10;
        match self.below(100) {
            0..28 => 1 + self.below(4095),
            28..39 => 4 * KIB,
            39..42 => 4097 + self.below(4095),
            42..72 => 8 * KIB,
            72..79 => 8193 + self.below(8191),
            79..84 => 16 * KIB,
            84..85 => 16385 + self.below(16383),
            _ => [32, 64, 96, 128, 256][self.below(5) as usize] * KIB,
        }
    }

    fn keep(&mut self, file: u32) {
        self.handles.pop_front();
        self.handles.push_back(file);
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.below(u64::from(bound)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_sizes_are_in_the_stated_proportions() {
        assert_eq!(OTHERS.iter().map(|(percent, _)| percent).sum::<u64>(), 72);
        let share = Share::new(0, 16 << 20);
        let mut stream = Stream::new(&share, Mix::STANDARD, 1, 0);
        const COUNT: usize = 40_000;
        let mut lengths = Vec::new();
        let (mut reads, mut lookups, mut made, mut removed) = (0, 0, 0, 0);
        for _ in 0..COUNT {
            match stream.next() {
                Operation::Read(extent) => {
                    reads += 1;
                    assert!(stream.handles().any(|file| file == extent.file));
                }
                Operation::Write(extent) => {
                    assert!(extent.offset + extent.length <= share.bytes(extent.file));
                    lengths.push(extent.length);
                }
                Operation::Lookup(_) => lookups += 1,
                Operation::Create(..) => made += 1,
                Operation::Remove(..) => removed += 1,
                _ => {}
            }
        }
        let percent = |count: usize, of: usize| count as f64 * 100.0 / of as f64;
        let near = |is: f64, wanted: f64| assert!((is - wanted).abs() < 2.0, "{is} {wanted}");
        near(percent(reads, COUNT), 18.0);
        near(percent(lengths.len(), COUNT), 10.0);
        near(percent(lookups, COUNT), 24.0);
        near(percent(made + removed, COUNT), 2.0);
        let writes = lengths.len();
        let count = |wanted: fn(&u32) -> bool| lengths.iter().filter(|one| wanted(one)).count();
        near(percent(count(|length| length % 4096 != 0), writes), 39.0);
        near(percent(count(|length| *length < 4096), writes), 28.0);
        near(percent(count(|length| *length == 8192), writes), 30.0);
        near(percent(count(|length| *length >= 32 << 10), writes), 15.0);
    }

    #[test]
    fn one_seed_makes_one_stream() {
        let share = Share::new(0, 4 << 20);
        let stream = |seed| {
            let mut stream = Stream::new(&share, Mix::NO_READS, seed, 0);
            (0..500).map(|_| stream.next()).collect::<Vec<_>>()
        };
        assert_eq!(stream(4), stream(4));
        assert_ne!(stream(4), stream(5));
        assert!(!stream(4).iter().any(|operation| matches!(operation, Operation::Read(_))));
    }
}
