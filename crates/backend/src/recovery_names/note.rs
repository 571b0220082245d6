//! The note of inodes that a recovery made: `.weir/recovered`.
//!
//! A recovery may be cut and done again. What it made has an identity that the log does not have; nothing is put into
//! such an inode before its identity is in the note, durably. So the next recovery knows every inode that is not empty.
//!
//! The first line is the log's name. Then come *batches*, each durable before the next one is begun: a line for each
//! inode, which is its node's number and its identity, and a last line `end CRC` over the batch's lines before it. All
//! numbers are in hexadecimal digits. The last batch may be cut, since nothing was done yet that needs it.
//!
//! Invariant: a note of another log is never used. It is replaced when the first inode is noted.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fsync, renameat};
use weir_log::Identity;
use weir_names::NodeId;

use crate::notes;
use crate::partial::{bytes, hex};

const NOTE: &str = "recovered";
const NOTE_NEW: &str = "recovered.new";

/// An inode that a recovery made: its node, and its identity.
pub(crate) type Made = (NodeId, Vec<u8>);

/// The note of one log, as it is read and added to.
#[derive(Debug)]
pub(crate) struct Note<'a> {
    source: BorrowedFd<'a>,
    log: Identity,
    /// Open at its end; `None` before the first inode is noted.
    file: Option<File>,
    /// As on a full disk.
    #[cfg(test)]
    pub(crate) is_full: bool,
}

impl<'a> Note<'a> {
    /// Reads the note of a log: what earlier recoveries of it made.
    ///
    /// # Errors
    /// InvalidData if it is damaged; those of reading it.
    pub(crate) fn read(source: BorrowedFd<'a>, log: Identity) -> io::Result<(Note<'a>, Vec<Made>)> {
        let mut note = Note {
            source,
            log,
            file: None,
            #[cfg(test)]
            is_full: false,
        };
        let Some(directory) = notes::trusted_directory(source)? else {
            return Ok((note, Vec::new()));
        };
        let Some(text) = notes::read(&directory, NOTE)? else { return Ok((note, Vec::new())) };
        let Some((made, len)) = decode(&text, &log).map_err(damaged)? else {
            return Ok((note, Vec::new()));
        };
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = notes::open(&directory, NOTE, flags)?.ok_or(io::ErrorKind::NotFound)?;
        // A batch that was cut would damage the next one.
        file.set_len(len as u64)?;
        note.file = Some(file);
        Ok((note, made))
    }

    /// Adds inodes, durably. After an error nothing may be added any more.
    ///
    /// # Errors
    /// Those of writing the note.
    pub(crate) fn add(&mut self, made: &[Made]) -> io::Result<()> {
        #[cfg(test)]
        if self.is_full {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        let batch = encode(made);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Note::begin(self.source, &self.log)?),
        };
        file.write_all(batch.as_bytes())?;
        file.sync_all()
    }

    /// Makes an empty note, in place of one of another log.
    fn begin(source: BorrowedFd<'_>, log: &Identity) -> io::Result<File> {
        let directory = notes::directory(source)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND;
        let mut file = notes::open(&directory, NOTE_NEW, flags)?.ok_or(io::ErrorKind::NotFound)?;
        file.write_all(format!("{}\n", hex(log)).as_bytes())?;
        file.sync_all()?;
        renameat(&directory, NOTE_NEW, &directory, NOTE)?;
        fsync(&directory)?;
        Ok(file)
    }
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

fn encode(made: &[Made]) -> String {
    let lines = made.iter().map(|(node, identity)| format!("{:x} {}\n", node.0, hex(identity)));
    let lines: String = lines.collect();
    format!("{lines}end {:08x}\n", crc32c::crc32c(lines.as_bytes()))
}

/// What a note says, and how many bytes of it; `None` if it is of another log.
///
/// # Errors
/// What is wrong with it.
fn decode(text: &[u8], log: &Identity) -> Result<Option<(Vec<Made>, usize)>, &'static str> {
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

fn decode_line(line: &str) -> Option<Made> {
    let (node, identity) = line.split_once(' ')?;
    let identity =
        bytes(identity).filter(|_| identity.is_ascii() && identity.len().is_multiple_of(2))?;
    Some((NodeId(u64::from_str_radix(node, 16).ok()?), identity))
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
        let inode = |node| (NodeId(node), vec![1, 0, 0xff, node as u8]);
        let batches = [vec![inode(7), inode(0x1234)], vec![inode(8)], vec![inode(9), inode(10)]];
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
