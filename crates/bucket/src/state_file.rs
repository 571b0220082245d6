//! The state file: what was made and set here and is not in the bucket yet.
//!
//! Text, one line a batch of changes: a CRC-32C in eight hexadecimal digits, the length of the file that was known to be
//! durable when the line was written, and the changes as JSON, separated by spaces. A batch takes effect as a whole.
//!
//! **A damaged file.** Reading ends at the first line that is incomplete or whose checksum is wrong. It is the torn end of
//! a write that nobody was told is durable, unless a good line after it says that the file was durable beyond it: then
//! the medium lost something, and the file is refused.
//!
//! **A full disk.** What is to be done in the bucket is noted before, and its end after. An end that found no room would leave
//! a beginning, and the next start would act on it, whatever happened since. So a line is refused unless there is room for
//! `RESERVE` bytes after it, which the file has already: [`StateFile::append_end`] may use them.
//!
//! Owns the file, the order of its lines and their durability (one fdatasync answers all that wait). Does not own what
//! they mean. When most of it is superseded, it is written anew beside and renamed over.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::metadata::Attributes;

/// A node that differs from the bucket: all that is needed to know of it. It supersedes what was said of `id` before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// A number, never given twice.
    pub id: u64,
    /// Counts the node's changes: an object that has this many, or more, has this one.
    pub version: u64,
    /// The key below the prefix; a directory's ends in a slash.
    pub key: String,
    /// Its attributes.
    pub attributes: Attributes,
    /// A symbolic link's target.
    pub target: Option<String>,
    /// The object that it has in the bucket, or will replace: its ETag.
    pub etag: Option<String>,
    /// The content begins with that object's bytes; otherwise only the object is replaced.
    pub based: bool,
    /// What the spool has durably; without it the content is the object's, or none.
    pub content: Option<Content>,
    /// The identity of the write that made the object with that ETag, if it is known and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
    /// If the object was written by the write of this identity, another file has replaced this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

/// Content in the spool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// How many of the node's changes it has: an object that has as many has it, too.
    #[serde(default = "any_version")]
    pub version: u64,
    /// The file's size, bytes.
    pub size: u64,
    /// How many bytes of the object still count.
    pub base: u64,
    /// Ranges that the spool has.
    pub dirty: Vec<(u64, u64)>,
}

/// What is read of a file in which contents had no versions yet: more than any object has.
fn any_version() -> u64 {
    u64::MAX
}

/// A line's parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// This node is not in the bucket as it is here.
    Pending(Pending),
    /// This node is in the bucket, or gone.
    Settled(u64),
    /// Objects are about to be moved, from a key to another; keys that end in a slash mean all below.
    Move {
        /// Which move.
        id: u64,
        /// From this key below the prefix.
        from: String,
        /// To this one.
        to: String,
        /// The ETag of the object to be moved, if it is a single one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        etag: Option<String>,
        /// The ETag of the object that it is to replace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced: Option<String>,
    },
    /// The objects of a move are copied: the copies' ETags, of the nodes that are pending. The old objects are about to
    /// be removed.
    Copied {
        /// Which move.
        id: u64,
        /// Nodes and ETags.
        etags: Vec<(u64, String)>,
    },
    /// A move is done, or undone.
    Moved(u64),
    /// The object with this key below the prefix was moved, and is to be removed yet.
    Leftover(String),
    /// The same, if it still has this ETag.
    LeftoverOf(String, String),
    /// It is removed.
    LeftoverEnded(String),
    /// A multipart upload of this key below the prefix is about to be begun. Without an answer its identity is not known.
    MultipartBegins(String),
    /// A multipart upload was begun: key below the prefix and identity.
    Multipart(String, String),
    /// It is completed or aborted.
    MultipartEnded(String),
    /// Numbers up to this one were given.
    Numbers(u64),
}

