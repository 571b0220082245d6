//! Where home locations live: a directory of ordinary files.
//!
//! Executes the engine's [`Command`](weir_engine::Command)s: [`Directory`] does the transfers, a
//! [`HomeFile`] is one file they go to. Knows files by their descriptors only, never by name. Beside them,
//! [`home_names`] executes the commands on names and attributes.
//!
//! Architecture invariants: the engine alone decides what is read or written, and when; unsafe code is in
//! `allocation`, `ring`, `busy_poll`, `policy`, `identity`, `extents`, `replaced` and `home_names/credentials` alone.
//!
//! ```
//! use weir_backend::error_kind;
//! use weir_engine::ErrorKind;
//!
//! let full = std::io::Error::from_raw_os_error(28); // ENOSPC
//! assert_eq!(error_kind(&full), ErrorKind::NoSpace);
//! ```

#![deny(unsafe_code)]

mod allocation;
mod at_once;
mod binding;
mod busy_poll;
mod cleared_flags;
mod directory;
mod error;
mod exclusion;
mod extents;
mod flags;
mod home_file;
pub mod home_names;
mod identity;
mod jobs;
mod latency_estimate;
mod log_file;
mod look;
mod notes;
mod on_device;
mod partial;
mod policy;
mod proc_path;
mod ranges;
mod recovery;
mod recovery_names;
mod recovery_progress;
mod redo;
mod redo_log;
mod replaced;
mod reservations;
mod ring;
mod rotation;
mod times;
mod transfer;
mod unsynced;
mod void;
mod whole;

#[cfg(test)]
mod tests;

pub use at_once::{AtOnce, Changing};
pub use busy_poll::enable_busy_poll;
pub use directory::{Directory, Method, Patience, Sink, takes_direct};
pub use error::error_kind;
pub use flags::set_flags_again;
pub use home_file::HomeFile;
pub use identity::Naming;
pub use log_file::{LogFile, LogFileError, LogPlace, random};
pub use look::{Look, Seen};
pub use policy::Policy;
pub use proc_path::shown_path;
pub use ranges::Copied;
pub use recovery::RecoveryError;
pub use recovery_names::{
    Counts, GivenUp, KeptDirectory, LeftName, LeftReason, NameConflict, NameRecord,
    NamesRecoveryError, RecoveredNames, forget_recovered_names, recover_names,
};
pub use recovery_progress::{RecoveryPhase, RecoveryProgress};
pub use redo_log::{
    Given, Lefts, LogOwner, LogRead, LogState, LogThread, NOBODY, OpenLogError, RecoveredLog,
    RedoLog, can_be_logged, lasting_identity, look, recover, recover_watched,
};
pub use replaced::replace;
pub use reservations::give_back_reserved;
pub use ring::try_ring;
pub use rotation::is_rotational;
pub use times::{Times, Timestamp};
pub use unsynced::{Lost, Unsynced};
pub use void::without_void;
pub use whole::{Failures, SyncFailed, WholeSync};
