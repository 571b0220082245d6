//! The client's half: writes are posted, reads copied from frames. Nothing here makes a system call.

#![allow(unsafe_code)] // Shared memory cannot be used without it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::PAGE_BYTES;
use crate::board::View;
use crate::region::{ASLEEP, AWAKE, EntryHead, Kind, RINGS, RUNG, Region};
use crate::ring::{PAYLOAD_BYTES_MAX, Place, RING_BYTES, Refused};

/// A client of one daemon: its views of the three memories.
#[derive(Debug)]
pub struct Client {
    /// Who it is to the daemon.
    pub id: u32,
    /// The board and the frames.
    pub view: View,
    /// Its own region.
    pub region: Region,
}

/// A file a client has in the lane, by one open description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The file's place on the board.
    pub slot: u32,
    /// What the daemon calls the open description.
    pub description: u32,
}

/// Where posted bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To this offset.
    Offset(u64),
    /// To the file's end.
    End,
}

/// Why a call must go by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The daemon is gone, or has closed this client.
    Gone,
    /// The file may not be used so now.
    Mode,
    /// No frame holds all of the pages, or they reach past the file's known end.
    Absent,
    /// A write to one of the pages is pending.
    Pending,
    /// More than an entry takes, or past what home is known to have room for.
    Size,
    /// The ring is full.
    Full,
}

/// One thread's right to a ring. Not given back when it is dropped: see [`Client::release_ring`].
#[derive(Debug)]
pub struct Ring(usize);

