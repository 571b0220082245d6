//! Which metrics there are, and what each has of a status.

use super::text::{Kind, Samples};
use crate::control::protocol::{PercentilesReport, SessionReport, Status};

/// A metric.
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it means, in a sentence without backslash and line feed.
    pub help: &'static str,
    /// Its samples.
    pub take: fn(&Status, &mut Samples),
}

const fn counter(
    name: &'static str,
    help: &'static str,
    take: fn(&Status, &mut Samples),
) -> Family {
    Family { name, kind: Kind::Counter, help, take }
}

const fn gauge(name: &'static str, help: &'static str, take: fn(&Status, &mut Samples)) -> Family {
    Family { name, kind: Kind::Gauge, help, take }
}

const fn summary(
    name: &'static str,
    help: &'static str,
    take: fn(&Status, &mut Samples),
) -> Family {
    Family { name, kind: Kind::Summary, help, take }
}

/// Bytes of that many pages.
fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(weir_engine::PAGE_BYTES as u64)
}

/// Bytes of that many blocks of the log.
fn log_bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(weir_log::BLOCK_BYTES as u64)
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// All of them, in the order in which they are written.
pub const FAMILIES: &[Family] = &[
    gauge("weir_info", "Always 1; the labels say how the mount was made.", |status, out| {
        let transfer = if status.direct { "direct" } else { "buffered" };
        out.add(
            &[
                ("version", &status.weir_version),
                ("transport", &status.transport),
                ("io", transfer),
                ("fetch", &status.fetch_policy),
                ("write_back", &status.write_back),
                ("order", &status.order),
            ],
            1_u64,
        );
    }),
    gauge("weir_uptime_seconds", "How long the mount has existed.", |status, out| {
        out.add(&[], status.uptime_ms as f64 / 1e3);
    }),
    gauge("weir_stopping", "Whether the mount is being ended.", |status, out| {
        out.add(&[], status.stopping);
    }),
    gauge("weir_read_only", "Whether changes are refused.", |status, out| {
        out.add(&[], status.read_only);
    }),
    gauge(
        "weir_resident_memory_bytes",
        "Memory of the daemon as the kernel counts it.",
        |status, out| out.add(&[], status.resident_bytes),
    ),
    gauge("weir_memory_bytes", "Memory of pages, patches and their index.", |status, out| {
        out.add(&[], status.stats.memory_bytes);
    }),
    gauge("weir_memory_limit_bytes", "The bound of weir_memory_bytes.", |status, out| {
        out.add(&[], status.stats.memory_bytes_max);
    }),
    gauge(
        "weir_patch_memory_bytes",
        "Memory of writes to pages that are not in memory.",
        |status, out| out.add(&[], status.stats.patch_bytes),
    ),
    gauge(
        "weir_patch_memory_limit_bytes",
        "The bound of weir_patch_memory_bytes.",
        |status, out| out.add(&[], status.stats.patch_bytes_max),
    ),
    gauge("weir_cached_bytes", "Pages in memory, clean or dirty.", |status, out| {
        out.add(&[], bytes(status.stats.frames));
    }),
    gauge("weir_cache_limit_bytes", "Most memory for pages.", |status, out| {
        out.add(&[], bytes(status.stats.cache_pages));
    }),
    gauge("weir_open_files", "Files that the daemon has open or has data of.", |status, out| {
        out.add(&[], status.stats.files);
    }),
    // Programs' reads and writes.
    counter("weir_writes_total", "Writes of programs.", |status, out| {
        out.add(&[], status.stats.writes);
    }),
    counter("weir_written_bytes_total", "Bytes written by programs.", |status, out| {
        out.add(&[], status.stats.write_bytes);
    }),
    counter("weir_reads_total", "Reads of programs that reached the daemon.", |status, out| {
        out.add(&[], status.stats.reads);
    }),
    counter("weir_read_bytes_total", "Bytes read by programs.", |status, out| {
        out.add(&[], status.stats.read_bytes);
    }),
    counter(
        "weir_read_pages_total",
        "Pages looked for by reads: found in memory (hit) or fetched (miss).",
        |status, out| {
            out.add(&[("result", "hit")], status.stats.read_hits);
            out.add(&[("result", "miss")], status.stats.read_misses);
        },
    ),
    counter(
        "weir_patch_writes_total",
        "Partial writes to pages that were not in memory.",
        |status, out| out.add(&[], status.stats.patch_writes),
    ),
    summary(
        "weir_request_duration_seconds",
        "How long requests took in the daemon, since the mount's start; quantile 1 is the longest.",
        |status, out| {
            let latency = &status.latency;
            for (operation, of) in
                [("write", &latency.write), ("read", &latency.read), ("sync", &latency.sync)]
            {
                durations(operation, of, out);
            }
        },
    ),
    counter(
        "weir_delayed_writes_total",
        "Writes that waited: for a page to be fetched (fetch), for memory (memory), or a little, so that home keeps up (pace).",
        |status, out| {
            out.add(&[("reason", "fetch")], status.stats.writers_blocked_fetch);
            out.add(&[("reason", "memory")], status.stats.writers_throttled);
            out.add(&[("reason", "pace")], status.stats.writers_paced);
        },
    ),
    gauge("weir_waiting_writers", "Writes that wait now.", |status, out| {
        out.add(&[], status.stats.writers_waiting);
    }),
    counter("weir_fuse_requests_total", "Requests of the kernel, by kind.", |status, out| {
        for (kind, count) in &status.requests {
            out.add(&[("kind", kind)], *count);
        }
    }),
    counter(
        "weir_fuse_notifications_total",
        "What the kernel was told to drop from its caches.",
        |status, out| out.add(&[], status.notifications),
    ),
    // Dirty data and write-back.
    gauge("weir_dirty_bytes", "Pages that home does not have as they are.", |status, out| {
        out.add(&[], bytes(status.stats.dirty_pages));
    }),
    gauge(
        "weir_patched_bytes",
        "Pages of weir_dirty_bytes of which only the written bytes are in memory.",
        |status, out| out.add(&[], bytes(status.stats.patched_pages)),
    ),
    gauge(
        "weir_spilled_bytes",
        "Pages whose written bytes are in the log and not in memory.",
        |status, out| out.add(&[], bytes(status.stats.spilled_pages)),
    ),
    gauge(
        "weir_dirty_memory_bytes",
        "Memory of dirty pages and patches, which the watermarks are about.",
        |status, out| out.add(&[], bytes(status.stats.dirty_memory_pages)),
    ),
    gauge(
        "weir_watermark_bytes",
        "Dirty memory at which write-back begins (high) and ends (low), the most that high may be (max), and at which writers are slowed down (pressure) and wait (limit).",
        |status, out| {
            let stats = &status.stats;
            out.add(&[("mark", "low")], bytes(stats.watermark_low_pages));
            out.add(&[("mark", "high")], bytes(stats.watermark_high_pages));
            out.add(&[("mark", "max")], bytes(stats.watermark_max_pages));
            out.add(&[("mark", "pressure")], bytes(stats.pressure_pages));
            out.add(&[("mark", "limit")], bytes(stats.dirty_bound_pages));
        },
    ),
    gauge("weir_oldest_dirty_seconds", "Age of the oldest dirty data.", |status, out| {
        out.add(&[], status.stats.oldest_dirty_ms as f64 / 1e3);
    }),
    counter("weir_dirtied_bytes_total", "Pages that became dirty.", |status, out| {
        out.add(&[], bytes(status.stats.dirtied_pages));
    }),
    counter("weir_cleaned_bytes_total", "Dirty pages that went home.", |status, out| {
        out.add(&[], bytes(status.stats.cleaned_pages));
    }),
    counter("weir_home_written_bytes_total", "Bytes written home.", |status, out| {
        out.add(&[], status.stats.destage_bytes);
    }),
    counter("weir_home_writes_total", "Writes to home.", |status, out| {
        out.add(&[], status.stats.destage_commands);
    }),
    counter(
        "weir_home_write_reasons_total",
        "Why data was written home: it was old (age), there was much of it (pressure), for a sync (sync), or the disk passed it (along).",
        |status, out| {
            let stats = &status.stats;
            out.add(&[("reason", "age")], stats.destages_aged);
            out.add(&[("reason", "pressure")], stats.destages_pressed);
            out.add(&[("reason", "sync")], stats.destages_synced);
            out.add(&[("reason", "along")], stats.destages_along);
        },
    ),
    counter(
        "weir_home_gap_bytes_total",
        "Clean pages between dirty ones that were written home again.",
        |status, out| out.add(&[], bytes(status.stats.gap_pages_written)),
    ),
    // Fetches.
    counter("weir_fetched_bytes_total", "Pages read from home, for any reason.", |status, out| {
        out.add(&[], bytes(status.stats.fetched_pages));
    }),
    counter("weir_fetches_total", "Reads of home.", |status, out| {
        out.add(&[], status.stats.fetch_commands);
    }),
    counter(
        "weir_fetch_waited_bytes_total",
        "Fetched pages that somebody waited for.",
        |status, out| {
            out.add(&[], bytes(status.stats.fetches_waited));
        },
    ),
    counter("weir_readahead_bytes_total", "Pages fetched ahead of readers.", |status, out| {
        out.add(&[], bytes(status.stats.readahead_pages));
    }),
    counter(
        "weir_fetch_gap_bytes_total",
        "Pages fetched because they lay between others.",
        |status, out| {
            out.add(&[], bytes(status.stats.gap_pages));
        },
    ),
    counter(
        "weir_fetch_avoided_bytes_total",
        "Partly written pages that did not have to be fetched.",
        |status, out| out.add(&[], bytes(status.stats.fetches_avoided)),
    ),
    counter("weir_evicted_bytes_total", "Pages that left memory for others.", |status, out| {
        out.add(&[], bytes(status.stats.evictions));
    }),
    counter(
        "weir_ghost_bytes_total",
        "Pages looked for by reads that a smaller memory would have had (hit), and that were evicted for written ones (miss).",
        |status, out| {
            out.add(&[("result", "hit")], bytes(status.stats.ghost_hits));
            out.add(&[("result", "miss")], bytes(status.stats.ghost_misses));
        },
    ),
    // The device.
    gauge("weir_in_flight_requests", "Requests that home has now.", |status, out| {
        out.add(&[("operation", "fetch")], status.stats.fetches_in_flight);
        out.add(&[("operation", "write")], status.stats.destages_in_flight);
    }),
    gauge(
        "weir_queued_requests",
        "Requests that wait until home may have them: those that somebody waits for (sync), and others (async).",
        |status, out| {
            out.add(&[("class", "sync")], status.stats.sync_requests_waiting);
            out.add(&[("class", "async")], status.stats.async_requests_waiting);
        },
    ),
    gauge("weir_queue_depth", "Most async requests that home may have at once.", |status, out| {
        out.add(&[], status.stats.queue_depth);
    }),
    counter(
        "weir_joined_requests_total",
        "Requests to home that were joined to another.",
        |status, out| {
            out.add(&[], status.stats.requests_joined);
        },
    ),
    counter("weir_errors_total", "Failures, by what failed.", |status, out| {
        let stats = &status.stats;
        out.add(&[("operation", "fetch")], stats.fetch_errors);
        out.add(&[("operation", "write")], stats.destage_errors);
        out.add(&[("operation", "sync")], stats.sync_errors);
        out.add(&[("operation", "log_write")], stats.log_errors);
        out.add(&[("operation", "log_read")], stats.log_read_errors);
    }),
    // The redo log.
    gauge("weir_log_used_bytes", "The part of the redo log that is in use.", |status, out| {
        of_log(status, out, status.stats.log_used_bytes);
    }),
    gauge("weir_log_capacity_bytes", "What the redo log can hold.", |status, out| {
        of_log(status, out, status.stats.log_capacity_bytes);
    }),
    gauge("weir_log_failed", "Whether a write of the redo log has failed.", |status, out| {
        of_log(status, out, u64::from(status.stats.log_errors > 0));
    }),
    counter("weir_log_records_total", "Records appended to the redo log.", |status, out| {
        of_log(status, out, status.stats.log_records);
    }),
    counter("weir_log_record_bytes_total", "Bytes of programs in these records.", |status, out| {
        of_log(status, out, status.stats.log_bytes);
    }),
    counter("weir_log_writes_total", "Writes of the redo log.", |status, out| {
        of_log(status, out, status.stats.log_groups);
    }),
    counter("weir_log_written_bytes_total", "Bytes of these writes.", |status, out| {
        of_log(status, out, log_bytes(status.stats.log_blocks));
    }),
    counter("weir_log_reads_total", "Reads of the redo log.", |status, out| {
        of_log(status, out, status.stats.log_reads);
    }),
    counter("weir_log_read_bytes_total", "Bytes of these reads.", |status, out| {
        of_log(status, out, log_bytes(status.stats.log_read_blocks));
    }),
    counter(
        "weir_log_spills_total",
        "Pages whose patches left memory for the redo log.",
        |status, out| {
            of_log(status, out, status.stats.spilled);
        },
    ),
    counter(
        "weir_log_redone_files_total",
        "Files written home from the redo log.",
        |status, out| {
            of_log(status, out, status.stats.log_redos);
        },
    ),
    // Names.
    // Buckets.
    counter("weir_bucket_requests_total", "Requests to the bucket, by kind.", |status, out| {
        for (kind, count) in status.bucket.iter().flat_map(|bucket| bucket.kinds()) {
            out.add(&[("kind", kind)], count);
        }
    }),
    counter(
        "weir_bucket_failed_requests_total",
        "Requests to the bucket that failed.",
        |status, out| {
            if let Some(bucket) = &status.bucket {
                out.add(&[], bucket.count("failed"));
            }
        },
    ),
    counter(
        "weir_bucket_bytes_total",
        "Content sent to the bucket (up) and got from it (down).",
        |status, out| {
            if let Some(bucket) = &status.bucket {
                out.add(&[("direction", "up")], bucket.count("bytes_up"));
                out.add(&[("direction", "down")], bucket.count("bytes_down"));
            }
        },
    ),
    gauge(
        "weir_bucket_pending_files",
        "Files and directories that the bucket lacks.",
        |status, out| {
            if let Some(bucket) = &status.bucket {
                out.add(&[], bucket.files.pending_nodes);
            }
        },
    ),
    counter(
        "weir_bucket_conflicts_total",
        "Objects that somebody else had changed, and that were kept.",
        |status, out| {
            if let Some(bucket) = &status.bucket {
                out.add(&[], bucket.files.conflicts);
            }
        },
    ),
    gauge(
        "weir_bucket_lease_lost",
        "1 if another machine has the prefix, and nothing is uploaded any more.",
        |status, out| {
            if let Some(bucket) = &status.bucket {
                out.add(&[], u64::from(bucket.files.lease_lost));
            }
        },
    ),
    counter(
        "weir_bucket_cache_units_total",
        "Pieces of objects, up to 128 KiB, that were looked for in the cache on disk (--cache).",
        |status, out| {
            if let Some(cache) = status.bucket.as_ref().and_then(|bucket| bucket.cache) {
                out.add(&[("result", "hit")], cache.hits);
                out.add(&[("result", "miss")], cache.misses);
            }
        },
    ),
    counter(
        "weir_bucket_cache_damaged_units_total",
        "Pieces in the cache on disk that were not as they had been written, and were fetched again.",
        |status, out| {
            if let Some(cache) = status.bucket.as_ref().and_then(|bucket| bucket.cache) {
                out.add(&[], cache.damaged);
            }
        },
    ),
    gauge("weir_bucket_cache_bytes", "Disk space of what the cache on disk has.", |status, out| {
        if let Some(cache) = status.bucket.as_ref().and_then(|bucket| bucket.cache) {
            out.add(&[], cache.bytes);
        }
    }),
    gauge(
        "weir_names_pending",
        "Changes of names and attributes that home does not have.",
        |status, out| {
            if let Some(names) = &status.names {
                out.add(&[], names.pending);
            }
        },
    ),
    gauge(
        "weir_names_refused",
        "Of weir_names_pending, those that home refused.",
        |status, out| {
            if let Some(names) = &status.names {
                out.add(&[], names.refused);
            }
        },
    ),
    counter(
        "weir_names_conflicts_total",
        "Names that another program took in SOURCE.",
        |status, out| {
            if let Some(names) = &status.names {
                out.add(&[], names.conflicts);
            }
        },
    ),
    // The lane.
    gauge("weir_lane_clients", "Programs that use the lane.", |status, out| {
        if let Some(lane) = &status.lane {
            out.add(&[], lane.clients);
        }
    }),
    gauge("weir_lane_files", "Files that are in the lane.", |status, out| {
        if let Some(lane) = &status.lane {
            out.add(&[], lane.files);
        }
    }),
    counter("weir_lane_posted_writes_total", "Writes that came by the lane.", |status, out| {
        if let Some(lane) = &status.lane {
            out.add(&[], lane.posted_writes);
        }
    }),
    counter("weir_lane_posted_bytes_total", "Bytes of these writes.", |status, out| {
        if let Some(lane) = &status.lane {
            out.add(&[], lane.posted_bytes);
        }
    }),
    counter("weir_lane_leases_total", "Leases of files, by what became of them.", |status, out| {
        if let Some(lane) = &status.lane {
            out.add(&[("event", "granted")], lane.granted);
            out.add(&[("event", "revoked")], lane.revoked);
            out.add(&[("event", "refused")], lane.refused);
        }
    }),
    // Sessions.
    gauge("weir_sessions", "Sessions of programs ('weir run --sync external').", |status, out| {
        out.add(&[], status.sessions.len() as u64);
    }),
    counter("weir_session_promises_total", "Promises made to a session.", |status, out| {
        of_sessions(status, |session, labels| out.add(labels, session.promises));
    }),
    gauge(
        "weir_session_pending",
        "Whether promises to a session are not durable.",
        |status, out| {
            of_sessions(status, |session, labels| out.add(labels, session.pending));
        },
    ),
    counter("weir_session_commits_total", "Commits of a session, by reason.", |status, out| {
        of_sessions(status, |session, labels| {
            let of = &session.commits;
            for (reason, count) in [
                ("output", of.for_output),
                ("judging", of.for_judging),
                ("time", of.by_time),
                ("end", of.at_end),
                ("sync", of.by_syncs),
                ("outsider", of.for_outsiders),
            ] {
                out.add(&[labels, &[("reason", reason)][..]].concat(), count);
            }
        });
    }),
    summary(
        "weir_session_wait_seconds",
        "How long what left a session waited for commits; within a quarter, also the sum.",
        |status, out| {
            of_sessions(status, |session, labels| {
                let of = &session.waits;
                for (quantile, us) in [("0.5", of.p50_us), ("0.99", of.p99_us), ("1", of.max_us)] {
                    let value = if of.count == 0 { f64::NAN } else { us as f64 / 1e6 };
                    out.add(&[labels, &[("quantile", quantile)][..]].concat(), value);
                }
                out.add_part("_sum", labels, of.sum_us as f64 / 1e6);
                out.add_part("_count", labels, of.count);
            });
        },
    ),
];

