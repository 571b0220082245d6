//! Trees of files.

use std::fs;
use std::path::Path;

use rustix::fs::syncfs;

use crate::error::{Doing, Result};

/// Removes a directory and all in it, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_dir_all(path).doing("remove", path) } else { Ok(()) }
}

/// Empties a directory.
pub fn clear(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).doing("read", directory)?.flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.doing("remove", &path)?;
    }
    Ok(())
}

/// Writes everything of the file system of `directory` to its disk.
pub fn sync(directory: &Path) -> Result<()> {
    let opened = fs::File::open(directory).doing("open", directory)?;
    syncfs(&opened).doing("sync", directory)
}