/// Why a state file is not read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("state file {path}: {error}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Lines that were durable are damaged.
    #[error(
        "state file {path} is damaged at byte {at}, before lines that were written durably later: the medium lost data. \
         What the bucket has is not concerned. Move the state directory away to go on without what was pending in it"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the first damaged line begins.
        at: u64,
    },
}

/// Reads lines up to the end or to damage: the changes, and the length of what is good.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Change>, u64), u64> {
    let mut changes = Vec::new();
    let mut at = 0;
    let mut bad: Option<u64> = None;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match (parse_line(line), bad) {
            (Some((_, batch)), None) => {
                changes.extend(batch);
                at += line.len() as u64;
            }
            (Some((durable, _)), Some(place)) if durable > place => return Err(place),
            (Some(_), Some(_)) => {}
            (None, _) => bad = bad.or(Some(at)),
        }
    }
    Ok((changes, at))
}

fn parse_line(line: &[u8]) -> Option<(u64, Vec<Change>)> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, rest) = line.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(rest.as_bytes()) {
        return None;
    }
    let (durable, json) = rest.split_once(' ')?;
    Some((durable.parse().ok()?, serde_json::from_str(json).ok()?))
}

fn line_of(durable: u64, batch: &[Change]) -> String {
    let json = serde_json::to_string(batch).expect("changes are texts and numbers");
    let rest = format!("{durable} {json}");
    format!("{:08x} {rest}\n", crc32c::crc32c(rest.as_bytes()))
}

/// A place in the state file; durable when the file is as far as here. Places of the file's former versions count on.
pub type Position = u64;

struct Written {
    file: std::sync::Arc<File>,
    /// Length of the present file, and what was in former ones.
    length: u64,
    former: u64,
    /// The file has room up to this length.
    room: u64,
    /// Bytes that the ends of large things under way may need.
    promised: u64,
    durable: Position,
    syncing: bool,
    failed: bool,
    compact_at: u64,
}

/// The open state file.
pub struct StateFile {
    path: PathBuf,
    written: Mutex<Written>,
    synced: Condvar,
}

const COMPACT_BYTES_MIN: u64 = 1 << 20;
/// Room for the ends of what was begun.
const RESERVE: u64 = 128 << 10;

