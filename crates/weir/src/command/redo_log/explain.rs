//! Explains a redo log in words: what recovery would do to each file.
//!
//! Replays the log as recovery does, but to a [`Home`] that only adds up the changes, and inspects the files
//! without changing them.
//!
//! Memory is one entry for each file and for each separate range of bytes that the log holds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::Path;

use weir_backend::{Look, Seen};
use weir_log::{Home, Lsn, NameRecord, ReadLog, ReplayError, Superblock, replay};

use crate::failure::one_line;

/// The changes that a log holds for one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    /// Valid records of bytes and sizes.
    records: u64,
    /// Records that later ones made void.
    void: u64,
    /// Bytes to be written: each range's start, mapped to its end. Ranges neither touch nor
    /// overlap.
    ranges: BTreeMap<u64, u64>,
    /// The last recorded size of the file.
    cut_to: Option<u64>,
}

impl Change {
    fn write(&mut self, start: u64, len: u64) {
        self.records += 1;
        let (mut start, mut end) = (start, start + len);
        let before = self.ranges.range(..=start).next_back().map(|(&from, &to)| (from, to));
        if let Some((from, to)) = before.filter(|&(_, to)| to >= start) {
            self.ranges.remove(&from);
            (start, end) = (from, end.max(to));
        }
        while let Some((&from, &to)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&from);
            end = end.max(to);
        }
        self.ranges.insert(start, end);
    }

    fn truncate(&mut self, size: u64) {
        self.records += 1;
        self.cut_to = Some(size);
        self.ranges.split_off(&size);
        if let Some(mut last) = self.ranges.last_entry() {
            let end = size.min(*last.get());
            *last.get_mut() = end;
        }
    }

    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// The file's size after recovery, if it has `bytes` now.
    fn size_after(&self, bytes: u64) -> u64 {
        let end = self.ranges.last_key_value().map_or(0, |(_, &end)| end);
        self.cut_to.unwrap_or(bytes).max(end)
    }

    /// What recovery would do to a file that has `bytes` bytes at home.
    fn words(&self, bytes: u64) -> String {
        let mut steps = Vec::new();
        if let Some(size) = self.cut_to {
            steps.push(format!("make it {} long", counted(size, "byte")));
        }
        let written = counted(self.bytes(), "byte");
        match (self.ranges.first_key_value(), self.ranges.last_key_value(), self.ranges.len()) {
            (Some((start, _)), _, 1) => steps.push(format!("write {written} from byte {start} on")),
            (Some((start, _)), Some((_, end)), places) => steps.push(format!(
                "write {written} in {places} places between byte {start} and byte {end}"
            )),
            _ => {}
        }
        let after = self.size_after(bytes);
        let mut words = steps.join(", then ");
        if after != bytes {
            words += &format!("; its size would be {after} instead of {bytes}");
        }
        words
    }
}

/// `1 byte`, `2 bytes`, ...
fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A log's files, by their identities, and its changes of names, in words.
#[derive(Debug, Default)]
pub struct Explained {
    files: BTreeMap<Vec<u8>, Change>,
    names: Vec<String>,
}

/// What stands for the identity of a file that is to be made: this and its node's number.
const NEW: &[u8] = b"\xff\xff\xff\xffnew";

/// Reads a log from its checkpoint to its end.
///
/// # Errors
/// Those for which recovery would not replay the log.
pub fn read<R: ReadLog>(
    log: &mut R,
    superblock: Superblock,
) -> Result<Explained, ReplayError<Infallible>> {
    let mut explained = Explained::default();
    replay(log, superblock, Some(&mut explained))?;
    Ok(explained)
}

impl Explained {
    fn change(&mut self, identity: &[u8]) -> &mut Change {
        if !self.files.contains_key(identity) {
            self.files.insert(identity.to_vec(), Change::default());
        }
        self.files.get_mut(identity).expect("it was inserted")
    }
}

/// A replay to it changes no file, and adds up the changes.
impl Home for Explained {
    type File = Vec<u8>;
    type Error = Infallible;

    const TAKES_NAMES: bool = true;

    fn name(&mut self, _lsn: Lsn, record: &NameRecord<'_>) -> Result<(), Infallible> {
        if !matches!(record, NameRecord::Node { .. }) {
            self.names.push(record.to_string());
        }
        Ok(())
    }

    fn identity_of(&self, node: u64) -> Option<Vec<u8>> {
        Some([NEW, node.to_string().as_bytes()].concat())
    }

    fn open(&mut self, identity: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(Some(identity.to_vec()))
    }

    fn write(&mut self, file: &Vec<u8>, offset: u64, data: &[u8]) -> Result<(), Infallible> {
        self.change(file).write(offset, data.len() as u64);
        Ok(())
    }

    fn truncate(&mut self, file: &Vec<u8>, size: u64) -> Result<(), Infallible> {
        self.change(file).truncate(size);
        Ok(())
    }

    fn sync(&mut self, _file: &Vec<u8>) -> Result<(), Infallible> {
        Ok(())
    }

    fn note_record(&mut self, identity: &[u8], is_void: bool) {
        self.change(identity).void += u64::from(is_void);
    }
}

