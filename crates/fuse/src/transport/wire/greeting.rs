//! The kernel's greeting, `FUSE_INIT`: its protocol version, its capabilities, and those that Weir asks for.

use super::Malformed;
use super::answer::{Body, Bytes};
use super::fields::Fields;

/// The protocol's version. The major number changes what messages look like.
const MAJOR: u32 = 7;
const MINOR: u32 = 40;
/// Linux 3.8 and later have it. Earlier ones have shorter structures.
const MINOR_MIN: u32 = 23;

/// The kernel's capabilities (`FUSE_ASYNC_READ` and so on), in both words of flags.
pub(crate) mod capability {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// There is a second word of flags.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// `struct fuse_init_in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    major: u32,
    minor: u32,
    read_ahead_max: u32,
    /// The kernel's capabilities: see [`capability`].
    pub(crate) capabilities: u64,
}

/// The settings asked of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// Capabilities. Those that the kernel does not have are not used.
    pub(crate) capabilities: u64,
    /// Largest write in one request, bytes.
    pub(crate) write_bytes_max: u32,
    /// Most background requests that it may have in flight.
    pub(crate) background_max: u16,
}

/// The kernel's protocol, compared with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// It speaks our protocol.
    Ours,
    /// A later protocol: the kernel sends FUSE_INIT again when it is answered with our version.
    Later,
    /// It is too old.
    TooOld,
}

impl Greeting {
    /// Parses the body of a `FUSE_INIT` request.
    ///
    /// # Errors
    /// It is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Greeting, Malformed> {
        let mut fields = Fields(bytes);
        let (major, minor) = (fields.u32()?, fields.u32()?);
        let (read_ahead_max, low) = (fields.u32()?, u64::from(fields.u32()?));
        let high = match low & capability::INIT_EXT {
            0 => 0,
            _ => u64::from(fields.u32()?),
        };
        Ok(Greeting { major, minor, read_ahead_max, capabilities: low | high << 32 })
    }

    /// The kernel's protocol.
    pub(crate) fn version(&self) -> Version {
        match (self.major, self.minor) {
            (MAJOR, MINOR_MIN..) => Version::Ours,
            (0..=MAJOR, _) => Version::TooOld,
            _ => Version::Later,
        }
    }

    /// The answer to a kernel with a later protocol: our version. The kernel then sends FUSE_INIT again.
    pub(crate) fn our_version() -> Body {
        let bytes = Bytes::default().u32(MAJOR).u32(MINOR);
        (0..14).fold(bytes, |bytes, _| bytes.u32(0)).into()
    }

    /// The answer: `struct fuse_init_out`.
    pub(crate) fn answer(&self, wishes: &Wishes) -> Body {
        let always = capability::INIT_EXT | capability::MAX_PAGES;
        let capabilities = (wishes.capabilities | always) & self.capabilities;
        let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
        let pages = wishes.write_bytes_max.max(self.read_ahead_max).div_ceil(page_bytes);
        let pages = u16::try_from(pages).unwrap_or(u16::MAX);
        let congested = (u32::from(wishes.background_max) * 3 / 4) as u16;
        let pair = |first: u16, second: u16| {
            let bytes = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
            u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let bytes = Bytes::default()
            .u32(MAJOR)
            .u32(MINOR)
            .u32(self.read_ahead_max)
            // The lower word.
            .u32(capabilities as u32)
            .u32(pair(wishes.background_max, congested))
            .u32(wishes.write_bytes_max)
            // Times have nanoseconds.
            .u32(1)
            .u32(pair(pages, 0))
            .u32((capabilities >> 32) as u32);
        // No stacking, and reserved fields.
        (0..7).fold(bytes, |bytes, _| bytes.u32(0)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(fields: &[u32]) -> Result<Greeting, Malformed> {
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_ne_bytes()).collect();
        Greeting::parse(&bytes)
    }

    #[test]
    fn both_words_of_flags_are_read_and_answered() {
        let low = (capability::INIT_EXT | capability::ASYNC_DIO | capability::MAX_PAGES) as u32;
        let sent = greeting(&[7, 45, 131_072, low, 1 << 9, 0]).unwrap();
        assert_eq!(sent.version(), Version::Ours);
        assert_eq!(sent.capabilities, u64::from(low) | capability::OVER_IO_URING);
        let wishes = Wishes {
            capabilities: capability::ASYNC_DIO | capability::POSIX_ACL | capability::OVER_IO_URING,
            write_bytes_max: 1 << 20,
            background_max: 64,
        };
        let body = sent.answer(&wishes);
        let mut bytes = vec![0; body.len()];
        body.write(&mut bytes);
        assert_eq!(bytes.len(), 64);
        let at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((at(0), at(4), at(8)), (7, 40, 131_072));
        assert_eq!((at(12), at(32)), (low, 1 << 9), "what was asked for and is there");
        assert_eq!(bytes[16..20], [64u16.to_ne_bytes(), 48u16.to_ne_bytes()].concat());
        assert_eq!((at(20), at(24)), (1 << 20, 1));
        assert_eq!(bytes[28..30], 256u16.to_ne_bytes());
    }

    #[test]
    fn other_protocols_are_told_apart() {
        assert_eq!(greeting(&[8, 0, 0, 0]).unwrap().version(), Version::Later);
        assert_eq!(greeting(&[7, 22, 0, 0]).unwrap().version(), Version::TooOld);
        assert_eq!(greeting(&[6, 99, 0, 0]).unwrap().version(), Version::TooOld);
        assert_eq!(greeting(&[7, 45, 0]), Err(Malformed));
        assert_eq!(greeting(&[7, 45, 0, 1 << 30]), Err(Malformed), "the second word is missing");
        assert_eq!(Greeting::our_version().len(), 64);
    }
}
