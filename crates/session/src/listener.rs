//! The supervisor's end of the fence: stopped calls are received, and answered (seccomp_unotify(2)).

#![allow(unsafe_code, reason = "seccomp(2) has no safe form")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::call::Call;
use crate::filter::Filter;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (linux/seccomp.h): a thread that is woken by a message or an answer runs on the
/// CPU of the thread that sent it.
const SYNC_WAKE_UP: u64 = 1;

/// Receives the stopped calls of the thread that made it, and of all processes that come from it.
pub(crate) struct Listener(OwnedFd);

impl From<OwnedFd> for Listener {
    /// As another process has made it.
    fn from(listener: OwnedFd) -> Listener {
        Listener(listener)
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> OwnedFd {
        listener.0
    }
}

/// A stopped call.
#[derive(Debug)]
pub(crate) struct Stopped {
    id: u64,
    /// The thread that made it, as this process's PID namespace numbers it; 0 if it is in none that is visible from it.
    pub(crate) thread: u32,
    pub(crate) call: Call,
}

/// What the fence asks of the kernel.
const FLAGS: libc::c_ulong =
    libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;

/// Whether the kernel can stop calls for a session. Stops nothing: there is no filter to install, which the kernel notices after it
/// has looked at the flags.
///
/// # Errors
/// EINVAL, ENOSYS if the kernel is older than 5.19; EPERM where a container forbids it.
pub fn can_stop_calls() -> io::Result<()> {
    // SAFETY: the kernel refuses a null pointer.
    let made = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            FLAGS,
            std::ptr::null::<libc::sock_fprog>(),
        )
    };
    match io::Error::last_os_error() {
        error if made < 0 && error.raw_os_error() == Some(libc::EFAULT) => Ok(()),
        error => Err(error),
    }
}

impl Listener {
    /// Puts the fence around the calling thread and all processes that it will start. From here on the thread may make no call
    /// that the fence stops before another thread receives calls.
    ///
    /// Errors: EBUSY inside another session; EINVAL, ENOSYS if the kernel is older than 5.19.
    pub(crate) fn around_this_thread() -> io::Result<Listener> {
        let mut filter = Filter::new();
        let program = filter.program();
        let install = || {
            // SAFETY: the program points into the filter, which lives as long.
            let made = unsafe {
                libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    FLAGS,
                    &raw const program,
                )
            };
            if made < 0 { Err(io::Error::last_os_error()) } else { Ok(made as i32) }
        };
        let made = install().or_else(|error| {
            if error.raw_os_error() != Some(libc::EACCES) {
                return Err(error);
            }
            // Without CAP_SYS_ADMIN the kernel demands that no program gains privileges.
            rustix::thread::set_no_new_privs(true)?;
            install()
        })?;
        // SAFETY: the call made the descriptor for its caller.
        Ok(Listener(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Whether all processes behind the fence have ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut state = [PollFd::new(&self.0, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut state, Some(&none)).is_ok()
            && state[0].revents().contains(PollFlags::HUP)
    }

    /// To be called once before calls are received, outside the fence.
    pub(crate) fn begin(&self) {
        // Kernels before 6.6 do not have it, and are slower.
        // SAFETY: the request takes its argument by value.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
        };
    }

    /// Waits for the next stopped call. `None`: its process was killed before it could be read.
    pub(crate) fn receive(&self) -> io::Result<Option<Stopped>> {
        // SAFETY: plain numbers; the kernel demands zeros.
        let mut read: libc::seccomp_notif = unsafe { mem::zeroed() };
        // SAFETY: the structure is of the size that this request writes.
        let done = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut read)
        };
        if done < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        let call = Call::of(read.data.arch, read.data.nr.into(), &read.data.args);
        Ok(Some(Stopped { id: read.id, thread: read.pid, call }))
    }

    /// Whether the caller still waits. What was found out about a process by its number is only then of this process.
    pub(crate) fn still_waits(&self, stopped: &Stopped) -> bool {
        // SAFETY: the request reads a number.
        let valid = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const stopped.id,
            )
        };
        valid == 0
    }

    /// Lets the kernel carry out the call.
    pub(crate) fn pass(&self, stopped: &Stopped) {
        self.send(stopped, 0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    /// Answers the call with 0.
    pub(crate) fn succeed(&self, stopped: &Stopped) {
        self.answer(stopped, 0);
    }

    /// Answers the call with a result.
    pub(crate) fn answer(&self, stopped: &Stopped, result: i64) {
        self.send(stopped, result, 0, 0);
    }

    /// Answers the call with an error (errno(3)).
    pub(crate) fn fail(&self, stopped: &Stopped, errno: i32) {
        self.send(stopped, 0, -errno, 0);
    }

    /// Puts a descriptor into the process that made the call; returns its number there.
    pub(crate) fn add_descriptor(
        &self,
        stopped: &Stopped,
        descriptor: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<i32> {
        let request = libc::seccomp_notif_addfd {
            id: stopped.id,
            flags: 0,
            srcfd: descriptor.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the request reads the structure.
        let added = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request)
        };
        if added < 0 { Err(io::Error::last_os_error()) } else { Ok(added) }
    }

    fn send(&self, stopped: &Stopped, value: i64, error: i32, flags: u32) {
        let response = libc::seccomp_notif_resp { id: stopped.id, val: value, error, flags };
        // It fails if the caller was killed meanwhile: nobody waits for the answer.
        // SAFETY: the request reads the structure.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response)
        };
    }
}
