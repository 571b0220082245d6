//! `libweir_preload.so`: interposes the C library's calls in programs run by `weir run`, and does reads and writes of
//! files in the lane without the kernel ([`weir_lane`]).
//!
//! Every descriptor stays a descriptor of the kernel's, of a file on the mount, and the file position stays in the
//! kernel. A call that is not known here, or not known to be right by the lane, is left to the C library's definition.
//! So programs that share a description and are not run under this library see no difference.
//!
//! The route of a call: `calls` has the C library's name, `table` finds the description, `data` does the call by the
//! lane. If `data` cannot, it returns the fallback's reason, and the next definition of the name (`next`) is called.
//!
//! Invariants:
//! - reading and writing by the lane allocates nothing, takes no lock and may be interrupted by a signal handler
//!   that reads or writes;
//! - `errno` changes only as the kernel's calls would change it: system calls made here (`sys`) do not touch it;
//! - the next definition is called from a frame without destructors: threads may be cancelled in it
//!   (pthread_cancel(3)), and functions called in between are `extern "C"`, out of which no panic unwinds;
//! - a call waits only for what the kernel's call would wait for: locks are tried, a few times at most.

#![allow(unsafe_code)]
// It interposes C functions.

// The names are defined in the library only: tests would call them.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("system calls and the calls with variable arguments are written for x86-64");

mod attach;
#[cfg(not(test))]
mod calls;
mod connection;
mod credentials;
mod data;
mod description;
mod device;
mod held;
mod history;
mod home;
mod leave;
mod limit;
mod lock;
mod next;
mod outcome;
mod own_close;
mod pieces;
mod position;
mod report;
mod session;
mod stream;
mod sys;
mod table;
mod thread;
