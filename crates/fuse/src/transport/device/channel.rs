//! A descriptor of /dev/fuse: requests are read from it, and those that were read from it are answered on it.

#![allow(unsafe_code)] // ioctl(2) has no safe interface.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::ioctl::{Setter, ioctl, opcode};
use smallvec::SmallVec;

use crate::errno::Errno;
use crate::reply::Answers;
use crate::transport::mount::DEVICE;
use crate::transport::wire::answer::{self, Body};

/// FUSE_DEV_IOC_CLONE.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Most pieces of an answer that one writev(2) takes (IOV_MAX), besides its header.
const PIECES_MAX: usize = 1023;

/// The result of a read of the device.
pub(super) enum Received {
    /// A request of this many bytes.
    Request(usize),
    /// The mount has ended.
    End,
}

/// One descriptor.
#[derive(Debug)]
pub(super) struct Channel(File);

impl Channel {
    /// The channel of a mount.
    pub(super) fn new(device: OwnedFd) -> Channel {
        Channel(device.into())
    }

    /// A duplicate of the device's descriptor.
    ///
    /// # Errors
    /// Those of dup(2).
    pub(super) fn device(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// Another channel of the same mount. Requests arrive at either, and threads with separate channels do not wait for
    /// each other. If the device cannot be cloned, this channel itself.
    pub(super) fn cloned(self: &Arc<Self>) -> Arc<Channel> {
        match self.clone_device() {
            Ok(device) => Arc::new(Channel(device)),
            Err(error) => {
                tracing::debug!("threads share one descriptor of {DEVICE}: {error}");
                Arc::clone(self)
            }
        }
    }

    fn clone_device(&self) -> io::Result<File> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let of = u32::try_from(self.0.as_raw_fd()).map_err(io::Error::other)?;
        // SAFETY: the call reads a u32, a descriptor's number, from the given address.
        unsafe { ioctl(&device, Setter::<CLONE, u32>::new(of))? };
        Ok(device)
    }

    /// Reads a request. `buffer` has room for the largest.
    ///
    /// # Errors
    /// Those of read(2), except those that only mean to try again.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match (&self.0).read(buffer) {
                Ok(len) => return Ok(Received::Request(len)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENODEV) => return Ok(Received::End),
                    // ENOENT: the request was interrupted before it was read.
                    Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn write(&self, unique: u64, result: &Result<Body, Errno>) -> io::Result<()> {
        let header = answer::header(unique, result.as_ref().map(Body::len).map_err(|errno| *errno));
        let body = result.as_ref().ok();
        let mut pieces: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        pieces.push(IoSlice::new(&header));
        pieces.extend(body.iter().flat_map(|body| body.pieces()).map(IoSlice::new));
        if pieces.len() <= PIECES_MAX {
            return (&self.0).write_vectored(&pieces).map(drop);
        }
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        (&self.0).write(&whole).map(drop)
    }
}

impl Answers for Channel {
    fn answer(&self, _slot: u32, unique: u64, result: Result<Body, Errno>) {
        let written = self.write(unique, &result);
        let Err(error) = written else { return };
        match error.raw_os_error() {
            // The request was interrupted, or the mount has ended.
            Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN | libc::EPERM) => {}
            _ => {
                tracing::error!("the kernel did not take an answer: {error}");
                if result.is_ok() {
                    // The program must not wait for ever.
                    let _ = self.write(unique, &Err(Errno::EIO));
                }
            }
        }
    }

    fn done(&self, _slot: u32, _unique: u64) {}
}
