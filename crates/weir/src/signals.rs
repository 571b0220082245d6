//! The signals that end a daemon or a view, and those that stop a view, received by a thread of their own.

#![allow(unsafe_code, reason = "signal masks and sigwait(3) have no safe form")]

use std::io;
use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

/// Signals that ask the daemon to write everything home and end.
const ENDING: [(libc::c_int, &str); 3] =
    [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT"), (libc::SIGHUP, "SIGHUP")];

/// Signals that stop a program which has the terminal, and continue it.
const STOPPING: [(libc::c_int, &str); 2] = [(libc::SIGTSTP, "SIGTSTP"), (libc::SIGCONT, "SIGCONT")];

/// Some signals, blocked in every thread started from now on.
pub struct Blocked {
    set: libc::sigset_t,
    names: Vec<(libc::c_int, &'static str)>,
}

/// Blocks the ending signals. Call it before the first thread is started, since threads inherit the
/// mask. A signal that arrives early stays pending.
pub fn block() -> io::Result<Blocked> {
    block_these(ENDING.to_vec())
}

/// As [`block`], with the signals by which a terminal's programs are stopped and continued.
pub fn block_with_stops() -> io::Result<Blocked> {
    block_these([&ENDING[..], &STOPPING].concat())
}

fn block_these(names: Vec<(libc::c_int, &'static str)>) -> io::Result<Blocked> {
    // A limit on file sizes must fail the write that exceeds it, and not kill the daemon with dirty
    // data.
    // SAFETY: no handler is installed, so nothing runs in a signal's context.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let set = set_of(names.iter().map(|(signal, _)| *signal));
    change_mask(libc::SIG_BLOCK, &set)?;
    Ok(Blocked { set, names })
}

fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given, sigaddset gets an initialised one and valid signal numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Changes the mask of this thread.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised, and the former mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Stops this process as SIGTSTP does by default: not if nobody could continue it. Returns when it has been continued. SIGTSTP is
/// blocked before and after.
pub fn stop() -> io::Result<()> {
    let set = set_of([libc::SIGTSTP].into_iter());
    // SAFETY: the thread is this one.
    let error = unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTSTP) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // Here it is stopped.
    change_mask(libc::SIG_UNBLOCK, &set)?;
    change_mask(libc::SIG_BLOCK, &set)
}

impl Blocked {
    /// Starts the thread that calls `taken` with the name of each signal, for ever.
    pub fn listen(self, taken: impl Fn(&'static str) + Send + 'static) -> io::Result<()> {
        // As good as never.
        self.listen_and_look(Duration::from_secs(3600), taken, || {})
    }

    /// As [`Blocked::listen`]; when no signal has come for `pause`, the thread calls `look`.
    pub fn listen_and_look(
        self,
        pause: Duration,
        taken: impl Fn(&'static str) + Send + 'static,
        look: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let pause = libc::timespec {
            tv_sec: pause.as_secs() as libc::time_t,
            tv_nsec: pause.subsec_nanos().into(),
        };
        thread::Builder::new().name("signals".into()).spawn(move || {
            loop {
                // SAFETY: the set and the time are initialised, and what else is known of the signal is not asked for.
                let signal = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &pause) };
                match self.names.iter().find(|(number, _)| *number == signal) {
                    Some((_, name)) => taken(name),
                    // Interrupted, as when the process is continued, or nothing came.
                    None => look(),
                }
            }
        })?;
        Ok(())
    }
}
