//! Unmounting, by umount2(2) with the privilege and by fusermount3(1) for ordinary users; and the programs
//! that prevent it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::daemon::protection;
use crate::fuse_access;

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Only if no program uses it.
    Idle,
    /// From the namespace at once, and completely when no program uses it any more (MNT_DETACH).
    Detach,
}

/// Why it was not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Programs use it.
    #[error("it is in use")]
    Busy,
    /// It is not mounted.
    #[error("it is not mounted")]
    NotMounted,
    /// Something else is mounted over it.
    #[error("something else is mounted over it: unmount that first")]
    Covered,
    /// The helper is needed and missing.
    #[error("fusermount3 is missing: install the package fuse3, or unmount as root")]
    NoHelper,
    /// An error of the kernel.
    #[error("{0}")]
    Kernel(io::Error),
    /// An error of fusermount3.
    #[error("{0}")]
    Helper(String),
}

/// Unmounts the topmost mount at `mountpoint`.
pub fn unmount(mountpoint: &Path, how: How) -> Result<(), UnmountError> {
    let detach = match how {
        How::Idle => UnmountFlags::empty(),
        How::Detach => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW | detach) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::Busy),
        Err(Errno::INVAL | Errno::NOENT) => Err(UnmountError::NotMounted),
        Err(Errno::PERM) => by_helper(mountpoint, how),
        Err(errno) => Err(UnmountError::Kernel(errno.into())),
    }
}

fn by_helper(mountpoint: &Path, how: How) -> Result<(), UnmountError> {
    let helper = fuse_access::helper().ok_or(UnmountError::NoHelper)?;
    let mut command = Command::new(helper);
    command.arg("-u");
    if how == How::Detach {
        command.arg("-z");
    }
    // LC_ALL: `parse_error` reads its messages.
    command.arg("--").arg(mountpoint).env("LC_ALL", "C").stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(UnmountError::Kernel)?;
    protection::do_not_spare(child.id());
    let output = child.wait_with_output().map_err(UnmountError::Kernel)?;
    if output.status.success() {
        return Ok(());
    }
    Err(parse_error(&String::from_utf8_lossy(&output.stderr)))
}

fn parse_error(said: &str) -> UnmountError {
    let line = said.lines().next().unwrap_or("fusermount3 failed and said nothing").trim();
    if line.contains("busy") {
        UnmountError::Busy
    } else if line.contains("not found in") || line.contains("Invalid argument") {
        UnmountError::NotMounted
    } else {
        UnmountError::Helper(line.to_owned())
    }
}

/// A few of the programs that use files at or below `mountpoint`, as `name (pid)`, as far as this user may
/// see them. Reads only links in /proc, and so cannot hang on a mount that does not answer.
pub fn users(mountpoint: &Path) -> Vec<String> {
    const NAMED_MAX: usize = 5;
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter(|process| process.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter(|process| uses(&process.path(), mountpoint))
        .map(|process| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim(), process.file_name().to_string_lossy())
        })
        .take(NAMED_MAX)
        .collect()
}

fn uses(process: &Path, mountpoint: &Path) -> bool {
    let leads_in =
        |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(mountpoint));
    if ["cwd", "root", "exe"].iter().any(|name| leads_in(&process.join(name))) {
        return true;
    }
    ["fd", "map_files"].iter().any(|directory| {
        fs::read_dir(process.join(directory))
            .is_ok_and(|mut links| links.any(|link| link.is_ok_and(|link| leads_in(&link.path()))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helpers_errors_are_recognised() {
        let busy = "fusermount3: failed to unmount /mnt/x: Device or resource busy\n";
        assert!(matches!(parse_error(busy), UnmountError::Busy));
        let gone = "fusermount3: entry for /mnt/x not found in /etc/mtab\n";
        assert!(matches!(parse_error(gone), UnmountError::NotMounted));
        assert!(matches!(parse_error(""), UnmountError::Helper(_)));
    }

    #[test]
    fn users_are_found_by_their_open_files() {
        let directory = std::env::temp_dir().join(format!("weir-users-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let directory = directory.canonicalize().unwrap();
        let own = format!("({})", std::process::id());
        assert!(!users(&directory).iter().any(|user| user.ends_with(&own)));
        let held = fs::File::create(directory.join("held")).unwrap();
        assert!(users(&directory).iter().any(|user| user.ends_with(&own)));
        drop(held);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_unmounted_path_is_reported() {
        let error = unmount(Path::new("/nonexistent/weir"), How::Idle).unwrap_err();
        assert!(!matches!(error, UnmountError::Busy), "{error}");
    }
}
