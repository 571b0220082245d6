//! Regions that hold what no correct client writes: the server does not panic, does not read outside, and its scans end.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::region::{EntryHead, RINGS};
use crate::ring::{ENTRY_ALIGN, HEAD_BYTES, PAYLOAD_BYTES_MAX, RING_BYTES, entry_bytes};

const SEEDS: u64 = if cfg!(miri) { 5 } else { 4000 };
/// Scans of one region; it may be corrupted again during each.
const SCANS: usize = 4;
/// Most entries that a scan may take: those of the least size in full rings.
const TAKEN_MAX: usize = RINGS * RING_BYTES / (2 * ENTRY_ALIGN) + RINGS;

/// A number that some check may have missed.
fn number(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => random.next(),
        2 => u64::MAX - random.next() % 64,
        3 => (1 << random.below(64)) + random.next() % 3 - 1,
        _ => random.next() % (4 * RING_BYTES as u64),
    }
}

/// A head that is valid, or wrong in one field.
fn entry(random: &mut Random) -> EntryHead {
    let wrong = random.below(300);
    let pick =
        |random: &mut Random, which, right| if wrong == which { number(random) } else { right };
    let sequence = random.next() % 64;
    let offset = random.next() % (1 << 30);
    let len = match random.below(8) {
        0 => 1 + random.next() % PAYLOAD_BYTES_MAX as u64,
        _ => 1 + random.next() % 100,
    };
    let kind = [1, 2, 1, 2, 1, 2, 1, 2, 0, 1][random.below(10)];
    EntryHead {
        sequence: pick(random, 0, sequence),
        offset: pick(random, 1, offset),
        description: number(random) as u32,
        len: pick(random, 2, len) as u32,
        kind: pick(random, 3, kind) as u32,
        flags: pick(random, 4, sequence & 1) as u32,
    }
}

/// Writes what a client could write: anything, anywhere.
fn corrupt(region: &Region, random: &mut Random) {
    let memory = region.memory();
    for _ in 0..random.below(8).saturating_sub(5) {
        let at = random.below(region.ring_bytes(1) as usize - memory.base() as usize) / 8 * 8;
        // SAFETY: inside, and atomic: the server may read it.
        unsafe { memory.at::<AtomicU64>(at) }.store(number(random), Relaxed);
    }
    if random.below(6) == 0 {
        region.head().writes.set(number(random));
    }
    for _ in 0..1 + random.below(6) {
        let ring = random.below(RINGS);
        region.change_owner(ring, region.owner(ring), Owner::new(0, number(random) as u32 | 1));
        // Consecutive entries from the server's head on.
        let ends = &region.ring(ring).ends;
        let (from, mut bytes) = (ends.released(), 0);
        for _ in 0..random.below(20) {
            let at = (from as usize + bytes) % RING_BYTES / ENTRY_ALIGN * ENTRY_ALIGN;
            let entry = entry(random);
            // SAFETY: inside the ring, aligned, and no other thread uses it now.
            unsafe { region.ring_bytes(ring).add(at).cast::<EntryHead>().write(entry) };
            bytes += match entry.kind {
                0 => RING_BYTES - at,
                _ => entry_bytes(entry.len.min(RING_BYTES as u32) as usize),
            };
        }
        let tail = match random.below(40) {
            0 => number(random),
            1 => from + (bytes / 2 / HEAD_BYTES * HEAD_BYTES) as u64,
            _ => from + bytes as u64,
        };
        ends.set_tail(tail);
    }
}

/// Drains a region. Returns whether there was damage, and how many writes were taken.
fn drain(inbox: &mut Inbox, random: &mut Random) -> (bool, usize) {
    let mut taken = 0;
    for _ in 0..SCANS {
        let Ok(cut) = inbox.begin() else { return (true, taken) };
        let cut = if random.below(8) == 0 { Cut::ALL } else { cut };
        let mut in_scan = 0;
        loop {
            inbox.look_ahead(|_, _, len| assert!(len <= PAYLOAD_BYTES_MAX));
            let posted = match inbox.next(cut) {
                Ok(Some(posted)) => posted,
                Ok(None) => break,
                Err(_) => return (true, taken),
            };
            assert!(posted.len == inbox.payload().len() && posted.len <= PAYLOAD_BYTES_MAX);
            in_scan += 1;
            assert!(in_scan <= TAKEN_MAX);
            taken += 1;
            if random.below(50) == 0 {
                corrupt(&Arc::clone(inbox.region()), random);
            }
            let slot = (random.below(4) != 0).then(|| random.below(crate::board::FILES) as u32);
            if inbox.settle(posted, slot).is_err() {
                return (true, taken);
            }
        }
        inbox.revoke();
        inbox.start_polling();
        inbox.stop_polling();
    }
    (false, taken)
}

#[test]
fn garbage_in_a_region_is_damage_at_worst() {
    let (mut damaged, mut whole, mut taken) = (0, 0, 0);
    let mut random = Random(1);
    let mut lane = Lane::new(4);
    for _ in 0..SEEDS {
        // The server's own state is new; what earlier seeds left in the region is more garbage.
        let region = Arc::clone(lane.inbox.region());
        for ring in 0..RINGS {
            region.ring(ring).ends.release(0);
            region.ring(ring).ends.set_tail(0);
        }
        region.head().writes.set(64);
        lane.inbox = Inbox::new(region);
        let region = Arc::clone(lane.inbox.region());
        corrupt(&region, &mut random);
        let (is_damaged, count) = drain(&mut lane.inbox, &mut random);
        *(if is_damaged { &mut damaged } else { &mut whole }) += 1;
        taken += count;
    }
    if !cfg!(miri) {
        // The test covers little if every region fails the first check, or none fails any.
        assert!(damaged > SEEDS / 10 && whole > SEEDS / 50, "{damaged} damaged, {whole} not");
        assert!(taken as u64 > SEEDS, "{taken}");
    }
}

#[test]
fn random_bytes_all_over_a_region_are_damage() {
    let mut random = Random(2);
    for _ in 0..(if cfg!(miri) { 1 } else { 40 }) {
        let mut lane = Lane::new(4);
        let memory = lane.client.region.memory();
        let words = (lane.client.region.ring_bytes(2) as usize - memory.base() as usize) / 8;
        for word in 0..words {
            // SAFETY: inside, and atomic.
            unsafe { memory.at::<AtomicU64>(word * 8) }.store(random.next(), Relaxed);
        }
        assert!(drain(&mut lane.inbox, &mut random).0);
    }
}

#[test]
fn a_sequence_number_that_was_never_issued_is_damage() {
    let mut lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    post(&lane.client, &ring, FILE, To::Offset(0), b"x").unwrap();
    lane.client.region.head().writes.set(0);
    // Otherwise the write would never be taken.
    assert!(take_all(&mut lane.inbox).is_err());
    // A sequence that goes back after the scan began is ignored.
    let mut lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    post(&lane.client, &ring, FILE, To::Offset(0), b"x").unwrap();
    lane.inbox.begin().unwrap();
    lane.client.region.head().writes.set(0);
    assert_eq!(lane.take_all().len(), 1);
}
