//! Results as JSON files.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Doing, Error, Result};

/// Writes `value` so that a crash leaves the file as it was before or as it is now. What is there and no
/// file, such as /dev/stdout, is written to.
pub fn save(path: &Path, value: &impl Serialize) -> Result<()> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(directory).doing("create", directory)?;
    }
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| Error::answer("the JSON writer", error))?;
    text.push(b'\n');
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, text).doing("write", path);
    }
    let new = path.with_extension("json.new");
    let mut file = File::create(&new).doing("create", &new)?;
    file.write_all(&text).doing("write", &new)?;
    file.sync_all().doing("sync", &new)?;
    fs::rename(&new, path).doing("replace", path)
}

/// Reads the results in a file.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).doing("read", path)?;
    serde_json::from_slice(&text).map_err(|error| Error::answer("the results file", error))
}
