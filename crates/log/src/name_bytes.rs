//! The bytes of records of names, behind the head that all records have.
//!
//! ```text
//! kind            value            payload, bytes from the record's start
//! 16 node         type             32 identity
//! 17 make         directory        32 attributes, 72 type, 73 name's length, 80 device, 88 name, then target
//! 18 link         directory        32 name
//! 19 remove       directory        32 name
//! 20 rename       old directory    32 new directory, 40 replaced node, 48 old name's length, 56 old name, then new name
//! 21 exchange     directory        32 other node, 40 its directory, 48 name's length, 56 name, then other name
//! 22 attributes   zero             32 attributes
//! 23 xattr        1 set, 0 removed 32 name's length, 40 name, then value
//! 24 place        directory        32 type, 40 name
//! 25 step         stage            32 old directory, 40 new directory, 48 old name's length, 56 old name, then new name
//! ```
//!
//! All fields of a kind are there, those without a purpose zero. The last one ends where the record ends.

use crate::name_record::{
    Entry, FileType, LoggedAttributes, LoggedTime, NameRecord, NewNode, Stage,
};
use crate::record_error::RecordError;

const NODE: u8 = 16;
const MAKE: u8 = 17;
const LINK: u8 = 18;
const REMOVE: u8 = 19;
const RENAME: u8 = 20;
const EXCHANGE: u8 = 21;
const SET: u8 = 22;
const SET_XATTR: u8 = 23;
const PLACE: u8 = 24;
const STEP: u8 = 25;

/// Bytes of attributes: mask, mode, owner and group, 4 each; seconds of atime and mtime, 8 each; their nanoseconds, 4 each.
const ATTRIBUTES_BYTES: usize = 40;

/// Bytes of a name's length and the zeros behind it.
const LENGTH_BYTES: usize = 8;

const MODE: u32 = 1;
const UID: u32 = 2;
const GID: u32 = 4;
const ATIME: u32 = 8;
const MTIME: u32 = 16;

impl<'a> NameRecord<'a> {
    /// Its kind, and the head's value.
    pub(crate) fn kind_and_value(&self) -> (u8, u64) {
        match *self {
            NameRecord::Node { file_type, .. } => (NODE, file_type as u64),
            NameRecord::Make { at, .. } => (MAKE, at.directory),
            NameRecord::Link { at, .. } => (LINK, at.directory),
            NameRecord::Remove { at, .. } => (REMOVE, at.directory),
            NameRecord::Rename { from, .. } => (RENAME, from.directory),
            NameRecord::Exchange { one, .. } => (EXCHANGE, one.1.directory),
            NameRecord::Set { .. } => (SET, 0),
            NameRecord::SetXattr { value, .. } => (SET_XATTR, value.is_some().into()),
            NameRecord::Place { at, .. } => (PLACE, at.directory),
            NameRecord::Step { stage, .. } => (STEP, stage as u64),
        }
    }

    /// Bytes of its payload.
    pub(crate) fn payload_bytes(&self) -> usize {
        match *self {
            NameRecord::Node { identity, .. } => identity.len(),
            NameRecord::Make { at, kind, .. } => {
                let target = if let NewNode::Symlink(target) = kind { target } else { &[] };
                ATTRIBUTES_BYTES + LENGTH_BYTES + 8 + at.name.len() + target.len()
            }
            NameRecord::Link { at, .. } | NameRecord::Remove { at, .. } => at.name.len(),
            NameRecord::Rename { from: one, to: other, .. }
            | NameRecord::Exchange { one: (_, one), other: (_, other) } => {
                16 + LENGTH_BYTES + one.name.len() + other.name.len()
            }
            NameRecord::Set { .. } => ATTRIBUTES_BYTES,
            NameRecord::SetXattr { name, value, .. } => {
                LENGTH_BYTES + name.len() + value.map_or(0, <[u8]>::len)
            }
            NameRecord::Place { at, .. } => LENGTH_BYTES + at.name.len(),
            NameRecord::Step { from, to, .. } => {
                let name = |at: Option<Entry<'_>>| at.map_or(0, |at| at.name.len());
                16 + LENGTH_BYTES + name(from) + name(to)
            }
        }
    }

