//! Repair: what happens after a sync of home failed.
//!
//! A failed sync makes nothing clean. The kernel may have dropped what it could not write; it reports that
//! once, and its next sync succeeds without having written it. Therefore everything of the file that was
//! given to home and is not known to be durable is rewritten before another sync of the file counts. Pages in
//! memory become dirty again. Contents that need the log are replayed to the file by the back end, while the
//! file is frozen. Every sync of the file waits for that, and the log keeps the file's records until a sync
//! has succeeded.
//!
//! The same procedure frees a log that is full of records whose pages cannot go home (`write_ahead`):
//! afterwards they are home.
//!
//! What was never in the log and has left memory cannot be rewritten, nor can data that was at home before
//! the file was attached: it is *gone*. Every sync of the file fails from then on, until the file is cut to
//! nothing or no program has it open.

use crate::PAGE_BYTES;
use crate::command::{FileId, Output};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::file::{Gate, Section};
use crate::needs::Counts;
use crate::page::{FileIx, PageIo, Span};
use crate::time::Time;

/// Which of a file's contents are durable at home. Epochs count the file's syncs of home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// The current epoch: contents that come home now are covered by syncs that begin later.
    pub(crate) epoch: u32,
    /// Pages that came home in this epoch or before are durable there.
    pub(crate) until: u32,
    /// A sync failed, and the contents that need the log were not rewritten yet.
    pub(crate) broken: Option<ErrorKind>,
    /// The last epoch in which a page came home that was not in the log and has left memory since.
    evicted: u32,
    /// A sync failed, and some of what it covered cannot be rewritten.
    pub(crate) gone: Option<ErrorKind>,
    /// Number of failed syncs.
    losses: u32,
    /// The value of `losses` when the current repair began.
    repaired: u32,
}

impl Settled {
    /// State of a file that is attached with `size` bytes at home. Those may have been written a moment ago
    /// and not be durable: until a sync succeeds, a failed one may lose them.
    pub(crate) fn of_size(size: u64) -> Settled {
        let (epoch, evicted) = (1, u32::from(size > 0));
        Settled { epoch, until: 0, broken: None, evicted, gone: None, losses: 0, repaired: 0 }
    }

    /// A sync of home begins; returns the epoch it covers.
    pub(crate) fn begin_sync(&mut self) -> u32 {
        let covered = self.epoch;
        self.epoch = self.epoch.wrapping_add(1).max(1);
        covered
    }

    /// A page left memory that came home in this epoch and was not in the log.
    pub(crate) fn evicted(&mut self, epoch: u32) {
        self.evicted = self.evicted.max(epoch);
    }

    /// Why no sync of the file can succeed; `None` if one can.
    pub(crate) fn failure(&self) -> Option<ErrorKind> {
        self.broken.or(self.gone)
    }

    /// The file is empty now, so nothing of it is missing.
    pub(crate) fn emptied(&mut self) {
        (self.evicted, self.gone) = (0, None);
    }
}

impl Engine {
    /// A sync of SOURCE's whole file system failed (syncfs(2)): what came home since each file's last sync
    /// may not be durable.
    pub fn home_sync_failed(&mut self, kind: ErrorKind, now: Time) {
        self.clock = now;
        let files: Vec<FileIx> = self.files.iter().map(|(ix, _)| ix).collect();
        for file in files {
            self.home_lost(file, kind);
        }
        self.pump(now);
        self.pump_log(now);
    }

    /// A sync of a file's home failed.
    pub(crate) fn home_lost(&mut self, file: FileIx, kind: ErrorKind) {
        self.files[file].home_unsynced = true;
        if self.files[file].discarded || self.config.undone.home_sync {
            let covered = |needs: &mut crate::needs::Needs| {
                needs.lose();
                needs.rewritten();
            };
            if self.log.is_some() {
                self.change_needs(file, covered);
            }
        } else {
            if self.log.is_some() {
                self.change_needs(file, |needs| needs.lose());
            }
            self.dirty_unsettled(file);
            self.files[file].settled.losses += 1;
            let settled = &mut self.files[file].settled;
            if settled.evicted > settled.until {
                settled.gone = Some(kind);
            }
            if !self.files[file].logged.needs.lost.is_empty() {
                let failed = self.log_has_failed();
                let settled = &mut self.files[file].settled;
                if failed {
                    // Home is newer than a failed log.
                    settled.gone = Some(kind);
                } else {
                    settled.broken = Some(kind);
                    self.repairs.insert(file);
                }
            }
        }
        // Syncs under way began before: what they cover may be dirty again, or lost.
        for sync in &mut self.files[file].syncs {
            sync.covered = Counts::default();
            sync.epoch = 0;
            if !self.config.undone.home_sync {
                sync.error.get_or_insert(kind);
            }
        }
    }

    /// Makes pages dirty again that are in memory and not known to be durable at home. Bytes of them that
    /// were not in the log are logged by the next sync, even if the page has newer bytes.
    fn dirty_unsettled(&mut self, file: FileIx) {
        let until = self.files[file].settled.until;
        let logs = self.logs(file);
        let now = self.clock;
        for ix in self.pages_of(file) {
            let page = &self.pages[ix];
            if page.frame.is_none() || page.home_epoch <= until {
                continue;
            }
            let is_clean = page.io == PageIo::None && page.dirty_seq == 0;
            if !(is_clean || page.home_unlogged && page.is_unclean()) {
                continue;
            }
            let seq = if is_clean { self.next_seq() } else { 0 };
            self.update(ix, |page| {
                if is_clean {
                    page.dirtied(seq, now);
                }
                if logs {
                    page.unlogged = Span { from: 0, to: PAGE_BYTES as u16 };
                    page.spilling = 0;
                }
            });
        }
    }

