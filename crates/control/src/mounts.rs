//! The mount table: `/proc/self/mountinfo`, proc(5), read without touching any mounted file
//! system, so that a dead or stuck daemon cannot hang a command.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::own;

/// The file-system type the kernel shows for a Weir mount.
pub const FS_TYPE: &str = "fuse.weir";

/// A device number as mountinfo writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// Major number; 0 for file systems without a block device.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Device {
    /// From a `st_dev`.
    pub fn from_raw(device: u64) -> Device {
        Device { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
    }
}

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The file system's device number.
    pub device: Device,
    /// The part of the file system that is mounted; `/` unless it is a bind mount of a part.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The options of this mount alone, comma-separated.
    pub options: String,
    /// Its type, such as `ext4` or `fuse.weir`.
    pub fs_type: String,
    /// The mount's source: for Weir, SOURCE.
    pub source: PathBuf,
    /// The file system's own options, comma-separated.
    pub super_options: String,
    /// The mount is gone, and this process, its daemon, still brings things home. Not of the table.
    pub former_of: Option<u32>,
}

impl Mount {
    /// Whether Weir serves it.
    pub fn is_weir(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// The user whose daemon serves a FUSE mount.
    pub fn owner(&self) -> Option<u32> {
        self.super_options
            .split(',')
            .find_map(|option| option.strip_prefix("user_id="))
            .and_then(|uid| uid.parse().ok())
    }

    /// Whether Weir serves the directory `source` there, as far as the table can be believed.
    pub fn serves(&self, source: &Path) -> bool {
        self.is_weir() && self.source == source && self.may_serve(source)
    }

    /// Whether it is believed that this mount serves `directory`. Any user can make a FUSE mount of any type and source; root and this user
    /// are believed, and others of directories that they own or whose `.weir` they made and hold. The directory is looked at only for
    /// mounts of others.
    pub fn may_serve(&self, directory: &Path) -> bool {
        self.is_trusted() || self.holds(directory).unwrap_or(false)
    }

    /// Whether the directory, or a `.weir` in it that is locked, is its owner's.
    fn holds(&self, directory: &Path) -> rustix::io::Result<bool> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        Ok(Some(rustix::fs::fstat(&directory)?.st_uid) == self.owner()
            || own::of(directory.as_fd()).is_some_and(|own| {
                Some(own.made_by) == self.owner() && own.is_locked != Some(false)
            }))
    }

    /// Whether it is root's or this user's, or of no user, as mounts that are no FUSE mounts.
    pub fn is_trusted(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.owner().is_none_or(|owner| owner == 0 || owner == own)
    }
}

/// The mount table, in mount order.
#[derive(Clone, Debug, Default)]
pub struct MountTable(Vec<Mount>);

impl MountTable {
    /// Reads this process's mount table.
    pub fn read() -> io::Result<MountTable> {
        Ok(MountTable::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Parses mountinfo; lines of another form are left out.
    pub fn parse(table: &[u8]) -> MountTable {
        MountTable(table.split(|&byte| byte == b'\n').filter_map(parse_line).collect())
    }

    /// The mount exactly at `path`, the topmost of several.
    pub fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.mount_point == path)
    }

    /// The mount an absolute, lexically clean path lies in: the one with the longest mount point
    /// that is a prefix of it.
    pub fn containing(&self, path: &Path) -> Option<&Mount> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, mount)| path.starts_with(&mount.mount_point))
            .max_by_key(|(index, mount)| (mount.mount_point.as_os_str().len(), *index))
            .map(|(_, mount)| mount)
    }

    /// The Weir mount with this SOURCE, given by its canonical path; the last one made if there are
    /// several. See [`Mount::serves`].
    pub fn of_source(&self, source: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.serves(source))
    }

    /// Every Weir mount once, bind mounts of the same one left out.
    pub fn weir(&self) -> Vec<&Mount> {
        let mut found: Vec<&Mount> = Vec::new();
        for mount in self.0.iter().filter(|mount| mount.is_weir()) {
            if !found.iter().any(|known| known.device == mount.device) {
                found.push(mount);
            }
        }
        found
    }

    /// The first mount of a device.
    pub fn of_device(&self, device: Device) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.device == device)
    }

    /// All mounts.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let device = fields.nth(2)?;
    let root = fields.next()?;
    let mount_point = fields.next()?;
    let options = fields.next()?;
    // Any number of optional fields, ended by a hyphen.
    fields.find(|field| *field == b"-")?;
    let fs_type = fields.next()?;
    let source = fields.next()?;
    let super_options = fields.next().unwrap_or_default();
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some(Mount {
        device: Device { major: major.parse().ok()?, minor: minor.parse().ok()? },
        root: unescape(root).into(),
        mount_point: unescape(mount_point).into(),
        options: unescape(options).to_string_lossy().into_owned(),
        fs_type: unescape(fs_type).to_string_lossy().into_owned(),
        source: unescape(source).into(),
        super_options: unescape(super_options).to_string_lossy().into_owned(),
        former_of: None,
    })
}

/// Undoes the kernel's escaping of space, tab, newline, backslash and `#`: a backslash and three
/// octal digits. fstab(5) has the same.
pub fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) = (*first, tail) {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    OsString::from_vec(bytes)
}

