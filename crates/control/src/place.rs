//! Where control sockets are: a directory only its user can enter, and in it one socket a mount,
//! named by the mount's device number, which is unique while it is mounted. It has a second name, by the daemon's process, since
//! the device number may be another mount's before the daemon has ended.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::mounts::Device;

/// The directory for this user's daemons; created if it is missing.
///
/// # Errors
/// It cannot be created, or it belongs to another user.
pub fn directory() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for directory in candidates(uid) {
        match prepare(&directory, uid) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                let text = format!("{}: {error}", directory.display());
                refused = io::Error::new(error.kind(), text);
            }
        }
    }
    Err(refused)
}

/// Where the daemons of user `uid` may have their sockets, in order.
pub fn candidates(uid: u32) -> Vec<PathBuf> {
    let fallback = PathBuf::from(format!("/tmp/weir-{uid}"));
    if uid == 0 {
        return vec![PathBuf::from("/run/weir"), fallback];
    }
    let own = rustix::process::geteuid().as_raw() == uid;
    let runtime = absolute_variable("XDG_RUNTIME_DIR").filter(|_| own);
    let mut directories: Vec<PathBuf> = Vec::new();
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    for base in [runtime, Some(usual)].into_iter().flatten() {
        let directory = base.join("weir");
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories.push(fallback);
    directories
}

/// An environment variable that holds an absolute path; others are ignored, as the XDG base
/// directory specification demands.
pub fn absolute_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Makes sure that the directory exists, belongs to `uid`, and admits no other user.
fn prepare(directory: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match judge(&fs::symlink_metadata(directory)?, uid) {
        Trust::Exposed(why) => Err(io::Error::other(why)),
        _ => Ok(()),
    }
}

/// Whether what is in a directory is its user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Nobody else can have put it there.
    Trusted,
    /// There is no such directory.
    Missing,
    /// This process may not look.
    Denied,
    /// Others can have put it there; the reason.
    Exposed(&'static str),
}

/// Whether a directory, as one of [`candidates`], is `uid`'s alone.
pub fn trust(directory: &Path, uid: u32) -> Trust {
    match fs::symlink_metadata(directory) {
        Ok(found) => judge(&found, uid),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Trust::Denied,
        Err(_) => Trust::Missing,
    }
}

/// Links are not followed: in /tmp anybody may have planted one.
fn judge(found: &fs::Metadata, uid: u32) -> Trust {
    if !found.is_dir() || found.uid() != uid {
        Trust::Exposed("belongs to another user")
    } else if found.mode() & 0o077 != 0 {
        Trust::Exposed("can be entered by others: remove it, or change its mode to 700")
    } else {
        Trust::Trusted
    }
}

/// The name of a mount's socket.
pub fn socket_name(device: Device) -> String {
    format!("{}:{}.sock", device.major, device.minor)
}

/// The name of a daemon's socket by its process.
pub fn process_name(pid: u32) -> String {
    format!("process-{pid}.sock")
}

/// The process that has a socket, as its name says.
pub fn process(socket: &Path) -> Option<u32> {
    let name = socket.file_name()?.to_str()?;
    name.strip_prefix("process-")?.strip_suffix(".sock")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn roots_are_in_run() {
        assert_eq!(candidates(0)[0], Path::new("/run/weir"));
        assert!(candidates(4711).contains(&PathBuf::from("/run/user/4711/weir")));
        assert!(candidates(4711).contains(&PathBuf::from("/tmp/weir-4711")));
        assert_eq!(socket_name(Device { major: 0, minor: 47 }), "0:47.sock");
        let of_process = Path::new("/run/weir").join(process_name(4711));
        assert_eq!(process(&of_process), Some(4711));
        assert_eq!(process(Path::new("/run/weir/0:47.sock")), None);
    }

    #[test]
    fn a_directory_that_other_users_can_change_is_refused() {
        let top = std::env::temp_dir().join(format!("weir-place-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let directory = top.join("weir");
        prepare(&directory, uid).unwrap();
        prepare(&directory, uid).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        assert!(prepare(&directory, uid + 1).is_err());
        assert_eq!(trust(&directory, uid), Trust::Trusted);
        assert!(matches!(trust(&directory, uid + 1), Trust::Exposed(_)));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(prepare(&directory, uid).is_err());
        let link = top.join("link");
        symlink(&directory, &link).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(prepare(&link, uid).is_err());
        assert!(matches!(trust(&link, uid), Trust::Exposed(_)));
        assert_eq!(trust(&top.join("a"), uid), Trust::Missing);
        assert!(prepare(&top.join("a/b"), uid).is_err());
        fs::remove_dir_all(top).unwrap();
    }
}
