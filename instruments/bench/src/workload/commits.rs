//! git commits, one after the other, each of one changed file, with everything that git writes synced.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::git_tree::{git, tree, verify};
use crate::error::{Doing, Error, Result};
use crate::mount::run;
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome};
use crate::workload::tree::{remove, sync};

/// One commit's objects, files and directories, bytes, about.
const COMMIT_BYTES: u64 = 40 << 10;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commits {
    /// How many, after the first.
    pub commits: u64,
}

impl Commits {
    fn commit(&self, directory: &Path, number: u64) -> Result<()> {
        let tree = tree(directory);
        let path = tree.join("number");
        fs::write(&path, format!("{number}\n")).doing("write", &path)?;
        let name = number.to_string();
        let commit = ["-c", "core.fsync=all", "commit", "-q", "-a", "-m", &name];
        run(git(&tree).args(commit)).map(drop)
    }
}

impl Job for Commits {
    fn file_bytes(&self) -> u64 {
        self.commits * COMMIT_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let tree = tree(home);
        remove(&tree)?;
        fs::create_dir(&tree).doing("create", &tree)?;
        let path = tree.join("number");
        fs::write(&path, "none\n").doing("write", &path)?;
        for words in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]] {
            run(git(&tree).args(words))?;
        }
        sync(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        Outcome::of_each(Class::Transaction, self.commits, |number| self.commit(directory, number))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let tree = tree(home);
        verify(&tree)?;
        let output = run(git(&tree).args(["rev-list", "--count", "HEAD"]))?;
        let found = String::from_utf8_lossy(&output.stdout);
        let wanted = (self.commits + 1).to_string();
        if found.trim() == wanted {
            return Ok(());
        }
        let (tree, found) = (tree.display(), found.trim());
        Err(Error::Different(format!("{tree} has {found} commits instead of {wanted}")))
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.prepare(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    /// Passes over itself where there is no git.
    #[test]
    fn a_missing_commit_is_found() {
        if super::super::require_git().is_err() {
            return;
        }
        let workload = Workload::Commits(Commits { commits: 3 });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.class("transaction").unwrap().ops, 3);
        workload.verify(&home, &outcome).unwrap();
        run(git(&tree(&home)).args(["reset", "-q", "--hard", "HEAD~1"])).unwrap();
        assert_different(workload.verify(&home, &outcome), "has 3 commits instead of 4");
    }
}
