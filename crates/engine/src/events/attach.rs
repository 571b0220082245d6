//! Attaching, detaching and discarding files, and questions about attached files.

use weir_frames::PAGE_BYTES;

use crate::cache::file::File;
use crate::cache::page::PageIo;
use crate::command::{DataState, Durability, FileId, HomeAttributes, Output};
use crate::engine::Engine;
use crate::error::{ErrorCursor, ErrorKind};
use crate::place::FileIx;
use crate::time::Time;

/// The least write unit of a device, bytes.
const SECTOR: u32 = 512;

impl Engine {
    /// Attaches a file. If it is attached already, its home attributes are ignored, except that it may have become
    /// readable.
    pub fn attach(&mut self, file: FileId, home: HomeAttributes) {
        let home = self.taken(home);
        match self.cache.files.find(file) {
            Some(ix) => {
                let file = &mut self.cache.files[ix];
                file.detaching = false;
                file.discarded = false;
                file.readable |= home.readable;
            }
            None => {
                let ix = self.cache.files.add(File::new(file, home));
                let is_synced = self.is_home_synced();
                let home = &mut self.cache.files[ix].home;
                (home.unsynced, home.attributes_unsynced) = (!is_synced, !is_synced);
            }
        }
    }

    /// Attributes at home as they are used. A home that takes bytes but may lose what it has acknowledged is given pages: those can be
    /// written again, patches that have left memory cannot.
    fn taken(&self, mut home: HomeAttributes) -> HomeAttributes {
        if !self.config.keeps_unsynced && home.write_unit < SECTOR {
            home.write_unit = PAGE_BYTES as u32;
        }
        home
    }

    /// Whether home has all that it has of files that are not attached durably, or the log has it: so it is where nobody else changes
    /// home, and it was synced after the last change that is not in the log.
    fn is_home_synced(&self) -> bool {
        let log = self.journal.as_ref().filter(|log| log.is_usable());
        self.config.keeps_unsynced && log.is_some_and(|log| log.at_home.is_synced())
    }

    /// How often home was changed not by way of the log, for [`Engine::home_is_synced`].
    pub fn changes_at_home(&self) -> u64 {
        self.journal.as_ref().map_or(0, |log| log.at_home.changes)
    }

    /// A sync of home as a whole, which was no command on the log, has succeeded. It began when [`Engine::changes_at_home`] was `changes`.
    pub fn home_is_synced(&mut self, changes: u64) {
        if let Some(log) = &mut self.journal {
            log.at_home.synced(changes);
        }
    }

    /// Something was changed at home, not by way of the log, of a file that is not attached, or leaves.
    pub(crate) fn changed_without_log(&mut self) {
        if let Some(log) = &mut self.journal {
            log.at_home.changes += 1;
        }
    }

    /// Whether the file is attached.
    pub fn is_attached(&self, file: FileId) -> bool {
        self.cache.files.find(file).is_some()
    }

    /// Detaches a file: at once if it is clean and idle, else when its dirty data is home. In both cases
    /// [`Output::Detached`] follows. Attaching the file again before that cancels the detachment.
    pub fn detach(&mut self, file: FileId, now: Time) {
        if let Some(ix) = self.cache.files.find(file) {
            self.cache.files[ix].detaching = true;
            self.try_detach(ix, now);
        }
    }

