//! `git clone` of a repository on this machine's own disk. What git does afterwards is `workload::GitTree`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Result};
use crate::mount::run;
use crate::workload::tree::clear;
use crate::workload::{GitTree, Job, Outcome, git, git_tree, verify_git};

/// Where the clone is.
const CLONE: &str = "clone";

/// One clone.
pub struct Clone {
    origin: PathBuf,
    made: GitTree,
}

impl Clone {
    /// Of a repository with `files` files in one pack that is made in `scratch`.
    pub fn new(scratch: &Path, files: u32) -> Result<Clone> {
        let made = GitTree { files, looks: 1 };
        let home = scratch.join("origin");
        let origin = git_tree(&home);
        fs::create_dir(&home).doing("create", &home)?;
        made.prepare(&home)?;
        run(git(&origin).args(["gc", "-q"]))?;
        Ok(Clone { origin, made })
    }
}

impl Job for Clone {
    fn file_bytes(&self) -> u64 {
        self.made.file_bytes()
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut command = git(directory);
        // Copies on each side: the origin's files could be linked into a home on its own file system, but not through
        // a mount.
        command.args(["clone", "-q", "--no-hardlinks"]).arg(&self.origin).arg(CLONE);
        Outcome::of_job(|| run(&mut command).map(drop))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        verify_git(&home.join(CLONE))
    }
}
