//! Attaching, detaching and discarding files, and questions about attached files.

use crate::cache::file::File;
use crate::cache::page::PageIo;
use crate::command::{FileId, HomeAttributes, Output};
use crate::engine::Engine;
use crate::error::{ErrorCursor, ErrorKind};
use crate::place::FileIx;
use crate::time::Time;

impl Engine {
    /// Attaches a file. If it is attached already, its home attributes are ignored, except that it may have become
    /// readable.
    pub fn attach(&mut self, file: FileId, home: HomeAttributes) {
        match self.cache.files.find(file) {
            Some(ix) => {
                let file = &mut self.cache.files[ix];
                file.detaching = false;
                file.discarded = false;
                file.readable |= home.readable;
            }
            None => {
                self.cache.files.add(File::new(file, home));
            }
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
    /// followed by [`Engine::detach`].
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
    }

    /// The file was changed directly at home: drops its cached pages and takes its new attributes. Does nothing and returns
    /// false if the file has dirty data or is in use.
    pub fn drop_clean(&mut self, file: FileId, home: HomeAttributes) -> bool {
        let Some(ix) = self.cache.files.find(file) else { return false };
        if self.cache.files[ix].is_unclean() || !self.cache.files[ix].is_idle() {
            return false;
        }
        self.drop_pages(ix);
        self.cache.files[ix].set_home(home);
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

    /// A request or I/O of the file ended: a freeze may be granted, or the file may be detached.
    pub(crate) fn progress(&mut self, file: FileIx, now: Time) {
        self.try_freeze(file, now);
        self.try_detach(file, now);
    }

    pub(crate) fn try_detach(&mut self, ix: FileIx, now: Time) {
        let file = &self.cache.files[ix];
        if !file.detaching || file.is_unclean() || !file.is_idle() || self.must_release(ix, now) {
            return;
        }
        let id = self.cache.files[ix].id;
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

    /// The file's owner, mode, names or other attributes changed at home: its next sync must make them durable as well.
    pub fn attributes_changed(&mut self, file: FileId) {
        if let Some(file) = self.cache.files.find(file) {
            self.cache.files[file].home.unsynced = true;
        }
    }
}
