//! What must be undone whatever ends the program: mounts, daemons, working directories.
//!
//! Owns the list of things to undo. Each is undone once: by its [`Undo`] guard going out of scope,
//! or, on SIGINT, SIGTERM or SIGHUP, by a thread that undoes all of them, newest first, and exits.
//!
//! Invariant: the signal handler does nothing but write one byte to a pipe.
//!
//! Lock order: the list's lock is never held while something is undone.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

type Action = Box<dyn FnOnce() + Send>;

static UNDO: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WAKE: AtomicI32 = AtomicI32::new(-1);

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
        if let Some(action) = take(self.0) {
            action();
        }
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

extern "C" fn on_signal(signal: libc::c_int) {
    let byte = [signal as u8];
    let fd = WAKE.load(Ordering::Relaxed);
    // SAFETY: write(2) is async-signal-safe, the buffer is one live byte, and a bad descriptor
    // only makes it fail.
    unsafe { libc::write(fd, byte.as_ptr().cast(), 1) };
}

/// Makes SIGINT, SIGTERM and SIGHUP undo everything and exit with 128 plus the signal's number.
/// Call once, early.
pub fn watch_signals() -> io::Result<()> {
    let (mut reader, writer) = io::pipe()?;
    WAKE.store(writer.as_raw_fd(), Ordering::Relaxed);
    let _open_for_good = writer.into_raw_fd();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a zeroed sigaction is a valid one; the handler only does what a handler may.
        let set = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut byte = [0];
        if reader.read_exact(&mut byte).is_ok() {
            INTERRUPTED.store(true, Ordering::Release);
            eprintln!("\ninterrupted: unmounting and removing the working files");
            loop {
                let Some((_, action)) = list().pop() else { break };
                action();
            }
            std::process::exit(128 + i32::from(byte[0]));
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
}
