//! SQLite with its defaults, a rollback journal that is deleted after each transaction and full
//! syncs, updating rows of a small database: a fixed number of transactions, by SQLite's own shell.
//!
//! What a transaction does follows from the seed and its number, so the balance that each account
//! must have at the end is known.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::content::Random;
use crate::error::{Error, Result};
use crate::sqlite_shell::{Shell, make_database};
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome, Tally};

/// Accounts in the database, about 6 MB of it.
const ACCOUNTS: u64 = 30_000;
/// Accounts a transaction changes.
const UPDATES: u64 = 2;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sqlite {
    /// How many.
    pub transactions: u64,
    /// What they do follows from it.
    pub seed: u64,
}

impl Sqlite {
    /// The accounts a transaction changes, from 0 on, and by how much.
    fn updates(&self, number: u64) -> impl Iterator<Item = (u64, i64)> + use<> {
        let mut random = Random::of(self.seed, number);
        (0..UPDATES).map(move |_| (random.below(ACCOUNTS), random.below(2000) as i64 - 1000))
    }

    fn sql(&self, number: u64) -> String {
        let updates = self.updates(number).map(|(account, amount)| {
            let id = account + 1;
            format!("UPDATE account SET balance = balance + {amount} WHERE id = {id};")
        });
        format!("BEGIN IMMEDIATE; {} COMMIT;", updates.collect::<Vec<_>>().join(" "))
    }

    fn balances(&self) -> Vec<i64> {
        let mut balances = vec![0; ACCOUNTS as usize];
        for (account, amount) in (0..self.transactions).flat_map(|number| self.updates(number)) {
            balances[account as usize] += amount;
        }
        balances
    }
}

impl Job for Sqlite {
    fn file_bytes(&self) -> u64 {
        16 << 20
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let sql = format!(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, owner TEXT);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ACCOUNTS})
             INSERT INTO account SELECT i, 0, printf('%.160c', substr('weir', 1 + i % 4, 1)) FROM n;"
        );
        make_database(&database(home), &sql)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut shell = Shell::start(&database(directory))?;
        // The defaults, said aloud: a shell may have been built with others.
        shell.tell("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;")?;
        let mut tally = Tally::new();
        let start = Instant::now();
        for number in 0..self.transactions {
            let sql = self.sql(number);
            let before = Instant::now();
            shell.tell(&sql)?;
            tally.note(Class::Transaction, before.elapsed());
        }
        tally.seconds = start.elapsed().as_secs_f64();
        shell.end()?;
        Ok(Outcome::new(&[tally], vec![self.transactions], 0))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        if outcome.done != [self.transactions] {
            return Err(Error::answer(
                "the load",
                format!("it did {:?} of {} transactions", outcome.done, self.transactions),
            ));
        }
        if journal(home).exists() {
            let journal = journal(home);
            return Err(Error::Different(format!("{} was left", journal.display())));
        }
        let path = database(home);
        let mut shell = Shell::start(&path)?;
        shell.check_integrity(&path)?;
        let said = shell.tell("SELECT balance FROM account ORDER BY id;")?;
        shell.end()?;
        compare(&path, &said, &self.balances())
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.prepare(home)
    }
}

fn database(directory: &Path) -> PathBuf {
    directory.join("accounts.db")
}

fn journal(directory: &Path) -> PathBuf {
    directory.join("accounts.db-journal")
}

fn compare(path: &Path, said: &str, balances: &[i64]) -> Result<()> {
    let found: Vec<i64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let path = path.display();
    if found.len() != balances.len() {
        let (found, wanted) = (found.len(), balances.len());
        return Err(Error::Different(format!("{path} has {found} accounts instead of {wanted}")));
    }
    match found.iter().zip(balances).position(|(found, wanted)| found != wanted) {
        None => Ok(()),
        Some(at) => Err(Error::Different(format!(
            "account {} in {path} has {} instead of {}",
            at + 1,
            found[at],
            balances[at]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    /// Passes over itself where there is no sqlite3.
    #[test]
    fn each_balance_is_checked_and_put_back() {
        if crate::sqlite_shell::require().is_err() {
            return;
        }
        let workload = Workload::Sqlite(Sqlite { transactions: 5, seed: 3 });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.class("transaction").unwrap().ops, 5);
        workload.verify(&home, &outcome).unwrap();
        let mut shell = Shell::start(&database(&home)).unwrap();
        shell.tell("UPDATE account SET balance = balance + 1 WHERE id = 77;").unwrap();
        shell.end().unwrap();
        assert_different(workload.verify(&home, &outcome), "account 77");
        workload.reset(&home, &outcome).unwrap();
        assert_different(workload.verify(&home, &outcome), "has 0 instead of");
    }
}
