//! What each side sees of what the other does.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::region::{PENDING, RINGS};
use crate::ring::{PAYLOAD_BYTES_MAX, RING_BYTES};

fn write(offset: u64, bytes: &[u8]) -> Taken {
    Taken { description: FILE.description, offset: Some(offset), bytes: bytes.to_vec() }
}

#[test]
fn a_write_is_taken_out_as_it_was_posted() {
    let mut lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    assert!(!lane.inbox.has_posted());
    post(&lane.client, &ring, FILE, To::Offset(4090), b"hello, world").unwrap();
    post(&lane.client, &ring, FILE, To::End, b"!").unwrap_err();
    assert!(lane.inbox.has_posted());
    assert_eq!(lane.take_all(), [write(4090, b"hello, world")]);
    assert!(!lane.inbox.has_posted());
    post(&lane.client, &ring, FILE, To::End, b"!").unwrap();
    assert_eq!(
        lane.take_all(),
        [Taken { description: FILE.description, offset: None, bytes: b"!".to_vec() }]
    );
}

#[test]
fn writes_of_several_rings_are_taken_in_the_order_they_were_made() {
    let mut lane = Lane::with_file(4, 0);
    let rings = [lane.ring(1), lane.ring(2), lane.ring(3)];
    let order = [0, 2, 1, 1, 0, 2, 0, 1];
    for (offset, ring) in (0..).zip(order) {
        post(&lane.client, &rings[ring], FILE, To::Offset(offset), &[ring as u8]).unwrap();
    }
    let expected: Vec<_> =
        (0..).zip(order).map(|(offset, ring)| write(offset, &[ring as u8])).collect();
    assert_eq!(lane.take_all(), expected);
}

#[test]
fn what_is_posted_during_a_scan_is_left_to_the_next() {
    let mut lane = Lane::with_file(4, 0);
    let (ring, late) = (lane.ring(1), lane.ring(2));
    post(&lane.client, &ring, FILE, To::Offset(0), b"a").unwrap();
    let cut = lane.inbox.begin().unwrap();
    post(&lane.client, &ring, FILE, To::Offset(1), b"b").unwrap();
    post(&lane.client, &late, FILE, To::Offset(2), b"c").unwrap();
    assert_eq!(take_to(&mut lane.inbox, cut).unwrap(), [write(0, b"a")]);
    assert_eq!(lane.take_all(), [write(1, b"b"), write(2, b"c")]);
}

#[test]
fn a_post_without_the_right_fails() {
    let lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    let post = |file| post(&lane.client, &ring, file, To::Offset(0), b"x");
    assert!(post(FILE).is_ok());
    assert_eq!(post(Attached { slot: 4, ..FILE }), Err(Miss::Mode));
    for (mode, client) in
        [(Mode::Kernel, 0), (Mode::Rejoining, 0), (Mode::Shared, CLIENT), (Mode::Exclusive, 8)]
    {
        lane.board.set_mode(SLOT, mode, client);
        lane.inbox.revoke();
        assert_eq!(post(FILE), Err(Miss::Mode));
        assert_eq!(read(&lane.client, SLOT, 0, 0).is_ok(), mode == Mode::Shared);
    }
    lane.board.set_mode(SLOT, Mode::Exclusive, CLIENT);
    assert!(post(FILE).is_ok());
    lane.inbox.region().close();
    assert_eq!(post(FILE), Err(Miss::Gone));
    assert_eq!(read(&lane.client, SLOT, 0, 0), Err(Miss::Gone));
}

#[test]
fn lengths_and_room_are_checked() {
    let lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    let long = vec![0; PAYLOAD_BYTES_MAX + 1];
    let post = |to, len| post(&lane.client, &ring, FILE, to, &long[..len]);
    assert_eq!(post(To::Offset(0), 0), Err(Miss::Size));
    assert_eq!(post(To::Offset(0), PAYLOAD_BYTES_MAX + 1), Err(Miss::Size));
    assert_eq!(post(To::Offset(u64::MAX), 1), Err(Miss::Size));
    assert_eq!(post(To::Offset(FAR), 1), Err(Miss::Size));
    assert!(post(To::Offset(FAR - 1), 1).is_ok());
    assert!(post(To::Offset(0), PAYLOAD_BYTES_MAX).is_ok());
}

