//! Where the redo log of a mount is to be, by its settings and by what SOURCE is: the decision of the daemon, and what `weir doctor`
//! tells beforehand.
//!
//! Decides only. Makes nothing, and does not look for a log that was used before, which [`crate::log_place`] does first.

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::local_log;
use crate::settings::{LOG_BYTES_MIN, LogChoice, NamesChoice, Settings};
use crate::source::{self, Source};

/// Where a log is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlan<'a> {
    /// There is to be none.
    Without,
    /// At the path given.
    At(&'a Path),
    /// In a directory of this machine, as SOURCE is on another one.
    OnThisMachine {
        /// Where it is if it cannot be there.
        instead: InSource,
    },
    /// In SOURCE.
    InSource(InSource),
}

/// A log in SOURCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSource {
    /// There is none yet.
    pub is_new: bool,
    /// Bytes of a new one; `None` if too little space is free.
    pub bytes: Option<u64>,
}

/// The path of a log outside SOURCE that the settings name.
pub fn given<'a>(source: &Source, settings: &'a Settings) -> Option<&'a Path> {
    match &settings.log {
        LogChoice::At(path) if !source::is_log_path(source.path(), path) => Some(path),
        _ => None,
    }
}

/// Where the log of a mount of `source` is to be.
pub fn of<'a>(source: &Source, settings: &'a Settings) -> LogPlan<'a> {
    if settings.no_recovery || settings.read_only || settings.log == LogChoice::None {
        return LogPlan::Without;
    }
    if let Some(path) = given(source, settings) {
        return LogPlan::At(path);
    }
    let is_new = !source::log_path(source.path()).exists();
    let in_source = InSource { is_new, bytes: bytes_in_source(source, settings) };
    let in_log = matches!(settings.names, None | Some(NamesChoice::Log));
    match settings.log == LogChoice::Auto && in_log && local_log::is_elsewhere(source) {
        true => LogPlan::OnThisMachine { instead: in_source },
        false => LogPlan::InSource(in_source),
    }
}

/// Bytes of a new log on this machine, in `directory`. `None` if too little space is free.
pub fn local_bytes(directory: BorrowedFd<'_>, settings: &Settings) -> Option<u64> {
    match settings.log_bytes_by_default {
        true => share_of_free(directory, settings.log_bytes),
        false => Some(settings.log_bytes),
    }
}

/// Bytes of a new log: those of `--log-size`, otherwise a small share of the free space. `None` if that
/// is too little.
fn bytes_in_source(source: &Source, settings: &Settings) -> Option<u64> {
    if !settings.log_bytes_by_default || settings.log != LogChoice::Auto {
        return Some(settings.log_bytes);
    }
    share_of_free(source.as_fd(), settings.log_bytes)
}

/// At most `bytes`, and a small share of the space that is free there. `None` if that is too little.
fn share_of_free(place: BorrowedFd<'_>, bytes: u64) -> Option<u64> {
    /// Free space for each byte of the log.
    const FREE_SHARE: u64 = 16;
    let Ok(system) = rustix::fs::fstatvfs(place) else { return Some(bytes) };
    let share = system.f_bavail.saturating_mul(system.f_frsize) / FREE_SHARE;
    let bytes = bytes.min(share / LOG_BYTES_MIN * LOG_BYTES_MIN);
    (bytes >= LOG_BYTES_MIN).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::mounts::MountTable;
    use crate::settings::Layer;

    fn planned(log: Option<&str>, read_only: bool) -> String {
        let name = format!("weir-plan-{}-{}", std::process::id(), log.unwrap_or("auto").len());
        let path: PathBuf = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let source = Source::open(&path, &MountTable::default()).unwrap();
        let log = log.map(|log| log.parse().unwrap());
        let layer = Layer { log, read_only: Some(read_only), ..Layer::default() };
        let settings = layer.resolve().unwrap();
        let plan = format!("{:?}", of(&source, &settings));
        let _ = fs::remove_dir(&path);
        plan
    }

    #[test]
    fn options_come_before_what_source_is() {
        assert!(planned(None, false).starts_with("InSource(InSource { is_new: true"));
        assert!(planned(Some("source"), false).contains("bytes: Some(67108864)"));
        assert_eq!(planned(Some("/log"), false), "At(\"/log\")");
        assert_eq!(planned(Some("none"), false), "Without");
        assert_eq!(planned(Some("/lo"), true), "Without");
    }
}
