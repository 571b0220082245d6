//! The sides that are compared, and the place where they run.
//!
//! Owns the working directory: files straight on the disk's file system in it, files of the same disk that Weir serves,
//! and where it serves them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use strum::{IntoStaticStr, VariantArray};

use crate::cold::drop_cached;
use crate::error::{Doing, Result};
use crate::mount::WeirMount;
use crate::stage::load_by;
use crate::workspace::Workspace;

/// How long one load may take.
const LIMIT: Duration = Duration::from_secs(120);

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Side {
    /// Straight on the disk's file system.
    Ext4,
    /// Through Weir's mount of the same file system, by FUSE.
    Fuse,
    /// Through the same mount, under `weir run`.
    Lane,
}

impl Side {
    /// As it is called in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The place.
pub struct Stand {
    weir: PathBuf,
    own: PathBuf,
    space: Workspace,
    transport: &'static str,
}

impl Stand {
    /// In `dir`, on whose disk `bytes` and some more must be free.
    pub fn new(weir: PathBuf, dir: &Path, bytes: u64, transport: &'static str) -> Result<Stand> {
        // By its name: under another program /proc/self/exe is that one.
        let own = std::env::current_exe().doing("find", Path::new("this program"))?;
        let space = Workspace::new(dir, bytes)?;
        let stand = Stand { weir, own, space, transport };
        for directory in [stand.plain(), stand.source(), stand.mountpoint()] {
            fs::create_dir(&directory).doing("create", &directory)?;
        }
        Ok(stand)
    }

    /// Whether this weir can run programs with the lane.
    pub fn has_lane(weir: &Path) -> bool {
        Command::new(weir).args(["run", "--help"]).output().is_ok_and(|said| said.status.success())
    }

    /// Of files straight on the disk.
    pub fn plain(&self) -> PathBuf {
        self.space.path().join("plain")
    }

    /// Of files that Weir serves, at home.
    pub fn source(&self) -> PathBuf {
        self.space.path().join("source")
    }

    /// Where it serves them.
    pub fn mountpoint(&self) -> PathBuf {
        self.space.path().join("mount")
    }

    /// Has Weir serve them, also for programs of that user (a number).
    pub fn mount(&self, user: Option<u32>) -> Result<WeirMount> {
        self.serve(user, self.transport)
    }

    /// The same by a transport of one's own.
    pub fn mount_by(&self, transport: &str) -> Result<WeirMount> {
        self.serve(None, transport)
    }

    fn serve(&self, user: Option<u32>, transport: &str) -> Result<WeirMount> {
        let user = user.map(|uid| uid.to_string());
        let mut options = vec!["--transport", transport];
        if let Some(user) = &user {
            options.extend(["--allow-other", "--lane-users", user]);
        }
        WeirMount::start(&self.weir, &self.source(), &self.mountpoint(), &options)
    }

    /// A program, as a side runs it.
    pub fn command(&self, side: Side, program: &Path) -> Command {
        if side != Side::Lane {
            return Command::new(program);
        }
        let mut command = Command::new(&self.weir);
        command.arg("run").arg("--").arg(program);
        command
    }

    /// Runs `weir-bench TASK DIRECTORY` as a side does, and gives it `input`.
    pub fn ask<I: Serialize, O: DeserializeOwned>(
        &self,
        side: Side,
        task: &str,
        directory: &Path,
        input: &I,
    ) -> Result<O> {
        let mut command = self.command(side, &self.own);
        load_by(command.arg(task).arg(directory), input, LIMIT)
    }
}

/// Takes the files in `directory`, those of the directories in it not, out of the page cache they are read through.
pub fn drop_all_cached(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).doing("read", directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            drop_cached(&entry.path())?;
        }
    }
    Ok(())
}
