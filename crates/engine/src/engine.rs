//! The engine: its state, the files it serves, and the bookkeeping every event shares.
//!
//! The events themselves are in `write`, `read`, `fetch`, `destage`, `sync`, `exclusive`, `log` and
//! `spill`. All of them change pages through [`Engine::update`], which keeps counters and lists true to the page.
//!
//! Invariants ([`Engine::check_invariants`]):
//! - a page is part of at most one transfer; a dirty page that is idle is in exactly one of the sets
//!   of what could go home (`dirty`), of what failed to, or of what spilled or came back (`spill`), and
//!   no other page is;
//! - patches and a frame never coexist, and patches are dirty or on their way home;
//! - a frame's bytes past the end of the file are zero;
//! - nothing is forgotten while it is dirty, except by truncate and discard;
//! - nothing becomes clean because an error was reported.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use crate::PAGE_BYTES;
use crate::command::{
    Command, Completion, Durability, FileId, HomeAttributes, IoId, Output, ReadData, Reply,
    RequestId,
};
use crate::config::{Config, ConfigError};
use crate::dirty::{Class, PageSet, Place};
use crate::dispatch::{Issue, Share};
use crate::error::{Error, ErrorCursor, ErrorKind};
use crate::fetch::Fetch;
use crate::file::{Event, File, Files, Target};
use crate::frame::{Frame, FramePool};
use crate::layout::Layouts;
use crate::log::Log;
use crate::needs::Segment;
use crate::pace::Pace;
use crate::page::{
    DESCRIPTOR_BYTES, FileIx, ListKind, Listed, Page, PageIo, PageIx, PageState, Pages,
};
use crate::patch::Run;
use crate::replacement::Replacement;
use crate::schedule::{Rank, Scheduler};
use crate::spill::{RETURN_SHARE, Spill};
use crate::stats::Stats;
use crate::time::Time;
use crate::write::Waited;
use crate::write_back::{Before, Need, WriteBack};

/// Memory of a resident page.
pub(crate) const FRAME_BYTES: usize = PAGE_BYTES + DESCRIPTOR_BYTES;

/// Fetches of sweeps in flight, however slow or quick the device.
const FETCH_DEPTH_MIN: usize = 2;
const FETCH_DEPTH_MAX: usize = 32;

/// Destages of sweeps in flight on a slow device.
const DESTAGE_DEPTH_MIN: usize = 4;

/// A request that waits for something of the back end.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A read waits for `remaining` of its pages; all of them are pinned.
    Read {
        file: FileIx,
        offset: u64,
        len: usize,
        remaining: usize,
        pinned: Vec<PageIx>,
        failed: Option<ErrorKind>,
    },
    /// A blocked write, already applied, waits for the pages it only wrote in part.
    Write {
        file: FileIx,
        partial_pages: SmallVec<[u64; 2]>,
        remaining: usize,
        /// Patch memory of the pages it waits for, not counted against the bound meanwhile.
        patch_bytes: usize,
        failed: Option<ErrorKind>,
        /// What was written, bytes of the file.
        range: (u64, u64),
        durability: Durability,
    },
    /// A write waits for space to be reserved.
    Reserving { target: Target, data: Box<[u8]>, durability: Durability },
    /// A sync of everything waits for that many files.
    SyncAll { remaining: usize, error: Option<ErrorKind> },
}

/// What a command under way is about.
#[derive(Debug)]
pub(crate) enum Io {
    Fetch(Fetch),
    Destage { file: FileIx, offset: u64, len: u64, pages: Vec<Content>, issue: Issue },
    DestagePatches { file: FileIx, offset: u64, len: u64, page: PageIx, issue: Issue },
    Sync { file: FileIx, waiter: u64 },
    Reserve { file: FileIx, request: RequestId, from: u64, to: u64 },
    ReserveAhead { file: FileIx, from: u64, to: u64, epoch: u32 },
    Map { file: FileIx },
}

/// A page's content on its way home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) page: PageIx,
    /// Its place in the order of dirtying.
    pub(crate) seq: u64,
    /// Where the log is needed from until it is durable at home.
    pub(crate) rec: Option<Segment>,
}

/// How far the destage of one page's patches is. Runs go one after the other: two transfers of one
/// page at a time, one past the page cache and one through it, could lose one of them.
#[derive(Debug)]
pub(crate) struct PatchDestage {
    pub(crate) content: Content,
    /// Holds the runs' bytes where they belong in the page.
    pub(crate) frame: Frame,
    /// Runs not sent yet, last first.
    pub(crate) runs: Vec<Run>,
}