impl Explained {
    /// A line for each change of names, in order; then one for each file: its name, and what recovery would do to it. Sorted
    /// by name.
    pub fn lines(&self, look: &mut Look) -> Vec<String> {
        let names = self.names.iter().map(|name| one_line(name));
        let line = |(identity, change): (&Vec<u8>, &Change)| match identity.strip_prefix(NEW) {
            Some(node) => {
                format!("node {}: {}", String::from_utf8_lossy(node), change.words(0))
            }
            None => line(look.at(identity), change),
        };
        let mut lines: Vec<String> = self.files.iter().map(line).collect();
        lines.sort();
        names.chain(lines).collect()
    }
}

fn line(seen: io::Result<Seen>, change: &Change) -> String {
    let line = match seen {
        Ok(Seen::File { name, bytes, locked }) => {
            let words = match (change.records, change.void) {
                (0, 0) => "leave it as it is: nothing of it is in the log".to_owned(),
                (0, _) => "leave it as it is: home is newer than the log".to_owned(),
                (_, 0) => change.words(bytes),
                (_, void) => format!(
                    "{}; leave out {}: home is newer",
                    change.words(bytes),
                    counted(void, "record")
                ),
            };
            let locked = match locked && change.records > 0 {
                true => "make it writable temporarily (it is immutable or append-only), then ",
                false => "",
            };
            format!("{name}: {locked}{words}")
        }
        Ok(Seen::Finished { name }) => {
            format!("{name}: leave it as it is: an earlier recovery finished it")
        }
        Ok(Seen::Gone) => format!(
            "a file that is gone: leave out {} with {}",
            counted(change.records + change.void, "record"),
            counted(change.bytes(), "byte")
        ),
        Err(error) => format!(
            "a file that cannot be inspected ({error}): {} with {}",
            counted(change.records, "record"),
            counted(change.bytes(), "byte")
        ),
    };
    one_line(&line)
}

/// A file's name, for the list of a log's records.
pub fn name(look: &mut Look, identity: &[u8]) -> String {
    match look.at(identity) {
        Ok(Seen::File { name, .. } | Seen::Finished { name }) => one_line(&name),
        Ok(Seen::Gone) => "a file that is gone".to_owned(),
        Err(error) => format!("a file that cannot be inspected: {error}"),
    }
}

/// The directory that was served, if a log is at its place in `.weir`.
pub fn source_of(log: &Path) -> Option<&Path> {
    let directory = log.parent()?;
    directory.ends_with(".weir").then(|| directory.parent()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> io::Result<Seen> {
        Ok(Seen::File { name: "a".into(), bytes, locked: false })
    }

    /// A log in memory.
    struct Image(Vec<u8>);

    impl ReadLog for Image {
        fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_log_is_explained_as_it_is_replayed() {
        // crates/log/tests/images.rs lists its records.
        let image = include_bytes!("../../../../log/tests/images/version-4");
        let superblock = Superblock::decode(image[..4096].try_into().unwrap()).unwrap();
        let mut log = Image(image.to_vec());
        log.0.resize(superblock.bytes as usize, 0);
        let Explained { files: changes, .. } = read(&mut log, superblock).unwrap();
        let of = |identity: &[u8]| changes[identity].words(22);
        assert_eq!(changes.len(), 2);
        assert_eq!(
            of(b"pathletter"),
            "make it 15 bytes long, then write 15 bytes in 2 places between byte 7 and byte 27; its size \
             would be 27 instead of 22"
        );
        let list = &changes[&b"pathlist"[..]];
        assert_eq!((list.records, list.void, list.size_after(16)), (1, 2, 9090));
        let clean = Superblock { clean: true, ..superblock };
        assert!(read(&mut log, clean).unwrap().files.is_empty());
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let mut change = Change::default();
        for (start, len) in [(0, 10), (20, 10), (10, 5), (28, 4), (19, 1), (100, 1)] {
            change.write(start, len);
        }
        assert_eq!(change.ranges, BTreeMap::from([(0, 15), (19, 32), (100, 101)]));
        change.truncate(25);
        assert_eq!(change.ranges, BTreeMap::from([(0, 15), (19, 25)]));
        assert_eq!((change.bytes(), change.size_after(500)), (21, 25));
        change.write(40, 2);
        assert_eq!(change.size_after(500), 42);
        change.truncate(0);
        assert_eq!((change.bytes(), change.size_after(500)), (0, 0));
    }

    #[test]
    fn changes_are_described_in_words() {
        let mut change = Change::default();
        change.write(4096, 35);
        assert_eq!(line(file(9000), &change), "a: write 35 bytes from byte 4096 on");
        change.write(0, 1);
        change.void = 1;
        assert_eq!(
            line(file(10), &change),
            "a: write 36 bytes in 2 places between byte 0 and byte 4131; its size would be 4131 instead \
             of 10; leave out 1 record: home is newer"
        );
        change.truncate(0);
        assert_eq!(
            line(file(10), &Change { void: 0, ..change }),
            "a: make it 0 bytes long; its size would be 0 instead of 10"
        );
        let void = Change { void: 2, ..Change::default() };
        assert!(line(file(10), &void).ends_with("leave it as it is: home is newer than the log"));
        assert_eq!(
            line(Ok(Seen::Gone), &void),
            "a file that is gone: leave out 2 records with 0 bytes"
        );
        let newline = Ok(Seen::Finished { name: "a\nb".into() });
        assert!(line(newline, &void).starts_with("a\\nb: leave it as it is"));
    }

    #[test]
    fn source_is_derived_from_the_place_of_its_log() {
        assert_eq!(source_of(Path::new("/srv/data/.weir/log")), Some(Path::new("/srv/data")));
        assert_eq!(source_of(Path::new("/srv/log")), None);
    }
}
