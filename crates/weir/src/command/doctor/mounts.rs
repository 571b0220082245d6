//! Mounts whose daemon does not answer, and redo logs that hold what their SOURCE lacks: of SOURCE, of each line of /etc/fstab that
//! Weir serves, and in the directory of logs on this machine.
//!
//! No mounted file is touched, so that a daemon that is stuck does not hang this command.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_backend::{LogFile, LogPlace, without_void};
use weir_log::{Scan, Superblock};

use super::finding::Findings;
use crate::control::ControlError;
use crate::control::client::Daemon;
use crate::control::protocol::Request;
use crate::holder;
use crate::local_log;
use crate::log_place::Logs;
use crate::mounts::{self, Device, Mount, MountTable};
use crate::own_directory::OwnDirectory;
use crate::shell_word::word;
use crate::source::Source;

const MOUNTS: &str = "mounts";
const RECOVERY: &str = "recovery";

/// Looks at all mounts, and at the logs of what is not mounted.
pub fn check(asked: Option<&Path>, table: &MountTable, findings: &mut Findings) {
    daemons(table, findings);
    let asked = asked.and_then(|path| path.canonicalize().ok());
    for source in in_fstab() {
        let Ok(source) = Source::open(&source, table) else { continue };
        let is_free =
            table.of_source(source.path()).is_none() && holder::holder(source.path()).is_none();
        if is_free && asked.as_deref() != Some(source.path()) {
            log_left(&source, findings);
        }
    }
    local_logs(findings);
}

fn daemons(table: &MountTable, findings: &mut Findings) {
    let mut answered = 0;
    for mount in table.weir() {
        let at = mount.mount_point.display();
        let asked = Daemon::connect(mount).and_then(|daemon| daemon.ask_briefly(&Request::Status));
        match asked {
            Ok(_) => answered += 1,
            Err(ControlError::Denied { .. }) => {}
            Err(error) => {
                let mend = mend_daemon(&error, mount);
                findings.note(MOUNTS, format!("{at}: {error}"), Some(mend));
            }
        }
    }
    match answered {
        0 if table.weir().is_empty() => findings.ok(MOUNTS, "there are none"),
        0 => {}
        1 => findings.ok(MOUNTS, "one, whose daemon answers"),
        all => findings.ok(MOUNTS, format!("{all}, whose daemons answer")),
    }
}

fn mend_daemon(error: &ControlError, mount: &Mount) -> String {
    let at = word(&mount.mount_point);
    match error {
        ControlError::Dead(_) => format!("weir umount {at}"),
        ControlError::Unreachable(_) => format!("umount {at}"),
        _ => format!("look at its log, /var/log/weir; this waits for it: weir umount {at}"),
    }
}

/// SOURCE of each line of fstab(5) that Weir serves.
fn in_fstab() -> Vec<PathBuf> {
    let text = fs::read("/etc/fstab").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(source_of_line).collect()
}

fn source_of_line(line: &[u8]) -> Option<PathBuf> {
    let mut fields =
        line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty());
    let (source, _, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let is_weir = kind == mounts::FS_TYPE.as_bytes() && !source.starts_with(b"#");
    is_weir.then(|| mounts::unescape(source).into())
}

/// Whether a SOURCE that is not mounted lacks what its log holds.
pub fn log_left(source: &Source, findings: &mut Findings) {
    let (shown, argument) = (source.path().display(), word(source.path()));
    let own = match OwnDirectory::open_to_look(source.as_fd(), source.path()) {
        Ok(own) => own,
        Err(error) => {
            let own = word(&source.path().join(".weir"));
            let mend = format!("chown and chmod {own} so that only this user may write it");
            return findings.problem(RECOVERY, error.to_string(), Some(mend));
        }
    };
    let left = match Logs::new(source, own.as_ref()).left() {
        Ok(left) => left,
        Err(error) => {
            let mend = Some(format!("weir log {argument} shows what can be read of it"));
            return findings.problem(RECOVERY, error.to_string(), mend);
        }
    };
    let Some(log) = left else {
        return findings.ok(RECOVERY, format!("{shown} lacks nothing that a log holds"));
    };
    let at = log.display();
    if !log.exists() {
        return findings.problem(
            RECOVERY,
            format!(
                "{shown} lacks what was synced last: it is in the log {at}, which is not there"
            ),
            Some(format!("weir recover --log PATH {argument}, with the path that it has now")),
        );
    }
    match read(&log, source) {
        Ok((groups, bytes)) => findings.note(
            RECOVERY,
            format!(
                "{shown} lacks what its log {at} holds ({groups} groups, {bytes} bytes): the next mount brings it home"
            ),
            Some(format!("weir recover {argument}")),
        ),
        Err(why) => findings.problem(
            RECOVERY,
            format!("{shown} lacks what its log {at} holds, and the log cannot be replayed: {why}"),
            Some(format!("weir log {argument} shows what can be read of it; keep a copy of both")),
        ),
    }
}

