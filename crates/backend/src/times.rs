//! A file's modification and change times as programs see them, which override those at home.
//!
//! A write sets both at once, long before its data goes home; destaging then disturbs the times at
//! home. While the overlay has a time, that is the file's time. [`crate::HomeFile::restore_times`] restores the
//! modification time at home; the change time cannot be set.

use std::sync::{Mutex, PoisonError};

/// A wall-clock time: seconds and nanoseconds since 1970, as in `struct timespec`.
pub type Timestamp = rustix::fs::Timespec;

/// The overlay of one file. All methods may be called from any thread.
#[derive(Debug, Default)]
pub struct Times {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mtime: Option<Timestamp>,
    ctime: Option<Timestamp>,
    /// Home's modification time may differ from `mtime`.
    disturbed: bool,
    /// It does because home was written.
    written: bool,
    /// Attributes changed, and no sync was requested since.
    changed: bool,
    /// The log has `mtime`, and recovery would set it after it wrote the file's data.
    logged: bool,
}

impl Times {
    /// A program wrote, or changed the size: both times are `now`, or that of a write that looked at the clock later but was
    /// noted before.
    pub fn note_write(&self, now: Timestamp) {
        let mut state = self.lock();
        let now = state.ctime.filter(|noted| overtook(*noted, now)).unwrap_or(now);
        state.mtime = Some(now);
        state.ctime = Some(now);
        state.disturbed = true;
    }

    /// A program changed attributes (mode, owner, links, extended attributes): the change time is
    /// `now`.
    pub fn note_change(&self, now: Timestamp) {
        let mut state = self.lock();
        state.ctime = Some(now);
        state.changed = true;
    }

    /// As [`Times::note_change`], of attributes that are in the log: no sync has to make them durable at home.
    pub fn note_logged_change(&self, now: Timestamp) {
        self.lock().ctime = Some(now);
    }

    /// As [`Times::set_mtime`], of a time that is in the log.
    pub fn set_logged_mtime(&self, mtime: Timestamp, now: Timestamp) {
        let mut state = self.lock();
        (state.mtime, state.ctime, state.disturbed) = (Some(mtime), Some(now), true);
        state.logged = true;
    }

    /// A file is new, and the log says so without a time.
    pub fn note_made(&self, now: Timestamp) {
        let mut state = self.lock();
        (state.mtime, state.ctime, state.disturbed) = (Some(now), Some(now), true);
    }

    /// The file is written: says whether the log has a time for recovery to set after that.
    pub fn take_logged_mtime(&self) -> bool {
        std::mem::take(&mut self.lock().logged)
    }

    /// A program set the modification time (utimensat(2)) at `now`. To be called whether or not it was set at
    /// home: it is restored there after the next destage.
    pub fn set_mtime(&self, mtime: Timestamp, now: Timestamp) {
        let mut state = self.lock();
        state.mtime = Some(mtime);
        state.ctime = Some(now);
        state.disturbed = true;
        state.changed = true;
        state.logged = false;
    }

    /// Modification and change time; `None` where the one at home is right.
    pub fn overlay(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let state = self.lock();
        (state.mtime, state.ctime)
    }

    /// Whether attributes changed since the last call: a sync must make them durable.
    pub fn take_changed(&self) -> bool {
        std::mem::take(&mut self.lock().changed)
    }

    /// Home was written, which changed its modification time.
    pub(crate) fn note_disturbed(&self) {
        let mut state = self.lock();
        (state.disturbed, state.written) = (true, true);
    }

    /// Whether home was written, and its modification time was not restored since.
    pub fn is_written(&self) -> bool {
        let state = self.lock();
        state.written && state.mtime.is_some()
    }

    /// Whether the modification time must be restored at home.
    pub fn is_disturbed(&self) -> bool {
        let state = self.lock();
        state.disturbed && state.mtime.is_some()
    }

    /// The modification time to restore at home; `None` if it does not differ there. A write at home after this
    /// call needs another restore.
    pub(crate) fn take_disturbed(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        state.written = false;
        if !std::mem::take(&mut state.disturbed) {
            return None;
        }
        state.mtime
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a time that was noted before is later than `now`, and not because the clock was set back.
fn overtook(noted: Timestamp, now: Timestamp) -> bool {
    let is_later = (noted.tv_sec, noted.tv_nsec) > (now.tv_sec, now.tv_nsec);
    is_later && noted.tv_sec - now.tv_sec <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_at_once_do_not_set_times_back() {
        let at = |tv_sec, tv_nsec| Timestamp { tv_sec, tv_nsec };
        let times = Times::default();
        let shown = |now| {
            times.note_write(now);
            times.overlay()
        };
        let both = |time| (Some(time), Some(time));
        assert_eq!(shown(at(100, 7)), both(at(100, 7)));
        assert_eq!(shown(at(100, 6)), both(at(100, 7)));
        assert_eq!(shown(at(99, 999_999_999)), both(at(100, 7)));
        assert_eq!(shown(at(100, 8)), both(at(100, 8)));
        // The clock was set back.
        assert_eq!(shown(at(50, 0)), both(at(50, 0)));
        // A program may set a time to come.
        times.set_mtime(at(1000, 0), at(50, 1));
        assert_eq!(shown(at(50, 2)), both(at(50, 2)));
    }
}
