//! `mount -o remount,...`: changes a mount's flags while it is in use.
//!
//! The kernel implements `ro` and `rw`, and dev, suid, exec and atime: it refuses forbidden
//! operations before they reach the daemon. Other properties of a mount cannot be changed.
//!
//! Read-only means the same as for a local file system: earlier writes were accepted, and they are
//! home and durable when the command returns.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::cli::MountArguments;
use crate::control::client::Daemon;
use crate::control::protocol::{Reply, Request, Status};
use crate::failure::Failure;
use crate::http::ListenAddress;
use crate::mounts::{self, Mount, MountTable};
use crate::settings::Layer;
use crate::unmount;

/// Sets the flags of the mount at MOUNTPOINT as `wanted` asks.
pub fn run(arguments: &MountArguments, wanted: &Layer) -> Result<ExitCode, Failure> {
    let mount = find(&arguments.mountpoint)?;
    let flags = flags(&mount, wanted);
    if arguments.helper.fake {
        return Ok(ExitCode::SUCCESS);
    }
    let read_only = flags.contains(MountFlags::RDONLY);
    let place = mount.mount_point.display();
    if let Some(metrics) = wanted.metrics {
        check_metrics(&mount, metrics)?;
    }
    if read_only {
        // Before the remount: if this fails, programs never find the mount read-only.
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
    // By name first: looking up a path in a mount whose daemon is stuck would hang.
    let clean = mounts::absolute(mountpoint).ok().and_then(at);
    clean.or_else(|| mountpoint.canonicalize().ok().and_then(at)).ok_or_else(|| {
        Failure::Refused(format!(
            "cannot remount {}: no weir mount is there; 'weir status' lists those there are",
            mountpoint.display()
        ))
    })
}

/// The flags for mount(2): those in force, with the changes that `wanted` asks for. mount(2) clears
/// flags that are not given.
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

/// Refuses another place for metrics than the mount has. mount(8) repeats what fstab says, which may be the present one.
fn check_metrics(mount: &Mount, wanted: ListenAddress) -> Result<(), Failure> {
    let served = status(mount)?.metrics;
    let is_same = served.parse::<ListenAddress>().is_ok_and(|served| {
        let is_port = wanted.0.port() == 0 || wanted.0.port() == served.0.port();
        is_port && wanted.0.ip() == served.0.ip()
    });
    let place = mount.mount_point.display();
    match (is_same, served.as_str()) {
        (true, _) => Ok(()),
        (false, "") => Err(Failure::Refused(format!(
            "cannot serve metrics of {place} at {wanted}: it was mounted without --metrics: 'weir umount' it and mount it \
             with that"
        ))),
        (false, served) => Err(Failure::Refused(format!(
            "cannot serve metrics of {place} at {wanted}: it was mounted with --metrics {served}: leave the option out, or \
             'weir umount' it and mount it again"
        ))),
    }
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

/// Brings home everything written so far. The error tells what is not home.
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
        Reply::Done | Reply::Session => Ok(Status::default()),
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
    fn flags_that_are_not_given_stay() {
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