/// Groups and bytes of a log that are to be replayed, or why it cannot be read.
fn read(log: &Path, source: &Source) -> Result<(u64, u64), String> {
    let opened = LogPlace::at(log).and_then(|place| LogFile::open_to_look(&place));
    let file = opened.map_err(|error| error.to_string())?;
    let superblock: Option<Superblock> = file.superblock().map_err(|error| error.to_string())?;
    let Some(superblock) = superblock else { return Ok((0, 0)) };
    let superblock = without_void(source.as_fd(), superblock).map_err(|error| error.to_string())?;
    let mut reader = &file;
    let mut scan = Scan::new(&mut reader, superblock);
    let (mut groups, mut bytes) = (0, 0);
    loop {
        match scan.next_group().map_err(|error| error.to_string())? {
            Ok(group) => {
                group.records().map_err(|error| error.to_string())?;
                groups += 1;
                bytes += u64::from(group.header.bytes);
                scan.recycle(group);
            }
            Err(_) => return Ok((groups, bytes)),
        }
    }
}

/// Logs on this machine that no daemon has open: their SOURCE, which is on another machine, is not mounted.
fn local_logs(findings: &mut Findings) {
    let Some(directory) = local_log::directory() else { return };
    let Ok(entries) = fs::read_dir(&directory) else { return };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| is_log(path)) {
        let Ok(found) = fs::metadata(path) else { continue };
        let is_clean = LogPlace::at(path)
            .and_then(|place| LogFile::open_to_look(&place)?.superblock())
            .is_ok_and(|superblock| superblock.is_none_or(|superblock| superblock.clean));
        if !is_clean && !is_locked(&locks, found.dev(), found.ino()) {
            findings.note(
                RECOVERY,
                format!("the log {} holds what a SOURCE on another machine lacks", path.display()),
                Some(
                    "mount that SOURCE again, or 'weir recover' it; do not remove the log"
                        .to_owned(),
                ),
            );
        }
    }
}

fn is_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"log-"))
}

/// Whether a process has locked a file by flock(2), as /proc/locks has it: `1: FLOCK  ADVISORY  WRITE 71 fe:00:1234 0 EOF`.
fn is_locked(locks: &str, device: u64, inode: u64) -> bool {
    let Device { major, minor } = Device::from_raw(device);
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1) == Some("FLOCK") && words.any(|word| word == file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_fstab_name_sources() {
        let source = |line: &str| source_of_line(line.as_bytes());
        let line = "/srv/my\\040data\t/mnt/data fuse.weir allow_other,nofail 0 0";
        assert_eq!(source(line), Some("/srv/my data".into()));
        assert_eq!(source("#/srv/data /mnt/data fuse.weir defaults 0 0"), None);
        assert_eq!(source("/dev/sda1 / ext4 defaults 0 1"), None);
        assert_eq!(source("/srv/data /mnt/data"), None);
    }

    #[test]
    fn locks_are_found_by_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:11 0 EOF\n2: FLOCK  ADVISORY  WRITE 71 fe:00:12 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert!(is_locked(locks, device, 12));
        assert!(!is_locked(locks, device, 11));
        assert!(!is_locked(locks, rustix::fs::makedev(0xfe, 1), 12));
    }
}
