//! The server's half: takes posted writes out of a client's region, in the order they were made.
//!
//! Writes of a client's threads are in several rings; their sequence numbers say which came first, and a scan takes those
//! below its cut (`write_sequence`). The others are left to the next scan.
//!
//! Nothing read in a region is trusted: heads are copied, then checked. A head that fails the checks is [`Damage`];
//! after that the caller drops the inbox. A client cannot keep a scan from ending: a scan ends at the tails that were
//! read when it began. Nor can a client make scans futile: of two scans over rings in which something is posted, one
//! takes something out or reports damage.
//!
//! The functions that take an entry out are always inlined. An entry's head returned on the stack would be stored in
//! narrow pieces and loaded in wide ones: store forwarding fails, and the load waits until all stores before it, among
//! them the last entry's page, have reached the cache.

#![allow(unsafe_code)] // Shared memory cannot be read without it.

use std::io;
use std::sync::Arc;

use crate::board::Board;
use crate::prefetch;
use crate::racing;
use crate::region::{EXTENDS, EntryHead, Kind, Noted, RINGS, Region};
use crate::ring::{
    ENTRY_ALIGN, HEAD_BYTES, PAYLOAD_BYTES_MAX, RING_BYTES, advance, distance, entry_bytes,
};

/// A region holds what no correct client writes: nothing more is taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring {ring} of the client's region is damaged at byte {at}")]
pub struct Damage {
    /// Which ring.
    pub ring: usize,
    /// Where in the ring, bytes.
    pub at: usize,
}

/// A posted write, taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The open description, by the client's word.
    pub description: u32,
    /// The offset in the file; `None`: at the file's end.
    pub offset: Option<u64>,
    /// Bytes of payload.
    pub len: usize,
    ring: usize,
    extends: bool,
}

/// The server's half of a client's region. Used by one thread at a time.
#[derive(Debug)]
pub struct Inbox {
    region: Arc<Region>,
    /// The position up to which each ring was taken out: the server's own, whatever the region says.
    heads: [u64; RINGS],
    /// For each ring, the position up to which reads are counted as resident.
    counted: [u64; RINGS],
    /// Sequence numbers below it were issued. It does not go back, whatever the region says.
    issued: u64,
    /// The rings that have entries in the scan under way.
    scan: Vec<Waiting>,
    /// Taken out, and not yet settled.
    taken: Vec<(Posted, Option<u32>)>,
    payload: Payload,
}

/// A copy of the last write taken out: the client may change the ring at any time.
#[derive(Debug)]
struct Payload {
    len: usize,
    /// Buffer for one payload, in cache lines: copies to the start of a line are faster.
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

const LINE_BYTES: usize = 64;

/// Initial size of the payload buffer.
const PAYLOAD_BYTES_MIN: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ring: usize,
    tail: u64,
    next: EntryHead,
    /// Prefetch cursor: entries before this position were announced ([`Inbox::look_ahead`]).
    ahead: u64,
    /// Entries announced and not yet taken out, and their bytes.
    announced: usize,
    announced_bytes: usize,
}

impl Inbox {
    /// The inbox of a new region.
    pub fn new(region: Arc<Region>) -> Inbox {
        Inbox {
            region,
            heads: [0; RINGS],
            counted: [0; RINGS],
            issued: 0,
            scan: Vec::new(),
            taken: Vec::new(),
            payload: Payload::with_room(PAYLOAD_BYTES_MIN),
        }
    }

    /// Its region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Whether something was posted that was not taken out.
    pub fn has_posted(&self) -> bool {
        self.region.touch_words();
        bits(self.region.rings_used())
            .any(|ring| self.region.ring(ring).ends.tail() != self.heads[ring])
    }

