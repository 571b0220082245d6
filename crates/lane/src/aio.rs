//! What io_submit(2) is asked for: the kernel's `struct iocb` (linux/aio_abi.h), as far as a session must know it.

/// Bytes of a `struct iocb`.
pub const BYTES: usize = 64;

/// `IOCB_FLAG_RESFD`: an eventfd is told when the request is done.
const TELLS: u32 = 1;
/// Opcodes.
const PREAD: u16 = 0;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const POLL: u16 = 5;
const NOOP: u16 = 6;
const PREADV: u16 = 7;
/// `RWF_APPEND`, and where a request has such flags.
const APPEND: u32 = 0x10;
const FLAGS_AT: usize = if cfg!(target_endian = "little") { 12 } else { 8 };

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its descriptor.
    pub fd: i32,
    /// Others may notice what it does to its file: it writes, or is not known. Otherwise it reads, waits, or syncs.
    pub changes: bool,
    /// It syncs its file, which the file system may tell others.
    pub syncs: bool,
    /// It appends, whether or not its description does.
    pub appends: bool,
    /// The eventfd that is told.
    pub tells: Option<i32>,
}

impl Request {
    /// Of the structure's bytes.
    pub fn of(bytes: &[u8; BYTES]) -> Request {
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
        let opcode = u16::from_ne_bytes([bytes[16], bytes[17]]);
        let is_quiet = matches!(opcode, PREAD | FSYNC | FDSYNC | POLL | NOOP | PREADV);
        Request {
            fd: word(20).cast_signed(),
            changes: !is_quiet,
            syncs: matches!(opcode, FSYNC | FDSYNC),
            appends: !is_quiet && word(FLAGS_AT) & APPEND != 0,
            tells: (word(56) & TELLS != 0).then(|| word(60).cast_signed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_the_kernel_reads_them() {
        let mut bytes = [0; BYTES];
        bytes[20] = 7;
        let read = Request { fd: 7, changes: false, syncs: false, appends: false, tells: None };
        assert_eq!(Request::of(&bytes), read);
        for opcode in [2, 3] {
            bytes[16] = opcode;
            assert_eq!(Request::of(&bytes), Request { syncs: true, ..read }, "{opcode}");
        }
        for opcode in [1, 4, 8, 9, 200] {
            bytes[16] = opcode;
            assert!(Request::of(&bytes).changes, "{opcode}");
        }
        bytes[56] = 1;
        bytes[60] = 9;
        assert_eq!(Request::of(&bytes), Request { changes: true, tells: Some(9), ..read });
        bytes[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&libc::RWF_APPEND.to_ne_bytes());
        assert!(Request::of(&bytes).appends);
    }
}
