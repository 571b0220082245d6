//! Signals that the caller ignores: a program that it executes ignores them, too (execve(2)).
//!
//! Two signals are changed on the way, and are restored here. Rust's runtime ignores SIGPIPE in this process, and resets it to its default in programs that
//! the process starts. This process resets SIGCHLD to its default: while SIGCHLD is ignored, wait(2) does not return the status of children.
//!
//! Owns: what the caller ignored of these two when this program was loaded.

#![allow(unsafe_code, reason = "actions of signals have no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

static PIPE: AtomicBool = AtomicBool::new(false);
static CHILD: AtomicBool = AtomicBool::new(false);

/// Before Rust's runtime changes the first of them.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    CHILD.store(is_ignored(libc::SIGCHLD), Ordering::Relaxed);
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a structure of plain numbers, which the call fills.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// From now on this process can wait for its children. To be called before it has any.
pub fn await_children() {
    if CHILD.load(Ordering::Relaxed) {
        // SAFETY: it sets the default.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// The program ignores what the caller of this one ignored.
pub fn restore_in(command: &mut Command) {
    let noted = [(&PIPE, libc::SIGPIPE), (&CHILD, libc::SIGCHLD)];
    for (is_ignored, signal) in noted {
        if !is_ignored.load(Ordering::Relaxed) {
            continue;
        }
        let ignore = move || {
            // SAFETY: as above.
            match unsafe { libc::signal(signal, libc::SIG_IGN) } {
                libc::SIG_ERR => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: it makes one system call.
        unsafe { command.pre_exec(ignore) };
    }
}
