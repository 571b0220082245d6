//! Syncs of a file's home: one at a time, for all syncs that wait when it begins.

use std::time::Duration;

use weir_journal::Counts;

use crate::command::{Command, Durability};
use crate::device::transfer::Io;
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::place::FileIx;

impl Engine {
    /// Has a file's home synced for a sync, after the sync of home in flight. Linux reports an error of write-back to only
    /// one of several concurrent syncs, so the success of another one would prove nothing.
    pub(crate) fn sync_home(&mut self, file: FileIx, id: u64) {
        self.waiter(file, id).syncing_home = true;
        self.cache.files[file].home.sync_next.push(id);
        self.start_home_sync(file);
    }

    pub(crate) fn start_home_sync(&mut self, file: FileIx) {
        let of_file = &self.cache.files[file];
        if of_file.is_unbound()
            || of_file.home.syncs_in_flight > 0
            || of_file.home.sync_next.is_empty()
        {
            return;
        }
        if self.cache.files[file].settled.epoch == u32::MAX {
            let anew = self.cache.files[file].settled.count_anew();
            for ix in self.cache.pages_of(file) {
                self.update(ix, |page| page.home_epoch = anew(page.home_epoch));
            }
        }
        let covered = self.home_sync_begins(file);
        let clock = self.clock;
        let of_file = &mut self.cache.files[file];
        let epoch = of_file.settled.begin_sync();
        let ids = std::mem::take(&mut of_file.home.sync_next);
        let mut datasync = true;
        for sync in of_file.waiters.syncs.iter_mut().filter(|sync| ids.contains(&sync.id)) {
            sync.home_sync_began = clock;
            sync.epoch = epoch;
            datasync &= sync.durability != Durability::All;
        }
        let first = ids[0];
        of_file.home.sync_for = ids;
        of_file.home.sync_begins(datasync);
        of_file.home.syncs_in_flight += 1;
        let of_id = of_file.id;
        self.waiter(file, first).covered = covered;
        let io = self.device.next_io(Io::Sync { file, waiter: first });
        self.issue(Command::Sync { io, file: of_id, datasync });
    }

    /// The back end's own sync ended.
    pub(crate) fn home_synced(&mut self, file: FileIx, id: u64, result: Result<(), ErrorKind>) {
        let of_file = &mut self.cache.files[file];
        of_file.home.io_in_flight -= 1;
        of_file.home.syncs_in_flight -= 1;
        let mut ended = std::mem::take(&mut of_file.home.sync_for);
        match result {
            Ok(()) => {
                let sync = self.waiter(file, id);
                let (covered, epoch) = (std::mem::take(&mut sync.covered), sync.epoch);
                self.home_sync_ended(file, &covered);
                let settled = &mut self.cache.files[file].settled;
                settled.until = settled.until.max(epoch);
            }
            Err(kind) => {
                of_file.record_error(kind);
                // The syncs that wait have failed, too: data that they cover may be lost.
                ended.append(&mut of_file.home.sync_next);
                self.stats.sync_errors += 1;
                for &id in &ended {
                    self.waiter(file, id).error.get_or_insert(kind);
                }
                self.home_lost(file, kind);
            }
        }
        let took = self.clock.since(self.waiter(file, id).home_sync_began);
        self.device.costs.home_sync = match self.device.costs.home_sync {
            Duration::ZERO => took,
            average => average * 7 / 8 + took / 8,
        };
        for id in ended {
            self.home_is_synced_for(file, id);
        }
        self.start_home_sync(file);
    }

    /// The sync of home that a sync waited for ended.
    pub(crate) fn home_is_synced_for(&mut self, file: FileIx, id: u64) {
        let sync = self.waiter(file, id);
        sync.syncing_home = false;
        if let (Some(full), None) = (sync.full.take(), sync.error) {
            match self.release(file, full) {
                Ok(Some(lsn)) if !self.is_durable(lsn) => self.wait_for_log(lsn, file, id),
                Ok(_) => {}
                // Everything is home. The caller of the sync of everything makes sure that a failed log is not
                // replayed.
                Err(_) if self.log_has_failed() && self.is_of_all(file, id) => {}
                Err(kind) => {
                    self.waiter(file, id).error = Some(kind);
                }
            }
        }
        self.advance_sync(file, id);
    }

