//! How recovery finds a file again: by the handle its file system gives it, which names the inode
//! and its generation (name_to_handle_at(2), open_by_handle_at(2)).
//!
//! As bytes: the handle's type, 4 bytes, little-endian; then the handle. Both are the file system's
//! business. A file whose file system has no handles cannot be found again and is not logged.

#![allow(unsafe_code)] // No safe interface to the two calls.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// MAX_HANDLE_SZ of the kernel.
const HANDLE_BYTES_MAX: usize = 128;

#[repr(C)]
struct Handle {
    head: libc::file_handle,
    bytes: [MaybeUninit<u8>; HANDLE_BYTES_MAX],
}

/// The identity of an open file (`O_PATH` does).
///
/// # Errors
/// EOPNOTSUPP where the file system has no handles.
pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    // SAFETY: all bits zero are a valid `Handle`: integers, and bytes that need not be initialised.
    let mut handle: Handle = unsafe { MaybeUninit::zeroed().assume_init() };
    handle.head.handle_bytes = HANDLE_BYTES_MAX as u32;
    let mut mount = 0;
    // SAFETY: the path is an empty string, the handle has room for as many bytes as it says, and
    // both live through the call.
    let result = unsafe {
        libc::name_to_handle_at(
            file.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (handle.head.handle_bytes as usize).min(HANDLE_BYTES_MAX);
    let mut identity = handle.head.handle_type.to_le_bytes().to_vec();
    // SAFETY: the call initialised that many bytes; all of them were zero before.
    identity.extend(handle.bytes[..len].iter().map(|byte| unsafe { byte.assume_init() }));
    Ok(identity)
}

/// Opens the file with this identity for writing, on the file system that `on` is on.
///
/// # Errors
/// ESTALE if it is gone; EPERM without CAP_DAC_READ_SEARCH; EINVAL for bytes that are no identity.
pub(crate) fn open(on: BorrowedFd<'_>, identity: &[u8]) -> io::Result<OwnedFd> {
    let Some((kind, bytes)) = identity.split_first_chunk::<4>() else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    if bytes.len() > HANDLE_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: as above.
    let mut handle: Handle = unsafe { MaybeUninit::zeroed().assume_init() };
    handle.head.handle_bytes = bytes.len() as u32;
    handle.head.handle_type = i32::from_le_bytes(*kind);
    for (to, from) in handle.bytes.iter_mut().zip(bytes) {
        to.write(*from);
    }
    // SAFETY: the handle holds as many bytes as it says and lives through the call.
    let fd = unsafe {
        libc::open_by_handle_at(
            on.as_raw_fd(),
            (&raw mut handle).cast(),
            libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
