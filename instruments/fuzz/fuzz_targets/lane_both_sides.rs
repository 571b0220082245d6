//! Both sides of the lane, in turn, compared with a model of one file: a client's posts are taken out unchanged and in
//! order, and a read returns the file's content or the reason why it must go by the kernel.

#![no_main]

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_lane::PAGE_BYTES;
use weir_lane::board::{Board, Mode, View};
use weir_lane::client::{Attached, Client, Miss, Ring, To};
use weir_lane::memory::{self, Access, Memory};
use weir_lane::owner::Owner;
use weir_lane::region::Region;
use weir_lane::ring::{ENTRY_ALIGN, HEAD_BYTES, PAYLOAD_BYTES_MAX, RING_BYTES, entry_bytes};
use weir_lane::server::{Cut, Inbox, Life, Posted};

const CLIENT: u32 = 7;
const SLOT: u32 = 3;
const FILE: Attached = Attached { slot: SLOT, description: 11 };
const FRAMES: u32 = 4;
const PAGES: usize = 40;
/// The pages that are read: the first ones.
const READ_PAGES: usize = 4;
/// Bytes of the file in the model.
const FILE_BYTES: usize = PAGES * PAGE_BYTES;
const THREADS: usize = 3;
const STEPS_MAX: usize = 200;

#[derive(Arbitrary, Debug)]
enum Step {
    Post {
        thread: u8,
        to: Where,
        len: Len,
    },
    /// A thread posts until `left` units of its ring are left.
    Fill {
        thread: u8,
        left: u8,
    },
    /// The server revokes the right while a thread posts.
    Interrupted {
        thread: u8,
        to: Where,
        len: u8,
    },
    Read {
        offset: u16,
        len: u16,
    },
    Size,
    HasRoom {
        thread: u8,
        len: Len,
    },
    Begin {
        all: bool,
    },
    Take {
        at_most: u8,
        together: bool,
    },
    /// A frame gets a page, in place of the page that it held.
    Publish {
        frame: u8,
        page: u8,
    },
    Retract {
        frame: u8,
    },
    WasRead {
        frame: u8,
    },
    SetMode {
        mode: u8,
        other: bool,
    },
    Grant {
        to: u16,
    },
    /// A thread's ring is released, and a ring is taken again.
    MoveRing {
        thread: u8,
    },
    StartPolling,
    StopPolling,
    Close,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Where {
    Offset(u16),
    /// This far from the largest offset; wraps if positive.
    Far(i8),
    End,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Len {
    Short(u8),
    Long(u16),
    /// The longest payload plus this, which may be negative.
    Most(i8),
}

impl Where {
    fn to(self) -> To {
        match self {
            Where::Offset(offset) => To::Offset(u64::from(offset) % FILE_BYTES as u64),
            Where::Far(more) => To::Offset(u64::MAX.wrapping_add_signed(more.into())),
            Where::End => To::End,
        }
    }
}

impl Len {
    fn bytes(self) -> usize {
        match self {
            Len::Short(len) => len.into(),
            Len::Long(len) => len.into(),
            Len::Most(more) => PAYLOAD_BYTES_MAX.wrapping_add_signed(more.into()),
        }
    }
}

/// A write that was posted.
#[derive(Clone, Debug)]
struct Pending {
    thread: usize,
    offset: Option<u64>,
    bytes: Vec<u8>,
    extends: bool,
    /// Bytes that it takes of its ring, with a filler before it.
    takes: usize,
}

impl Pending {
    fn touches(&self, page: usize) -> bool {
        let Some(offset) = self.offset else { return false };
        let end = offset + self.bytes.len() as u64;
        offset < ((page + 1) * PAGE_BYTES) as u64 && ((page * PAGE_BYTES) as u64) < end
    }
}

/// The states of the doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doorbell {
    Asleep,
    Polling,
    Rung,
}

struct Model {
    content: Vec<u8>,
    size: u64,
    grant: u64,
    mode: Mode,
    is_ours: bool,
    closed: bool,
    doorbell: Doorbell,
    /// The page each frame holds.
    frames: [Option<usize>; FRAMES as usize],
    was_read: [bool; FRAMES as usize],
    /// Posted and not taken, in order.
    queue: VecDeque<Pending>,
    /// How many of them are in the scan under way.
    in_scan: usize,
    /// Taken, and not yet flushed.
    unflushed: Vec<Pending>,
    tails: [usize; THREADS],
}

impl Model {
    fn used(&self, thread: usize) -> usize {
        let all = self.queue.iter().chain(&self.unflushed);
        all.filter(|write| write.thread == thread).map(|write| write.takes).sum()
    }

