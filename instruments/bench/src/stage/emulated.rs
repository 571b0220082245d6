//! An emulated disk with a kernel file system on it.
//!
//! Owns both, and what lists them in the run's ledger. The disk is unpaced but while a [`Pace`] is held.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::file_system::FileSystem;
use super::ledger::{Ledger, Listed, Thing};
use super::process::Process;
use crate::cleanup::{Undo, undo};
use crate::disk::{Disk, Model};
use crate::error::{Doing, Error, Result};

/// A disk and its file system. Both are taken down when this goes.
pub struct Emulated {
    // In this order: a paced disk would make unmounting slow, and goes last itself.
    _unpaced: Undo,
    file_system: FileSystem,
    disk: Arc<Disk>,
    _listed: [Listed; 2],
}

impl Emulated {
    /// Makes the disk, unpaced, and an empty ext4 on it. What is the disk's goes into `work`, and the file system is
    /// mounted on `work/ext4`. The kernel may hold `dirty_bytes` dirty bytes of it, if that is said.
    pub fn start(
        ledger: &Ledger,
        model: Model,
        bytes: u64,
        dirty_bytes: Option<u64>,
        work: &Path,
    ) -> Result<Emulated> {
        let (directory, mountpoint) = (work.join("disk"), work.join("ext4"));
        for path in [&directory, &mountpoint] {
            fs::create_dir(path).doing("create", path)?;
        }
        let listed = ledger.list(Thing::Disk { directory: directory.clone() })?;
        let disk = Disk::start(model, &work.join("image"), bytes, &directory)?;
        let process = Process::with_pid(disk.server_pid())
            .ok_or_else(|| Error::answer("the emulated disk", "its server is not there"))?;
        let process_listed = ledger.list(Thing::Process { process })?;
        let disk = Arc::new(disk);
        disk.set_paced(false)?;
        if let Some(bytes) = dirty_bytes {
            disk.bound_dirty(bytes)?;
        }
        let file_system = FileSystem::make(ledger, disk.device(), &mountpoint)?;
        let unpaced = {
            let disk = disk.clone();
            undo(move || drop(disk.set_paced(false)))
        };
        Ok(Emulated { _unpaced: unpaced, file_system, disk, _listed: [listed, process_listed] })
    }

    /// The disk.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Where its file system is mounted.
    pub fn mountpoint(&self) -> &Path {
        self.file_system.mountpoint()
    }

    /// Unmounts and mounts the file system: nothing of it is in memory afterwards.
    pub fn make_cold(&self) -> Result<()> {
        self.file_system.make_cold()
    }

    /// Has the disk take its time, until what is returned goes.
    pub fn pace(&self) -> Result<Pace<'_>> {
        self.disk.set_paced(true)?;
        Ok(Pace(&self.disk))
    }
}

/// The disk's delays, on until this goes.
pub struct Pace<'a>(&'a Disk);

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        // If it fails the disk's server is gone, and whatever comes next fails.
        let _ = self.0.set_paced(false);
    }
}