#[test]
fn appends_never_exceed_the_reserved_room() {
    let mut lane = Lane::with_file(4, 100);
    lane.board.set_grant(SLOT, 130);
    let (one, other) = (lane.ring(1), lane.ring(2));
    assert!(post(&lane.client, &one, FILE, To::End, &[0; 16]).is_ok());
    assert!(post(&lane.client, &other, FILE, To::End, &[0; 14]).is_ok());
    assert_eq!(post(&lane.client, &other, FILE, To::End, &[0; 1]), Err(Miss::Size));
    assert_eq!(lane.take_all().len(), 2);
    lane.board.set_size(SLOT, 130);
    assert_eq!(post(&lane.client, &one, FILE, To::End, &[0; 1]), Err(Miss::Size));
    lane.board.set_grant(SLOT, 200);
    assert!(post(&lane.client, &one, FILE, To::End, &[0; 70]).is_ok());
}

#[test]
fn an_append_waits_for_writes_that_move_the_end() {
    let mut lane = Lane::with_file(4, 100);
    let (one, other) = (lane.ring(1), lane.ring(2));
    let append = |lane: &Lane| post(&lane.client, &other, FILE, To::End, &[0; 8]);
    post(&lane.client, &one, FILE, To::Offset(50), &[0; 50]).unwrap();
    assert!(append(&lane).is_ok());
    post(&lane.client, &one, FILE, To::Offset(51), &[0; 50]).unwrap();
    assert_eq!(append(&lane), Err(Miss::Pending));
    lane.take_all();
    assert!(append(&lane).is_ok());
}

#[test]
fn counters_return_to_zero() {
    let mut lane = Lane::with_file(4, 1 << 20);
    let ring = lane.ring(1);
    let region = Arc::clone(lane.inbox.region());
    let pending =
        || (0..PENDING as u64).map(|page| region.pending(0, page).load(Relaxed)).max().unwrap();
    post(&lane.client, &ring, FILE, To::Offset(4000), &[1; 200]).unwrap();
    post(&lane.client, &ring, FILE, To::End, &[1; 200]).unwrap();
    assert_eq!(region.pending(SLOT, 0).load(Relaxed), 1);
    assert_eq!(region.pending(SLOT, 1).load(Relaxed), 1);
    assert_eq!(region.head().ends.appending.load(Relaxed), 200);
    lane.take_all();
    assert_eq!((pending(), region.head().ends.appending.load(Relaxed)), (0, 0));
    // A refused write is not pending.
    lane.board.set_grant(SLOT, 0);
    post(&lane.client, &ring, FILE, To::Offset(4000), &[1; 200]).unwrap_err();
    post(&lane.client, &ring, FILE, To::End, &[1; 200]).unwrap_err();
    assert_eq!((pending(), region.head().ends.appending.load(Relaxed)), (0, 0));
}

#[test]
fn posts_to_a_full_ring_fail_until_it_is_drained() {
    let mut lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    for round in 0..5 {
        let mut posted = 0;
        let bytes = vec![round; RING_BYTES / 64];
        let miss = loop {
            match post(&lane.client, &ring, FILE, To::Offset(posted), &bytes) {
                Ok(_) => posted += 1,
                Err(miss) => break miss,
            }
        };
        assert_eq!(miss, Miss::Full);
        let taken = lane.take_all();
        assert_eq!(taken.len() as u64, posted);
        assert!((0..).zip(&taken).all(|(offset, taken)| *taken == write(offset, &bytes)));
    }
}

#[test]
fn rings_are_released_and_taken_over() {
    let mut lane = Lane::with_file(4, 0);
    let rings: Vec<_> = (1..=RINGS as u32).map(|tid| lane.ring(tid)).collect();
    assert!(lane.client.take_ring(Owner::new(1, 100), |_| true).is_none());
    assert!(
        lane.inbox.region().has_thread(Owner::new(1, 3))
            && !lane.inbox.region().has_thread(Owner::new(1, 100))
    );
    post(&lane.client, &rings[2], FILE, To::Offset(0), b"left behind").unwrap();
    let taken_over = lane.client.take_ring(Owner::new(1, 100), |tid| tid != 3).unwrap();
    assert!(
        lane.inbox.region().has_thread(Owner::new(1, 100))
            && !lane.inbox.region().has_thread(Owner::new(1, 3))
    );
    // The former owner cannot release it any more.
    lane.client.release_ring(&rings[2]);
    assert!(lane.client.take_ring(Owner::new(1, 101), |_| true).is_none());
    post(&lane.client, &taken_over, FILE, To::Offset(1), b"new").unwrap();
    lane.client.release_ring(&taken_over);
    assert_eq!(lane.take_all(), [write(0, b"left behind"), write(1, b"new")]);
    assert!(lane.client.take_ring(Owner::new(1, 101), |_| true).is_some());
}

