//! Tests of both halves together, in one process. Those of `tests/processes.rs` are in several.
//!
//! They run under Miri as well, then on heap memory and with smaller rings; tests that rely on races which the
//! sequence lock makes harmless do not.

#![allow(unsafe_code)] // Shared memory cannot be used without it.
#![allow(clippy::unwrap_used)] // What is missing fails the test.

mod garbage;
mod protocol;
mod random_posts;
mod threads;

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::PAGE_BYTES;
use crate::board::{Board, Mode, View};
use crate::client::{Attached, Client, Miss, Ring, To};
use crate::memory::{self, Access, Memory};
use crate::owner::Owner;
use crate::region::Region;
use crate::server::{Cut, Damage, Inbox};

const CLIENT: u32 = 7;
const SLOT: u32 = 3;
const FILE: Attached = Attached { slot: SLOT, description: 11 };
const FAR: u64 = 1 << 40;

/// A daemon's and a client's memories.
struct Lane {
    board: Board,
    content: Memory,
    inbox: Inbox,
    client: Client,
}

/// A write as the server took it out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taken {
    description: u32,
    offset: Option<u64>,
    bytes: Vec<u8>,
}

impl Lane {
    fn new(frames: u32) -> Lane {
        let (board, view, content, server, client) = if cfg!(miri) {
            let (board, view, content) = Board::heap(frames);
            let (server, client) = Region::heap(frames);
            (board, view, content, server, client)
        } else {
            let board = Board::new(frames).unwrap();
            let len = frames as usize * PAGE_BYTES;
            let fd = memory::create("frames", len).unwrap();
            let content = Memory::map(&fd, len, Access::ReadWrite).unwrap();
            let read_only = |fd| memory::read_only(fd).unwrap();
            let view = View::map(read_only(board.fd()), read_only(fd.as_fd())).unwrap();
            let (server, fd) = Region::create(frames).unwrap();
            (board, view, content, server, Region::map(fd.as_fd(), frames).unwrap())
        };
        let region = Arc::new(server);
        board.make_live_by_hand();
        let client = Client { id: CLIENT, view, region: client };
        Lane { board, content, inbox: Inbox::new(region), client }
    }

    /// A lane whose client holds the lease of the file, of size `size`, with room up to [`FAR`].
    fn with_file(frames: u32, size: u64) -> Lane {
        let lane = Lane::new(frames);
        lane.board.set_size(SLOT, size);
        lane.board.set_grant(SLOT, FAR);
        lane.board.set_mode(SLOT, Mode::Exclusive, CLIENT);
        lane
    }

    fn ring(&self, tid: u32) -> Ring {
        self.client.take_ring(Owner::new(1, tid), |_| true).unwrap()
    }

    fn take_all(&mut self) -> Vec<Taken> {
        take_all(&mut self.inbox).unwrap()
    }

    /// Fills a frame as the daemon does.
    fn fill(&self, frame: u32, bytes: impl Fn(usize) -> u8) {
        let change = self.board.change(frame);
        for at in 0..PAGE_BYTES {
            // SAFETY: inside the frames' memory.
            unsafe {
                self.content.base().add(frame as usize * PAGE_BYTES + at).write_volatile(bytes(at));
            };
        }
        drop(change);
    }
}

fn post(client: &Client, ring: &Ring, file: Attached, to: To, bytes: &[u8]) -> Result<bool, Miss> {
    // SAFETY: a slice's bytes; each test's ring is used by one thread.
    unsafe { client.post(ring, file, to, bytes.as_ptr(), bytes.len()) }
}

fn read(client: &Client, slot: u32, offset: u64, len: usize) -> Result<Vec<u8>, Miss> {
    let mut bytes = vec![0; len];
    // SAFETY: the vector has `len` bytes.
    unsafe { client.read(slot, offset, bytes.as_mut_ptr(), len) }.map(|()| bytes)
}

fn take_all(inbox: &mut Inbox) -> Result<Vec<Taken>, Damage> {
    let cut = inbox.begin()?;
    take_to(inbox, cut)
}

fn take_to(inbox: &mut Inbox, cut: Cut) -> Result<Vec<Taken>, Damage> {
    let (mut taken, mut announced) = (Vec::new(), Vec::new());
    loop {
        inbox.look_ahead(|description, offset, len| announced.push((description, offset, len)));
        let Some(posted) = inbox.next(cut)? else { break };
        assert_eq!(posted.len, inbox.payload().len());
        let (description, offset) = (posted.description, posted.offset);
        // Each write was announced before, once.
        let write = (description, offset.unwrap_or(0), posted.len);
        let at = announced.iter().position(|known| *known == write).expect("it was announced");
        announced.remove(at);
        taken.push(Taken { description, offset, bytes: inbox.payload().to_vec() });
        inbox.settle(posted, Some(SLOT))?;
    }
    Ok(taken)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
