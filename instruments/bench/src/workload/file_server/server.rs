//! One run of the file server: its settings, and the files and operations that follow from them.

use serde::{Deserialize, Serialize};

use super::set::Share;
use super::stream::{Mix, Stream};
use crate::error::{Error, Result};

/// One run of the file server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileServer {
    /// Reads, writes and others.
    pub mix: Mix,
    /// Operations a second, all threads together.
    pub offered_per_s: f64,
    /// Threads, 1 to 99; each has its share of the files.
    pub threads: u32,
    /// All files together, bytes.
    pub file_set_bytes: u64,
    /// How long the schedule is. It is followed to its end, unless the load is as late again as
    /// the schedule is long, and 10 seconds at least.
    pub seconds: f64,
    /// What the operations follow from. The prepared files do not.
    pub seed: u64,
}

impl FileServer {
    pub fn check(&self) -> Result<()> {
        if (1..100).contains(&self.threads) && self.offered_per_s > 0.0 && self.mix.others > 0 {
            return Ok(());
        }
        Err(Error::Missing {
            what: format!(
                "a file server with {} threads, {} operations a second and the mix {} cannot be run",
                self.threads, self.offered_per_s, self.mix
            ),
            remedy: "give 1 to 99 threads, a rate, and a mix with others than reads and writes"
                .into(),
        })
    }

    pub fn share(&self, thread: u32) -> Share {
        Share::new(thread, self.file_set_bytes / u64::from(self.threads))
    }

    pub fn stream<'a>(&self, share: &'a Share, thread: u32) -> Stream<'a> {
        Stream::new(share, self.mix, self.seed, thread)
    }

    /// Whether both have the same files.
    pub fn shares_files_with(&self, other: &FileServer) -> bool {
        (self.threads, self.file_set_bytes) == (other.threads, other.file_set_bytes)
    }
}