#[test]
fn the_doorbell_is_rung_once_and_only_if_needed() {
    let mut lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    let post =
        |lane: &Lane, len| post(&lane.client, &ring, FILE, To::Offset(0), &vec![0; len]).unwrap();
    assert!(post(&lane, 1) && !post(&lane, 1));
    assert!(!lane.inbox.stop_polling());
    lane.take_all();
    assert!(lane.inbox.stop_polling());
    assert!(post(&lane, 1) && !post(&lane, 1));
    lane.inbox.start_polling();
    // Half full.
    let posts_to_ring = (0..10).position(|_| post(&lane, PAYLOAD_BYTES_MAX)).unwrap();
    assert_eq!(posts_to_ring, 3);
    assert!(!post(&lane, 1));
}

#[test]
fn pages_are_read_from_frames_while_they_are_published() {
    let lane = Lane::with_file(4, 3 * 4096);
    let read = |offset, len| read(&lane.client, SLOT, offset, len);
    assert_eq!(read(0, 4), Err(Miss::Absent));
    lane.fill(2, |at| at as u8);
    lane.fill(1, |at| !at as u8);
    lane.board.publish(2, SLOT, 0);
    lane.board.publish(1, SLOT, 1);
    assert_eq!(read(10, 4), Ok(vec![10, 11, 12, 13]));
    assert_eq!(read(4094, 4), Ok(vec![254, 255, 255, 254]));
    assert_eq!(read(3 * 4096 - 1, 2), Err(Miss::Absent));
    assert_eq!(read(8190, 4), Err(Miss::Absent));
    assert_eq!(read(u64::MAX, 1), Err(Miss::Size));
    let change = lane.board.change(2);
    assert!(change.is_some());
    assert_eq!(read(10, 4), Err(Miss::Absent));
    drop(change);
    assert!(read(10, 4).is_ok());
    // Another page.
    lane.board.publish(2, SLOT, 2);
    assert_eq!(read(10, 4), Err(Miss::Absent));
    assert_eq!(read(8192 + 10, 4), Ok(vec![10, 11, 12, 13]));
    lane.board.retract(2);
    assert!(!lane.board.is_published(2) && lane.board.change(2).is_none());
    assert_eq!(read(8192 + 10, 4), Err(Miss::Absent));
}

#[test]
fn a_page_with_a_pending_write_is_not_read_until_it_is_applied() {
    let mut lane = Lane::with_file(4, 4 * 4096);
    let ring = lane.ring(1);
    for page in 0..4 {
        lane.board.publish(page, SLOT, page.into());
    }
    post(&lane.client, &ring, FILE, To::Offset(4096), b"new").unwrap();
    assert_eq!(read(&lane.client, SLOT, 4096, 4), Err(Miss::Pending));
    assert_eq!(read(&lane.client, SLOT, 4000, 100), Err(Miss::Pending));
    assert!(read(&lane.client, SLOT, 0, 4096).is_ok());
    lane.take_all();
    assert!(read(&lane.client, SLOT, 4096, 4).is_ok());
}

#[test]
fn a_read_marks_the_frame_as_referenced() {
    let lane = Lane::with_file(4, 4096);
    lane.board.add_client(Arc::clone(lane.inbox.region()));
    lane.board.publish(2, SLOT, 0);
    assert!(!lane.board.take_referenced(2));
    read(&lane.client, SLOT, 0, 1).unwrap();
    assert!(lane.board.take_referenced(2) && !lane.board.take_referenced(2));
    read(&lane.client, SLOT, 0, 1).unwrap();
    lane.board.remove_client(lane.inbox.region());
    assert!(!lane.board.take_referenced(2));
}

