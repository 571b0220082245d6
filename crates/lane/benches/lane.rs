//! The lane's costs: nanoseconds for a post, a read, and for taking a write out. One thread, without contention.
//!
//! Each figure is the median over many batches. `cargo bench -p weir-lane`.

#![allow(unsafe_code)] // Shared memory cannot be used without it.
#![allow(clippy::unwrap_used)] // What is missing ends it.

use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use weir_lane::PAGE_BYTES;
use weir_lane::board::{Board, Mode, View};
use weir_lane::client::{Attached, Client, To};
use weir_lane::memory::{self, Access, Memory};
use weir_lane::owner::Owner;
use weir_lane::region::Region;
use weir_lane::server::{Inbox, Life};

const FRAMES: u32 = 1024;
const CLIENT: u32 = 1;
const FILE: Attached = Attached { slot: 1, description: 1 };
const BATCH: usize = 2048;
const BATCHES: usize = 500;

struct Lane {
    board: Arc<Board>,
    inbox: Inbox,
    client: Client,
    _life: Life,
}

impl Lane {
    fn new() -> Lane {
        let board = Arc::new(Board::new(FRAMES).unwrap());
        let len = FRAMES as usize * PAGE_BYTES;
        let frames = memory::create("frames", len).unwrap();
        let content = Memory::map(&frames, len, Access::ReadWrite).unwrap();
        // SAFETY: the mapping's own bytes.
        unsafe { content.base().write_bytes(1, len) };
        for frame in 0..FRAMES {
            board.publish(frame, FILE.slot, frame.into());
        }
        board.set_size(FILE.slot, len as u64);
        board.set_grant(FILE.slot, u64::MAX);
        board.set_mode(FILE.slot, Mode::Exclusive, CLIENT);
        let view = View::map(board.fd(), &frames).unwrap();
        let (server, fd) = Region::create(FRAMES).unwrap();
        let client = Client { id: CLIENT, view, region: Region::map(fd.as_fd(), FRAMES).unwrap() };
        let inbox = Inbox::new(Arc::new(server));
        inbox.start_polling();
        let _life = Life::hold(Arc::clone(&board)).unwrap();
        Lane { board, inbox, client, _life }
    }
}

/// Offsets in the file, for writes or reads of `len` bytes inside a page.
fn places(len: usize) -> Vec<u64> {
    let mut state = 1_u64;
    let mut place = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let (page, at) = (state >> 33 & (u64::from(FRAMES) - 1), state >> 44);
        page * PAGE_BYTES as u64 + at % (PAGE_BYTES - len + 1) as u64
    };
    (0..BATCH).map(&mut place).collect()
}

fn say(what: &str, mut nanos: Vec<f64>) {
    nanos.sort_by(f64::total_cmp);
    println!("  {what:<44}{:>7.1} ns (least {:.1})", nanos[nanos.len() / 2], nanos[0]);
}

fn post_and_take(what: &str, len: usize, rings: usize, to_end: bool) {
    let mut lane = Lane::new();
    let rings: Vec<_> = (1..=rings as u32)
        .map(|tid| lane.client.take_ring(Owner::new(1, tid), |_| true).unwrap())
        .collect();
    let (places, bytes) = (places(len), vec![7_u8; len]);
    // So that no ring is more than half full.
    let batch = BATCH.min((400 << 10) / (len + 63));
    let (mut posting, mut taking) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for (place, ring) in places[..batch].iter().zip(rings.iter().cycle()) {
            let to = if to_end { To::End } else { To::Offset(*place) };
            // SAFETY: a slice's bytes.
            let posted = unsafe { lane.client.post(ring, FILE, to, bytes.as_ptr(), len) };
            assert!(!posted.unwrap());
        }
        posting.push(begun.elapsed().as_nanos() as f64 / batch as f64);
        let begun = Instant::now();
        let cut = lane.inbox.begin().unwrap();
        let mut taken = 0;
        while let Some(posted) = lane.inbox.next(cut).unwrap() {
            black_box(lane.inbox.payload());
            lane.inbox.settle(posted, Some(FILE.slot)).unwrap();
            taken += 1;
        }
        taking.push(begun.elapsed().as_nanos() as f64 / batch as f64);
        assert_eq!(taken, batch);
    }
    say(&format!("post {what}"), posting);
    say(&format!("take {what}"), taking);
}

fn read(len: usize) {
    let lane = Lane::new();
    let (places, mut bytes) = (places(len), vec![0_u8; len]);
    let mut nanos = Vec::new();
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for place in &places {
            // SAFETY: the buffer has `len` bytes.
            let done = unsafe { lane.client.read(FILE.slot, *place, bytes.as_mut_ptr(), len) };
            assert_eq!(done, Ok(()));
        }
        black_box(&bytes);
        nanos.push(begun.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    say(&format!("read {len} B"), nanos);
}

fn empty_scan() {
    let mut lane = Lane::new();
    for tid in 1..=4 {
        lane.client.take_ring(Owner::new(1, tid), |_| true).unwrap();
    }
    let mut nanos = Vec::new();
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..BATCH {
            let cut = lane.inbox.begin().unwrap();
            assert!(lane.inbox.next(black_box(cut)).unwrap().is_none());
        }
        nanos.push(begun.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    say("a scan that finds nothing in four rings", nanos);
}

fn change() {
    let lane = Lane::new();
    let mut nanos = Vec::new();
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for frame in 0..FRAMES {
            drop(black_box(lane.board.change(frame)));
        }
        nanos.push(begun.elapsed().as_nanos() as f64 / f64::from(FRAMES));
    }
    say("change of a frame", nanos);
}

fn main() {
    println!("Lane alone (one thread)");
    post_and_take("64 B", 64, 1, false);
    post_and_take("64 B, in turns to four rings", 64, 4, false);
    post_and_take("64 B at the end", 64, 1, true);
    post_and_take("4 KiB", PAGE_BYTES, 1, false);
    read(64);
    read(PAGE_BYTES);
    empty_scan();
    change();
}
