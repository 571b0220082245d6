//! Checks that FUSE can be used here, before anything is changed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

const DEVICE: &str = "/dev/fuse";
const CONFIGURATION: &str = "/etc/fuse.conf";
/// Helpers that mount and unmount for ordinary users, best first.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Why FUSE cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FuseAccessError {
    /// The kernel has no FUSE, or the container has no access to it.
    #[error(
        "{} is missing: load the kernel module ('modprobe fuse' as root), or give the container \
         that device", .0.display()
    )]
    NoDevice(PathBuf),
    /// The name belongs to something else.
    #[error("{} is not a character device: FUSE is not set up on this machine", .0.display())]
    NotDevice(PathBuf),
    /// This user may not open it.
    #[error(
        "{}: permission denied: ask root for 'chmod 666 {}', which udev does where it is set up, or \
         run weir as root", .0.display(), .0.display()
    )]
    DeviceDenied(PathBuf),
    /// An ordinary user needs the set-user-id helper.
    #[error(
        "fusermount3 is missing, which an ordinary user needs to mount: install the package fuse3, \
         or run weir as root"
    )]
    NoHelper,
    /// fuse.conf does not let ordinary users share their mounts.
    #[error(
        "allow_other is not permitted to ordinary users here: ask for the line 'user_allow_other' \
         in {}, or mount without it", .0.display()
    )]
    AllowOther(PathBuf),
}

/// Checks the device, the helper and, if `allow_other` is asked for, the permission for it.
pub fn check(allow_other: bool) -> Result<(), FuseAccessError> {
    check_access()?;
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    helper().ok_or(FuseAccessError::NoHelper)?;
    if allow_other {
        check_sharing()?;
    }
    Ok(())
}

/// Checks the device alone.
///
/// # Errors
/// It is missing, is none, or this user may not open it.
pub fn check_access() -> Result<(), FuseAccessError> {
    check_device(Path::new(DEVICE))?;
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => check_openable(Path::new(DEVICE)),
    }
}

/// Checks that ordinary users may share their mounts.
///
/// # Errors
/// /etc/fuse.conf does not have the line.
pub fn check_sharing() -> Result<(), FuseAccessError> {
    check_allow_other(Path::new(CONFIGURATION))
}

/// The program that unmounts for an ordinary user.
pub fn helper() -> Option<PathBuf> {
    // mount(8) gives its helpers no PATH.
    let usual = || "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".into();
    helper_in(&std::env::var_os("PATH").unwrap_or_else(usual))
}

fn helper_in(path: &OsStr) -> Option<PathBuf> {
    let directories: Vec<PathBuf> = std::env::split_paths(path).collect();
    HELPERS
        .iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)))
        .filter(|program| program.is_absolute())
        .find(|program| {
            program.is_file()
                && rustix::fs::accessat(CWD, program, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
        })
}

fn check_device(device: &Path) -> Result<(), FuseAccessError> {
    match fs::metadata(device) {
        Ok(found) if found.file_type().is_char_device() => Ok(()),
        Ok(_) => Err(FuseAccessError::NotDevice(device.to_owned())),
        Err(_) => Err(FuseAccessError::NoDevice(device.to_owned())),
    }
}

/// The helper opens the device with the rights of its caller.
fn check_openable(device: &Path) -> Result<(), FuseAccessError> {
    let access = Access::READ_OK | Access::WRITE_OK;
    rustix::fs::accessat(CWD, device, access, AtFlags::EACCESS)
        .map_err(|_| FuseAccessError::DeviceDenied(device.to_owned()))
}

/// fusermount3(1): the line `user_allow_other` in /etc/fuse.conf.
fn check_allow_other(configuration: &Path) -> Result<(), FuseAccessError> {
    let text = fs::read_to_string(configuration).unwrap_or_default();
    let permitted = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .any(|line| line == "user_allow_other");
    if permitted { Ok(()) } else { Err(FuseAccessError::AllowOther(configuration.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-fuse-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_device_must_be_one() {
        let directory = scratch("device");
        let file = directory.join("fuse");
        assert!(matches!(check_device(&file), Err(FuseAccessError::NoDevice(_))));
        fs::write(&file, "").unwrap();
        assert!(matches!(check_device(&file), Err(FuseAccessError::NotDevice(_))));
        assert!(check_device(Path::new("/dev/null")).is_ok());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn allow_other_needs_its_line() {
        let directory = scratch("conf");
        let file = directory.join("fuse.conf");
        for (text, permitted) in [
            ("", false),
            ("#user_allow_other\n", false),
            ("mount_max = 10\n  user_allow_other # yes\n", true),
            ("user_allow_other_things\n", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(check_allow_other(&file).is_ok(), permitted, "{text:?}");
        }
        assert!(check_allow_other(&directory.join("gone")).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_helper_is_looked_for_in_path_only() {
        let directory = scratch("path");
        let path = directory.clone().into_os_string();
        assert_eq!(helper_in(&path), None);
        assert_eq!(helper_in(OsStr::new("")), None);
        let program = directory.join("fusermount");
        fs::write(&program, "").unwrap();
        assert_eq!(helper_in(&path), None, "it cannot be run");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(helper_in(&path), Some(program));
        fs::remove_dir_all(directory).unwrap();
    }
}
