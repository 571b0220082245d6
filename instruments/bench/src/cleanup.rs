//! What must be undone whatever ends the program: mounts, daemons, working directories.
//!
//! Owns the list of things to undo. Each is undone once: by its [`Undo`] guard going out of scope,
//! or, on SIGINT, SIGTERM or SIGHUP, by a thread that undoes all of them, newest first, and exits.
//!
//! Invariants: the signal handler, the crate signal-hook's, only wakes that thread. Once a signal came,
//! that thread alone undoes things: it waits for what another is just undoing, and another that
//! would begin waits for the end of the program. Otherwise a directory might be removed by one
//! while the other unmounts what is in it.
//!
//! Lock order: no lock is held while something is undone.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

type Action = Box<dyn FnOnce() + Send>;

static UNDO: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// How many threads are undoing something, and who waits for that to change.
static UNDOING: Mutex<u32> = Mutex::new(0);
static UNDONE: Condvar = Condvar::new();
/// How long the signals' thread waits for the others.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    /// Undoing one thing may have another undone: how deep this thread is in it.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

fn undoing() -> MutexGuard<'static, u32> {
    UNDOING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `act`, which undoes something, unless that is left to the signals' thread: then this
/// thread's work is over.
fn while_undoing(act: impl FnOnce()) {
    let outermost = DEPTH.get() == 0;
    if outermost {
        let mut count = undoing();
        if interrupted() {
            drop(count);
            loop {
                thread::park();
            }
        }
        *count += 1;
    }
    DEPTH.set(DEPTH.get() + 1);
    act();
    DEPTH.set(DEPTH.get() - 1);
    if outermost {
        *undoing() -= 1;
        UNDONE.notify_all();
    }
}

/// Undoes everything, newest first, once no other thread is undoing anything.
fn undo_all() {
    let count = undoing();
    INTERRUPTED.store(true, Ordering::Release);
    // A thread that takes longer hangs; undo the rest without it.
    drop(UNDONE.wait_timeout_while(count, PATIENCE, |count| *count > 0));
    DEPTH.set(1);
    loop {
        let Some((_, action)) = list().pop() else { break };
        action();
    }
}

fn list() -> MutexGuard<'static, Vec<(u64, Action)>> {
    UNDO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Undoes one thing when it goes out of scope, unless a signal had it undone before.
#[must_use]
pub struct Undo(u64);

/// Registers `action` to be run once.
pub fn undo(action: impl FnOnce() + Send + 'static) -> Undo {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    list().push((id, Box::new(action)));
    Undo(id)
}

impl Undo {
    /// Forgets the action without running it: it was done by other means.
    pub fn disarm(self) {
        drop(take(self.0));
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        while_undoing(|| {
            if let Some(action) = take(self.0) {
                action();
            }
        });
    }
}

fn take(id: u64) -> Option<Action> {
    let mut list = list();
    let at = list.iter().position(|(other, _)| *other == id)?;
    Some(list.remove(at).1)
}

/// Whether a signal asked the program to end. What fails from now on fails because mounts are
/// being taken away, and is not worth a message.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// Makes SIGINT, SIGTERM and SIGHUP undo everything and exit with 128 plus the signal's number.
/// Call once, early.
pub fn watch_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("\ninterrupted: unmounting and removing the working files");
            undo_all();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn runs_once_at_the_end_of_scope_and_not_when_disarmed() {
        let count = Arc::new(AtomicU64::new(0));
        let counted = |count: &Arc<AtomicU64>| {
            let count = count.clone();
            undo(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
        drop(counted(&count));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        counted(&count).disarm();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn undoing_one_thing_may_undo_another() {
        let count = Arc::new(AtomicU64::new(0));
        let inner = {
            let count = count.clone();
            undo(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
        drop(undo(move || drop(inner)));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(DEPTH.get(), 0);
    }
}
