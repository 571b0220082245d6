//! What is asked of a mount with one order (`--order all`) by an open file: which mount it is. `library/weir.c` asks the same.

#![allow(unsafe_code, reason = "ioctl(2), and sync_file_range(2), which rustix lacks")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater};
use weir_lane::wire::{MESSAGE_BYTES, Message, ORDER, Order};

/// The number of the mount that a regular file or directory is on, which no other mount has.
///
/// # Errors
/// ENOTTY: it is not on a Weir mount. EOPNOTSUPP: the mount has no one order. ENOTCONN, ECONNABORTED: its daemon has died.
pub fn mount_number(file: BorrowedFd<'_>) -> Result<[u8; 16], Errno> {
    let mut message: Message = [0; MESSAGE_BYTES];
    // SAFETY: the request's number says that it reads and writes as many bytes as the message has, and all values of these are valid.
    let asked = unsafe {
        rustix::ioctl::ioctl(file, Updater::<{ ORDER as Opcode }, Message>::new(&mut message))
    };
    match asked {
        Ok(()) => Order::decode(&message).map(|order| order.mount).ok_or(Errno::NOTTY),
        Err(Errno::NOSYS) => Err(Errno::NOTTY),
        Err(errno) => Err(errno),
    }
}

/// Gives the daemon what was changed by mappings of a regular file. Does not wait for a disk.
///
/// # Errors
/// Those of sync_file_range(2).
pub fn give_mapped(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    loop {
        // SAFETY: it takes numbers alone, and the descriptor is open.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } == 0 {
            return Ok(());
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::INTR) => {}
            errno => return Err(errno.unwrap_or(Errno::IO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_have_no_number() {
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(mount_number(file.as_fd()).is_err());
        assert_eq!(give_mapped(file.as_fd()), Ok(()));
    }
}
