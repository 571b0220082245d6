//! What holds for one SOURCE and one MOUNTPOINT: whether they can be used, what kind of home SOURCE is, and where its log would be.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use weir_backend::home_names::HomeNames;
use weir_backend::{can_be_logged, is_rotational, takes_direct};

use super::finding::Findings;
use super::mounts::log_left;
use crate::control::ControlError;
use crate::control::client::Daemon;
use crate::daemon::log_plan::{self, InSource, LogPlan};
use crate::holder;
use crate::local_log;
use crate::mountpoint::{self, MountpointError};
use crate::mounts::{Device, Mount, MountTable, absolute};
use crate::quantity::Size;
use crate::settings::Settings;
use crate::shell_word::word;
use crate::source::{Source, SourceError};

/// Looks at SOURCE, and at MOUNTPOINT if it is given.
pub fn check(
    source: &Path,
    mountpoint: Option<&Path>,
    settings: &Settings,
    mounts: &MountTable,
    findings: &mut Findings,
) {
    const CHECK: &str = "source";
    let source = match Source::open(source, mounts) {
        Ok(source) => source,
        Err(error) => {
            let mend = match &error {
                SourceError::Missing(path) => Some(format!("mkdir -p {}", word(path))),
                SourceError::InsideWeir { behind, .. } => {
                    Some(format!("name {} instead", word(behind)))
                }
                _ => None,
            };
            return findings.problem(CHECK, error.to_string(), mend);
        }
    };
    let shown = source.path().display();
    let served = mounts.of_source(source.path());
    // A mount whose daemon has died serves nothing: what is said of MOUNTPOINT and of all mounts tells of it.
    let is_dead = |mount: &&Mount| matches!(Daemon::connect(mount), Err(ControlError::Dead(_)));
    if let Some(mount) = served.filter(|mount| !is_dead(mount)) {
        let at = mount.mount_point.display();
        let is_it = mountpoint.and_then(|path| absolute(path).ok());
        match is_it.is_none_or(|path| path == mount.mount_point) {
            true => findings.ok(CHECK, format!("{shown} is served at {at}")),
            false => findings.problem(
                CHECK,
                format!("{shown} is already served at {at}"),
                Some(format!("weir umount {}", word(&mount.mount_point))),
            ),
        }
        return home(&source, settings, mounts, findings);
    }
    if let Some(holder) = holder::holder(source.path()) {
        findings.problem(
            CHECK,
            format!(
                "{shown} is locked by process {}, which has it mounted at {} in another mount namespace, or still writes home",
                holder.pid,
                holder.mountpoint.display()
            ),
            Some(format!("weir umount {}", word(source.path()))),
        );
        return home(&source, settings, mounts, findings);
    }
    match source.check_nesting() {
        Ok(()) => findings.ok(CHECK, format!("{shown} can be served")),
        Err(error) => findings.problem(CHECK, error.to_string(), None),
    }
    home(&source, settings, mounts, findings);
    log(&source, settings, mounts, findings);
    log_left(&source, findings);
    if let Some(mountpoint) = mountpoint {
        at(mountpoint, &source, mounts, findings);
    }
}

fn at(path: &Path, source: &Source, mounts: &MountTable, findings: &mut Findings) {
    const CHECK: &str = "mountpoint";
    match mountpoint::check(path, source.path(), mounts) {
        Ok(path) => findings.ok(CHECK, format!("{} is free", path.display())),
        Err(error) => {
            let shown = word(path);
            let mend = match &error {
                MountpointError::Missing(_) => Some(format!("mkdir -p {shown}")),
                MountpointError::AlreadyMounted { .. } | MountpointError::Dead(_) => {
                    Some(format!("weir umount {shown}"))
                }
                _ => Some("name an empty directory of yours outside SOURCE".to_owned()),
            };
            findings.problem(CHECK, error.to_string(), mend);
        }
    }
}

/// What kind of home SOURCE is.
fn home(source: &Source, settings: &Settings, mounts: &MountTable, findings: &mut Findings) {
    const CHECK: &str = "home";
    let is_elsewhere = local_log::is_elsewhere(source);
    let by_handle = HomeNames::new(source.as_fd()).is_ok_and(|names| names.are_by_handle());
    let yes = |is: bool, one: &'static str, other: &'static str| if is { one } else { other };
    let found = format!(
        "{}, {}; files are found {}; transferred {}{}",
        disk_of(source.as_fd(), source.path(), mounts),
        yes(is_elsewhere, "on another machine", "on this machine"),
        yes(by_handle, "by handle", "by path"),
        yes(takes_direct(source.as_fd()), "with O_DIRECT", "through the page cache"),
        yes(is_rotational(source.as_fd()), "; it rotates", ""),
    );
    if !source.is_writable() {
        let mend = "make it writable, or mount it with --read-only".to_owned();
        return findings.note(CHECK, format!("{found}; it cannot be written"), Some(mend));
    }
    if !by_handle && !is_elsewhere && settings.names.is_none() {
        let mend = "mount as root, or serve a directory of ext4, xfs or btrfs; or give --names log"
            .to_owned();
        return findings.note(
            CHECK,
            format!("{found}; so changes of names wait for it (--names sync)"),
            Some(mend),
        );
    }
    findings.ok(CHECK, found);
}

