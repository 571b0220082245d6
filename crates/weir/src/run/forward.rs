//! Waits for a program transparently: signals sent to this process are forwarded to the program.
//!
//! The terminal sends SIGINT and SIGQUIT to all processes of the foreground, the program included; this process only
//! survives them. While there is no program, signals to end are noted ([`noted`]), and end a command of ours that runs
//! ([`output`]).

#![allow(unsafe_code, reason = "signal handlers have no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

/// Forwarded to the program.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT, libc::SIGWINCH];
/// Survived, since the program gets them from the terminal.
const SHARED: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// Process number of the program; 0 while there is none.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Process group of a command of ours that may be ended; 0 while there is none.
static COMMAND: AtomicI32 = AtomicI32::new(0);
/// The last signal to end; 0 if there was none.
static NOTED: AtomicI32 = AtomicI32::new(0);

extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if matches!(signal, libc::SIGTERM | libc::SIGHUP | libc::SIGINT | libc::SIGQUIT) {
        NOTED.store(signal, Ordering::SeqCst);
        end_command();
    }
    // SAFETY: the kernel passes a whole structure.
    let by_a_process = unsafe { (*info).si_code } <= 0;
    // The terminal's signals reach the program directly.
    if program > 0 && by_a_process {
        // SAFETY: `errno` is restored; the process has not been waited for as far as is known here.
        unsafe {
            let errno = *libc::__errno_location();
            libc::kill(program, signal);
            *libc::__errno_location() = errno;
        }
    }
}

/// Ends the command of ours that runs.
fn end_command() {
    let command = COMMAND.load(Ordering::SeqCst);
    if command > 0 {
        // SAFETY: `errno` is restored; the group's leader has not been waited for as far as is known here.
        unsafe {
            let errno = *libc::__errno_location();
            libc::kill(-command, libc::SIGTERM);
            *libc::__errno_location() = errno;
        }
    }
}

/// The signal by which somebody wanted to end this process, since [`hold`] or [`forget`].
pub fn noted() -> Option<i32> {
    Some(NOTED.load(Ordering::SeqCst)).filter(|signal| *signal > 0)
}

/// What was noted was for the program.
pub fn forget() {
    NOTED.store(0, Ordering::SeqCst);
}

/// Runs a command of ours, in a process group of its own, so that signals of the terminal do not reach it, and returns what it
/// printed. `ends`: a signal to end ends it.
pub fn output(command: &mut Command, ends: bool) -> io::Result<Output> {
    let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = streams.process_group(0).spawn()?;
    if ends {
        COMMAND.store(child.id() as i32, Ordering::SeqCst);
        // It may have arrived in between.
        if noted().is_some() {
            end_command();
        }
    }
    let output = child.wait_with_output();
    COMMAND.store(0, Ordering::SeqCst);
    output
}

/// Signals are held back until there is a program to forward them to.
pub struct Held {
    before: libc::sigset_t,
}

/// Holds back the signals that will be forwarded, and survives them from now on.
pub fn hold() -> io::Result<Held> {
    let before = blocked(&[FORWARDED.as_slice(), &SHARED].concat())?;
    for signal in FORWARDED.into_iter().chain(SHARED) {
        handle(signal)?;
    }
    Ok(Held { before })
}

/// Survives the signals by which a terminal stops its foreground: the supervisor must answer members that go on.
pub fn survive_stops() -> io::Result<()> {
    [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].into_iter().try_for_each(handle)
}

impl Held {
    /// Gives the command the mask that this process had.
    pub fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: it calls only sigprocmask(2); execve(2) resets handlers.
        unsafe {
            command.pre_exec(move || {
                let told =
                    libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                if told == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            });
        }
    }

    /// Forwards signals to a process from now on.
    pub fn forward_to(&self, program: u32) {
        PROGRAM.store(program as i32, Ordering::Relaxed);
        self.release();
    }

    /// Lets signals arrive.
    pub fn release(&self) {
        // SAFETY: the mask was returned by the call that blocked the signals.
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }

    /// Forwards no signal any more: the process has ended.
    pub fn forward_to_nobody(&self) {
        PROGRAM.store(0, Ordering::Relaxed);
    }
}

/// Runs the command to its end.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let held = hold()?;
    held.restore_in(command);
    let mut child = command.spawn()?;
    held.forward_to(child.id());
    let status = child.wait();
    held.forward_to_nobody();
    status
}

/// Blocks signals until there is a program to forward them to; returns the previous mask.
fn blocked(signals: &[libc::c_int]) -> io::Result<libc::sigset_t> {
    // SAFETY: sets are initialised before they are used, and the pointers are to live objects.
    unsafe {
        let mut set = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        match libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
            0 => Ok(before),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn handle(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a structure of plain numbers; the handler is async-signal-safe.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        // Ignored signals (nohup(1)) stay ignored, here and in the program.
        if action.sa_sigaction == libc::SIG_IGN {
            return Ok(());
        }
        action.sa_sigaction = forward as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        match libc::sigaction(signal, &raw const action, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