    /// The file has no name and no open description any more: its dirty data is dropped, without fetch or destage. To be
    /// followed by [`Engine::detach`], or it was detached before and leaves now.
    pub fn discard(&mut self, file: FileId) {
        let Some(file) = self.cache.files.find(file) else { return };
        self.cache.files[file].discarded = true;
        // Dropped data is not home: if a crash undoes the removal, what was synced is still in the log.
        self.cache.files[file].waiters.syncs.iter_mut().for_each(|sync| sync.full = None);
        self.drop_spilled(file, 0, u64::MAX);
        for ix in self.cache.pages_of(file) {
            let seq = self.cache.pages[ix].dirty_seq;
            if self.cache.pages[ix].io == PageIo::None {
                if !self.cache.pages[ix].patches.is_empty() {
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
        self.cancel(file);
        // It may have been waiting to be detached for what is dropped now.
        self.progress(file, self.clock);
    }

    /// The file was changed directly at home: drops its cached pages and takes its new attributes. Does nothing and returns
    /// false if the file has dirty data or is in use.
    pub fn drop_clean(&mut self, file: FileId, home: HomeAttributes) -> bool {
        let Some(ix) = self.cache.files.find(file) else { return false };
        if self.cache.files[ix].is_unclean() || !self.cache.files[ix].is_idle() {
            return false;
        }
        self.drop_pages(ix);
        let home = self.taken(home);
        self.cache.files[ix].set_home(home);
        if home.size > 0 {
            self.cache.files[ix].settled.written_at_home();
        }
        self.home_is_ahead(ix);
        true
    }

    /// Size as programs see it, bytes; `None` if the file is not attached.
    pub fn size(&self, file: FileId) -> Option<u64> {
        self.cache.files.find(file).map(|ix| self.cache.files[ix].size())
    }

    /// Whether the file has data that is not at home yet.
    pub fn has_dirty(&self, file: FileId) -> bool {
        self.cache.files.find(file).is_some_and(|ix| self.cache.files[ix].is_unclean())
    }

    /// Whether data of the file is in the log alone.
    pub fn has_spilled(&self, file: FileId) -> bool {
        self.cache.files.find(file).is_some_and(|ix| self.cache.files[ix].spilled_pages > 0)
    }

    /// The files that have data which is not at home yet.
    pub fn dirty_files(&self) -> Vec<FileId> {
        let dirty = self.cache.files.iter().filter(|(_, file)| file.is_unclean());
        dirty.map(|(_, file)| file.id).collect()
    }

    /// How far the file's data is. Of what is logged, its name and attributes are durable at home.
    pub fn data_state(&self, file: FileId) -> DataState {
        let Some(ix) = self.cache.files.find(file) else { return DataState::Home };
        let of_file = &self.cache.files[ix];
        if !of_file.is_unclean() {
            return DataState::Home;
        }
        let Some(log) = self.journal.as_ref().filter(|log| log.is_usable()) else {
            return DataState::Dirty;
        };
        let is_durable = of_file.logged.last.is_some_and(|last| last < log.shared.durable());
        let is_synced = !of_file.home.needs_sync(Durability::All);
        let is_whole = self.cache.dirty.unlogged.next_of(ix, 0).is_none();
        match self.may_log(ix) && !self.is_home_ahead(ix) && is_durable && is_synced && is_whole {
            true => DataState::Logged,
            false => DataState::Dirty,
        }
    }

    /// A file got another name, owner, mode or other attributes at home, not by way of the log: its next sync is to make that durable, too.
    pub fn changed_at_home(&mut self, file: FileId) {
        match self.cache.files.find(file) {
            Some(ix) => {
                self.cache.files[ix].home.attributes_changed();
                if !self.may_log(ix) {
                    self.is_not_served(ix);
                }
            }
            None => self.changed_without_log(),
        }
    }

    /// Space that was reserved past the end of the file is about to be given back: the next write there reserves it again.
    /// To be called before the space is given back.
    pub fn forget_reserved_past_end(&mut self, file: FileId) {
        if let Some(ix) = self.cache.files.find(file) {
            self.cache.files[ix].forget_reserved_past_end();
        }
    }

    /// The cursor of a newly opened description: it gets only errors from now on.
    pub fn error_cursor(&self, file: FileId) -> ErrorCursor {
        ErrorCursor(self.cache.files.find(file).map_or(0, |ix| self.cache.files[ix].errors))
    }

    /// The latest error of write-back, or of a fetch behind a non-blocking write, since `cursor`. Advances the cursor, so
    /// that each description gets the error once.
    pub fn take_error(&self, file: FileId, cursor: &mut ErrorCursor) -> Option<ErrorKind> {
        let file = &self.cache.files[self.cache.files.find(file)?];
        if file.errors == cursor.0 {
            return None;
        }
        cursor.0 = file.errors;
        file.last_error
    }

    /// A request or I/O of the file ended: a freeze may be granted, or the file may be detached. Nothing happens if it was
    /// detached by what else followed from that end.
    pub(crate) fn progress(&mut self, file: FileIx, now: Time) {
        if self.cache.files.has(file) {
            self.try_freeze(file, now);
        }
        if self.cache.files.has(file) {
            self.try_detach(file, now);
        }
    }

    pub(crate) fn try_detach(&mut self, ix: FileIx, now: Time) {
        let file = &self.cache.files[ix];
        if !file.detaching || file.is_unclean() || !file.is_idle() || self.must_release(ix, now) {
            return;
        }
        let id = self.cache.files[ix].id;
        if self.cache.files[ix].home.is_unsynced(Durability::All) {
            self.changed_without_log();
        }
        self.drop_pages(ix);
        self.write_back.sweeps.urgent.remove(&ix);
        self.write_back.sweeps.wanted.remove(&ix);
        self.waiters.abandoned_freezes.retain(|&abandoned| abandoned != ix);
        self.left_log(ix);
        self.device.layouts.forget(ix);
        self.cache.files.remove(ix);
        self.outputs.push_back(Output::Detached(id));
    }

    /// Forgets all pages of a file that is clean and idle.
    pub(crate) fn drop_pages(&mut self, file: FileIx) {
        for ix in self.cache.pages_of(file) {
            self.update(ix, |page| page.frame = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_frames::FramePool;

    use super::*;
    use crate::command::{
        Command, Completion, Durability, FreezeScope, HomeAttributes, IoId, Outcome, Output, Reply,
        RequestId,
    };
    use crate::config::Config;
    use crate::error::Error;

    const FILE: FileId = FileId(1);
    const FREEZE: RequestId = RequestId(9);

    /// What the engine gives out next: writes with their offsets, and the rest as text. Space is granted.
    fn outputs(engine: &mut Engine, now: Time) -> (Vec<(u64, IoId)>, Vec<String>) {
        let (mut writes, mut others) = (Vec::new(), Vec::new());
        engine.dispatch();
        while let Some(output) = engine.next_output() {
            match output {
                Output::Command(Command::Write { io, offset, .. }) => writes.push((offset, io)),
                Output::Command(Command::Reserve { io, .. }) => {
                    engine.complete(io, Completion::Reserved { result: Ok(()) }, now);
                }
                Output::Cleaned(_) | Output::Reply { reply: Reply::Written(Ok(())), .. } => {}
                Output::Reply { request, reply: Reply::Frozen(Err(Error::Home(kind))) } => {
                    others.push(format!("{request:?} failed: {kind:?}"));
                }
                other => others.push(format!("{other:?}")),
            }
            engine.dispatch();
        }
        (writes, others)
    }

    fn engine_with_file() -> Engine {
        let config = Config {
            memory_bytes_max: 16 << 20,
            patch_bytes_max: 1 << 20,
            retry_delay: Duration::from_millis(10),
            ..Config::default()
        };
        let mut engine = Engine::new(config, FramePool::new(8192).unwrap()).unwrap();
        let home = HomeAttributes { size: 0, dense: true, write_unit: 4096, readable: true };
        engine.attach(FILE, home);
        engine
    }

    #[test]
    fn a_file_that_waits_to_be_detached_leaves_when_its_dirty_data_is_dropped() {
        let mut engine = engine_with_file();
        let now = Time::from_millis(1);
        let _ = engine.write(RequestId(1), FILE, 0, &[7; 100], Durability::None, now);
        assert_eq!(outputs(&mut engine, now), (Vec::new(), Vec::new()));
        engine.detach(FILE, now);
        assert!(engine.is_attached(FILE), "it is dirty");
        engine.discard(FILE);
        assert!(!engine.is_attached(FILE));
        assert_eq!(outputs(&mut engine, now).1, ["Detached(FileId(1))"]);
    }

    #[test]
    fn a_file_that_is_to_be_detached_leaves_when_the_flush_before_a_freeze_has_failed() {
        let mut engine = engine_with_file();
        let mut now = Time::from_millis(1);
        let far = 1_000_000 / 4096 * 4096;
        for (request, offset) in [(1, 0), (2, far)] {
            let data = vec![7; 4096];
            let _ = engine.write(RequestId(request), FILE, offset, &data, Durability::None, now);
        }
        assert_eq!(outputs(&mut engine, now), (Vec::new(), Vec::new()));
        engine.detach(FILE, now);
        let flush = FreezeScope::unchanging(Some((0, u64::MAX)));
        assert_eq!(engine.freeze(FREEZE, FILE, flush, now), Outcome::Pending);
        let (writes, _) = outputs(&mut engine, now);
        let of = |wanted: u64| writes.iter().find(|(offset, _)| *offset == wanted).unwrap().1;
        let (first, second) = (of(0), of(far));
        engine.complete(first, Completion::Written { result: Err(ErrorKind::Io) }, now);
        // It is written again before the other ends.
        now = now + Duration::from_secs(1);
        engine.tick(now);
        let (again, _) = outputs(&mut engine, now);
        assert_eq!(again.len(), 1);
        engine.complete(again[0].1, Completion::Written { result: Ok(()) }, now);
        assert_eq!(outputs(&mut engine, now), (Vec::new(), Vec::new()));
        engine.complete(second, Completion::Written { result: Ok(()) }, now);
        let (_, ends) = outputs(&mut engine, now);
        assert_eq!(ends, ["RequestId(9) failed: Io", "Detached(FileId(1))"]);
    }
}
