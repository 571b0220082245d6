//! Requests: parsing them to operations.

use std::ffi::OsStr;

use weir_names::command::SetTime;

use super::fields::Fields;
use super::{Malformed, opcode};
use crate::attr::device_from_wire;
use crate::credentials::Caller;
use crate::inode::NodeId;
use crate::ops::attributes::SetAttributes;
use crate::ops::data::WriteMode;
use crate::ops::space::CopySide;

/// Bytes of `struct fuse_in_header`.
pub(crate) const HEADER_BYTES: usize = 40;

/// `struct fuse_in_header`: the caller, the kind of request and its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Bytes of the whole request, this header with it.
    pub(crate) len: usize,
    /// The kind of request: see [`opcode`].
    pub(crate) opcode: u32,
    /// Number of the request, which the answer repeats.
    pub(crate) unique: u64,
    /// The node that it concerns.
    pub(crate) node: NodeId,
    /// The calling program.
    pub(crate) caller: Caller,
}

/// A request in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The header.
    pub(crate) header: Header,
    /// The structure of this kind of request; empty where there is none.
    fixed: &'a [u8],
    /// The rest of the request: names, data.
    rest: &'a [u8],
}

/// A request that is carried out later, when the buffer that it came in is used for another one.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    header: Header,
    fixed: Vec<u8>,
    rest: Vec<u8>,
}

/// The operation that a request asks for.
#[derive(Debug)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a OsStr,
    },
    Forget {
        lookups: u64,
    },
    ForgetMany(Forgets<'a>),
    GetAttributes,
    SetAttributes(SetAttributes),
    ReadLink,
    MakeSymlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    MakeNode {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        device: u64,
    },
    MakeDirectory {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    RemoveDirectory {
        name: &'a OsStr,
    },
    Rename {
        name: &'a OsStr,
        new_parent: NodeId,
        new_name: &'a OsStr,
        flags: u32,
    },
    MakeLink {
        node: NodeId,
        name: &'a OsStr,
    },
    Open {
        flags: i32,
    },
    Create {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
    },
    CreateUnnamed {
        mode: u32,
        umask: u32,
        flags: i32,
    },
    Read {
        handle: u64,
        offset: u64,
        len: usize,
        /// Bypasses the page cache.
        direct: bool,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        mode: WriteMode,
    },
    Statfs,
    Release {
        handle: u64,
    },
    Flush {
        handle: u64,
    },
    Sync {
        handle: u64,
        data_only: bool,
    },
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: i32,
    },
    GetXattr {
        name: &'a OsStr,
        len_max: u32,
    },
    ListXattrs {
        len_max: u32,
    },
    RemoveXattr {
        name: &'a OsStr,
    },
    OpenDirectory,
    List {
        /// Of OPENDIR; 0 if the kernel sends none.
        handle: u64,
        position: u64,
        len_max: usize,
        with_attributes: bool,
    },
    ReleaseDirectory {
        handle: u64,
    },
    SyncDirectory,
    Ioctl {
        /// `None`: on a directory, which has none.
        handle: Option<u64>,
        command: u32,
        data: &'a [u8],
        len_max: usize,
    },
    Allocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: i32,
    },
    Seek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    CopyRange {
        from: CopySide,
        to: CopySide,
        len: u64,
        answer: CopyAnswer,
    },
    /// Anything else.
    Unserved,
}

/// The form in which the answer to a copy counts its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyAnswer {
    /// `struct fuse_write_out`.
    Narrow,
    /// `struct fuse_copy_file_range_out`.
    Wide,
}

/// Pairs of a node and the number of its lookups that are forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Forgets<'a>(Fields<'a>);

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);

    fn next(&mut self) -> Option<(NodeId, u64)> {
        let node = self.0.u64().ok()?;
        Some((NodeId(node), self.0.u64().ok()?))
    }
}

impl Header {
    /// # Errors
    /// It is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut fields = Fields(bytes);
        let (len, opcode) = (fields.u32()? as usize, fields.u32()?);
        let (unique, node) = (fields.u64()?, NodeId(fields.u64()?));
        let caller = Caller { uid: fields.u32()?, gid: fields.u32()?, pid: fields.u32()? };
        Ok(Header { len, opcode, unique, node, caller })
    }
}

