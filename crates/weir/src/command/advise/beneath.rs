//! Directories in which no other user can replace what is made, and what is done below them: by descriptor, one directory's own,
//! never by a path from the root, and through no symbolic link.
//!
//! Invariant: a directory that [`trusted`] opens was reached through directories that only root and this user may change. So a
//! path through them, which a mount has to be given, cannot come to mean something else.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2, renameat,
    unlinkat,
};
use rustix::io::Errno;

const PRIVATE: u32 = 0o700;

/// Opens a directory by its canonical path.
///
/// # Errors
/// Another user may change it or one above it.
pub fn trusted(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(CWD, "/", flags, Mode::empty())?;
    let mut at = PathBuf::from("/");
    is_ours(&fstat(&directory)?, &at)?;
    for part in path.components() {
        match part {
            Component::RootDir => continue,
            Component::Normal(name) => {
                directory = openat(&directory, name, flags, Mode::empty())?;
                at.push(name);
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        is_ours(&fstat(&directory)?, &at)?;
    }
    Ok(directory)
}

/// Whether only root and this user may replace what is in a directory. In a sticky one each user's files are safe from others.
fn is_ours(directory: &Stat, path: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid();
    let (owner, group) = (directory.st_uid, directory.st_gid);
    let refused = |who: String| {
        let text = format!(
            "{} {who}, who could replace what is made below it: run weir advise as the user whose directory it is, or give \
             --source another one",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    if owner != 0 && owner != user.as_raw() {
        return refused(format!("belongs to the user with number {owner}"));
    }
    if directory.st_mode & libc::S_ISVTX != 0 {
        return Ok(());
    }
    if directory.st_mode & 0o002 != 0 {
        return refused("may be written by every user".to_owned());
    }
    let own_group = !user.is_root() && group == rustix::process::getegid().as_raw();
    if directory.st_mode & 0o020 != 0 && !own_group {
        return refused(format!("may be written by users of the group with number {group}"));
    }
    Ok(())
}

/// Makes a directory that is this user's alone.
pub fn make_private(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    mkdirat(&parent, name, Mode::from_raw_mode(PRIVATE))?;
    let directory = open(&parent, name, OFlags::DIRECTORY, 0)?;
    match is_private(&directory)? {
        true => Ok(directory),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the file system does not keep a directory from other users",
        )),
    }
}

/// Whether a directory is this user's alone.
pub fn is_private(directory: impl AsFd) -> io::Result<bool> {
    let stat = fstat(directory)?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    Ok(own && stat.st_mode & 0o777 == PRIVATE)
}

/// Opens what is below a directory, for reading unless `flags` say otherwise.
pub fn open(
    directory: impl AsFd,
    path: impl AsRef<OsStr>,
    flags: OFlags,
    mode: u32,
) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // openat2(2) refuses O_NONBLOCK with O_PATH.
    let wait = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | wait;
    Ok(openat2(directory, path.as_ref(), flags, Mode::from_raw_mode(mode), resolve)?)
}

/// Makes a new file, or an empty one of a file that is there.
pub fn create(directory: impl AsFd, path: impl AsRef<OsStr>) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    open(directory, path, flags, 0o600).map(File::from)
}

/// Opens a directory by its path, if it is this user's alone. In a session openat2(2) would be a call that is not known: the path
/// is followed by open(2), as programs do it, and what it leads to is checked.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let directory = options.open(path)?;
    match is_private(&directory)? {
        true => Ok(directory),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users may use it: it was not made by weir advise",
        )),
    }
}

