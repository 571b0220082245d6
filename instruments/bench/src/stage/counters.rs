//! What Weir counts of itself, as `weir status --json` tells it.

use std::ops::Sub;

use serde::{Deserialize, Serialize};

/// Declares the counters with their differences, so that none is left out of one.
macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// Counters over the life of a mount, or, subtracted, over a part of it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counters { $($(#[$doc])* pub $field: u64),* }

        impl Sub for Counters {
            type Output = Counters;

            /// # Panics
            /// If `earlier` is not earlier.
            fn sub(self, earlier: Counters) -> Counters {
                Counters { $($field: self.$field - earlier.$field),* }
            }
        }
    };
}

counters!(
    /// Writes by programs.
    writes,
    /// Reads that came to the daemon: those the kernel's page cache did not answer.
    reads,
    /// Pages of such reads that were in memory.
    read_hits,
    /// Pages of such reads that were not.
    read_misses,
    /// Writes that became patches.
    patch_writes,
    /// Pages fetched.
    fetched_pages,
    /// Requests that fetched them.
    fetch_commands,
    /// Fetches that somebody waited for.
    fetches_waited,
    /// Patched pages that were written whole before they were fetched.
    fetches_avoided,
    /// Pages fetched ahead of readers.
    readahead_pages,
    /// Writes that waited for a page.
    writers_blocked_fetch,
    /// Writes that waited for memory.
    writers_throttled,
    /// Requests that wrote home.
    destage_commands,
    /// Bytes they wrote.
    destage_bytes,
    /// Clean pages that made room.
    evictions,
    /// Fetches that failed.
    fetch_errors,
    /// Requests home that failed.
    destage_errors,
    /// Syncs that failed.
    sync_errors,
);

impl Counters {
    /// Writes that waited for anything.
    pub fn blocked_writes(&self) -> u64 {
        self.writers_blocked_fetch + self.writers_throttled
    }

    /// Requests to home that failed.
    pub fn errors(&self) -> u64 {
        self.fetch_errors + self.destage_errors + self.sync_errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_taken_from_a_status_that_has_more() {
        let mut stats =
            serde_json::to_value(Counters { writes: 5, ..Counters::default() }).unwrap();
        stats["novelty"] = 7.into();
        let later: Counters = serde_json::from_value(stats).unwrap();
        let earlier = Counters { writes: 2, ..Counters::default() };
        assert_eq!((later - earlier).writes, 3);
        let blocked = Counters { writers_throttled: 1, writers_blocked_fetch: 2, ..earlier };
        assert_eq!(blocked.blocked_writes(), 3);
    }
}