    /// Begins a scan over what is posted now.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn begin(&mut self) -> Result<Cut, Damage> {
        self.region.touch_words();
        // Before the tails: see `write_sequence`.
        self.load_sequence();
        let cut = Cut(self.issued);
        self.scan.clear();
        for ring in bits(self.region.rings_used()) {
            let tail = self.region.ring(ring).ends.tail();
            if tail != self.heads[ring] {
                let waiting = distance(self.heads[ring], tail);
                if waiting > RING_BYTES as u64 || !waiting.is_multiple_of(ENTRY_ALIGN as u64) {
                    return Err(self.damage(ring));
                }
                if let Some(next) = self.peek(ring, tail)? {
                    let ahead = self.heads[ring];
                    self.scan.push(Waiting {
                        ring,
                        tail,
                        next,
                        ahead,
                        announced: 0,
                        announced_bytes: 0,
                    });
                }
            }
        }
        Ok(cut)
    }

    /// Announces the writes that come next, some of each ring, so that what they need can be prefetched: calls `announce`
    /// once for each, with its description, offset and length. Call it before each [`Inbox::next`]; most calls announce
    /// nothing. An announcement is only a hint: the client may change the entry before it is taken out.
    #[inline]
    pub fn look_ahead(&mut self, mut announce: impl FnMut(u32, u64, usize)) {
        for waiting in &mut self.scan {
            if waiting.announced > AHEAD / 2 || waiting.announced_bytes > AHEAD_BYTES / 2 {
                continue;
            }
            if waiting.announced == 0 {
                waiting.ahead = self.heads[waiting.ring];
            }
            while waiting.announced < AHEAD
                && waiting.announced_bytes < AHEAD_BYTES
                && waiting.ahead != waiting.tail
            {
                let at = (waiting.ahead % RING_BYTES as u64) as usize;
                let ring = self.region.ring_bytes(waiting.ring);
                // SAFETY: as in `peek`: a multiple of ENTRY_ALIGN below RING_BYTES.
                let entry = unsafe { ring.add(at).cast::<EntryHead>().read_volatile() };
                let left = distance(waiting.ahead, waiting.tail);
                let bytes = bytes_of(&entry, at).filter(|bytes| *bytes as u64 <= left);
                // `peek` reports the damage.
                let Some(bytes) = bytes else { break };
                if bytes <= PREFETCHED_BYTES_MAX {
                    for line in (0..bytes).step_by(64) {
                        let line = (at + PREFETCH_BYTES + line) % RING_BYTES;
                        prefetch::read(ring.wrapping_add(line));
                    }
                } else {
                    prefetch::read(ring.wrapping_add((at + bytes) % RING_BYTES));
                }
                waiting.ahead = advance(waiting.ahead, bytes);
                if entry.kind != Kind::Filler as u32 {
                    let len = entry.len as usize;
                    waiting.announced += 1;
                    waiting.announced_bytes += len;
                    announce(entry.description, entry.offset, len);
                }
            }
        }
    }

    /// Copies the next write of the scan, in the order of sequence numbers. Its bytes are [`Inbox::payload`].
    /// [`Inbox::take`] or [`Inbox::settle`] must follow before the next call.
    ///
    /// # Errors
    /// [`Damage`].
    #[inline(always)] // See the head of this file.
    pub fn next(&mut self, cut: Cut) -> Result<Option<Posted>, Damage> {
        let before_cut = |waiting: &&Waiting| waiting.next.sequence < cut.0 || cut == Cut::ALL;
        let first = self.scan.iter().filter(before_cut).min_by_key(|waiting| waiting.next.sequence);
        let Some(&Waiting { ring, next, .. }) = first else { return Ok(None) };
        let len = next.len as usize;
        let at = self.at(ring) + HEAD_BYTES;
        let to = self.payload.room_for(len);
        // SAFETY: `peek` checked that the payload lies in the ring; the buffer has room for it, and
        // `racing::copy` allows concurrent writes by the client.
        unsafe { racing::copy(self.region.ring_bytes(ring).add(at), to, len) };
        let offset = (next.kind == Kind::Write as u32).then_some(next.offset);
        let extends = next.flags & EXTENDS != 0;
        Ok(Some(Posted { description: next.description, offset, len, ring, extends }))
    }

    /// The payload of the write that [`Inbox::next`] returned last.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// [`Inbox::take`], then [`Inbox::flush`].
    ///
    /// # Errors
    /// [`Damage`] of the entry after it.
    pub fn settle(&mut self, posted: Posted, slot: Option<u32>) -> Result<(), Damage> {
        let took = self.take(posted, slot);
        self.flush();
        took
    }

    /// Takes a write out: it is applied, or never will be. [`Inbox::flush`] tells the client. `slot` is the file's place
    /// on the board; if it is `None`, the write's pages count as having a write pending for ever.
    ///
    /// # Errors
    /// [`Damage`] of the entry after it.
    #[inline(always)] // See the head of this file.
    pub fn take(&mut self, posted: Posted, slot: Option<u32>) -> Result<(), Damage> {
        let ring = posted.ring;
        self.heads[ring] = advance(self.heads[ring], entry_bytes(posted.len));
        self.taken.push((posted, slot));
        let Some(at) = self.scan.iter().position(|waiting| waiting.ring == ring) else {
            return Ok(());
        };
        let Waiting { tail, announced, announced_bytes, .. } = &mut self.scan[at];
        *announced = announced.saturating_sub(1);
        *announced_bytes =
            if *announced == 0 { 0 } else { announced_bytes.saturating_sub(posted.len) };
        let tail = *tail;
        match self.peek(ring, tail)? {
            Some(next) => self.scan[at].next = next,
            None => {
                self.scan.swap_remove(at);
            }
        }
        Ok(())
    }

    /// Tells the client of all writes taken out: readers see them, and the file's size on the board includes them. All at
    /// once, because each atomic operation here waits for the stores before it, the applied bytes, to reach the cache.
    pub fn flush(&mut self) {
        for &(Posted { offset, len, extends, .. }, slot) in &self.taken {
            self.region.settle(match offset {
                Some(offset) => Noted::Write { slot, offset, len, extends },
                None => Noted::Append(len),
            });
        }
        let rings = self.taken.drain(..).fold(0, |rings, (posted, _)| rings | 1u64 << posted.ring);
        for ring in bits(rings) {
            self.region.touch_ring(ring, self.counted[ring], self.heads[ring]);
            self.counted[ring] = self.heads[ring];
            self.region.ring(ring).ends.release(self.heads[ring]);
        }
    }

    /// A post that began before this call fails to publish after it, even if it had found that it may post. What was
    /// published before is in the next scan.
    pub fn revoke(&self) {
        self.region.revoke();
    }

    /// Says that the daemon looks for posted writes at its interval, so that no client need wake it.
    pub fn start_polling(&self) {
        self.region.head().doorbell.start_polling();
    }

    /// Says that the daemon must be woken from now on. False if something was posted meanwhile: scan again.
    /// Scan at long intervals even if it is true: a program may be killed before it wakes the daemon.
    pub fn stop_polling(&self) -> bool {
        self.region.head().doorbell.stop_polling();
        !self.has_posted()
    }

    fn load_sequence(&mut self) {
        self.issued = self.issued.max(self.region.head().writes.next());
    }

    fn at(&self, ring: usize) -> usize {
        (self.heads[ring] % RING_BYTES as u64) as usize
    }

    fn damage(&self, ring: usize) -> Damage {
        Damage { ring, at: self.at(ring) }
    }

    /// The head of the entry at the ring's head, past a filler.
    #[inline(always)] // See the head of this file.
    fn peek(&mut self, ring: usize, tail: u64) -> Result<Option<EntryHead>, Damage> {
        loop {
            let left = distance(self.heads[ring], tail);
            if left == 0 {
                return Ok(None);
            }
            let at = self.at(ring);
            // SAFETY: heads are multiples of ENTRY_ALIGN below RING_BYTES, and a head is no longer than that.
            let head =
                unsafe { self.region.ring_bytes(ring).add(at).cast::<EntryHead>().read_volatile() };
            let Some(bytes) = bytes_of(&head, at).filter(|bytes| *bytes as u64 <= left) else {
                return Err(self.damage(ring));
            };
            if head.kind == Kind::Filler as u32 {
                self.heads[ring] = advance(self.heads[ring], bytes);
                continue;
            }
            if head.sequence >= self.issued {
                self.load_sequence();
                // It was never issued, and might never be below a cut.
                if head.sequence >= self.issued {
                    return Err(self.damage(ring));
                }
            }
            return Ok(Some(head));
        }
    }
}

