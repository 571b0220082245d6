//! The files of SOURCE as a log is replayed to them.
//!
//! Most records are smaller than a page, and the kernel reads a page before it changes a part of it. So writes
//! are delayed a little, in order, while the kernel reads their pages concurrently.
//!
//! A file that already had all the bytes keeps its times. Another one gets the modification time that the log's records of
//! names set, if they set one, or else the time of the recovery. The bytes are still written: the page cache may hold
//! data whose write to the device failed. A file that is immutable or append-only is made
//! writable temporarily ([`cleared_flags`]) if this process may do that, since its records were acknowledged.
//!
//! A write removes file capabilities and, for ordinary users, set-user-ID and set-group-ID. To a file that has such privileges only
//! bytes are written that its device lacks ([`on_device`]), so that a recovery that is killed has taken nothing from a file that is
//! as it was. What programs write by a mount after they were set takes them, and a mount sets them when what was written
//! before is out of the log. So what recovery changes in a file with capabilities was not there when they were set: it goes without them.
//! So does a file of which it cannot be known what its device has. The bits are given back.
//!
//! Invariants:
//! - no file outside SOURCE is written;
//! - at most [`OPEN_MAX`] files are open; a file is synced before it is closed.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, fgetxattr, fstat,
    fsync, futimens, ioctl_getflags, openat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use weir_log::Home;

use crate::cleared_flags;
use crate::identity::{self, Found};
use crate::on_device;

/// Bytes of delayed writes while their pages are read, including overhead.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Files open at once.
const OPEN_MAX: usize = 128;

/// Files that are named which have lost privileges.
const TOLD_MAX: usize = 20;

/// Longest value of `security.capability` (VFS_CAP_REVISION_3), bytes, with some room.
const CAPABILITY_BYTES_MAX: usize = 64;

const CAPABILITIES: &str = "capabilities";
const BITS: &str = "set-user-ID or set-group-ID bit";

pub(crate) const CAPABILITY: &str = "security.capability";

/// A file that cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {name}: {source}")]
pub struct RecoveryError {
    doing: &'static str,
    name: String,
    source: io::Error,
}

impl RecoveryError {
    pub(crate) fn new(doing: &'static str, name: String, source: io::Error) -> RecoveryError {
        RecoveryError { doing, name, source }
    }
}

/// The files below one directory, found by their identity.
#[derive(Debug)]
pub struct Recovered {
    source: OwnedFd,
    /// Every file by its handle; built where the kernel refuses to open files by handle.
    walked: Option<HashMap<Vec<u8>, PathBuf>>,
    /// Inode numbers of all files in SOURCE except directories; built when a path does not show whether a file
    /// is in SOURCE.
    inside: Option<HashSet<u64>>,
    /// Their paths; built for the message about a file whose path the kernel does not know, as after a reboot.
    paths: Option<HashMap<u64, PathBuf>>,
    files: Vec<Known>,
    /// Open entries of `files`, the one opened first at the front.
    open: VecDeque<(usize, Arc<File>)>,
    /// Delayed writes, in order.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Files that an earlier replay of this log finished.
    done: BTreeSet<Vec<u8>>,
}

/// State of a file that was opened once.
#[derive(Debug)]
struct Known {
    identity: Vec<u8>,
    /// For messages: set when needed, or if known without a search.
    name: Option<String>,
    mode: Mode,
    has_capabilities: bool,
    /// Whether a change of it has taken what changes take.
    is_changed: bool,
    /// The privileges that this process' writes took and that were not given back, for messages.
    lost: Option<&'static str>,
    /// Its times, until it is changed.
    times: Option<Timestamps>,
    /// The modification time that it is to have then, if that is known.
    mtime: Option<Timespec>,
    /// Why its further records are skipped.
    failed: Option<(&'static str, Errno)>,
}

impl Known {
    /// Whether this process' next write takes something from the file.
    fn loses_by_writes(&self) -> bool {
        let keeps_bits = geteuid().is_root() || !self.mode.intersects(Mode::SUID | Mode::SGID);
        !self.is_changed && (self.has_capabilities || !keeps_bits)
    }
}

/// A delayed write.
#[derive(Debug)]
struct Waiting {
    file: usize,
    offset: u64,
    data: Box<[u8]>,
}

impl Recovered {
    /// The files below `source`, a directory open for reading, except those in `done`.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new(source: BorrowedFd<'_>, done: BTreeSet<Vec<u8>>) -> io::Result<Recovered> {
        Ok(Recovered {
            source: source.try_clone_to_owned()?,
            walked: None,
            inside: None,
            paths: None,
            files: Vec::new(),
            open: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            done,
        })
    }

