//! A ring of posted writes: one thread of a client puts entries in, the server takes them out.
//!
//! The tail is one word: a position and a generation. A producer loads the tail, checks that it may post to the file,
//! copies its entry into the ring and publishes the entry by a compare-and-exchange of the tail. The server revokes the
//! right to post by changing the mode on the board and then raising the generation of every ring of the client. A
//! producer that checked before the change can publish no more; what it published before is seen when the server next
//! reads the tail. Neither side waits for the other, even if a program is stopped in between.
//!
//! Positions count bytes, modulo 2^24. An entry lies in the ring in one piece, after a filler if it would not fit
//! before the end. Generations have the other 40 bits: a stopped producer could publish under an old generation only
//! after 2^40 revocations.
//!
//! Invariants:
//! - `head <= tail <= head + RING_BYTES`, all multiples of [`ENTRY_ALIGN`];
//! - bytes between head and tail belong to the server, the others to the producer.

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a ring.
pub const RING_BYTES: usize = if cfg!(miri) { 8 << 10 } else { 1 << 20 };
/// Entries start at multiples of this.
pub const ENTRY_ALIGN: usize = 32;
/// Bytes of an entry's head, before its payload.
pub const HEAD_BYTES: usize = 32;
/// Most bytes in one entry.
pub const PAYLOAD_BYTES_MAX: usize = RING_BYTES / 8;

const POSITION_BITS: u32 = 24;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
const GENERATION: u64 = 1 << POSITION_BITS;
/// A ring with more than this in it should be drained soon.
const FILLING_BYTES: u64 = RING_BYTES as u64 / 2;

// A position out of bounds can be told from one in bounds, and position modulo RING_BYTES is the place in the ring.
const _: () = assert!(RING_BYTES as u64 * 2 <= POSITION_MASK && RING_BYTES.is_power_of_two());

/// Bytes that an entry with `payload` bytes of payload takes.
#[inline]
pub const fn entry_bytes(payload: usize) -> usize {
    (HEAD_BYTES + payload).next_multiple_of(ENTRY_ALIGN)
}

/// The words of a ring that both sides write.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ends {
    producer: ProducerLine,
    server: ServerLine,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ProducerLine {
    tail: AtomicU64,
    /// The head that the producer read last: it reads the head again only when the ring seems to fill.
    seen_head: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ServerLine {
    head: AtomicU64,
}

/// Where an entry may be put, and the tail that must still be there when it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where the entry starts, bytes from the start of the ring.
    pub at: usize,
    /// Where a filler must be put first, if the entry does not fit before the end.
    pub filler: Option<usize>,
    /// Whether the ring is more than half full with it.
    pub(crate) is_filling: bool,
    tail: u64,
    next: u64,
}

/// Why nothing was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room until the server has taken something out.
    Full,
    /// The server raised the generation in between: check the right to post again.
    Revoked,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends::new()
    }
}

impl Ends {
    /// Those of an empty ring.
    pub fn new() -> Ends {
        let producer = ProducerLine { tail: AtomicU64::new(0), seen_head: AtomicU64::new(0) };
        Ends { producer, server: ServerLine { head: AtomicU64::new(0) } }
    }

    /// Finds room for an entry. The producer must check its right to post after this call.
    ///
    /// # Errors
    /// [`Refused::Full`].
    #[inline]
    pub fn begin(&self, payload: usize) -> Result<Place, Refused> {
        debug_assert!(payload <= PAYLOAD_BYTES_MAX);
        // Acquire: a producer that sees a generation sees the board as it was when the generation was raised.
        let tail = self.producer.tail.load(Ordering::Acquire);
        let position = tail & POSITION_MASK;
        let (at, bytes) = ((position % RING_BYTES as u64) as usize, entry_bytes(payload));
        let to_end = RING_BYTES - at;
        let (at, filler, needed) =
            if bytes > to_end { (0, Some(at), to_end + bytes) } else { (at, None, bytes) };
        // Acquire, also for a ring's next producer: the server has read what it released.
        let seen = self.producer.seen_head.load(Ordering::Acquire);
        let mut used = distance(seen, position) + needed as u64;
        if used > FILLING_BYTES {
            used = distance(self.see_head(), position) + needed as u64;
            if used > RING_BYTES as u64 {
                return Err(Refused::Full);
            }
        }
        let next = tail & !POSITION_MASK | advance(position, needed);
        Ok(Place { at, filler, is_filling: used > FILLING_BYTES, tail, next })
    }

