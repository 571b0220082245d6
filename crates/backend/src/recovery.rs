//! The files of SOURCE as a log is replayed to them.
//!
//! Most records are smaller than a page, and the kernel reads a page before it changes a part of it. So
//! what is to be written waits a little, in order, while the kernel reads its pages side by side.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Advice, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use weir_log::Home;

use crate::identity;

/// Bytes that wait to be written while their pages are read, overhead counted.
const WAITING_BYTES_MAX: usize = 4 << 20;

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
    /// To be written, in this order.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
}

/// Bytes on their way to a file.
#[derive(Debug)]
struct Waiting {
    file: Arc<File>,
    offset: u64,
    data: Box<[u8]>,
}

impl Recovered {
    /// The files below `source`, a directory open for reading.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new(source: BorrowedFd<'_>) -> io::Result<Recovered> {
        Ok(Recovered {
            source: source.try_clone_to_owned()?,
            walked: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        })
    }

    /// Writes what waits, until no more than `bytes` of it are left.
    fn write_down_to(&mut self, bytes: usize) -> Result<(), RecoveryError> {
        while self.waiting_bytes > bytes {
            let Some(Waiting { file, offset, data }) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= data.len() + size_of::<Waiting>();
            file.write_all_at(&data, offset).map_err(failed("write"))?;
        }
        Ok(())
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
    type File = Arc<File>;
    type Error = RecoveryError;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<Arc<File>>, RecoveryError> {
        let opened = match identity::open(self.source.as_fd(), wanted) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::STALE | Errno::NOENT) => Ok(None),
                Some(Errno::PERM) => self.find_by_walking(wanted),
                _ => Err(error),
            },
        };
        Ok(opened.map_err(failed("open"))?.map(|file| Arc::new(File::from(file))))
    }

    /// An error may be that of an earlier write.
    fn write(&mut self, file: &Arc<File>, offset: u64, data: &[u8]) -> Result<(), RecoveryError> {
        if let Some(len) = NonZeroU64::new(data.len() as u64) {
            // It is advice: without it all works the same.
            let _ = rustix::fs::fadvise(&**file, offset, Some(len), Advice::WillNeed);
        }
        self.waiting_bytes += data.len() + size_of::<Waiting>();
        let (file, data) = (Arc::clone(file), data.into());
        self.waiting.push_back(Waiting { file, offset, data });
        self.write_down_to(WAITING_BYTES_MAX)
    }

    fn truncate(&mut self, file: &Arc<File>, size: u64) -> Result<(), RecoveryError> {
        self.write_down_to(0)?;
        file.set_len(size).map_err(failed("truncate"))
    }

    fn sync(&mut self, file: &Arc<File>) -> Result<(), RecoveryError> {
        self.write_down_to(0)?;
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
