//! Whether home refuses everything, and is not expected to take it soon.
//!
//! A program that changes a name waits while the log has no room. Home frees it; a home that is slow, full or away for a
//! moment is waited for. One that has refused everything for a while is not: the log gets no room, and the program
//! gets home's error.
//!
//! Owns since when home refuses. Does not own what is refused (the tree) nor how full the log is (the engine).

use std::time::{Duration, Instant};

use weir_names::tree::{Answer, HomeError};

/// A home that refuses everything for longer than this is not waited for. A lost connection is mostly there again by then. Home
/// is asked again more often than that.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The engine is told of refusals no more often than that: many commands are refused one after the other.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// Since when home refuses what it is asked for, and its last error.
#[derive(Debug, Default)]
pub(super) struct Refusing {
    told: Option<Instant>,
    changes: Option<Refused>,
    syncs: Option<Refused>,
}

/// Refusals with nothing else between them.
#[derive(Clone, Copy, Debug)]
struct Refused {
    first: Instant,
    last: Instant,
    code: i32,
}

impl Refused {
    /// Home was asked within this time. If not, nobody knows what it would say.
    fn is_recent(self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= PATIENCE
    }
}

impl Refusing {
    /// Home answered a command.
    pub(super) fn answered(&mut self, result: Result<&Answer, HomeError>, now: Instant) {
        match result {
            // A dead disk may still be looked at in the kernel's cache.
            Ok(Answer::Found(_)) => {}
            Ok(Answer::Done | Answer::Made(_)) => self.changes = None,
            Err(HomeError::Refused(code)) => note(&mut self.changes, code, now),
            Err(_) => {}
        }
    }

    /// A sync of home as a whole ended, with an error number if it failed.
    pub(super) fn synced(&mut self, result: Result<(), i32>, now: Instant) {
        match result {
            Ok(()) => self.syncs = None,
            Err(code) => note(&mut self.syncs, code, now),
        }
    }

    /// The error of a home that is not waited for any longer.
    pub(super) fn hopeless(&self, now: Instant) -> Option<HomeError> {
        let both = [self.changes, self.syncs].into_iter().flatten();
        let mut lasting = both.filter(|refused| {
            refused.is_recent(now) && refused.last.duration_since(refused.first) >= PATIENCE
        });
        lasting.next().map(|refused| HomeError::Refused(refused.code))
    }

    /// Whether the engine is to be told now.
    pub(super) fn is_to_be_told(&mut self, now: Instant) -> bool {
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TOLD_AGAIN);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }

    /// The error of a home that refuses changes now.
    pub(super) fn at_once(&self) -> Option<HomeError> {
        self.changes.map(|refused| HomeError::Refused(refused.code))
    }
}

fn note(refused: &mut Option<Refused>, code: i32, now: Instant) {
    let before = refused.filter(|refused| refused.is_recent(now));
    *refused = match code {
        // Room is made sooner or later, by people.
        libc::ENOSPC | libc::EDQUOT => None,
        _ => Some(Refused { first: before.map_or(now, |before| before.first), last: now, code }),
    };
}

#[cfg(test)]
mod tests {
    use weir_log::Lsn;
    use weir_names::tree::AtHome;

    use super::*;

    const EIO: HomeError = HomeError::Refused(libc::EIO);

    #[test]
    fn a_home_that_refuses_everything_is_not_waited_for_for_ever() {
        let mut refusing = Refusing::default();
        let start = Instant::now();
        refusing.answered(Err(EIO), start);
        assert_eq!((refusing.at_once(), refusing.hopeless(start)), (Some(EIO), None));
        for second in [5, 10, 15, 20] {
            let now = start + Duration::from_secs(second);
            refusing.answered(Err(EIO), now);
            // What is known of it is no sign of life.
            refusing.answered(Ok(&Answer::Found(AtHome::Nothing)), now);
            assert_eq!(refusing.hopeless(now), (second == 20).then_some(EIO));
        }
        refusing.answered(Ok(&Answer::Made(Lsn(1))), start + PATIENCE);
        assert_eq!(refusing.hopeless(start + PATIENCE * 2), None);
    }

    #[test]
    fn a_refusal_of_long_ago_says_nothing() {
        let mut refusing = Refusing::default();
        let start = Instant::now();
        refusing.answered(Err(EIO), start);
        assert_eq!(refusing.hopeless(start + PATIENCE), None);
        let later = start + PATIENCE * 9;
        refusing.answered(Err(EIO), later);
        assert_eq!(refusing.hopeless(later), None);
        refusing.answered(Err(EIO), later + PATIENCE);
        assert_eq!(refusing.hopeless(later + PATIENCE), Some(EIO));
        assert_eq!(refusing.hopeless(later + PATIENCE * 9), None);
    }

    #[test]
    fn a_full_home_is_waited_for() {
        let mut refusing = Refusing::default();
        let start = Instant::now();
        for code in [libc::ENOSPC, libc::EDQUOT] {
            refusing.answered(Err(HomeError::Refused(code)), start);
            refusing.synced(Err(code), start);
            refusing.answered(Err(HomeError::Refused(code)), start + PATIENCE);
            refusing.synced(Err(code), start + PATIENCE);
            assert_eq!(refusing.hopeless(start + PATIENCE), None);
        }
        refusing.answered(Err(HomeError::Changed), start);
        refusing.answered(Err(HomeError::Changed), start + PATIENCE);
        assert_eq!(refusing.hopeless(start + PATIENCE), None);
    }

    #[test]
    fn a_home_that_takes_changes_and_cannot_sync_them_frees_no_log() {
        let mut refusing = Refusing::default();
        let start = Instant::now();
        refusing.synced(Err(libc::EIO), start);
        refusing.synced(Err(libc::EIO), start + PATIENCE);
        refusing.answered(Ok(&Answer::Done), start + PATIENCE);
        assert_eq!(refusing.hopeless(start + PATIENCE), Some(EIO));
        refusing.synced(Ok(()), start + PATIENCE);
        assert_eq!(refusing.hopeless(start + PATIENCE * 2), None);
    }
}