/// How an event stands after it was tried.
pub(crate) enum Step<T> {
    Done(Result<T, Error>),
    Pending,
    /// Too much is dirty, or no frame is free: to be tried again when that changes.
    Starved,
}

/// Sums over pages, kept by [`Engine::update`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) frames: usize,
    pub(crate) unclean: usize,
    pub(crate) unclean_frames: usize,
    /// Of these, those that are clean once they are home.
    pub(crate) homebound: usize,
    pub(crate) patched: usize,
    pub(crate) patch_bytes: usize,
    /// Of these, those of pages that came back from the log.
    pub(crate) returned_bytes: usize,
}

impl Census {
    fn of(page: &Page) -> Census {
        let resident = page.frame.is_some();
        let unclean = page.is_unclean();
        let patch_bytes = page.patch_memory_bytes();
        Census {
            frames: usize::from(resident),
            unclean: usize::from(unclean),
            unclean_frames: usize::from(unclean && resident),
            homebound: usize::from(resident && page.dirty_seq == 0 && page.io == PageIo::Destage),
            patched: usize::from(patch_bytes > 0),
            patch_bytes,
            returned_bytes: if page.returned { patch_bytes } else { 0 },
        }
    }

    fn replace(&mut self, before: Census, after: Census) {
        self.frames = self.frames + after.frames - before.frames;
        self.unclean = self.unclean + after.unclean - before.unclean;
        self.unclean_frames = self.unclean_frames + after.unclean_frames - before.unclean_frames;
        self.homebound = self.homebound + after.homebound - before.homebound;
        self.patched = self.patched + after.patched - before.patched;
        self.patch_bytes = self.patch_bytes + after.patch_bytes - before.patch_bytes;
        self.returned_bytes = self.returned_bytes + after.returned_bytes - before.returned_bytes;
    }
}

/// The write path of one shard. See the crate's documentation for how it is driven.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) pool: FramePool,
    /// A frame of zeros, for reads of holes past the end of the file at home.
    pub(crate) zeros: Frame,
    /// Bounds derived from the configuration.
    pub(crate) frames_max: usize,
    pub(crate) background_frames: usize,
    pub(crate) hard_frames: usize,

    pub(crate) files: Files,
    pub(crate) pages: Pages,
    pub(crate) census: Census,
    pub(crate) replacement: Replacement,
    /// Transfers that wait for the device.
    pub(crate) scheduler: Scheduler<Command>,
    pub(crate) layouts: Layouts,
    pub(crate) share: Share,
    /// A stretch of a file is being read so that what is dirty in it can be written in one go.
    pub(crate) window_under_way: bool,
    /// Where the last one begins, until a sweep went on from there.
    pub(crate) window_read: Option<Place>,
    /// Dirty, idle pages without a frame.
    pub(crate) patched: Class,
    /// Dirty, idle pages with one.
    pub(crate) resident: Class,
    /// Dirty, idle pages whose transfer failed.
    pub(crate) retry: PageSet,
    /// Pages with bytes that are to be logged should their file be synced.
    pub(crate) unlogged: PageSet,
    pub(crate) log: Option<Log>,
    /// Files for which home may have lost data that is in the log.
    pub(crate) repairs: BTreeSet<FileIx>,
    /// Patches that left memory for it.
    pub(crate) spill: Spill,
    pub(crate) retry_at: Time,
    /// When the last event happened.
    pub(crate) clock: Time,
    /// The last tick.
    pub(crate) ticked: Time,
    /// Frames handed out with fetches under way.
    pub(crate) frames_in_flight: usize,
    /// The engine's order of dirtying; the last number given.
    pub(crate) seq: u64,

    pub(crate) pending: HashMap<RequestId, Pending>,
    pub(crate) waiters: HashMap<PageIx, SmallVec<[RequestId; 2]>>,
    /// Writes and reads that found too much dirty or no frame, in order.
    pub(crate) starved: VecDeque<(RequestId, FileIx, Event)>,
    /// Files with dirty data that a sync waits for.
    pub(crate) urgent: BTreeSet<FileIx>,
    /// Files whose patched pages are to be fetched soon.
    pub(crate) wanted: BTreeSet<FileIx>,

    /// Files whose gate opened again without a section.
    pub(crate) reopened: Vec<FileIx>,

    pub(crate) ios: HashMap<IoId, Io>,
    pub(crate) last_io: u64,
    pub(crate) last_sync: u64,
    pub(crate) patch_destages: HashMap<PageIx, PatchDestage>,
    pub(crate) destages_in_flight: usize,
    pub(crate) fetches_in_flight: usize,
    /// Of these, those of sweeps and syncs.
    pub(crate) sweep_fetches: usize,
    /// Patched pages in them.
    pub(crate) converting: usize,
    /// Fetches in flight that somebody waits for.
    pub(crate) waited_fetches: usize,
    /// When the last one of that kind ended.
    pub(crate) waited_ended: Time,
    /// Fetches that sweeps and syncs issued.
    pub(crate) sweeps: u64,
    pub(crate) fetch_pace: Pace,
    pub(crate) destage_pace: Pace,
    /// What a sync of home takes, on average.
    pub(crate) home_sync_cost: Duration,
    /// When the last transfer ended.
    pub(crate) transfer_ended: Time,
    pub(crate) write_back: WriteBack,
    pub(crate) last_failure: ErrorKind,
    /// Dirty pages whose transfer failed since one last succeeded.
    pub(crate) failed_in_a_row: usize,
    /// Fetches that failed since one last succeeded.
    pub(crate) fetches_failed: usize,
    /// Patch memory of pages that blocked writers wait for.
    pub(crate) blocked_patch_bytes: usize,

    pub(crate) outputs: VecDeque<Output>,
    pub(crate) stats: Stats,
}