    /// Bytes that an entry would take of its thread's ring.
    fn takes(&self, thread: usize, len: usize) -> usize {
        let to_end = RING_BYTES - self.tails[thread] % RING_BYTES;
        let bytes = entry_bytes(len);
        if bytes > to_end { to_end + bytes } else { bytes }
    }

    fn has_room(&self, thread: usize, len: usize) -> bool {
        self.used(thread) + self.takes(thread, len) <= RING_BYTES
    }

    fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.queue.iter().chain(&self.unflushed)
    }

    fn is_writable(&self) -> bool {
        self.mode == Mode::Exclusive && self.is_ours
    }

    fn is_readable(&self) -> bool {
        self.is_writable() || self.mode == Mode::Shared
    }

    fn extending(&self) -> bool {
        self.pending().any(|write| write.extends)
    }

    fn appending(&self) -> u64 {
        let appends = self.pending().filter(|write| write.offset.is_none());
        appends.map(|write| write.bytes.len() as u64).sum()
    }

    fn post(&mut self, thread: usize, to: To, bytes: &[u8]) -> Result<bool, Miss> {
        let len = bytes.len();
        if len == 0 || len > PAYLOAD_BYTES_MAX {
            return Err(Miss::Size);
        }
        if !self.has_room(thread, len) {
            return Err(Miss::Full);
        }
        if self.closed {
            return Err(Miss::Gone);
        }
        if !self.is_writable() {
            return Err(Miss::Mode);
        }
        let (offset, end) = match to {
            To::Offset(offset) => (Some(offset), offset.checked_add(len as u64).ok_or(Miss::Size)?),
            To::End if self.extending() => return Err(Miss::Pending),
            To::End => (None, self.size + self.appending() + len as u64),
        };
        if end > self.grant {
            return Err(Miss::Size);
        }
        let (takes, extends) = (self.takes(thread, len), offset.is_some() && end > self.size);
        let is_filling = self.used(thread) + takes > RING_BYTES / 2;
        self.tails[thread] += takes;
        self.queue.push_back(Pending { thread, offset, bytes: bytes.to_vec(), extends, takes });
        let wakes =
            self.doorbell == Doorbell::Asleep || self.doorbell == Doorbell::Polling && is_filling;
        if wakes {
            self.doorbell = Doorbell::Rung;
        }
        Ok(wakes)
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<&[u8], Miss> {
        if self.closed {
            return Err(Miss::Gone);
        }
        if !self.is_readable() {
            return Err(Miss::Mode);
        }
        let (from, to) = (offset as usize, offset as usize + len);
        if to as u64 > self.size {
            return Err(Miss::Absent);
        }
        for page in from / PAGE_BYTES..to.div_ceil(PAGE_BYTES) {
            if len == 0 {
                break;
            }
            if self.pending().any(|write| write.touches(page)) {
                return Err(Miss::Pending);
            }
            let frame = self.frames.iter().position(|held| *held == Some(page));
            self.was_read[frame.ok_or(Miss::Absent)?] = true;
        }
        Ok(&self.content[from..to])
    }
}

struct Lane {
    board: Arc<Board>,
    content: Memory,
    inbox: Inbox,
    client: Client,
    rings: Vec<Ring>,
    cut: Option<Cut>,
    model: Model,
    posts: u8,
    _life: Life,
}

impl Lane {
    fn new() -> Lane {
        let board = Arc::new(Board::new(FRAMES).expect("there is memory"));
        let len = FRAMES as usize * PAGE_BYTES;
        let frames = memory::create("frames", len).expect("there is memory");
        let content = Memory::map(&frames, len, Access::ReadWrite).expect("there is memory");
        let view = View::map(board.fd(), &frames).expect("there is memory");
        let (server, fd) = Region::create(FRAMES).expect("there is memory");
        let server = Arc::new(server);
        board.add_client(Arc::clone(&server));
        let region = Region::map(fd.as_fd(), FRAMES).expect("there is memory");
        let client = Client { id: CLIENT, view, region };
        let rings = (1..=THREADS as u32).map(|tid| client.take_ring(Owner::new(1, tid), |_| true));
        let rings = rings.map(|ring| ring.expect("a ring is free")).collect();
        let model = Model {
            content: vec![0; FILE_BYTES],
            size: 3 * PAGE_BYTES as u64,
            grant: FILE_BYTES as u64,
            mode: Mode::Exclusive,
            is_ours: true,
            closed: false,
            doorbell: Doorbell::Asleep,
            frames: [None; FRAMES as usize],
            was_read: [false; FRAMES as usize],
            queue: VecDeque::new(),
            in_scan: 0,
            unflushed: Vec::new(),
            tails: [0; THREADS],
        };
        board.set_size(SLOT, model.size);
        board.set_grant(SLOT, model.grant);
        board.set_mode(SLOT, Mode::Exclusive, CLIENT);
        let _life = Life::hold(Arc::clone(&board)).expect("no thread holds it");
        let inbox = Inbox::new(server);
        Lane { board, content, inbox, client, rings, cut: None, model, posts: 0, _life }
    }