impl Payload {
    fn with_room(bytes: usize) -> Payload {
        Payload { len: 0, lines: vec![Line([0; LINE_BYTES]); bytes.div_ceil(LINE_BYTES)] }
    }

    /// Where to put the next payload of `len` bytes, at most [`PAYLOAD_BYTES_MAX`].
    #[inline]
    fn room_for(&mut self, len: usize) -> *mut u8 {
        if len > self.lines.len() * LINE_BYTES {
            *self = Payload::with_room(PAYLOAD_BYTES_MAX);
            assert!(len <= PAYLOAD_BYTES_MAX);
        }
        self.len = len;
        self.lines.as_mut_ptr().cast()
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: `Line` has no padding, and `room_for` made the vector at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

/// Bytes that an entry at `at` takes in its ring; `None` if the head is not valid.
#[inline]
fn bytes_of(head: &EntryHead, at: usize) -> Option<usize> {
    let to_end = RING_BYTES - at;
    if head.kind == Kind::Filler as u32 {
        return Some(to_end);
    }
    let is_kind = head.kind == Kind::Write as u32 || head.kind == Kind::Append as u32;
    let len = head.len as usize;
    let fits = len != 0 && len <= PAYLOAD_BYTES_MAX && entry_bytes(len) <= to_end;
    let end = head.offset.checked_add(u64::from(head.len));
    let is_in_file = end.is_some_and(|end| end <= i64::MAX as u64);
    (is_kind && fits && is_in_file && head.flags & !EXTENDS == 0).then(|| entry_bytes(len))
}

/// How far past an announced entry the ring's memory is prefetched: the client's CPU may have it in its cache.
const PREFETCH_BYTES: usize = 1024;
/// Longer entries are not prefetched as a whole: the processor's own prefetcher follows them, and instructions would
/// disturb it.
const PREFETCHED_BYTES_MAX: usize = 1024;
/// Most writes of a ring announced ahead, and most bytes of them.
const AHEAD: usize = 32;
const AHEAD_BYTES: usize = 16 << 10;

/// The bits set in a word, lowest first.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < u64::BITS as usize).then_some(bit)
    })
}