    /// Starts to rewrite what was lost, if the pause after the last failure is over.
    pub(crate) fn start_repairs(&mut self, now: Time) {
        if self.repairs.is_empty() {
            return;
        }
        for file in self.repairs.iter().copied().collect::<Vec<_>>() {
            self.start_repair(file, now);
        }
    }

    /// As above for one file, without the pause: a request waits for it.
    pub(crate) fn start_repair(&mut self, file: FileIx, now: Time) {
        if self.undurable_record(file).is_some() {
            self.commit_group();
        }
        let is_repaired = self.is_repaired(file);
        match self.files[file].gate {
            Gate::Closing { request: None, .. } => self.try_grant(file, now),
            _ if is_repaired => {}
            Gate::Open => {
                if self.close_gate(None, file, Section::unchanging(None), now) {
                    self.repair(file);
                }
            }
            // The section's flush may wait for the repair.
            closing @ Gate::Closing { flushing: true, .. } if self.is_quiet(file, true) => {
                self.files[file].interrupted = Some(closing);
                self.files[file].gate = Gate::Frozen;
                self.repair(file);
            }
            Gate::Closing { .. } | Gate::Frozen => {}
        }
    }

    /// Whether the file needs nothing of the log any more: what filled the log has gone home in the usual way.
    /// Then it is not to be repaired.
    pub(crate) fn is_repaired(&mut self, file: FileIx) -> bool {
        let is_repaired = self.files[file].logged.needs.first().is_none();
        if is_repaired && self.repairs.remove(&file) {
            self.files[file].settled.broken = None;
            self.end_waits_for_repair(file, None);
        }
        is_repaired
    }

    /// The log failed: home is newer than its contents, so nothing is rewritten from it.
    pub(crate) fn abandon_repairs(&mut self) {
        for file in std::mem::take(&mut self.repairs) {
            let settled = &mut self.files[file].settled;
            let failed = settled.gone.or(settled.broken.take());
            settled.gone = failed;
            if let Gate::Closing { request: None, .. } = self.files[file].gate {
                self.files[file].gate = Gate::Open;
                self.reopened.push(file);
            }
            self.end_waits_for_repair(file, failed);
        }
    }

    /// Continues or fails what waits for a file's repair.
    fn end_waits_for_repair(&mut self, file: FileIx, failed: Option<ErrorKind>) {
        let waiting = self.files[file].syncs.iter_mut().filter(|sync| sync.awaits_repair);
        let waiting: Vec<u64> = waiting
            .map(|sync| {
                sync.awaits_repair = false;
                sync.error = sync.error.or(failed);
                sync.id
            })
            .collect();
        for id in waiting {
            self.all_home(file, id);
        }
    }

    /// Starts the repair of a file that was just frozen.
    pub(crate) fn repair(&mut self, file: FileIx) {
        let log = self.log.as_ref().expect("only files with a log are repaired");
        // The segments from there on are kept while they are needed.
        let lost = self.files[file]
            .logged
            .needs
            .first()
            .expect("a file is repaired because it needs the log");
        let from = log.writer.from_group(log.segments.start(lost));
        let until = log.writer.durable();
        let settled = &mut self.files[file].settled;
        settled.repaired = settled.losses;
        let of_file = &self.files[file];
        let (id, identity) = (of_file.id, of_file.identity.clone());
        self.stats.log_redos += 1;
        self.outputs.push_back(Output::Redo { file: id, identity, from, until });
    }

    /// The back end's answer to [`Output::Redo`].
    pub fn redone(&mut self, file: FileId, result: Result<(), ErrorKind>, now: Time) {
        self.clock = now;
        let file = self.files.find(file).expect("a frozen file stays attached");
        let settled = &self.files[file].settled;
        let again = settled.losses != settled.repaired;
        self.files[file].gate = self.files[file].interrupted.take().unwrap_or(Gate::Open);
        match result {
            // Another sync of home failed in the meantime, or the log did.
            Ok(()) if again || !self.repairs.contains(&file) => {}
            Ok(()) => {
                self.repairs.remove(&file);
                self.files[file].settled.broken = None;
                self.files[file].home_unsynced = true;
                self.files[file].mapped.stale = true;
                self.change_needs(file, |needs| needs.rewritten());
                self.logged_is_home(file);
                if self.log_mut().behind.lacks_room.is_some() {
                    self.start_freeing(file);
                }
            }
            Err(kind) => {
                self.stats.sync_errors += 1;
                let retry_at = now + self.config.retry_delay;
                self.log_mut().retry_at = retry_at;
                self.fail_held_back(kind);
            }
        }
        self.end_waits_for_repair(file, result.err());
        if self.files[file].gate == Gate::Open {
            self.open_gate(file, now);
        } else {
            if self.files[file].is_urgent() {
                self.urgent.insert(file);
            }
            self.progress(file, now);
            self.pump(now);
            self.feed_starved(now);
        }
        self.pump_log(now);
    }

    /// All of the file's records are at home, though not durable there.
    fn logged_is_home(&mut self, file: FileIx) {
        for ix in self.pages_of(file) {
            if let Some(segment) = self.update(ix, |page| page.rec.take()) {
                self.change_needs(file, |needs| needs.settle(segment));
            }
        }
        self.drop_spilled(file, 0, u64::MAX);
    }
}