    /// What people are to know of what became of the files, in sentences.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let known = self.files.iter().enumerate();
        let lost: Vec<_> = known.filter_map(|(nth, known)| Some((nth, known.lost?))).collect();
        let mut told = Vec::new();
        for &(nth, lost) in lost.iter().take(TOLD_MAX) {
            let name = self.name_of_known(nth);
            told.push(format!(
                "{name} has lost its {lost}, as by any write: recovery wrote to it what had been synced"
            ));
        }
        if lost.len() > TOLD_MAX {
            let more = lost.len() - TOLD_MAX;
            told.push(format!("and {more} more files have lost such privileges"));
        }
        told
    }

    /// The name of a file for messages: its path in SOURCE, if known.
    pub fn name(&mut self, identity: &[u8]) -> String {
        if let Some(path) = identity::as_path(identity) {
            return path.display().to_string();
        }
        match identity::open(self.source.as_fd(), identity, OFlags::PATH) {
            Ok(Found::File(file)) => self.name_of(file.as_fd()),
            _ => match self.find_by_walking(identity) {
                Ok(Some(path)) => path.display().to_string(),
                _ => "a file whose name is not known".to_owned(),
            },
        }
    }

    pub(crate) fn name_of(&mut self, file: BorrowedFd<'_>) -> String {
        if let Some(path) = self.known_path(file) {
            return path.display().to_string();
        }
        let Ok(status) = fstat(file) else { return "a file whose name is not known".to_owned() };
        let paths = self.paths.get_or_insert_with(|| {
            let mut paths = HashMap::new();
            // A file in a directory that cannot be read has no name here.
            let _ = walk(&self.source, |_, path, inode| {
                paths.insert(inode, path.to_owned());
            });
            paths
        });
        match paths.get(&status.st_ino) {
            Some(path) => path.display().to_string(),
            None => format!("the file with inode number {}", status.st_ino),
        }
    }

    /// The path of an open file in SOURCE, if the kernel knows it.
    fn known_path(&self, file: BorrowedFd<'_>) -> Option<PathBuf> {
        path_of(file).and_then(|path| self.below_source(&path))
    }

    /// Whether the kernel knows an open file's path, and it is below SOURCE.
    pub(crate) fn is_below_source(&self, file: BorrowedFd<'_>) -> bool {
        self.known_path(file).is_some()
    }

    fn name_of_known(&mut self, nth: usize) -> String {
        if self.files[nth].name.is_none() {
            let identity = self.files[nth].identity.clone();
            self.files[nth].name = Some(self.name(&identity));
        }
        self.files[nth].name.clone().unwrap_or_default()
    }

    /// Makes a path relative to SOURCE, if it is below SOURCE.
    fn below_source(&self, path: &Path) -> Option<PathBuf> {
        let source = path_of(self.source.as_fd())?;
        path.strip_prefix(source).ok().map(Path::to_owned)
    }

    /// Whether an open file is in SOURCE.
    pub(crate) fn is_inside(&mut self, file: BorrowedFd<'_>) -> io::Result<bool> {
        let status = fstat(file)?;
        if status.st_dev != fstat(&self.source)?.st_dev {
            return Ok(false);
        }
        if self.known_path(file).is_some() {
            return Ok(true);
        }
        if self.inside.is_none() {
            let mut inside = HashSet::new();
            walk(&self.source, |_, _, inode| {
                inside.insert(inode);
            })?;
            self.inside = Some(inside);
        }
        Ok(self.inside.as_ref().is_some_and(|inside| inside.contains(&status.st_ino)))
    }

    fn find_by_walking(&mut self, wanted: &[u8]) -> io::Result<Option<PathBuf>> {
        if self.walked.is_none() {
            let mut found = HashMap::new();
            walk(&self.source, |directory, path, _| {
                let Some(name) = path.file_name() else { return };
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                if let Ok(file) = openat(directory, name, flags, Mode::empty())
                    && let Ok(handle) = identity::handle_of(file.as_fd())
                {
                    found.insert(handle, path.to_owned());
                }
            })?;
            self.walked = Some(found);
        }
        Ok(self.walked.as_ref().and_then(|walked| walked.get(wanted)).cloned())
    }

    /// Opens a file; `None` if it no longer exists, or is no longer in SOURCE.
    pub(crate) fn open_identity(
        &mut self,
        wanted: &[u8],
        flags: OFlags,
    ) -> io::Result<Option<OwnedFd>> {
        let opened = match identity::open(self.source.as_fd(), wanted, flags) {
            // Not a file: one that is gone had its identity.
            Err(error) if is_of_no_file(&error) => return Ok(None),
            opened => opened?,
        };
        let file = match opened {
            Found::Gone => return Ok(None),
            Found::File(file) => file,
            Found::NotForUs => {
                let Some(path) = self.find_by_walking(wanted)? else { return Ok(None) };
                let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(&self.source, path, flags, Mode::empty())?
            }
        };
        let status = fstat(&file)?;
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        // A path led there below SOURCE, on its own mount.
        let is_inside = identity::as_path(wanted).is_some() || self.is_inside(file.as_fd())?;
        Ok((is_file && status.st_nlink > 0 && is_inside).then_some(file))
    }

    /// A program set the modification time of an opened file, and what is written now was written before that.
    pub(crate) fn set_mtime(&mut self, nth: usize, mtime: Timespec) {
        self.files[nth].mtime = Some(mtime);
    }

    /// As above, but for writing, whatever the file's flags.
    fn open_writable(&mut self, wanted: &[u8]) -> io::Result<Option<OwnedFd>> {
        let refused = match self.open_identity(wanted, OFlags::RDWR) {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        if Errno::from_io_error(&refused) != Some(Errno::PERM) {
            return Err(refused);
        }
        let Some(file) = self.open_identity(wanted, OFlags::RDONLY)? else { return Ok(None) };
        let Ok(flags) = ioctl_getflags(&file) else { return Err(refused) };
        if !flags.intersects(cleared_flags::LOCKS) {
            return Err(refused);
        }
        cleared_flags::take(self.source.as_fd(), wanted, &file, flags)?;
        self.open_identity(wanted, OFlags::RDWR)
    }

    /// A known file, opened.
    fn file(&mut self, nth: usize) -> Result<Arc<File>, RecoveryError> {
        if let Some((_, file)) = self.open.iter().find(|(of, _)| *of == nth) {
            return Ok(Arc::clone(file));
        }
        let identity = self.files[nth].identity.clone();
        let opened = self.open_identity(&identity, OFlags::RDWR);
        let opened = opened.and_then(|file| file.ok_or_else(|| Errno::STALE.into()));
        let file = Arc::new(File::from(opened.map_err(|error| self.failed(nth, "open", error))?));
        self.keep(nth, &file);
        Ok(file)
    }

    fn keep(&mut self, nth: usize, file: &Arc<File>) {
        if self.open.len() >= OPEN_MAX {
            self.write_down_to(0);
            if let Some((oldest, file)) = self.open.pop_front()
                && let Err(errno) = fsync(&*file)
            {
                self.note_failed(oldest, "sync", &errno.into());
            }
        }
        self.open.push_back((nth, Arc::clone(file)));
    }

    /// Records that a delayed write of a file failed: the next call for that file reports it.
    fn note_failed(&mut self, nth: usize, doing: &'static str, error: &io::Error) {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        self.files[nth].failed.get_or_insert((doing, errno));
    }

    /// The error of the file's earlier writes, if any.
    fn check(&mut self, nth: usize) -> Result<(), RecoveryError> {
        let Some((doing, errno)) = self.files[nth].failed else { return Ok(()) };
        Err(RecoveryError { doing, name: self.name_of_known(nth), source: errno.into() })
    }

    fn failed(&mut self, nth: usize, doing: &'static str, source: io::Error) -> RecoveryError {
        self.note_failed(nth, doing, &source);
        RecoveryError { doing, name: self.name_of_known(nth), source }
    }

    /// Writes pending data until at most `bytes` of it are left. A failed write is recorded for its own file
    /// ([`Recovered::check`]), since the call may concern another file.
    fn write_down_to(&mut self, bytes: usize) {
        while self.waiting_bytes > bytes {
            let Some(Waiting { file: nth, offset, data }) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes -= data.len() + size_of::<Waiting>();
            if self.files[nth].failed.is_some() {
                continue;
            }
            // `file` records a failure to open.
            let Ok(file) = self.file(nth) else { continue };
            match has(&file, offset, &data) {
                false => self.files[nth].times = None,
                true if self.files[nth].loses_by_writes()
                    && on_device::has(&file, offset, &data) =>
                {
                    continue;
                }
                true => {}
            }
            let written = file.write_all_at(&data, offset);
            // A write that fails may have taken them, too.
            self.note_lost(nth, &file);
            if let Err(error) = written {
                self.note_failed(nth, "write", &error);
            }
        }
    }

    /// Notes what a change of the file took from it.
    fn note_lost(&mut self, nth: usize, file: &File) {
        let known = &mut self.files[nth];
        if !known.loses_by_writes() {
            return;
        }
        known.is_changed = true;
        let has_bits = fstat(file).is_ok_and(|now| Mode::from_raw_mode(now.st_mode) == known.mode);
        known.lost = match known.has_capabilities && capability_of(file.as_fd()).is_none() {
            true => Some(CAPABILITIES),
            false if has_bits => None,
            false => Some(BITS),
        };
    }

    /// Ends the recovery of a file. What it has lost is told also if that fails.
    fn finish(&mut self, nth: usize) -> Result<(), RecoveryError> {
        let file = self.file(nth)?;
        self.restore(nth, &file).map_err(|error| self.failed(nth, "sync", error))?;
        self.check(nth)
    }

    /// Restores the bits that writing removed from a file, and its times, and makes the file durable.
    fn restore(&mut self, nth: usize, file: &File) -> io::Result<()> {
        let known = &mut self.files[nth];
        if Mode::from_raw_mode(fstat(file)?.st_mode) != known.mode {
            match fchmod(file, known.mode) {
                Ok(()) => known.lost = known.lost.filter(|&lost| lost != BITS),
                // Another user's file.
                Err(Errno::PERM | Errno::ACCESS) => known.lost = known.lost.or(Some(BITS)),
                Err(errno) => return Err(errno.into()),
            }
        }
        let set = |last_modification| Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            last_modification,
        };
        if let Some(times) = known.times.clone().or_else(|| known.mtime.map(set)) {
            match futimens(file, &times) {
                // Another user's file may be written, and has the time of the recovery then.
                Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::ROFS) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // Not again after EINTR, as std's does: a FUSE server can say it to a write-back, and that is reported once.
        Ok(fsync(file)?)
    }
}

