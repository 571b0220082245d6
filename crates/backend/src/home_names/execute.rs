//! Changing names and attributes at home, as commands say ([`NameCommand`]).
//!
//! Calls that take no descriptor opened with `O_PATH` are made by its path in /proc, which leads to the inode itself,
//! also if that is a symbolic link.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, XattrFlags, chmod, chownat, fsync, linkat, mkdirat, mknodat, openat,
    removexattr, renameat_with, setxattr, symlinkat, unlinkat, utimensat,
};
use weir_names::command::{NameCommand, SetTime};

use super::HomeNames;
use super::list::open_directory;
use crate::proc_path::proc_path;

/// A command on what descriptors hold; those opened with `O_PATH` do.
pub type HomeCommand<'a> = NameCommand<'a, BorrowedFd<'a>>;

impl HomeNames {
    /// Executes one command. The answer is the file that [`NameCommand::MakeFile`] or [`NameCommand::MakeUnnamed`] made; the
    /// others have none.
    ///
    /// # Errors
    /// Those of the system call that the command stands for.
    pub fn execute(&self, command: HomeCommand<'_>) -> io::Result<Option<OwnedFd>> {
        match command.creator() {
            Some(creator) => self.credentials.create_as(&creator, || execute(command)),
            None => execute(command),
        }
    }
}