/// Where the log of SOURCE would be.
fn log(source: &Source, settings: &Settings, mounts: &MountTable, findings: &mut Findings) {
    const CHECK: &str = "log";
    let elsewhere = || Some("weir mount --log PATH, on a disk of this machine".to_owned());
    if let Err(error) = can_be_logged(source.as_fd()) {
        return findings.note(
            CHECK,
            format!("none: the files of SOURCE cannot be named in it: {error}"),
            Some("serve a directory of a local file system".to_owned()),
        );
    }
    match log_plan::of(source, settings) {
        LogPlan::Without => findings.note(
            CHECK,
            "none, as the configuration asks for: an fsync waits until SOURCE has the data",
            Some(
                "remove 'log', 'read-only' or 'norecovery' from the configuration file".to_owned(),
            ),
        ),
        LogPlan::At(path) => at_path(path, settings, mounts, findings),
        LogPlan::OnThisMachine { .. } => on_this_machine(settings, mounts, findings),
        LogPlan::InSource(InSource { is_new: false, .. }) => {
            findings.ok(CHECK, "the one in SOURCE/.weir, which exists");
        }
        LogPlan::InSource(InSource { bytes: Some(bytes), .. }) => {
            let place = room(source.as_fd(), source.path(), mounts);
            match free(source.as_fd()).is_some_and(|free| free < bytes) {
                false => findings.ok(CHECK, format!("{} in SOURCE/.weir, {place}", Size(bytes))),
                true => findings.problem(
                    CHECK,
                    format!("{} in SOURCE/.weir do not fit: {place}", Size(bytes)),
                    elsewhere(),
                ),
            }
        }
        LogPlan::InSource(InSource { bytes: None, .. }) => findings.note(
            CHECK,
            format!(
                "none: SOURCE has too little space, {}",
                room(source.as_fd(), source.path(), mounts)
            ),
            elsewhere(),
        ),
    }
}

fn at_path(path: &Path, settings: &Settings, mounts: &MountTable, findings: &mut Findings) {
    const CHECK: &str = "log";
    let shown = path.display();
    if path.exists() {
        return findings.ok(CHECK, format!("{shown}, which exists"));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    match File::open(directory) {
        Ok(open) if free(open.as_fd()).is_none_or(|free| free >= settings.log_bytes) => {
            let place = room(open.as_fd(), directory, mounts);
            findings
                .ok(CHECK, format!("{shown}, {} to be made, {place}", Size(settings.log_bytes)));
        }
        Ok(open) => findings.problem(
            CHECK,
            format!("{shown} does not fit: {}", room(open.as_fd(), directory, mounts)),
            Some("make room there, or name another place with --log".to_owned()),
        ),
        Err(error) => findings.problem(
            CHECK,
            format!("{shown} cannot be made: {}: {error}", directory.display()),
            Some(format!("mkdir -p {}", word(directory))),
        ),
    }
}

fn on_this_machine(settings: &Settings, mounts: &MountTable, findings: &mut Findings) {
    const CHECK: &str = "log";
    let in_source = "in SOURCE, so that each fsync waits for the network";
    let Some(directory) = local_log::directory() else {
        let mend = "set HOME or XDG_STATE_HOME".to_owned();
        return findings.note(
            CHECK,
            format!("{in_source}: no directory of this user is known"),
            Some(mend),
        );
    };
    // It is made with the first log.
    let exists: PathBuf =
        directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).into();
    let shown = directory.display();
    match File::open(&exists) {
        Ok(open) => match log_plan::local_bytes(open.as_fd(), settings) {
            Some(bytes) => findings.ok(
                CHECK,
                format!(
                    "{} in {shown}, as SOURCE is on another machine; {}",
                    Size(bytes),
                    room(open.as_fd(), &exists, mounts)
                ),
            ),
            None => findings.note(
                CHECK,
                format!(
                    "{in_source}: {shown} has too little space, {}",
                    room(open.as_fd(), &exists, mounts)
                ),
                Some("make room there, or give --log PATH".to_owned()),
            ),
        },
        Err(error) => findings.note(
            CHECK,
            format!("{in_source}: {} cannot be used: {error}", exists.display()),
            Some(format!("mkdir -p {}", word(&directory))),
        ),
    }
}

/// `12.3 GiB are free on ext4 (/dev/sda1), which rotates`.
fn room(directory: BorrowedFd<'_>, path: &Path, mounts: &MountTable) -> String {
    let free =
        free(directory).map_or("an unknown amount".to_owned(), |free| Size(free).to_string());
    let rotates = if is_rotational(directory) { ", which rotates" } else { "" };
    format!("{free} free on {}{rotates}", disk_of(directory, path, mounts))
}

fn free(directory: BorrowedFd<'_>) -> Option<u64> {
    let system = rustix::fs::fstatvfs(directory).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// `ext4 (/dev/sda1)`.
fn disk_of(file: BorrowedFd<'_>, path: &Path, mounts: &MountTable) -> String {
    let by_device = |stat: rustix::fs::Stat| mounts.of_device(Device::from_raw(stat.st_dev));
    // btrfs gives each subvolume a device number that is not in the table.
    let mount: Option<&Mount> =
        rustix::fs::fstat(file).ok().and_then(by_device).or_else(|| mounts.containing(path));
    mount.map_or("an unknown file system".to_owned(), |mount| {
        format!("{} ({})", mount.fs_type, mount.source.display())
    })
}