#[test]
fn every_published_page_is_found_if_its_bucket_is_not_overfull() {
    let lane = Lane::with_file(256, FAR);
    for frame in 0..256 {
        lane.board.publish(frame, SLOT + frame % 3, u64::from(frame) * 17);
    }
    let found = |frame: u32| {
        let mut byte = 0;
        let (slot, page) = (SLOT + frame % 3, u64::from(frame) * 17);
        // SAFETY: one byte.
        unsafe { lane.client.view.read(slot, page, 0, 1, &raw mut byte) == Some(frame) }
    };
    let count = (0..256).filter(|frame| found(*frame)).count();
    assert!(count > 240, "{count} of 256");
    (0..256).for_each(|frame| lane.board.retract(frame));
    assert!(!(0..256).any(found));
}

#[test]
#[should_panic(expected = "two changes at once")]
fn a_frame_cannot_be_published_while_it_changes() {
    let lane = Lane::with_file(4, 4096);
    lane.board.publish(0, SLOT, 0);
    let _change = lane.board.change(0);
    lane.board.publish(0, SLOT, 1);
}

#[test]
fn a_slot_given_to_another_file_is_not_taken_for_the_first() {
    let lane = Lane::with_file(4, 4096);
    let before = lane.client.view.state(SLOT);
    lane.board.set_mode(SLOT, Mode::Kernel, 0);
    lane.board.set_mode(SLOT, Mode::Exclusive, CLIENT);
    let after = lane.client.view.state(SLOT);
    assert!(before != after && before.seen(CLIENT) == after.seen(CLIENT));
}

#[test]
#[cfg(not(miri))]
fn long_memory_takes_huge_pages_and_keeps_its_bytes() {
    use crate::memory::{self, Access, HUGE_BYTES, Memory};
    let len = 2 * HUGE_BYTES + PAGE_BYTES;
    let fd = memory::create("huge", len).unwrap();
    let memory = Memory::map(&fd, len, Access::ReadWrite).unwrap();
    assert_eq!(memory.base() as usize % HUGE_BYTES, 0);
    let at = |offset: usize| memory.base().wrapping_add(offset);
    for offset in (0..len).step_by(PAGE_BYTES) {
        // SAFETY: inside the mapping, which is this test's alone.
        unsafe { at(offset).write(offset.trailing_zeros() as u8) };
    }
    for offset in [0, HUGE_BYTES] {
        // Huge pages may be unavailable; the bytes must be kept in any case.
        let _ = memory.make_huge(offset);
    }
    for offset in (0..len).step_by(PAGE_BYTES) {
        // SAFETY: as above.
        assert_eq!(unsafe { at(offset).read() }, offset.trailing_zeros() as u8);
    }
}

#[test]
#[cfg_attr(miri, ignore)] // It maps memory.
fn a_first_post_begun_before_unmap_is_not_published_after_it() {
    let lane = Lane::with_file(4, 0);
    let ring = lane.ring(1);
    let ends = &lane.client.region.ring(ring.number()).ends;
    let place = ends.begin(8).unwrap();
    lane.client.unmap().unwrap();
    assert!(ends.publish(place).is_err(), "the write would be lost");
}

/// Whether a thread of another PID namespace exists is unknown here: its number means nothing here.
#[test]
fn a_ring_of_another_pid_namespace_is_not_taken_over() {
    let lane = Lane::with_file(4, 0);
    for ring in 0..RINGS as u32 {
        lane.client.take_ring(Owner::new(2, ring + 1), |_| true).unwrap();
    }
    assert!(lane.client.take_ring(Owner::new(3, 1000), |_| false).is_none());
    // An owner of an unknown namespace takes over no ring, and its ring is not taken over.
    assert!(lane.client.take_ring(Owner::new(0, 1000), |_| false).is_none());
    let taken = lane.client.take_ring(Owner::new(2, 1000), |tid| tid != 5).unwrap();
    lane.client.release_ring(&taken);
    lane.client.take_ring(Owner::new(0, 1000), |_| true).unwrap();
    assert!(lane.client.take_ring(Owner::new(0, 1001), |tid| tid != 1000).is_none());
}
