//! Trees of files.

use std::fs;
use std::path::Path;

use crate::error::{Doing, Result};

/// Removes a directory and all in it, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_dir_all(path).doing("remove", path) } else { Ok(()) }
}