    /// Its payload.
    ///
    /// # Panics
    /// If [`NameRecord::check`] finds something: nobody could recover from it.
    pub(crate) fn payload(&self) -> Vec<u8> {
        assert_eq!(self.check(), Ok(()), "a record of names makes sense: {self}");
        let mut bytes = Vec::with_capacity(self.payload_bytes());
        match *self {
            NameRecord::Node { identity, .. } => bytes.extend(identity),
            NameRecord::Make { at, kind, attributes, .. } => {
                put_attributes(&mut bytes, &attributes);
                bytes.extend([kind.file_type() as u8, length(at.name), 0, 0, 0, 0, 0, 0]);
                let (device, target) = match kind {
                    NewNode::Symlink(target) => (0, target),
                    NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) => {
                        (device, &[][..])
                    }
                    _ => (0, &[][..]),
                };
                bytes.extend(device.to_le_bytes());
                bytes.extend(at.name);
                bytes.extend(target);
            }
            NameRecord::Link { at, .. } | NameRecord::Remove { at, .. } => bytes.extend(at.name),
            NameRecord::Rename { from, to, replaced, .. } => {
                put_two(&mut bytes, [to.directory, replaced.unwrap_or(0)], [from.name, to.name]);
            }
            NameRecord::Exchange { one, other } => {
                let numbers = [other.0, other.1.directory];
                put_two(&mut bytes, numbers, [one.1.name, other.1.name]);
            }
            NameRecord::Set { attributes, .. } => put_attributes(&mut bytes, &attributes),
            NameRecord::SetXattr { name, value, .. } => {
                bytes.extend(u64::from(length(name)).to_le_bytes());
                bytes.extend(name);
                bytes.extend(value.unwrap_or_default());
            }
            NameRecord::Place { file_type, at, .. } => {
                bytes.extend((file_type as u64).to_le_bytes());
                bytes.extend(at.name);
            }
            NameRecord::Step { from, to, .. } => {
                let directory = |at: Option<Entry<'_>>| at.map_or(0, |at| at.directory);
                let name = |at: Option<Entry<'a>>| at.map_or(&[][..], |at| at.name);
                put_two(&mut bytes, [directory(from), directory(to)], [name(from), name(to)]);
            }
        }
        debug_assert_eq!(bytes.len(), self.payload_bytes());
        bytes
    }

    /// The record of names with this head and payload; `None` if its kind is none of names.
    ///
    /// # Errors
    /// [`RecordError::Nonsense`].
    pub(crate) fn decode(
        kind: u8,
        node: u64,
        value: u64,
        payload: &'a [u8],
    ) -> Option<Result<NameRecord<'a>, RecordError>> {
        if !(NODE..=STEP).contains(&kind) {
            return None;
        }
        let record = parse(kind, node, value, Fields(payload));
        Some(record.and_then(|record| record.check().map(|()| record)))
    }
}

