//! Error numbers: the only place where Weir decides what a program sees in `errno`.
//!
//! Inside the crate an operation fails with an [`Errno`]; whatever failed below it (a home system
//! call, the engine, the back end) is turned into one here.

use std::fmt;
use std::io;

use weir_engine::{Error, ErrorKind};

/// A positive `errno` value, as errno(3) lists them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) const EPERM: Errno = Errno(libc::EPERM);
    pub(crate) const ENOENT: Errno = Errno(libc::ENOENT);
    pub(crate) const EIO: Errno = Errno(libc::EIO);
    pub(crate) const EAGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const EEXIST: Errno = Errno(libc::EEXIST);
    pub(crate) const EISDIR: Errno = Errno(libc::EISDIR);
    pub(crate) const ENODATA: Errno = Errno(libc::ENODATA);
    pub(crate) const ENOTEMPTY: Errno = Errno(libc::ENOTEMPTY);
    pub(crate) const EMLINK: Errno = Errno(libc::EMLINK);
    pub(crate) const ENAMETOOLONG: Errno = Errno(libc::ENAMETOOLONG);
    pub(crate) const EPROTO: Errno = Errno(libc::EPROTO);
    pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const EMFILE: Errno = Errno(libc::EMFILE);
    pub(crate) const ENFILE: Errno = Errno(libc::ENFILE);
    pub(crate) const ELOOP: Errno = Errno(libc::ELOOP);
    pub(crate) const ENOTDIR: Errno = Errno(libc::ENOTDIR);
    pub(crate) const ENOTTY: Errno = Errno(libc::ENOTTY);
    pub(crate) const ENOSYS: Errno = Errno(libc::ENOSYS);
    pub(crate) const ENXIO: Errno = Errno(libc::ENXIO);
    pub(crate) const ERANGE: Errno = Errno(libc::ERANGE);
    pub(crate) const EROFS: Errno = Errno(libc::EROFS);
    pub(crate) const ESTALE: Errno = Errno(libc::ESTALE);
    pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

    /// The positive value.
    pub(crate) fn code(self) -> i32 {
        self.0
    }

    /// The errno for the program when a system call at home failed with `code`.
    ///
    /// Three values would mislead and are replaced. After ENOSYS the kernel's FUSE client would never send the operation
    /// again. EBADF would concern the daemon's descriptor, not the program's. EMFILE would mean that the program's table
    /// of descriptors is full, but it is the daemon's.
    fn of_home(code: i32) -> Errno {
        match code {
            libc::ENOSYS => Errno::EOPNOTSUPP,
            libc::EMFILE => Errno::ENFILE,
            libc::EBADF => Errno::EIO,
            code if code > 0 => Errno(code),
            _ => Errno::EIO,
        }
    }

    /// The errno for the kernel when copy_file_range(2) at home failed with `error`. The kernel copies by itself only
    /// after EOPNOTSUPP.
    pub(crate) fn of_copy(error: io::Error) -> Errno {
        match error.raw_os_error() {
            Some(libc::EXDEV | libc::EINVAL | libc::ENOSYS) => Errno::EOPNOTSUPP,
            _ => error.into(),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno::of_home(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno::of_home(errno.raw_os_error())
    }
}

impl From<ErrorKind> for Errno {
    fn from(kind: ErrorKind) -> Errno {
        Errno(match kind {
            ErrorKind::Io => libc::EIO,
            ErrorKind::NoSpace => libc::ENOSPC,
            ErrorKind::QuotaExceeded => libc::EDQUOT,
            ErrorKind::ReadOnly => libc::EROFS,
            ErrorKind::FileTooLarge => libc::EFBIG,
            ErrorKind::PermissionDenied => libc::EACCES,
            ErrorKind::Stale => libc::ESTALE,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
        })
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::Home(kind) => kind.into(),
            // An open file is attached until its last description is closed: only a program that
            // outlives the daemon's shutdown can see this.
            Error::NotAttached => Errno::EIO,
            Error::OutOfRange => Errno(libc::EFBIG),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misleading_values_of_home_are_replaced() {
        assert_eq!(Errno::from(rustix::io::Errno::NOSYS), Errno::EOPNOTSUPP);
        assert_eq!(Errno::from(rustix::io::Errno::MFILE), Errno::ENFILE);
        assert_eq!(Errno::from(rustix::io::Errno::BADF), Errno::EIO);
        assert_eq!(Errno::from(rustix::io::Errno::NOENT), Errno::ENOENT);
        assert_eq!(Errno::from(io::Error::other("no errno")), Errno::EIO);
    }

    #[test]
    fn engine_errors_keep_their_kind() {
        assert_eq!(Errno::from(Error::Home(ErrorKind::NoSpace)).code(), libc::ENOSPC);
        assert_eq!(Errno::from(Error::OutOfRange).code(), libc::EFBIG);
        assert_eq!(Errno::from(Error::NotAttached), Errno::EIO);
    }
}