impl Engine {
    /// Number of frames at creation.
    pub fn frames(&self) -> &FramePool {
        &self.pool
    }

    /// An engine with nothing attached. `pool` needs at least `config.memory_bytes_max / 4096`
    /// frames, which leaves as many as patch memory takes for frames shared with transfers and
    /// answers under way.
    ///
    /// # Errors
    /// What [`Config::validate`] finds, or a pool that is too small.
    pub fn new(config: Config, pool: FramePool) -> Result<Engine, ConfigError> {
        config.validate()?;
        let frame_memory = config.memory_bytes_max - config.patch_bytes_max;
        let frame_bytes = FRAME_BYTES + WriteBack::bytes_a_frame(&config);
        let frames_max = (frame_memory / frame_bytes as u64) as usize;
        if (u64::from(pool.capacity())) < config.memory_bytes_max / PAGE_BYTES as u64 {
            return Err(ConfigError::OutOfRange("the frame pool's size"));
        }
        let mut zeros = pool.take().ok_or(ConfigError::OutOfRange("the frame pool's size"))?;
        zeros.bytes_mut().expect("a frame just taken is not shared").fill(0);
        let background_frames = frames_max * usize::from(config.dirty_background_percent) / 100;
        let hard_frames = frames_max * usize::from(config.dirty_hard_percent) / 100;
        Ok(Engine {
            write_back: WriteBack::new(&config, frames_max, background_frames, hard_frames),
            background_frames,
            hard_frames,
            scheduler: Scheduler::new(u64::from(config.transfer_pages_max)),
            layouts: Layouts::default(),
            share: Share::default(),
            window_under_way: false,
            window_read: None,
            patched: Class::new(config.dirty_expire),
            resident: Class::new(config.dirty_expire),
            spill: Spill::new(config.dirty_expire),
            fetch_pace: Pace::new(FETCH_DEPTH_MIN, FETCH_DEPTH_MAX),
            destage_pace: Pace::new(DESTAGE_DEPTH_MIN, config.destages_in_flight_max as usize),
            config,
            pool,
            zeros,
            frames_max,
            files: Files::default(),
            pages: Pages::default(),
            census: Census::default(),
            replacement: Replacement::default(),
            retry: PageSet::default(),
            unlogged: PageSet::default(),
            log: None,
            repairs: BTreeSet::new(),
            retry_at: Time::ZERO,
            clock: Time::ZERO,
            ticked: Time::ZERO,
            frames_in_flight: 0,
            seq: 0,
            pending: HashMap::new(),
            waiters: HashMap::new(),
            starved: VecDeque::new(),
            urgent: BTreeSet::new(),
            wanted: BTreeSet::new(),
            reopened: Vec::new(),
            ios: HashMap::new(),
            last_io: 0,
            last_sync: 0,
            patch_destages: HashMap::new(),
            destages_in_flight: 0,
            fetches_in_flight: 0,
            sweep_fetches: 0,
            converting: 0,
            waited_fetches: 0,
            waited_ended: Time::ZERO,
            sweeps: 0,
            home_sync_cost: Duration::ZERO,
            transfer_ended: Time::ZERO,
            last_failure: ErrorKind::Io,
            failed_in_a_row: 0,
            fetches_failed: 0,
            blocked_patch_bytes: 0,
            outputs: VecDeque::new(),
            stats: Stats::default(),
        })
    }

