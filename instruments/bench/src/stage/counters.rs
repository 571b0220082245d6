//! What Weir counts of itself, as `weir status --json` tells it.

use std::ops::Sub;

use serde::Deserialize;

/// Counters over the life of a mount, or, subtracted, over a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counters {
    /// Pages fetched.
    pub fetched_pages: u64,
    /// Writes that waited for a page.
    pub writers_blocked_fetch: u64,
    /// Writes that waited for memory.
    pub writers_throttled: u64,
    /// Fetches that failed.
    pub fetch_errors: u64,
    /// Requests home that failed.
    pub destage_errors: u64,
    /// Syncs that failed.
    pub sync_errors: u64,
}

impl Sub for Counters {
    type Output = Counters;

    /// # Panics
    /// If `earlier` is not earlier.
    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            fetched_pages: self.fetched_pages - earlier.fetched_pages,
            writers_blocked_fetch: self.writers_blocked_fetch - earlier.writers_blocked_fetch,
            writers_throttled: self.writers_throttled - earlier.writers_throttled,
            fetch_errors: self.fetch_errors - earlier.fetch_errors,
            destage_errors: self.destage_errors - earlier.destage_errors,
            sync_errors: self.sync_errors - earlier.sync_errors,
        }
    }
}

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
        let later: Counters = serde_json::from_value(serde_json::json!({
            "fetched_pages": 5, "writers_blocked_fetch": 2, "writers_throttled": 1, "fetch_errors": 0,
            "destage_errors": 0, "sync_errors": 0, "novelty": 7,
        }))
        .unwrap();
        let earlier = Counters { fetched_pages: 2, ..Counters::default() };
        assert_eq!((later - earlier).fetched_pages, 3);
        assert_eq!(later.blocked_writes(), 3);
    }
}
