//! Redo: writes a file's records in the log to the file, while it is mounted.
//!
//! As in recovery, writes are delayed a little, in order, while the kernel reads the pages that they change
//! in part. Writing changes times, which are restored when the file is clean. It may remove set-ID bits and capabilities, as any
//! write to home does: where it does, they are set when what was written before is out of the log, so they are not those of what
//! is written here. Attributes are never given back: a program may change them meanwhile, and what it set must stay.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::Advice;
use rustix::io::Errno;
use weir_engine::ErrorKind;
use weir_log::{Home, Lsn, NameRecord, ReadLog, ReplayError, Superblock, replay_before};

use crate::error::error_kind;
use crate::home_file::HomeFile;
use crate::home_names::is_fuse;
use crate::identity;

/// Bytes of pending writes while their pages are read, overhead counted.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Writes the records of a file in the log, given by its number and its identity, from the checkpoint of `from` on, up to `until`, which
/// is durable. The identity is empty where files are found by their numbers. The log may be written meanwhile: what stands after
/// `until` is not looked at. `refused` are the records of sizes that home refused, in order: the file does not get them.
///
/// # Errors
/// The log's when reading it, or home's.
pub(crate) fn redo(
    log: &mut impl ReadLog,
    from: Superblock,
    (until, refused): (Lsn, &[Lsn]),
    (node, identity): (u64, &[u8]),
    home: &HomeFile,
) -> Result<(), ReplayError<io::Error>> {
    // Replay takes a node without an identity for one that is gone.
    let numbered = identity::of_node(node);
    let identity = if identity.is_empty() { &numbered } else { identity };
    let mut redo = Redo::of(node, identity, refused, home);
    let report = replay_before(log, from, until, Some(&mut redo))?;
    match report.end < until {
        true => Err(ReplayError::Differs { first: until, second: report.end }),
        false => Ok(()),
    }
}

/// The engine's kind of what a redo failed with.
pub(crate) fn kind_of(error: &ReplayError<io::Error>) -> ErrorKind {
    match error {
        ReplayError::Home { source, .. } | ReplayError::Sync(source) => error_kind(source),
        _ => ErrorKind::Io,
    }
}

struct Redo<'a> {
    node: u64,
    identity: &'a [u8],
    refused: &'a [Lsn],
    /// Identities of inodes that home had made for the file before this one, each once.
    former: Vec<Box<[u8]>>,
    home: &'a HomeFile,
    /// Pending writes in order: offsets and bytes.
    waiting: VecDeque<(u64, Box<[u8]>)>,
    waiting_bytes: usize,
}