impl<'a> Request<'a> {
    /// A request whose structure is at the beginning of `fixed`, and whose other parts are `rest`.
    ///
    /// # Errors
    /// The lengths contradict each other.
    pub(crate) fn new(
        header: Header,
        fixed: &'a [u8],
        rest: &'a [u8],
    ) -> Result<Request<'a>, Malformed> {
        let parts = header.len.checked_sub(HEADER_BYTES).ok_or(Malformed)?;
        let fixed_len = parts.checked_sub(rest.len()).ok_or(Malformed)?;
        let fixed = fixed.get(..fixed_len).ok_or(Malformed)?;
        Ok(Request { header, fixed, rest })
    }

    /// A request as it is read from the device: all in one piece.
    ///
    /// # Errors
    /// It is too short, or its length is not what its header says.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let header = Header::parse(bytes)?;
        let parts = bytes.get(HEADER_BYTES..).filter(|_| header.len == bytes.len());
        let parts = parts.ok_or(Malformed)?;
        let (fixed, rest) = parts.split_at(opcode::fixed_bytes(header.opcode).min(parts.len()));
        Ok(Request { header, fixed, rest })
    }

    /// A copy.
    pub(crate) fn keep(&self) -> KeptRequest {
        KeptRequest { header: self.header, fixed: self.fixed.to_vec(), rest: self.rest.to_vec() }
    }

    /// Parses the operation.
    ///
    /// # Errors
    /// The request is too short for its kind.
    pub(crate) fn operation(&self) -> Result<Operation<'a>, Malformed> {
        let mut fixed = Fields(self.fixed);
        let mut rest = Fields(self.rest);
        Ok(match self.header.opcode {
            opcode::LOOKUP => Operation::Lookup { name: rest.name()? },
            opcode::FORGET => Operation::Forget { lookups: fixed.u64()? },
            opcode::BATCH_FORGET => Operation::ForgetMany(Forgets(rest)),
            opcode::GETATTR => Operation::GetAttributes,
            opcode::SETATTR => Operation::SetAttributes(set_attributes(fixed)?),
            opcode::READLINK => Operation::ReadLink,
            opcode::SYMLINK => Operation::MakeSymlink { name: rest.name()?, target: rest.name()? },
            opcode::MKNOD => {
                let (mode, device, umask) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
                let device = device_from_wire(device);
                Operation::MakeNode { name: rest.name()?, mode, umask, device }
            }
            opcode::MKDIR => {
                let (mode, umask) = (fixed.u32()?, fixed.u32()?);
                Operation::MakeDirectory { name: rest.name()?, mode, umask }
            }
            opcode::UNLINK => Operation::Unlink { name: rest.name()? },
            opcode::RMDIR => Operation::RemoveDirectory { name: rest.name()? },
            opcode::RENAME => rename(NodeId(fixed.u64()?), 0, rest)?,
            opcode::RENAME2 => rename(NodeId(fixed.u64()?), fixed.u32()?, rest)?,
            opcode::LINK => Operation::MakeLink { node: NodeId(fixed.u64()?), name: rest.name()? },
            opcode::OPEN => Operation::Open { flags: fixed.i32()? },
            opcode::CREATE => {
                let (flags, mode, umask) = (fixed.i32()?, fixed.u32()?, fixed.u32()?);
                Operation::Create { name: rest.name()?, mode, umask, flags }
            }
            // The name that follows says nothing.
            opcode::TMPFILE => {
                let (flags, mode, umask) = (fixed.i32()?, fixed.u32()?, fixed.u32()?);
                Operation::CreateUnnamed { mode, umask, flags }
            }
            opcode::READ => {
                let (handle, offset, len) = (fixed.u64()?, fixed.u64()?, fixed.u32()?);
                let direct = fixed.u32()? & NAMES_LOCK_OWNER != 0;
                Operation::Read { handle, offset, len: len as usize, direct }
            }
            opcode::WRITE => write(fixed, rest)?,
            opcode::STATFS => Operation::Statfs,
            opcode::RELEASE => Operation::Release { handle: fixed.u64()? },
            opcode::FLUSH => Operation::Flush { handle: fixed.u64()? },
            opcode::FSYNC => {
                Operation::Sync { handle: fixed.u64()?, data_only: fixed.u32()? & DATA_ONLY != 0 }
            }
            opcode::SETXATTR => {
                let (len, flags) = (fixed.u32()?, fixed.i32()?);
                Operation::SetXattr { name: rest.name()?, value: rest.bytes(len as usize)?, flags }
            }
            opcode::GETXATTR => Operation::GetXattr { name: rest.name()?, len_max: fixed.u32()? },
            opcode::LISTXATTR => Operation::ListXattrs { len_max: fixed.u32()? },
            opcode::REMOVEXATTR => Operation::RemoveXattr { name: rest.name()? },
            opcode::OPENDIR => Operation::OpenDirectory,
            opcode::READDIR => list(fixed, false)?,
            opcode::READDIRPLUS => list(fixed, true)?,
            opcode::RELEASEDIR => Operation::ReleaseDirectory { handle: fixed.u64()? },
            opcode::FSYNCDIR => {
                fixed.u64()?;
                Operation::SyncDirectory
            }
            opcode::IOCTL => ioctl(fixed, rest)?,
            opcode::FALLOCATE => {
                let (handle, offset, len) = (fixed.u64()?, fixed.u64()?, fixed.u64()?);
                Operation::Allocate { handle, offset, len, mode: fixed.i32()? }
            }
            opcode::LSEEK => {
                let (handle, offset) = (fixed.u64()?, fixed.u64()?.cast_signed());
                Operation::Seek { handle, offset, whence: fixed.i32()? }
            }
            opcode::COPY_FILE_RANGE => copy_range(fixed, CopyAnswer::Narrow)?,
            opcode::COPY_FILE_RANGE_64 => copy_range(fixed, CopyAnswer::Wide)?,
            _ => Operation::Unserved,
        })
    }
}

