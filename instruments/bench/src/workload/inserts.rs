//! SQLite adding rows: transactions of some inserts each, with full syncs, in either journal mode, by SQLite's own
//! shell from a script.
//!
//! A row is found by an index too, whose pages are met at random. What a row holds follows from its number, so what
//! the database must hold at the end is known.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::sqlite_shell::{DONE, Shell, make_database};
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome, Tally};

/// Bytes of a row's text.
const TEXT_BYTES: u64 = 100;
/// What a row and its entry in the index take, bytes, about.
const ROW_BYTES: u64 = TEXT_BYTES + 40;
const SEED: u64 = 0x726f_7773;

/// SQLite's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Journal {
    /// A rollback journal, deleted after each transaction.
    Delete,
    /// A write-ahead log.
    Wal,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inserts {
    /// The journal.
    pub journal: Journal,
    /// Transactions.
    pub transactions: u64,
    /// Rows that each adds.
    pub rows: u64,
    /// Rows that are there before.
    pub rows_before: u64,
}

impl Inserts {
    fn database(&self, directory: &Path) -> PathBuf {
        directory.join(format!("rows-{}.db", self.journal))
    }

    fn run_script(&self, directory: &Path, script: &Path) -> Result<Tally> {
        let mut shell = Shell::start(&self.database(directory))?;
        shell.tell("PRAGMA synchronous = FULL; SELECT count(*) FROM entry;")?;
        let mut tally = Tally::new();
        let start = Instant::now();
        shell.run_script(script, self.transactions, |latency| {
            tally.note(Class::Transaction, latency);
        })?;
        tally.seconds = start.elapsed().as_secs_f64();
        shell.end()?;
        Ok(tally)
    }
}

impl Job for Inserts {
    fn file_bytes(&self) -> u64 {
        3 * ROW_BYTES * (self.rows_before + self.rows * self.transactions) + (8 << 20)
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let path = self.database(home);
        let mut sql = String::from(
            "PRAGMA synchronous = OFF;\nCREATE TABLE entry(id INTEGER PRIMARY KEY, account INTEGER, text TEXT);\n\
             CREATE INDEX entry_account ON entry(account);\nBEGIN;\n",
        );
        (0..self.rows_before).for_each(|row| insert(&mut sql, row));
        make_database(&path, &format!("{sql}COMMIT;\nPRAGMA journal_mode = {};", self.journal))
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let script = std::env::temp_dir().join(format!("weir-bench-rows-{}", std::process::id()));
        let mut sql = String::new();
        for transaction in 0..self.transactions {
            sql += "BEGIN IMMEDIATE;\n";
            let first = self.rows_before + transaction * self.rows;
            (first..first + self.rows).for_each(|row| insert(&mut sql, row));
            // A String takes whatever is written to it.
            let _ = writeln!(sql, "COMMIT;\n.print {DONE}");
        }
        fs::write(&script, sql).doing("write", &script)?;
        let ran = self.run_script(directory, &script);
        let _ = fs::remove_file(&script);
        Ok(Outcome::new(&[ran?], vec![self.transactions], 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let rows = self.rows_before + self.rows * outcome.done.iter().sum::<u64>();
        let path = self.database(home);
        let mut shell = Shell::start(&path)?;
        shell.check_integrity(&path)?;
        let said = shell.tell(
            "SELECT count(*), sum(id * (account % 1000)), sum(length(text) + unicode(text)) FROM entry;",
        )?;
        shell.end()?;
        let (mut products, mut texts) = (0, 0);
        for row in 0..rows {
            let (account, letter) = content(row);
            products += (row + 1) * (account % 1000);
            texts += TEXT_BYTES + u64::from(letter);
        }
        let wanted = format!("{rows}|{products}|{texts}");
        if said.trim() == wanted {
            return Ok(());
        }
        let (path, said) = (path.display(), said.trim());
        Err(Error::Different(format!("{path} sums up to {said} instead of {wanted}")))
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.prepare(home)
    }
}

/// The account of a row, and the letter its text is made of.
fn content(row: u64) -> (u64, u8) {
    let mut random = Random::of(SEED, row);
    (random.below(1_000_000), b'a' + random.below(26) as u8)
}

fn insert(sql: &mut String, row: u64) {
    let (account, letter) = content(row);
    let text = String::from_utf8(vec![letter; TEXT_BYTES as usize]).expect("a letter is UTF-8");
    // As above.
    let _ = writeln!(sql, "INSERT INTO entry VALUES({}, {account}, '{text}');", row + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    /// Passes over itself where there is no sqlite3.
    #[test]
    fn rows_are_counted_and_summed_up() {
        if crate::sqlite_shell::require().is_err() {
            return;
        }
        for journal in [Journal::Wal, Journal::Delete] {
            let workload = Workload::Inserts(Inserts {
                journal,
                transactions: 4,
                rows: 10,
                rows_before: 20_000,
            });
            let home = Scratch::new(&workload);
            let outcome = workload.run(&home).unwrap();
            assert_eq!(outcome.class("transaction").unwrap().ops, 4);
            workload.verify(&home, &outcome).unwrap();
            let Workload::Inserts(inserts) = &workload else { unreachable!() };
            let mut shell = Shell::start(&inserts.database(&home)).unwrap();
            shell.tell("UPDATE entry SET account = account + 1 WHERE id = 20001;").unwrap();
            shell.end().unwrap();
            assert_different(workload.verify(&home, &outcome), "sums up to");
            workload.reset(&home, &outcome).unwrap();
            assert_different(workload.verify(&home, &outcome), "sums up to 20000|");
        }
    }
}
