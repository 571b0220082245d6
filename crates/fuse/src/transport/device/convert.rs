//! What is peculiar to the `fuser` crate: its types for ours and back, and its answers.
//!
//! It uses one number for node and inode; it gives a read's answer as one slice; and it misreads
//! times before 1970.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FopenFlags, INodeNo, ReplyData, ReplyEmpty, ReplyXattr, Request, TimeOrNow};
use rustix::fs::FileType;
use weir_backend::Timestamp;
use weir_engine::ReadData;

use crate::attr::{Attributes, device_to_wire};
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::inode::NodeId;
use crate::ops::attributes::SetTime;
use crate::ops::names::Place;
use crate::ops::open::Opened;
use crate::ops::xattr::Value;

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

pub(super) fn place(parent: INodeNo, name: &OsStr) -> Place<'_> {
    Place { parent: NodeId(parent.0), name }
}

pub(super) fn to_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.code())
}

pub(super) fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(to_errno(errno)),
    }
}

pub(super) fn reply_value(reply: ReplyXattr, value: Result<Value, Errno>) {
    match value {
        Ok(Value::Len(len)) => reply.size(len),
        Ok(Value::Bytes(bytes)) => reply.data(&bytes),
        Err(errno) => reply.error(to_errno(errno)),
    }
}

thread_local! {
    /// Where the pieces of a read's answer are put together.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn reply_data(reply: ReplyData, data: &ReadData) {
    match &data.segments[..] {
        [] => reply.data(&[]),
        [one] => reply.data(one.as_slice()),
        pieces => GATHERED.with_borrow_mut(|gathered| {
            gathered.clear();
            for piece in pieces {
                gathered.extend_from_slice(piece.as_slice());
            }
            reply.data(gathered);
        }),
    }
}

pub(super) fn open_flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_NOFLUSH, opened.no_flush);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.uncached);
    flags.set(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES, opened.uncached);
    flags
}

pub(super) fn to_kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => fuser::FileType::RegularFile,
    }
}

pub(super) fn to_attr(attributes: &Attributes) -> FileAttr {
    let mtime = to_time(attributes.mtime);
    FileAttr {
        ino: INodeNo(attributes.node.0),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: to_time(attributes.atime),
        mtime,
        ctime: to_time(attributes.ctime),
        crtime: mtime,
        kind: to_kind(attributes.kind()),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: device_to_wire(attributes.rdev),
        blksize: attributes.block_bytes,
        flags: 0,
    }
}

/// Times out of what a `SystemTime` holds become the epoch; there are none in 64 bits of seconds.
fn to_time(time: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.tv_nsec.unsigned_abs());
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    let whole = if time.tv_sec < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

pub(super) fn from_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(from_system_time(time)),
    }
}

/// What the kernel sent. fuser 0.18 takes -1.25 s, sent as -2 s and 750,000,000 ns, for -2.75 s;
/// this takes it back from what was made of it.
fn from_system_time(time: SystemTime) -> Timestamp {
    let (seconds, part) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().cast_signed(), after),
        Err(before) => {
            let before = before.duration();
            (before.as_secs().cast_signed().wrapping_neg(), before)
        }
    };
    Timestamp { tv_sec: seconds, tv_nsec: part.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_are_sent_as_they_are() {
        let time = Timestamp { tv_sec: -2, tv_nsec: 750_000_000 };
        assert_eq!(to_time(time), UNIX_EPOCH - Duration::from_millis(1250));
        let late = Timestamp { tv_sec: 1 << 40, tv_nsec: 1 };
        assert_eq!(to_time(late), UNIX_EPOCH + Duration::new(1 << 40, 1));
    }

    #[test]
    fn times_before_the_epoch_are_read_as_the_kernel_sent_them() {
        // What fuser makes of -2 s and 750,000,000 ns.
        let mistaken = UNIX_EPOCH - Duration::new(2, 750_000_000);
        let time = from_system_time(mistaken);
        assert_eq!((time.tv_sec, time.tv_nsec), (-2, 750_000_000));
        let after = from_system_time(UNIX_EPOCH + Duration::new(3, 4));
        assert_eq!((after.tv_sec, after.tv_nsec), (3, 4));
    }
}
