//! Both halves in concurrent threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const POSTS: u64 = if cfg!(miri) { 25 } else { 50_000 };
const THREADS: u32 = 3;

/// Posts, and tries again while the ring is full or the right is revoked.
fn post_with_retry(client: &Client, ring: &Ring, to: To, bytes: &[u8], wake: impl Fn()) {
    let begun = Instant::now();
    loop {
        assert!(cfg!(miri) || begun.elapsed() < Duration::from_secs(60), "nothing is taken out");
        match post(client, ring, FILE, to, bytes) {
            Ok(false) => return,
            Ok(true) => return wake(),
            Err(Miss::Full | Miss::Mode) => {
                wake();
                thread::yield_now();
            }
            Err(miss) => panic!("{miss:?}"),
        }
    }
}

/// A write that returned before another began, in any thread, is taken before it; and the doorbell alone wakes the
/// server.
#[test]
fn writes_that_follow_each_other_are_taken_in_that_order() {
    let Lane { mut inbox, client, board, .. } = Lane::with_file(4, 0);
    let server = thread::current();
    let (count, is_rung) = (Mutex::new(0_u64), AtomicBool::new(false));
    thread::scope(|scope| {
        let (server, count, is_rung, client) = (&server, &count, &is_rung, &client);
        for tid in 1..=THREADS {
            scope.spawn(move || {
                let ring = client.take_ring(Owner::new(1, tid), |_| true).unwrap();
                let mut bytes = [tid as u8; 100];
                loop {
                    let mut count = count.lock().unwrap();
                    if *count == POSTS {
                        return;
                    }
                    bytes[..8].copy_from_slice(&count.to_ne_bytes());
                    let len = 8 + *count as usize % 90;
                    post_with_retry(client, &ring, To::Offset(*count), &bytes[..len], || {
                        is_rung.store(true, Ordering::SeqCst);
                        server.unpark();
                    });
                    *count += 1;
                }
            });
        }
        let mut expected = 0_u64;
        while expected < POSTS {
            for taken in take_all(&mut inbox).unwrap() {
                assert_eq!(taken.offset, Some(expected));
                assert_eq!(taken.bytes[..8], expected.to_ne_bytes());
                expected += 1;
            }
            if expected < POSTS && inbox.stop_polling() {
                let mut waits = 0;
                while !is_rung.swap(false, Ordering::SeqCst) {
                    thread::park_timeout(Duration::from_millis(100));
                    waits += 1;
                    assert!(cfg!(miri) || waits < 100 || !inbox.has_posted(), "no client rang");
                }
            }
        }
    });
    drop(board);
}