    /// A sync of a file's home begins; returns what it covers. For a removed file it covers nothing: dropped
    /// data is void when the removal is durable, and this sync does not make it so.
    pub(crate) fn home_sync_begins(&mut self, file: FileIx) -> Counts {
        if self.cache.files[file].discarded {
            return Counts::default();
        }
        self.cache.files[file].logged.retention.begin_sync()
    }

    /// The sync succeeded.
    pub(crate) fn home_sync_ended(&mut self, file: FileIx, covered: &Counts) {
        if !covered.is_empty() {
            self.change_retention(file, |retention| retention.end_sync(covered));
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_frames::FramePool;

    use super::*;
    use crate::command::{Completion, FileId, HomeAttributes, IoId, Outcome, Output, RequestId};
    use crate::config::Config;
    use crate::testing::empty_log;
    use crate::time::Time;

    const FILE: FileId = FileId(7);
    const NOW: Time = Time::from_millis(1);

    /// An engine with a log, in which a file without data is identified.
    fn engine() -> Engine {
        let config =
            Config { memory_bytes_max: 16 << 20, patch_bytes_max: 1 << 20, ..Config::default() };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        engine.start_log(empty_log(1 << 20));
        let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
        engine.attach(FILE, home);
        engine.identify(FILE, b"handle");
        engine
    }

    /// Starts a sync. Returns the sync of home that it needs, and whether that is a datasync.
    fn sync(engine: &mut Engine, durability: Durability) -> Option<(IoId, bool)> {
        if engine.sync(RequestId(1), FILE, durability, NOW) == Outcome::Done(Ok(())) {
            return None;
        }
        engine.dispatch();
        while let Some(output) = engine.next_output() {
            if let Output::Command(Command::Sync { io, datasync, .. }) = output {
                return Some((io, datasync));
            }
        }
        panic!("nothing but home is to be synced");
    }

    fn end(engine: &mut Engine, sync: Option<(IoId, bool)>, result: Result<(), ErrorKind>) {
        let (io, _) = sync.expect("home is synced");
        engine.complete(io, Completion::Synced { result }, NOW);
        while engine.next_output().is_some() {}
    }

    #[test]
    fn a_sync_of_data_makes_no_attributes_durable() {
        let mut engine = engine();
        let first = sync(&mut engine, Durability::All);
        assert!(matches!(first, Some((_, false))), "what was changed before is not known");
        end(&mut engine, first, Ok(()));
        assert_eq!(sync(&mut engine, Durability::All), None);

        engine.changed_at_home(FILE);
        let of_data = sync(&mut engine, Durability::Data);
        assert!(matches!(of_data, Some((_, true))));
        end(&mut engine, of_data, Ok(()));
        assert_eq!(sync(&mut engine, Durability::Data), None);
        let of_all = sync(&mut engine, Durability::All);
        assert!(matches!(of_all, Some((_, false))));
        // This is changed after the sync of home began.
        engine.changed_at_home(FILE);
        end(&mut engine, of_all, Ok(()));
        let of_all = sync(&mut engine, Durability::All);
        assert!(of_all.is_some());
        end(&mut engine, of_all, Ok(()));
        assert_eq!(sync(&mut engine, Durability::All), None);
    }

    #[test]
    fn attributes_changed_before_a_file_is_known_are_not_durable_by_a_sync_of_data() {
        let mut engine = engine();
        let of_data = sync(&mut engine, Durability::Data);
        end(&mut engine, of_data, Ok(()));
        assert!(matches!(sync(&mut engine, Durability::All), Some((_, false))));
    }

    #[test]
    fn a_sync_that_failed_made_no_attributes_durable() {
        let mut engine = engine();
        let failed = sync(&mut engine, Durability::All);
        end(&mut engine, failed, Err(ErrorKind::Io));
        let of_data = sync(&mut engine, Durability::Data);
        end(&mut engine, of_data, Ok(()));
        assert!(matches!(sync(&mut engine, Durability::All), Some((_, false))));
    }
}