impl Client {
    /// Takes a ring for the thread `tid`. `is_alive` says whether a thread of the client is still there: what
    /// a dead one had is taken over. `None` if all are taken.
    pub fn take_ring(&self, tid: u32, is_alive: impl Fn(u32) -> bool) -> Option<Ring> {
        let take = |ring: &usize, from: u32| {
            let owner = &self.region.ring(*ring).owner.0;
            owner.compare_exchange(from, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let free = (0..RINGS).find(|ring| take(ring, 0));
        let ring = free.or_else(|| {
            (0..RINGS).find(|ring| {
                let owner = self.region.ring(*ring).owner.0.load(Ordering::Relaxed);
                owner != 0 && !is_alive(owner) && take(ring, owner)
            })
        });
        ring.map(Ring)
    }

    /// Gives a ring back; what is posted in it is still taken.
    pub fn release_ring(&self, ring: &Ring) {
        self.region.ring(ring.0).owner.0.store(0, Ordering::Release);
    }

    /// Posts a write of `len` bytes at `data`. True if the daemon must be woken now, by a byte over the socket.
    ///
    /// # Errors
    /// Nothing was posted: see [`Miss`].
    ///
    /// # Safety
    /// `data` must be valid for reads of `len` bytes. `ring` must be used by no other thread meanwhile, nor by a
    /// signal handler inside this call.
    #[inline]
    pub unsafe fn post(
        &self,
        ring: &Ring,
        file: Attached,
        to: To,
        data: *const u8,
        len: usize,
    ) -> Result<bool, Miss> {
        // SAFETY: by this function's contract; `fill` gets room for `len` bytes that nobody else uses.
        unsafe {
            self.post_with(ring, file, to, len, |out| std::ptr::copy_nonoverlapping(data, out, len))
        }
    }

    /// Posts a write of `len` bytes, one entry, that `fill` puts where it is told; it may be told more than once.
    ///
    /// # Errors
    /// As for [`Client::post`].
    ///
    /// # Safety
    /// `fill` must write no more than `len` bytes. As for [`Client::post`].
    #[inline]
    pub unsafe fn post_with(
        &self,
        ring: &Ring,
        file: Attached,
        to: To,
        len: usize,
        fill: impl Fn(*mut u8),
    ) -> Result<bool, Miss> {
        if len == 0 || len > PAYLOAD_BYTES_MAX {
            return Err(Miss::Size);
        }
        if !self.view.is_alive() || self.region.is_closed() {
            return Err(Miss::Gone);
        }
        let ends = &self.region.ring(ring.0).ends;
        loop {
            let place = ends.begin(len).map_err(|_| Miss::Full)?;
            // After `begin`: what is said now holds, or `publish` fails.
            if !self.view.seen(file.slot, self.id).writable {
                return Err(Miss::Mode);
            }
            let noted = self.note(file.slot, to, len)?;
            let entry = EntryHead {
                stamp: self.region.head().stamp.0.fetch_add(1, Ordering::AcqRel),
                offset: if let To::Offset(offset) = to { offset } else { 0 },
                description: file.description,
                len: len as u32,
                kind: if to == To::End { Kind::Append } else { Kind::Write } as u32,
                reserved: 0,
            };
            // SAFETY: by this function's contract.
            unsafe { self.copy_in(ring, place, entry, &fill) };
            match ends.publish(place) {
                Ok(()) => break,
                Err(Refused::Withdrawn | Refused::Full) => noted.take_back(self),
            }
        }
        let bell = &self.region.head().bell.0;
        // After `publish`, both sequentially consistent: either the daemon sees the entry before it sleeps, or
        // this sees that it sleeps.
        Ok(match bell.load(Ordering::SeqCst) {
            AWAKE if ends.used() > RING_BYTES as u64 / 2 => swap(bell, AWAKE),
            ASLEEP => swap(bell, ASLEEP),
            _ => false,
        })
    }

    /// Says before it is posted that a write is pending, and makes sure that home has room for it.
    #[inline]
    fn note(&self, slot: u32, to: To, len: usize) -> Result<Noted, Miss> {
        let grant = self.view.grant(slot);
        match to {
            To::Offset(offset) => {
                let end = offset.checked_add(len as u64).ok_or(Miss::Size)?;
                if end > grant {
                    return Err(Miss::Size);
                }
                for page in pages_of(offset, len) {
                    self.region.pending(slot, page).fetch_add(1, Ordering::AcqRel);
                }
                Ok(Noted { slot, offset: Some(offset), len })
            }
            To::End => {
                let noted = Noted { slot, offset: None, len };
                // Before the size: what the daemon takes out it adds to the size first.
                let before = self.region.head().appending.0.fetch_add(len as u64, Ordering::AcqRel);
                let end = before.saturating_add(len as u64).saturating_add(self.view.size(slot));
                if end > grant {
                    noted.take_back(self);
                    return Err(Miss::Size);
                }
                Ok(noted)
            }
        }
    }

    /// Writes an entry where it may be put.
    ///
    /// # Safety
    /// `place` must be fresh from this ring's `begin`, and `fill` write no more than the entry's length.
    #[inline]
    unsafe fn copy_in(&self, ring: &Ring, place: Place, entry: EntryHead, fill: &impl Fn(*mut u8)) {
        let bytes = self.region.ring_bytes(ring.0);
        // SAFETY: `begin` gave this room, aligned for a head, to this thread alone; the daemon reads it only after
        // it is published.
        unsafe {
            if let Some(at) = place.filler {
                let filler = EntryHead { kind: Kind::Filler as u32, len: 0, ..entry };
                bytes.add(at).cast::<EntryHead>().write(filler);
            }
            let at = bytes.add(place.at);
            at.cast::<EntryHead>().write(entry);
            fill(at.add(size_of::<EntryHead>()));
        }
    }

    /// Reads `len` bytes at `offset`, all of them, to `out`.
    ///
    /// # Errors
    /// `out` may hold anything then: see [`Miss`].
    ///
    /// # Safety
    /// `out` must be valid for writes of `len` bytes.
    #[inline]
    pub unsafe fn read(
        &self,
        slot: u32,
        offset: u64,
        out: *mut u8,
        len: usize,
    ) -> Result<(), Miss> {
        if !self.view.is_alive() || self.region.is_closed() {
            return Err(Miss::Gone);
        }
        if !self.view.seen(slot, self.id).readable {
            return Err(Miss::Mode);
        }
        let end = offset.checked_add(len as u64).ok_or(Miss::Size)?;
        if end > self.view.size(slot) {
            return Err(Miss::Absent);
        }
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let part = (len - done).min(PAGE_BYTES - start);
            if self.region.pending(slot, page).load(Ordering::Acquire) != 0 {
                return Err(Miss::Pending);
            }
            // SAFETY: `done + part <= len`.
            let frame = unsafe { self.view.read(slot, page, start, part, out.add(done)) };
            self.region.set_referenced(frame.ok_or(Miss::Absent)?);
            done += part;
        }
        Ok(())
    }
}

pub(crate) fn pages_of(offset: u64, len: usize) -> std::ops::Range<u64> {
    let page = PAGE_BYTES as u64;
    offset / page..(offset + len as u64).div_ceil(page)
}

/// Whether it was this call that rang.
#[cold]
fn swap(bell: &AtomicU32, from: u32) -> bool {
    bell.compare_exchange(from, RUNG, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// What was said of a write before it is posted.
struct Noted {
    slot: u32,
    /// `None`: at the end.
    offset: Option<u64>,
    len: usize,
}

impl Noted {
    fn take_back(self, client: &Client) {
        client.region.settle(self.slot, self.offset, self.len);
    }
}
