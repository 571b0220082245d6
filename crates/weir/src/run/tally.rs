//! The shared file of counters of programs under `weir run --report`.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use weir_lane::tally::{Tally, VARIABLE};

/// Where the file is made: in memory if possible.
const DIRECTORIES: [&str; 2] = ["/dev/shm", "/tmp"];

/// The file, removed on drop, and its counters.
#[derive(Debug)]
pub struct TallyFile {
    path: PathBuf,
    /// The counters.
    pub tally: Tally,
}

impl TallyFile {
    /// Makes a new file that only this user can use.
    pub fn create() -> io::Result<TallyFile> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for directory in DIRECTORIES {
            let path = Path::new(directory).join(format!("weir-run-{}", std::process::id()));
            // A killed process with the same number may have left one.
            let _ = std::fs::remove_file(&path);
            match TallyFile::create_at(&path) {
                Ok(tally) => return Ok(TallyFile { path, tally }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn create_at(path: &Path) -> io::Result<Tally> {
        let mut options = OpenOptions::new();
        let file: File = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let made = file.set_len(Tally::BYTES as u64).and_then(|()| Tally::map(&file));
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Its path, for the environment.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The variable of the environment that names it.
    pub fn variable() -> &'static OsStr {
        OsStr::from_bytes(VARIABLE.to_bytes())
    }
}

impl Drop for TallyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