    /// The configuration it runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Makes a file known, or keeps it if it is: its home attributes are then not looked at,
    /// except that it may have become readable.
    pub fn attach(&mut self, file: FileId, home: HomeAttributes) {
        match self.files.find(file) {
            Some(ix) => {
                let file = &mut self.files[ix];
                file.detaching = false;
                file.discarded = false;
                file.readable |= home.readable;
            }
            None => {
                self.files.add(File::new(file, home));
            }
        }
    }

    /// Whether the file is attached.
    pub fn is_attached(&self, file: FileId) -> bool {
        self.files.find(file).is_some()
    }

    /// Lets a file go: at once if it is clean and idle, else when its dirty data is home. Either
    /// way [`Output::Detached`] follows. Attaching it again before that cancels it.
    pub fn detach(&mut self, file: FileId, now: Time) {
        if let Some(ix) = self.files.find(file) {
            self.files[ix].detaching = true;
            self.try_detach(ix, now);
        }
    }

    /// The file has no name and no open description any more: what is dirty is dropped, without
    /// fetch or destage. To be followed by [`Engine::detach`].
    pub fn discard(&mut self, file: FileId) {
        let Some(file) = self.files.find(file) else { return };
        self.files[file].discarded = true;
        // Dropped data is not home: if a crash undoes the removal, what was synced is still in the log.
        self.files[file].syncs.iter_mut().for_each(|sync| sync.full = None);
        self.drop_spilled(file, 0, u64::MAX);
        for ix in self.pages_of(file) {
            let seq = self.pages[ix].dirty_seq;
            if self.pages[ix].io == PageIo::None {
                if !self.pages[ix].patches.is_empty() {
                    self.stats.fetches_avoided += 1;
                }
                self.update(ix, |page| {
                    page.dirty_seq = 0;
                    page.unlogged = Default::default();
                    page.frame = None;
                    page.patches = Default::default();
                });
            } else {
                self.update(ix, |page| {
                    page.dirty_seq = 0;
                    page.unlogged = Default::default();
                    if page.io == PageIo::Fetch {
                        page.patches = Default::default();
                    }
                });
            }
            if seq != 0 {
                self.settle(file, seq, Ok(()));
            }
        }
        self.withdraw(file);
    }

    /// The file changed at home behind Weir's back: forgets what is cached of it and takes its
    /// attributes anew. Does nothing and returns false if the file has dirty data or is in use.
    pub fn drop_clean(&mut self, file: FileId, home: HomeAttributes) -> bool {
        let Some(ix) = self.files.find(file) else { return false };
        if self.files[ix].is_unclean() || !self.files[ix].is_idle() {
            return false;
        }
        self.drop_pages(ix);
        self.files[ix].set_home(home);
        self.home_is_ahead(ix);
        true
    }

    /// Size as programs see it, bytes; `None` if the file is not attached.
    pub fn size(&self, file: FileId) -> Option<u64> {
        self.files.find(file).map(|ix| self.files[ix].size())
    }

    /// Whether the file has data that is not at home yet.
    pub fn has_dirty(&self, file: FileId) -> bool {
        self.files.find(file).is_some_and(|ix| self.files[ix].is_unclean())
    }

    /// Space that was reserved past the end of the file has been given back: the next write there
    /// reserves it anew. To be called before it is given back.
    pub fn forget_reserved_past_end(&mut self, file: FileId) {
        if let Some(ix) = self.files.find(file) {
            self.files[ix].forget_reserved_past_end();
        }
    }

    /// Where a newly opened description starts to look for errors: now.
    pub fn error_cursor(&self, file: FileId) -> ErrorCursor {
        ErrorCursor(self.files.find(file).map_or(0, |ix| self.files[ix].errors))
    }

    /// The latest error of write-back, or of a fetch behind a non-blocking write, since `cursor`;
    /// advances the cursor, so that each description is told once.
    pub fn take_error(&self, file: FileId, cursor: &mut ErrorCursor) -> Option<ErrorKind> {
        let file = &self.files[self.files.find(file)?];
        if file.errors == cursor.0 {
            return None;
        }
        cursor.0 = file.errors;
        file.last_error
    }

    /// What to do next; `None` when nothing is left to do.
    pub fn next_output(&mut self) -> Option<Output> {
        // All that an event asks of the device is put in order together.
        self.dispatch();
        self.outputs.pop_front()
    }

    /// A command ended. Its completion must be of the command's kind.
    pub fn complete(&mut self, io: IoId, completion: Completion, now: Time) {
        self.clock = now;
        for (io, completion) in self.parts(io, completion) {
            self.complete_one(io, completion, now);
        }
    }

