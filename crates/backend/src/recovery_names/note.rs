//! The note of what a recovery did, or a mount after its log had failed: `.weir/recovered`.
//!
//! A recovery may be cut and done again. What it made has an identity that the log does not have; nothing is put into
//! such an inode before its identity is in the note, durably. So the next recovery knows every inode that is not empty.
//!
//! Where inodes are not known again, the note goes on where the log's steps end: each step of the recovery is in it as begun
//! before home does it, and as done, or not done, before anything goes into a node that it made and before the next batch of
//! steps. So do the log's steps that were pending when the recovery began: after it, home does not say any more whether they were
//! done.
//!
//! A mount whose log has failed goes on with the log here ([`Continuation`]): the note says from where on the log does not count,
//! and has the records of names that follow, as the log would have them. Recovery replays them with those of the log, so that home
//! gets nothing that recovery does not know. The notes of recoveries come after that.
//!
//! The first line is the log's name. Then come *batches*, each durable before the next one is begun: the lines of the batch,
//! and a last line `end CRC` over them. A line is one of
//!
//! ```text
//! NODE IDENTITY             an inode that was made
//! begun NODE FROM TO        a step; so do `done` and `undone`
//! continued LSN GENERATION  the log, up to this generation of its superblock, does not count from there on: records follow
//! record LSN BYTES          a record, as in the log
//! ```
//!
//! FROM and TO are `DIRECTORY/NAME`, or `-` for none; NAME is the bytes of the name. All numbers and bytes are in hexadecimal
//! digits. The last batch may be cut, since nothing was done yet that needs it.
//!
//! Invariant: a note of another log is never used. It is replaced when the first line is noted.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fsync, renameat};
use weir_log::{Identity, Lsn, Stage, Superblock};
use weir_names::tree::Step;
use weir_names::{NodeId, Place};

use crate::notes;
use crate::partial::{bytes, hex};

const NOTE: &str = "recovered";
const NOTE_NEW: &str = "recovered.new";

const CONTINUED: &str = "continued";
const RECORD: &str = "record";

/// One line of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// An inode that was made: its node, and its identity.
    Inode(NodeId, Vec<u8>),
    /// A step, with the numbers that nodes have in the log.
    Step(Step, Stage),
    /// The log failed: its records of names from this position on do not count, and those that follow here do.
    Continued {
        /// Where that is.
        from: Lsn,
        /// The highest generation that the log's superblock can have: a later use of the log is another one.
        generation: u64,
    },
    /// A record of names, as the log would have it, and its position.
    Record(Lsn, Vec<u8>),
}

impl Noted {
    /// The inode that was made, and the node that it is.
    pub(crate) fn inode(&self) -> Option<(Vec<u8>, NodeId)> {
        match self {
            Noted::Inode(node, identity) => Some((identity.clone(), *node)),
            _ => None,
        }
    }

    /// The node into which nothing may go before this is durable.
    pub(crate) fn named(&self) -> Option<NodeId> {
        match self {
            Noted::Inode(node, _) => Some(*node),
            Noted::Step(step, Stage::Done) if step.from.is_none() => Some(step.node),
            _ => None,
        }
    }
}

/// The note of one log, as it is read and added to.
#[derive(Debug)]
pub(crate) struct Note<'a> {
    source: BorrowedFd<'a>,
    log: Identity,
    /// Open at its end; `None` before the first line is noted.
    file: Option<File>,
    /// As on a full disk.
    #[cfg(test)]
    pub(crate) is_full: bool,
}

impl<'a> Note<'a> {
    /// Reads the note of a log: what earlier recoveries of it did.
    ///
    /// # Errors
    /// InvalidData if it is damaged; those of reading it.
    pub(crate) fn read(
        source: BorrowedFd<'a>,
        log: Identity,
    ) -> io::Result<(Note<'a>, Vec<Noted>)> {
        let mut note = Note {
            source,
            log,
            file: None,
            #[cfg(test)]
            is_full: false,
        };
        let Some((directory, made, len)) = read(source, &log)? else {
            return Ok((note, Vec::new()));
        };
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = notes::open(&directory, NOTE, flags)?.ok_or(io::ErrorKind::NotFound)?;
        // A batch that was cut would damage the next one.
        file.set_len(len as u64)?;
        note.file = Some(file);
        Ok((note, made))
    }

