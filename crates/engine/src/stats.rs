//! Counters and gauges a person or a test wants to see.

/// A snapshot of the engine. Counters run from the engine's start; the rest are as of now.
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
    /// Pages fetched from the back end, for whatever reason, read-ahead included.
    pub fetched_pages: u64,
    /// Pages read besides those, because they lay between patched pages and reading through them
    /// took less time than another request.
    pub gap_pages: u64,
    /// Fetch commands issued.
    pub fetch_commands: u64,
    /// Pages fetched because a program's read, write or sync waited for them.
    pub fetches_waited: u64,
    /// Pages that were patched and left that state, or their file, without any fetch:
    /// overwritten whole, destaged by whole write units, truncated or unlinked.
    pub fetches_avoided: u64,
    /// Pages read ahead of sequential readers.
    pub readahead_pages: u64,
    /// Writers that had to wait for a page to be fetched.
    pub writers_blocked_fetch: u64,
    /// Writers that had to wait because too much was dirty, patch memory was full or no frame was
    /// free.
    pub writers_throttled: u64,
    /// Writes that made the next one wait, because dirty frames were above the pressure point.
    pub writers_paced: u64,
    /// Writers waiting now.
    pub writers_waiting: u64,
    /// Clean pages written home again, because they lay between dirty ones and that took less time than
    /// another request.
    pub gap_pages_written: u64,
    /// Destage commands issued.
    pub destage_commands: u64,
    /// Bytes destaged.
    pub destage_bytes: u64,
    /// Of the fetches and destages, those that went as part of another one, which they touched.
    pub requests_joined: u64,
    /// Destages of pages because they were old.
    pub destages_aged: u64,
    /// Because too much was dirty.
    pub destages_pressed: u64,
    /// Because of a sync, a program's or the log's.
    pub destages_synced: u64,
    /// Because the disk arm passed them on its way to another request.
    pub destages_along: u64,
    /// Pages of these.
    pub pages_along: u64,
    /// Stretches of files that were read because so much was dirty in them that to write each whole took less
    /// time than to write its dirty pages one by one.
    pub windows: u64,
    /// Fetches and destages that wait for their turn now, because somebody waits for as many as the device
    /// may be given.
    pub sync_requests_waiting: u64,
    /// Those that nobody waits for.
    pub async_requests_waiting: u64,
    /// As many of these the device may be given at once, by what it has shown.
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
    /// Groups of records made durable, or on their way.
    pub log_groups: u64,
    /// Blocks of 4 KiB they took.
    pub log_blocks: u64,
    /// Writes of the log that failed: the first one is the last.
    pub log_errors: u64,
    /// Pages whose patches left memory for the log, each time counted.
    pub spilled: u64,
    /// Reads of the log to bring patches back.
    pub log_reads: u64,
    /// Blocks of 4 KiB asked for by these.
    pub log_read_blocks: u64,
    /// Of these reads, those that failed.
    pub log_read_errors: u64,
    /// Files written home from the log, because a sync of home had failed or the log was full.
    pub log_redos: u64,
    /// Bytes of the log that are in use.
    pub log_used_bytes: u64,
    /// Bytes it holds; 0 without a log.
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
    /// Pages with patches in the log and not in memory, now.
    pub spilled_pages: u64,
    /// Bytes of memory that the index of these takes.
    pub spill_index_bytes: u64,
    /// Bytes of patch memory in use now, overhead counted.
    pub patch_bytes: u64,
    /// Fetches in flight now.
    pub fetches_in_flight: u64,
    /// Destages in flight now.
    pub destages_in_flight: u64,
    /// Age of the oldest dirty data, milliseconds.
    pub oldest_dirty_ms: u64,
    /// Times a clean page was written, or one on its way home again.
    pub dirtied_pages: u64,
    /// Times such a page came home; without `gap_pages_written`.
    pub cleaned_pages: u64,
    /// Of the pages found in memory by reads, those that a memory of the size that dirty data may take would
    /// have held as well. 0 under static write-back, as the next one.
    pub ghost_hits: u64,
    /// Pages not found in memory by reads because they had made room for written ones.
    pub ghost_misses: u64,
    /// d(t): `dirtied_pages` in the last sampling interval; 0 under static write-back, as the next one.
    pub dirtied_last_interval: u64,
    /// c(t): `cleaned_pages` in it.
    pub cleaned_last_interval: u64,
    /// Dirty memory now, in pages: dirty frames, and as many as fit the memory of patches.
    pub dirty_memory_pages: u64,
    /// h(t): write-back starts here.
    pub watermark_high_pages: u64,
    /// l(t): write-back stops below.
    pub watermark_low_pages: u64,
    /// h_max(t): the high watermark is not above, for the sake of readers.
    pub watermark_max_pages: u64,
    /// The pressure point: writers are paced above so many dirty frames, patches not counted.
    pub pressure_pages: u64,
    /// The bound on dirty frames: writers wait.
    pub dirty_bound_pages: u64,
    /// Frames there may be, which the six before are out of.
    pub cache_pages: u64,
    /// Bytes of memory in use now: frames, patches, descriptors, the index of what is spilled, the names
    /// of ghosts.
    pub memory_bytes: u64,
    /// The bound on it.
    pub memory_bytes_max: u64,
    /// The bound on patch memory.
    pub patch_bytes_max: u64,
}
