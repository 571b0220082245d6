//! Names that are home are made durable there, so that the log is not needed for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use weir_backend::SyncFailed;
use weir_engine::ErrorKind;
use weir_names::tree::{HomeError, Until};

use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::write_behind::{Awaited, Settling, SyncOfHome, WriteBehind};

/// Pause before it is asked again whether home can be settled.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// A sync of everything syncs home no sooner than that after it began, or after its last sync of home, while threads have
/// more to bring there.
const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// The same for a bucket, where what is synced half-way is uploaded twice.
const SYNC_PAUSE_OF_BUCKET: Duration = Duration::from_secs(5);

impl FileSystem {
    /// Syncs home for the tree, which has begun that.
    pub(super) fn settle_names_begun(
        self: &Arc<Self>,
        behind: &WriteBehind,
    ) -> Result<(), ErrorKind> {
        let settled = self.shard.settle_home();
        behind.settled(match settled {
            Ok(()) => SyncOfHome::Done,
            Err(SyncFailed { kind, is_all, .. }) => {
                let errno = Errno::from(weir_engine::Error::Home(kind)).code();
                match !is_all || self.shard.home_keeps_unsynced() {
                    true => SyncOfHome::Kept(errno),
                    // It is not known any more what is parked.
                    false => SyncOfHome::Lost { errno, parked: self.parked_at_home(behind).ok() },
                }
            }
        });
        settled.map_err(|failed| failed.kind)
    }

    /// Brings all names home, durably, so that the log is not needed for them. Blocks.
    ///
    /// # Errors
    /// Why home refuses one, and those of syncfs(2).
    pub(crate) fn settle_names(self: &Arc<Self>) -> Result<(), Errno> {
        let Some(behind) = self.write_behind.as_ref().filter(|behind| behind.is_logged()) else {
            return Ok(());
        };
        loop {
            behind.wait(&Awaited::All)?;
            match behind.begin_settling() {
                Settling::Done => return Ok(()),
                Settling::UnderWay => {
                    // What was made at home has more for the log. The threads that bring names home may have ended.
                    self.commit_names();
                    thread::sleep(SETTLE_PAUSE);
                }
                Settling::Begun => self.settle_names_begun(behind)?,
            }
        }
    }

    /// As [`FileSystem::settle_names`], of what was changed up to a moment. With `has_data` data goes home before home is synced, if that does
    /// not take long: so one sync of home makes names and data durable, and a bucket gets a new file with its bytes.
    ///
    /// # Errors
    /// As there, [`HomeError::Refused`] for those of syncfs(2).
    pub(crate) fn settle_names_until(
        self: &Arc<Self>,
        behind: &WriteBehind,
        until: Until,
        has_data: bool,
    ) -> Result<(), HomeError> {
        behind.urge_all();
        let is_data_home = Arc::new(AtomicBool::new(!has_data));
        if has_data {
            let is_home = Arc::clone(&is_data_home);
            self.shard.bring_all_home(move || is_home.store(true, Ordering::Release));
        }
        let pause =
            if self.shard.home_keeps_unsynced() { SYNC_PAUSE_OF_BUCKET } else { SYNC_PAUSE };
        let mut synced = Instant::now();
        loop {
            if behind.is_settled(until)? {
                return Ok(());
            }
            // What was made at home has more for the log, which what is in it waits for.
            behind.commit_soon();
            // One sync for all of it: each has home's disk write its caches, while the threads wait for the same disk.
            let is_all_home = is_data_home.load(Ordering::Acquire) && behind.is_home_sync_due();
            let is_due = is_all_home || self.shard.log_wants_room() || synced.elapsed() >= pause;
            let settling = if is_due { behind.begin_settling() } else { Settling::UnderWay };
            match settling {
                Settling::Begun => {
                    self.settle_names_begun(behind).map_err(|kind| {
                        HomeError::Refused(Errno::from(weir_engine::Error::Home(kind)).code())
                    })?;
                    synced = Instant::now();
                }
                Settling::Done | Settling::UnderWay => thread::sleep(SETTLE_PAUSE),
            }
        }
    }

    /// The log has failed: all that it has is brought home, so that nothing of it is replayed.
    ///
    /// # Errors
    /// Why home refuses some of it.
    pub(super) fn make_log_void(self: &Arc<Self>, behind: &WriteBehind) -> Result<(), Errno> {
        while self.shard.has_stale_log() {
            let until = Until { retry: 0, ..behind.until_now() };
            let settled = self.settle_names_until(behind, until, false);
            if let Err(error) = settled {
                behind.set_log_ending(false);
                return Err(error.into());
            }
            let (sender, synced) = channel();
            self.shard.sync_durably(move |result| sender.send(result).unwrap_or(()));
            synced.recv().unwrap_or(Ok(())).inspect_err(|_| behind.set_log_ending(false))?;
            // What is left was changed meanwhile.
            behind.set_log_ending(true);
        }
        Ok(())
    }
}