    /// Adds lines, durably. After an error nothing may be added any more.
    ///
    /// # Errors
    /// Those of writing the note.
    pub(crate) fn add(&mut self, lines: &[Noted]) -> io::Result<()> {
        #[cfg(test)]
        if self.is_full {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        let batch = encode(lines);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(begin(self.source, &self.log, &[])?),
        };
        file.write_all(batch.as_bytes())?;
        file.sync_all()
    }
}

/// The lines of the note of a log, and how long they are. With the directory that it is in.
fn read(
    source: BorrowedFd<'_>,
    log: &Identity,
) -> io::Result<Option<(OwnedFd, Vec<Noted>, usize)>> {
    let Some(directory) = notes::trusted_directory(source)? else { return Ok(None) };
    let Some(text) = notes::read(&directory, NOTE)? else { return Ok(None) };
    let read = decode(&text, log).map_err(damaged)?;
    Ok(read.map(|(lines, len)| (directory, lines, len)))
}

/// Makes a note with these lines, in place of any other.
fn begin(source: BorrowedFd<'_>, log: &Identity, lines: &[Noted]) -> io::Result<File> {
    let directory = notes::directory(source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND;
    let mut file = notes::open(&directory, NOTE_NEW, flags)?.ok_or(io::ErrorKind::NotFound)?;
    let batch = if lines.is_empty() { String::new() } else { encode(lines) };
    file.write_all(format!("{}\n{batch}", hex(log)).as_bytes())?;
    file.sync_all()?;
    renameat(&directory, NOTE_NEW, &directory, NOTE)?;
    fsync(&directory)?;
    Ok(file)
}

/// The note of a mount whose log has failed, which has the log's records of names from there on.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    file: Option<File>,
    /// Up to where it is durable.
    len: u64,
    /// More may be in the file.
    pub(super) is_torn: bool,
}

impl Continuation {
    /// Adds records, durably, to the note of `log`, whose superblock has `generation` at most, and which does not count from
    /// `from` on. Blocks.
    ///
    /// # Errors
    /// Those of writing the note. None of the records is in it; they may be added again.
    pub(crate) fn add(
        &mut self,
        source: BorrowedFd<'_>,
        log: &Identity,
        (generation, from): (u64, Lsn),
        records: Vec<(Lsn, Vec<u8>)>,
    ) -> io::Result<()> {
        let lines = records.into_iter().map(|(lsn, record)| Noted::Record(lsn, record));
        let Some(file) = &mut self.file else {
            let lines: Vec<Noted> =
                std::iter::once(Noted::Continued { from, generation }).chain(lines).collect();
            let file = begin(source, log, &lines)?;
            self.len = file.metadata()?.len();
            self.file = Some(file);
            return Ok(());
        };
        if self.is_torn {
            // A batch that was cut would damage this one.
            file.set_len(self.len)?;
        }
        let batch = encode(&lines.collect::<Vec<_>>());
        self.is_torn = true;
        file.write_all(batch.as_bytes())?;
        file.sync_all()?;
        (self.is_torn, self.len) = (false, self.len + batch.len() as u64);
        Ok(())
    }
}

/// What a mount went on with after this log had failed, in the use of the log that this superblock is of. `None` if it did not
/// fail.
///
/// # Errors
/// As those of [`Note::read`].
pub(crate) fn continuation(
    source: BorrowedFd<'_>,
    superblock: &Superblock,
) -> io::Result<Option<Continued>> {
    let noted = read(source, &superblock.log)?.map_or_else(Vec::new, |(_, lines, _)| lines);
    let mut continued: Option<Continued> = None;
    for line in noted {
        match (line, &mut continued) {
            (Noted::Continued { from, generation }, none @ None) => {
                *none = Some(Continued { from, generation, records: Vec::new() });
            }
            (Noted::Record(lsn, record), Some(continued)) => continued.records.push((lsn, record)),
            (Noted::Continued { .. } | Noted::Record(..), _) => {
                return Err(damaged("it continues a log twice, or has records before"));
            }
            (Noted::Inode(..) | Noted::Step(..), _) => {}
        }
    }
    Ok(continued.filter(|continued| superblock.generation <= continued.generation))
}