/// Adds a sample if there is a log.
fn of_log(status: &Status, out: &mut Samples, value: u64) {
    if status.stats.log_capacity_bytes > 0 {
        out.add(&[], value);
    }
}

/// Gives each session and its labels to `take`. A process supervises one session of a mount; of those that have the same number in
/// other PID namespaces [`Samples`] keeps the first.
fn of_sessions(status: &Status, mut take: impl FnMut(&SessionReport, &[(&str, &str)])) {
    for session in &status.sessions {
        let supervisor = session.supervisor.to_string();
        let promise = if session.every_write { "changes" } else { "syncs" };
        take(session, &[("session", &supervisor), ("promise", promise)]);
    }
}

fn durations(operation: &str, of: &PercentilesReport, out: &mut Samples) {
    for (quantile, nanos) in [
        ("0.5", of.p50_ns),
        ("0.9", of.p90_ns),
        ("0.99", of.p99_ns),
        ("0.999", of.p999_ns),
        ("1", of.max_ns),
    ] {
        let value = if of.count == 0 { f64::NAN } else { seconds(nanos) };
        out.add(&[("operation", operation), ("quantile", quantile)], value);
    }
    out.add_part("_sum", &[("operation", operation)], seconds(of.sum_ns));
    out.add_part("_count", &[("operation", operation)], of.count);
}
