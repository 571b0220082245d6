//! Why a call failed, by what the caller has to do.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use weir_control::client::ControlError;

/// Why a call failed. Its text is one line: what was tried, on what, why it failed, and what to do.
///
/// ```no_run
/// match weir::Mount::of("/mnt/data") {
///     Ok(mount) => mount.sync()?,
///     // The directory is used without Weir: there is nothing to bring home.
///     Err(weir::Error::NotMounted { .. }) => {}
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), weir::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Name another path, or get the permission to use it.
    #[error("{}: {error}", path.display())]
    Path {
        /// As given.
        path: PathBuf,
        /// Why it cannot be used.
        error: io::Error,
    },
    /// Go on without Weir, or mount it.
    #[error("{} is not in a weir mount", path.display())]
    NotMounted {
        /// As given, or where the file is.
        path: PathBuf,
    },
    /// Ask as that user or as root.
    #[error("the mount {} belongs to user {owner}: ask as that user or as root", mount_point.display())]
    Denied {
        /// The mount.
        mount_point: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Use fsync(2), or have the mount made with `--order all`.
    #[error("{} is on a mount without promises: mount it with --order all, or use fsync", path.display())]
    Unordered {
        /// Where the file is.
        path: PathBuf,
    },
    /// The mount has ended, or its daemon has died: what was not durable is lost. Mount it again, which recovers what was.
    #[error("{} has ended, or its daemon has died: mount it again", mount_point.display())]
    Ended {
        /// The mount.
        mount_point: PathBuf,
    },
    /// The daemon cannot be reached now, or does not answer: try again later.
    #[error("the daemon of {} cannot be asked: {reason}", mount_point.display())]
    Unreachable {
        /// The mount.
        mount_point: PathBuf,
        /// Why.
        reason: String,
    },
    /// The daemon, or what listens in its place, gives answers of another kind: have this program and Weir be of one version.
    #[error("the daemon of {} is not understood: {reason}: is it another version?", mount_point.display())]
    NotUnderstood {
        /// The mount.
        mount_point: PathBuf,
        /// In which way.
        reason: String,
    },
    /// It was not done. What was to be durable or home may be so or not. As after a failed fsync(2): repair what the text names, and do
    /// it again.
    #[error("{}: {reason}", path.display())]
    Failed {
        /// The file, or the mount.
        path: PathBuf,
        /// The daemon's or the system's reason.
        reason: String,
    },
    /// The system refuses what every program may do as a rule, such as reading /proc.
    #[error("cannot {tried}: {error}")]
    System {
        /// What was tried.
        tried: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl Error {
    pub(crate) fn path(path: &Path, error: impl Into<io::Error>) -> Error {
        Error::Path { path: path.to_owned(), error: error.into() }
    }

    /// Of a call on a file of a mount.
    pub(crate) fn of_file(path: &Path, errno: Errno) -> Error {
        match errno {
            Errno::NOTCONN | Errno::CONNABORTED => Error::Ended { mount_point: path.to_owned() },
            Errno::NOTTY => Error::NotMounted { path: path.to_owned() },
            Errno::OPNOTSUPP => Error::Unordered { path: path.to_owned() },
            Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::ROFS => {
                Error::Failed { path: path.to_owned(), reason: io::Error::from(errno).to_string() }
            }
            errno => Error::path(path, errno),
        }
    }
}

impl From<ControlError> for Error {
    fn from(from: ControlError) -> Error {
        let reason = from.to_string();
        match from {
            ControlError::Table(error) => Error::System { tried: "read the mount table", error },
            ControlError::Path { path, error } => Error::Path { path, error },
            ControlError::NotMounted(path) => Error::NotMounted { path },
            ControlError::Dead(mount_point) => Error::Ended { mount_point },
            ControlError::Unreachable(mount_point) => {
                Error::Unreachable { mount_point, reason: "its control socket is gone".to_owned() }
            }
            ControlError::Denied { path, owner } => Error::Denied { mount_point: path, owner },
            ControlError::Impostor { path, .. } | ControlError::Exposed { path, .. } => {
                Error::NotUnderstood { mount_point: path, reason }
            }
            ControlError::Conversation { path, error } => match error.kind() {
                _ if is_of_json(&error) => {
                    Error::NotUnderstood { mount_point: path, reason: error.to_string() }
                }
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Unreachable {
                    mount_point: path,
                    reason: "it does not answer in time".to_owned(),
                },
                _ => Error::Unreachable { mount_point: path, reason: error.to_string() },
            },
        }
    }
}

/// Whether a whole line came that is no message; one that is not whole is of a conversation that broke off.
fn is_of_json(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| inner.is::<serde_json::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_hangs_and_one_that_is_not_understood_are_told_apart() {
        let broken = |kind: io::ErrorKind| {
            Error::from(ControlError::Conversation { path: "/m".into(), error: kind.into() })
        };
        assert!(matches!(broken(io::ErrorKind::WouldBlock), Error::Unreachable { .. }));
        assert!(matches!(broken(io::ErrorKind::UnexpectedEof), Error::Unreachable { .. }));
        for line in ["[", "", "{}", "nonsense"] {
            let no_reply = serde_json::from_str::<weir_control::protocol::Reply>(line).unwrap_err();
            let error = ControlError::Conversation { path: "/m".into(), error: no_reply.into() };
            assert!(matches!(Error::from(error), Error::NotUnderstood { .. }), "{line}");
        }
    }

    #[test]
    fn errors_of_files_say_what_to_do() {
        let of = |errno| Error::of_file(Path::new("/m/f"), errno);
        assert!(matches!(of(Errno::NOTCONN), Error::Ended { .. }));
        assert!(matches!(of(Errno::OPNOTSUPP), Error::Unordered { .. }));
        assert!(matches!(of(Errno::NOSPC), Error::Failed { .. }));
        assert!(matches!(of(Errno::ACCESS), Error::Path { .. }));
        assert!(!of(Errno::IO).to_string().contains('\n'));
    }
}