impl KeptRequest {
    /// The request.
    pub(crate) fn request(&self) -> Request<'_> {
        Request { header: self.header, fixed: &self.fixed, rest: &self.rest }
    }
}

/// FUSE_FSYNC_FDATASYNC.
const DATA_ONLY: u32 = 1;
/// FUSE_WRITE_CACHE.
const WRITTEN_BACK: u32 = 1 << 0;
/// FUSE_IOCTL_DIR.
const IOCTL_OF_DIRECTORY: u32 = 1 << 4;
/// FUSE_WRITE_KILL_SUIDGID.
const DROPS_PRIVILEGES: u32 = 1 << 2;
/// The owner of locks is given (FUSE_READ_LOCKOWNER, FUSE_WRITE_LOCKOWNER): the kernel gives it only in direct reads and
/// writes.
const NAMES_LOCK_OWNER: u32 = 1 << 1;

/// The fields of `struct fuse_setattr_in` that are to be set: FATTR_MODE and so on.
mod valid {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    /// FATTR_KILL_SUIDGID.
    pub(super) const DROPS_PRIVILEGES: u32 = 1 << 11;
}

fn set_attributes(mut fixed: Fields<'_>) -> Result<SetAttributes, Malformed> {
    let (set, _padding, handle) = (fixed.u32()?, fixed.u32()?, fixed.u64()?);
    let (size, _lock_owner) = (fixed.u64()?, fixed.u64()?);
    let (atime, mtime, _ctime) = (fixed.u64()?, fixed.u64()?, fixed.u64()?);
    let (atime_nsec, mtime_nsec, _ctime_nsec) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
    let (mode, _unused) = (fixed.u32()?, fixed.u32()?);
    let (uid, gid) = (fixed.u32()?, fixed.u32()?);
    let is_set = |what: u32| set & what != 0;
    let time = |what: u32, now: u32, seconds: u64, nanoseconds: u32| {
        let time = if is_set(now) {
            SetTime::Now
        } else {
            SetTime::To { seconds: seconds.cast_signed(), nanoseconds }
        };
        is_set(what).then_some(time)
    };
    Ok(SetAttributes {
        mode: is_set(valid::MODE).then_some(mode),
        uid: is_set(valid::UID).then_some(uid),
        gid: is_set(valid::GID).then_some(gid),
        size: is_set(valid::SIZE).then_some(size),
        handle: is_set(valid::HANDLE).then_some(handle),
        atime: time(valid::ATIME, valid::ATIME_NOW, atime, atime_nsec),
        mtime: time(valid::MTIME, valid::MTIME_NOW, mtime, mtime_nsec),
        drops_privileges: is_set(valid::DROPS_PRIVILEGES),
    })
}

