//! File handles, stored without an allocation where they are short.

use std::fmt;

/// Longest handle that is stored in place, bytes: ext4's and XFS's have 8 to 12, Btrfs's 20.
const SHORT_BYTES_MAX: usize = 20;

/// A file handle of home (name_to_handle_at(2)): opaque here.
#[derive(Clone, PartialEq, Eq)]
pub struct Handle(Bytes);

#[derive(Clone, PartialEq, Eq)]
enum Bytes {
    /// Bytes past `len` are zero.
    Short {
        kind: u32,
        len: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    Long(Box<(u32, Vec<u8>)>),
}

impl Handle {
    /// A handle of this type, with these bytes.
    pub fn new(kind: u32, handle: &[u8]) -> Handle {
        if handle.len() > SHORT_BYTES_MAX {
            return Handle(Bytes::Long(Box::new((kind, handle.to_vec()))));
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..handle.len()].copy_from_slice(handle);
        // At most SHORT_BYTES_MAX.
        Handle(Bytes::Short { kind, len: handle.len() as u8, bytes })
    }

    /// Its type.
    pub fn kind(&self) -> u32 {
        match &self.0 {
            Bytes::Short { kind, .. } => *kind,
            Bytes::Long(long) => long.0,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { len, bytes, .. } => &bytes[..usize::from(*len)],
            Bytes::Long(long) => &long.1,
        }
    }

    /// A version for an [`crate::Identity`]: the same for the same handle.
    pub fn version(&self) -> u64 {
        // FNV-1a. Only inodes with the same number are told apart by it.
        let kind = self.kind().to_le_bytes();
        kind.iter().chain(self.bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}, {:02x?})", self.kind(), self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_bytes_whatever_its_length() {
        for len in [0, 1, 8, 20, 21, 128] {
            let bytes: Vec<u8> = (1..=len).collect();
            let handle = Handle::new(0x81, &bytes);
            assert_eq!((handle.kind(), handle.bytes()), (0x81, &bytes[..]));
            assert_ne!(handle.version(), Handle::new(0x82, &bytes).version());
        }
        assert_ne!(Handle::new(1, &[0]).version(), Handle::new(1, &[]).version());
    }
}
