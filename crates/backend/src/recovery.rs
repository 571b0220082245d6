//! The files of SOURCE as a log is replayed to them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use weir_log::Home;

use crate::identity;

/// A file that cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} a file of SOURCE: {source}")]
pub struct RecoveryError {
    doing: &'static str,
    source: io::Error,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> RecoveryError {
    move |source| RecoveryError { doing, source }
}

/// The files below one directory, found by their identity.
#[derive(Debug)]
pub struct Recovered {
    source: OwnedFd,
    /// Every file by its identity: made where the kernel does not open files by handle for us.
    walked: Option<HashMap<Vec<u8>, PathBuf>>,
}

impl Recovered {
    /// The files below `source`, a directory open for reading.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new(source: BorrowedFd<'_>) -> io::Result<Recovered> {
        Ok(Recovered { source: source.try_clone_to_owned()?, walked: None })
    }

    fn find_by_walking(&mut self, wanted: &[u8]) -> io::Result<Option<OwnedFd>> {
        if self.walked.is_none() {
            let mut found = HashMap::new();
            walk(&self.source, &mut found)?;
            self.walked = Some(found);
        }
        let found = self.walked.as_ref().and_then(|walked| walked.get(wanted));
        let Some(path) = found else { return Ok(None) };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Some(rustix::fs::openat(&self.source, path, flags, Mode::empty())?))
    }
}

impl Home for Recovered {
    type File = File;
    type Error = RecoveryError;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<File>, RecoveryError> {
        let opened = match identity::open(self.source.as_fd(), wanted) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::STALE | Errno::NOENT) => Ok(None),
                Some(Errno::PERM) => self.find_by_walking(wanted),
                _ => Err(error),
            },
        };
        Ok(opened.map_err(failed("open"))?.map(File::from))
    }

    fn write(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<(), RecoveryError> {
        file.write_all_at(data, offset).map_err(failed("write"))
    }

    fn truncate(&mut self, file: &File, size: u64) -> Result<(), RecoveryError> {
        file.set_len(size).map_err(failed("truncate"))
    }

    fn sync(&mut self, file: &File) -> Result<(), RecoveryError> {
        file.sync_all().map_err(failed("sync"))
    }
}

/// Collects the paths of the regular files below a directory, on its own file system.
fn walk(source: &OwnedFd, found: &mut HashMap<Vec<u8>, PathBuf>) -> io::Result<()> {
    let device = rustix::fs::fstat(source)?.st_dev;
    let mut pending = vec![PathBuf::from(".")];
    while let Some(path) = pending.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(source, &path, flags, Mode::empty()) {
            // What may not be read here was not written here.
            Err(Errno::NOENT | Errno::ACCESS) => continue,
            opened => opened?,
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                opened => opened?,
            };
            let status = rustix::fs::fstat(&file)?;
            if status.st_dev != device {
                continue;
            }
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => pending.push(path),
                FileType::RegularFile => {
                    if let Ok(name) = identity::of(file.as_fd()) {
                        found.insert(name, path);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}