/// Makes a directory, and those above it that are missing.
pub fn make_directories(directory: impl AsFd, path: &str) -> io::Result<()> {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    for end in ends.filter(|_| path != ".") {
        let (parent, name) = split(&path[..end]);
        let parent = open(&directory, parent, OFlags::PATH | OFlags::DIRECTORY, 0)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(PRIVATE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The directory of a relative path, and its last name.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((".", path))
}

/// Removes a directory with all that is in it, if it is still the one that was opened. What is mounted in it is an error.
pub fn remove(parent: impl AsFd, name: &OsStr, directory: OwnedFd) -> io::Result<()> {
    empty(&directory)?;
    let (ours, there) =
        (fstat(&directory)?, rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?);
    if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) {
        return Err(io::Error::other("it was moved"));
    }
    drop(directory);
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes what is in a directory. Directories in directories are moved up first, so that depth costs neither stack nor descriptors.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let names = names(top)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            if !is_directory_left(top, &name)? {
                continue;
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let below = openat2(top, name.as_c_str(), flags, Mode::empty(), resolve)?;
            for inner in self::names(&below)? {
                while is_directory_left(&below, &inner)? {
                    moved += 1;
                    let to = format!(".weir-advise-moved-{moved}");
                    match renameat(&below, inner.as_c_str(), top, to) {
                        Ok(()) => break,
                        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR)?;
        }
    }
}

/// Removes what is no directory; whether it is one.
fn is_directory_left(within: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(within, name, AtFlags::empty()) {
        Ok(()) => Ok(false),
        // POSIX says EPERM, Linux EISDIR.
        Err(Errno::ISDIR | Errno::PERM) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// What is in a directory.
pub fn names(directory: impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// A name as the standard library has them.
pub fn name(name: &CStr) -> OsString {
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory of a test; beneath `/tmp`, which is root's and sticky.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = PathBuf::from(format!("/tmp/weir-beneath-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            Place(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_directory_that_others_may_change_is_refused() {
        let place = Place::new("trusted");
        trusted(&place.0).unwrap();
        let below = place.0.join("below");
        fs::create_dir(&below).unwrap();
        fs::set_permissions(&below, fs::Permissions::from_mode(0o755)).unwrap();
        for (mode, why) in [(0o777, "every user"), (0o757, "every user")] {
            fs::set_permissions(&place.0, fs::Permissions::from_mode(mode)).unwrap();
            let error = trusted(&below).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o1777)).unwrap();
        trusted(&below).unwrap();
        symlink(&below, place.0.join("link")).unwrap();
        assert!(trusted(&place.0.join("link")).is_err());
    }

    #[test]
    fn no_link_leads_out() {
        let place = Place::new("links");
        fs::create_dir(place.0.join("in")).unwrap();
        fs::write(place.0.join("out"), "out").unwrap();
        symlink("../out", place.0.join("in/link")).unwrap();
        symlink("..", place.0.join("in/up")).unwrap();
        let directory = File::open(place.0.join("in")).unwrap();
        for path in ["link", "up/out", "../out", "/etc/hostname"] {
            assert!(create(&directory, path).is_err(), "{path}");
        }
        assert!(make_directories(&directory, "up/made").is_err());
        make_directories(&directory, "a/b/c").unwrap();
        make_directories(&directory, "a/b/c").unwrap();
        create(&directory, "a/b/c/d").unwrap();
        assert_eq!(fs::read(place.0.join("out")).unwrap(), b"out");
    }

    #[test]
    fn what_is_removed_is_what_was_opened() {
        let place = Place::new("removed");
        let parent = File::open(&place.0).unwrap();
        let made = make_private(&parent, OsStr::new("made")).unwrap();
        let deep = vec!["d"; 64].join("/");
        make_directories(&made, &deep).unwrap();
        create(&made, format!("{deep}/x")).unwrap();
        fs::write(place.0.join("kept"), "kept").unwrap();
        symlink("../kept", place.0.join("made/link")).unwrap();
        remove(&parent, OsStr::new("made"), made).unwrap();
        assert!(!place.0.join("made").exists() && place.0.join("kept").exists());
        let made = make_private(&parent, OsStr::new("made")).unwrap();
        fs::rename(place.0.join("made"), place.0.join("moved")).unwrap();
        fs::create_dir(place.0.join("made")).unwrap();
        assert!(remove(&parent, OsStr::new("made"), made).is_err());
        assert!(place.0.join("made").exists());
    }
}
