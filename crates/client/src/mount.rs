//! A mount, and what its daemon is asked over the control socket.

use std::path::Path;

use weir_control::client::{self, Daemon};
use weir_control::mounts;
use weir_control::protocol::{Reply, Request};

use crate::{Error, Status};

/// A Weir mount. It holds nothing open: the mount may end, and the next call says so.
///
/// ```no_run
/// let mount = weir::Mount::of("/mnt/data/some/file")?;
/// println!("{} is served from {}", mount.mount_point().display(), mount.source().display());
/// println!("{} MiB are not home", mount.status()?.dirty_bytes >> 20);
/// mount.sync()?;
/// # Ok::<(), weir::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mount(mounts::Mount);

impl Mount {
    /// The mount that a path is in, or whose SOURCE it is. A path whose name alone is enough need not exist, and is not accessed.
    ///
    /// # Errors
    /// [`Error::NotMounted`], [`Error::Path`], [`Error::System`].
    pub fn of(path: impl AsRef<Path>) -> Result<Mount, Error> {
        Ok(Mount(client::find(path.as_ref())?))
    }

    /// MOUNTPOINT.
    pub fn mount_point(&self) -> &Path {
        &self.0.mount_point
    }

    /// SOURCE, as the mount table has it.
    pub fn source(&self) -> &Path {
        &self.0.source
    }

    /// What `weir status` shows.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Ended`], [`Error::Unreachable`], [`Error::NotUnderstood`]; [`Error::Failed`] if the daemon refuses.
    pub fn status(&self) -> Result<Status, Error> {
        let message = Daemon::connect(&self.0)?.ask_for_message()?;
        Status::of_message(message, self.mount_point())
    }

    /// Brings everything home that was written to the mount before the call, and has home make it durable. Waits as long as that takes.
    /// [`sync`](crate::sync) is for one file, and is enough for what a crash must not lose.
    ///
    /// # Errors
    /// As above. After [`Error::Failed`] nothing is lost, but not everything is home.
    pub fn sync(&self) -> Result<(), Error> {
        match Daemon::connect(&self.0)?.ask(&Request::Sync)? {
            Reply::Done => Ok(()),
            Reply::Failed { message } => {
                Err(Error::Failed { path: self.mount_point().to_owned(), reason: message })
            }
            Reply::Status { .. } | Reply::Session => Err(Error::NotUnderstood {
                mount_point: self.mount_point().to_owned(),
                reason: "it answered another question".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_in_no_mount_are_told_from_those_that_do_not_exist() {
        assert!(matches!(Mount::of("/proc"), Err(Error::NotMounted { .. })));
        assert!(matches!(Mount::of("/nonexistent/x"), Err(Error::Path { .. })));
        assert!(matches!(Mount::of(""), Err(Error::Path { .. })));
        assert!(matches!(Mount::of("/a\0b"), Err(Error::Path { .. })));
    }
}
