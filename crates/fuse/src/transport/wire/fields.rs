//! Parsing messages field by field. A message that is too short is an error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::Malformed;

/// Bytes, taken one field after the other.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_ne_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    /// A name, and the zero byte after it.
    pub(super) fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let len = self.0.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
        let name = self.bytes(len)?;
        self.bytes(1)?;
        Ok(OsStr::from_bytes(name))
    }
}
