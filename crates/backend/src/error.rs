//! Maps errors of the operating system to the engine's error kinds: the only place that does.

use std::io;

use rustix::io::Errno;
use weir_engine::ErrorKind;

/// The engine's kind for an error of a home location; [`ErrorKind::Io`] if no other kind fits.
pub fn error_kind(error: &io::Error) -> ErrorKind {
    let Some(errno) = Errno::from_io_error(error) else {
        return ErrorKind::Io;
    };
    match errno {
        Errno::NOSPC => ErrorKind::NoSpace,
        Errno::DQUOT => ErrorKind::QuotaExceeded,
        Errno::ROFS => ErrorKind::ReadOnly,
        Errno::FBIG => ErrorKind::FileTooLarge,
        Errno::ACCESS | Errno::PERM => ErrorKind::PermissionDenied,
        Errno::STALE | Errno::NOENT => ErrorKind::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

/// Whether a call that moves bytes should be repeated.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    is_cancelled(error) || matches!(errno, Some(Errno::INTR | Errno::AGAIN))
}

/// The ring's result if the thread that submitted a request has ended: the call was not made.
pub(crate) fn is_cancelled(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::CANCELED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_errno() {
        let kind = |errno: Errno| error_kind(&io::Error::from(errno));
        assert_eq!(kind(Errno::NOSPC), ErrorKind::NoSpace);
        assert_eq!(kind(Errno::DQUOT), ErrorKind::QuotaExceeded);
        assert_eq!(kind(Errno::ROFS), ErrorKind::ReadOnly);
        assert_eq!(kind(Errno::FBIG), ErrorKind::FileTooLarge);
        assert_eq!(kind(Errno::PERM), ErrorKind::PermissionDenied);
        assert_eq!(kind(Errno::STALE), ErrorKind::Stale);
        assert_eq!(kind(Errno::OPNOTSUPP), ErrorKind::Unsupported);
        assert_eq!(kind(Errno::IO), ErrorKind::Io);
        assert_eq!(error_kind(&io::Error::other("no errno")), ErrorKind::Io);
    }
}
