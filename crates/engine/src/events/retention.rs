//! The log retention of a file: which segments of the log its contents need.

use weir_journal::{Retention, Segment};

use crate::engine::Engine;
use crate::place::FileIx;

impl Engine {
    /// A content of a file needs the log from a segment on.
    pub(crate) fn retain(&mut self, file: FileIx, segment: Segment) {
        self.change_retention(file, |retention| retention.away.add(segment));
    }

    /// The content no longer needs the segment.
    pub(crate) fn retain_no_more(&mut self, file: FileIx, segment: Segment) {
        self.change_retention(file, |retention| retention.away.remove(segment));
    }

    /// Two contents of a page become one. Returns the segment that the result needs: the older one.
    pub(crate) fn merge_retained(
        &mut self,
        file: FileIx,
        a: Option<Segment>,
        b: Option<Segment>,
    ) -> Option<Segment> {
        if let (Some(a), Some(b)) = (a, b) {
            self.retain_no_more(file, a.max(b));
        }
        a.into_iter().chain(b).min()
    }

    pub(crate) fn change_retention<T>(
        &mut self,
        file: FileIx,
        change: impl FnOnce(&mut Retention) -> T,
    ) -> T {
        let retention = &mut self.cache.files[file].logged.retention;
        match &mut self.journal {
            Some(log) => log.shared.change(file, retention, change),
            // Without a log, retention has no effect.
            None => change(retention),
        }
    }
}