/// What a note has of a log that failed.
#[derive(Debug)]
pub(crate) struct Continued {
    /// The first position of the log that does not count.
    pub(crate) from: Lsn,
    /// The highest generation of the log's superblock that this is of.
    pub(crate) generation: u64,
    /// What follows, in order, as the log would have it.
    pub(crate) records: Vec<(Lsn, Vec<u8>)>,
}

/// Removes the note, whatever log it is of. To be called when home was synced as a whole and the log is marked clean.
///
/// # Errors
/// Those of removing it.
pub fn forget_recovered_names(source: BorrowedFd<'_>) -> io::Result<()> {
    let Some(directory) = notes::trusted_directory(source)? else { return Ok(()) };
    match notes::remove(&directory, NOTE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn encode(lines: &[Noted]) -> String {
    let lines: String = lines.iter().map(encode_line).collect();
    format!("{lines}end {:08x}\n", crc32c::crc32c(lines.as_bytes()))
}

fn encode_line(line: &Noted) -> String {
    let place = |at: &Option<Place>| match at {
        Some(at) => format!("{:x}/{}", at.parent().0, hex(at.name())),
        None => "-".to_owned(),
    };
    match line {
        Noted::Inode(node, identity) => format!("{:x} {}\n", node.0, hex(identity)),
        Noted::Step(Step { node, from, to }, stage) => {
            format!("{} {:x} {} {}\n", word(*stage), node.0, place(from), place(to))
        }
        Noted::Continued { from, generation } => {
            format!("{CONTINUED} {:x} {generation:x}\n", from.0)
        }
        Noted::Record(lsn, record) => format!("{RECORD} {:x} {}\n", lsn.0, hex(record)),
    }
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Begun => "begun",
        Stage::Done => "done",
        Stage::Undone => "undone",
    }
}

/// What a note says, and how many bytes of it; `None` if it is of another log.
///
/// # Errors
/// What is wrong with it.
fn decode(text: &[u8], log: &Identity) -> Result<Option<(Vec<Noted>, usize)>, &'static str> {
    let first = text.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = first.strip_suffix(b"\n").and_then(|name| bytes(std::str::from_utf8(name).ok()?));
    match name {
        Some(name) if name == log => {}
        Some(name) if name.len() == log.len() => return Ok(None),
        _ => return Err("its first line is no log's name"),
    }
    let (mut made, mut whole) = (Vec::new(), first.len());
    let (mut batch, mut batch_start, mut at) = (Some(Vec::new()), whole, whole);
    let mut is_cut = false;
    for line in text[whole..].split_inclusive(|&byte| byte == b'\n') {
        let start = at;
        at += line.len();
        let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
        let Some(crc) = line.and_then(|line| line.strip_prefix("end ")) else {
            let inode = line.and_then(decode_line);
            batch = batch.zip(inode).map(|(mut batch, inode)| {
                batch.push(inode);
                batch
            });
            continue;
        };
        // Only what follows the last whole batch can have been cut.
        if is_cut {
            return Err("a batch in the middle is damaged");
        }
        let wanted = crc32c::crc32c(&text[batch_start..start]);
        match batch.replace(Vec::new()) {
            Some(batch) if u32::from_str_radix(crc, 16) == Ok(wanted) => {
                made.extend(batch);
                whole = at;
            }
            _ => is_cut = true,
        }
        batch_start = at;
    }
    Ok(Some((made, whole)))
}