/// The upper bound, exclusive, of a scan's sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut(u64);

impl Cut {
    /// Everything, whatever its sequence number: for the last scan over a client that is gone.
    pub const ALL: Cut = Cut(u64::MAX);
}

/// The daemon's life, held by a thread: when the thread ends, for whatever reason, the kernel marks that on the board
/// (get_robust_list(2)), and every client sees the mark at its next call.
#[derive(Debug)]
pub struct Life {
    board: Arc<Board>,
    /// The mutex is the thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Life {
    /// Holds the board's life by this thread.
    ///
    /// # Errors
    /// That of pthread_mutex_init(3) or pthread_mutex_lock(3); `AlreadyExists` if a thread holds it, `Unsupported`
    /// if the C library's mutexes are not laid out as clients expect.
    pub fn hold(board: Arc<Board>) -> io::Result<Life> {
        const { assert!(size_of::<libc::pthread_mutex_t>() <= 64) };
        const { assert!(align_of::<libc::pthread_mutex_t>() <= 64) };
        // Initializing the mutex again would corrupt the holder's list of robust mutexes.
        if board.is_alive() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mutex = board.life().cast::<libc::pthread_mutex_t>();
        let checked = |code: i32| match code {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        };
        // SAFETY: the memory is the board's, large and aligned enough, and lives as long as `board`; no other thread
        // locks it.
        unsafe {
            let mut attributes = std::mem::zeroed::<libc::pthread_mutexattr_t>();
            checked(libc::pthread_mutexattr_init(&raw mut attributes))?;
            let set = checked(libc::pthread_mutexattr_setpshared(
                &raw mut attributes,
                libc::PTHREAD_PROCESS_SHARED,
            ))
            .and_then(|()| {
                checked(libc::pthread_mutexattr_setrobust(
                    &raw mut attributes,
                    libc::PTHREAD_MUTEX_ROBUST,
                ))
            })
            .and_then(|()| checked(libc::pthread_mutex_init(mutex, &raw const attributes)));
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            set?;
            checked(libc::pthread_mutex_lock(mutex))?;
        }
        let life = Life { board, _thread: std::marker::PhantomData };
        if life.board.is_alive() { Ok(life) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // SAFETY: this thread locked it in `hold`; the board lives.
        unsafe { libc::pthread_mutex_unlock(self.board.life().cast()) };
    }
}
