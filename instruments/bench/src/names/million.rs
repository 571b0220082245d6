//! A great many files: made one by one, then listed with their attributes. What it is for is the daemon's memory and its
//! open descriptors, which are in the results of every round.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Doing, Error, Result};
use crate::workload::tree::clear;
use crate::workload::{Class, Job, Outcome, Tally};

const FILES_A_DIRECTORY: u64 = 1000;

/// One run.
pub struct Million {
    /// How many: a million, or as many as there is time for.
    pub files: u64,
}

impl Million {
    fn directories(&self) -> impl Iterator<Item = (u64, String)> {
        (0..self.files.div_ceil(FILES_A_DIRECTORY)).map(|number| (number, format!("dir-{number}")))
    }

    fn create(&self, directory: &Path, tally: &mut Tally) -> Result<()> {
        for (number, name) in self.directories() {
            let path = directory.join(name);
            fs::create_dir(&path).doing("create", &path)?;
            let first = number * FILES_A_DIRECTORY;
            for file in first..(first + FILES_A_DIRECTORY).min(self.files) {
                let path = path.join(format!("file-{file}"));
                let start = Instant::now();
                File::create_new(&path).map(drop).doing("create", &path)?;
                tally.note(Class::Write, start.elapsed());
            }
        }
        Ok(())
    }

    /// Lists a directory with every file's attributes: an operation.
    fn list(&self, path: &PathBuf, tally: &mut Tally) -> Result<u64> {
        let start = Instant::now();
        let mut count = 0;
        for entry in fs::read_dir(path).doing("read", path)? {
            let entry = entry.doing("read", path)?;
            entry.metadata().doing("look at", &entry.path())?;
            count += 1;
        }
        tally.note(Class::Read, start.elapsed());
        Ok(count)
    }
}

impl Job for Million {
    fn file_bytes(&self) -> u64 {
        self.files * 512
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut creating = Tally::new();
        let start = Instant::now();
        self.create(directory, &mut creating)?;
        creating.seconds = start.elapsed().as_secs_f64();
        let mut listing = Tally::new();
        let start = Instant::now();
        let mut listed = 0;
        for (_, name) in self.directories() {
            listed += self.list(&directory.join(name), &mut listing)?;
        }
        listing.seconds = start.elapsed().as_secs_f64();
        if listed != self.files {
            return Err(Error::Different(format!("{listed} files listed of {}", self.files)));
        }
        Ok(Outcome::new(&[creating, listing], vec![self.files], 0))
    }

    /// Only counted: the trees of all sides are compared anyway.
    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let found: u64 = self
            .directories()
            .map(|(_, name)| {
                let path = home.join(name);
                fs::read_dir(&path).doing("read", &path).map(|names| names.count() as u64)
            })
            .sum::<Result<u64>>()?;
        if found == self.files {
            return Ok(());
        }
        Err(Error::Different(format!("{found} files of {} are home", self.files)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn files_are_made_listed_and_counted() {
        let home = tempfile::tempdir().unwrap();
        let million = Million { files: 2500 };
        million.prepare(home.path()).unwrap();
        let outcome = million.run(home.path()).unwrap();
        assert_eq!(outcome.class("write").unwrap().ops, 2500);
        assert_eq!(outcome.class("read").unwrap().ops, 3);
        million.verify(home.path(), &outcome).unwrap();
        fs::remove_file(home.path().join("dir-2/file-2400")).unwrap();
        assert_different(million.verify(home.path(), &outcome), "2499 files of 2500");
    }
}
