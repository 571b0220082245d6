//! Readers and writers side by side, each with files of its own: the IOzone workloads of AWOL's
//! evaluation (paper 002, section 5), in operations of one page.
//!
//! `order` is the ways through a file, `schedule` who runs when, `load` doing it. Here: which files
//! there are, preparing, comparing and putting back.
//!
//! | the paper's | reader | writer |
//! |---|---|---|
//! | NRSW, NRZW | none | sequential, Zipf |
//! | SRSW, RRRW, ZRZW | sequential, random, Zipf | the same, on another file |
//! | NRVW | none | five to eight clients at any time, each sequential or Zipf |
//! | VRVW | one to each writer, as it goes | the same |
//!
//! The paper's processes end when their gigabyte is done; here a load has its time, in which a
//! writer goes around. It is over early if a lone sequential reader has read its file once: nothing
//! that it reads was in memory before. Of clients that come and go each reads at most its file's
//! length in a session, lest all that is measured is memory.
//!
//! Invariants: no two threads write one file, and no file that is read is written; a client's
//! writes are numbered on through its sessions, and their bytes follow from client and number.

mod load;
mod order;
mod schedule;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::PAGE_BYTES;
use crate::cold::make_file;
use crate::content::Random;
use crate::error::{Error, Result};
use crate::workload::outcome::Outcome;
use crate::workload::prepared::{Prepared, compare};
use crate::workload::slots::{PREPARED_SEED, Slots};
use order::Order;
use schedule::{CLIENTS, Session};

pub use order::Access;

const PAGE: u64 = PAGE_BYTES as u64;
/// Of several clients' files the least is so much of the greatest: the paper's have 100 to 512 MB.
const LEAST: (u64, u64) = (100, 512);
/// What the content of files that are read follows from, client by client.
const READ_SEED: u64 = 0x7265_6164_6572;
/// What the sizes of several clients' files follow from: the same for all loads, so that they can
/// share files.
const SIZE_SEED: u64 = 0x7369_7a65;
/// Tells what is read from what is written.
const READS: u64 = 0x7265_6164;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideBySide {
    /// What the reader does, if there is one. It is variable if, and only if, the writer is.
    pub reader: Option<Access>,
    /// What the writer does.
    pub writer: Access,
    /// Bytes of each file: whole pages. Of several clients' files it is the greatest.
    pub file_bytes: u64,
    /// For how long operations are begun; the last ones are waited for and counted.
    pub seconds: f64,
    /// The mean time between changes where clients come and go.
    pub change_seconds: f64,
    /// What orders, sessions and written bytes follow from. The prepared content does not.
    pub seed: u64,
}

/// A writer, the reader beside it, and their files.
struct Client {
    number: usize,
    /// Of each of its files.
    pages: u64,
    sessions: Vec<Session>,
    seed: u64,
}

impl Client {
    fn written(&self, directory: &Path) -> PathBuf {
        directory.join(format!("written-{}.data", self.number))
    }

    fn read(&self, directory: &Path) -> PathBuf {
        directory.join(format!("read-{}.data", self.number))
    }

    /// The content of the file that is read.
    fn prepared(&self) -> Prepared {
        Prepared::new(READ_SEED + self.number as u64)
    }

    /// The orders of its sessions, of writes or of reads.
    fn orders(&self, side: u64) -> impl Iterator<Item = (Session, Order)> {
        self.sessions.iter().zip(0..).map(move |(session, nth)| {
            let seed = Random::of(self.seed ^ side, nth).next();
            (*session, Order::new(session.access, self.pages, seed))
        })
    }

    /// The file that is written: a slot for each page.
    fn slots(&self) -> Slots {
        let file_bytes = self.pages * PAGE;
        Slots { io_bytes: PAGE, file_bytes, random: false, seed: self.seed }
    }

    /// For each page the number of its last write plus one, or 0, after so many writes in each
    /// session.
    fn last_writes(&self, done: &[u64]) -> Result<Vec<u32>> {
        let mut last = vec![0; self.pages as usize];
        let mut number = 0u32;
        for ((_, order), writes) in self.orders(0).zip(done) {
            for write in 0..*writes {
                number = number.checked_add(1).ok_or_else(|| Error::Answer {
                    from: "the load",
                    why: format!("{writes} writes are more than can be checked"),
                })?;
                last[order.page(write) as usize] = number;
            }
        }
        Ok(last)
    }
}

impl SideBySide {
    /// `nrsw`, `zrzw`, ...: as the paper calls it.
    pub fn name(&self) -> String {
        let reader = self.reader.map_or('n', Access::letter);
        format!("{reader}r{}w", self.writer.letter())
    }