    pub(crate) fn complete_one(&mut self, io: IoId, completion: Completion, now: Time) {
        let record = self.ios.remove(&io).expect("a command is completed once");
        let file = match (record, completion) {
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
        };
        self.reopen_gates(now);
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
        self.revive_failed(now);
        self.pump(now);
        self.pump_log(now);
        self.feed_starved(now);
    }

    /// When [`Engine::tick`] has something to do next; `None` while nothing is dirty or waits.
    pub fn next_tick(&self, now: Time) -> Option<Time> {
        /// A frame may come back from an answer's reader without any event; and what the last tick
        /// could not start (enough is under way, no frame is free, a file is frozen) is looked at
        /// again no sooner than this.
        const POLL: std::time::Duration = std::time::Duration::from_millis(10);
        let oldest =
            [self.patched.oldest_ms(), self.resident.oldest_ms(), self.spill.index.oldest_ms()];
        let expires = oldest.into_iter().filter_map(|oldest| self.expires_ms(oldest));
        let retries = (!self.retry.is_empty()).then_some(self.retry_at);
        let starved = (!self.starved.is_empty()).then_some(now);
        // They may have been left alone for the sake of readers.
        let left = !self.wanted.is_empty() || !self.spill.returned.is_empty();
        let wanted = left.then_some(now);
        let log = self.log_tick().into_iter().chain(self.spill.retry_tick());
        let sample = self.write_back_tick().into_iter().chain(self.share_tick());
        let next =
            expires.chain(retries).chain(starved).chain(wanted).chain(log).chain(sample).min()?;
        Some(next.max(self.ticked + POLL))
    }

    /// Counters, and gauges as of `now`.
    pub fn stats(&self, now: Time) -> Stats {
        let frames = self.census.frames + self.frames_in_flight;
        let descriptors = (self.pages.len() - self.census.patched) * DESCRIPTOR_BYTES;
        let oldest =
            [self.patched.oldest_ms(), self.resident.oldest_ms(), self.spill.index.oldest_ms()];
        let oldest = oldest.into_iter().flatten().min().unwrap_or(now.as_millis());
        let patch_bytes = self.census.patch_bytes;
        let index_bytes = self.spill.index.bytes();
        let mut stats = Stats {
            // Counted as answered pages; those that were fetched for their read are no hits.
            read_hits: self.stats.read_hits.saturating_sub(self.stats.read_misses),
            writers_waiting: self.writers_waiting() as u64,
            files: self.files.len() as u64,
            pages: self.pages.len() as u64,
            frames: frames as u64,
            dirty_pages: (self.census.unclean + self.spill.index.len() - self.spill.over.len())
                as u64,
            patched_pages: self.census.patched as u64,
            spilled_pages: self.spill.index.len() as u64,
            spill_index_bytes: index_bytes as u64,
            patch_bytes: patch_bytes as u64,
            fetches_in_flight: self.fetches_in_flight as u64,
            destages_in_flight: self.destages_in_flight as u64,
            sync_requests_waiting: self.scheduler.waiting(Rank::Sync) as u64,
            async_requests_waiting: self.scheduler.waiting(Rank::Async) as u64,
            queue_depth: self.depth().later as u64,
            oldest_dirty_ms: now.as_millis().saturating_sub(oldest),
            memory_bytes: (frames * PAGE_BYTES
                + descriptors
                + patch_bytes
                + index_bytes
                + self.write_back.bytes()) as u64,
            memory_bytes_max: self.config.memory_bytes_max,
            patch_bytes_max: self.config.patch_bytes_max,
            ..self.stats
        };
        self.log_stats(&mut stats);
        self.write_back_stats(&mut stats);
        stats
    }

    fn writers_waiting(&self) -> usize {
        let starved =
            self.starved.iter().filter(|(.., event)| matches!(event, Event::Write { .. })).count();
        let blocked = |pending: &&Pending| {
            matches!(pending, Pending::Write { .. } | Pending::Reserving { .. })
        };
        starved + self.pending.values().filter(blocked).count()
    }

    /// Where a page stands.
    pub fn page_state(&self, file: FileId, page: u64) -> PageState {
        let found = self.files.find(file).and_then(|ix| self.pages.find(ix, page));
        found.map_or(PageState::Absent, |ix| self.pages[ix].state())
    }
}