/// After the right was revoked and the rings were scanned, nothing more is posted until the right is granted again;
/// no write is lost or taken twice.
#[test]
fn nothing_is_posted_after_the_right_was_revoked() {
    let Lane { mut inbox, client, board, .. } = Lane::with_file(4, 0);
    let left = AtomicU64::new(u64::from(THREADS));
    thread::scope(|scope| {
        for tid in 1..=THREADS {
            let (client, left) = (&client, &left);
            scope.spawn(move || {
                let ring = client.take_ring(Owner::new(1, tid), |_| true).unwrap();
                for number in 0..POSTS {
                    let to = To::Offset(u64::from(tid) << 32 | number);
                    post_with_retry(client, &ring, to, &number.to_ne_bytes(), || {});
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        let mut next = [0; THREADS as usize + 1];
        let mut count_in = |taken: Vec<Taken>| {
            for taken in taken {
                let offset = taken.offset.unwrap();
                let next = &mut next[(offset >> 32) as usize];
                assert_eq!(offset as u32 as u64, *next);
                assert_eq!(taken.bytes, next.to_ne_bytes());
                *next += 1;
            }
        };
        while left.load(Ordering::Acquire) != 0 {
            count_in(take_all(&mut inbox).unwrap());
            board.set_mode(SLOT, Mode::Kernel, 0);
            inbox.revoke();
            while inbox.has_posted() {
                count_in(take_all(&mut inbox).unwrap());
            }
            thread::yield_now();
            assert!(!inbox.has_posted());
            board.set_mode(SLOT, Mode::Exclusive, CLIENT);
            thread::yield_now();
        }
        count_in(take_all(&mut inbox).unwrap());
        assert!(next[1..].iter().all(|next| *next == POSTS));
    });
}

/// Every page's bytes name the page and a time: a read returns bytes of one page and one time, or fails.
#[test]
#[cfg_attr(miri, ignore = "reads race with changes, which the sequence lock makes harmless")]
fn reads_are_of_one_page_and_of_one_time() {
    const FRAMES: u32 = 8;
    const PAGES: u64 = 12;
    let lane = Lane::with_file(FRAMES, PAGES * 4096);
    let (stop, read_whole) = (AtomicBool::new(false), AtomicU64::new(0));
    let fill = |frame: u32, page: u64, time: u64| {
        let word = (page << 56 | time & 0xff_ffff_ffff_ffff).to_ne_bytes();
        lane.fill(frame, |at| word[at % 8]);
    };
    thread::scope(|scope| {
        for seed in 0..2 {
            let (lane, stop, read_whole) = (&lane, &stop, &read_whole);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut newest = [0; PAGES as usize];
                while !stop.load(Ordering::Relaxed) {
                    let page = random.next() % PAGES;
                    let (start, words) = (random.below(256) * 8, 1 + random.below(256));
                    let offset = page * 4096 + start as u64;
                    let Ok(bytes) = read(&lane.client, SLOT, offset, words * 8) else { continue };
                    let word = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                    assert!(bytes.chunks(8).all(|chunk| chunk == word.to_ne_bytes()), "torn");
                    assert_eq!(word >> 56, page);
                    let time = word & 0xff_ffff_ffff_ffff;
                    assert!(time >= newest[page as usize], "time went back");
                    newest[page as usize] = time;
                    read_whole.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut random = Random(100);
        let mut held = [None; FRAMES as usize];
        let mut time = 1;
        while time < 60_000 || read_whole.load(Ordering::Relaxed) < 20_000 {
            time += 1;
            let frame = random.below(FRAMES as usize);
            let page = random.next() % PAGES;
            match held[frame] {
                Some(page) if random.below(4) != 0 => fill(frame as u32, page, time),
                _ if held.contains(&Some(page)) => {}
                _ => {
                    lane.board.retract(frame as u32);
                    fill(frame as u32, page, time);
                    lane.board.publish(frame as u32, SLOT, page);
                    held[frame] = Some(page);
                }
            }
            assert!(time < 100_000_000, "no read ever succeeds");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// One thread unmaps the memories while others read and post: successful reads and posts must be right.
#[test]
#[cfg_attr(miri, ignore)] // It maps memory.
fn reads_and_posts_that_succeed_during_unmap_are_right() {
    const ROUNDS: usize = 200;
    for round in 0..ROUNDS {
        let mut lane = Lane::with_file(4, PAGE_BYTES as u64);
        lane.fill(1, |_| 0x5a);
        lane.board.publish(1, SLOT, 0);
        let client = &lane.client;
        let (reads, posts) = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0_u32;
                while let Ok(bytes) = read(client, SLOT, 0, PAGE_BYTES) {
                    assert!(bytes.iter().all(|byte| *byte == 0x5a), "bytes that are in no file");
                    reads += 1;
                }
                reads
            });
            let writer = scope.spawn(|| {
                let ring = client.take_ring(Owner::new(1, 1), |_| true).unwrap();
                let mut posts = 0_u64;
                // Past the page that the readers use.
                let to = |number: u64| To::Offset((number + 1) * PAGE_BYTES as u64);
                loop {
                    match post(client, &ring, FILE, to(posts), &[1; 3000]) {
                        Ok(_) => posts += 1,
                        Err(Miss::Full) => thread::yield_now(),
                        Err(_) => return posts,
                    }
                }
            });
            // At a different moment in each round.
            let until = Instant::now() + Duration::from_micros(round as u64 * 2);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            client.unmap().unwrap();
            (reader.join().unwrap(), writer.join().unwrap())
        });
        let _ = reads;
        let taken = lane.take_all();
        assert_eq!(taken.len() as u64, posts, "a successful post was not taken");
        assert!(taken.iter().all(|taken| taken.bytes == [1; 3000]));
        assert!(read(&lane.client, SLOT, 0, 1).is_err());
        assert_eq!(lane.client.size(SLOT), None);
    }
}