fn rename(
    new_parent: NodeId,
    flags: u32,
    mut rest: Fields<'_>,
) -> Result<Operation<'_>, Malformed> {
    Ok(Operation::Rename { name: rest.name()?, new_parent, new_name: rest.name()?, flags })
}

fn write<'a>(mut fixed: Fields<'_>, mut rest: Fields<'a>) -> Result<Operation<'a>, Malformed> {
    let (handle, offset) = (fixed.u64()?, fixed.u64()?);
    let (len, write_flags) = (fixed.u32()?, fixed.u32()?);
    let (_lock_owner, flags) = (fixed.u64()?, fixed.i32()?);
    let mode = WriteMode {
        flags,
        drops_privileges: write_flags & DROPS_PRIVILEGES != 0,
        written_back: write_flags & WRITTEN_BACK != 0,
        direct: write_flags & NAMES_LOCK_OWNER != 0,
    };
    Ok(Operation::Write { handle, offset, data: rest.bytes(len as usize)?, mode })
}

fn ioctl<'a>(mut fixed: Fields<'_>, mut rest: Fields<'a>) -> Result<Operation<'a>, Malformed> {
    let (handle, flags, command) = (fixed.u64()?, fixed.u32()?, fixed.u32()?);
    let (_argument, in_bytes, out_bytes) = (fixed.u64()?, fixed.u32()?, fixed.u32()?);
    let handle = (flags & IOCTL_OF_DIRECTORY == 0).then_some(handle);
    let data = rest.bytes(in_bytes as usize)?;
    Ok(Operation::Ioctl { handle, command, data, len_max: out_bytes as usize })
}

