//! The client's half: posts writes, copies reads from frames. Nothing here makes a system call, except unmapping.

#![allow(unsafe_code)] // Shared memory cannot be used without it.

use std::io;
use std::sync::atomic::Ordering;

use crate::PAGE_BYTES;
use crate::board::View;
use crate::owner::Owner;
use crate::prefetch;
use crate::region::{EXTENDS, EntryHead, Kind, Noted, RINGS, Region};
use crate::ring::{PAYLOAD_BYTES_MAX, Place, RING_BYTES};

/// A client of one daemon: its views of the three memories.
#[derive(Debug)]
pub struct Client {
    /// The daemon's number for it.
    pub id: u32,
    /// The board and the frames.
    pub view: View,
    /// Its own region.
    pub region: Region,
}

/// A file that a client has in the lane, by one open description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The file's place on the board.
    pub slot: u32,
    /// The daemon's number for the open description.
    pub description: u32,
}

/// Where posted bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To this offset.
    Offset(u64),
    /// To the file's end: an append.
    End,
}

/// Why a call must go by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The daemon is gone, or has closed this client.
    Gone,
    /// The file's mode does not allow it now.
    Mode,
    /// No frame holds all of the pages, or they reach past the file's known end.
    Absent,
    /// A pending write must be applied first: it is to one of the pages, or moves the file's end.
    Pending,
    /// More than an entry takes, or past what is reserved at home.
    Size,
    /// The ring is full.
    Full,
}

/// A ring that a thread owns. Dropping it does not release the ring: see [`Client::release_ring`].
#[derive(Debug)]
pub struct Ring {
    number: usize,
    owner: Owner,
}

impl Ring {
    #[cfg(test)]
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Client {
    /// Takes a ring for a thread. `is_alive` tells whether a thread of its PID namespace still exists: a dead
    /// thread's ring is taken over. Rings of threads in other namespaces are left alone, since it is unknown
    /// whether those threads exist. `None` if no ring is free.
    pub fn take_ring(&self, owner: Owner, is_alive: impl Fn(u32) -> bool) -> Option<Ring> {
        let region = &self.region;
        let free = (0..RINGS).find(|ring| region.change_owner(*ring, Owner::NONE, owner));
        let ring = free.or_else(|| {
            (0..RINGS).find(|ring| {
                let before = region.owner(*ring);
                let is_dead = before.is_beside(owner) && !is_alive(before.tid());
                is_dead && region.change_owner(*ring, before, owner)
            })
        });
        ring.map(|number| Ring { number, owner })
    }

    /// Replaces the three shared memories by private zeros: no file data can be read from them any more, and
    /// nothing can be posted. Other threads may be using them during the call. Such a read returns right data
    /// or fails; such a write is posted for the daemon to take, or fails. Later calls fail, since zeros mean
    /// that the daemon is not alive and that no file may be used.
    ///
    /// # Errors
    /// Some memory could not be replaced and is still mapped. The call can be repeated.
    pub fn unmap(&self) -> io::Result<()> {
        // The region last: its counters tell which pages have writes pending, and a thread that still reads shared
        // pages must read the shared counters. A post that began in the shared region is not published in zeros
        // (`Ends::mark_as_used`).
        let view = self.view.unmap();
        self.region.unmap().and(view)
    }

    /// Releases a ring; what is posted in it is still taken out.
    pub fn release_ring(&self, ring: &Ring) {
        self.region.change_owner(ring.number, ring.owner, Owner::NONE);
    }

    /// Whether a write of `len` bytes fits in the ring now. It still fits when the ring's thread posts it, since only
    /// that thread takes room.
    #[inline]
    pub fn has_room(&self, ring: &Ring, len: usize) -> bool {
        len > PAYLOAD_BYTES_MAX || self.region.ring(ring.number).ends.begin(len).is_ok()
    }

    /// Posts a write of `len` bytes at `data`. True if the daemon must be woken now, by a byte over the socket.
    ///
    /// # Errors
    /// Nothing was posted; [`Miss`] says why.
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
        // SAFETY: by this function's contract; `fill` gets room for `len` bytes that no other thread uses.
        unsafe {
            self.post_with(ring, file, to, len, |out| std::ptr::copy_nonoverlapping(data, out, len))
        }
    }

