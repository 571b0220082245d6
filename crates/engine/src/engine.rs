//! The engine: its five parts, and the completion and tick events.
//!
//! Each part owns its state and keeps its own invariants: [`crate::cache`] the pages and files, [`crate::journal`] the
//! records of files in the redo log, [`crate::write_back`] when dirty data goes home, [`crate::device`] the commands and
//! their costs, [`crate::waiters`] the requests that wait. A part knows only what it owns. An event that concerns two
//! parts connects them: the events are the files of [`crate::events`].
//!
//! Invariants ([`Engine::check_invariants`]):
//! - a page is part of at most one transfer; a dirty page that is idle is in exactly one of the sets of
//!   `cache::dirty`, and no other page is;
//! - patches and a frame never coexist, and patches are dirty or in transfer to home;
//! - a frame's bytes past the end of the file are zero;
//! - no dirty data is dropped, except by truncate and discard;
//! - nothing becomes clean because an error was reported.

use std::collections::VecDeque;

use weir_frames::{FramePool, PAGE_BYTES};

use crate::cache::{Cache, FRAME_BYTES};
use crate::command::{Completion, IoId, Output, Reply, RequestId};
use crate::config::{Config, ConfigError};
use crate::device::Device;
use crate::device::transfer::Io;
use crate::journal::FileJournal;
use crate::place::FileIx;
use crate::stats::Stats;
use crate::time::Time;
use crate::waiters::Waiters;
use crate::write_back::WriteBack;

/// The write path of one shard. See the crate's documentation for how it is driven.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) cache: Cache,
    /// `None` while there is no redo log.
    pub(crate) journal: Option<FileJournal>,
    pub(crate) write_back: WriteBack,
    pub(crate) device: Device,
    pub(crate) waiters: Waiters,
    /// The time of the last event.
    pub(crate) clock: Time,
    /// The time of the last tick.
    pub(crate) ticked: Time,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) stats: Stats,
}

impl Engine {
    /// An engine without attached files. `pool` needs at least `config.memory_bytes_max / 4096` frames. As many of these
    /// as patch memory takes are not used by pages, and are left for frames that transfers and answers share.
    ///
    /// # Errors
    /// Those of [`Config::validate`], or a pool that is too small.
    pub fn new(config: Config, pool: FramePool) -> Result<Engine, ConfigError> {
        config.validate()?;
        let frame_memory = config.memory_bytes_max - config.patch_bytes_max;
        let frame_bytes = FRAME_BYTES + WriteBack::bytes_a_frame(&config);
        let frames_max = (frame_memory / frame_bytes as u64) as usize;
        if (u64::from(pool.capacity())) < config.memory_bytes_max / PAGE_BYTES as u64 {
            return Err(ConfigError::OutOfRange("the frame pool's size"));
        }
        let too_small = ConfigError::OutOfRange("the frame pool's size");
        let ghosts = WriteBack::ghosts(&config, frames_max);
        let cache = Cache::new(pool, frames_max, config.dirty_expire, ghosts).ok_or(too_small)?;
        Ok(Engine {
            cache,
            journal: None,
            write_back: WriteBack::new(&config, frames_max),
            device: Device::new(&config),
            waiters: Waiters::default(),
            clock: Time::ZERO,
            ticked: Time::ZERO,
            outputs: VecDeque::new(),
            stats: Stats::default(),
            config,
        })
    }

    /// The engine's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The pool of frames.
    pub fn frames(&self) -> &FramePool {
        &self.cache.pool
    }

    /// The next output; `None` if there is none. The transfers that the last events asked for become outputs only by
    /// [`Engine::dispatch`].
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A command ended. Its completion must be of the command's kind.
    pub fn complete(&mut self, io: IoId, completion: Completion, now: Time) {
        self.clock = now;
        for (io, completion) in self.device.parts(io, completion) {
            let file = self.ended(io, completion, now);
            self.after_end(file, now);
        }
    }

    /// Handles a command's completion. Returns the command's file.
    pub(crate) fn ended(&mut self, io: IoId, completion: Completion, now: Time) -> FileIx {
        let record = self.device.ios.remove(&io).expect("a command is completed once");
        match (record, completion) {
            (Io::Fetch(fetch), Completion::Fetched { frames, result }) => {
                self.fetched(fetch, frames, result, now);
                fetch.file
            }
            (Io::Destage { file, offset, len, pages, issue }, Completion::Written { result }) => {
                self.learn_destage(issue, pages.len(), result, now);
                self.destaged(file, offset, len, &pages, result, now);
                file
            }
            (
                Io::DestagePatches { file, offset, len, page, issue },
                Completion::Written { result },
            ) => {
                self.learn_destage(issue, 1, result, now);
                self.patches_destaged(file, offset, len, page, result, now);
                file
            }
            (Io::Sync { file, waiter }, Completion::Synced { result }) => {
                self.home_synced(file, waiter, result);
                file
            }
            (Io::Reserve { file, request, from, to }, Completion::Reserved { result }) => {
                self.reserved(file, request, (from, to), result, now);
                file
            }
            (Io::ReserveAhead { file, from, to, epoch }, Completion::Reserved { result }) => {
                self.reserved_ahead(file, (from, to), epoch, result);
                file
            }
            (Io::Map { file }, Completion::Mapped { extents }) => {
                self.mapped(file, &extents);
                file
            }
            (record, completion) => panic!("{completion:?} does not answer {record:?}"),
        }
    }

    /// A command of a file ended: continues what waited for it.
    pub(crate) fn after_end(&mut self, file: FileIx, now: Time) {
        self.end_abandoned_freezes(now);
        self.progress(file, now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// Ageing, thresholds, retries. To be called at [`Engine::next_tick`] or later.
    pub fn tick(&mut self, now: Time) {
        self.clock = now;
        self.ticked = now;
        self.tick_write_back(now);
        self.commit_if_due();
        self.revive_failed(now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// When [`Engine::tick`] has something to do next; `None` while nothing is dirty or waits.
    pub fn next_tick(&self, now: Time) -> Option<Time> {
        /// Least time between two ticks. It polls for frames that answers give back, which causes no event, and for
        /// work that the last tick could not start because too much was in flight, no frame was free, or a file was
        /// frozen.
        const POLL: std::time::Duration = std::time::Duration::from_millis(10);
        let oldest = [
            self.cache.dirty.patched.oldest_ms(),
            self.cache.dirty.resident.oldest_ms(),
            self.cache.spill.index.oldest_ms(),
        ];
        let expires = oldest.into_iter().filter_map(|oldest| self.expires_ms(oldest));
        let retries = (!self.cache.dirty.retry.is_empty()).then_some(self.device.failures.retry_at);
        let starved = (!self.waiters.starved.is_empty()).then_some(now);
        // These pages may have been left for later because readers waited.
        let left =
            !self.write_back.sweeps.wanted.is_empty() || !self.cache.dirty.returned.is_empty();
        let wanted = left.then_some(now);
        let log = self.log_tick().into_iter().chain(self.cache.spill.retry_tick());
        let sample = self.write_back_tick().into_iter().chain(self.share_tick());
        let next =
            expires.chain(retries).chain(starved).chain(wanted).chain(log).chain(sample).min()?;
        Some(next.max(self.ticked + POLL))
    }

    pub(crate) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.outputs.push_back(Output::Reply { request, reply });
    }

    /// Takes a sample for write-back if an interval has passed.
    pub(crate) fn tick_write_back(&mut self, now: Time) {
        self.write_back.tick(self.cache.turnover, now);
    }
}
