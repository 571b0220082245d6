//! One run of a suite on emulated disks: its working directory and its ledger.
//!
//! Owns both. However the run ends, what is listed in the ledger is gone afterwards: by the guards
//! of those who made it, by the sweep at the end, or, after a SIGKILL, by `weir-bench clean` or the
//! next run in the same directory.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use super::ledger::{Ledger, Thing};
use super::{clean, machine};
use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Result};
use crate::workspace::{self, Workspace};

/// A run.
pub struct Run {
    /// How many stages there have been: their directories have numbers.
    stages: Cell<u32>,
    // In this order: the directory goes before the ledger that lists it.
    workspace: Workspace,
    ledger: Ledger,
    _sweep: Undo,
}

impl Run {
    /// Begins a run on emulated disks in `dir`, on whose disk `bytes` and some more must be free.
    ///
    /// # Errors
    /// The machine lacks something; `dir` is somebody else's or another run's. Nothing is made
    /// then.
    pub fn new(dir: &Path, bytes: u64) -> Result<Run> {
        machine::require()?;
        Run::begin(dir, bytes)
    }

    /// The same for a run that can do without emulated disks: any user's.
    pub fn begin(dir: &Path, bytes: u64) -> Result<Run> {
        fs::create_dir_all(dir).doing("create", dir)?;
        let dir = dir.canonicalize().doing("find", dir)?;
        clean::before_run(&dir)?;
        let ledger = Ledger::begin(&dir)?;
        let sweep = {
            let ledger = ledger.clone();
            undo(move || clean::at_end(&ledger))
        };
        // Struck by the sweep, as all that is gone then.
        let _ = ledger.list(Thing::Directory { path: workspace::place(&dir) })?;
        let workspace = Workspace::new(&dir, bytes)?;
        Ok(Run { stages: Cell::new(0), workspace, ledger, _sweep: sweep })
    }

    /// Makes a directory in the run's own.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        self.workspace.directory(name)
    }

    /// What it has made.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn next_stage(&self) -> u32 {
        self.stages.set(self.stages.get() + 1);
        self.stages.get()
    }
}
