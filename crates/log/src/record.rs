//! Records: what a group consists of.
//!
//! ```text
//!   0  kind     1   1 file, 2 write, 3 truncate, 4 revoke; 16 to 23 of names: see `name_bytes`
//!   1  (zero)   3
//!   4  CRC32C   4   of the record without this field
//!   8  bytes    4   of the record, padding not counted
//!  12  (zero)   4
//!  16  file     8   its node number
//!  24  value    8   write: offset; truncate: size; revoke: LSN; file: zero
//!  32  payload      write: the bytes; file: its identity at home; truncate, revoke: none
//! ```
//!
//! Records begin at multiples of 8 bytes, with zeros between.

use std::borrow::Cow;
use std::fmt;

use crate::Lsn;
use crate::block::{put, u32_at, u64_at};
use crate::name_record::{IDENTITY_BYTES_MAX, NameRecord};
use crate::record_error::RecordError;

/// Bytes of a record beside its payload.
pub const RECORD_OVERHEAD_BYTES: usize = 32;

pub(crate) const ALIGN: usize = 8;

/// One record. A kind is one variant here, and one line each in `head`, `decode` and `fmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The file of the back end that a node number denotes in the following records of this group. The back end
    /// decides what an identity is. The number is from [`crate::Writer::new_node`].
    File {
        /// The node number.
        file: u64,
        /// The file.
        identity: &'a [u8],
    },
    /// Bytes written to a file, which grows if they end past its end.
    Write {
        /// The file's number.
        file: u64,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// The file got this size.
    Truncate {
        /// The file's number.
        file: u64,
        /// Bytes.
        size: u64,
    },
    /// The file's records before this position are durable at home or obsolete: they are not to be replayed.
    Revoke {
        /// The file's number.
        file: u64,
        /// Records at lower positions are void.
        before: Lsn,
    },
    /// A change of names, or which inode of home a node is.
    Name(NameRecord<'a>),
}

impl<'a> Record<'a> {
    /// Kind, file and value.
    fn head(&self) -> (u8, u64, u64) {
        match *self {
            Record::File { file, .. } => (1, file, 0),
            Record::Write { file, offset, .. } => (2, file, offset),
            Record::Truncate { file, size } => (3, file, size),
            Record::Revoke { file, before } => (4, file, before.0),
            Record::Name(name) => {
                let (kind, value) = name.kind_and_value();
                (kind, name.node(), value)
            }
        }
    }

    fn payload(&self) -> Cow<'a, [u8]> {
        match *self {
            Record::File { identity: payload, .. } | Record::Write { data: payload, .. } => {
                Cow::Borrowed(payload)
            }
            Record::Truncate { .. } | Record::Revoke { .. } => Cow::Borrowed(&[]),
            Record::Name(name) => Cow::Owned(name.payload()),
        }
    }

    fn payload_bytes(&self) -> usize {
        match *self {
            Record::File { identity: payload, .. } | Record::Write { data: payload, .. } => {
                payload.len()
            }
            Record::Truncate { .. } | Record::Revoke { .. } => 0,
            Record::Name(name) => name.payload_bytes(),
        }
    }

    /// Its kind's number.
    pub fn kind(&self) -> u8 {
        self.head().0
    }

    /// The number of the file that it concerns; of a record of names, of the node that it is about.
    pub fn file(&self) -> u64 {
        self.head().1
    }

    /// Bytes it takes in a group, padding counted.
    pub fn padded_bytes(&self) -> usize {
        (RECORD_OVERHEAD_BYTES + self.payload_bytes()).next_multiple_of(ALIGN)
    }

    /// Its first bytes, and its payload.
    pub(crate) fn encode(&self) -> ([u8; RECORD_OVERHEAD_BYTES], Cow<'a, [u8]>) {
        let ((kind, file, value), payload) = (self.head(), self.payload());
        let len = u32::try_from(RECORD_OVERHEAD_BYTES + payload.len());
        let len = len.expect("a record fits a group");
        let mut head = [0; RECORD_OVERHEAD_BYTES];
        head[0] = kind;
        put(&mut head, 8, &len.to_le_bytes());
        put(&mut head, 16, &file.to_le_bytes());
        put(&mut head, 24, &value.to_le_bytes());
        let crc = checksum(&head, &payload);
        put(&mut head, 4, &crc.to_le_bytes());
        (head, payload)
    }

    /// Its bytes as they are in a group, padding included.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (head, payload) = self.encode();
        let mut bytes = [&head[..], &payload].concat();
        bytes.resize(self.padded_bytes(), 0);
        bytes
    }

    /// The record at the start of `bytes`, and how many bytes it takes, padding counted.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(bytes: &'a [u8]) -> Result<(Record<'a>, usize), RecordError> {
        if bytes.len() < RECORD_OVERHEAD_BYTES {
            return Err(RecordError::Length(bytes.len() as u64));
        }
        let len = u32_at(bytes, 8) as usize;
        if len < RECORD_OVERHEAD_BYTES || len > bytes.len() {
            return Err(RecordError::Length(len as u64));
        }
        let (head, payload) = bytes[..len].split_at(RECORD_OVERHEAD_BYTES);
        let head: &[u8; RECORD_OVERHEAD_BYTES] = head.try_into().expect("split there");
        if checksum(head, payload) != u32_at(head, 4) {
            return Err(RecordError::Checksum);
        }
        let (file, value) = (u64_at(head, 16), u64_at(head, 24));
        let end = value.checked_add(payload.len() as u64).filter(|&end| end <= i64::MAX as u64);
        let record = match head[0] {
            1 if payload.len() <= IDENTITY_BYTES_MAX => Record::File { file, identity: payload },
            1 => return Err(RecordError::Nonsense("identity")),
            2 if payload.is_empty() => return Err(RecordError::Nonsense("length")),
            2 if end.is_none() => return Err(RecordError::Nonsense("offset")),
            2 => Record::Write { file, offset: value, data: payload },
            3 | 4 if !payload.is_empty() => return Err(RecordError::Nonsense("length")),
            3 if end.is_none() => return Err(RecordError::Nonsense("size")),
            3 => Record::Truncate { file, size: value },
            4 => Record::Revoke { file, before: Lsn(value) },
            kind => match NameRecord::decode(kind, file, value, payload) {
                Some(name) => Record::Name(name?),
                None => return Err(RecordError::Kind { kind, bytes: len as u32 }),
            },
        };
        Ok((record, len.next_multiple_of(ALIGN).min(bytes.len())))
    }
}

