//! Mounting and unmounting: mount(2) where the process may, else the set-uid helper `fusermount3`.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno as HomeErrno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{getgid, getuid};

/// The device of FUSE.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// The file-system type in /proc/self/mountinfo.
const FS_TYPE: &str = "fuse.weir";
const HELPER: &str = "fusermount3";

/// Why there is no mount, or why it is still there.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("cannot mount: {DEVICE} does not exist; load the kernel module (modprobe fuse)")]
    NoDevice,
    /// The device cannot be opened.
    #[error("cannot open {DEVICE}: {0}")]
    Device(#[source] io::Error),
    /// An ordinary user needs the helper.
    #[error("cannot mount as an ordinary user: {HELPER} not found; install the fuse3 package")]
    NoHelper,
    /// The helper refused.
    #[error("cannot mount on {}: {message}", mountpoint.display())]
    Helper {
        /// Where.
        mountpoint: PathBuf,
        /// What it said.
        message: String,
    },
    /// The kernel refused.
    #[error("cannot mount on {}: {source}", mountpoint.display())]
    Mount {
        /// Where.
        mountpoint: PathBuf,
        /// What mount(2) said.
        source: io::Error,
    },
    /// Not an option this file system or the kernel has.
    #[error("unknown mount option `{0}`")]
    UnknownOption(String),
    /// SOURCE cannot be read.
    #[error("cannot read the source directory: {0}")]
    Source(#[source] io::Error),
    /// Mounted, but the kernel does not talk to us.
    #[error("the kernel's FUSE client did not answer: {0}")]
    Connection(#[source] io::Error),
    /// io_uring was asked for and is not available.
    #[error("cannot serve FUSE over io_uring: {0}")]
    NoIoUring(String),
    /// Mounted, but there are no threads to serve it.
    #[error("cannot start threads to serve the mount: {0}")]
    Threads(#[source] io::Error),
    /// Mounted, but programs cannot be let into the lane.
    #[error("cannot open the lane: {0}")]
    Lane(#[source] io::Error),
    /// It is still mounted.
    #[error("cannot unmount {}: {message}", mountpoint.display())]
    Unmount {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        message: String,
    },
}

/// How the mount is made.
#[derive(Clone, Debug)]
pub(crate) struct MountRequest {
    /// The source of the mount, as the mount table shows it.
    pub(crate) name: String,
    /// Users other than the daemon's may use it.
    pub(crate) allow_other: bool,
    /// The mount is read-only.
    pub(crate) read_only: bool,
    /// Further options, as mount(8) takes them after `-o`, one each.
    pub(crate) options: Vec<String>,
}

/// Further options, divided by how the kernel takes them.
#[derive(Debug)]
struct Options<'a> {
    flags: MountFlags,
    /// Passed to the file system as they are.
    data: Vec<&'a str>,
}

impl MountRequest {
    fn options(&self) -> Result<Options<'_>, MountError> {
        let mut options = Options { flags: MountFlags::empty(), data: Vec::new() };
        options.flags.set(MountFlags::RDONLY, self.read_only);
        for option in &self.options {
            let (set, flags) = match option.as_str() {
                "ro" => (true, MountFlags::RDONLY),
                "rw" => (self.read_only, MountFlags::RDONLY),
                "suid" => (false, MountFlags::NOSUID),
                "nosuid" => (true, MountFlags::NOSUID),
                "dev" => (false, MountFlags::NODEV),
                "nodev" => (true, MountFlags::NODEV),
                "exec" => (false, MountFlags::NOEXEC),
                "noexec" => (true, MountFlags::NOEXEC),
                "atime" => (false, MountFlags::NOATIME),
                "noatime" => (true, MountFlags::NOATIME),
                "diratime" => (false, MountFlags::NODIRATIME),
                "nodiratime" => (true, MountFlags::NODIRATIME),
                "async" => (false, MountFlags::SYNCHRONOUS),
                "sync" => (true, MountFlags::SYNCHRONOUS),
                "dirsync" => (true, MountFlags::DIRSYNC),
                // These are always in force.
                "default_permissions" | "relatime" | "defaults" => continue,
                option if is_data(option) => {
                    options.data.push(option);
                    continue;
                }
                option => return Err(MountError::UnknownOption(option.to_owned())),
            };
            options.flags.set(flags, set);
        }
        Ok(options)
    }

    /// Options in the form of fusermount3.
    fn helper_options(&self) -> Result<String, MountError> {
        self.options()?;
        let mut options = vec![
            format!("fsname={}", self.name.replace('\\', "\\\\").replace(',', "\\,")),
            "subtype=weir".to_owned(),
            "default_permissions".to_owned(),
        ];
        if self.allow_other {
            options.push("allow_other".to_owned());
        }
        if self.read_only {
            options.push("ro".to_owned());
        }
        let known_already = ["default_permissions", "relatime", "defaults"];
        let rest = self.options.iter().filter(|option| !known_already.contains(&option.as_str()));
        options.extend(rest.cloned());
        Ok(options.join(","))
    }
}

/// Options the kernel's FUSE client and its security modules know themselves.
fn is_data(option: &str) -> bool {
    const KEYS: [&str; 5] = ["max_read=", "context=", "fscontext=", "defcontext=", "rootcontext="];
    KEYS.iter().any(|key| option.starts_with(key))
}

/// Mounts on `mountpoint` and returns the device that the mount's requests come from.
pub(crate) fn mount(mountpoint: &Path, request: &MountRequest) -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    #[expect(clippy::disallowed_methods, reason = "the device is not home")]
    let device = match openat(CWD, DEVICE, flags, Mode::empty()) {
        Ok(device) => device,
        Err(HomeErrno::NOENT) => return Err(MountError::NoDevice),
        // The helper opens it with its own rights.
        Err(HomeErrno::ACCESS) => return mount_by_helper(mountpoint, request),
        Err(errno) => return Err(MountError::Device(errno.into())),
    };
    let options = request.options()?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw(),
    );
    if request.allow_other {
        data.push_str(",allow_other");
    }
    for option in options.data {
        data.push(',');
        data.push_str(option);
    }
    let failed = |source| MountError::Mount { mountpoint: mountpoint.to_owned(), source };
    let data = CString::new(data).map_err(|error| failed(error.into()))?;
    let name = request.name.as_str();
    match rustix::mount::mount(name, mountpoint, FS_TYPE, options.flags, data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(HomeErrno::PERM) => mount_by_helper(mountpoint, request),
        Err(HomeErrno::NODEV) => Err(MountError::NoDevice),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Mounts by fusermount3. It passes the device over a socket, which an environment variable names, and writes errors to
/// its standard error.
fn mount_by_helper(mountpoint: &Path, request: &MountRequest) -> Result<OwnedFd, MountError> {
    let failed = |source| MountError::Mount { mountpoint: mountpoint.to_owned(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    let spawned = Command::new(HELPER)
        .args(["-o", &request.helper_options()?, "--"])
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    drop(theirs);
    let mut helper = match spawned {
        Ok(helper) => helper,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(MountError::NoHelper),
        Err(error) => return Err(failed(error)),
    };
    let received = receive_device(&ours);
    let mut message = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        stderr.read_to_string(&mut message).map_err(failed)?;
    }
    let status = helper.wait().map_err(failed)?;
    match received {
        Ok(Some(device)) if status.success() => Ok(device),
        Err(error) => Err(failed(error)),
        Ok(_) => {
            let message = message.trim().trim_start_matches("fusermount3: ").to_owned();
            Err(MountError::Helper { mountpoint: mountpoint.to_owned(), message })
        }
    }
}

/// The descriptor sent over the socket; `None` if the other side closes it first.
fn receive_device(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    loop {
        match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
            Ok(_) => break,
            Err(HomeErrno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(device)
}

/// Unmounts `mountpoint`. With `lazy` the mount disappears from the tree of names at once, and ends when it is not in use
/// any more.
pub(crate) fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    let failed = |message| MountError::Unmount { mountpoint: mountpoint.to_owned(), message };
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => return Ok(()),
        Err(HomeErrno::PERM) => {}
        Err(HomeErrno::BUSY) => return Err(failed("it is in use".to_owned())),
        Err(errno) => return Err(failed(io::Error::from(errno).to_string())),
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint);
    let output = helper.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => failed(error.to_string()),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(failed(message.trim().trim_start_matches("fusermount3: ").to_owned()))
}

/// A mount of ours, as /proc/self/mountinfo shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The device number of the Weir mount on `mountpoint`, if there is one.
///
/// # Errors
/// /proc/self/mountinfo cannot be read.
pub(crate) fn find_mount(mountpoint: &Path) -> io::Result<Option<DeviceNumber>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    // The last one lies on top.
    Ok(table.split(|&byte| byte == b'\n').rev().find_map(|line| parse_mount(line, mountpoint)))
}

/// Parses one line of mountinfo (proc_pid_mountinfo(5)).
fn parse_mount(line: &[u8], mountpoint: &Path) -> Option<DeviceNumber> {
    let mut fields = line.split(|&byte| byte == b' ');
    let number = std::str::from_utf8(fields.nth(2)?).ok()?;
    let place = unescape(fields.nth(1)?);
    let kind = fields.skip_while(|&field| field != b"-").nth(1)?;
    if place.as_os_str() != mountpoint.as_os_str() || kind != FS_TYPE.as_bytes() {
        return None;
    }
    let (major, minor) = number.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Undoes the octal escapes of mountinfo.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten();
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &tail[3..];
            }
            None => {
                path.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(options: &[&str]) -> MountRequest {
        MountRequest {
            name: "/data,old".to_owned(),
            allow_other: true,
            read_only: false,
            options: options.iter().map(|&option| option.to_owned()).collect(),
        }
    }

    #[test]
    fn options_become_flags_or_data() {
        let request = request(&["noatime", "nodev", "dev", "max_read=4096", "rw"]);
        let options = request.options().unwrap();
        assert_eq!(options.flags, MountFlags::NOATIME);
        assert_eq!(options.data, ["max_read=4096"]);
    }

    #[test]
    fn an_unknown_option_is_named() {
        let error = request(&["noatime", "no_such"]).options().unwrap_err();
        assert_eq!(error.to_string(), "unknown mount option `no_such`");
    }

    #[test]
    fn the_helper_gets_names_with_commas_escaped() {
        let options = request(&["noexec", "relatime"]).helper_options().unwrap();
        assert_eq!(
            options,
            "fsname=/data\\,old,subtype=weir,default_permissions,allow_other,noexec"
        );
    }

    #[test]
    fn mountinfo_lines_are_matched_by_place_and_type() {
        let line = b"40 28 0:51 / /mnt/with\\040space rw,relatime shared:9 - fuse.weir /src rw";
        let place = Path::new("/mnt/with space");
        assert_eq!(parse_mount(line, place), Some(DeviceNumber { major: 0, minor: 51 }));
        assert_eq!(parse_mount(line, Path::new("/mnt/with")), None);
        let other = b"40 28 0:51 / /mnt rw - ext4 /dev/sda rw";
        assert_eq!(parse_mount(other, Path::new("/mnt")), None);
        assert_eq!(parse_mount(b"", place), None);
    }

    #[test]
    fn only_whole_escapes_are_undone() {
        assert_eq!(unescape(b"a\\134b\\04"), Path::new("a\\b\\04"));
    }
}
