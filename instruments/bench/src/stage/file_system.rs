//! The kernel file system on an emulated disk: made, mounted, made cold.
//!
//! Owns one mount. Nothing here is measured: the disk is to be unpaced whenever these are called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::ledger::{Ledger, Listed, Thing};
use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Result};
use crate::mount::{force_unmount, run};
use crate::mount_table::mount_at;
use crate::soon::soon;

/// The file system's type, and the program that makes one.
const KIND: &str = "ext4";
pub const MAKER: &str = "mkfs.ext4";
/// Complete: ext4 would otherwise write its tables and its journal in the background for minutes, in the
/// middle of what is measured.
const MAKER_OPTIONS: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

/// A file system, mounted until this goes.
pub struct FileSystem {
    device: PathBuf,
    mountpoint: PathBuf,
    listed: Option<Listed>,
    undo: Option<Undo>,
}

impl FileSystem {
    /// Makes one on `device` and mounts it on `mountpoint`, a directory.
    pub fn make(ledger: &Ledger, device: &Path, mountpoint: &Path) -> Result<Self> {
        run(Command::new(MAKER).args(MAKER_OPTIONS).arg(device))?;
        let listed = ledger
            .list(Thing::FileSystem { kind: KIND.into(), mountpoint: mountpoint.to_owned() })?;
        let undo = {
            let mountpoint = mountpoint.to_owned();
            undo(move || {
                take_away(&mountpoint);
            })
        };
        let made = FileSystem {
            device: device.to_owned(),
            mountpoint: mountpoint.to_owned(),
            listed: Some(listed),
            undo: Some(undo),
        };
        made.mount()?;
        Ok(made)
    }

    fn mount(&self) -> Result<()> {
        mount(&self.device, &self.mountpoint, KIND, MountFlags::empty(), None)
            .doing("mount the emulated disk on", &self.mountpoint)
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts and mounts it, and drops what the machine has cached: neither content nor metadata
    /// is in memory afterwards, as after a restart.
    pub fn make_cold(&self) -> Result<()> {
        take_down(&self.mountpoint)?;
        let drop_caches = Path::new("/proc/sys/vm/drop_caches");
        fs::write(drop_caches, "3").doing("drop the page cache by", drop_caches)?;
        self.mount()
    }

    fn strike(&mut self) {
        if mount_at(&self.mountpoint).is_none()
            && let Some(listed) = self.listed.take()
        {
            let _ = listed.strike();
        }
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        drop(self.undo.take());
        self.strike();
    }
}

/// Unmounts; waits up to two seconds for its users to end.
fn take_down(mountpoint: &Path) -> Result<()> {
    let mut unmounted = Ok(());
    soon(Duration::from_secs(2), || {
        unmounted = unmount(mountpoint, UnmountFlags::empty());
        unmounted != Err(Errno::BUSY)
    });
    unmounted.doing("unmount", mountpoint)
}

/// Unmounts what is there; in the end even if somebody uses it. True if nothing is left.
pub fn take_away(mountpoint: &Path) -> bool {
    if mount_at(mountpoint).is_some() && take_down(mountpoint).is_err() {
        force_unmount(mountpoint);
    }
    mount_at(mountpoint).is_none()
}
