//! Which segments of the log a file's contents need.

use crate::engine::Engine;
use crate::journal::retention::{LogSegment, Retention};
use crate::place::FileIx;

impl Engine {
    /// A content of a file needs the log from a segment on.
    pub(crate) fn need(&mut self, file: FileIx, segment: LogSegment) {
        self.change_needs(file, |needs| needs.away.add(segment));
    }

    /// It does not any more: others of the same page do.
    pub(crate) fn need_not(&mut self, file: FileIx, segment: LogSegment) {
        self.change_needs(file, |needs| needs.away.remove(segment));
    }

    /// Two contents of a page become one: which of the segments that they need it needs.
    pub(crate) fn one_need(
        &mut self,
        file: FileIx,
        a: Option<LogSegment>,
        b: Option<LogSegment>,
    ) -> Option<LogSegment> {
        if let (Some(a), Some(b)) = (a, b) {
            self.need_not(file, a.max(b));
        }
        a.into_iter().chain(b).min()
    }

    pub(crate) fn change_needs<T>(
        &mut self,
        file: FileIx,
        change: impl FnOnce(&mut Retention) -> T,
    ) -> T {
        let needs = &mut self.cache.files[file].logged.retention;
        let before = needs.first();
        let result = change(needs);
        let after = needs.first();
        if before != after {
            let held = &mut self.journal.as_mut().expect("records are in a log").held;
            if let Some(segment) = before {
                held.remove(&(segment, file));
            }
            if let Some(segment) = after {
                held.insert((segment, file));
            }
        }
        result
    }
}
