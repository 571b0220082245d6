//! `mount -o remount,...`: a mount's flags changed while it is in use.
//!
//! `ro` and `rw`, and dev, suid, exec and atime, are the kernel's: it refuses what they forbid
//! before the daemon hears of it. Everything else about a mount is settled when it is made.
//!
//! Read-only means here what it means for a local file system: what was written before was
//! accepted, and is home and durable when the command says that it is done.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::cli::MountArguments;
use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request, Status};
use crate::failure::Failure;
use crate::mounts::{self, Mount, MountTable};
use crate::settings::Layer;
use crate::unmount;

/// Changes the flags of the mount at MOUNTPOINT to what `wanted` says of them.
pub fn run(arguments: &MountArguments, wanted: &Layer) -> Result<ExitCode, Failure> {
    let mount = find(&arguments.mountpoint)?;
    let flags = flags(&mount, wanted);
    if arguments.helper.fake {
        return Ok(ExitCode::SUCCESS);
    }
    let read_only = flags.contains(MountFlags::RDONLY);
    let place = mount.mount_point.display();
    if read_only {
        // Before, so that programs find it read-only for as short a time as possible if it fails.
        bring_home(&mount)
            .map_err(|why| Failure::Refused(format!("{place} stays writable: {why}")))?;
    } else if status(&mount)?.mounted_read_only {
        return Err(Failure::Refused(format!(
            "cannot make {place} writable: it was mounted read-only, without a redo log: \
             'weir umount' it and mount it with rw"
        )));
    }
    rustix::mount::mount_remount(&mount.mount_point, flags, c"")
        .map_err(|errno| refused(&mount, errno))?;
    if read_only {
        bring_home(&mount).map_err(|why| {
            Failure::Refused(format!("{place} is read-only from now on, but {why}"))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The Weir mount at exactly this place.
fn find(mountpoint: &Path) -> Result<Mount, Failure> {
    let table = MountTable::read()
        .map_err(|error| Failure::Refused(format!("cannot read the mount table: {error}")))?;
    let at = |path: PathBuf| table.at(&path).filter(|mount| mount.is_weir()).cloned();
    // By its name first: a mount whose daemon is stuck would hang what touches it.
    let clean = mounts::absolute(mountpoint).ok().and_then(at);
    clean.or_else(|| mountpoint.canonicalize().ok().and_then(at)).ok_or_else(|| {
        Failure::Refused(format!(
            "cannot remount {}: no weir mount is there; 'weir status' lists those there are",
            mountpoint.display()
        ))
    })
}

/// The flags for mount(2): those in force, changed as `wanted` says. mount(2) takes away what is
/// not named.
fn flags(mount: &Mount, wanted: &Layer) -> MountFlags {
    let here = |name: &str| mount.options.split(',').any(|option| option == name);
    let of_all = |name: &str| mount.super_options.split(',').any(|option| option == name);
    let mut flags = MountFlags::empty();
    for (flag, on) in [
        (MountFlags::RDONLY, wanted.read_only.unwrap_or(here("ro") || of_all("ro"))),
        (MountFlags::NODEV, !wanted.dev.unwrap_or(!here("nodev"))),
        (MountFlags::NOSUID, !wanted.suid.unwrap_or(!here("nosuid"))),
        (MountFlags::NOEXEC, !wanted.exec.unwrap_or(!here("noexec"))),
        (MountFlags::NOATIME, !wanted.atime.unwrap_or(!here("noatime"))),
        (MountFlags::NODIRATIME, here("nodiratime")),
        (MountFlags::SYNCHRONOUS, of_all("sync")),
        (MountFlags::DIRSYNC, of_all("dirsync")),
    ] {
        flags.set(flag, on);
    }
    flags
}

fn refused(mount: &Mount, errno: Errno) -> Failure {
    let place = mount.mount_point.display();
    Failure::Refused(match errno {
        Errno::PERM => format!("cannot remount {place}: only root may"),
        Errno::BUSY => {
            let users = unmount::users(&mount.mount_point).join(", ");
            let by = if users.is_empty() { users } else { format!("; it is in use by {users}") };
            format!("{place} stays writable: programs have files open for writing{by}")
        }
        errno => format!("cannot remount {place}: {errno}"),
    })
}

/// Has everything written so far brought home; the error says what is not.
fn bring_home(mount: &Mount) -> Result<(), String> {
    let asked = Daemon::connect(mount).and_then(|daemon| daemon.ask(&Request::Sync));
    match asked.map_err(|error| error.to_string())? {
        Reply::Failed { message } => Err(message),
        _ => Ok(()),
    }
}

fn status(mount: &Mount) -> Result<Status, Failure> {
    match Daemon::connect(mount)?.ask(&Request::Status)? {
        Reply::Status { status } => Ok(*status),
        Reply::Failed { message } => Err(Failure::Refused(message)),
        Reply::Done => Ok(Status::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(options: &str, of_all: &str) -> Mount {
        let line = format!("9 1 0:9 / /mnt {options} - fuse.weir /srv {of_all}\n");
        MountTable::parse(line.as_bytes()).at(Path::new("/mnt")).unwrap().clone()
    }

    #[test]
    fn what_is_not_named_stays() {
        let now = mount("rw,nosuid,nodev,noatime", "rw,user_id=0");
        let kept = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        assert_eq!(flags(&now, &Layer::default()), kept);
        let wanted = Layer { read_only: Some(true), ..Layer::default() };
        assert_eq!(flags(&now, &wanted), kept | MountFlags::RDONLY);
        let wanted = Layer { read_only: Some(false), dev: Some(true), ..Layer::default() };
        let now = mount("ro,nosuid,nodev", "ro,user_id=0");
        assert_eq!(flags(&now, &wanted), MountFlags::NOSUID);
    }
}