impl Home for Recovered {
    type File = usize;
    type Error = RecoveryError;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<usize>, RecoveryError> {
        let opened = match self.open_writable(wanted) {
            Ok(None) => return Ok(None),
            Ok(Some(file)) => Ok(file),
            Err(error) => Err(error),
        };
        let known = opened.and_then(|file| {
            let known = Known {
                identity: wanted.to_vec(),
                name: self.known_path(file.as_fd()).map(|path| path.display().to_string()),
                mode: Mode::from_raw_mode(fstat(&file)?.st_mode),
                has_capabilities: capability_of(file.as_fd()).is_some(),
                is_changed: false,
                lost: None,
                times: Some(times_of(&fstat(&file)?)),
                mtime: None,
                failed: None,
            };
            Ok((file, known))
        });
        let (file, known) = known.map_err(|source| {
            let name = self.name(wanted);
            RecoveryError { doing: "open", name, source }
        })?;
        self.files.push(known);
        let nth = self.files.len() - 1;
        self.keep(nth, &Arc::new(File::from(file)));
        Ok(Some(nth))
    }

    fn write(&mut self, nth: &usize, offset: u64, data: &[u8]) -> Result<(), RecoveryError> {
        if let Some(len) = NonZeroU64::new(data.len() as u64) {
            // Only advice: a failure has no effect on correctness.
            let _ = rustix::fs::fadvise(&*self.file(*nth)?, offset, Some(len), Advice::WillNeed);
        }
        self.waiting_bytes += data.len() + size_of::<Waiting>();
        self.waiting.push_back(Waiting { file: *nth, offset, data: data.into() });
        self.write_down_to(WAITING_BYTES_MAX);
        self.check(*nth)
    }

