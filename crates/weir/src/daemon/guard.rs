//! A process that ends the mount's connection when the daemon dies.
//!
//! The kernel ends a connection when the last descriptor of `/dev/fuse` is closed. Threads share
//! their descriptors, and a thread that waits in the kernel without being killable (for a read of
//! an unreachable SOURCE, or for a page that such a read has locked) keeps them open after kill(2).
//! Every program that uses the mount would then wait with it. The guard is a child of the daemon's
//! first thread and is told of that thread's end (PR_SET_PDEATHSIG, prctl(2)). It aborts the
//! connection through fusectl, and the programs get ENOTCONN or ECONNABORTED.
//!
//! Owns the child process. The mount's number may be given to another mount once this one has
//! ended, also at the same place. So the guard opens the connection's file in fusectl while the daemon lives.

#![allow(unsafe_code, reason = "fork(2) and signal masks have no safe form")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, WaitOptions};

use crate::connection::Connection;
use crate::daemonize::threads;
use crate::mounts::{Device, Mount, MountTable};

/// The signal that the guard gets when the daemon's first thread ends.
const DEATH: libc::c_int = libc::SIGUSR1;

/// The one descriptor that the guard keeps, after the three standard ones.
const PIPE: libc::c_int = 3;

/// A guard that runs. Dropping it ends it.
pub struct Guard {
    child: Pid,
    /// Closed once the mount's place was sent.
    pipe: Option<PipeWriter>,
}

/// Starts the guard. Call it while the process has one thread, on the thread that outlives all others.
pub fn start() -> io::Result<Guard> {
    assert_eq!(threads(), 1, "the guard is started after a thread");
    let (reader, writer) = io::pipe()?;
    let daemon = rustix::process::getpid();
    // SAFETY: this is the only thread, so no other thread holds a lock, and the child may continue as the
    // parent would.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(writer);
            // An error cannot be reported: without a guard, the kernel ends the mount when it can.
            let _ = watch(daemon, reader);
            // SAFETY: ends this process, without the daemon's exit handlers.
            unsafe { libc::_exit(0) }
        }
        child => {
            let child = Pid::from_raw(child).expect("fork gives the parent a positive number");
            Ok(Guard { child, pipe: Some(writer) })
        }
    }
}

impl Guard {
    /// Tells the guard which mount it is for: `device` at `mountpoint`.
    pub fn watch_over(&mut self, device: Device, mountpoint: &Path) -> io::Result<()> {
        let Some(mut pipe) = self.pipe.take() else { return Ok(()) };
        let mut place = Vec::new();
        place.extend_from_slice(&device.major.to_ne_bytes());
        place.extend_from_slice(&device.minor.to_ne_bytes());
        place.extend_from_slice(mountpoint.as_os_str().as_bytes());
        pipe.write_all(&place)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Another process may have killed it. Waiting for it frees its process number.
        let _ = rustix::process::kill_process(self.child, Signal::KILL);
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitpid(Some(self.child), WaitOptions::empty())
        {}
    }
}

/// The body of the guard. Returns when the mount has ended or was never made.
fn watch(daemon: Pid, place: PipeReader) -> io::Result<()> {
    let death = block_signals()?;
    let place = close_all_but(place)?;
    // SAFETY: takes a signal's number and a name that ends with a zero.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, DEATH);
        libc::prctl(libc::PR_SET_NAME, c"weir-guard".as_ptr());
    }
    // The signal is not sent for a daemon that ended before it was asked for.
    if rustix::process::getppid() != Some(daemon) {
        return Ok(());
    }
    let Some((device, mountpoint)) = read_place(place)? else { return Ok(()) };
    let connection = Connection::of(device)?;
    // Otherwise the daemon may have died before, and another mount have the number by now.
    let ours = |mount: &Mount| {
        mount.is_weir() && mount.device == device && mount.mount_point == mountpoint
    };
    if rustix::process::getppid() != Some(daemon) || !MountTable::read()?.iter().any(ours) {
        return Ok(());
    }
    let mut signal = 0;
    // SAFETY: the set is initialised and the result has a place to go.
    while unsafe { libc::sigwait(&raw const death, &raw mut signal) } != 0 || signal != DEATH {}
    connection.abort()
}

/// Blocks every signal that can be blocked: a signal that ends the daemon does not end its guard. Returns the
/// set to wait for.
fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut death = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset and sigemptyset initialise the sets they are given, the other calls get
    // initialised ones and a valid number.
    let (death, error) = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigemptyset(death.as_mut_ptr());
        libc::sigaddset(death.as_mut_ptr(), DEATH);
        let error = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
        (death.assume_init(), error)
    };
    if error == 0 { Ok(death) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Closes all inherited descriptors except the pipe, SOURCE's lock and directory included. Leaves the daemon's
/// session and working directory.
fn close_all_but(pipe: PipeReader) -> io::Result<PipeReader> {
    // Fails only for a group's leader, which a child that was just forked is not.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // SAFETY: nothing in this process uses a descriptor that is replaced or closed here: `null` and `pipe` are
    // forgotten, and the daemon's other descriptors are never used again.
    unsafe {
        if pipe.as_raw_fd() != PIPE && libc::dup2(pipe.as_raw_fd(), PIPE) == -1 {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(null);
        std::mem::forget(pipe);
        if libc::syscall(libc::SYS_close_range, PIPE + 1, u32::MAX, 0) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(PipeReader::from(OwnedFd::from_raw_fd(PIPE)))
    }
}

/// The mount that the daemon reports; `None` if the daemon ended before it mounted.
fn read_place(mut pipe: PipeReader) -> io::Result<Option<(Device, PathBuf)>> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes)?;
    let Some((numbers, mountpoint)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h] = *numbers;
    let device =
        Device { major: u32::from_ne_bytes([a, b, c, d]), minor: u32::from_ne_bytes([e, f, g, h]) };
    Ok(Some((device, PathBuf::from(OsString::from_vec(mountpoint.to_vec())))))
}
