//! What is run, and how much of it.

use std::path::{Path, PathBuf};

use super::jobs::{Append, CloneAndBuild, Patch, Sequential, Untar};
use crate::error::Result;
use crate::form::Form;
use crate::lane::results::Figure;
use crate::mount::require_program;
use crate::sqlite_shell;
use crate::workload::{Inserts, Job, Journal};

/// One case.
pub struct Cell {
    /// As it is called in results.
    pub name: &'static str,
    /// What is run.
    pub job: Box<dyn Job>,
    /// The class of operations that is compared.
    pub class: &'static str,
    /// What of their times.
    pub figure: Figure,
    /// How many files it makes, where that is said.
    pub files: Option<u64>,
}

/// Writes of 100 bytes into a cold object, and one fsync.
pub const PATCH: &str = "patch";
/// Small files.
pub const UNTAR: &str = "untar";
/// SQLite with a rollback journal, synchronous=FULL.
pub const SQLITE: &str = "sqlite";
/// 1 KiB and an fsync, again and again.
pub const APPEND: &str = "append";
/// One object, written from its beginning to its end.
pub const WRITE: &str = "write";
/// The same, read.
pub const READ: &str = "read";
/// git clone and make.
pub const BUILD: &str = "build";

/// A case: its name, what it needs, and how it is made.
struct Entry {
    name: &'static str,
    require: fn() -> Result<()>,
    make: fn(Form, PathBuf) -> Result<Cell>,
}

fn nothing() -> Result<()> {
    Ok(())
}

const ENTRIES: [Entry; 7] = [
    Entry { name: PATCH, require: nothing, make: patch },
    Entry { name: UNTAR, require: || require_program("tar", "tar"), make: untar },
    Entry { name: SQLITE, require: sqlite_shell::require, make: sqlite },
    Entry { name: APPEND, require: nothing, make: append },
    Entry { name: WRITE, require: nothing, make: |form, at| Ok(sequential(WRITE, form, at)) },
    Entry { name: READ, require: nothing, make: |form, at| Ok(sequential(READ, form, at)) },
    Entry { name: BUILD, require: CloneAndBuild::require, make: build },
];

/// Of the large object.
fn object_bytes(form: Form) -> u64 {
    if form.is_quick { 256 << 20 } else { 1 << 30 }
}

fn job(name: &'static str, job: impl Job + 'static) -> Cell {
    Cell { name, job: Box::new(job), class: "job", figure: Figure::Mean, files: None }
}

fn patch(form: Form, scratch: PathBuf) -> Result<Cell> {
    Ok(job(PATCH, Patch { bytes: object_bytes(form), writes: 100, scratch }))
}

fn untar(form: Form, scratch: PathBuf) -> Result<Cell> {
    let files = if form.is_quick { 500 } else { 2000 };
    Ok(Cell { files: Some(files), ..job(UNTAR, Untar::new(&scratch, files)?) })
}

fn sqlite(form: Form, _scratch: PathBuf) -> Result<Cell> {
    let transactions = if form.is_quick { 20 } else { 200 };
    let inserts = Inserts { journal: Journal::Delete, transactions, rows: 1, rows_before: 100 };
    Ok(Cell { class: "transaction", ..job(SQLITE, inserts) })
}

fn append(form: Form, _scratch: PathBuf) -> Result<Cell> {
    let times = if form.is_quick { 100 } else { 1000 };
    Ok(Cell { class: "transaction", ..job(APPEND, Append { times }) })
}

fn sequential(name: &'static str, form: Form, scratch: PathBuf) -> Cell {
    let bytes = object_bytes(form);
    job(name, Sequential { bytes, is_write: name == WRITE, scratch })
}

fn build(_form: Form, scratch: PathBuf) -> Result<Cell> {
    Ok(job(BUILD, CloneAndBuild::new(&scratch)?))
}

/// The names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// Those named in `only`, or all; they may use `scratch`. What cannot be run is left out, with the reason.
pub fn cells(
    form: Form,
    only: &[String],
    scratch: &Path,
    left_out: &mut Vec<String>,
) -> Result<Vec<Cell>> {
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let mut cells = Vec::new();
    for entry in ENTRIES.iter().filter(|entry| is_wanted(entry.name)) {
        match (entry.require)() {
            Ok(()) => cells.push((entry.make)(form, scratch.to_owned())?),
            Err(why) => left_out.push(format!("{}: {why}", entry.name)),
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_case() {
        let scratch = tempfile::tempdir().unwrap();
        let mut left_out = Vec::new();
        let cells = cells(crate::form::QUICK, &[], scratch.path(), &mut left_out).unwrap();
        let mut found: Vec<_> = cells.iter().map(|cell| cell.name).collect();
        assert_eq!(found.len() + left_out.len(), ENTRIES.len(), "{left_out:?}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), cells.len());
    }
}