    fn truncate(&mut self, nth: &usize, size: u64) -> Result<(), RecoveryError> {
        self.write_down_to(0);
        self.check(*nth)?;
        let file = self.file(*nth)?;
        if file.metadata().is_ok_and(|status| status.len() == size) {
            return Ok(());
        }
        self.files[*nth].times = None;
        let set = file.set_len(size);
        self.note_lost(*nth, &file);
        set.map_err(|error| self.failed(*nth, "truncate", error))
    }

    fn sync(&mut self, nth: &usize) -> Result<(), RecoveryError> {
        self.write_down_to(0);
        self.finish(*nth)
    }

    fn is_of_one_file(&self, _: &RecoveryError) -> bool {
        true
    }

    fn is_done(&self, identity: &[u8]) -> bool {
        self.done.contains(identity)
    }
}

/// Whether an error of opening something says that it is a symbolic link, a directory or a socket.
fn is_of_no_file(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO))
}

/// Whether a file already has these bytes there.
fn has(file: &File, offset: u64, data: &[u8]) -> bool {
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, offset).is_ok() && found == data
}

fn times_of(status: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: status.st_atime as _, tv_nsec: status.st_atime_nsec as _ },
        last_modification: Timespec {
            tv_sec: status.st_mtime as _,
            tv_nsec: status.st_mtime_nsec as _,
        },
    }
}

