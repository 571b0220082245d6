//! The signals that end a daemon, received by a thread of their own.

#![allow(unsafe_code, reason = "signal masks and sigwait(3) have no safe form")]

use std::io;
use std::mem::MaybeUninit;
use std::thread;

/// Signals that ask the daemon to write everything home and end.
const ENDING: [(libc::c_int, &str); 3] =
    [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT"), (libc::SIGHUP, "SIGHUP")];

/// The ending signals, blocked in every thread started from now on.
pub struct Blocked {
    set: libc::sigset_t,
}

/// Blocks the ending signals. Call it before the first thread is started, since threads inherit the
/// mask. A signal that arrives early stays pending.
pub fn block() -> io::Result<Blocked> {
    // A limit on file sizes must fail the write that exceeds it, and not kill the daemon with dirty
    // data.
    // SAFETY: no handler is installed, so nothing runs in a signal's context.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given, the other calls get an initialised one
    // and valid signal numbers.
    let (set, error) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for (signal, _) in ENDING {
            libc::sigaddset(&mut set, signal);
        }
        (set, libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))
    };
    match error {
        0 => Ok(Blocked { set }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Blocked {
    /// Starts the thread that calls `taken` with the name of each signal, for ever.
    pub fn listen(self, taken: impl Fn(&'static str) + Send + 'static) -> io::Result<()> {
        thread::Builder::new().name("signals".into()).spawn(move || {
            loop {
                let mut signal = 0;
                // SAFETY: the set is initialised and the result has a place to go.
                if unsafe { libc::sigwait(&self.set, &mut signal) } == 0 {
                    let name = ENDING.iter().find(|(number, _)| *number == signal);
                    taken(name.map_or("signal", |(_, name)| name));
                }
            }
        })?;
        Ok(())
    }
}
