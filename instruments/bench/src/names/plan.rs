//! What is run on which home, and with how many files: fewer where a file takes long.

use std::path::Path;

use super::clone::Clone;
use super::durable::{Durable, Kind as Durably};
use super::home::Kind;
use super::million::Million;
use super::packages::Packages;
use super::shell::{self, Copy, Remove, Untar};
use super::tree::{Rules, Times};
use crate::error::Result;
use crate::form::Form;
use crate::sqlite_shell;
use crate::workload::{GitTree, Inserts, Job, Journal, Postmark, require_git};

/// The case that is run only when it is asked for by its name.
pub const MILLION: &str = "million";

const WITHOUT_TIMES: Rules = Rules { times: Times::None, free: &[] };
/// git's index holds inode numbers and times.
const CLONED: Rules = Rules { times: Times::None, free: &["clone/.git/index"] };
const LOOKED_AT: Rules = Rules { times: Times::None, free: &["tree/.git/index"] };

/// How many of something there are: in the full form, and in the quick one by home.
struct Counts {
    full: u64,
    disk: u64,
    hdd: u64,
    sshfs: u64,
}

impl Counts {
    fn of(&self, form: Form, kind: Kind) -> u64 {
        match kind {
            _ if !form.is_quick => self.full,
            Kind::Disk => self.disk,
            Kind::Hdd => self.hdd,
            Kind::Sshfs => self.sshfs,
        }
    }
}

const TREE: Counts = Counts { full: 2000, disk: 2000, hdd: 2000, sshfs: 60 };
const REPOSITORY: Counts = Counts { full: 1000, disk: 500, hdd: 500, sshfs: 40 };
const SYNCED: Counts = Counts { full: 500, disk: 300, hdd: 60, sshfs: 50 };
const INSERTS: Counts = Counts { full: 300, disk: 100, hdd: 30, sshfs: 20 };
const POOL: Counts = Counts { full: 2000, disk: 1000, hdd: 1000, sshfs: 50 };
const PACKAGES: Counts = Counts { full: 20_000, disk: 2000, hdd: 2000, sshfs: 200 };
/// On sshfs alone a million files would take most of a day.
const MANY: Counts = Counts { full: 1_000_000, disk: 100_000, hdd: 0, sshfs: 2000 };
const MANY_ON_SSHFS: u64 = 20_000;

/// One case on one home.
pub struct Cell {
    /// `untar`, ...
    pub name: &'static str,
    /// Files that it is about.
    pub files: u64,
    /// The classes of operations that are compared, each a figure of its own by this name.
    pub classes: &'static [(&'static str, &'static str)],
    /// What is run.
    pub job: Box<dyn Job>,
    /// How the trees are compared that it leaves.
    pub rules: Rules,
}

/// What a cell is made of.
struct Maker<'a> {
    form: Form,
    kind: Kind,
    scratch: &'a Path,
}

const JOB: &[(&str, &str)] = &[("", "job")];
const EACH: &[(&str, &str)] = &[("", "transaction")];

/// A case: its name, what it needs, and how it is made.
struct Entry {
    name: &'static str,
    require: fn() -> Result<()>,
    make: fn(&Maker<'_>) -> Result<Cell>,
}

fn nothing() -> Result<()> {
    Ok(())
}

const ENTRIES: [Entry; 12] = [
    Entry { name: "untar", require: shell::require, make: untar },
    Entry { name: "rm", require: shell::require, make: rm },
    Entry { name: "cp", require: shell::require, make: cp },
    Entry { name: "git-clone", require: require_git, make: git_clone },
    Entry { name: "git-status", require: require_git, make: git_status },
    Entry { name: "create-fsync", require: nothing, make: create_fsync },
    Entry { name: "save-by-rename", require: nothing, make: save_by_rename },
    Entry { name: "maildir", require: nothing, make: maildir },
    Entry { name: "sqlite", require: sqlite_shell::require, make: sqlite },
    Entry { name: "postmark", require: nothing, make: postmark },
    Entry { name: "npm", require: nothing, make: npm },
    Entry { name: MILLION, require: nothing, make: million },
];

/// The names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// Whether a case is asked for: those named, or all but the one that takes long.
fn is_wanted(only: &[String], name: &str) -> bool {
    if only.is_empty() { name != MILLION } else { only.iter().any(|wanted| wanted == name) }
}

/// The cells of a home; what they start from is made in `scratch`, an empty directory. What cannot be run is left out, with the reason.
pub fn cells(
    form: Form,
    kind: Kind,
    only: &[String],
    scratch: &Path,
    left_out: &mut Vec<String>,
) -> Result<Vec<Cell>> {
    let maker = Maker { form, kind, scratch };
    let mut cells = Vec::new();
    for entry in ENTRIES.iter().filter(|entry| is_wanted(only, entry.name)) {
        if entry.name == MILLION && kind == Kind::Hdd {
            left_out.push(format!("{kind}/{MILLION}: the emulated disk has too few inodes"));
        } else if let Err(why) = (entry.require)() {
            left_out.push(format!("{kind}/{}: {why}", entry.name));
        } else {
            cells.push((entry.make)(&maker)?);
        }
    }
    Ok(cells)
}

impl Maker<'_> {
    fn count(&self, counts: &Counts) -> u64 {
        counts.of(self.form, self.kind)
    }

