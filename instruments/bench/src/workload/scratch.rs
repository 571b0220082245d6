//! For tests: a directory with a workload's prepared files, removed when it goes.

use std::ops::Deref;
use std::path::Path;

use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::workload::Workload;

pub struct Scratch(TempDir);

impl Scratch {
    /// Prepares `workload` in a directory of its own.
    pub fn new(workload: &Workload) -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        workload.prepare(directory.path()).unwrap();
        Scratch(directory)
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

/// The result is [`Error::Different`] and says why.
#[track_caller]
pub fn assert_different<T>(result: Result<T>, why: &str) {
    match result {
        Err(Error::Different(said)) => assert!(said.contains(why), "{said}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not found: {why}"),
    }
}
