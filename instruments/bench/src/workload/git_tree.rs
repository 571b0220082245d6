//! `git status` in a tree of many small files that nobody changed: lookups and attributes, hardly any data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome};
use crate::workload::tree::{remove, sync};

/// Files in a directory.
const FILES_A_DIRECTORY: u32 = 50;
/// Bytes of a file: as many as that, or less.
const FILE_BYTES_MAX: u64 = 8 << 10;
const SEED: u64 = 0x6769_7400;
const DATE: &str = "1700000000 +0000";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GitTree {
    /// Files in the tree.
    pub files: u32,
    /// How often git looks.
    pub looks: u32,
}

/// Fails, saying what to do, where there is no git.
pub fn require() -> Result<()> {
    require_program("git", "git")
}

impl Job for GitTree {
    fn file_bytes(&self) -> u64 {
        u64::from(self.files) * 2 * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let tree = tree(home);
        remove(&tree)?;
        fs::create_dir(&tree).doing("create", &tree)?;
        for number in 0..self.files {
            let directory = tree.join(format!("part-{}", number / FILES_A_DIRECTORY));
            if number % FILES_A_DIRECTORY == 0 {
                fs::create_dir(&directory).doing("create", &directory)?;
            }
            let mut random = Random::of(SEED, u64::from(number));
            let mut bytes = vec![0; 1 + random.below(FILE_BYTES_MAX) as usize];
            random.fill(&mut bytes);
            let path = directory.join(format!("file-{number}"));
            fs::write(&path, bytes).doing("write", &path)?;
        }
        for words in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "all"]] {
            run(git(&tree).args(words))?;
        }
        sync(home)
    }

    /// The first look is not counted: files have other inode numbers than before, so git compares their content.
    fn run(&self, directory: &Path) -> Result<Outcome> {
        let tree = tree(directory);
        let look = || {
            let output = run(git(&tree).args(["status", "--porcelain"]))?;
            let said = String::from_utf8_lossy(&output.stdout);
            said.lines().next().map_or(Ok(()), |first| {
                Err(Error::Different(format!("git status in {}: {first}", tree.display())))
            })
        };
        look()?;
        Outcome::of_each(Class::Job, self.looks.into(), |_| look())
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        verify(&tree(home))
    }
}

/// Fails unless git finds the objects and the files of the work tree `tree` as they were committed.
pub fn verify(tree: &Path) -> Result<()> {
    run(git(tree).args(["fsck", "--full", "--strict"])).map(drop)?;
    let output = run(git(tree).args(["status", "--porcelain"]))?;
    if output.stdout.is_empty() {
        return Ok(());
    }
    Err(Error::Different(format!("git finds changes in {}", tree.display())))
}

/// Where the work tree is.
pub fn tree(directory: &Path) -> PathBuf {
    directory.join("tree")
}

/// git with no settings but these, and at no other time: what it writes is the same on each run.
pub fn git(tree: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(tree)
        .args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"])
        .args(["-c", "safe.directory=*", "-c", "gc.auto=0"])
        .env("GIT_AUTHOR_DATE", DATE)
        .env("GIT_COMMITTER_DATE", DATE)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    /// Passes over itself where there is no git.
    #[test]
    fn a_changed_file_is_found() {
        if require().is_err() {
            return;
        }
        let workload = Workload::GitTree(GitTree { files: 60, looks: 2 });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        assert_eq!(outcome.class("job").unwrap().ops, 2);
        workload.verify(&home, &outcome).unwrap();
        fs::write(tree(&home).join("part-1/file-57"), "changed").unwrap();
        assert_different(workload.run(&home), "part-1/file-57");
        assert_different(workload.verify(&home, &outcome), "finds changes");
    }
}