pub(crate) fn capability_of(file: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let mut value = vec![0; CAPABILITY_BYTES_MAX];
    let len = fgetxattr(file, CAPABILITY, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// The path of an open file; for a file without a name, its former path.
fn path_of(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path: CString = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// Visits everything below a directory except directories, on its own file system, with the parent directory,
/// the path and the inode number.
fn walk(source: &OwnedFd, mut each: impl FnMut(&OwnedFd, &Path, u64)) -> io::Result<()> {
    let device = fstat(source)?.st_dev;
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let here = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let directory = match openat(source, here, flags, Mode::empty()) {
            // A directory that this process may not read: Weir wrote nothing in it either.
            Err(Errno::NOENT | Errno::ACCESS) => continue,
            opened => opened?,
        };
        if fstat(&directory)?.st_dev != device {
            continue;
        }
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let name = OsStr::from_bytes(name.to_bytes());
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                    let status = rustix::fs::statat(&directory, name, flags);
                    status
                        .map_or(FileType::Unknown, |status| FileType::from_raw_mode(status.st_mode))
                }
                kind => kind,
            };
            match kind {
                FileType::Directory => pending.push(path.join(name)),
                _ => each(&directory, &path.join(name), entry.ino()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{XattrFlags, fsetxattr};

    use super::*;
    use crate::identity::Naming;

    /// `cap_net_bind_service+ep`, VFS_CAP_REVISION_2.
    const VALUE: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Past the end of the largest file that there can be.
    const TOO_FAR: u64 = 1 << 62;

    /// A directory with a file that has capabilities, and is given something in a recovery; `None` where this process may not set
    /// them.
    fn recovered() -> Option<(tempfile::TempDir, Recovered, usize)> {
        let directory = tempfile::tempdir().unwrap();
        let source = File::open(directory.path()).unwrap();
        let file = File::create_new(directory.path().join("program")).unwrap();
        if let Err(error) = fsetxattr(&file, CAPABILITY, &VALUE, XattrFlags::empty()) {
            println!("not checked: no capabilities can be set here ({error})");
            return None;
        }
        let identity = Naming::of(source.as_fd()).unwrap().identity(file.as_fd()).unwrap();
        let mut recovered = Recovered::new(source.as_fd(), BTreeSet::new()).unwrap();
        let nth = recovered.open(&identity).unwrap().unwrap();
        recovered.write(&nth, 0, b"new").unwrap();
        Some((directory, recovered, nth))
    }

    #[test]
    fn a_file_whose_later_write_fails_is_told_to_have_lost_its_capabilities() {
        let Some((_directory, mut recovered, nth)) = recovered() else { return };
        recovered.write(&nth, TOO_FAR, b"far").unwrap();
        assert!(recovered.sync(&nth).is_err());
        let told = recovered.told().join(" ");
        assert!(told.contains("program has lost its capabilities"), "{told}");
    }

    #[test]
    fn so_is_one_that_is_left_before_it_is_synced() {
        let Some((_directory, mut recovered, nth)) = recovered() else { return };
        recovered.write(&nth, TOO_FAR, b"far").unwrap();
        assert!(recovered.truncate(&nth, 2).is_err());
        let told = recovered.told().join(" ");
        assert!(told.contains("program has lost its capabilities"), "{told}");
    }

    #[test]
    fn a_file_loses_its_capabilities_once() {
        let Some((_directory, mut recovered, nth)) = recovered() else { return };
        assert!(recovered.files[nth].loses_by_writes());
        recovered.write_down_to(0);
        assert!(!recovered.files[nth].loses_by_writes());
        recovered.write(&nth, 3, b", newer").unwrap();
        recovered.sync(&nth).unwrap();
        assert_eq!(recovered.told().len(), 1);
    }
}
