//! The memory for requests and answers: a header and a payload buffer for each entry of a thread's queues.
//!
//! Owns one anonymous mapping, of which only pages that were used are resident. It has small pages: a huge page would
//! be resident for one small request.
//!
//! Invariants:
//! - an entry's memory lies at [`Area::place`], inside the mapping, and overlaps no other's;
//! - `resident` is an upper bound of the bytes of each payload that may be resident past its first
//!   page.

#![allow(unsafe_code)] // Memory that the kernel also writes is not a Rust object.

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::super::wire::request::HEADER_BYTES;

/// Bytes of one payload: the least that the kernel accepts (`fuse_ring::max_payload_sz`) with requests of
/// [`WRITE_BYTES_MAX`].
///
/// [`WRITE_BYTES_MAX`]: crate::transport::WRITE_BYTES_MAX
pub(super) const PAYLOAD_BYTES: usize = crate::transport::WRITE_BYTES_MAX as usize;

/// Bytes of `struct fuse_uring_req_header`.
pub(super) const FRAME_BYTES: usize = 288;

/// Distance of headers.
const FRAME_STRIDE: usize = 512;

/// Where the parts of `struct fuse_uring_req_header` are: `in_out`, `op_in`, and of
/// `ring_ent_in_out` the fields `commit_id` and `payload_sz`.
const IN_OUT: usize = 0;
const FIXED: usize = 128;
const FIXED_BYTES: usize = 128;
const COMMIT_ID: usize = 264;
const PAYLOAD_LEN: usize = 272;

const PAGE_BYTES: usize = 4096;

/// The memory of a thread's entries.
#[derive(Debug)]
pub(super) struct Area {
    base: NonNull<c_void>,
    len: usize,
    entries: usize,
    resident: Vec<usize>,
    resident_sum: usize,
}

/// An entry's request, as the kernel wrote it.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    /// `struct fuse_in_header`.
    pub(super) header: &'a [u8; HEADER_BYTES],
    /// Memory for the structure of the request.
    pub(super) fixed: &'a [u8],
    /// The rest of the request.
    pub(super) payload: &'a [u8],
    /// The kernel's identifier of the request, for the answer.
    pub(super) commit_id: u64,
}

/// Where an entry's memory is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// [`FRAME_BYTES`] of header.
    pub(super) frame: NonNull<u8>,
    /// [`PAYLOAD_BYTES`].
    pub(super) payload: NonNull<u8>,
}

