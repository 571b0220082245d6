//! A real program: SQLite's own shell, given the same transactions on both sides.
//!
//! What it is told follows from a seed; both databases start as equal files and must end as equal
//! files.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::content::{Random, first_difference};
use crate::error::{Doing, Error, Result};
use crate::sqlite_shell::{self, DONE, Shell};

/// Accounts in the database.
const ACCOUNTS: u64 = 100_000;
/// Accounts a transaction changes: each row is read before it is changed.
pub const UPDATES: u64 = 2;
/// Messages a transaction adds: each fills a page that was freed, which SQLite does not read.
pub const INSERTS: u64 = 16;
/// Accounts to a message that was deleted: enough that the freed pages are not adjacent.
const ACCOUNTS_A_MESSAGE: u64 = 16;

/// The rollback journal in memory and no fsync, as for caches and imports, where a crash means starting anew; and a small cache.
pub const PRAGMAS: &str =
    "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -2000;";

/// Makes the database, closed and durable: a table of accounts and, scattered in it, the free
/// pages of messages that were deleted, as in any database that has been in use for a while. Its
/// pages are of 1 KiB, which was the default before SQLite 3.12.
pub fn make_database(path: &Path) -> Result<()> {
    let sql = format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA page_size = 1024;
         CREATE TABLE account(id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER, note TEXT);
         CREATE TABLE message(id INTEGER PRIMARY KEY, account INTEGER, body TEXT);
         CREATE TRIGGER message_now_and_then AFTER INSERT ON account
           WHEN new.id % {ACCOUNTS_A_MESSAGE} = 0
           BEGIN INSERT INTO message(account, body) VALUES (new.id, printf('%.900c', 'x')); END;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ACCOUNTS})
         INSERT INTO account
           SELECT i, printf('owner %08d of account %016x', i, i * 2654435761),
                  (i * 7919) % 100000, printf('%.160c', substr('weir', 1 + i % 4, 1))
           FROM n;
         DROP TRIGGER message_now_and_then;
         DELETE FROM message;"
    );
    sqlite_shell::make_database(path, &sql)
}

/// Writes the transactions with these numbers to a file for the shell to read.
pub fn write_script(path: &Path, seed: u64, numbers: Range<u64>) -> Result<()> {
    let mut script = String::new();
    for number in numbers {
        script += &format!("{}\n.print {DONE}\n", transaction(seed, number));
    }
    fs::write(path, script).doing("write", path)
}

fn transaction(seed: u64, index: u64) -> String {
    let mut random = Random::of(seed, index);
    let mut sql = String::from("BEGIN IMMEDIATE;");
    for _ in 0..UPDATES {
        let account = 1 + random.below(ACCOUNTS);
        let amount = random.below(2000) as i64 - 1000;
        sql += &format!(
            " UPDATE account SET balance = balance + {amount}, note = 'transaction {index:06}' \
             || substr(note, 19) WHERE id = {account};"
        );
    }
    for _ in 0..INSERTS {
        let account = 1 + random.below(ACCOUNTS);
        let body = random.next() >> 1;
        sql += &format!(
            " INSERT INTO message(account, body) \
             VALUES ({account}, printf('%.880c %016x', 'm', {body}));"
        );
    }
    sql + " COMMIT;"
}

/// Checks both databases and that they hold the same, byte for byte as files and as SQLite dumps
/// them; the bytes compared.
pub fn verify(straight: &Path, through: &Path) -> Result<u64> {
    for path in [straight, through] {
        let mut shell = Shell::start(path)?;
        shell.check_integrity(path)?;
        shell.end()?;
    }
    let [mut left, mut right] = [dump(straight)?, dump(through)?];
    let (mut left_out, mut right_out) = (pipe_of(&mut left), pipe_of(&mut right));
    let dumps = first_difference(&mut left_out, &mut right_out).doing("dump", through)?;
    let _ = (left.wait(), right.wait());
    let open = |path: &Path| File::open(path).doing("open", path);
    let (mut left, mut right) = (open(straight)?, open(through)?);
    let files = first_difference(&mut left, &mut right).doing("read", through)?;
    for (what, at) in [("dumps", dumps), ("files", files)] {
        if let Some(at) = at {
            let what = format!("the {what} of the two databases, first at byte {at}");
            return Err(Error::Different(what));
        }
    }
    Ok(fs::metadata(through).doing("look at", through)?.len())
}

fn dump(path: &Path) -> Result<Child> {
    let program = Path::new("sqlite3");
    Command::new(program)
        .args(["-batch", "-init", "/dev/null"])
        .arg(path)
        .arg(".dump")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .doing("run", program)
}

fn pipe_of(child: &mut Child) -> ChildStdout {
    child.stdout.take().expect("asked for a pipe")
}