    fn cell(
        &self,
        name: &'static str,
        files: u64,
        classes: &'static [(&'static str, &'static str)],
        rules: Rules,
        job: impl Job + 'static,
    ) -> Result<Cell> {
        Ok(Cell { name, files, classes, job: Box::new(job), rules })
    }

    fn with_times(&self) -> Rules {
        let times = if self.kind == Kind::Sshfs { Times::ButOfLinks } else { Times::All };
        Rules { times, free: &[] }
    }

    fn durable(&self, name: &'static str, kind: Durably) -> Result<Cell> {
        let count = self.count(&SYNCED);
        self.cell(name, count, EACH, WITHOUT_TIMES, Durable { kind, count })
    }
}

fn untar(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&TREE);
    let rules = maker.with_times();
    maker.cell("untar", files, JOB, rules, Untar::new(maker.scratch, files, rules.times)?)
}

fn rm(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&TREE);
    maker.cell("rm", files, JOB, WITHOUT_TIMES, Remove { files })
}

fn cp(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&TREE);
    let rules = maker.with_times();
    maker.cell("cp", files, JOB, rules, Copy { files, times: rules.times })
}

fn git_clone(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&REPOSITORY);
    let clone = Clone::new(maker.scratch, files as u32)?;
    maker.cell("git-clone", files, JOB, CLONED, clone)
}

fn git_status(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&REPOSITORY);
    let tree = GitTree { files: files as u32, looks: 4 };
    maker.cell("git-status", files, JOB, LOOKED_AT, tree)
}

fn create_fsync(maker: &Maker<'_>) -> Result<Cell> {
    maker.durable("create-fsync", Durably::Create)
}

fn save_by_rename(maker: &Maker<'_>) -> Result<Cell> {
    maker.durable("save-by-rename", Durably::SaveByRename)
}

fn maildir(maker: &Maker<'_>) -> Result<Cell> {
    maker.durable("maildir", Durably::Deliver)
}

fn sqlite(maker: &Maker<'_>) -> Result<Cell> {
    let transactions = maker.count(&INSERTS);
    let inserts = Inserts { journal: Journal::Delete, transactions, rows: 1, rows_before: 100 };
    maker.cell("sqlite", transactions, EACH, WITHOUT_TIMES, inserts)
}

fn postmark(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&POOL);
    let postmark = Postmark { files, transactions: 2 * files };
    maker.cell("postmark", files, EACH, WITHOUT_TIMES, postmark)
}

fn npm(maker: &Maker<'_>) -> Result<Cell> {
    let files = maker.count(&PACKAGES);
    maker.cell("npm", files, JOB, WITHOUT_TIMES, Packages { files })
}

fn million(maker: &Maker<'_>) -> Result<Cell> {
    let files = match maker.kind {
        Kind::Sshfs => maker.count(&MANY).min(MANY_ON_SSHFS),
        _ => maker.count(&MANY),
    };
    let classes = &[("/create", "write"), ("/list", "read")];
    maker.cell(MILLION, files, classes, WITHOUT_TIMES, Million { files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_case_is_run_only_when_it_is_named() {
        assert!(is_wanted(&[], "untar") && !is_wanted(&[], MILLION));
        assert!(is_wanted(&[MILLION.into()], MILLION) && !is_wanted(&[MILLION.into()], "untar"));
    }

    #[test]
    fn names_are_unique_and_are_those_of_the_cells() {
        let scratch = tempfile::tempdir().unwrap();
        let mut left_out = Vec::new();
        let all: Vec<String> = names().map(str::to_owned).collect();
        let cells =
            cells(crate::form::QUICK, Kind::Sshfs, &all, scratch.path(), &mut left_out).unwrap();
        let mut found: Vec<_> = cells.iter().map(|cell| cell.name).collect();
        assert_eq!(found.len() + left_out.len(), ENTRIES.len(), "{left_out:?}");
        assert!(found.iter().all(|name| names().any(|known| known == *name)));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), cells.len());
        assert!(cells.iter().all(|cell| cell.files > 0));
    }
}