impl StateFile {
    /// Opens or makes the state file of a directory, and reads it.
    pub fn open(directory: &Path) -> Result<(StateFile, Vec<Change>), StateError> {
        let path = directory.join("state");
        let wrap = |error| StateError::Io { path: path.clone(), error };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = options.open(&path).map_err(wrap)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(wrap)?;
        let (changes, good) =
            parse(&bytes).map_err(|at| StateError::Damaged { path: path.clone(), at })?;
        file.set_len(good).map_err(wrap)?;
        file.sync_all().map_err(wrap)?;
        sync_directory(directory).map_err(wrap)?;
        let written = Written {
            file: file.into(),
            length: good,
            former: 0,
            room: 0,
            promised: 0,
            durable: good,
            syncing: false,
            failed: false,
            compact_at: COMPACT_BYTES_MIN.max(good * 2),
        };
        let state = StateFile { path, written: Mutex::new(written), synced: Condvar::new() };
        Ok((state, changes))
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a batch. Its order among others is that of the calls; it is durable after [`StateFile::durable`].
    pub fn append(&self, batch: &[Change]) -> io::Result<Position> {
        self.append_with(batch, RESERVE)
    }

    /// Appends a batch that begins something whose end takes more than a few lines: up to `room` bytes, which are there until
    /// [`StateFile::ended`].
    pub fn append_begin(&self, batch: &[Change], room: u64) -> io::Result<Position> {
        self.written().promised += room;
        let appended = self.append(batch);
        if appended.is_err() {
            self.ended(room);
        }
        appended
    }

    /// What was begun with that much room has ended.
    pub fn ended(&self, room: u64) {
        let mut written = self.written();
        written.promised = written.promised.saturating_sub(room);
    }

    /// Appends a batch that says what became of something begun before. There is room for it.
    pub fn append_end(&self, batch: &[Change]) -> io::Result<Position> {
        self.append_with(batch, 0)
    }

    fn append_with(&self, batch: &[Change], reserve: u64) -> io::Result<Position> {
        let mut written = self.written();
        if written.failed {
            return Err(io::Error::other("the state file failed before"));
        }
        let durable = written.durable.saturating_sub(written.former);
        let line = line_of(durable, batch);
        if reserve > 0 {
            let end = written.length + line.len() as u64;
            let wanted = end + reserve + written.promised;
            written.room = have_room(&written.file, written.room, wanted)?;
        }
        if let Err(error) = (&*written.file).write_all(line.as_bytes()) {
            // Part of a line may be there; it must stay the last. What was given as room is gone.
            written.failed = written.file.set_len(written.length).is_err();
            written.room = written.length;
            return Err(error);
        }
        written.length += line.len() as u64;
        Ok(written.former + written.length)
    }

    /// The place after all that was appended.
    pub fn end(&self) -> Position {
        let written = self.written();
        written.former + written.length
    }

    /// How long the file would be if the machine stopped now.
    #[cfg(test)]
    pub fn durable_bytes(&self) -> u64 {
        let written = self.written();
        written.durable.saturating_sub(written.former)
    }

    /// Waits until the file is durable up to a place.
    pub fn durable(&self, position: Position) -> io::Result<()> {
        let mut written = self.written();
        loop {
            if written.durable >= position {
                return Ok(());
            }
            if written.failed {
                return Err(io::Error::other("the state file could not be synced"));
            }
            if !written.syncing {
                break;
            }
            written = self.synced.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
        written.syncing = true;
        let (file, reached) = (written.file.clone(), written.former + written.length);
        drop(written);
        let result = file.sync_data();
        let mut written = self.written();
        written.syncing = false;
        match &result {
            Ok(()) => written.durable = written.durable.max(reached),
            // What a failed fdatasync covered may be gone, whatever a later one says.
            Err(_) => written.failed = true,
        }
        self.synced.notify_all();
        result
    }

    /// Whether it should be written anew.
    pub fn is_long(&self) -> bool {
        let written = self.written();
        written.length > written.compact_at
    }

    /// Writes the file anew with what still counts. Nobody appends meanwhile: the caller has the lock under which
    /// changes are made.
    pub fn compact(&self, live: &[Change]) -> io::Result<()> {
        let mut written = self.written();
        while written.syncing {
            written = self.synced.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
        let beside = self.path.with_extension("new");
        let mut text = String::new();
        for batch in live.chunks(64) {
            text.push_str(&line_of(0, batch));
        }
        let write = || {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true);
            let mut file = options.open(&beside)?;
            file.set_len(0)?;
            file.write_all(text.as_bytes())?;
            // On a full disk it may be what makes room.
            let length = text.len() as u64;
            let wanted = length + RESERVE + written.promised;
            let room = have_room(&file, 0, wanted).unwrap_or(length);
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            Ok((file, room))
        };
        let (file, room) = match write() {
            Ok(made) => made,
            Err(error) => {
                // It must not take room away.
                let _ = std::fs::remove_file(&beside);
                written.compact_at = written.length + COMPACT_BYTES_MIN;
                return Err(error);
            }
        };
        let synced = self.path.parent().map_or(Ok(()), sync_directory);
        if let Err(error) = synced {
            // It is not known which of the two files the next start finds.
            written.failed = true;
            self.synced.notify_all();
            return Err(error);
        }
        written.former += written.length;
        written.length = text.len() as u64;
        written.former -= written.length.min(written.former);
        written.durable = written.former + written.length;
        written.file = file.into();
        written.room = room;
        // All that counts is in the new file.
        written.failed = false;
        written.compact_at = COMPACT_BYTES_MIN.max(written.length * 2);
        self.synced.notify_all();
        Ok(())
    }
}

/// Gives a file room up to a length, beyond its end, and some more; how far it has room. Where file systems cannot do that,
/// nothing is reserved.
fn have_room(file: &File, room: u64, wanted: u64) -> io::Result<u64> {
    if room >= wanted {
        return Ok(room);
    }
    let give = |length| fallocate(file, FallocateFlags::KEEP_SIZE, 0, length).map(|()| length);
    match give(wanted + RESERVE).or_else(|_| give(wanted)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(u64::MAX),
        given => Ok(given?),
    }
}

/// Makes names in a directory durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settled(count: u64) -> Vec<Change> {
        (0..count).map(Change::Settled).collect()
    }