    /// Posts a write of `len` bytes as one entry. `fill` writes the bytes to the address it is given; it may be called
    /// more than once.
    ///
    /// # Errors
    /// As for [`Client::post`].
    ///
    /// # Safety
    /// `fill` must write `len` bytes, and no more. As for [`Client::post`].
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
        if !self.view.is_alive() {
            return Err(Miss::Gone);
        }
        let (head, ends) = (self.region.head(), &self.region.ring(ring.number).ends);
        loop {
            let place = ends.begin(len).map_err(|_| Miss::Full)?;
            // After `begin`: if a check's result changes before `publish`, `publish` fails.
            if self.region.is_closed() {
                return Err(Miss::Gone);
            }
            if !self.view.seen(file.slot, self.id).writable {
                return Err(Miss::Mode);
            }
            let noted = self.note(file.slot, to, len)?;
            let (offset, kind, flags) = match noted {
                Noted::Write { offset, extends, .. } => {
                    (offset, Kind::Write, if extends { EXTENDS } else { 0 })
                }
                Noted::Append(_) => (0, Kind::Append, 0),
            };
            let sequence = head.writes.take();
            if to == To::End
                && let Err(miss) = self.check_room(file.slot)
            {
                self.region.settle(noted);
                return Err(miss);
            }
            let (description, len, kind) = (file.description, len as u32, kind as u32);
            let entry = EntryHead { sequence, offset, description, len, kind, flags };
            // SAFETY: by this function's contract.
            unsafe { self.copy_in(ring, place, entry, &fill) };
            if ends.publish(place).is_ok() {
                return Ok(head.doorbell.must_wake(place.is_filling));
            }
            self.region.settle(noted);
        }
    }

    /// A file's size, bytes. `None` unless this client holds the file's lease and nothing that it posted can still
    /// change the size.
    pub fn size(&self, slot: u32) -> Option<u64> {
        let ends = &self.region.head().ends;
        let is_final = || {
            ends.extending.load(Ordering::Acquire) == 0
                && ends.appending.load(Ordering::Acquire) == 0
        };
        let state = self.view.state(slot);
        if !self.view.is_alive()
            || self.region.is_closed()
            || !state.seen(self.id).writable
            || !is_final()
        {
            return None;
        }
        let size = self.view.size(slot);
        (self.view.state(slot) == state).then_some(size)
    }

    /// Counts a write as pending, before it is posted. A write at an offset must end inside what is reserved at home.
    #[inline]
    fn note(&self, slot: u32, to: To, len: usize) -> Result<Noted, Miss> {
        let noted = match to {
            To::Offset(offset) => {
                let end = offset.checked_add(len as u64).ok_or(Miss::Size)?;
                if end > self.view.grant(slot) {
                    return Err(Miss::Size);
                }
                let extends = end > self.view.size(slot);
                Noted::Write { slot: Some(slot), offset, len, extends }
            }
            To::End => Noted::Append(len),
        };
        self.region.note(noted);
        Ok(noted)
    }

    /// Whether home has room for all appends noted, each as if to this file. Call after the sequence number was
    /// taken: all writes with lower numbers are noted by then, or in the size.
    #[inline]
    fn check_room(&self, slot: u32) -> Result<(), Miss> {
        let ends = &self.region.head().ends;
        // Before the size: the daemon adds a write to the size before it discounts it here.
        if ends.extending.load(Ordering::Acquire) != 0 {
            return Err(Miss::Pending);
        }
        let appending = ends.appending.load(Ordering::Acquire);
        let end = self.view.size(slot).saturating_add(appending);
        if end <= self.view.grant(slot) { Ok(()) } else { Err(Miss::Size) }
    }

    /// Writes an entry at `place`.
    ///
    /// # Safety
    /// `place` must be the last result of this ring's `begin`, and `fill` write no more than the entry's length.
    #[inline]
    unsafe fn copy_in(&self, ring: &Ring, place: Place, entry: EntryHead, fill: &impl Fn(*mut u8)) {
        let bytes = self.region.ring_bytes(ring.number);
        // SAFETY: `begin` gave this room, aligned for a head, to this thread alone; the daemon reads it only after
        // it is published.
        unsafe {
            prefetch::write(bytes.add((place.at + PREFETCH_BYTES) % RING_BYTES));
            if let Some(at) = place.filler {
                let filler = EntryHead { kind: Kind::Filler as u32, len: 0, ..entry };
                bytes.add(at).cast::<EntryHead>().write(filler);
            }
            let at = bytes.add(place.at);
            at.cast::<EntryHead>().write(entry);
            fill(at.add(size_of::<EntryHead>()));
        }
    }

    /// Reads all of `len` bytes at `offset` to `out`.
    ///
    /// # Errors
    /// Not all bytes were read, and `out` may hold anything; [`Miss`] says why.
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
        let state = self.view.state(slot);
        if !state.seen(self.id).readable {
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
        // The slot may have been given to another file meanwhile.
        if self.view.state(slot) == state { Ok(()) } else { Err(Miss::Mode) }
    }
}

/// How far ahead of an entry the ring's memory is prefetched: the daemon's CPU may have it in its cache.
const PREFETCH_BYTES: usize = 1024;
