//! A directory of its own for a run, removed when the run is over.
//!
//! Owns everything in it. Refuses to touch a directory it did not make: one that is left over from
//! a run that was killed is recognised by its marker, whose lock is free, and cleared away.
//!
//! Invariant: nothing is removed from a file system that is mounted in the directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cleanup::{Undo, undo};
use crate::cold::free_bytes;
use crate::error::{Doing, Error, Result};
use crate::mount::force_unmount;
use crate::mount_table::mounts_at_or_below;

const NAME: &str = "weir-bench-work";
const MARKER: &str = "made-by-weir-bench";

/// The directory. It goes when this does.
pub struct Workspace {
    path: PathBuf,
    _undo: Undo,
    /// Held, locked, as long as the run lasts.
    _marker: File,
}

impl Workspace {
    /// Makes it in `dir`, on whose disk `bytes` and some more must be free.
    pub fn new(dir: &Path, bytes: u64) -> Result<Workspace> {
        fs::create_dir_all(dir).doing("create", dir)?;
        let path = place(&dir.canonicalize().doing("find", dir)?);
        clear(&path)?;
        let free = free_bytes(dir)?;
        if free < bytes + (256 << 20) {
            return Err(Error::Missing {
                what: format!(
                    "{} has {} MiB free and this needs {} MiB",
                    dir.display(),
                    free >> 20,
                    (bytes >> 20) + 256
                ),
                remedy: "make room, or give another directory".into(),
            });
        }
        fs::create_dir(&path).doing("create", &path)?;
        let undo = {
            let path = path.clone();
            undo(move || drop(remove(&path)))
        };
        let marker_path = path.join(MARKER);
        let marker = File::create(&marker_path).doing("create", &marker_path)?;
        flock(&marker, FlockOperation::NonBlockingLockExclusive).doing("lock", &marker_path)?;
        Ok(Workspace { path, _undo: undo, _marker: marker })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory in it.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).doing("create", &path)?;
        Ok(path)
    }
}

/// Where the directory of a run in `dir` is.
pub fn place(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Whether `path` is of a run that is dead.
pub fn is_left_over(path: &Path) -> bool {
    File::open(path.join(MARKER))
        .is_ok_and(|marker| flock(&marker, FlockOperation::NonBlockingLockShared).is_ok())
}

/// Removes what an earlier run left, mounts first.
pub fn clear(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let marker_path = path.join(MARKER);
    if !marker_path.exists() {
        return Err(Error::Missing {
            what: format!("{} exists and is not of weir-bench's making", path.display()),
            remedy: "move it away, or give another directory".into(),
        });
    }
    let marker = File::open(&marker_path).doing("open", &marker_path)?;
    if flock(&marker, FlockOperation::NonBlockingLockShared).is_err() {
        return Err(Error::Missing {
            what: format!("another run is working in {}", path.display()),
            remedy: "wait for it, or give another directory".into(),
        });
    }
    remove(path)
}

fn remove(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).doing("read", path)?.flatten() {
        force_unmount(&entry.path());
    }
    if let Some(mounted) = mounts_at_or_below(path).first() {
        return Err(Error::Missing {
            what: format!("{} is still mounted", mounted.mountpoint.display()),
            remedy: "unmount it, and run 'weir-bench clean'".into(),
        });
    }
    fs::remove_dir_all(path).doing("remove", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_removed_at_the_end_and_never_shared_or_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let path = dir.join(NAME);
        {
            let space = Workspace::new(dir, 0).unwrap();
            fs::write(space.directory("source").unwrap().join("file"), "x").unwrap();
            assert!(Workspace::new(dir, 0).is_err(), "a second run at the same time");
        }
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        assert!(Workspace::new(dir, 0).is_err(), "somebody else's directory");
    }
}
