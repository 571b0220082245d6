//! Postmark's mix (Katcher, "PostMark: A New File System Benchmark", 1997): a pool of small files, and transactions of
//! two halves each: read a file or append to one, then create a file or delete one.
//!
//! What is done follows from the seed alone. The pool is not removed in the end, so that it can be compared.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::content::Random;
use crate::error::{Doing, Result};
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome};
use crate::workload::small_file::{small_content, verify_small};
use crate::workload::tree::{clear, sync};

const SEED: u64 = 0x706f_7374;
/// Postmark's default bounds are 500 bytes and 9.77 KiB; these are up to as large.
const FILE_BYTES_MAX: u64 = 9_770;
const APPEND_BYTES_MAX: u64 = 1_000;
/// Directories that the files are spread over.
const DIRECTORIES: u64 = 10;
/// The most that a read asks for at once: Postmark's default.
const READ_BYTES: usize = 512;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Postmark {
    /// Files of the pool when the transactions begin.
    pub files: u64,
    /// How many.
    pub transactions: u64,
}

/// A file of the pool, as it has to be.
struct Pooled {
    number: u64,
    /// The numbers of the transactions that appended to it.
    appended: Vec<u64>,
}

impl Pooled {
    fn content(&self) -> Vec<u8> {
        let mut content = small_content(SEED, self.number, FILE_BYTES_MAX);
        self.appended.iter().for_each(|transaction| content.extend(appendix(*transaction)));
        content
    }
}

fn appendix(transaction: u64) -> Vec<u8> {
    small_content(SEED + 1, transaction, APPEND_BYTES_MAX)
}

fn place(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("sub-{}", number % DIRECTORIES)).join(format!("file-{number}"))
}

/// What a transaction does.
enum Half {
    Read { number: u64 },
    Append { number: u64, transaction: u64 },
    Create { number: u64 },
    Delete { number: u64 },
}

/// The pool, and what comes next.
struct Pool {
    files: Vec<Pooled>,
    made: u64,
    random: Random,
}

impl Pool {
    fn new(files: u64) -> Pool {
        let pooled = (0..files).map(|number| Pooled { number, appended: Vec::new() });
        Pool { files: pooled.collect(), made: files, random: Random::of(SEED, files) }
    }

    /// The two halves of a transaction.
    fn transaction(&mut self, transaction: u64) -> [Half; 2] {
        let first = self.random.below(self.files.len() as u64) as usize;
        let file = &mut self.files[first];
        let number = file.number;
        let first = if self.random.below(2) == 0 {
            Half::Read { number }
        } else {
            file.appended.push(transaction);
            Half::Append { number, transaction }
        };
        // The last file stays: a transaction needs one.
        let second = if self.files.len() > 1 && self.random.below(2) == 0 {
            let at = self.random.below(self.files.len() as u64) as usize;
            Half::Delete { number: self.files.swap_remove(at).number }
        } else {
            let number = self.made;
            self.made += 1;
            self.files.push(Pooled { number, appended: Vec::new() });
            Half::Create { number }
        };
        [first, second]
    }
}

fn create(directory: &Path, number: u64) -> Result<()> {
    let path = place(directory, number);
    fs::write(&path, small_content(SEED, number, FILE_BYTES_MAX)).doing("write", &path)
}

fn act(directory: &Path, half: Half) -> Result<()> {
    match half {
        Half::Create { number } => create(directory, number),
        Half::Delete { number } => {
            let path = place(directory, number);
            fs::remove_file(&path).doing("remove", &path)
        }
        Half::Append { number, transaction } => {
            let path = place(directory, number);
            let mut file = OpenOptions::new().append(true).open(&path).doing("open", &path)?;
            file.write_all(&appendix(transaction)).doing("append to", &path)
        }
        Half::Read { number } => {
            let path = place(directory, number);
            let mut file = File::open(&path).doing("open", &path)?;
            let mut buffer = [0; READ_BYTES];
            while file.read(&mut buffer).doing("read", &path)? > 0 {}
            Ok(())
        }
    }
}

impl Job for Postmark {
    fn file_bytes(&self) -> u64 {
        (self.files + self.transactions) * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)?;
        for number in 0..DIRECTORIES {
            let path = home.join(format!("sub-{number}"));
            fs::create_dir(&path).doing("create", &path)?;
        }
        sync(home)
    }

    /// First the files of the pool, then the transactions, each an operation.
    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut pool = Pool::new(self.files);
        Outcome::of_each(Class::Transaction, self.files + self.transactions, |number| match number
            .checked_sub(self.files)
        {
            None => create(directory, number),
            Some(transaction) => {
                let halves = pool.transaction(transaction);
                halves.into_iter().try_for_each(|half| act(directory, half))
            }
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let mut pool = Pool::new(self.files);
        for transaction in 0..self.transactions {
            pool.transaction(transaction);
        }
        let mut files = pool.files.iter();
        files.try_for_each(|file| verify_small(&place(home, file.number), &file.content()))
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.prepare(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn the_pool_is_as_the_transactions_leave_it() {
        let home = tempfile::tempdir().unwrap();
        let postmark = Postmark { files: 50, transactions: 400 };
        postmark.prepare(home.path()).unwrap();
        let outcome = postmark.run(home.path()).unwrap();
        assert_eq!(outcome.class("transaction").unwrap().ops, 450);
        postmark.verify(home.path(), &outcome).unwrap();
        let mut pool = Pool::new(50);
        for transaction in 0..400 {
            pool.transaction(transaction);
        }
        assert!(pool.files.iter().any(|file| !file.appended.is_empty()));
        let path = place(home.path(), pool.files[0].number);
        fs::write(path, "spoilt").unwrap();
        assert_different(postmark.verify(home.path(), &outcome), "is not as written");
    }
}