/// Bookkeeping every event shares.
impl Engine {
    /// Changes a page and makes counters and lists agree with it again.
    pub(crate) fn update<T>(&mut self, ix: PageIx, change: impl FnOnce(&mut Page) -> T) -> T {
        let page = &mut self.pages[ix];
        let before = Census::of(page);
        let before_write_back = Before::of(page);
        let was_dirty = page.dirty_seq != 0;
        let was_unlogged = !page.unlogged.is_empty();
        let was_resident = page.frame.is_some();
        let result = change(page);
        // Home, or dropped both at home and here.
        let settled = if page.is_unclean() { None } else { page.rec.take() };
        let after = Census::of(page);
        let is_dirty = page.dirty_seq != 0;
        let is_unlogged = !page.unlogged.is_empty();
        let (file, number) = (page.file, page.number);
        self.write_back.changed(before_write_back, page);
        if was_resident && page.frame.is_none() && page.home_unlogged {
            page.home_unlogged = false;
            self.files[file].settled.evicted(page.home_epoch);
        }
        if let Some(rec) = settled {
            self.files[file].logged.needs.settle(rec);
        }
        self.census.replace(before, after);
        if was_dirty != is_dirty {
            let file = &mut self.files[file];
            file.dirty_pages = file.dirty_pages + usize::from(is_dirty) - usize::from(was_dirty);
        }
        if was_unlogged != is_unlogged {
            match is_unlogged {
                true => self.unlogged.insert((file, number)),
                false => self.unlogged.remove((file, number)),
            }
        }
        self.place(ix);
        self.fit_ghost_hits();
        result
    }

    /// Puts a page on the lists it belongs on, and forgets it if nothing of it is left.
    fn place(&mut self, ix: PageIx) {
        let page = &self.pages[ix];
        let clean = page.io == PageIo::None && page.dirty_seq == 0;
        let candidate = clean && page.frame.is_some() && page.pins == 0;
        let gone = clean
            && page.frame.is_none()
            && page.pins == 0
            && page.patches.is_empty()
            && !page.awaited;
        let on_clean = page.is_on(ListKind::Clean);
        let listed = page.to_be_listed();
        if page.listed != listed {
            self.relist(ix, listed);
        }
        match (on_clean, candidate) {
            (false, true) => self.replacement.insert(&mut self.pages, ix),
            (true, false) => self.replacement.remove(&mut self.pages, ix),
            _ => {}
        }
        if gone {
            let file = self.pages[ix].file;
            self.pages.unlink(ListKind::File, &mut self.files[file].pages, ix);
            self.pages.remove(ix);
        }
    }

    fn relist(&mut self, ix: PageIx, listed: Listed) {
        let page = &mut self.pages[ix];
        let (place, since_ms) = ((page.file, page.number), page.dirty_since_ms);
        match page.listed {
            Listed::No => {}
            Listed::Patched => self.patched.remove(place, since_ms),
            Listed::OverSpilled => self.spill.over.remove(place),
            Listed::Returned => self.spill.returned.remove(place),
            Listed::Resident => self.resident.remove(place, since_ms),
            Listed::Retry => self.retry.remove(place),
        }
        page.listed = listed;
        match listed {
            Listed::No => page.retrying = false,
            Listed::Patched => self.patched.insert(place, since_ms),
            Listed::OverSpilled => self.spill.over.insert(place),
            Listed::Returned => self.spill.returned.insert(place),
            Listed::Resident => self.resident.insert(place, since_ms),
            Listed::Retry => self.retry.insert(place),
        }
        let (file, _) = place;
        if listed != Listed::No && self.files[file].is_urgent() {
            self.urgent.insert(file);
        }
    }

    /// The page of a file, added if it is absent.
    pub(crate) fn page_or_add(&mut self, file: FileIx, number: u64) -> PageIx {
        if let Some(ix) = self.pages.find(file, number) {
            return ix;
        }
        let ix = self.pages.add(file, number);
        self.pages[ix].spilled = self.is_spilled(file, number);
        self.pages.push_back(ListKind::File, &mut self.files[file].pages, ix);
        ix
    }

    pub(crate) fn pages_of(&self, file: FileIx) -> Vec<PageIx> {
        self.pages.on_list(ListKind::File, &self.files[file].pages).collect()
    }

