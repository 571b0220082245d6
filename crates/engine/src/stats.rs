//! The engine's counters and gauges.

/// A snapshot of the engine. Counters run from the engine's start; gauges are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Writes taken.
    pub writes: u64,
    /// Bytes written by programs.
    pub write_bytes: u64,
    /// Reads answered.
    pub reads: u64,
    /// Bytes read by programs.
    pub read_bytes: u64,
    /// Pages looked for by reads and found without waiting.
    pub read_hits: u64,
    /// Pages looked for by reads that had to be fetched.
    pub read_misses: u64,
    /// Partial writes to pages that were not up to date (each became, or joined, a patch).
    pub patch_writes: u64,
    /// Pages fetched from the back end for any reason, read-ahead included.
    pub fetched_pages: u64,
    /// Pages read in addition, because they lay between patched pages and reading through them was cheaper than another
    /// request.
    pub gap_pages: u64,
    /// Fetch commands issued.
    pub fetch_commands: u64,
    /// Pages fetched because a program's read, write or sync waited for them.
    pub fetches_waited: u64,
    /// Patched pages that needed no fetch: they were overwritten whole, destaged as they were, truncated or
    /// unlinked.
    pub fetches_avoided: u64,
    /// Pages read ahead of sequential readers.
    pub readahead_pages: u64,
    /// Writers that had to wait for a page to be fetched.
    pub writers_blocked_fetch: u64,
    /// Writers that had to wait because the dirty bound was reached, patch memory was full or no frame was
    /// free.
    pub writers_throttled: u64,
    /// Writes after which the next one was delayed, because dirty frames were above the pressure point.
    pub writers_paced: u64,
    /// Writers waiting now.
    pub writers_waiting: u64,
    /// Clean pages written home again, because they lay between dirty ones and writing them was cheaper than another
    /// request.
    pub gap_pages_written: u64,
    /// Destage commands issued.
    pub destage_commands: u64,
    /// Bytes destaged.
    pub destage_bytes: u64,
    /// Of the fetches and destages, those that were joined to an adjacent one.
    pub requests_joined: u64,
    /// Destages of pages because they were old.
    pub destages_aged: u64,
    /// Destages because dirty memory was above a watermark or ratio.
    pub destages_pressed: u64,
    /// Destages for a sync, of a program or of the log.
    pub destages_synced: u64,
    /// Destages of pages that the disk arm passed on its way to another request.
    pub destages_along: u64,
    /// Pages in these destages.
    pub pages_along: u64,
    /// Windows of files that were read so that they could be written whole, because that was cheaper than writing their
    /// dirty pages one by one.
    pub windows: u64,
    /// Sync fetches and destages in the scheduler now, because as many as the device may have are in flight.
    pub sync_requests_waiting: u64,
    /// Async fetches and destages in the scheduler now.
    pub async_requests_waiting: u64,
    /// Most async ones that the device may have at once, by the cost model.
    pub queue_depth: u64,
    /// Fetches that failed.
    pub fetch_errors: u64,
    /// Destages that failed.
    pub destage_errors: u64,
    /// Syncs of the back end that failed.
    pub sync_errors: u64,
    /// Records appended to the redo log.
    pub log_records: u64,
    /// Bytes of programs in them.
    pub log_bytes: u64,
    /// Groups of records that were sent to the log.
    pub log_groups: u64,
    /// Blocks of 4 KiB in these groups.
    pub log_blocks: u64,
    /// Writes of the log that failed. No write follows the first failure.
    pub log_errors: u64,
    /// Number of times that a page's patches left memory for the log.
    pub spilled: u64,
    /// Reads of the log to bring patches back.
    pub log_reads: u64,
    /// Blocks of 4 KiB that these reads asked for.
    pub log_read_blocks: u64,
    /// Of these reads, those that failed.
    pub log_read_errors: u64,
    /// Files written home from the log, because a sync of home had failed or the log was full.
    pub log_redos: u64,
    /// Bytes of the log that are in use.
    pub log_used_bytes: u64,
    /// Capacity of the log, bytes; 0 without a log.
    pub log_capacity_bytes: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Files attached now.
    pub files: u64,
    /// Pages known now, resident or patched.
    pub pages: u64,
    /// Frames held now.
    pub frames: u64,
    /// Dirty pages now, patched ones included.
    pub dirty_pages: u64,
    /// Patched pages now.
    pub patched_pages: u64,
    /// Pages with spilled patches now.
    pub spilled_pages: u64,
    /// Bytes of memory of the index of spilled patches.
    pub spill_index_bytes: u64,
    /// Bytes of patch memory in use now, overhead counted.
    pub patch_bytes: u64,
    /// Fetches in flight now.
    pub fetches_in_flight: u64,
    /// Destages in flight now.
    pub destages_in_flight: u64,
    /// Age of the oldest dirty data, milliseconds.
    pub oldest_dirty_ms: u64,
    /// Number of times that a page became dirty: it was clean or in transfer to home, and was written.
    pub dirtied_pages: u64,
    /// Number of times that such a page went home; without `gap_pages_written`.
    pub cleaned_pages: u64,
    /// Pages found in memory by reads that a memory of the size of h_max would have held as well. 0 under static
    /// write-back, as is `ghost_misses`.
    pub ghost_hits: u64,
    /// Pages not found in memory by reads because they had been evicted for written ones.
    pub ghost_misses: u64,
    /// d(t): `dirtied_pages` in the last sampling interval. 0 under static write-back, as is `cleaned_last_interval`.
    pub dirtied_last_interval: u64,
    /// c(t): `cleaned_pages` in the last sampling interval.
    pub cleaned_last_interval: u64,
    /// Dirty memory now, in pages: dirty frames, and patch memory in frames.
    pub dirty_memory_pages: u64,
    /// h(t): write-back starts at this dirty memory.
    pub watermark_high_pages: u64,
    /// l(t): write-back stops below this.
    pub watermark_low_pages: u64,
    /// h_max(t): the high watermark does not exceed this, so that readers keep their memory.
    pub watermark_max_pages: u64,
    /// The pressure point: writers are paced above this number of dirty frames, patches not counted.
    pub pressure_pages: u64,
    /// The bound on dirty frames, at which writers wait.
    pub dirty_bound_pages: u64,
    /// Most frames of the cache; the six gauges before are parts of it.
    pub cache_pages: u64,
    /// Bytes of memory in use now: frames, patches, descriptors, the index of spilled patches, the names
    /// of ghosts.
    pub memory_bytes: u64,
    /// The bound on `memory_bytes`.
    pub memory_bytes_max: u64,
    /// The bound on patch memory.
    pub patch_bytes_max: u64,
}
