//! What somebody else changed in SOURCE that was in the way of changes of the mount, for the status.

use std::collections::VecDeque;
use std::path::PathBuf;

/// Conflicts whose paths are kept for the status.
const CONFLICTS_KEPT: usize = 5;

/// Names that somebody else took in SOURCE since the mount began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conflicts {
    pub(crate) count: u64,
    /// The last ones, the newest last: paths below the mount.
    pub(crate) last: VecDeque<PathBuf>,
}

impl Conflicts {
    /// One more, at this path.
    pub(super) fn add(&mut self, path: PathBuf) {
        self.count += 1;
        self.last.push_back(path);
        if self.last.len() > CONFLICTS_KEPT {
            self.last.pop_front();
        }
    }
}
