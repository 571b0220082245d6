//! The place of a log that cannot well be in SOURCE: where SOURCE is on another machine, an fsync would wait for the
//! network. So, with names in the log, the log of such a SOURCE is a file in a directory of this machine, which goes when it has
//! nothing to replay any more. SOURCE's `.weir/log-at` says where it is, so that a mount of SOURCE elsewhere is refused instead of missing
//! what was synced here.
//!
//! What is synced is then durable on this machine, and on the other one when it is home (`weir sync`).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::config_file::absolute_variable;
use crate::mounts::{Device, MountTable};
use crate::own_directory::Note;
use crate::source::Source;

/// File systems that are on other machines, and on which an inode is not known again after a mount (they have no lasting
/// handles, so that nothing but Weir's own notes knows the files anyway).
const ELSEWHERE: [&str; 17] = [
    BUCKET,
    "fuse.sshfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.mountpoint-s3",
    "fuse.goofys",
    "fuse.gcsfuse",
    "fuse.blobfuse2",
    "fuse.glusterfs",
    "fuse.juicefs",
    "fuse.curlftpfs",
    "fuse.davfs",
    "cifs",
    "smb3",
    "9p",
    "afs",
    "coda",
];

/// What `weir-bucket` serves.
const BUCKET: &str = "fuse.weir-bucket";

/// The names of logs begin so.
const PREFIX: &str = "log-";

/// Whether SOURCE is on another machine.
pub fn is_elsewhere(source: &Source) -> bool {
    file_system(source).is_some_and(|found| ELSEWHERE.contains(&found.as_str()))
}

/// Whether SOURCE is a bucket that `weir-bucket` serves.
pub fn is_bucket(source: &Source) -> bool {
    file_system(source).is_some_and(|found| found == BUCKET)
}

/// The type of SOURCE's file system, as the mount table has it.
fn file_system(source: &Source) -> Option<String> {
    let stat = rustix::fs::fstat(source.as_fd()).ok()?;
    let mounts = MountTable::read().ok()?;
    mounts.of_device(Device::from_raw(stat.st_dev)).map(|mount| mount.fs_type.clone())
}

/// Where logs of this user are kept: the first of `$STATE_DIRECTORY` if a service manager gives it (systemd.exec(5)),
/// `/var/lib/weir` for root, otherwise `$XDG_STATE_HOME/weir`. `None` if it is not known.
pub fn directory() -> Option<PathBuf> {
    if let Some(given) = absolute_variable("STATE_DIRECTORY") {
        let all = given.as_os_str().as_bytes();
        let first = all.split(|&byte| byte == b':').next().expect("there is one at least");
        return Some(OsStr::from_bytes(first).into());
    }
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/weir".into());
    }
    let state = absolute_variable("XDG_STATE_HOME");
    let state = state.or_else(|| absolute_variable("HOME").map(|home| home.join(".local/state")));
    Some(state?.join("weir"))
}

/// The path of a log: the one that was used last, if SOURCE's note names it, or a new one. Makes the directory.
///
/// # Errors
/// Those of making the directory. NotFound if it is not known which.
pub fn path(last: Option<&Note>) -> io::Result<PathBuf> {
    let directory = directory().ok_or(io::ErrorKind::NotFound)?;
    if let Some(note) = last.filter(|note| is_in(&note.path, &directory) && note.path.exists()) {
        return Ok(note.path.clone());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut drawn = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut drawn)?;
    Ok(directory.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(drawn))))
}

/// Removes a log that has nothing to replay, if it is one of these. Says whether it is gone.
pub fn remove(path: &Path) -> bool {
    let is_own = directory().is_some_and(|directory| is_in(path, &directory));
    match is_own.then(|| fs::remove_file(path)) {
        None => false,
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("{} was not removed: {error}", path.display());
            false
        }
        Some(_) => true,
    }
}

fn is_in(path: &Path, directory: &Path) -> bool {
    let is_named = path.file_name().is_some_and(|name| {
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        digits.is_some_and(|digits| digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok())
    });
    path.parent() == Some(directory) && is_named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_of_the_directory_are_its_own() {
        let directory = Path::new("/var/lib/weir");
        let own = |path: &str| is_in(Path::new(path), directory);
        assert!(own("/var/lib/weir/log-0123456789abcdef"));
        for other in [
            "/var/lib/weir/log-0123456789abcde",
            "/var/lib/weir/log-0123456789abcdeg",
            "/var/lib/weir/notes",
            "/var/lib/weir/below/log-0123456789abcdef",
            "/var/lib/log-0123456789abcdef",
        ] {
            assert!(!own(other), "{other}");
        }
        assert!(!remove(Path::new("/nonexistent/log-0123456789abcdef")));
    }
}
