//! Shared memory: making it, sealing it, mapping it.

#![allow(unsafe_code)] // Shared memory cannot be mapped without it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create, openat,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;

/// How this process may use a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    fn protection(self) -> ProtFlags {
        match self {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A mapping of shared memory. Never sliced: another process may write it at any time.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// For tests that map nothing: the heap memory.
    #[cfg(test)]
    heap: Option<std::sync::Arc<Heap>>,
}

#[cfg(test)]
#[derive(Debug)]
struct Heap(NonNull<u8>, std::alloc::Layout);

#[cfg(test)]
impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated by this layout in `Memory::heap`, and no `Memory` refers to it any more.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), self.1) };
    }
}

#[cfg(test)]
// SAFETY: as for `Memory`.
unsafe impl Send for Heap {}
#[cfg(test)]
// SAFETY: as for `Memory`.
unsafe impl Sync for Heap {}
// SAFETY: a `Memory` is an address and a length; what is done with the memory is its users' unsafe code.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Makes shared memory of `len` bytes, all zero. Its size is sealed.
///
/// # Errors
/// That of memfd_create(2), ftruncate(2) or fcntl(2).
pub fn create(name: &str, len: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, len as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// Seals the memory against new writable mappings and further seals: a read-only descriptor could otherwise be opened
/// again for writing. Existing mappings stay writable.
///
/// # Errors
/// That of fcntl(2).
pub fn seal_writes(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
}

/// A read-only descriptor of the same memory.
///
/// # Errors
/// That of open(2) on /proc/self/fd.
pub fn read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(openat(rustix::fs::CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reserves address space for a mapping, without memory. A long range is aligned for huge pages.
fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    let len = len.next_multiple_of(crate::PAGE_BYTES);
    let more = if len >= HUGE_BYTES { HUGE_BYTES } else { 0 };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of this process.
    let base =
        unsafe { mmap_anonymous(std::ptr::null_mut(), len + more, ProtFlags::empty(), flags) }?
            .cast::<u8>();
    let before = if more == 0 { 0 } else { base.align_offset(HUGE_BYTES) };
    let start = base.wrapping_add(before);
    for (at, len) in [(base, before), (start.wrapping_add(len), more - before)] {
        if len > 0 {
            // SAFETY: a part of the mapping made above, which nothing else uses.
            unsafe { munmap(at.cast(), len) }?;
        }
    }
    NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned null"))
}

impl Memory {
    /// Maps the first `len` bytes of `fd`.
    ///
    /// # Errors
    /// That of mmap(2); `InvalidData` if the memory is smaller than `len`.
    pub fn map(fd: impl AsFd, len: usize, access: Access) -> io::Result<Memory> {
        let there = fstat(&fd)?.st_size;
        if len == 0 || u64::try_from(there).unwrap_or(0) < len as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "shared memory of another size",
            ));
        }
        let protection = access.protection();
        let memory = Memory {
            base: reserve(len)?,
            len,
            #[cfg(test)]
            heap: None,
        };
        let at = memory.base().cast();
        // SAFETY: in place of what was reserved just now, which nothing else uses.
        let mapped =
            unsafe { mmap(at, len, protection, MapFlags::SHARED | MapFlags::FIXED, fd, 0) };
        match mapped {
            Ok(_) => Ok(memory),
            Err(error) => {
                // mmap(2) may have removed the reserved range, and another thread may have mapped it since.
                std::mem::forget(memory);
                Err(error.into())
            }
        }
    }

    /// Replaces the shared memory by private zeros, in one step for all threads: a concurrent access sees the
    /// shared bytes or zeros, and does not fault. If the kernel has no memory for that, the range is
    /// unmapped, and concurrent accesses fault.
    ///
    /// # Errors
    /// Both failed: the shared memory is still mapped.
    pub fn replace_by_zeros(&self, access: Access) -> io::Result<()> {
        #[cfg(test)]
        assert!(self.heap.is_none(), "heap memory is not mapped");
        let protection = access.protection();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let at = self.base.as_ptr().cast();
        // SAFETY: replaces this value's own mapping. References into it then read zeros, which are valid
        // values of atomics and of bytes; there are no references of other types ([`Memory::at`]).
        if unsafe { mmap_anonymous(at, self.len, protection, flags) }.is_ok() {
            return Ok(());
        }
        // SAFETY: as above, except that later accesses fault: that is better than access to other users'
        // data.
        Ok(unsafe { munmap(at, self.len) }?)
    }

    /// Makes the [`HUGE_BYTES`] at `offset`, a multiple of them, one huge page, where the kernel can. The bytes do not
    /// change. All mappings of the memory use the huge page.
    ///
    /// # Errors
    /// That of madvise(2): `InvalidInput` before Linux 6.1, and where huge pages of shared memory are denied.
    pub fn make_huge(&self, offset: usize) -> io::Result<()> {
        assert!(offset.is_multiple_of(HUGE_BYTES) && offset + HUGE_BYTES <= self.len);
        let at = self.base.as_ptr().wrapping_add(offset).cast();
        // SAFETY: inside the mapping, whose bytes the advice does not change.
        let advised = unsafe {
            // A range without any page is not made huge.
            madvise(at, crate::PAGE_BYTES, Advice::LinuxPopulateWrite)?;
            libc::madvise(at, HUGE_BYTES, libc::MADV_COLLAPSE)
        };
        if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Removes pages from this process's page tables; their bytes stay in the shared memory and fault in when
    /// they are used. The range is cut off at the end of the memory.
    ///
    /// # Errors
    /// That of madvise(2).
    pub fn unmap_pages(&self, bytes: Range<usize>) -> io::Result<()> {
        let end = bytes.end.min(self.len);
        assert!(bytes.start.is_multiple_of(crate::PAGE_BYTES) && bytes.start <= end);
        let at = self.base.as_ptr().wrapping_add(bytes.start).cast();
        // SAFETY: inside the mapping, which is shared: the bytes stay in the memory's file.
        let advised = unsafe { libc::madvise(at, end - bytes.start, libc::MADV_DONTNEED) };
        if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Memory of this process alone, all zero.
    #[cfg(test)]
    pub(crate) fn heap(len: usize) -> Memory {
        let layout = std::alloc::Layout::from_size_align(len, crate::PAGE_BYTES).unwrap();
        // SAFETY: no test asks for no memory at all.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
        Memory { base, len, heap: Some(std::sync::Arc::new(Heap(base, layout))) }
    }

    /// Another `Memory` of the same heap memory.
    #[cfg(test)]
    pub(crate) fn again(&self) -> Memory {
        let heap = self.heap.clone();
        assert!(heap.is_some());
        Memory { base: self.base, len: self.len, heap }
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped; always false.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The object of type `T` at `offset`.
    ///
    /// # Safety
    /// `T` must consist of atomics alone (or of what is never written while it is shared), and every bit
    /// pattern must be a `T`.
    pub unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(offset.is_multiple_of(align_of::<T>()));
        assert!(offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, aligned, and by this function's contract a type for which sharing is sound.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    /// The array of `count` objects of type `T` at `offset`.
    ///
    /// # Safety
    /// As for [`Memory::at`].
    pub unsafe fn array<T>(&self, offset: usize, count: usize) -> &[T] {
        assert!(offset.is_multiple_of(align_of::<T>()));
        let bytes = size_of::<T>().checked_mul(count).expect("no array is as large as that");
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.len));
        // SAFETY: as in `at`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.heap.is_some() {
            return;
        }
        // SAFETY: the mapping is this value's own, and references into it borrow the value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