    /// The next number in the order of dirtying.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(crate) fn next_io(&mut self, record: Io) -> IoId {
        self.last_io += 1;
        let io = IoId(self.last_io);
        self.ios.insert(io, record);
        io
    }

    /// Makes sure `count` frames can be taken, dropping clean pages for them as the replacement
    /// policy says. False if they cannot be had now.
    pub(crate) fn ensure_frames(&mut self, count: usize, need: Need) -> bool {
        while self.census.frames + self.frames_in_flight + count > self.frames_bound() {
            let Some(victim) = self.victim() else { return false };
            self.replace(victim, need);
        }
        // Frames shared with transfers and answers under way may still be missing from the pool.
        for _ in 0..count {
            if self.pool.free() as usize >= count {
                return true;
            }
            let Some(victim) = self.victim() else { return false };
            self.replace(victim, need);
        }
        self.pool.free() as usize >= count
    }

    fn replace(&mut self, victim: PageIx, need: Need) {
        self.note_replaced(victim, need);
        self.stats.evictions += 1;
        self.update(victim, |page| page.frame = None);
    }

    pub(crate) fn take_frame(&self) -> Frame {
        self.pool.take().expect("ensure_frames found enough, and only the engine takes frames")
    }

    /// Frames there may be beside the index of what is spilled.
    pub(crate) fn frames_bound(&self) -> usize {
        self.frames_max.saturating_sub(self.spill.index.bytes() / FRAME_BYTES)
    }

    /// Frames that are free or hold what can be dropped.
    pub(crate) fn frames_available(&self) -> usize {
        let free = self.frames_bound().saturating_sub(self.census.frames + self.frames_in_flight);
        free.min(self.pool.free() as usize) + self.replacement.len()
    }

    /// Whether patches take more than their bound even without those whose writers wait for the
    /// pages: fetches failed, or the file cannot be read.
    pub(crate) fn patches_exceed(&self) -> bool {
        self.census.patch_bytes > self.config.patch_bytes_max as usize + self.blocked_patch_bytes
    }

    /// What writers may take. While patches are in the log, a share is kept for their way back.
    pub(crate) fn patch_memory_left(&self) -> usize {
        let in_use = self.census.patch_bytes - self.census.returned_bytes;
        self.patch_memory_for_writers().saturating_sub(in_use)
    }

    pub(crate) fn patch_memory_for_writers(&self) -> usize {
        let most = self.config.patch_bytes_max as usize;
        let kept = if self.spill.index.is_empty() { 0 } else { most / RETURN_SHARE };
        most - kept.max(self.census.returned_bytes.min(most))
    }

    pub(crate) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.outputs.push_back(Output::Reply { request, reply });
    }

    /// Wakes what waits for a page. With an error, requests that needed the page fail.
    pub(crate) fn wake(&mut self, ix: PageIx, error: Option<ErrorKind>, now: Time) {
        if !self.pages[ix].awaited {
            return;
        }
        let waiters = self.waiters.remove(&ix).expect("an awaited page has waiters");
        // The pin keeps the page in the table while what it wakes comes and goes.
        self.pages[ix].awaited = false;
        self.update(ix, |page| page.pins += 1);
        for request in waiters {
            let Some(
                Pending::Read { remaining, failed, .. } | Pending::Write { remaining, failed, .. },
            ) = self.pending.get_mut(&request)
            else {
                panic!("only reads and writes wait for pages");
            };
            *remaining -= 1;
            *failed = failed.or(error);
            if *remaining == 0 {
                self.resume(request, now);
            }
        }
        self.update(ix, |page| page.pins -= 1);
    }

    pub(crate) fn wait_for(&mut self, ix: PageIx, request: RequestId) {
        self.pages[ix].awaited = true;
        if self.pages[ix].io != PageIo::None {
            self.hurry(self.pages[ix].file);
        }
        self.waiters.entry(ix).or_default().push(request);
    }

    fn resume(&mut self, request: RequestId, now: Time) {
        match self.pending.remove(&request) {
            Some(Pending::Read { file, offset, len, pinned, failed, .. }) => {
                self.resume_read(request, file, offset, len, &pinned, failed, now);
            }
            Some(Pending::Write {
                file,
                partial_pages,
                patch_bytes,
                failed,
                range,
                durability,
                ..
            }) => {
                self.blocked_patch_bytes -= patch_bytes;
                let waited = Waited { partial_pages, range, durability };
                self.resume_write(request, file, waited, failed, now);
            }
            other => panic!("only reads and writes are resumed, not {other:?}"),
        }
    }

    /// Runs an event that had to wait; it may have to wait again.
    pub(crate) fn run(&mut self, request: RequestId, file: FileIx, event: Event, now: Time) {
        match event {
            Event::Write { target, data, durability } => {
                match self.try_write(request, file, target, &data, durability, now) {
                    Step::Done(result) => self.reply(request, Reply::Written(result)),
                    Step::Pending => {}
                    Step::Starved => {
                        self.starve(request, file, Event::Write { target, data, durability });
                    }
                }
            }
            Event::Read { offset, len } => match self.try_read(request, file, offset, len, now) {
                Step::Done(result) => self.reply(request, Reply::Read(result)),
                Step::Pending => {}
                Step::Starved => self.starve(request, file, event),
            },
            Event::Exclusive { section } => {
                if self.close_gate(Some(request), file, section, now) {
                    self.reply(request, Reply::Exclusive(Ok(())));
                }
            }
        }
    }

    pub(crate) fn starve(&mut self, request: RequestId, file: FileIx, event: Event) {
        self.files[file].starved += 1;
        self.starved.push_back((request, file, event));
    }

    /// Tries again what found too much dirty or no frame, in order, until one finds it still so.
    pub(crate) fn feed_starved(&mut self, now: Time) {
        self.fail_hopeless();
        for _ in 0..self.starved.len() {
            let Some((request, file, event)) = self.starved.pop_front() else { return };
            let waiting = self.starved.len();
            self.files[file].starved -= 1;
            if self.files[file].gate == crate::file::Gate::Open {
                self.run(request, file, event, now);
            } else {
                self.files[file].queue.push_back((request, event));
            }
            if self.starved.len() > waiting {
                // Starved again: it keeps its place at the front.
                let last = self.starved.pop_back().expect("it was just pushed");
                self.starved.push_front(last);
                return;
            }
            self.progress(file, now);
        }
    }

    /// Something of the file ended: an exclusive section may start, or the file may go.
    pub(crate) fn progress(&mut self, file: FileIx, now: Time) {
        self.try_grant(file, now);
        self.try_detach(file, now);
    }

    fn try_detach(&mut self, ix: FileIx, now: Time) {
        let file = &self.files[ix];
        if !file.detaching || file.is_unclean() || !file.is_idle() || self.must_release(ix, now) {
            return;
        }
        let id = self.files[ix].id;
        self.drop_pages(ix);
        self.urgent.remove(&ix);
        self.wanted.remove(&ix);
        self.repairs.remove(&ix);
        self.reopened.retain(|&reopened| reopened != ix);
        self.left_log(ix);
        self.layouts.forget(ix);
        self.files.remove(ix);
        self.outputs.push_back(Output::Detached(id));
    }

    /// Forgets all pages of a file that is clean and idle.
    fn drop_pages(&mut self, file: FileIx) {
        for ix in self.pages_of(file) {
            self.update(ix, |page| page.frame = None);
        }
    }

    /// Panics, saying which, if an invariant of the engine does not hold. For tests: it looks at
    /// every page.
    pub fn check_invariants(&self) {
        let mut census = Census::default();
        let mut dirty_idle = 0;
        let mut unlogged = 0;
        for (file_ix, file) in self.files.iter() {
            let mut dirty = 0;
            for ix in self.pages.on_list(ListKind::File, &file.pages) {
                let page = &self.pages[ix];
                assert_eq!(page.file, file_ix);
                assert_eq!(self.pages.find(file_ix, page.number), Some(ix));
                census.replace(Census::default(), Census::of(page));
                self.check_page(file, page);
                dirty += usize::from(page.dirty_seq != 0);
                dirty_idle += usize::from(page.listed != Listed::No);
                unlogged += usize::from(!page.unlogged.is_empty());
                assert!(page.unlogged.is_empty() || page.is_unclean());
                assert!(page.rec.is_none() || page.is_unclean());
                assert_eq!(page.awaited, self.waiters.contains_key(&ix));
            }
            let dirty = dirty + file.spilled_pages;
            assert_eq!(file.dirty_pages, dirty, "dirty pages of {:?}", file.id);
            assert!(file.home_size <= file.size(), "home never grows past the file's size");
        }
        assert_eq!(self.census, census);
        assert_eq!(self.unlogged.len(), unlogged);
        self.check_log();
        self.check_spill();
        self.check_lane();
        let listed = self.patched.pages().len()
            + self.spill.over.len()
            + self.spill.returned.len()
            + self.resident.pages().len()
            + self.retry.len();
        assert_eq!(listed, dirty_idle);
        self.scheduler.check_invariants();
        self.patched.check_invariants();
        self.resident.check_invariants();
        assert!(census.frames + self.frames_in_flight <= self.frames_max, "frames are bounded");
        self.replacement.check_invariants(&self.pages);
    }

    fn check_page(&self, file: &File, page: &Page) {
        let start = page.number * PAGE_BYTES as u64;
        assert!(page.frame.is_none() || page.patches.is_empty(), "patches or a frame");
        if !page.patches.is_empty() {
            page.patches.check_invariants();
            assert!(page.is_unclean(), "patches are dirty or on their way home");
        }
        if let Some(frame) = &page.frame {
            let inside = file.size().saturating_sub(start).min(PAGE_BYTES as u64) as usize;
            assert!(
                frame.frame().bytes()[inside..].iter().all(|&byte| byte == 0),
                "zeros past the end"
            );
        }
        assert_eq!(page.listed, page.to_be_listed());
    }
}

/// What the read path answers with.
pub(crate) type ReadStep = Step<ReadData>;
