//! Weir's own directory in SOURCE, `.weir`, and the small files in it.
//!
//! Owns `.weir/id`, the identity of SOURCE, and `.weir/log-at`, which records where the redo log is if it is
//! outside SOURCE. Other modules open the lock and a log in SOURCE through it.
//!
//! Invariants: the directory and everything in it belong to this user alone. They are opened by name from an
//! open directory and never through a link; anything else is refused with a message that says what to do. A
//! file is replaced atomically and durably: after a crash it is the old one or the new one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use weir_backend::{LogFile, LogFileError, LogPlace};
use weir_log::Identity;

pub use weir_control::own::{LOCK_FILE, WEIR_DIRECTORY};

const ID_FILE: &str = "id";
const NOTE_FILE: &str = "log-at";
/// Says which directory `.weir` was when the log was begun.
const OF_FILE: &str = "log-of";
const LOG_FILE: &str = "log";

/// Upper bound of the small files' sizes, bytes.
const SMALL_BYTES_MAX: u64 = 8192;

/// Why `.weir` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OwnDirectoryError {
    /// Another kind of file is in its place.
    #[error(
        "{} is a {what}, which weir did not make and does not follow: move it away", path.display()
    )]
    Kind {
        /// The thing.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It belongs to another user.
    #[error(
        "{} belongs to user {uid}, which could have put anything there, so it is not used: if weir ran \
         as that user, run 'weir recover' as that user first; then remove it", path.display()
    )]
    Foreign {
        /// The thing.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Other users may change it.
    #[error(
        "{} may be changed by other users (mode {mode:04o}), so its contents cannot be trusted and it is not \
         used: if nobody changed it, 'chmod go-rwx {}'", path.display(), path.display()
    )]
    Open {
        /// The thing.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file with several names.
    #[error("{} has {names} names and is not used: remove the others, or move it away", path.display())]
    Linked {
        /// The file.
        path: PathBuf,
        /// How many.
        names: String,
    },
    /// A file with invalid contents.
    #[error(
        "{} is damaged: restore it from a backup, or move it away and name the log with \
         'weir recover --force --log'", .0.display()
    )]
    Damaged(PathBuf),
    /// A system call failed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
}

/// Where the redo log is when it is not in SOURCE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Something may have to be replayed from it. Otherwise it was clean when it was last used.
    pub in_use: bool,
    /// The log's own name: its path or device number may later lead to another log.
    pub name: Identity,
    /// Its path, absolute, as given.
    pub path: PathBuf,
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let state = if self.in_use { "in use" } else { "clean" };
        let mut text = format!("log {}\nstate {state}\npath ", hex(&self.name)).into_bytes();
        text.extend_from_slice(self.path.as_os_str().as_bytes());
        text.push(b'\n');
        text
    }

    /// The path comes last and may hold anything.
    fn decode(text: &[u8]) -> Option<Note> {
        let (name, rest) = text.strip_prefix(b"log ")?.split_at_checked(32)?;
        let rest = rest.strip_prefix(b"\nstate ")?;
        let (in_use, path) = match rest.strip_prefix(b"in use\npath ") {
            Some(path) => (true, path),
            None => (false, rest.strip_prefix(b"clean\npath ")?),
        };
        let path = PathBuf::from(OsString::from_vec(path.strip_suffix(b"\n")?.to_vec()));
        path.is_absolute().then_some(Note { in_use, name: unhex(name)?, path })
    }
}

/// An identity as hexadecimal digits.
pub fn hex(identity: &Identity) -> String {
    identity.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<Identity> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 32 && text.is_ascii())?;
    let mut identity = [0; 16];
    for (nth, byte) in identity.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * nth..2 * nth + 2)?, 16).ok()?;
    }
    (identity != weir_backend::NOBODY).then_some(identity)
}

/// `.weir`, open.
#[derive(Debug)]
pub struct OwnDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl OwnDirectory {
    /// Opens the `.weir` of the SOURCE that is open as `source`; `path` is for messages. `None` if there is
    /// none.
    pub fn open(
        source: BorrowedFd<'_>,
        source_path: &Path,
    ) -> Result<Option<OwnDirectory>, OwnDirectoryError> {
        let Some(own) = OwnDirectory::open_to_look(source, source_path)? else { return Ok(None) };
        let mode = rustix::fs::fstat(&own.directory).map_or(0, |stat| stat.st_mode);
        if mode & 0o055 != 0 {
            // An earlier build, or a person, set this mode; no other user could write to the directory. Where
            // modes cannot be changed, the modes of the files are checked.
            let _ = rustix::fs::fchmod(&own.directory, Mode::RWXU);
        }
        Ok(Some(own))
    }