    fn step(&mut self, step: &Step) {
        let frame_of = |frame: u8| u32::from(frame) % FRAMES;
        let thread_of = |thread: u8| usize::from(thread) % THREADS;
        match *step {
            Step::Post { thread, to, len } => self.post(thread_of(thread), to.to(), len.bytes()),
            Step::Fill { thread, left } => self.fill_ring(thread_of(thread), usize::from(left)),
            Step::Interrupted { thread, to, len } => {
                self.interrupted(thread_of(thread), to.to(), 1 + usize::from(len));
            }
            Step::Read { offset, len } => {
                let bytes = READ_PAGES * PAGE_BYTES;
                let most = if len.is_multiple_of(4) { bytes } else { 64 };
                self.read((usize::from(offset) % bytes) as u64, usize::from(len) % most);
            }
            Step::Size => {
                let model = &self.model;
                let is_known = model.is_writable()
                    && !model.closed
                    && !model.extending()
                    && model.appending() == 0;
                assert_eq!(self.client.size(SLOT), is_known.then_some(model.size));
            }
            Step::HasRoom { thread, len } => {
                let (thread, len) = (thread_of(thread), len.bytes());
                let has_room = len > PAYLOAD_BYTES_MAX || self.model.has_room(thread, len);
                assert_eq!(self.client.has_room(&self.rings[thread], len), has_room);
            }
            Step::Begin { all } => self.begin(all),
            Step::Take { at_most, together } => self.take(at_most.into(), together),
            Step::Publish { frame, page } => {
                self.publish(frame_of(frame), usize::from(page) % READ_PAGES);
            }
            Step::Retract { frame } => {
                self.board.retract(frame_of(frame));
                self.model.frames[frame_of(frame) as usize] = None;
            }
            Step::WasRead { frame } => {
                let was_read = &mut self.model.was_read[frame_of(frame) as usize];
                let referenced = self.board.take_referenced(frame_of(frame));
                assert_eq!(referenced, std::mem::take(was_read));
            }
            Step::SetMode { mode, other } => {
                let modes =
                    [Mode::Exclusive, Mode::Shared, Mode::Kernel, Mode::Changing, Mode::Rejoining];
                self.set_mode(modes[usize::from(mode) % modes.len()], !other);
            }
            Step::Grant { to } => {
                self.model.grant = u64::from(to) * 4 % (FILE_BYTES as u64 + 1);
                self.board.set_grant(SLOT, self.model.grant);
            }
            Step::MoveRing { thread } => self.move_ring(thread_of(thread)),
            Step::StartPolling => {
                self.inbox.start_polling();
                self.model.doorbell = Doorbell::Polling;
            }
            Step::StopPolling => {
                assert_eq!(self.inbox.stop_polling(), self.model.queue.is_empty());
                self.model.doorbell = Doorbell::Asleep;
            }
            Step::Close => {
                self.client.region.close();
                self.model.closed = true;
            }
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.posts = self.posts.wrapping_add(1);
        (0..len).map(|at| (at as u8).wrapping_mul(7) ^ self.posts).collect()
    }

    fn post(&mut self, thread: usize, to: To, len: usize) {
        let bytes = self.bytes(len);
        let ring = &self.rings[thread];
        // SAFETY: a vector's bytes, and one thread.
        let posted = unsafe { self.client.post(ring, FILE, to, bytes.as_ptr(), bytes.len()) };
        assert_eq!(posted, self.model.post(thread, to, &bytes));
    }

    fn fill_ring(&mut self, thread: usize, left: usize) {
        for _ in 0..RING_BYTES / PAYLOAD_BYTES_MAX + 1 {
            let free = RING_BYTES - self.model.used(thread);
            let bytes = free.saturating_sub(left * ENTRY_ALIGN).min(entry_bytes(PAYLOAD_BYTES_MAX));
            if bytes <= HEAD_BYTES {
                return;
            }
            self.post(thread, To::Offset(0), bytes - HEAD_BYTES);
        }
    }

    fn interrupted(&mut self, thread: usize, to: To, len: usize) {
        let bytes = self.bytes(len);
        // Whether the post got as far as filling in the entry.
        let was_filled = Cell::new(false);
        let fill = |out: *mut u8| {
            self.board.set_mode(SLOT, Mode::Shared, 0);
            self.inbox.revoke();
            was_filled.set(true);
            // SAFETY: `bytes` has `len` bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
        };
        // SAFETY: `fill` writes `len` bytes.
        let posted = unsafe { self.client.post_with(&self.rings[thread], FILE, to, len, fill) };
        if was_filled.get() {
            self.model.mode = Mode::Shared;
        }
        // The write is not posted twice, nor after the right was revoked.
        assert_eq!(posted, self.model.post(thread, to, &bytes));
        assert!(posted.is_err());
    }

    fn read(&mut self, offset: u64, len: usize) {
        let mut bytes = vec![0xee; len];
        // SAFETY: the vector has `len` bytes.
        let read = unsafe { self.client.read(SLOT, offset, bytes.as_mut_ptr(), len) };
        assert_eq!(read.map(|()| &bytes[..]), self.model.read(offset, len));
    }

    /// Reads some bytes of each page.
    fn read_some(&mut self) {
        for page in 0..READ_PAGES {
            self.read((page * PAGE_BYTES) as u64, 8);
        }
    }

    fn begin(&mut self, all: bool) {
        self.inbox.flush();
        self.model.unflushed.clear();
        let cut = self.inbox.begin().expect("nothing is damaged");
        self.cut = Some(if all { Cut::ALL } else { cut });
        self.model.in_scan = self.model.queue.len();
    }

    /// Applies some of the scan's writes; flushes after each, or once after all.
    fn take(&mut self, at_most: usize, together: bool) {
        let Some(cut) = self.cut else { return };
        for _ in 0..at_most {
            self.inbox.look_ahead(|description, _, _| assert_eq!(description, FILE.description));
            let posted = self.inbox.next(cut).expect("nothing is damaged");
            let Some(posted) = posted else {
                assert_eq!(self.model.in_scan, 0);
                break;
            };
            assert!(self.model.in_scan > 0);
            let write = self.model.queue.pop_front().expect("it was posted");
            self.model.in_scan -= 1;
            assert_eq!((posted.description, posted.offset), (FILE.description, write.offset));
            assert!(self.inbox.payload() == write.bytes);
            self.apply(posted, &write);
            self.inbox.take(posted, Some(SLOT)).expect("nothing is damaged");
            self.model.unflushed.push(write);
            if !together {
                self.flush();
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        self.inbox.flush();
        self.model.unflushed.clear();
    }

    fn apply(&mut self, posted: Posted, write: &Pending) {
        let offset = posted.offset.unwrap_or(self.model.size);
        let end = offset + posted.len as u64;
        assert!(end <= FILE_BYTES as u64, "no more than was granted");
        self.model.content[offset as usize..end as usize].copy_from_slice(&write.bytes);
        self.model.size = self.model.size.max(end);
        for frame in 0..FRAMES {
            let Some(page) = self.model.frames[frame as usize] else { continue };
            let _change = self.board.change(frame).expect("it may be read");
            self.fill(frame, page);
        }
        self.board.set_size(SLOT, self.model.size);
    }

    fn fill(&self, frame: u32, page: usize) {
        let bytes = &self.model.content[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
        // SAFETY: a frame's bytes; no thread reads them meanwhile.
        unsafe {
            let to = self.content.base().add(frame as usize * PAGE_BYTES);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, PAGE_BYTES);
        }
    }

    fn publish(&mut self, frame: u32, page: usize) {
        if self.model.frames.contains(&Some(page)) {
            return;
        }
        self.board.retract(frame);
        self.fill(frame, page);
        self.board.publish(frame, SLOT, page as u64);
        self.model.frames[frame as usize] = Some(page);
        assert_eq!(self.board.page(frame), Some((SLOT, page as u64)));
    }

    fn set_mode(&mut self, mode: Mode, is_ours: bool) {
        self.board.set_mode(SLOT, mode, if is_ours { CLIENT } else { CLIENT + 1 });
        self.inbox.revoke();
        (self.model.mode, self.model.is_ours) = (mode, is_ours);
    }

    /// Releases a thread's ring and takes a ring again. The released ring, with what is posted in it, is the first that is
    /// free.
    fn move_ring(&mut self, thread: usize) {
        let given_back = &self.rings[thread];
        self.client.release_ring(given_back);
        let tid = thread as u32 + 1;
        self.rings[thread] =
            self.client.take_ring(Owner::new(1, tid), |_| true).expect("one is free");
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut lane = Lane::new();
    for step in steps.iter().take(STEPS_MAX) {
        lane.step(step);
        lane.read_some();
    }
    lane.begin(true);
    lane.take(usize::MAX, true);
    assert!(lane.model.queue.is_empty() && !lane.inbox.has_posted());
});
