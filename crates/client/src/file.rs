//! One file of a mount: how far it is on its way home, and making it durable. Asked by the file, not of the control socket: so anybody may
//! ask who may use the file.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use weir_control::file_state;
use weir_control::mounts::{Device, MountTable};

use crate::Error;

/// How far a file is on its way home.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Some of it is in memory only: a crash may lose it. Also of what home has not got the name or the attributes of.
    Dirty,
    /// A crash loses nothing of it, but home does not have all of it.
    Logged,
    /// Home has all of it.
    Home,
    /// A word of a daemon of another version.
    Other(String),
}

/// How far a file is on its way home, by any program's changes: what `weir status FILE` answers. Of a directory it tells of its own name and
/// attributes, and of the names in it. Links are followed.
///
/// ```no_run
/// if weir::state("/mnt/data/backup.tar")? == weir::State::Home {
///     println!("SOURCE has all of it");
/// }
/// # Ok::<(), weir::Error>(())
/// ```
///
/// # Errors
/// [`Error::Path`], [`Error::NotMounted`], [`Error::Ended`]; [`Error::NotUnderstood`] of a daemon that does not tell.
pub fn state(path: impl AsRef<Path>) -> Result<State, Error> {
    let path = path.as_ref();
    let found = statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        .map_err(|errno| Error::of_file(path, errno))?;
    let device = Device { major: found.stx_dev_major, minor: found.stx_dev_minor };
    check(device, FileType::from_raw_mode(found.stx_mode.into()), path)?;
    match file_state::read(path).map_err(|errno| Error::of_file(path, errno))? {
        Some(word) => Ok(match word.as_str() {
            "dirty" => State::Dirty,
            "logged" => State::Logged,
            "home" => State::Home,
            _ => State::Other(word),
        }),
        None => Err(Error::NotUnderstood {
            mount_point: path.to_owned(),
            reason: "it does not tell of single files".to_owned(),
        }),
    }
}

/// Makes everything durable that was written to a file before the call, by any program, and its attributes; of a directory, its attributes
/// and the names in it. That is fsync(2): a mount with a redo log answers it by the log, and the file goes home later.
/// [`Mount::sync`](crate::Mount::sync) brings everything home.
///
/// ```no_run
/// std::fs::write("/mnt/data/result", "42\n").unwrap();
/// weir::sync("/mnt/data/result")?;
/// # Ok::<(), weir::Error>(())
/// ```
///
/// # Errors
/// [`Error::Path`], also if the file may be neither read nor written; [`Error::NotMounted`], [`Error::Ended`]; [`Error::Failed`] as fsync(2).
pub fn sync(path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let file = open(path)?;
    of_weir(&file, path)?;
    rustix::fs::fsync(&file).map_err(|errno| Error::of_file(path, errno))
}

/// For reading, or for writing if only that is allowed. Waits for nobody at the other end of a FIFO.
fn open(path: &Path) -> Result<File, Error> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let failed = |error: std::io::Error| match Errno::from_io_error(&error) {
        Some(errno) => Error::of_file(path, errno),
        None => Error::path(path, error),
    };
    match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            File::options().append(true).custom_flags(flags).open(path).map_err(|_| failed(error))
        }
        opened => opened.map_err(failed),
    }
}

/// The device and the kind of an open file or directory of a Weir mount.
pub(crate) fn of_weir(file: impl AsFd, path: &Path) -> Result<(Device, FileType), Error> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found =
        statx(file, c"", flags, StatxFlags::TYPE).map_err(|errno| Error::of_file(path, errno))?;
    let device = Device { major: found.stx_dev_major, minor: found.stx_dev_minor };
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    check(device, kind, path)?;
    Ok((device, kind))
}

/// Whether it is a file or a directory of a Weir mount.
fn check(device: Device, kind: FileType, path: &Path) -> Result<(), Error> {
    if !kind.is_file() && !kind.is_dir() {
        let what = "it is neither a file nor a directory";
        return Err(Error::path(path, std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
    }
    let table = MountTable::read()
        .map_err(|error| Error::System { tried: "read the mount table", error })?;
    match table.of_device(device) {
        Some(mount) if mount.is_weir() => Ok(()),
        _ => Err(Error::NotMounted { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_file_systems_and_special_files_are_refused() {
        let program = std::env::current_exe().unwrap();
        assert!(matches!(state(&program), Err(Error::NotMounted { .. })));
        assert!(matches!(sync(&program), Err(Error::NotMounted { .. })));
        for path in ["/dev/null", "/nonexistent/x", "", "/a\0b"] {
            assert!(matches!(state(path), Err(Error::Path { .. })), "{path:?}");
            assert!(matches!(sync(path), Err(Error::Path { .. })), "{path:?}");
        }
    }
}