    /// As [`OwnDirectory::open`], and changes nothing.
    ///
    /// # Errors
    /// The same.
    pub fn open_to_look(
        source: BorrowedFd<'_>,
        source_path: &Path,
    ) -> Result<Option<OwnDirectory>, OwnDirectoryError> {
        let path = source_path.join(WEIR_DIRECTORY);
        let io = |doing| {
            let path = path.clone();
            move |errno: Errno| OwnDirectoryError::Io { doing, path, error: errno.into() }
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(source, WEIR_DIRECTORY, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.map_err(io("open"))?,
        };
        let stat = rustix::fs::fstat(&found).map_err(io("open"))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {}
            FileType::Symlink => {
                return Err(OwnDirectoryError::Kind { path, what: "symbolic link" });
            }
            _ => return Err(OwnDirectoryError::Kind { path, what: "file" }),
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(OwnDirectoryError::Foreign { path, uid: stat.st_uid });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&found, ".", flags, Mode::empty());
        let directory = directory.map_err(io("open"))?;
        if stat.st_mode & 0o022 != 0 {
            return Err(OwnDirectoryError::Open { path, mode: stat.st_mode & 0o7777 });
        }
        Ok(Some(OwnDirectory { directory, path }))
    }

    /// As [`OwnDirectory::open`], but creates it if it is missing.
    ///
    /// # Errors
    /// The outer error is mkdir(2)'s.
    pub fn make(
        source: BorrowedFd<'_>,
        source_path: &Path,
    ) -> Result<Result<OwnDirectory, OwnDirectoryError>, Errno> {
        let mut made = false;
        for _ in 0..16 {
            match OwnDirectory::open(source, source_path) {
                Ok(Some(own)) => return Ok(Ok(own)),
                Ok(None) => {}
                Err(OwnDirectoryError::Foreign { .. } | OwnDirectoryError::Open { .. }) if made => {
                    // The file system does not keep owners or modes, so nothing in the directory could be
                    // trusted.
                    let _ = rustix::fs::unlinkat(source, WEIR_DIRECTORY, AtFlags::REMOVEDIR);
                    return Err(Errno::PERM);
                }
                Err(error) => return Ok(Err(error)),
            }
            made = match rustix::fs::mkdirat(source, WEIR_DIRECTORY, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(errno),
            };
        }
        Err(Errno::AGAIN)
    }

    /// The open directory.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The place of a log in SOURCE.
    pub fn log_place(&self) -> Result<LogPlace, LogFileError> {
        let path = self.path(LOG_FILE);
        let fault = |source| LogFileError::Io { doing: "open", path: path.clone(), source };
        LogPlace::within(self.as_fd(), LOG_FILE, path.clone()).map_err(fault)
    }

    /// The log in SOURCE, if there is one.
    pub fn log(&self) -> Result<Option<LogFile>, LogFileError> {
        LogFile::open(&self.log_place()?)
    }