fn parse<'a>(
    kind: u8,
    node: u64,
    value: u64,
    mut fields: Fields<'a>,
) -> Result<NameRecord<'a>, RecordError> {
    let entry = |name| Entry { directory: value, name };
    Ok(match kind {
        NODE => {
            let file_type = u8::try_from(value).ok().and_then(file_type);
            let file_type = file_type.ok_or(RecordError::Nonsense("type"))?;
            NameRecord::Node { node, file_type, identity: fields.rest() }
        }
        MAKE => {
            let attributes = fields.attributes()?;
            let file_type = file_type(fields.byte()?).ok_or(RecordError::Nonsense("type"))?;
            let len = fields.byte()?;
            fields.zeros(LENGTH_BYTES - 2)?;
            let device = fields.u64()?;
            let at = entry(fields.take(len.into())?);
            let kind = new_node(file_type, device, fields.rest())?;
            NameRecord::Make { node, at, kind, attributes }
        }
        LINK => NameRecord::Link { node, at: entry(fields.rest()) },
        REMOVE => NameRecord::Remove { node, at: entry(fields.rest()) },
        RENAME => {
            let (directory, replaced) = (fields.u64()?, fields.u64()?);
            let from = entry(fields.name()?);
            let to = Entry { directory, name: fields.rest() };
            NameRecord::Rename { node, from, to, replaced: (replaced != 0).then_some(replaced) }
        }
        EXCHANGE => {
            let (other, directory) = (fields.u64()?, fields.u64()?);
            let one = (node, entry(fields.name()?));
            let at = Entry { directory, name: fields.rest() };
            NameRecord::Exchange { one, other: (other, at) }
        }
        SET => {
            is_zero(value == 0)?;
            let attributes = fields.attributes()?;
            fields.end()?;
            NameRecord::Set { node, attributes }
        }
        PLACE => {
            let file_type = u8::try_from(fields.u64()?).ok().and_then(file_type);
            let file_type = file_type.ok_or(RecordError::Nonsense("type"))?;
            NameRecord::Place { node, file_type, at: entry(fields.rest()) }
        }
        STEP => {
            let stage = Stage::ALL.into_iter().find(|&stage| stage as u64 == value);
            let stage = stage.ok_or(RecordError::Nonsense("stage"))?;
            let (old, new) = (fields.u64()?, fields.u64()?);
            let (from, to) = (fields.name()?, fields.rest());
            let place = |directory, name: &'a [u8]| match directory {
                0 => is_zero(name.is_empty()).map(|()| None),
                directory => Ok(Some(Entry { directory, name })),
            };
            NameRecord::Step { node, stage, from: place(old, from)?, to: place(new, to)? }
        }
        _ => {
            let name = fields.name()?;
            let value = match value {
                0 => fields.end().map(|()| None)?,
                1 => Some(fields.rest()),
                _ => return Err(RecordError::Nonsense("value")),
            };
            NameRecord::SetXattr { node, name, value }
        }
    })
}

fn file_type(number: u8) -> Option<FileType> {
    FileType::ALL.into_iter().find(|&known| known as u8 == number)
}

fn new_node(file_type: FileType, device: u64, target: &[u8]) -> Result<NewNode<'_>, RecordError> {
    let is_device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
    is_zero(is_device || device == 0)?;
    if file_type != FileType::Symlink && !target.is_empty() {
        return Err(RecordError::Nonsense("length"));
    }
    Ok(match file_type {
        FileType::File => NewNode::File,
        FileType::Directory => NewNode::Directory,
        FileType::Symlink => NewNode::Symlink(target),
        FileType::Fifo => NewNode::Fifo,
        FileType::Socket => NewNode::Socket,
        FileType::CharacterDevice => NewNode::CharacterDevice(device),
        FileType::BlockDevice => NewNode::BlockDevice(device),
    })
}

/// The length of a name that was checked.
fn length(name: &[u8]) -> u8 {
    u8::try_from(name.len()).expect("a name's length was checked")
}

fn put_two(bytes: &mut Vec<u8>, numbers: [u64; 2], [one, other]: [&[u8]; 2]) {
    bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(u64::from(length(one)).to_le_bytes());
    bytes.extend(one);
    bytes.extend(other);
}

fn put_attributes(bytes: &mut Vec<u8>, attributes: &LoggedAttributes) {
    let LoggedAttributes { mode, uid, gid, atime, mtime } = *attributes;
    let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
    let mask = bit(mode.is_some(), MODE)
        | bit(uid.is_some(), UID)
        | bit(gid.is_some(), GID)
        | bit(atime.is_some(), ATIME)
        | bit(mtime.is_some(), MTIME);
    for number in [Some(mask), mode, uid, gid] {
        bytes.extend(number.unwrap_or(0).to_le_bytes());
    }
    let times = [atime, mtime].map(Option::unwrap_or_default);
    bytes.extend(times.iter().flat_map(|time| time.seconds.to_le_bytes()));
    bytes.extend(times.iter().flat_map(|time| time.nanoseconds.to_le_bytes()));
}

/// What has no purpose is zero.
fn is_zero(is_zero: bool) -> Result<(), RecordError> {
    is_zero.then_some(()).ok_or(RecordError::Nonsense("unused field"))
}