fn execute(command: HomeCommand<'_>) -> io::Result<Option<OwnedFd>> {
    match command {
        NameCommand::MakeDirectory { at, mode, .. } => {
            mkdirat(at.directory, at.name, Mode::from_raw_mode(mode))?;
        }
        NameCommand::MakeNode { at, mode, device, .. } => {
            let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
            mknodat(at.directory, at.name, kind, mode, device)?;
        }
        NameCommand::MakeSymlink { at, target, .. } => symlinkat(target, at.directory, at.name)?,
        NameCommand::MakeFile { at, mode, .. } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
            return Ok(Some(openat(at.directory, at.name, flags, Mode::from_raw_mode(mode))?));
        }
        NameCommand::MakeUnnamed { directory, mode, .. } => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            return Ok(Some(openat(directory, ".", flags, Mode::from_raw_mode(mode))?));
        }
        NameCommand::Link { inode, at } => {
            // By its path: linking to a descriptor needs CAP_DAC_READ_SEARCH.
            linkat(CWD, proc_path(inode), at.directory, at.name, AtFlags::SYMLINK_FOLLOW)?;
        }
        NameCommand::Rename { from, to, flags } => {
            let flags = RenameFlags::from_bits_retain(flags);
            renameat_with(from.directory, from.name, to.directory, to.name, flags)?;
        }
        NameCommand::Unlink { at } => unlinkat(at.directory, at.name, AtFlags::empty())?,
        NameCommand::RemoveDirectory { at } => {
            unlinkat(at.directory, at.name, AtFlags::REMOVEDIR)?;
        }
        NameCommand::SetOwner { inode, uid, gid } => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(inode, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        NameCommand::SetMode { inode, mode } => {
            chmod(proc_path(inode), Mode::from_raw_mode(mode))?;
        }
        NameCommand::SetTimes { inode, atime, mtime } => {
            let times =
                Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
            utimensat(inode, "", &times, AtFlags::EMPTY_PATH)?;
        }
        NameCommand::SetXattr { inode, name, value, flags } => {
            setxattr(proc_path(inode), name, value, XattrFlags::from_bits_retain(flags))?;
        }
        NameCommand::RemoveXattr { inode, name } => removexattr(proc_path(inode), name)?,
        NameCommand::SyncDirectory { directory } => fsync(open_directory(directory)?)?,
    }
    Ok(None)
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To { seconds, nanoseconds }) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

    use rustix::process::geteuid;
    use weir_names::command::{Creator, Entry};

    use super::super::{Value, get_xattr, open_again, read_link};
    use super::*;

    const CREATOR: Creator = Creator { uid: 4321, gid: 8765, umask: 0o027 };

    struct Scene {
        path: tempfile::TempDir,
        source: OwnedFd,
        home: HomeNames,
    }

    impl Scene {
        fn new() -> Scene {
            let path = tempfile::tempdir().unwrap();
            let source = OwnedFd::from(fs::File::open(path.path()).unwrap());
            let home = HomeNames::new(source.as_fd()).unwrap();
            Scene { path, source, home }
        }

        fn at<'a>(&'a self, name: &'a str) -> Entry<'a, BorrowedFd<'a>> {
            Entry { directory: self.source.as_fd(), name: OsStr::new(name) }
        }

        fn open(&self, name: &str) -> OwnedFd {
            self.home.open_place(self.source.as_fd(), name.as_bytes()).unwrap()
        }

        fn metadata(&self, name: &str) -> fs::Metadata {
            fs::symlink_metadata(self.path.path().join(name)).unwrap()
        }

        fn execute(&self, command: HomeCommand<'_>) -> Option<OwnedFd> {
            self.home.execute(command).unwrap()
        }
    }

    #[test]
    fn what_is_made_is_the_creators() {
        let scene = Scene::new();
        let creator = CREATOR;
        let at = |name| scene.at(name);
        scene.execute(NameCommand::MakeDirectory { at: at("dir"), mode: 0o777, creator });
        let fifo = libc::S_IFIFO | 0o666;
        scene.execute(NameCommand::MakeNode { at: at("fifo"), mode: fifo, device: 0, creator });
        let target = OsStr::new("nowhere");
        scene.execute(NameCommand::MakeSymlink { at: at("link"), target, creator });
        let file = scene.execute(NameCommand::MakeFile { at: at("file"), mode: 0o666, creator });
        assert_eq!(rustix::io::write(file.unwrap(), b"data").unwrap(), 4);
        for name in ["dir", "fifo", "link", "file"] {
            let made = scene.metadata(name);
            match geteuid().is_root() {
                true => assert_eq!((made.uid(), made.gid()), (4321, 8765), "{name}"),
                false => assert_eq!(made.uid(), geteuid().as_raw(), "{name}"),
            }
        }
        assert_eq!(scene.metadata("dir").mode() & 0o777, 0o750);
        assert_eq!(scene.metadata("file").mode() & 0o777, 0o640);
        assert!(scene.metadata("fifo").file_type().is_fifo());
        assert_eq!(read_link(scene.open("link").as_fd()).unwrap(), b"nowhere");
        let again = NameCommand::MakeFile { at: at("file"), mode: 0o666, creator };
        assert_eq!(scene.home.execute(again).unwrap_err().raw_os_error(), Some(libc::EEXIST));
    }

    #[test]
    fn names_are_linked_moved_and_removed() {
        let scene = Scene::new();
        fs::write(scene.path.path().join("one"), b"1").unwrap();
        fs::create_dir(scene.path.path().join("dir")).unwrap();
        let file = scene.open("one");
        scene.execute(NameCommand::Link { inode: file.as_fd(), at: scene.at("two") });
        assert_eq!(scene.metadata("two").nlink(), 2);
        let (from, to) = (scene.at("one"), scene.at("dir"));
        scene.execute(NameCommand::Rename { from, to, flags: libc::RENAME_EXCHANGE });
        assert!(scene.metadata("one").is_dir());
        scene.execute(NameCommand::RemoveDirectory { at: scene.at("one") });
        scene.execute(NameCommand::Unlink { at: scene.at("two") });
        scene.execute(NameCommand::SyncDirectory { directory: scene.source.as_fd() });
        let left: Vec<_> = fs::read_dir(scene.path.path()).unwrap().collect();
        assert_eq!((left.len(), scene.metadata("dir").nlink()), (1, 1));
    }

    #[test]
    fn attributes_are_set_by_what_was_opened_with_o_path() {
        let scene = Scene::new();
        fs::write(scene.path.path().join("file"), b"").unwrap();
        let file = scene.open("file");
        let inode = open_again(file.as_fd()).unwrap();
        let inode = inode.as_fd();
        scene.execute(NameCommand::SetMode { inode, mode: 0o4711 });
        let gid = Some(rustix::process::getegid().as_raw());
        scene.execute(NameCommand::SetOwner { inode, uid: None, gid });
        let mtime = Some(SetTime::To { seconds: -2, nanoseconds: 750_000_000 });
        scene.execute(NameCommand::SetTimes { inode, atime: None, mtime });
        let set = scene.metadata("file");
        assert_eq!((set.mtime(), set.mtime_nsec()), (-2, 750_000_000));
        assert_eq!(set.permissions().mode() & 0o777, 0o711);
        let name = OsStr::new("user.weir");
        match scene.home.execute(NameCommand::SetXattr { inode, name, value: b"value", flags: 0 }) {
            // Not every file system has them.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return,
            set => set.unwrap(),
        };
        assert_eq!(get_xattr(inode, name, 0).unwrap(), Value::Len(5));
        assert_eq!(get_xattr(inode, name, 64).unwrap(), Value::Bytes(b"value".to_vec()));
        scene.execute(NameCommand::RemoveXattr { inode, name });
        assert!(get_xattr(inode, name, 0).is_err());
    }
}
