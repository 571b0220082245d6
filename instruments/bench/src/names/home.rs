//! The homes: where programs work directly, and what Weir is put in front of.
//!
//! Owns what a home is made of. Its files can be reached without its delays, too: for preparing and comparing, which
//! are no part of the figures.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use strum::{Display, VariantArray};

use crate::cold::drop_machine_caches;
use crate::disk::Model;
use crate::error::Result;
use crate::stage::{self, Emulated, Pace, Remote, Run};
use crate::workload::tree::sync;

/// The emulated disk's size.
const DISK_BYTES: u64 = 2 << 30;
/// Half of sshfs's round trip of 1 ms.
const DELAY: Duration = Duration::from_micros(500);

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Display, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// A directory on this machine's own disk.
    Disk,
    /// ext4 on an emulated hard disk.
    Hdd,
    /// A mount by sshfs with a round trip of 1 ms.
    Sshfs,
}

impl Kind {
    /// Bytes that it takes on this machine's disk beside its files.
    pub fn bytes(self) -> u64 {
        if self == Kind::Hdd { DISK_BYTES } else { 0 }
    }

    /// Fails, saying what to do, where it cannot be had.
    pub fn require(self) -> Result<()> {
        match self {
            Kind::Disk => Ok(()),
            Kind::Hdd => stage::require(),
            Kind::Sshfs => stage::require_remote(),
        }
    }
}

/// One home, up until this goes.
pub enum Home {
    /// Of [`Kind::Disk`].
    Disk(PathBuf),
    /// Of [`Kind::Hdd`].
    Emulated(Emulated),
    /// Of [`Kind::Sshfs`].
    Remote(Remote),
}

impl Home {
    /// Puts it up.
    pub fn start(run: &Run, kind: Kind) -> Result<Home> {
        let work = run.directory(&format!("home-{kind}"))?;
        let ledger = run.ledger();
        match kind {
            Kind::Disk => Ok(Home::Disk(work)),
            Kind::Hdd => {
                Emulated::start(ledger, Model::Hdd, DISK_BYTES, None, &work).map(Home::Emulated)
            }
            Kind::Sshfs => Remote::start(ledger, &work, DELAY).map(Home::Remote),
        }
    }

    /// Its files as programs reach them.
    pub fn shown(&self) -> PathBuf {
        match self {
            Home::Disk(directory) => directory.clone(),
            Home::Emulated(emulated) => emulated.mountpoint().to_owned(),
            Home::Remote(remote) => remote.mountpoint(),
        }
    }

    /// Its files where reaching them costs no time of the home's, unless it is paced.
    pub fn files(&self) -> PathBuf {
        match self {
            Home::Disk(_) | Home::Emulated(_) => self.shown(),
            Home::Remote(remote) => remote.files(),
        }
    }

    /// Everything durable, and nothing of it in memory.
    pub fn make_cold(&self) -> Result<()> {
        sync(&self.files())?;
        match self {
            Home::Disk(_) => {}
            Home::Emulated(emulated) => return emulated.make_cold(),
            Home::Remote(remote) => remote.make_cold()?,
        }
        drop_machine_caches();
        Ok(())
    }

    /// Has it take its time, until what is returned goes. A mount by sshfs always does.
    pub fn pace(&self) -> Result<Option<Pace<'_>>> {
        match self {
            Home::Emulated(emulated) => emulated.pace().map(Some),
            Home::Disk(_) | Home::Remote(_) => Ok(None),
        }
    }
}
