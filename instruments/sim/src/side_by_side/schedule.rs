//! Which clients run when: one from the start to the end, or several that come and go.
//!
//! Pure: the schedule follows from the seed and the lengths alone.

use weir_drive::Random;

use super::order::Access;

/// Number of clients that come and go; all of them may run at once.
pub const CLIENTS: usize = 8;
/// The fewest that run at any time.
pub const RUNNING_MIN: u64 = 5;

/// A client running once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    /// Its access to its files.
    pub access: Access,
    /// Start, seconds after that of the load.
    pub begin: f64,
    /// The time after which it begins no more operations.
    pub end: f64,
}

/// One client with one session: all of the load.
pub fn steady(access: Access, seconds: f64) -> Vec<Vec<Session>> {
    vec![vec![Session { access, begin: 0.0, end: seconds }]]
}

/// The sessions of each of [`CLIENTS`] clients, each client's in the order of time and apart from
/// one another.
///
/// Something changes at random intervals, half to one and a half times `change_seconds`: a client
/// ends, and others end or begin, until a randomly drawn number of them run, [`RUNNING_MIN`] to
/// [`CLIENTS`]. A client that begins is sequential or follows Zipf's law, at random.
pub fn variable(seed: u64, seconds: f64, change_seconds: f64) -> Vec<Vec<Session>> {
    assert!(change_seconds > 0.0);
    let mut random = Random::of(seed, 0x7661_7269);
    let mut sessions = vec![Vec::new(); CLIENTS];
    let mut now: [Option<(Access, f64)>; CLIENTS] = [None; CLIENTS];
    let mut at = 0.0;
    while at < seconds {
        let wanted = RUNNING_MIN + random.below(CLIENTS as u64 - RUNNING_MIN + 1);
        let running = now.iter().flatten().count() as u64;
        for _ in 0..running.saturating_sub(wanted).max(running.min(1)) {
            let client = draw(&mut random, &now, true);
            sessions[client].extend(ended(now[client].take(), at));
        }
        for _ in now.iter().flatten().count() as u64..wanted {
            let client = draw(&mut random, &now, false);
            now[client] = Some((random.pick(&[(1, Access::Sequential), (1, Access::Zipf)]), at));
        }
        at += change_seconds * (0.5 + random.below(1 << 20) as f64 / f64::from(1 << 20));
    }
    for (sessions, begun) in sessions.iter_mut().zip(now) {
        sessions.extend(ended(begun, seconds));
    }
    sessions
}

fn ended(begun: Option<(Access, f64)>, end: f64) -> Option<Session> {
    begun.map(|(access, begin)| Session { access, begin, end })
}

/// A random one of those that run, or of those that do not. There must be one.
fn draw(random: &mut Random, now: &[Option<(Access, f64)>], running: bool) -> usize {
    let those: Vec<usize> = (0..now.len()).filter(|at| now[*at].is_some() == running).collect();
    those[random.below(those.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(sessions: &[Vec<Session>], at: f64) -> usize {
        let of_one = |sessions: &Vec<Session>| {
            sessions.iter().filter(|session| session.begin <= at && at < session.end).count()
        };
        sessions.iter().map(of_one).inspect(|count| assert!(*count <= 1)).sum()
    }

    #[test]
    fn five_to_eight_run_at_any_time_and_they_change() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let sessions = variable(seed, 10.0, 0.5);
            assert_eq!(sessions.len(), CLIENTS);
            (0..10_000).for_each(|ms| {
                seen.insert(running(&sessions, f64::from(ms) / 1e3));
            });
            let all = || sessions.iter().flatten();
            assert!(all().all(|one| 0.0 <= one.begin && one.begin < one.end && one.end <= 10.0));
            assert!(all().count() > 20, "{sessions:?}");
            for access in [Access::Sequential, Access::Zipf] {
                assert!(all().any(|session| session.access == access));
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8]);
    }

    #[test]
    fn the_schedule_follows_from_the_seed() {
        assert_eq!(variable(3, 6.0, 0.5), variable(3, 6.0, 0.5));
        assert_ne!(variable(3, 6.0, 0.5), variable(4, 6.0, 0.5));
        assert_eq!(steady(Access::Zipf, 6.0)[0][0].end, 6.0);
    }

    #[test]
    fn a_load_shorter_than_one_interval_has_clients_too() {
        let sessions = variable(1, 0.1, 5.0);
        assert!(running(&sessions, 0.05) >= RUNNING_MIN as usize);
    }
}