/// The rest of a payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) =
            self.0.split_at_checked(bytes).ok_or(RecordError::Nonsense("length"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?.try_into().map_err(|_| RecordError::Nonsense("length"))
    }

    fn byte(&mut self) -> Result<u8, RecordError> {
        self.number().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.number().map(u64::from_le_bytes)
    }

    fn zeros(&mut self, bytes: usize) -> Result<(), RecordError> {
        is_zero(self.take(bytes)?.iter().all(|&byte| byte == 0))
    }

    /// A length, and where the fixed fields end, as many bytes.
    fn name(&mut self) -> Result<&'a [u8], RecordError> {
        let len = self.byte()?;
        self.zeros(LENGTH_BYTES - 1)?;
        self.take(len.into())
    }

    fn attributes(&mut self) -> Result<LoggedAttributes, RecordError> {
        let mask = self.u32()?;
        if mask & !(MODE | UID | GID | ATIME | MTIME) != 0 {
            return Err(RecordError::Nonsense("mask of attributes"));
        }
        let mut number = |bit| {
            let number = self.u32()?;
            let is_set = mask & bit != 0;
            is_zero(is_set || number == 0)?;
            Ok(is_set.then_some(number))
        };
        let (mode, uid, gid) = (number(MODE)?, number(UID)?, number(GID)?);
        let seconds: [[u8; 8]; 2] = [self.number()?, self.number()?];
        let mut time = |bit, seconds| {
            let seconds = i64::from_le_bytes(seconds);
            let time = LoggedTime { seconds, nanoseconds: self.u32()? };
            let is_set = mask & bit != 0;
            is_zero(is_set || time == LoggedTime::default())?;
            Ok(is_set.then_some(time))
        };
        let (atime, mtime) = (time(ATIME, seconds[0])?, time(MTIME, seconds[1])?);
        Ok(LoggedAttributes { mode, uid, gid, atime, mtime })
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn end(&self) -> Result<(), RecordError> {
        self.0.is_empty().then_some(()).ok_or(RecordError::Nonsense("length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded<'a>(
        record: &NameRecord<'_>,
        payload: &'a [u8],
    ) -> Result<NameRecord<'a>, RecordError> {
        let (kind, value) = record.kind_and_value();
        NameRecord::decode(kind, record.node(), value, payload).unwrap()
    }

    /// One of each kind, every field filled.
    fn samples() -> Vec<NameRecord<'static>> {
        let (from, to) =
            (Entry { directory: 3, name: b"from" }, Entry { directory: 4, name: b"to" });
        let time = |seconds| Some(LoggedTime { seconds, nanoseconds: 999_999_999 });
        let attributes = LoggedAttributes {
            mode: Some(0o7755),
            uid: Some(u32::MAX),
            gid: Some(9),
            atime: time(i64::MIN),
            mtime: time(i64::MAX),
        };
        let mut samples = vec![
            NameRecord::Link { node: 7, at: to },
            NameRecord::Remove { node: 7, at: to },
            NameRecord::Rename { node: 7, from, to, replaced: Some(8) },
            NameRecord::Rename { node: 7, from, to, replaced: None },
            NameRecord::Exchange { one: (7, from), other: (8, to) },
            NameRecord::Set { node: 7, attributes },
            NameRecord::Set { node: 7, attributes: LoggedAttributes::default() },
            NameRecord::SetXattr { node: 7, name: b"user.x", value: Some(b"value") },
            NameRecord::SetXattr { node: 7, name: b"user.x", value: Some(b"") },
            NameRecord::SetXattr { node: 7, name: b"user.x", value: None },
        ];
        for stage in Stage::ALL {
            for (from, to) in [(Some(from), Some(to)), (Some(from), None), (None, Some(to))] {
                samples.push(NameRecord::Step { node: 7, stage, from, to });
            }
        }
        for kind in [
            NewNode::File,
            NewNode::Directory,
            NewNode::Symlink(b"../target"),
            NewNode::Fifo,
            NewNode::Socket,
            NewNode::CharacterDevice(0x501),
            NewNode::BlockDevice(u64::MAX),
        ] {
            samples.push(NameRecord::Make { node: 7, at: to, kind, attributes });
            let file_type = kind.file_type();
            samples.push(NameRecord::Node { node: 7, file_type, identity: b"handle" });
            samples.push(NameRecord::Place { node: 7, file_type, at: to });
        }
        samples
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for record in samples() {
            let payload = record.payload();
            assert_eq!(payload.len(), record.payload_bytes());
            assert_eq!(decoded(&record, &payload), Ok(record));
        }
    }

    /// docs/LOG_FORMAT.md, byte for byte: what logs on disk hold.
    #[test]
    fn fields_are_where_the_format_says() {
        let time = |seconds| Some(LoggedTime { seconds, nanoseconds: 0x0a0b });
        let attributes = LoggedAttributes {
            mode: Some(0o644),
            uid: Some(0x0102),
            gid: None,
            atime: None,
            mtime: time(-2),
        };
        let set: [&[u8]; 8] = [
            &[1 | 2 | 16, 0, 0, 0],
            &[0xa4, 1, 0, 0],
            &[2, 1, 0, 0],
            &[0; 4],
            &[0; 8],
            &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0; 4],
            &[0x0b, 0x0a, 0, 0],
        ];
        let (from, to) =
            (Entry { directory: 3, name: b"from" }, Entry { directory: 4, name: b"to" });
        let make = |kind| NameRecord::Make { node: 7, at: from, kind, attributes };
        let behind = |rest: &[&[u8]]| [&set[..], rest].concat().concat();
        let link: &[&[u8]] = &[&[10, 4, 0, 0, 0, 0, 0, 0], &[0; 8], b"from", b"target"];
        let device: &[&[u8]] = &[&[2, 4, 0, 0, 0, 0, 0, 0], &[5, 1, 0, 0, 0, 0, 0, 0], b"from"];
        let two = |numbers: [u8; 2]| {
            let [one, other] = numbers.map(|number| [number, 0, 0, 0, 0, 0, 0, 0]);
            [&one[..], &other, &[4, 0, 0, 0, 0, 0, 0, 0], b"fromto"].concat()
        };
        let xattr = |value| NameRecord::SetXattr { node: 7, name: b"user.x", value };
        let name: &[u8] = b"\x06\0\0\0\0\0\0\0user.x";
        let step = |stage, from, to| NameRecord::Step { node: 7, stage, from, to };
        let moved = |old: u8, new: u8, length: &[u8], names: &[u8]| {
            [&[old], &[0; 7][..], &[new], &[0; 7], length, &[0; 7], names].concat()
        };
        let directory =
            NameRecord::Node { node: 7, file_type: FileType::Directory, identity: b"i" };
        for (record, kind, value, payload) in [
            (directory, 16, 4, b"i".to_vec()),
            (make(NewNode::Symlink(b"target")), 17, 3, behind(link)),
            (make(NewNode::CharacterDevice(0x105)), 17, 3, behind(device)),
            (NameRecord::Link { node: 7, at: to }, 18, 4, b"to".to_vec()),
            (NameRecord::Remove { node: 7, at: to }, 19, 4, b"to".to_vec()),
            (NameRecord::Rename { node: 7, from, to, replaced: Some(8) }, 20, 3, two([4, 8])),
            (NameRecord::Rename { node: 7, from, to, replaced: None }, 20, 3, two([4, 0])),
            (NameRecord::Exchange { one: (7, from), other: (8, to) }, 21, 3, two([8, 4])),
            (NameRecord::Set { node: 7, attributes }, 22, 0, behind(&[])),
            (xattr(Some(b"value")), 23, 1, [name, b"value"].concat()),
            (xattr(None), 23, 0, name.to_vec()),
            (
                NameRecord::Place { node: 7, file_type: FileType::Symlink, at: from },
                24,
                3,
                [&[10, 0, 0, 0, 0, 0, 0, 0], &b"from"[..]].concat(),
            ),
            (step(Stage::Begun, Some(from), Some(to)), 25, 1, moved(3, 4, b"\x04", b"fromto")),
            (step(Stage::Done, None, Some(to)), 25, 2, moved(0, 4, b"\0", b"to")),
            (step(Stage::Undone, Some(from), None), 25, 3, moved(3, 0, b"\x04", b"from")),
        ] {
            assert_eq!(record.kind_and_value(), (kind, value), "{record}");
            assert_eq!(record.payload(), payload, "{record}");
        }
    }

    #[test]
    fn a_record_that_is_too_short_or_too_long_is_refused_or_another_record() {
        for record in samples() {
            let payload = record.payload();
            let lengths = (0..payload.len()).chain([payload.len() + 1]);
            for len in lengths {
                let mut changed = payload.clone();
                changed.resize(len, b'x');
                match decoded(&record, &changed) {
                    // The last field ends with the record.
                    Ok(other) => assert_eq!(other.payload(), changed),
                    Err(error) => assert!(matches!(error, RecordError::Nonsense(_))),
                }
            }
        }
    }

    #[test]
    fn whatever_is_read_would_be_written_the_same() {
        for record in samples() {
            let payload = record.payload();
            let (kind, value) = record.kind_and_value();
            for at in 0..payload.len() {
                for bit in 0..8 {
                    let mut changed = payload.clone();
                    changed[at] ^= 1 << bit;
                    for value in [value, 0, 1, 2, 8, u64::MAX] {
                        let read = NameRecord::decode(kind, 7, value, &changed).unwrap();
                        if let Ok(read) = read {
                            assert_eq!(read.payload(), changed);
                            assert_eq!(read.kind_and_value(), (kind, value));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_no_purpose_is_zero_and_what_is_unknown_is_an_error() {
        let none = LoggedAttributes::default();
        let at = Entry { directory: 1, name: b"a" };
        let make = NameRecord::Make { node: 7, at, kind: NewNode::File, attributes: none };
        let rename = NameRecord::Rename { node: 7, from: at, to: at, replaced: None };
        let set = NameRecord::Set { node: 7, attributes: none };
        let xattr = NameRecord::SetXattr { node: 7, name: b"user.x", value: None };
        let place = NameRecord::Place { node: 7, file_type: FileType::File, at };
        let step = NameRecord::Step { node: 7, stage: Stage::Begun, from: None, to: Some(at) };
        for (record, at, to, what) in [
            (make, 0, 32, "mask of attributes"),
            (make, 4, 1, "unused field"),
            (make, 16, 1, "unused field"),
            (make, 39, 1, "unused field"),
            (make, 40, 3, "type"),
            (make, 41, 0, "length"),
            (make, 41, 3, "length"),
            (make, 42, 1, "unused field"),
            (make, 48, 1, "unused field"),
            (rename, 16, 9, "length"),
            (rename, 17, 1, "unused field"),
            (set, 3, 1, "mask of attributes"),
            (set, 36, 1, "unused field"),
            (xattr, 0, 200, "length"),
            (xattr, 0, 5, "length"),
            (xattr, 7, 1, "unused field"),
            (place, 0, 3, "type"),
            (place, 1, 1, "type"),
            (step, 0, 9, "name"),
            (step, 8, 0, "unused field"),
            (step, 17, 1, "unused field"),
        ] {
            let mut payload = record.payload();
            payload[at] = to;
            let read = decoded(&record, &payload);
            assert_eq!(read, Err(RecordError::Nonsense(what)), "{record} with {to} at {at}");
        }
        let read = |kind, value| NameRecord::decode(kind, 7, value, b"x");
        assert_eq!(read(NODE, 3), Some(Err(RecordError::Nonsense("type"))));
        assert_eq!(read(NODE, 256 + 8), Some(Err(RecordError::Nonsense("type"))));
        assert_eq!(read(LINK, 0), Some(Err(RecordError::Nonsense("node"))));
        assert_eq!(read(STEP, 1), Some(Err(RecordError::Nonsense("length"))));
        assert_eq!(read(STEP, 0), Some(Err(RecordError::Nonsense("stage"))));
        assert_eq!((read(15, 8), read(26, 8)), (None, None));
    }

    #[test]
    #[should_panic(expected = "a record of names makes sense")]
    fn nonsense_is_not_written() {
        let at = Entry { directory: 1, name: b"a/b" };
        NameRecord::Link { node: 7, at }.payload();
    }
}
