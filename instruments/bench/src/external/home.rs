//! The homes: a directory of this machine's own disk, or ext4 on an emulated one.

use std::path::PathBuf;

use clap::ValueEnum;
use strum::{Display, VariantArray};

use crate::cold::drop_machine_caches;
use crate::disk::Model;
use crate::error::Result;
use crate::stage::{self, Emulated, Pace, Run};
use crate::workload::tree::sync;

/// An emulated disk's size.
const DISK_BYTES: u64 = 2 << 30;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Display, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// A directory on this machine's own disk.
    Disk,
    /// ext4 on an emulated hard disk.
    Hdd,
    /// ext4 on an emulated flash drive.
    Ssd,
}

impl Kind {
    fn model(self) -> Option<Model> {
        match self {
            Kind::Disk => None,
            Kind::Hdd => Some(Model::Hdd),
            Kind::Ssd => Some(Model::Ssd),
        }
    }

    /// Bytes that it takes on this machine's disk beside its files.
    pub fn bytes(self) -> u64 {
        self.model().map_or(0, |_| DISK_BYTES)
    }

    /// Fails, saying what to do, where it cannot be had.
    pub fn require(self) -> Result<()> {
        self.model().map_or(Ok(()), |_| stage::require())
    }
}

/// One home, up until this goes.
pub enum Home {
    /// Of [`Kind::Disk`].
    Disk(PathBuf),
    /// Of an emulated disk.
    Emulated(Emulated),
}

impl Home {
    /// Puts it up.
    pub fn start(run: &Run, kind: Kind) -> Result<Home> {
        let work = run.directory(&format!("home-{kind}"))?;
        match kind.model() {
            None => Ok(Home::Disk(work)),
            Some(model) => {
                Emulated::start(run.ledger(), model, DISK_BYTES, None, &work).map(Home::Emulated)
            }
        }
    }

    /// Its directory.
    pub fn directory(&self) -> PathBuf {
        match self {
            Home::Disk(directory) => directory.clone(),
            Home::Emulated(emulated) => emulated.mountpoint().to_owned(),
        }
    }

    /// Everything durable, and nothing of it in memory.
    pub fn make_cold(&self) -> Result<()> {
        sync(&self.directory())?;
        match self {
            Home::Disk(_) => drop_machine_caches(),
            Home::Emulated(emulated) => emulated.make_cold()?,
        }
        Ok(())
    }

    /// Has it take its time, until what is returned goes.
    pub fn pace(&self) -> Result<Option<Pace<'_>>> {
        match self {
            Home::Emulated(emulated) => emulated.pace().map(Some),
            Home::Disk(_) => Ok(None),
        }
    }
}
