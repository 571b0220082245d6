//! The daemon's log: its place, and its bound.
//!
//! Invariant: a log takes at most twice [`LOG_BYTES_MAX`] of disk, however long the daemon runs
//! and however often a back end fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config_file::absolute_variable;

/// Size at which a log is renamed to `NAME.old` and a new one is begun.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// A log file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the log {}: {error}", path.display())]
pub struct LogError {
    path: PathBuf,
    error: io::Error,
}

/// Logs to standard error.
pub fn to_terminal(level: Level) {
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry().with(layer).with(filter(level)).init();
}

/// Logs to a file, created if it is missing, and sends standard error there too, for the messages of
/// panics and helper programs.
pub fn to_file(path: &Path, level: Level) -> Result<(), LogError> {
    let file = LogFile::open(path).map_err(|error| LogError { path: path.to_owned(), error })?;
    let layer = tracing_subscriber::fmt::layer().with_writer(Mutex::new(file)).with_ansi(false);
    tracing_subscriber::registry().with(layer).with(filter(level)).init();
    Ok(())
}

fn filter(level: Level) -> Targets {
    Targets::new().with_default(LevelFilter::from_level(level))
}

/// The default log of a mount: in `/var/log/weir` for root, otherwise in `$XDG_STATE_HOME/weir`. `None` if
/// neither is known.
pub fn default_path(mountpoint: &Path) -> Option<PathBuf> {
    let directory = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/log/weir")
    } else {
        absolute_variable("XDG_STATE_HOME")
            .or_else(|| absolute_variable("HOME").map(|home| home.join(".local/state")))?
            .join("weir")
    };
    Some(directory.join(file_name(mountpoint)))
}

/// The name of a mount point's log. A file name has at most 255 bytes.
fn file_name(mountpoint: &Path) -> OsString {
    let mut name = one_name(mountpoint, 240);
    name.push(".log");
    name
}

/// A path as one name, like systemd-escape(1): `/` becomes `-`, and a `-` is escaped. It has at most `most` bytes: the end of a long path
/// says more than its beginning.
pub fn one_name(path: &Path, most: usize) -> OsString {
    let path = path.as_os_str().as_bytes();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let mut name = Vec::with_capacity(path.len() + 4);
    for (index, &byte) in path.iter().enumerate() {
        match byte {
            b'/' => name.push(b'-'),
            b'.' if index > 0 => name.push(byte),
            b'_' | b':' => name.push(byte),
            _ if byte.is_ascii_alphanumeric() => name.push(byte),
            _ => name.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    let keep = name.len().saturating_sub(most);
    OsString::from_vec(name.split_off(keep))
}

/// The open log.
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<LogFile> {
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file = open_for_append(path)?;
        let bytes = file.metadata()?.len();
        rustix::stdio::dup2_stderr(file.as_fd())?;
        Ok(LogFile { path: path.to_owned(), file, bytes })
    }

    /// Renames a full log. If that fails the log grows on, which is better than no log.
    fn rotate(&mut self) {
        let mut aside = self.path.clone().into_os_string();
        aside.push(".old");
        let renewed = fs::rename(&self.path, aside).and_then(|()| open_for_append(&self.path));
        if let Ok(file) = renewed {
            let _ = rustix::stdio::dup2_stderr(file.as_fd());
            self.file = file;
        }
        self.bytes = 0;
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o640).open(path)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.bytes >= LOG_BYTES_MAX && self.file.metadata()?.is_file() {
            self.rotate();
        }
        let written = self.file.write(line)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_mount_points_apart() {
        let name = |path: &str| file_name(Path::new(path)).into_string().unwrap();
        assert_eq!(name("/mnt/data"), "mnt-data.log");
        assert_eq!(name("/mnt-data"), "mnt\\x2ddata.log");
        assert_eq!(name("/.a b/c.d"), "\\x2ea\\x20b-c.d.log");
        assert_eq!(name("/"), ".log");
        assert!(name(&format!("/{}", "é".repeat(200))).len() <= 255);
    }

    #[test]
    fn a_full_log_is_renamed() {
        let directory = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("x.log");
        // Not LogFile::open, which would redirect the test's standard error.
        let mut log =
            LogFile { path: path.clone(), file: open_for_append(&path).unwrap(), bytes: 0 };
        log.write_all(b"first\n").unwrap();
        log.bytes = LOG_BYTES_MAX;
        let stderr = rustix::io::dup(io::stderr()).unwrap();
        log.write_all(b"second\n").unwrap();
        rustix::stdio::dup2_stderr(stderr.as_fd()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second\n");
        assert_eq!(fs::read(directory.join("x.log.old")).unwrap(), b"first\n");
        fs::remove_dir_all(directory).unwrap();
    }
}