/// A path as a text: a byte that is not UTF-8 is written `\xff`, so that different paths stay different.
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Makes a path absolute and lexically clean: no `.`, no `..`, no repeated or trailing slash.
/// Symbolic links are not followed.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut clean = PathBuf::from("/");
    for part in absolute.components() {
        match part {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            std::path::Component::Normal(name) => clean.push(name),
            _ => {}
        }
    }
    debug_assert!(clean.as_os_str().as_bytes().starts_with(b"/"));
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /mnt/my\\040data rw,nosuid,nodev,relatime shared:9 master:2 - fuse.weir /srv/a\\134b rw,user_id=1000,group_id=1000
31 22 0:26 /sub /srv/bind rw - fuse.weir /srv/a\\134b rw,user_id=1000,group_id=1000
32 22 0:27 / /mnt rw - tmpfs tmpfs rw
33 22 0:28 / /mnt rw - fuse.weir /srv/c rw,user_id=0,group_id=0

not a line
34 22 zero:28 / /bad rw - ext4 x rw
";

    #[test]
    fn reads_the_kernels_form_and_its_escapes() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.iter().count(), 5);
        let mount = table.at(Path::new("/mnt/my data")).unwrap();
        assert_eq!(mount.device, Device { major: 0, minor: 26 });
        assert_eq!(mount.source, Path::new("/srv/a\\b"));
        assert_eq!(mount.options, "rw,nosuid,nodev,relatime");
        assert_eq!(mount.owner(), Some(1000));
        assert!(mount.is_weir());
        assert_eq!(table.at(Path::new("/")).unwrap().owner(), None);
    }

    #[test]
    fn the_topmost_and_the_longest_win() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.at(Path::new("/mnt")).unwrap().source, Path::new("/srv/c"));
        let inside = |path: &str| table.containing(Path::new(path)).unwrap().device.minor;
        assert_eq!(inside("/mnt/my data/x/y"), 26);
        assert_eq!(inside("/mnt/my datax"), 28);
        assert_eq!(inside("/usr"), 1);
        assert_eq!(table.weir().len(), 2);
        assert_eq!(table.of_source(Path::new("/srv/c")).unwrap().device.minor, 28);
        assert_eq!(table.of_source(Path::new("tmpfs")), None);
    }

    #[test]
    fn others_are_believed_only_of_their_own_directories() {
        let directory = std::env::temp_dir().join(format!("weir-claims-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let is_found = |owners: &[u32]| {
            let line = |owner| {
                let source = directory.display();
                format!("30 22 0:{owner} / /mnt rw - fuse.weir {source} rw,user_id={owner}\n")
            };
            let table: String = owners.iter().map(line).collect();
            let table = MountTable::parse(table.as_bytes());
            table.of_source(&directory).map(|mount| mount.owner().unwrap())
        };
        let other = own + 1234;
        assert_eq!(is_found(&[other]), None);
        assert_eq!(is_found(&[own, other]), Some(own), "a later mount of another user");
        assert_eq!(is_found(&[other, 0]), Some(0));
        if own == 0 {
            std::os::unix::fs::chown(&directory, Some(other), None).unwrap();
            assert_eq!(is_found(&[other]), Some(other), "it is the directory's owner");
            std::os::unix::fs::chown(&directory, Some(other + 1), None).unwrap();
            let own = directory.join(own::WEIR_DIRECTORY);
            std::fs::create_dir(&own).unwrap();
            std::os::unix::fs::chown(&own, Some(other), None).unwrap();
            let lock = std::fs::File::create(own.join(own::LOCK_FILE)).unwrap();
            assert_eq!(is_found(&[other]), None, "nobody has it locked");
            lock.lock().unwrap();
            assert_eq!(is_found(&[other]), Some(other), "its daemon has it locked");
            assert_eq!(is_found(&[other + 2]), None, "another user's daemon has");
            let set_mode = |mode| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
                std::fs::set_permissions(&directory, mode).unwrap();
            };
            set_mode(0o3775);
            assert_eq!(is_found(&[other]), Some(other), "only a group can make it");
            set_mode(0o1777);
            assert_eq!(is_found(&[other]), None, "anybody can make it");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn unescapes_only_three_octal_digits() {
        assert_eq!(unescape(b"a\\040b\\011\\012\\134\\043"), OsString::from("a b\t\n\\#"));
        assert_eq!(unescape(b"\\04"), OsString::from("\\04"));
        assert_eq!(unescape(b"\\999\\"), OsString::from("\\999\\"));
        assert_eq!(unescape(b"\\303\\251"), OsString::from("é"));
    }

    #[test]
    fn different_paths_are_different_texts() {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        assert_eq!(shown(Path::new("/a b/é")), "/a b/é");
        assert_eq!(shown(&path(b"/m\xff/x")), "/m\\xff/x");
        assert_eq!(shown(&path(b"/m\xc3")), "/m\\xc3");
        assert_ne!(shown(&path(b"/m\xff")), shown(&path(b"/m\xfe")));
    }

    #[test]
    fn paths_are_cleaned_without_being_followed() {
        assert_eq!(absolute(Path::new("/a/../b//./c/")).unwrap(), Path::new("/b/c"));
        assert_eq!(absolute(Path::new("/../..")).unwrap(), Path::new("/"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new("x")).unwrap(), here.join("x"));
        assert!(absolute(Path::new("")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(table: Vec<u8>, line in "[0-9a-z:/ \\\\-]{0,80}") {
            let _ = (MountTable::parse(&table), MountTable::parse(line.as_bytes()));
        }

        #[test]
        fn escapes_are_undone(name: Vec<u8>) {
            let escaped: Vec<u8> =
                name.iter().flat_map(|byte| format!("\\{byte:03o}").into_bytes()).collect();
            proptest::prop_assert_eq!(unescape(&escaped).into_vec(), name);
        }
    }
}