/// The record in words, its payload left out; an identity as hexadecimal digits.
impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Record::File { file, identity } => {
                write!(f, "file {file} is ")?;
                identity.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Record::Write { file, offset, data } => {
                write!(f, "file {file} write {} bytes at {offset}", data.len())
            }
            Record::Truncate { file, size } => write!(f, "file {file} truncate to {size}"),
            Record::Revoke { file, before } => write!(f, "file {file} revoke before {before}"),
            Record::Name(name) => name.fmt(f),
        }
    }
}

fn checksum(head: &[u8; RECORD_OVERHEAD_BYTES], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&head[..4]);
    let crc = crc32c::crc32c_append(crc, &head[8..]);
    crc32c::crc32c_append(crc, payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name_record::Entry;

    #[test]
    fn records_are_read_as_they_were_written() {
        for record in [
            Record::File { file: 7, identity: b"handle" },
            Record::Write { file: 7, offset: 1 << 40, data: b"some bytes" },
            Record::Truncate { file: 7, size: 12345 },
            Record::Revoke { file: 7, before: Lsn(99) },
            Record::Name(NameRecord::Link { node: 7, at: Entry { directory: 1, name: b"name" } }),
        ] {
            let bytes = record.to_bytes();
            assert_eq!(bytes.len() % ALIGN, 0);
            assert_eq!(Record::decode(&bytes), Ok((record, bytes.len())));
        }
    }

    #[test]
    fn records_are_shown_in_words() {
        for (record, words) in [
            (Record::File { file: 7, identity: b"\x01\xff" }, "file 7 is 01ff"),
            (Record::Write { file: 7, offset: 9, data: b"four" }, "file 7 write 4 bytes at 9"),
            (Record::Truncate { file: 7, size: 5 }, "file 7 truncate to 5"),
            (Record::Revoke { file: 7, before: Lsn(99) }, "file 7 revoke before 99"),
            (
                Record::Name(NameRecord::Link { node: 7, at: Entry { directory: 1, name: b"n" } }),
                "node 7 link \"n\" in node 1",
            ),
        ] {
            assert_eq!(record.to_string(), words);
        }
    }

    #[test]
    fn an_unknown_kind_is_named_if_its_checksum_is_right() {
        for kind in [0, 5, 15, 26, 31, 255] {
            let mut bytes = Record::Truncate { file: 7, size: 5 }.to_bytes();
            bytes[0] = kind;
            assert_eq!(Record::decode(&bytes), Err(RecordError::Checksum));
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &bytes[8..]);
            put(&mut bytes, 4, &crc.to_le_bytes());
            assert_eq!(Record::decode(&bytes), Err(RecordError::Kind { kind, bytes: 32 }));
        }
    }

    #[test]
    fn a_write_past_the_largest_offset_is_an_error() {
        let bytes = Record::Write { file: 1, offset: i64::MAX as u64, data: b"x" }.to_bytes();
        assert_eq!(Record::decode(&bytes), Err(RecordError::Nonsense("offset")));
    }

    proptest! {
        #[test]
        fn any_changed_bit_is_found(len in 1usize..100, bit in any::<prop::sample::Index>()) {
            let data = vec![0x5a; len];
            let record = Record::Write { file: 3, offset: 4096, data: &data };
            let mut bytes = record.to_bytes();
            let bit = bit.index((RECORD_OVERHEAD_BYTES + len) * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&bytes);
        }
    }
}
