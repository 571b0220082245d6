//! Answers: encoding the results of operations.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{FileType, StatVfs};
use smallvec::SmallVec;
use weir_backend::home_names::Value;
use weir_engine::ReadData;

use crate::attr::{Attributes, device_to_wire};
use crate::errno::Errno;
use crate::inode::NodeId;
use crate::listings::{Listed, Listing};
use crate::ops::open::Opened;

/// Bytes of `struct fuse_entry_out` and `struct fuse_open_out`: no answer of one structure is
/// longer.
const STRUCTURE_BYTES_MAX: usize = 144;

/// Bytes of `struct fuse_out_header`.
pub(crate) const HEADER_BYTES: usize = 16;

/// The part of an answer after the header.
#[derive(Debug)]
pub(crate) enum Body {
    /// A structure, or bytes.
    Bytes(Bytes),
    /// The data of a read.
    Data(ReadData),
}

/// Bytes being put together.
#[derive(Debug, Default)]
pub(crate) struct Bytes(SmallVec<[u8; STRUCTURE_BYTES_MAX]>);

impl Body {
    /// Nothing.
    pub(crate) fn empty() -> Body {
        Body::Bytes(Bytes::default())
    }

    /// Its length, bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.0.len(),
            Body::Data(data) => data.len(),
        }
    }

    /// Its pieces, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (bytes, segments) = match self {
            Body::Bytes(bytes) => (&bytes.0[..], &[][..]),
            Body::Data(data) => (&[][..], &data.segments[..]),
        };
        let segments = segments.iter().map(|segment| segment.as_slice());
        std::iter::once(bytes).chain(segments).filter(|piece| !piece.is_empty())
    }

    /// Writes it to the beginning of `to`, which is long enough.
    pub(crate) fn write(&self, to: &mut [u8]) {
        let mut rest = to;
        for piece in self.pieces() {
            let (place, after) = rest.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = after;
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::Bytes(Bytes(SmallVec::from_vec(bytes)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::Bytes(bytes)
    }
}

impl Bytes {
    pub(super) fn u32(mut self, number: u32) -> Bytes {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, number: u64) -> Bytes {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// `struct fuse_attr`.
    fn attr(self, attributes: &Attributes) -> Bytes {
        let Attributes { atime, mtime, ctime, .. } = attributes;
        self.u64(attributes.node.0)
            .u64(attributes.size)
            .u64(attributes.blocks)
            .u64(atime.tv_sec.cast_unsigned())
            .u64(mtime.tv_sec.cast_unsigned())
            .u64(ctime.tv_sec.cast_unsigned())
            // Below 10^9.
            .u32(atime.tv_nsec as u32)
            .u32(mtime.tv_nsec as u32)
            .u32(ctime.tv_nsec as u32)
            .u32(attributes.mode)
            .u32(attributes.nlink)
            .u32(attributes.uid)
            .u32(attributes.gid)
            .u32(device_to_wire(attributes.rdev))
            .u32(attributes.block_bytes)
            .u32(0)
    }

    /// `struct fuse_entry_out`; node 0 is no node.
    fn entry(self, node: NodeId, valid: Valid, attributes: &Attributes) -> Bytes {
        let Valid { entry, attr } = valid;
        self.u64(node.0)
            .u64(attributes.generation)
            .u64(entry.as_secs())
            .u64(attr.as_secs())
            .u32(entry.subsec_nanos())
            .u32(attr.subsec_nanos())
            .attr(attributes)
    }

    /// `struct fuse_open_out`.
    fn open(self, handle: u64, flags: u32) -> Bytes {
        self.u64(handle).u32(flags).u32(0)
    }
}

/// `struct fuse_ioctl_out`, and what the call gives, no more than was asked for.
pub(crate) fn controlled(message: &[u8], len_max: usize) -> Body {
    let mut bytes = Bytes::default().u64(0).u64(0);
    bytes.0.extend_from_slice(&message[..message.len().min(len_max)]);
    bytes.into()
}

/// How long the kernel may rely on an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Valid {
    /// On the name.
    pub(crate) entry: Duration,
    /// On the attributes.
    pub(crate) attr: Duration,
}

impl Valid {
    const NEVER: Valid = Valid { entry: Duration::ZERO, attr: Duration::ZERO };
}

/// The header of an answer, `struct fuse_out_header`.
pub(crate) fn header(unique: u64, ended: Result<usize, Errno>) -> [u8; HEADER_BYTES] {
    let (len, error) = match ended {
        Ok(body_len) => (HEADER_BYTES + body_len, 0),
        Err(errno) => (HEADER_BYTES, -errno.code()),
    };
    let len = u32::try_from(len).expect("a body is no longer than the buffer it is written to");
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// `struct fuse_attr_out`.
pub(crate) fn attributes(attributes: &Attributes, valid: Duration) -> Body {
    let valid = Bytes::default().u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
    valid.attr(attributes).into()
}

/// A node by a name.
pub(crate) fn entry(attributes: &Attributes, valid: Valid) -> Body {
    Bytes::default().entry(attributes.node, valid, attributes).into()
}

/// Nothing is there by that name, and the kernel may rely on that.
pub(crate) fn no_entry(timeout: Duration) -> Body {
    let nothing = Attributes::unknown(NodeId(0), FileType::RegularFile);
    let valid = Valid { entry: timeout, ..Valid::NEVER };
    Bytes::default().entry(NodeId(0), valid, &nothing).into()
}

/// A new file, opened.
pub(crate) fn created(attributes: &Attributes, valid: Valid, opened: &Opened) -> Body {
    let entry = Bytes::default().entry(attributes.node, valid, attributes);
    entry.open(opened.handle, open_flags(opened)).into()
}

/// A file, opened.
pub(crate) fn opened(opened: &Opened) -> Body {
    Bytes::default().open(opened.handle, open_flags(opened)).into()
}

/// A directory, opened: without a listing that the kernel may keep.
pub(crate) fn directory_opened(handle: u64) -> Body {
    Bytes::default().open(handle, 0).into()
}

/// FOPEN_DIRECT_IO and so on.
fn open_flags(opened: &Opened) -> u32 {
    const DIRECT_IO: u32 = 1 << 0;
    const KEEP_CACHE: u32 = 1 << 1;
    const NOFLUSH: u32 = 1 << 5;
    const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    flag(opened.keep_cache, KEEP_CACHE)
        | flag(opened.no_flush, NOFLUSH)
        | flag(opened.uncached, DIRECT_IO | PARALLEL_DIRECT_WRITES)
}

/// `struct fuse_write_out`.
pub(crate) fn written(len: u32) -> Body {
    Bytes::default().u32(len).u32(0).into()
}

/// A number of 64 bits: a position, or a count.
pub(crate) fn number(number: u64) -> Body {
    Bytes::default().u64(number).into()
}

/// An extended attribute's value, or its length.
pub(crate) fn value(value: Value) -> Body {
    match value {
        Value::Len(len) => Bytes::default().u32(len).u32(0).into(),
        Value::Bytes(bytes) => bytes.into(),
    }
}

/// `struct fuse_statfs_out`.
pub(crate) fn statfs(home: &StatVfs) -> Body {
    let narrow = |number: u64, otherwise: u32| u32::try_from(number).unwrap_or(otherwise);
    Bytes::default()
        .u64(home.f_blocks)
        .u64(home.f_bfree)
        .u64(home.f_bavail)
        .u64(home.f_files)
        .u64(home.f_ffree)
        .u32(narrow(home.f_bsize, 4096))
        .u32(narrow(home.f_namemax, 255))
        .u32(narrow(home.f_frsize, 4096))
        .u32(0)
        .u64(0)
        .u64(0)
        .u64(0)
        .into()
}

/// A listing's bytes: `struct fuse_dirent` and a name, one after the other.
pub(crate) struct Names {
    bytes: Vec<u8>,
    len_max: usize,
}

impl Names {
    /// An empty listing of at most `len_max` bytes.
    pub(crate) fn new(len_max: usize) -> Names {
        Names { bytes: Vec::new(), len_max }
    }

    /// What was listed.
    pub(crate) fn into_body(self) -> Body {
        self.bytes.into()
    }

    /// Adds `before`, and an entry. Returns whether there was room.
    fn push(&mut self, before: &Bytes, entry: &Listed<'_>) -> bool {
        const DIRENT_BYTES: usize = 24;
        let name = entry.name.as_bytes();
        let unpadded = before.0.len() + DIRENT_BYTES + name.len();
        let len = unpadded.next_multiple_of(8);
        if len > self.len_max - self.bytes.len() {
            return false;
        }
        let end = self.bytes.len() + len;
        // Names are of NAME_MAX bytes at most.
        let (name_len, kind) = (name.len() as u32, dirent_type(entry.kind));
        let dirent = Bytes::default().u64(entry.node.0).u64(entry.next).u32(name_len).u32(kind);
        for part in [&before.0[..], &dirent.0[..], name] {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.resize(end, 0);
        true
    }
}

/// DT_DIR and so on, which are the types of `st_mode` moved down.
fn dirent_type(kind: FileType) -> u32 {
    match kind {
        FileType::Unknown => FileType::RegularFile.as_raw_mode() >> 12,
        kind => kind.as_raw_mode() >> 12,
    }
}

impl Listing for Names {
    const WITH_ATTRIBUTES: bool = false;

    fn add(&mut self, entry: &Listed<'_>) -> bool {
        self.push(&Bytes::default(), entry)
    }

    fn add_with(&mut self, entry: &Listed<'_>, _attributes: &Attributes) -> bool {
        self.add(entry)
    }
}

/// A listing with attributes: `struct fuse_direntplus` and a name, one after the other.
pub(crate) struct NamesAndAttributes<F> {
    pub(crate) names: Names,
    /// How long the kernel may rely on an entry.
    pub(crate) valid: F,
}

impl<F: Fn(&Attributes) -> Valid> Listing for NamesAndAttributes<F> {
    const WITH_ATTRIBUTES: bool = true;

    fn add(&mut self, entry: &Listed<'_>) -> bool {
        // Node 0 says that the name was not looked up.
        let unknown = Attributes::unknown(entry.node, entry.kind);
        self.names.push(&Bytes::default().entry(NodeId(0), Valid::NEVER, &unknown), entry)
    }

    fn add_with(&mut self, entry: &Listed<'_>, attributes: &Attributes) -> bool {
        let valid = (self.valid)(attributes);
        self.names.push(&Bytes::default().entry(attributes.node, valid, attributes), entry)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use weir_backend::Timestamp;

    use super::*;

    fn bytes(body: &Body) -> Vec<u8> {
        let mut bytes = vec![0; body.len()];
        body.write(&mut bytes);
        bytes
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn some() -> Attributes {
        let mtime = Timestamp { tv_sec: -2, tv_nsec: 7 };
        Attributes { size: 99, mtime, ..Attributes::unknown(NodeId(5), FileType::RegularFile) }
    }

    #[test]
    fn structures_have_the_lengths_of_fuse_h() {
        let valid = Valid { entry: Duration::from_millis(1500), attr: Duration::from_secs(3) };
        let open = Opened { handle: 4, uncached: true, keep_cache: true, no_flush: false };
        assert_eq!(attributes(&some(), Duration::ZERO).len(), 104);
        assert_eq!(entry(&some(), valid).len(), 128);
        assert_eq!(no_entry(Duration::ZERO).len(), 128);
        assert_eq!(created(&some(), valid, &open).len(), 144);
        assert_eq!(opened(&open).len(), 16);
        assert_eq!(written(1).len(), 8);
        assert_eq!(number(1).len(), 8);
        assert_eq!(u32_at(&bytes(&opened(&open)), 8), 0b100_0011);
    }

    #[test]
    fn an_entry_has_its_times_and_its_timeouts() {
        let valid = Valid { entry: Duration::from_millis(1500), attr: Duration::from_secs(3) };
        let bytes = bytes(&entry(&some(), valid));
        assert_eq!((u64_at(&bytes, 0), u64_at(&bytes, 16), u64_at(&bytes, 24)), (5, 1, 3));
        assert_eq!((u32_at(&bytes, 32), u32_at(&bytes, 36)), (500_000_000, 0));
        assert_eq!((u64_at(&bytes, 40), u64_at(&bytes, 48)), (5, 99));
        // mtime, and its nanoseconds.
        assert_eq!((u64_at(&bytes, 72).cast_signed(), u32_at(&bytes, 92)), (-2, 7));
    }

    #[test]
    fn an_errors_header_is_negative() {
        let header = header(77, Err(Errno::ENOENT));
        assert_eq!(u32_at(&header, 0), 16);
        assert_eq!(u32_at(&header, 4).cast_signed(), -libc::ENOENT);
        assert_eq!(u64_at(&header, 8), 77);
    }

    #[test]
    fn listings_are_padded_and_end_when_full() {
        let name = OsStr::new("abc");
        let listed = Listed { node: NodeId(6), kind: FileType::Directory, next: 9, name };
        let mut names = Names::new(70);
        assert!(names.add(&listed) && names.add(&listed));
        assert!(!names.add(&listed), "there is room for 6 bytes");
        let bytes = bytes(&names.into_body());
        assert_eq!(bytes.len(), 64);
        assert_eq!((u64_at(&bytes, 32), u64_at(&bytes, 40)), (6, 9));
        assert_eq!((u32_at(&bytes, 48), u32_at(&bytes, 52)), (3, 4));
        assert_eq!(&bytes[56..], b"abc\0\0\0\0\0");
    }

    #[test]
    fn an_entry_that_was_not_looked_up_is_no_node() {
        let name = OsStr::new("abc");
        let listed = Listed { node: NodeId(6), kind: FileType::RegularFile, next: 9, name };
        let valid = |_: &Attributes| Valid { entry: Duration::MAX, attr: Duration::MAX };
        let mut listing = NamesAndAttributes { names: Names::new(4096), valid };
        assert!(listing.add(&listed) && listing.add_with(&listed, &some()));
        let bytes = bytes(&listing.names.into_body());
        assert_eq!((u64_at(&bytes, 0), u64_at(&bytes, 128)), (0, 6));
        assert_eq!((u64_at(&bytes, 160), bytes.len()), (5, 320));
    }
}