    #[test]
    fn what_is_durable_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (file, found) = StateFile::open(directory.path()).unwrap();
        assert!(found.is_empty());
        let position = file.append(&settled(3)).unwrap();
        file.durable(position).unwrap();
        drop(file);
        let (file, found) = StateFile::open(directory.path()).unwrap();
        assert_eq!(found, settled(3));
        file.compact(&settled(2)).unwrap();
        let position = file.append(&[Change::Numbers(9)]).unwrap();
        file.durable(position).unwrap();
        drop(file);
        let (_, found) = StateFile::open(directory.path()).unwrap();
        assert_eq!(found, [settled(2), vec![Change::Numbers(9)]].concat());
    }

    #[test]
    fn what_is_begun_has_room_for_its_end() {
        const ROOM: u64 = 4 << 20;
        let directory = tempfile::tempdir().unwrap();
        let (file, _) = StateFile::open(directory.path()).unwrap();
        let blocks = || {
            let found = std::fs::metadata(directory.path().join("state")).unwrap();
            std::os::unix::fs::MetadataExt::blocks(&found) * 512
        };
        file.append_begin(&settled(1), ROOM).unwrap();
        assert!(blocks() >= ROOM);
        // What others append, and a file that is written anew, take none of it.
        for _ in 0..3 {
            file.append(&settled(20_000)).unwrap();
        }
        let others = std::fs::metadata(directory.path().join("state")).unwrap().len();
        assert!(blocks() >= others + ROOM);
        file.compact(&settled(1)).unwrap();
        assert!(blocks() >= ROOM);
        file.ended(ROOM);
        file.compact(&settled(1)).unwrap();
        assert!(blocks() < ROOM);
    }

    #[test]
    fn a_torn_end_is_cut_and_damage_before_durable_lines_is_refused() {
        let first = line_of(0, &settled(1));
        let second = line_of(first.len() as u64, &settled(2));
        let together = line_of(first.len() as u64, &settled(3));
        let third = line_of((first.len() + second.len()) as u64, &settled(3));
        let mut bytes = [first.clone(), second.clone(), third].concat().into_bytes();
        bytes[first.len() + 3] ^= 1;
        assert_eq!(parse(&bytes), Err(first.len() as u64));
        // Two lines of one write, of which the first did not get there.
        let mut bytes = [first.clone(), second, together].concat().into_bytes();
        bytes[first.len() + 3] ^= 1;
        assert_eq!(parse(&bytes), Ok((settled(1), first.len() as u64)));
    }

    proptest! {
        #[test]
        fn any_end_may_be_torn(cut in 0usize..200, garbage in prop::collection::vec(any::<u8>(), 0..20)) {
            let lines: Vec<String> = (1..5).map(|count| line_of(0, &settled(count))).collect();
            let mut bytes = lines.concat().into_bytes();
            bytes.truncate(cut);
            let mut whole = 0;
            let mut expected = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                if whole + line.len() > bytes.len() { break; }
                whole += line.len();
                expected.extend(settled(index as u64 + 1));
            }
            bytes.extend(garbage);
            let (found, good) = parse(&bytes).unwrap();
            prop_assert!(found.starts_with(&expected) && good >= whole as u64);
        }

        #[test]
        fn any_bytes_are_lines_or_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