impl<'a> Redo<'a> {
    fn of(node: u64, identity: &'a [u8], refused: &'a [Lsn], home: &'a HomeFile) -> Redo<'a> {
        let (former, waiting) = (Vec::new(), VecDeque::new());
        Redo { node, identity, refused, former, home, waiting, waiting_bytes: 0 }
    }

    fn is_former(&self, identity: &[u8]) -> bool {
        self.former.iter().any(|former| **former == *identity)
    }

    /// Performs pending writes until at most `bytes` of them are left.
    fn write_down_to(&mut self, file: &Arc<OwnedFd>, bytes: usize) -> io::Result<()> {
        while self.waiting_bytes > bytes {
            let Some((offset, data)) = self.waiting.pop_front() else { return Ok(()) };
            self.waiting_bytes -= data.len() + size_of::<(u64, Box<[u8]>)>();
            let mut done = 0;
            while done < data.len() {
                match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => done += written,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }
}

impl Home for Redo<'_> {
    type File = Arc<OwnedFd>;
    type Error = io::Error;

    /// Names are brought home by the mount.
    const TAKES_NAMES: bool = true;

    fn name(&mut self, _: Lsn, record: &NameRecord<'_>) -> io::Result<()> {
        if let NameRecord::Node { node, identity, .. } = *record
            && node == self.node
            && identity != self.identity
            && !self.is_former(identity)
        {
            self.former.push(identity.into());
        }
        Ok(())
    }

    fn identity_of(&self, node: u64) -> Option<Vec<u8>> {
        (node == self.node).then(|| self.identity.to_vec())
    }

    fn made_again_as(&self, identity: &[u8]) -> Option<Vec<u8>> {
        self.is_former(identity).then(|| self.identity.to_vec())
    }

    fn is_refused(&self, lsn: Lsn) -> bool {
        self.refused.binary_search(&lsn).is_ok()
    }

    fn open(&mut self, identity: &[u8]) -> io::Result<Option<Arc<OwnedFd>>> {
        if identity != self.identity {
            return Ok(None);
        }
        let file = self.home.writable_alone()?;
        self.home.times().note_disturbed();
        Ok(Some(file))
    }

    fn write(&mut self, file: &Arc<OwnedFd>, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(len) = NonZeroU64::new(data.len() as u64) {
            // Only advice: a failure has no effect on correctness.
            let _ = rustix::fs::fadvise(file, offset, Some(len), Advice::WillNeed);
        }
        self.waiting_bytes += data.len() + size_of::<(u64, Box<[u8]>)>();
        self.waiting.push_back((offset, data.into()));
        self.write_down_to(file, WAITING_BYTES_MAX)
    }

    fn truncate(&mut self, file: &Arc<OwnedFd>, size: u64) -> io::Result<()> {
        self.write_down_to(file, 0)?;
        Ok(rustix::fs::ftruncate(file, size)?)
    }

    /// Makes nothing durable: the engine syncs the file next. That is by another description, perhaps, to which a FUSE home does not
    /// say what became of what was written by this one.
    fn sync(&mut self, file: &Arc<OwnedFd>) -> io::Result<()> {
        self.write_down_to(file, 0)?;
        if is_fuse(file.as_fd()) {
            rustix::fs::fdatasync(file)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{Mode, XattrFlags, fchmod, fsetxattr};
    use rustix::process::geteuid;
    use weir_log::{FileType, LOG_BYTES_MIN, Record, Writer};

    use super::*;
    use crate::log_file::{LogFile, LogPlace};
    use crate::recovery::{CAPABILITY, capability_of};

    /// `cap_net_bind_service+ep`, VFS_CAP_REVISION_2.
    const CAPABILITY_VALUE: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// A log with records of the node 1, the file at home, and where the log ends.
    struct Fixture {
        _directory: tempfile::TempDir,
        log: LogFile,
        superblock: Superblock,
        until: Lsn,
        file: File,
        home: HomeFile,
    }

    impl Fixture {
        /// The file had this identity when its record was logged.
        fn new(identity: &[u8]) -> Fixture {
            let node = |identity| {
                Record::Name(NameRecord::Node { node: 1, file_type: FileType::File, identity })
            };
            Fixture::with(&[
                Record::File { file: 1, identity },
                Record::Write { file: 1, offset: 2, data: b"LOGGED" },
                node(identity),
                node(b"this file"),
            ])
        }

        /// The log has these records.
        fn with(records: &[Record<'_>]) -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let place = LogPlace::at(&directory.path().join("log")).unwrap();
            let (log, superblock) = LogFile::create(&place, LOG_BYTES_MIN, [9; 16]).unwrap();
            let superblock = Superblock { clean: false, ..superblock };
            let mut writer = Writer::new(superblock);
            for record in records {
                writer.append(record).unwrap();
            }
            log.write(&writer.commit().unwrap()).unwrap();
            writer.committed();
            let path = directory.path().join("file");
            std::fs::write(&path, b"0123456789").unwrap();
            let file = File::open(&path).unwrap();
            let home = HomeFile::new(
                rustix::fs::open(&path, rustix::fs::OFlags::PATH, Mode::empty()).unwrap(),
            );
            let until = writer.durable();
            Fixture { _directory: directory, log, superblock, until, file, home }
        }

        fn redo(&self, until: Lsn) -> Result<(), ReplayError<io::Error>> {
            self.redo_as(b"this file", until)
        }

        fn redo_as(&self, identity: &[u8], until: Lsn) -> Result<(), ReplayError<io::Error>> {
            redo(&mut &self.log, self.superblock, (until, &[]), (1, identity), &self.home)
        }
    }

    #[test]
    fn what_is_written_from_the_log_has_not_the_files_capabilities() {
        let fixture = Fixture::new(b"this file");
        // Only root may set them.
        if geteuid().is_root() {
            fsetxattr(&fixture.file, CAPABILITY, &CAPABILITY_VALUE, XattrFlags::empty()).unwrap();
        }
        fixture.redo(fixture.until).unwrap();
        assert_eq!(io::read_to_string(&fixture.file).unwrap(), "01LOGGED89");
        assert_eq!(capability_of(fixture.file.as_fd()), None);
    }

    #[test]
    fn a_mode_that_a_program_sets_meanwhile_stays() {
        let fixture = Fixture::new(b"this file");
        fchmod(&fixture.file, Mode::from_raw_mode(0o4755)).unwrap();
        let mut redo = Redo::of(1, b"this file", &[], &fixture.home);
        let opened = redo.open(b"this file").unwrap().unwrap();
        redo.write(&opened, 2, b"LOGGED").unwrap();
        fchmod(&fixture.file, Mode::from_raw_mode(0o600)).unwrap();
        redo.sync(&opened).unwrap();
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&fixture.file).unwrap().st_mode);
        assert_eq!(mode, Mode::from_raw_mode(0o600));
        assert_eq!(io::read_to_string(&fixture.file).unwrap(), "01LOGGED89");
    }

    #[test]
    fn what_was_logged_for_a_former_inode_of_the_file_is_written() {
        let fixture = Fixture::new(b"it could not be bound");
        fixture.redo(fixture.until).unwrap();
        assert_eq!(io::read_to_string(&fixture.file).unwrap(), "01LOGGED89");
    }

    #[test]
    fn a_file_that_is_found_by_its_number_is_written() {
        let fixture = Fixture::with(&[
            Record::File { file: 1, identity: b"" },
            Record::Write { file: 1, offset: 2, data: b"LOGGED" },
            Record::Truncate { file: 1, size: 9 },
        ]);
        fixture.redo_as(b"", fixture.until).unwrap();
        assert_eq!(io::read_to_string(&fixture.file).unwrap(), "01LOGGED8");
    }

    #[test]
    fn records_of_other_files_that_are_found_by_their_numbers_do_not_concern_it() {
        let fixture = Fixture::with(&[
            Record::File { file: 1, identity: b"" },
            Record::Write { file: 1, offset: 0, data: b"void" },
            Record::Revoke { file: 1, before: Lsn(u64::MAX) },
            Record::Write { file: 1, offset: 2, data: b"LOGGED" },
            Record::File { file: 2, identity: b"" },
            Record::Write { file: 2, offset: 0, data: b"another" },
            Record::Truncate { file: 2, size: 1 },
            Record::Revoke { file: 2, before: Lsn(u64::MAX) },
        ]);
        fixture.redo_as(b"", fixture.until).unwrap();
        assert_eq!(io::read_to_string(&fixture.file).unwrap(), "01LOGGED89");
    }

    #[test]
    fn a_home_without_space_is_said_to_have_none() {
        let full = rustix::fs::open("/dev/full", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
        let fixture = Fixture { home: HomeFile::new(full), ..Fixture::new(b"this file") };
        let failed = fixture.redo(fixture.until).unwrap_err();
        assert_eq!(kind_of(&failed), ErrorKind::NoSpace);
    }

    #[test]
    fn a_log_that_ends_before_its_durable_position_is_an_error() {
        let fixture = Fixture::new(b"this file");
        let beyond = Lsn(fixture.until.0 + 1);
        assert!(matches!(fixture.redo(beyond), Err(ReplayError::Differs { .. })));
    }
}
