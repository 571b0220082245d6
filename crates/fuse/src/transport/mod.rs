//! Transports: how requests reach the file system.
//!
//! A transport reads requests, hands each to [`crate::dispatch`] with a [`crate::reply`], and sends the answers.
//! [`device`] does so over /dev/fuse; [`uring`] over io_uring, where the kernel has it on. [`wire`] has the messages of
//! both. [`mount`] mounts and gets the device, which both need.

pub(crate) mod device;
pub(crate) mod mount;
pub(crate) mod uring;
pub(crate) mod wire;

/// Largest write the kernel sends in one request, bytes. Its default limit on pages in a request
/// allows no more.
pub(crate) const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Most background requests (read-ahead, write-back of mapped pages) that the kernel may have in flight.
pub(crate) const BACKGROUND_MAX: u16 = 64;

/// How requests reach the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over /dev/fuse alone.
    Device,
    /// Over io_uring, except requests that the kernel always sends over the device.
    IoUring,
}

impl Transport {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Device => "device",
            Transport::IoUring => "io-uring",
        }
    }
}