impl Area {
    /// Memory for `entries` entries.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(entries: usize) -> io::Result<Area> {
        let len = frames_bytes(entries) + entries * PAYLOAD_BYTES;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address the kernel chooses.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, flags)? };
        let base = NonNull::new(base).expect("mmap(2) gives no null address unless asked");
        // SAFETY: the mapping's own range. A kernel without huge pages refuses, which does no harm.
        let _ = unsafe { madvise(base.as_ptr(), len, Advice::LinuxNoHugepage) };
        Ok(Area { base, len, entries, resident: vec![0; entries], resident_sum: 0 })
    }

    /// Where the memory of `entry` is.
    pub(super) fn place(&self, entry: u32) -> Place {
        let entry = entry as usize;
        assert!(entry < self.entries, "an entry of this area");
        let base = self.base.cast::<u8>();
        let payload = frames_bytes(self.entries) + entry * PAYLOAD_BYTES;
        // SAFETY: both lie inside the mapping, by its length in `new`.
        unsafe { Place { frame: base.add(entry * FRAME_STRIDE), payload: base.add(payload) } }
    }

    /// The request in `entry`.
    ///
    /// # Safety
    /// The entry is not with the kernel, and will not be while what is returned is used.
    pub(super) unsafe fn arrived(&mut self, entry: u32) -> Arrived<'_> {
        let Place { frame, payload } = self.place(entry);
        // SAFETY: inside the mapping; the caller promises that the kernel does not write at this time.
        let (frame, payload) = unsafe {
            let frame = slice::from_raw_parts(frame.as_ptr(), FRAME_BYTES);
            (frame, slice::from_raw_parts(payload.as_ptr(), PAYLOAD_BYTES))
        };
        let commit_id = u64::from_ne_bytes(part(frame, COMMIT_ID));
        let payload_len = u32::from_ne_bytes(part(frame, PAYLOAD_LEN)) as usize;
        let payload = &payload[..payload_len.min(PAYLOAD_BYTES)];
        self.note_resident(entry, payload.len());
        let header = frame.first_chunk().expect("a frame is longer than a header");
        Arrived { header, fixed: &frame[FIXED..FIXED + FIXED_BYTES], payload, commit_id }
    }

    /// Puts a request into `entry`, as the kernel does: a header, and the beginning of a payload.
    #[cfg(fuzzing)]
    pub(super) fn arrive(&mut self, entry: u32, header: &[u8; FRAME_BYTES], begin: &[u8]) {
        let begin = &begin[..begin.len().min(PAYLOAD_BYTES)];
        let Place { frame, payload } = self.place(entry);
        // SAFETY: inside the mapping, and there is no kernel.
        unsafe {
            frame.cast::<[u8; FRAME_BYTES]>().write(*header);
            payload.copy_from_nonoverlapping(NonNull::from(begin).cast(), begin.len());
        }
    }

    /// The request in the first entry.
    #[cfg(fuzzing)]
    pub(super) fn only_arrived(&mut self) -> Arrived<'_> {
        // SAFETY: there is no kernel.
        unsafe { self.arrived(0) }
    }

    /// Puts an answer into `entry`: `header`, and a body of `len` bytes that `write` writes.
    ///
    /// # Safety
    /// The entry is not with the kernel.
    pub(super) unsafe fn answer(
        &mut self,
        entry: u32,
        header: &[u8],
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        assert!(len <= PAYLOAD_BYTES, "a body fits its buffer");
        let Place { frame, payload } = self.place(entry);
        // SAFETY: inside the mapping. It is not used elsewhere at this time: not by the kernel, as the caller promises,
        // nor by other code, because `self` is borrowed mutably.
        let (frame, payload) = unsafe {
            let frame = slice::from_raw_parts_mut(frame.as_ptr(), FRAME_BYTES);
            (frame, slice::from_raw_parts_mut(payload.as_ptr(), len))
        };
        frame[IN_OUT..header.len()].copy_from_slice(header);
        let payload_len = u32::try_from(len).expect("at most PAYLOAD_BYTES");
        frame[PAYLOAD_LEN..PAYLOAD_LEN + 4].copy_from_slice(&payload_len.to_ne_bytes());
        write(payload);
        self.note_resident(entry, len);
    }

    fn note_resident(&mut self, entry: u32, len: usize) {
        let past_first = len.saturating_sub(PAGE_BYTES);
        let resident = &mut self.resident[entry as usize];
        if past_first > *resident {
            self.resident_sum += past_first - *resident;
            *resident = past_first;
        }
    }

    /// Bytes of payload that may be resident, the first page of each not counted.
    pub(super) fn resident(&self) -> usize {
        self.resident_sum
    }

    /// Gives back the memory of `entry`, except its first page.
    ///
    /// # Safety
    /// The entry's content is not needed any more.
    pub(super) unsafe fn give_back(&mut self, entry: u32) {
        let resident = std::mem::take(&mut self.resident[entry as usize]);
        if resident == 0 {
            return;
        }
        self.resident_sum -= resident;
        let Place { payload, .. } = self.place(entry);
        let len = PAYLOAD_BYTES - PAGE_BYTES;
        // SAFETY: inside the mapping; the caller promises that the content is not needed. If the kernel ignores the
        // advice, that costs only memory.
        let _ = unsafe {
            let from = payload.add(PAGE_BYTES).as_ptr().cast();
            madvise(from, len, Advice::LinuxDontNeed)
        };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; no reference into it outlives the area.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Bytes of all headers, in whole pages.
fn frames_bytes(entries: usize) -> usize {
    (entries * FRAME_STRIDE).next_multiple_of(PAGE_BYTES)
}

fn part<const LEN: usize>(frame: &[u8], at: usize) -> [u8; LEN] {
    *frame[at..].first_chunk().expect("inside a frame")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_do_not_overlap() {
        let mut area = Area::new(3).unwrap();
        for entry in 0..3 {
            let header = [entry as u8; 16];
            // SAFETY: there is no kernel.
            unsafe { area.answer(entry, &header, 10, |body| body.fill(entry as u8)) };
        }
        for entry in 0..3 {
            // SAFETY: there is no kernel.
            let arrived = unsafe { area.arrived(entry) };
            assert_eq!(
                (arrived.header[15], arrived.payload),
                (entry as u8, &[entry as u8; 10][..])
            );
        }
    }

    #[test]
    fn released_memory_is_empty_and_not_counted() {
        let mut area = Area::new(2).unwrap();
        let len = PAGE_BYTES * 3;
        // SAFETY: there is no kernel.
        unsafe { area.answer(1, &[0; 16], len, |body| body.fill(7)) };
        assert_eq!(area.resident(), PAGE_BYTES * 2);
        // SAFETY: there is no kernel.
        let payload = unsafe {
            area.give_back(1);
            area.arrived(1).payload
        };
        assert!(payload[..PAGE_BYTES].iter().all(|&byte| byte == 7));
        assert!(payload[PAGE_BYTES..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_length_out_of_bounds_is_cut() {
        let mut area = Area::new(1).unwrap();
        let frame = area.place(0).frame;
        // SAFETY: inside the frame.
        unsafe { frame.add(PAYLOAD_LEN).cast::<[u8; 4]>().write([0xff; 4]) };
        // SAFETY: there is no kernel.
        assert_eq!(unsafe { area.arrived(0) }.payload.len(), PAYLOAD_BYTES);
    }
}
