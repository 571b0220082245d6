//! What people do with trees of small files, by the usual programs: unpack one, copy it, remove it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::plant::plant;
use super::tree::{Rules, Times, compare};
use crate::error::{Error, Result};
use crate::mount::{require_program, run};
use crate::workload::tree::{clear, sync};
use crate::workload::{Job, Outcome};

const SEED: u64 = 0x7472_6565;
const FILE_BYTES_MAX: u64 = 4 << 10;
/// The tree, and its copy.
const TREE: &str = "tree";
const COPY: &str = "copy";

/// Fails, saying what to do, where a program is missing.
pub fn require() -> Result<()> {
    [("tar", "tar"), ("cp", "coreutils"), ("rm", "coreutils")]
        .into_iter()
        .try_for_each(|(program, package)| require_program(program, package))
}

/// Makes the tree in `home`, which is emptied.
fn prepare_tree(home: &Path, files: u64) -> Result<()> {
    clear(home)?;
    plant(&home.join(TREE), SEED, files, FILE_BYTES_MAX)?;
    sync(home)
}

/// `tar -x`.
pub struct Untar {
    archive: PathBuf,
    /// The tree that was packed.
    planted: PathBuf,
    files: u64,
    times: Times,
}

impl Untar {
    /// Of an archive of `files` files that is made in `scratch`, on a home that can keep these times.
    pub fn new(scratch: &Path, files: u64, times: Times) -> Result<Untar> {
        let (archive, planted) = (scratch.join("tree.tar"), scratch.join(TREE));
        plant(&planted, SEED, files, FILE_BYTES_MAX)?;
        run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(scratch).arg(TREE))?;
        Ok(Untar { archive, planted, files, times })
    }
}

impl Job for Untar {
    fn file_bytes(&self) -> u64 {
        self.files * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut command = Command::new("tar");
        command.arg("-xf").arg(&self.archive).arg("-C").arg(directory);
        Outcome::of_job(|| run(&mut command).map(drop))
    }

    /// The tree is the one that was packed.
    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let rules = Rules { times: self.times, free: &[] };
        compare(&self.planted, &home.join(TREE), rules).map(drop)
    }
}

/// `cp -a` of the tree to a place beside it.
pub struct Copy {
    /// Files in it.
    pub files: u64,
    /// Which times a home can keep.
    pub times: Times,
}

impl Job for Copy {
    fn file_bytes(&self) -> u64 {
        2 * self.files * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        prepare_tree(home, self.files)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut command = Command::new("cp");
        command.arg("-a").arg(directory.join(TREE)).arg(directory.join(COPY));
        Outcome::of_job(|| run(&mut command).map(drop))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let rules = Rules { times: self.times, free: &[] };
        compare(&home.join(TREE), &home.join(COPY), rules).map(drop)
    }
}

/// `rm -rf` of the tree.
pub struct Remove {
    /// Files in it.
    pub files: u64,
}

impl Job for Remove {
    fn file_bytes(&self) -> u64 {
        self.files * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        prepare_tree(home, self.files)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut command = Command::new("rm");
        command.arg("-rf").arg(directory.join(TREE));
        Outcome::of_job(|| run(&mut command).map(drop))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let tree = home.join(TREE);
        if tree.exists() {
            Err(Error::Different(format!("{} was left", tree.display())))
        } else {
            Ok(())
        }
    }
}
