//! Writers that sync every write: each thread overwrites a file of its own at random places and
//! calls fdatasync(2) after each write. One operation is a write and its sync.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cold::make_file;
use crate::error::{Doing, Error, Result};
use crate::page::PAGE;
use crate::threads::at_once;
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome, Tally};
use crate::workload::slots::{PREPARED_SEED, Slots};

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncedWrites {
    /// Writers, each with its own file.
    pub threads: u32,
    /// Bytes of each write.
    pub io_bytes: u64,
    /// Bytes of all files together.
    pub file_bytes: u64,
    /// For how long operations are begun; the last one is waited for and counted.
    pub seconds: f64,
    /// What offsets and written bytes follow from.
    pub seed: u64,
}

impl SyncedWrites {
    fn slots(&self, thread: u32) -> Slots {
        let page = PAGE;
        Slots {
            io_bytes: self.io_bytes,
            file_bytes: (self.file_bytes / u64::from(self.threads) / page).max(1) * page,
            random: true,
            seed: self.seed + u64::from(thread),
        }
    }

    /// The writers' files, with what is written to each.
    fn files<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = (PathBuf, Slots)> + 'a {
        (0..self.threads).map(|thread| {
            let path = directory.join(format!("synced-{thread}.data"));
            (path, self.slots(thread))
        })
    }

    fn writes_of<'a>(&self, outcome: &'a Outcome) -> Result<&'a [u64]> {
        if outcome.done.len() == self.threads as usize {
            return Ok(&outcome.done);
        }
        Err(Error::answer("the load", "it does not say how much it wrote"))
    }
}

impl Job for SyncedWrites {
    fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        for (path, slots) in self.files(home) {
            make_file(&path, PREPARED_SEED, slots.file_bytes / PAGE)?;
        }
        Ok(())
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let start = Instant::now();
        let deadline = start + Duration::from_secs_f64(self.seconds);
        let writers =
            self.files(directory).map(|(path, slots)| move || write(&path, slots, start, deadline));
        let (tallies, done): (Vec<Tally>, Vec<u64>) = at_once(writers)?.into_iter().unzip();
        Ok(Outcome::new(&tallies, done, 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for ((path, slots), writes) in self.files(home).zip(self.writes_of(outcome)?) {
            slots.verify(&path, *writes)?;
        }
        Ok(())
    }

    fn reset(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for ((path, slots), writes) in self.files(home).zip(self.writes_of(outcome)?) {
            slots.reset(&path, *writes)?;
        }
        Ok(())
    }
}

fn write(path: &Path, slots: Slots, start: Instant, deadline: Instant) -> Result<(Tally, u64)> {
    let file = OpenOptions::new().write(true).open(path).doing("open", path)?;
    let mut bytes = vec![0; slots.io_bytes as usize];
    let mut tally = Tally::new();
    for number in 0.. {
        slots.stamps().fill(number, &mut bytes);
        let before = Instant::now();
        file.write_all_at(&bytes, slots.offset(slots.of_write(number))).doing("write", path)?;
        file.sync_data().doing("sync", path)?;
        let after = Instant::now();
        tally.note(Class::Sync, after - before);
        if after >= deadline {
            tally.seconds = (after - start).as_secs_f64();
            return Ok((tally, number + 1));
        }
    }
    unreachable!("the time is over before the numbers are")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    #[test]
    fn it_leaves_what_it_must_and_can_be_put_back() {
        let workload = Workload::SyncedWrites(SyncedWrites {
            threads: 3,
            io_bytes: 2048,
            file_bytes: 96 * PAGE,
            seconds: 0.05,
            seed: 4,
        });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.done.len(), 3);
        assert_eq!(outcome.class("sync").unwrap().ops, outcome.done.iter().sum::<u64>());
        workload.verify(&home, &outcome).unwrap();
        let file = OpenOptions::new().write(true).open(home.join("synced-1.data")).unwrap();
        file.write_all_at(b"!", 5000).unwrap();
        assert_different(workload.verify(&home, &outcome), "instead of");
        workload.prepare(&home).unwrap();
        let nothing = Outcome { done: vec![0; 3], ..outcome };
        workload.verify(&home, &nothing).unwrap();
    }
}