    #[cold]
    fn see_head(&self) -> u64 {
        let head = self.server.head.load(Ordering::Acquire);
        self.producer.seen_head.store(head, Ordering::Release);
        head
    }

    /// Publishes the entry written at `place`.
    ///
    /// # Errors
    /// [`Refused::Revoked`]: the entry is not published, and will not be read.
    #[inline]
    pub fn publish(&self, place: Place) -> Result<(), Refused> {
        // Release: a server that sees the tail sees the entry. Sequentially consistent for the doorbell.
        let published = self.producer.tail.compare_exchange(
            place.tail,
            place.next,
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        published.map(drop).map_err(|_| Refused::Revoked)
    }

    /// Whether the server has taken everything out.
    pub fn is_empty(&self) -> bool {
        let tail = self.producer.tail.load(Ordering::Acquire) & POSITION_MASK;
        tail == self.server.head.load(Ordering::Acquire) & POSITION_MASK
    }

    /// Bytes not yet taken out.
    pub fn used(&self) -> u64 {
        let tail = self.producer.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(self.server.head.load(Ordering::Relaxed)) & POSITION_MASK
    }

    /// Server: the position up to which entries are published.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.producer.tail.load(Ordering::SeqCst) & POSITION_MASK
    }

    /// Server: a post that began before this call fails to publish after it, and its retry sees what was stored
    /// before.
    pub fn revoke(&self) {
        self.producer.tail.fetch_add(GENERATION, Ordering::AcqRel);
    }

    /// Producer: call before the first entry. From then on the tail is not 0, so that an entry begun in this
    /// ring is not published in the zeros that replace it.
    pub(crate) fn mark_as_used(&self) {
        if self.producer.tail.load(Ordering::Relaxed) < GENERATION {
            self.revoke();
        }
    }

    /// Sets the tail to any value.
    #[cfg(any(all(test, not(loom)), fuzzing))]
    pub(crate) fn set_tail(&self, tail: u64) {
        self.producer.tail.store(tail, Ordering::SeqCst);
    }

    /// The position given to [`Ends::release`] last.
    #[cfg(any(all(test, not(loom)), fuzzing))]
    pub(crate) fn released(&self) -> u64 {
        self.server.head.load(Ordering::Relaxed) & POSITION_MASK
    }

    /// Server: everything before `position` was read.
    #[inline]
    pub fn release(&self, position: u64) {
        self.server.head.store(position & POSITION_MASK, Ordering::Release);
    }
}

/// Bytes from one position to another; more than [`RING_BYTES`] if they are not positions of one ring.
#[inline]
pub fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & POSITION_MASK
}

/// The position `bytes` later.
#[inline]
pub fn advance(position: u64, bytes: usize) -> u64 {
    position.wrapping_add(bytes as u64) & POSITION_MASK
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_lie_in_one_piece_and_fill_the_ring() {
        let ends = Ends::new();
        let bytes = entry_bytes(PAYLOAD_BYTES_MAX);
        let fit = RING_BYTES / bytes;
        for entry in 0..fit {
            let place = ends.begin(PAYLOAD_BYTES_MAX).unwrap();
            assert_eq!((place.at, place.filler), (entry * bytes, None));
            ends.publish(place).unwrap();
        }
        assert_eq!(ends.begin(PAYLOAD_BYTES_MAX), Err(Refused::Full));
        ends.release(advance(0, bytes));
        // The piece before the end is filled, and the first entry's room taken again.
        let place = ends.begin(PAYLOAD_BYTES_MAX).unwrap();
        assert_eq!((place.at, place.filler), (0, Some(fit * bytes)));
    }

    #[test]
    fn nothing_is_published_after_the_right_was_revoked() {
        let ends = Ends::new();
        let place = ends.begin(64).unwrap();
        ends.revoke();
        assert_eq!(ends.publish(place), Err(Refused::Revoked));
        assert!(ends.is_empty());
        let again = ends.begin(64).unwrap();
        ends.publish(again).unwrap();
        assert_eq!(distance(0, ends.tail()), entry_bytes(64) as u64);
    }
}
