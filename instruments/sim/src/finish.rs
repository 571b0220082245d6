//! The liveness phase: with a device that works, every request is answered and all data goes home.

use std::time::Duration;

use weir_engine::FileId;

use crate::violation::Violation;
use crate::world::{Phase, World};

/// Virtual time in which some request must be answered, or some page come home.
const REST_MAX: Duration = Duration::from_secs(600);

/// Bytes a final read asks for at once.
const READ_BYTES: usize = 128 << 10;

impl World {
    /// Heals the device, ends what is open, and checks that everything becomes clean, home, equal
    /// to the model, and finally gone.
    ///
    /// # Errors
    /// The check that failed.
    pub fn finish(&mut self) -> Result<(), Violation> {
        self.trace_mut().line(format_args!("finish"));
        self.release_reads()?;
        // However the device fails, no request waits for ever.
        self.rest("requests to be answered somehow", |world| world.waiting.is_empty())?;
        self.device.heal();
        self.rest("requests to be answered", |world| world.waiting.is_empty())?;
        if self.config.ages {
            self.rest("dirty data to go home by itself", |world| {
                world.engine.stats(world.now).dirty_pages == 0
            })?;
        }
        self.sync_all()?;
        self.rest("a last sync", |world| world.waiting.is_empty())?;
        // Clean pages that are written with the dirty ones around them are not the sync's business.
        self.rest("destages under way", |world| {
            world.engine.stats(world.now).destages_in_flight == 0
        })?;
        self.judge_at_rest()?;
        self.read_everything()?;
        self.judge_at_rest()?;
        self.let_everything_go()
    }

    /// Lets time pass until `done`, ending freezes when they are granted.
    fn rest(&mut self, what: &str, done: impl Fn(&World) -> bool) -> Result<(), Violation> {
        let mut left = (usize::MAX, u64::MAX);
        let mut deadline = self.now + REST_MAX;
        loop {
            let left_now = (self.waiting.len(), self.engine.stats(self.now).dirty_pages);
            if left_now.0 < left.0 || left_now.1 < left.1 {
                left = (left.0.min(left_now.0), left.1.min(left_now.1));
                deadline = self.now + REST_MAX;
            }
            self.release_reads()?;
            // The end of one freeze may let the next one begin.
            loop {
                let Some(file) = self.frozen_files().next() else { break };
                self.thaw(file)?;
            }
            if done(self) {
                return Ok(());
            }
            if !self.advance(1)? || self.now > deadline {
                let waiting: Vec<_> = self.waiting.iter().take(8).collect();
                let stats = self.engine.stats(self.now);
                return Err(Violation::Stuck(format!("{what}: {waiting:?}; {stats:?}")));
            }
        }
    }

    fn judge_at_rest(&mut self) -> Result<(), Violation> {
        self.engine.check_invariants();
        let stats = self.engine.stats(self.now);
        let left = stats.dirty_pages
            + stats.patched_pages
            + stats.writers_waiting
            + stats.patch_bytes
            + stats.destages_in_flight;
        if left > 0 {
            return Err(Violation::Stuck(format!("after a sync of everything: {stats:?}")));
        }
        let files: Vec<FileId> = self.files.keys().copied().collect();
        for file in files {
            if self.engine.is_attached(file) && self.engine.has_dirty(file) {
                return Err(Violation::Stuck(format!("{file:?} is dirty after a sync")));
            }
            self.judge_home(file)?;
        }
        Ok(())
    }

    /// Reads every file through the engine: from here on the model allows one content only.
    fn read_everything(&mut self) -> Result<(), Violation> {
        let files: Vec<FileId> = self.files.keys().copied().collect();
        for file in files {
            let Some(size) = self.usable_size(file) else { continue };
            for offset in (0..=size).step_by(READ_BYTES) {
                let read = crate::Action::Read { file, offset, len: READ_BYTES };
                self.apply(&read)?;
                self.rest("a last read", |world| world.waiting.is_empty())?;
            }
            self.release_reads()?;
        }
        Ok(())
    }

    fn let_everything_go(&mut self) -> Result<(), Violation> {
        let files: Vec<FileId> = self.files.keys().copied().collect();
        for file in files {
            self.detach(file)?;
        }
        self.rest("files to be detached", |world| {
            world
                .files
                .values()
                .all(|state| matches!(state.phase, Phase::Detached | Phase::Unlinked))
        })?;
        self.engine.check_invariants();
        let stats = self.engine.stats(self.now);
        if stats.pages + stats.frames + stats.patch_bytes + stats.files > 0 {
            return Err(Violation::Stuck(format!("after every file was detached: {stats:?}")));
        }
        // The engine keeps one frame of zeros.
        let lost = self.pool.capacity() - 1 - self.pool.free();
        if lost > 0 {
            return Err(Violation::Stuck(format!("{lost} frames are lost")));
        }
        match self.next_event() {
            Some(at) => Err(Violation::Stuck(format!("an event is due at {at:?} for no file"))),
            None => Ok(()),
        }
    }
}