    /// Removes the log in SOURCE, which holds nothing any more. If that fails the log stays, and is reused.
    pub fn remove_log(&self) {
        match rustix::fs::unlinkat(&self.directory, LOG_FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!("{} was not removed: {error}", self.path(LOG_FILE).display());
            }
        }
    }

    /// The identity of SOURCE, if it has one.
    pub fn identity(&self) -> Result<Option<Identity>, OwnDirectoryError> {
        let Some(text) = self.read(ID_FILE)? else { return Ok(None) };
        let id = unhex(text.strip_suffix(b"\n").unwrap_or(&text));
        id.map(Some).ok_or_else(|| OwnDirectoryError::Damaged(self.path(ID_FILE)))
    }

    /// Records SOURCE's identity, durably.
    pub fn set_identity(&self, identity: &Identity) -> Result<(), OwnDirectoryError> {
        self.write(ID_FILE, format!("{}\n", hex(identity)).as_bytes())?;
        // The directory may be as new as the file in it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(&self.directory, "..", flags, Mode::empty());
        let synced = parent.and_then(|parent| rustix::fs::fsync(&parent));
        synced.map_err(|errno| self.io("sync the directory of", ID_FILE, errno.into()))
    }

    /// Records, durably, that the log is that of the directory in which this one is.
    ///
    /// # Errors
    /// Those of finding out which one it is, and of writing a file here.
    pub fn note_directory(&self) -> Result<(), OwnDirectoryError> {
        let Some(here) = self.here()? else { return Ok(()) };
        match self.read(OF_FILE)?.is_some_and(|noted| noted == here) {
            true => Ok(()),
            false => self.write(OF_FILE, &here),
        }
    }

    /// Whether SOURCE is a copy of the directory that the log is of. Where handles do not last it is not known.
    ///
    /// # Errors
    /// Those of finding out which one it is, and of reading a file here.
    pub fn is_copy(&self) -> Result<bool, OwnDirectoryError> {
        let Some(noted) = self.read(OF_FILE)? else { return Ok(false) };
        Ok(self.here()?.is_some_and(|here| here != noted))
    }

    fn here(&self) -> Result<Option<Vec<u8>>, OwnDirectoryError> {
        let identity = weir_backend::lasting_identity(self.as_fd());
        let identity = identity.map_err(|error| self.io("identify", ".", error))?;
        let line = |bytes: Vec<u8>| -> String {
            bytes.iter().map(|byte| format!("{byte:02x}")).chain(["\n".into()]).collect()
        };
        Ok(identity.map(|bytes| line(bytes).into_bytes()))
    }

    /// Where the log is, if it was ever outside SOURCE.
    pub fn note(&self) -> Result<Option<Note>, OwnDirectoryError> {
        let Some(text) = self.read(NOTE_FILE)? else { return Ok(None) };
        let note = Note::decode(&text);
        note.map(Some).ok_or_else(|| OwnDirectoryError::Damaged(self.path(NOTE_FILE)))
    }

    /// Records where the log is, durably.
    pub fn set_note(&self, note: &Note) -> Result<(), OwnDirectoryError> {
        self.write(NOTE_FILE, &note.encode())
    }

    /// There is no log outside SOURCE any more.
    pub fn forget_note(&self) {
        match rustix::fs::unlinkat(&self.directory, NOTE_FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // It says that the log is clean.
            Err(error) => {
                tracing::warn!("{} was not removed: {error}", self.path(NOTE_FILE).display());
            }
        }
    }

    /// Removes the identity, unless a log outside SOURCE needs it.
    pub fn forget_identity(&self) -> Result<(), OwnDirectoryError> {
        let log = rustix::fs::statat(&self.directory, LOG_FILE, AtFlags::SYMLINK_NOFOLLOW);
        if log.is_err_and(|errno| errno == Errno::NOENT) && self.note()?.is_none() {
            // A failure does no harm.
            for file in [ID_FILE, OF_FILE] {
                let _ = rustix::fs::unlinkat(&self.directory, file, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Reads a small file that only this user may have written; `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, OwnDirectoryError> {
        // A FIFO planted under this name must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(OwnDirectoryError::Kind {
                    path: self.path(name),
                    what: "symbolic link",
                });
            }
            file => File::from(file.map_err(|errno| self.io("read", name, errno.into()))?),
        };
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.io("read", name, errno.into()))?;
        self.check_file(name, &stat)?;
        let mut text = Vec::new();
        let read = file.take(SMALL_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| self.io("read", name, error))?;
        Ok(Some(text))
    }

    /// Checks that a file in the directory is a regular file with one name that only this user may change.
    pub fn check_file(&self, name: &str, stat: &Stat) -> Result<(), OwnDirectoryError> {
        let path = self.path(name);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OwnDirectoryError::Kind { path, what: "thing that is no file" });
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(OwnDirectoryError::Foreign { path, uid: stat.st_uid });
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(OwnDirectoryError::Open { path, mode: stat.st_mode & 0o7777 });
        }
        // No name at all: it was just removed, which the caller has to notice.
        if stat.st_nlink > 1 {
            return Err(OwnDirectoryError::Linked { path, names: stat.st_nlink.to_string() });
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<(), OwnDirectoryError> {
        let fault = |errno: Errno| self.io("write", name, errno.into());
        let new = format!("{name}.new");
        // A file that a crash left incomplete.
        match rustix::fs::unlinkat(&self.directory, &new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(fault(errno)),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, &new, flags | OFlags::CLOEXEC, mode);
        let mut file = File::from(file.map_err(fault)?);
        let written = file.write_all(text).and_then(|()| file.sync_all());
        written.map_err(|error| self.io("write", name, error))?;
        rustix::fs::renameat(&self.directory, &new, &self.directory, name).map_err(fault)?;
        rustix::fs::fsync(&self.directory).map_err(fault)
    }

    fn io(&self, doing: &'static str, name: &str, error: io::Error) -> OwnDirectoryError {
        OwnDirectoryError::Io { doing, path: self.path(name), error }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_note_round_trips(in_use: bool, name in 1u8.., path: Vec<u8>) {
            let path = [b"/", &path[..]].concat();
            let path = PathBuf::from(OsString::from_vec(path));
            let note = Note { in_use, name: [name; 16], path };
            prop_assert_eq!(Note::decode(&note.encode()), Some(note));
        }

        #[test]
        fn any_bytes_parse_or_are_rejected(text: Vec<u8>) {
            let _ = (Note::decode(&text), unhex(&text));
        }
    }

    #[test]
    fn identities_are_hexadecimal_digits() {
        let identity = *b"0123456789abcdef";
        assert_eq!(unhex(hex(&identity).as_bytes()), Some(identity));
        for text in ["", "00", &"0".repeat(32), &"g".repeat(32), &"é".repeat(16)] {
            assert_eq!(unhex(text.as_bytes()), None, "{text}");
        }
    }
}
