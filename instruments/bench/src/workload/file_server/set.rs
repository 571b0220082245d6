//! The files a file server has: how many, how large, and where.
//!
//! Sizes follow the file-size distribution of SPECsfs97's and SFS 3.0's file sets, the mean of
//! which is 27 KiB (the paper gives sizes of writes and none of files). Each thread of the load
//! has a share of its own, so the order of operations on each file is known.
//!
//! Invariant: a set follows from its size and the number of threads.

use std::path::{Path, PathBuf};

use crate::content::Random;

/// The directory that holds a set.
pub const ROOT: &str = "file-server";
/// The mode files have before a load.
pub const MODE: u32 = 0o644;
/// The symbolic link in each directory, and where it leads.
pub const LINK: &str = "link";
/// As above.
pub const LINK_TO: &str = "f00";

const FILES_A_DIRECTORY: usize = 30;
const SEED: u64 = 0x7365_7276;
/// Percent of the files, and KiB.
const SIZES: [(u64, u32); 10] =
    [(33, 1), (21, 2), (13, 4), (10, 8), (8, 16), (5, 32), (4, 64), (3, 128), (2, 256), (1, 1024)];

/// The files of one thread of the load, numbered from 0.
pub struct Share {
    thread: u32,
    sizes: Vec<u32>,
    /// File numbers, the largest files first.
    by_size: Vec<u32>,
}

impl Share {
    /// The share of `thread`: files of `bytes` altogether, or little more, and one of each size
    /// at least.
    pub fn new(thread: u32, bytes: u64) -> Share {
        let mut random = Random::of(SEED, u64::from(thread));
        let mut sizes: Vec<u32> = SIZES.iter().map(|(_, kib)| kib << 10).collect();
        let mut total: u64 = sizes.iter().copied().map(u64::from).sum();
        while total < bytes {
            let kib = random.pick(&SIZES);
            sizes.push(kib << 10);
            total += u64::from(kib << 10);
        }
        let mut by_size: Vec<u32> = (0..sizes.len() as u32).collect();
        by_size.sort_by_key(|file| std::cmp::Reverse(sizes[*file as usize]));
        Share { thread, sizes, by_size }
    }

    /// How many files there are.
    pub fn files(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// How many directories.
    pub fn directories(&self) -> u32 {
        self.sizes.len().div_ceil(FILES_A_DIRECTORY) as u32
    }

    /// The numbers of a directory's files.
    pub fn files_in(&self, directory: u32) -> std::ops::Range<u32> {
        let first = directory * FILES_A_DIRECTORY as u32;
        first..(first + FILES_A_DIRECTORY as u32).min(self.files())
    }

    /// A file's size, bytes.
    pub fn bytes(&self, file: u32) -> u32 {
        self.sizes[file as usize]
    }

    /// The files of at least this size, in bytes.
    pub fn at_least(&self, bytes: u32) -> &[u32] {
        let count = self.by_size.partition_point(|file| self.bytes(*file) >= bytes);
        &self.by_size[..count]
    }

    /// What a file's prepared content follows from.
    pub fn seed(&self, file: u32) -> u64 {
        Random::of(SEED ^ u64::from(self.thread) << 32, u64::from(file)).next()
    }

    /// A file's path, `root` being the directory that holds the set.
    pub fn file(&self, root: &Path, file: u32) -> PathBuf {
        self.directory(root, file / FILES_A_DIRECTORY as u32).join(self.name(file))
    }

    /// A file's name in its directory.
    pub fn name(&self, file: u32) -> String {
        format!("f{:02}", file as usize % FILES_A_DIRECTORY)
    }

    /// A directory's path.
    pub fn directory(&self, root: &Path, directory: u32) -> PathBuf {
        root.join(ROOT).join(format!("t{:02}-d{directory:04}", self.thread))
    }

    /// The name of a file that the load makes.
    pub fn new_name(number: u32) -> String {
        format!("new-{number:06}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_the_distribution_and_the_bytes_asked_for() {
        assert_eq!(SIZES.iter().map(|(percent, _)| percent).sum::<u64>(), 100);
        let share = Share::new(3, 80 << 20);
        let total: u64 = (0..share.files()).map(|file| u64::from(share.bytes(file))).sum();
        assert!((80 << 20..82 << 20).contains(&total));
        let mean = total / u64::from(share.files());
        assert!((20 << 10..36 << 10).contains(&mean), "{mean}");
        let large = share.at_least(128 << 10);
        assert!(large.iter().all(|file| share.bytes(*file) >= 128 << 10));
        let percent = large.len() * 100 / share.files() as usize;
        assert!((3..=9).contains(&percent), "{percent}");
        assert_eq!(share.at_least(1).len(), share.files() as usize);
        let last = share.directories() - 1;
        assert_eq!(share.files_in(last).end, share.files());
        assert!(!share.files_in(last).is_empty());
    }
}
