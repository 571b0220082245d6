//! Whether home refuses what would free the log.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::time::Time;

/// Home refused data, or a sync of it, that would have freed the log, and the tail has not moved since. Refusals are one after the
/// other without a gap of `patience` or more: home may have been well in between, and was not asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    first: Time,
    /// The first since home said last that somebody is over quota.
    broken: Option<Time>,
    last: Time,
    kind: ErrorKind,
}

impl Refused {
    /// After one more refusal.
    pub(crate) fn again(
        before: Option<Refused>,
        kind: ErrorKind,
        now: Time,
        patience: Duration,
    ) -> Option<Refused> {
        if kind == ErrorKind::NoSpace {
            return None;
        }
        let before = before.filter(|before| now.since(before.last) <= patience);
        let broken = match kind {
            ErrorKind::QuotaExceeded => None,
            _ => before.and_then(|before| before.broken).or(Some(now)),
        };
        Some(Refused { first: before.map_or(now, |before| before.first), broken, last: now, kind })
    }

    /// The last error, if home has refused for `patience`, and was asked within that time.
    pub(crate) fn lasting(self, patience: Duration, now: Time) -> Option<ErrorKind> {
        self.since(self.first, patience, now)
    }

    /// As [`Refused::lasting`], for another reason than that somebody is over quota.
    pub(crate) fn lastingly_broken(self, patience: Duration, now: Time) -> Option<ErrorKind> {
        self.since(self.broken?, patience, now)
    }

    /// Whether home was asked within `patience`.
    pub(crate) fn is_recent(self, patience: Duration, now: Time) -> bool {
        now.since(self.last) <= patience
    }

    fn since(self, first: Time, patience: Duration, now: Time) -> Option<ErrorKind> {
        let is_lasting = self.last.since(first) >= patience;
        (is_lasting && self.is_recent(patience, now)).then_some(self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn refused(before: Option<Refused>, kind: ErrorKind, now: Time) -> Option<Refused> {
        Refused::again(before, kind, now, PATIENCE)
    }

    #[test]
    fn one_refusal_says_nothing_and_neither_do_those_of_long_ago() {
        let start = Time::from_millis(5);
        let once = refused(None, ErrorKind::Io, start).unwrap();
        assert_eq!(once.lasting(PATIENCE, start + PATIENCE), None);
        let again = refused(Some(once), ErrorKind::Stale, start + PATIENCE).unwrap();
        assert_eq!(again.lasting(PATIENCE, start + PATIENCE), Some(ErrorKind::Stale));
        assert_eq!(again.lasting(PATIENCE, start + PATIENCE * 3), None);
    }

    #[test]
    fn two_refusals_with_a_long_time_between_them_are_not_one() {
        let once = refused(None, ErrorKind::Io, Time::ZERO);
        let later = Time::ZERO + PATIENCE * 2;
        assert_eq!(refused(once, ErrorKind::Io, later).unwrap().lasting(PATIENCE, later), None);
    }

    #[test]
    fn a_full_home_is_waited_for() {
        assert!(refused(None, ErrorKind::NoSpace, Time::ZERO).is_none());
        let before = refused(None, ErrorKind::Io, Time::ZERO);
        assert!(refused(before, ErrorKind::NoSpace, Time::ZERO).is_none());
    }

    #[test]
    fn a_home_where_somebody_is_long_over_quota_refuses_but_is_not_broken() {
        let (start, later) = (Time::ZERO, Time::ZERO + PATIENCE);
        let once = refused(None, ErrorKind::Io, start);
        let again = refused(once, ErrorKind::QuotaExceeded, later).unwrap();
        assert_eq!(again.lasting(PATIENCE, later), Some(ErrorKind::QuotaExceeded));
        assert_eq!(again.lastingly_broken(PATIENCE, later), None);
        let broken = refused(Some(again), ErrorKind::Io, later).unwrap();
        assert_eq!(broken.lastingly_broken(PATIENCE, later), None);
        let later = later + PATIENCE;
        let broken = refused(Some(broken), ErrorKind::Io, later).unwrap();
        assert_eq!(broken.lastingly_broken(PATIENCE, later), Some(ErrorKind::Io));
    }
}