    /// See [`crate::workload::Workload::shares_files_with`].
    pub fn shares_files_with(&self, other: &SideBySide) -> bool {
        (self.file_count(), self.file_bytes) == (other.file_count(), other.file_bytes)
    }

    /// Bytes of all files together, at most.
    pub fn files_bytes(&self) -> u64 {
        self.file_count() as u64 * self.file_bytes
    }

    /// Bytes of the least and of the greatest of its files.
    pub fn least_and_greatest(&self) -> [u64; 2] {
        let pages = (0..self.file_count() / 2).map(|client| self.pages_of(client));
        let [least, most] = [pages.clone().min(), pages.max()];
        [least, most].map(|pages| pages.unwrap_or(0) * PAGE)
    }

    /// Files that are read are there without a reader too: loads with and without share files.
    fn file_count(&self) -> usize {
        2 * if self.writer == Access::Variable { CLIENTS } else { 1 }
    }

    fn pages_of(&self, client: usize) -> u64 {
        let most = self.file_bytes / PAGE;
        if self.writer != Access::Variable {
            return most;
        }
        let least = (most * LEAST.0 / LEAST.1).max(1);
        least + Random::of(SIZE_SEED, client as u64).below(most - least + 1)
    }

    fn clients(&self) -> Result<Vec<Client>> {
        let variable = self.writer == Access::Variable;
        let together = self.reader.is_none_or(|reader| (reader == Access::Variable) == variable);
        let pages = self.file_bytes.is_multiple_of(PAGE) && self.file_bytes > 0;
        if !together || !pages || u32::try_from(self.file_bytes / PAGE).is_err() {
            return Err(Error::Missing {
                what: format!(
                    "{} on files of {} bytes cannot be run",
                    self.name(),
                    self.file_bytes
                ),
                remedy: "give files of whole pages, and a reader that goes as the writer does"
                    .into(),
            });
        }
        let sessions = match variable {
            true => schedule::variable(self.seed, self.seconds, self.change_seconds),
            false => schedule::steady(self.writer, self.seconds),
        };
        let client = |(number, sessions)| Client {
            number,
            pages: self.pages_of(number),
            sessions,
            seed: Random::of(self.seed, number as u64).next(),
        };
        Ok(sessions.into_iter().enumerate().map(client).collect())
    }

    /// The clients with what `outcome` says they wrote in each session.
    fn after<'a>(&self, outcome: &'a Outcome) -> Result<Vec<(Client, &'a [u64])>> {
        let mut rest = &outcome.done[..];
        let mut all = Vec::new();
        for client in self.clients()? {
            let (own, others) = rest.split_at_checked(client.sessions.len()).ok_or_else(unclear)?;
            rest = others;
            all.push((client, own));
        }
        if rest.is_empty() { Ok(all) } else { Err(unclear()) }
    }

    /// See [`crate::workload::Workload::prepare`].
    pub fn prepare(&self, home: &Path) -> Result<()> {
        for client in self.clients()? {
            let seed = READ_SEED + client.number as u64;
            make_file(&client.read(home), seed, client.pages)?;
            make_file(&client.written(home), PREPARED_SEED, client.pages)?;
        }
        Ok(())
    }

    /// See [`crate::workload::Workload::run`].
    pub fn run(&self, directory: &Path) -> Result<Outcome> {
        load::run(self, &self.clients()?, directory)
    }

    /// See [`crate::workload::Workload::verify`].
    pub fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (client, done) in self.after(outcome)? {
            let last = client.last_writes(done)?;
            client.slots().verify_last(&client.written(home), &last)?;
            let mut prepared = client.prepared();
            compare(
                &client.read(home),
                client.pages * PAGE,
                |page, bytes| bytes.copy_from_slice(prepared.page(page)),
                |_| "nobody writes this file".to_owned(),
            )?;
        }
        Ok(())
    }

    /// See [`crate::workload::Workload::reset`].
    pub fn reset(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (client, done) in self.after(outcome)? {
            let last = client.last_writes(done)?;
            let changed: Vec<bool> = last.iter().map(|last| *last > 0).collect();
            client.slots().restore(&client.written(home), &changed)?;
        }
        Ok(())
    }
}

