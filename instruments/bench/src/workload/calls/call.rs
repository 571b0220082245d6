//! What is called, where, and on which files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::workload::slots::Slots;

/// The call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// pread(2).
    Read,
    /// pwrite(2).
    Write,
}

impl Call {
    /// As an operation's class and, in a message, as what was tried.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Where calls go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Where {
    /// From the start on, and from the start again. The file is in memory.
    Sequential,
    /// Anywhere. The file is in memory.
    Random,
    /// To pages in a random order, to none twice: nothing of the file is in memory.
    Cold,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// The call.
    pub call: Call,
    /// Where.
    pub place: Where,
    /// Bytes of a call.
    pub io_bytes: u64,
    /// With O_DIRECT.
    pub direct: bool,
    /// Threads at once.
    pub threads: u32,
    /// One file, by one description, for all of them, instead of one each.
    pub shared: bool,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// For how long calls are made as fast as they go.
    pub seconds: f64,
    /// For how long calls are timed one by one, after that.
    pub timed_seconds: f64,
    /// What places and written bytes follow from.
    pub seed: u64,
}

impl Calls {
    pub fn files(&self) -> u32 {
        if self.shared { 1 } else { self.threads }
    }

    pub fn path(&self, directory: &Path, file: u32) -> PathBuf {
        let (file_mib, call) = (self.file_bytes >> 20, self.call);
        directory.join(format!("{call:?}-{file_mib}-{file}.data").to_lowercase())
    }

    pub fn paths<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        (0..self.files()).map(|file| self.path(directory, file))
    }

    pub fn slots(&self) -> Slots {
        Slots {
            io_bytes: self.io_bytes,
            file_bytes: self.file_bytes,
            random: self.place != Where::Sequential,
            seed: self.seed,
        }
    }

    /// Whether both have the same files.
    pub fn shares_files_with(&self, other: &Calls) -> bool {
        let of = |calls: &Calls| (calls.call, calls.files(), calls.file_bytes);
        of(self) == of(other)
    }
}
