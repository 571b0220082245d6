//! For tests: a directory with a workload's prepared files, removed when it goes.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::workload::Workload;

pub struct Scratch(PathBuf);

impl Scratch {
    /// Prepares `workload` in a directory of its own; no two tests may give the same name.
    pub fn new(name: &str, workload: &Workload) -> Scratch {
        let name = format!("weir-bench-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        workload.prepare(&path).unwrap();
        Scratch(path)
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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