fn unclear() -> Error {
    Error::Answer { from: "the load", why: "it does not say how much each client wrote".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    fn load(reader: Option<Access>, writer: Access) -> SideBySide {
        let file_bytes = 64 * PAGE;
        SideBySide { reader, writer, file_bytes, seconds: 0.1, change_seconds: 0.02, seed: 5 }
    }

    /// The paper's seven.
    fn all() -> Vec<SideBySide> {
        use Access::{Random, Sequential, Variable, Zipf};
        let alone = [Sequential, Zipf, Variable].map(|writer| load(None, writer));
        let both = [Sequential, Random, Zipf, Variable].map(|both| load(Some(both), both));
        alone.into_iter().chain(both).collect()
    }

    #[test]
    fn they_have_the_papers_names() {
        let names: Vec<String> = all().iter().map(SideBySide::name).collect();
        assert_eq!(names, ["nrsw", "nrzw", "nrvw", "srsw", "rrrw", "zrzw", "vrvw"]);
    }

    #[test]
    fn each_leaves_what_it_must_and_can_be_put_back() {
        for one in all() {
            let workload = Workload::SideBySide(one.clone());
            let home = Scratch::new(&format!("side-{}", one.name()), &workload);
            let outcome = workload.run(&home).unwrap();
            workload.verify(&home, &outcome).unwrap();
            let ops = |class| outcome.class(class).map_or(0, |class| class.ops);
            assert!(ops("write") > 0, "{}", one.name());
            assert_eq!(ops("write"), outcome.done.iter().sum::<u64>());
            assert_eq!(ops("read") > 0, one.reader.is_some(), "{}", one.name());
            assert_eq!(ops("read"), outcome.checked_reads);
            workload.reset(&home, &outcome).unwrap();
            let nothing = Outcome { done: vec![0; outcome.done.len()], ..outcome };
            workload.verify(&home, &nothing).unwrap();
        }
    }

    #[test]
    fn a_lone_sequential_reader_reads_its_file_once() {
        let one =
            SideBySide { seconds: 60.0, ..load(Some(Access::Sequential), Access::Sequential) };
        let workload = Workload::SideBySide(one);
        let home = Scratch::new("side-once", &workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.class("read").unwrap().ops, 64);
        assert!(outcome.seconds < 30.0, "{}", outcome.seconds);
    }

    #[test]
    fn wrong_bytes_are_found_in_either_file_and_by_the_reader() {
        let one = load(Some(Access::Random), Access::Random);
        let workload = Workload::SideBySide(one.clone());
        let home = Scratch::new("side-wrong", &workload);
        let outcome = workload.run(&home).unwrap();
        let client = &one.clients().unwrap()[0];
        let flip = |path: &Path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 5000).unwrap();
            file.write_all_at(&[byte[0] ^ 1], 5000).unwrap();
        };
        flip(&client.written(&home));
        assert_different(workload.verify(&home, &outcome), "written-0.data at byte 5000");
        flip(&client.written(&home));
        workload.verify(&home, &outcome).unwrap();
        flip(&client.read(&home));
        assert_different(workload.verify(&home, &outcome), "nobody writes this file");
        assert_different(workload.run(&home), "what was prepared");
        let less = Outcome { done: Vec::new(), ..outcome };
        assert!(workload.verify(&home, &less).is_err());
    }

    #[test]
    fn several_clients_have_files_from_a_fifth_of_the_greatest_on() {
        let one = SideBySide { file_bytes: 32 << 20, ..load(None, Access::Variable) };
        let clients = one.clients().unwrap();
        assert_eq!(clients.len(), CLIENTS);
        let range = (32 << 20) * 100 / 512 / PAGE..=(32 << 20) / PAGE;
        assert!(clients.iter().all(|client| range.contains(&client.pages)));
        let [least, most] = one.least_and_greatest();
        assert!(least < most && most <= 32 << 20);
        let other = SideBySide { seed: 6, ..load(Some(Access::Variable), Access::Variable) };
        assert!(!one.shares_files_with(&other));
        assert!(one.shares_files_with(&SideBySide { file_bytes: one.file_bytes, ..other }));
        assert!(load(Some(Access::Zipf), Access::Variable).clients().is_err());
    }

    #[test]
    fn the_last_write_of_a_page_is_counted_on_through_sessions() {
        let one = load(None, Access::Variable);
        let client = &one.clients().unwrap()[0];
        assert!(client.sessions.len() >= 2, "the seed gives it two");
        let done: Vec<u64> = (0..client.sessions.len() as u64).map(|nth| 10 * (nth + 1)).collect();
        let last = client.last_writes(&done).unwrap();
        let total: u64 = done.iter().sum();
        assert_eq!(u64::from(last.iter().copied().max().unwrap()), total);
        let (_, order) = client.orders(0).last().unwrap();
        assert_eq!(u64::from(last[order.page(done.last().unwrap() - 1) as usize]), total);
    }
}