fn decode_line(line: &str) -> Option<Noted> {
    let (first, rest) = line.split_once(' ')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    match first {
        CONTINUED => {
            let (from, generation) = rest.split_once(' ')?;
            let (from, generation) = (Lsn(number(from)?), number(generation)?);
            return Some(Noted::Continued { from, generation });
        }
        RECORD => {
            let (lsn, record) = rest.split_once(' ')?;
            return Some(Noted::Record(Lsn(number(lsn)?), digits(record)?));
        }
        _ => {}
    }
    let node = |digits: &str| Some(NodeId(number(digits)?));
    let Some(stage) = Stage::ALL.into_iter().find(|&stage| word(stage) == first) else {
        return Some(Noted::Inode(node(first)?, digits(rest)?));
    };
    let place = |text: &str| match text.split_once('/') {
        Some((directory, name)) => Some(Some(Place::new(node(directory)?, &digits(name)?)?)),
        None => (text == "-").then_some(None),
    };
    let mut fields = rest.split(' ');
    let mut next = || fields.next();
    let step = Step { node: node(next()?)?, from: place(next()?)?, to: place(next()?)? };
    next().is_none().then_some(Noted::Step(step, stage))
}

fn digits(text: &str) -> Option<Vec<u8>> {
    bytes(text).filter(|_| text.is_ascii() && text.len().is_multiple_of(2))
}

fn damaged(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged: {why}"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_note_is_of_one_log_and_may_be_cut_anywhere() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join(".weir");
        std::fs::create_dir(&own).unwrap();
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700)).unwrap();
        let source = File::open(place.path()).unwrap();
        let read = |log| Note::read(source.as_fd(), [log; 16]).unwrap();
        let inode = |node| Noted::Inode(NodeId(node), vec![1, 0, 0xff, node as u8]);
        let place = |name: &[u8]| Place::new(NodeId(0x123), name);
        let step =
            |stage| Noted::Step(Step { node: NodeId(8), from: place(b" \n\xff"), to: None }, stage);
        let moved = Step { node: NodeId(1 << 62), from: place(b"a"), to: place(b"b") };
        let continued = Noted::Continued { from: Lsn(0xfff0), generation: 0x11 };
        let batches = [
            vec![inode(7), inode(0x1234)],
            vec![step(Stage::Begun), step(Stage::Done), step(Stage::Undone)],
            vec![inode(9), Noted::Step(moved, Stage::Begun), continued],
            vec![Noted::Record(Lsn(0xfff0), vec![0, 0xff]), Noted::Record(Lsn(u64::MAX), vec![])],
        ];
        let (mut note, made) = read(1);
        assert!(made.is_empty());
        for batch in &batches {
            note.add(batch).unwrap();
        }
        assert_eq!(read(1).1, batches.concat());
        assert_eq!(own.join(NOTE).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(read(2).1.is_empty());
        let text = std::fs::read(own.join(NOTE)).unwrap();
        let ends: Vec<usize> =
            (0..text.len()).filter(|&at| text[at..].starts_with(b"end")).collect();
        for len in 33..text.len() {
            std::fs::write(own.join(NOTE), &text[..len]).unwrap();
            let (mut note, made) = read(1);
            let whole = ends.iter().filter(|&&end| end + 13 <= len).count();
            assert_eq!(made, batches[..whole].concat(), "cut at {len}");
            note.add(&[inode(11)]).unwrap();
            assert_eq!(read(1).1.last(), Some(&inode(11)));
        }
        for at in (0..33).chain([ends[0] - 5, ends[0] + 6]) {
            let mut text = text.clone();
            text[at] = b'?';
            std::fs::write(own.join(NOTE), &text).unwrap();
            assert!(Note::read(source.as_fd(), [1; 16]).is_err(), "damaged at {at}");
        }
        // Another log's note is replaced.
        std::fs::write(own.join(NOTE), &text).unwrap();
        read(2).0.add(&[inode(12)]).unwrap();
        assert_eq!((read(2).1, read(1).1), (vec![inode(12)], vec![]));
        forget_recovered_names(source.as_fd()).unwrap();
        forget_recovered_names(source.as_fd()).unwrap();
        assert!(!own.join(NOTE).exists());
    }
}