fn list(mut fixed: Fields<'_>, with_attributes: bool) -> Result<Operation<'_>, Malformed> {
    let (handle, position, len_max) = (fixed.u64()?, fixed.u64()?, fixed.u32()? as usize);
    Ok(Operation::List { handle, position, len_max, with_attributes })
}

fn copy_range(mut fixed: Fields<'_>, answer: CopyAnswer) -> Result<Operation<'_>, Malformed> {
    let from = CopySide { handle: fixed.u64()?, offset: fixed.u64()? };
    let _node_out = fixed.u64()?;
    let to = CopySide { handle: fixed.u64()?, offset: fixed.u64()? };
    Ok(Operation::CopyRange { from, to, len: fixed.u64()?, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: u32, parts_len: usize) -> Header {
        let caller = Caller { uid: 1, gid: 2, pid: 3 };
        Header { len: HEADER_BYTES + parts_len, opcode, unique: 9, node: NodeId(1), caller }
    }

    fn bytes(fields: &[u64]) -> Vec<u8> {
        fields.iter().flat_map(|field| field.to_ne_bytes()).collect()
    }

    /// Two numbers of 32 bits in one of 64, as they lie in memory.
    fn pair(first: u32, second: u32) -> u64 {
        let bytes = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    #[test]
    fn the_header_is_parsed() {
        let sent = bytes(&[pair(104, opcode::READ), 77, 5, pair(1000, 100), pair(42, 0)]);
        let header = Header::parse(&sent).unwrap();
        assert_eq!((header.len, header.opcode, header.unique), (104, opcode::READ, 77));
        assert_eq!(header.node, NodeId(5));
        let Caller { uid, gid, pid } = header.caller;
        assert_eq!((uid, gid, pid), (1000, 100, 42));
        for len in 0..HEADER_BYTES - 4 {
            assert_eq!(Header::parse(&sent[..len]).unwrap_err(), Malformed);
        }
    }

    #[test]
    fn a_write_is_parsed() {
        let flags = libc::O_DSYNC.cast_unsigned();
        let fixed = bytes(&[7, 4096, pair(5, DROPS_PRIVILEGES), 0, pair(flags, 0)]);
        let request = Request::new(header(opcode::WRITE, 40 + 5), &fixed, b"12345").unwrap();
        let Ok(Operation::Write { handle, offset, data, mode }) = request.operation() else {
            panic!("not a write");
        };
        assert_eq!((handle, offset, data), (7, 4096, &b"12345"[..]));
        assert!(mode.drops_privileges && !mode.direct && mode.flags == libc::O_DSYNC);
        let request = Request::new(header(opcode::WRITE, 40 + 4), &fixed, b"1234").unwrap();
        assert_eq!(request.operation().unwrap_err(), Malformed);
    }

    #[test]
    fn direct_transfers_are_those_that_name_the_owner_of_locks() {
        for direct in [false, true] {
            let owner = if direct { NAMES_LOCK_OWNER } else { 0 };
            let read = bytes(&[7, 4096, pair(512, owner), 9, pair(0, 0)]);
            let request = Request::new(header(opcode::READ, 40), &read, b"").unwrap();
            assert!(
                matches!(request.operation(), Ok(Operation::Read { direct: of, .. }) if of == direct)
            );
            let write = bytes(&[7, 4096, pair(1, owner), 9, pair(0, 0)]);
            let request = Request::new(header(opcode::WRITE, 40 + 1), &write, b"1").unwrap();
            assert!(
                matches!(request.operation(), Ok(Operation::Write { mode, .. }) if mode.direct == direct)
            );
        }
    }

    #[test]
    fn a_request_in_one_piece_is_divided_by_its_kind() {
        let whole = |opcode: u32, parts: &[u8]| {
            let len = (HEADER_BYTES + parts.len()) as u32;
            let header = bytes(&[pair(len, opcode), 77, 5, pair(1000, 100), pair(42, 0)]);
            [header, parts.to_vec()].concat()
        };
        let sent = whole(opcode::LOOKUP, b"name\0");
        let request = Request::parse(&sent).unwrap();
        assert!(
            matches!(request.operation(), Ok(Operation::Lookup { name }) if name == "name"),
            "a name follows the header"
        );
        let sent = whole(opcode::MKDIR, b"\x01\0\0\0\x02\0\0\0name\0");
        let request = Request::parse(&sent).unwrap();
        let Ok(Operation::MakeDirectory { name, mode, umask }) = request.operation() else {
            panic!("not a mkdir");
        };
        assert_eq!((name, mode, umask), (OsStr::new("name"), 1, 2));
        for len in 0..sent.len() {
            assert!(Request::parse(&sent[..len]).is_err(), "{len}");
        }
        // Too short for its kind: refused when it is parsed.
        let sent = whole(opcode::WRITE, &[0; 8]);
        assert_eq!(Request::parse(&sent).unwrap().operation().unwrap_err(), Malformed);
    }

    #[test]
    fn an_ioctl_of_a_directory_has_no_handle() {
        for (flags, expected) in [(0, Some(7)), (IOCTL_OF_DIRECTORY, None)] {
            let fixed = bytes(&[7, pair(flags, 0xc040_5704), 0, pair(2, 64)]);
            let request = Request::new(header(opcode::IOCTL, 32 + 2), &fixed, b"12").unwrap();
            let Ok(Operation::Ioctl { handle, command, data, len_max }) = request.operation()
            else {
                panic!("not an ioctl");
            };
            assert_eq!((handle, command), (expected, 0xc040_5704));
            assert_eq!((data, len_max), (&b"12"[..], 64));
        }
    }

    #[test]
    fn names_end_with_a_zero_byte() {
        let fixed = bytes(&[3, pair(1, 0)]);
        let rest = b"old\0new\0";
        let request = Request::new(header(opcode::RENAME2, 16 + 8), &fixed, rest).unwrap();
        let Ok(Operation::Rename { name, new_parent, new_name, flags }) = request.operation()
        else {
            panic!("not a rename");
        };
        assert_eq!((name, new_name), (OsStr::new("old"), OsStr::new("new")));
        assert_eq!((new_parent, flags), (NodeId(3), 1));
        let request = Request::new(header(opcode::RENAME2, 16 + 7), &fixed, &rest[..7]).unwrap();
        assert_eq!(request.operation().unwrap_err(), Malformed);
    }

    #[test]
    fn only_what_is_valid_is_set() {
        let set = valid::SIZE | valid::MTIME | valid::ATIME | valid::ATIME_NOW;
        let mtime = (-2i64).cast_unsigned();
        let nsec = pair(1, 750_000_000);
        let fixed = bytes(&[set.into(), 0, 123, 0, 9, mtime, 0, nsec, 0, pair(0, 8), 9]);
        let request = Request::new(header(opcode::SETATTR, 88), &fixed, &[]).unwrap();
        let Ok(Operation::SetAttributes(set)) = request.operation() else { panic!("not setattr") };
        assert_eq!((set.mode, set.uid, set.gid, set.size), (None, None, None, Some(123)));
        assert!(matches!(set.atime, Some(SetTime::Now)));
        let mtime = SetTime::To { seconds: -2, nanoseconds: 750_000_000 };
        assert_eq!(set.mtime, Some(mtime));
        assert!(!set.drops_privileges);
        let fixed = bytes(&[(valid::SIZE | 1 << 11).into(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let request = Request::new(header(opcode::SETATTR, 88), &fixed, &[]).unwrap();
        let Ok(Operation::SetAttributes(set)) = request.operation() else { panic!("not setattr") };
        assert!(set.drops_privileges);
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        assert!(Request::new(header(opcode::OPEN, 8), &[0; 128], &[0; 9]).is_err());
        assert!(Request::new(header(opcode::OPEN, 129), &[0; 128], &[]).is_err());
        let short = Header { len: 39, ..header(opcode::OPEN, 0) };
        assert!(Request::new(short, &[0; 128], &[]).is_err());
    }

    #[test]
    fn a_request_cut_short_is_refused_or_understood_and_never_panics() {
        // Read as any structure, its lengths ask for more than there is.
        let (fixed, rest) = ([0xff; 128], b"name\0other\0\x01\x02");
        for opcode in 0..64 {
            for fixed_len in 0..=128 {
                for rest_len in 0..=rest.len() {
                    let header = header(opcode, fixed_len + rest_len);
                    let request = Request::new(header, &fixed, &rest[..rest_len]).unwrap();
                    let _ = request.operation().map(|operation| format!("{operation:?}"));
                }
            }
        }
        // What each kind needs at least, by fuse.h.
        for (opcode, least) in [
            (opcode::SETATTR, 84),
            (opcode::OPEN, 4),
            (opcode::READ, 24),
            (opcode::RELEASE, 8),
            (opcode::FSYNC, 12),
            (opcode::LISTXATTR, 4),
            (opcode::READDIR, 20),
            (opcode::FALLOCATE, 28),
            (opcode::LSEEK, 20),
            (opcode::COPY_FILE_RANGE, 48),
        ] {
            let of_len = |len| Request::new(header(opcode, len), &fixed, &[]).unwrap();
            assert_eq!(of_len(least - 1).operation().unwrap_err(), Malformed, "{opcode}");
            assert!(of_len(least).operation().is_ok(), "{opcode}");
        }
    }

    #[test]
    fn forgets_come_in_pairs() {
        let rest = bytes(&[5, 1, 6, 2, 7]);
        let request = Request::new(header(opcode::BATCH_FORGET, 48), &[0; 8], &rest).unwrap();
        let Ok(Operation::ForgetMany(forgets)) = request.operation() else { panic!() };
        assert_eq!(forgets.collect::<Vec<_>>(), [(NodeId(5), 1), (NodeId(6), 2)]);
    }
}
