//! Readers and writers side by side, on files: [`weir_sim::side_by_side`] says which operations there are.
//!
//! `load` is doing them. Here: which files there are, preparing, comparing and putting back.
//!
//! Invariants: no two threads write one file, and no file that is read is written; a client's
//! writes are numbered on through its sessions, and their bytes follow from client and number.

mod files;
mod load;

use std::path::Path;

use weir_sim::side_by_side::{Client, Side, Unrunnable};

use self::files::{READ_SEED, file_read, file_written, prepared, slots};
use crate::cold::make_file;
use crate::error::{Error, Result};
use crate::page::PAGE;
use crate::workload::job::Job;
use crate::workload::outcome::Outcome;
use crate::workload::prepared::compare;
use crate::workload::slots::PREPARED_SEED;

pub use weir_sim::side_by_side::{Access, SideBySide, WORKLOADS};

impl Job for SideBySide {
    fn file_bytes(&self) -> u64 {
        self.files_bytes()
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        for client in self.clients()? {
            let seed = READ_SEED + client.number as u64;
            make_file(&file_read(&client, home), seed, client.pages)?;
            make_file(&file_written(&client, home), PREPARED_SEED, client.pages)?;
        }
        Ok(())
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        load::run(self, &self.clients()?, directory)
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (client, done) in after(self, outcome)? {
            let last = last_writes(&client, done)?;
            slots(&client).verify_last(&file_written(&client, home), &last)?;
            let mut prepared = prepared(&client);
            compare(
                &file_read(&client, home),
                client.pages * PAGE,
                |page, bytes| bytes.copy_from_slice(prepared.page(page)),
                |_| "nobody writes this file".to_owned(),
            )?;
        }
        Ok(())
    }

    fn reset(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (client, done) in after(self, outcome)? {
            let last = last_writes(&client, done)?;
            slots(&client).reset_last(&file_written(&client, home), &last)?;
        }
        Ok(())
    }
}

impl From<Unrunnable> for Error {
    fn from(load: Unrunnable) -> Error {
        Error::Missing {
            what: load.to_string(),
            remedy: "give files of whole pages, and a reader that goes as the writer does".into(),
        }
    }
}

/// For each page the number of its last write plus one, or 0, after `done` writes in each
/// session.
fn last_writes(client: &Client, done: &[u64]) -> Result<Vec<u32>> {
    let mut last = vec![0; client.pages as usize];
    let mut number = 0u32;
    for ((_, order), writes) in client.orders(Side::Writes).zip(done) {
        for write in 0..*writes {
            number = number.checked_add(1).ok_or_else(|| {
                Error::answer("the load", format!("{writes} writes are more than can be checked"))
            })?;
            last[order.page(write) as usize] = number;
        }
    }
    Ok(last)
}

/// The clients with what `outcome` says they wrote in each session.
fn after<'a>(sides: &SideBySide, outcome: &'a Outcome) -> Result<Vec<(Client, &'a [u64])>> {
    let mut rest = &outcome.done[..];
    let mut all = Vec::new();
    for client in sides.clients()? {
        let (own, others) = rest.split_at_checked(client.sessions.len()).ok_or_else(unclear)?;
        rest = others;
        all.push((client, own));
    }
    if rest.is_empty() { Ok(all) } else { Err(unclear()) }
}

fn unclear() -> Error {
    Error::answer("the load", "it does not say how much each client wrote")
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

    #[test]
    fn each_leaves_what_it_must_and_can_be_put_back() {
        for (reader, writer) in WORKLOADS {
            let one = load(reader, writer);
            let workload = Workload::SideBySide(one.clone());
            let home = Scratch::new(&workload);
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
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.class("read").unwrap().ops, 64);
        assert!(outcome.seconds < 30.0, "{}", outcome.seconds);
    }

    #[test]
    fn wrong_bytes_are_found_in_either_file_and_by_the_reader() {
        let one = load(Some(Access::Random), Access::Random);
        let workload = Workload::SideBySide(one.clone());
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        let client = &one.clients().unwrap()[0];
        let flip = |path: &Path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 5000).unwrap();
            file.write_all_at(&[byte[0] ^ 1], 5000).unwrap();
        };
        flip(&file_written(client, &home));
        assert_different(workload.verify(&home, &outcome), "written-0.data at byte 5000");
        flip(&file_written(client, &home));
        workload.verify(&home, &outcome).unwrap();
        flip(&file_read(client, &home));
        assert_different(workload.verify(&home, &outcome), "nobody writes this file");
        assert_different(workload.run(&home), "what was prepared");
        let less = Outcome { done: Vec::new(), ..outcome };
        assert!(workload.verify(&home, &less).is_err());
    }

    #[test]
    fn the_last_write_of_a_page_is_counted_on_through_sessions() {
        let one = load(None, Access::Variable);
        let client = &one.clients().unwrap()[0];
        assert!(client.sessions.len() >= 2, "the seed gives it two");
        let done: Vec<u64> = (0..client.sessions.len() as u64).map(|nth| 10 * (nth + 1)).collect();
        let last = last_writes(client, &done).unwrap();
        let total: u64 = done.iter().sum();
        assert_eq!(u64::from(last.iter().copied().max().unwrap()), total);
        let (_, order) = client.orders(Side::Writes).last().unwrap();
        assert_eq!(u64::from(last[order.page(done.last().unwrap() - 1) as usize]), total);
    }
}
