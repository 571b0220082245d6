//! What `weir sync`, `weir umount` and `weir recover` say on standard error while data and names go home: how much is left, and for how
//! long at the rate of the last seconds.
//!
//! Nothing for the first second. Then on a terminal one line that changes; elsewhere a line now and then.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_backend::{RecoveryPhase, RecoveryProgress};
use weir_engine::PAGE_BYTES;

use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request, Status};
use crate::mounts::Mount;

/// How long nothing is said.
const SILENCE: Duration = Duration::from_secs(1);
/// How often it is said on a terminal, and elsewhere.
const ON_TERMINAL: Duration = Duration::from_millis(500);
const ELSEWHERE: Duration = Duration::from_secs(5);
/// Over how long the rate is taken.
const WINDOW: Duration = Duration::from_secs(20);

/// Says how much is left until it is dropped.
pub struct Progress {
    /// Dropped at the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// So much is left.
    BringingHome(Left),
    /// It cannot be told how much is left.
    Else(&'static str),
}

impl Progress {
    /// Of what is not home of a mount.
    pub fn of(mount: &Mount) -> Progress {
        let mount = mount.clone();
        Progress::by(move || {
            let status = Daemon::connect(&mount).and_then(|daemon| daemon.ask(&Request::Status));
            match status {
                Ok(Reply::Status { status }) => Some(Doing::BringingHome(Left::of(&status))),
                // One that is ending may not answer any more.
                _ => None,
            }
        })
    }

    /// Of a recovery.
    pub fn of_recovery(progress: Arc<RecoveryProgress>) -> Progress {
        Progress::by(move || {
            Some(match progress.now() {
                RecoveryPhase::Reading => Doing::Else("reading the log"),
                RecoveryPhase::Names => Doing::Else("bringing names home"),
                RecoveryPhase::Data { left } => Doing::BringingHome(Left { bytes: left, names: 0 }),
            })
        })
    }

    fn by(look: impl Fn() -> Option<Doing> + Send + 'static) -> Progress {
        let (end, ended) = channel();
        let thread = thread::Builder::new().spawn(move || tell(look, &ended)).ok();
        Progress { end: Some(end), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked there was nothing more to say.
            let _ = thread.join();
        }
    }
}

fn tell(look: impl Fn() -> Option<Doing>, ended: &Receiver<()>) {
    let is_terminal = stderr().is_terminal();
    let pause = if is_terminal { ON_TERMINAL } else { ELSEWHERE };
    let mut rate = Rate::default();
    let mut wait = SILENCE;
    let mut is_shown = false;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = pause;
        let Some(doing) = look() else { continue };
        if doing == Doing::BringingHome(Left::default()) && !is_terminal {
            // It is only being made durable.
            continue;
        }
        let text = match doing {
            Doing::BringingHome(left) => {
                let (before, elapsed) = rate.since(Instant::now(), left);
                left.words(before, elapsed)
            }
            Doing::Else(text) => text.to_owned(),
        };
        is_shown = true;
        // Nobody need read it.
        let _ = match is_terminal {
            true => write!(stderr(), "\r\x1b[Kweir: {text}"),
            false => writeln!(stderr(), "weir: {text}"),
        };
    }
    if is_terminal && is_shown {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

/// What was left during the last [`WINDOW`].
#[derive(Debug, Default)]
struct Rate(VecDeque<(Instant, Left)>);

impl Rate {
    /// Notes what is left now. What was left at the beginning of the window, and how long ago that was.
    fn since(&mut self, now: Instant, left: Left) -> (Left, Duration) {
        self.0.push_back((now, left));
        // The one before the window's first: so two are left however rarely it is looked.
        while self.0.get(1).is_some_and(|(then, _)| now - *then >= WINDOW) {
            self.0.pop_front();
        }
        let (then, before) = self.0[0];
        (before, now - then)
    }
}

/// What is not home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    bytes: u64,
    names: u64,
}

impl Left {
    fn of(status: &Status) -> Left {
        let names = status.names.as_ref().map_or(0, |names| names.pending);
        Left { bytes: status.stats.dirty_pages * PAGE_BYTES as u64, names }
    }

    /// In words, if so much was left some time ago.
    fn words(self, before: Left, elapsed: Duration) -> String {
        let data = (self.bytes > 0).then(|| format!("{} MiB", self.bytes.div_ceil(1 << 20)));
        let names = match self.names {
            0 => None,
            1 => Some("1 name".to_owned()),
            names => Some(format!("{names} names")),
        };
        let what = match (data, names) {
            (None, None) => return "waiting until it is durable".to_owned(),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(data), Some(names)) => format!("{data} and {names}"),
        };
        let time = |left: u64, before: u64| seconds_left(left, before, elapsed);
        match (time(self.bytes, before.bytes), time(self.names, before.names)) {
            (Some(data), Some(names)) => {
                format!("{what} to go, about {} left", in_words(data.max(names)))
            }
            _ => format!("{what} to go"),
        }
    }
}

/// Seconds that `left` takes at the rate since `before` was left; `None` if it did not get less.
fn seconds_left(left: u64, before: u64, elapsed: Duration) -> Option<u64> {
    match before.checked_sub(left) {
        _ if left == 0 => Some(0),
        None | Some(0) => None,
        Some(done) => Some((left as f64 / done as f64 * elapsed.as_secs_f64()).ceil() as u64),
    }
}

fn in_words(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(left: (u64, u64), before: (u64, u64), seconds: u64) -> String {
        let left_of = |(mib, names): (u64, u64)| Left { bytes: mib << 20, names };
        left_of(left).words(left_of(before), Duration::from_secs(seconds))
    }

    #[test]
    fn what_is_left_is_said_with_the_slower_of_the_two() {
        assert_eq!(words((10, 0), (20, 0), 5), "10 MiB to go, about 5 s left");
        assert_eq!(words((0, 1), (0, 5), 4), "1 name to go, about 1 s left");
        assert_eq!(words((10, 300), (20, 400), 5), "10 MiB and 300 names to go, about 15 s left");
        assert_eq!(words((0, 9000), (0, 9001), 2), "9000 names to go, about 5 h left");
        assert_eq!(words((0, 900), (0, 910), 3), "900 names to go, about 5 min left");
    }

    #[test]
    fn without_progress_no_time_is_promised() {
        assert_eq!(words((10, 0), (10, 0), 5), "10 MiB to go");
        assert_eq!(words((10, 3), (20, 2), 5), "10 MiB and 3 names to go");
        assert_eq!(words((0, 0), (20, 2), 5), "waiting until it is durable");
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let left = |mib: u64| Left { bytes: mib << 20, names: 0 };
        let mut rate = Rate::default();
        assert_eq!(rate.since(at(0), left(1000)), (left(1000), Duration::ZERO));
        assert_eq!(rate.since(at(10), left(500)), (left(1000), Duration::from_secs(10)));
        assert_eq!(rate.since(at(20), left(490)), (left(1000), Duration::from_secs(20)));
        // It is slow now: what was quick at first does not count any more.
        assert_eq!(rate.since(at(40), left(470)), (left(490), Duration::from_secs(20)));
        assert_eq!(
            left(470).words(left(490), Duration::from_secs(20)),
            "470 MiB to go, about 8 min left"
        );
    }
}
