//! Random calls of both halves, against a queue.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::*;
use crate::ring::{PAYLOAD_BYTES_MAX, RING_BYTES, entry_bytes};

const THREADS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Post {
        thread: usize,
        to_end: bool,
        offset: u64,
        len: usize,
    },
    /// The server revokes the right while a thread is posting, and grants it again.
    Interrupt {
        thread: usize,
        len: usize,
    },
    /// The right is revoked and everything taken out, before it is granted again.
    Revoke,
    Take {
        at_most: usize,
    },
    TakeAll,
    /// A thread's ring is released, and a ring is taken again.
    Move {
        thread: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![
        4 => 1..200_usize,
        1 => prop::sample::select(vec![1, 31, 32, 33, 64, PAYLOAD_BYTES_MAX - 1, PAYLOAD_BYTES_MAX]),
        2 => 1..=PAYLOAD_BYTES_MAX,
    ];
    let thread = 0..THREADS;
    prop_oneof![
        12 => (thread.clone(), any::<bool>(), 0..1_u64 << 20, len.clone())
            .prop_map(|(thread, to_end, offset, len)| Step::Post { thread, to_end, offset, len }),
        1 => (thread.clone(), len).prop_map(|(thread, len)| Step::Interrupt { thread, len }),
        1 => Just(Step::Revoke),
        2 => (0..20_usize).prop_map(|at_most| Step::Take { at_most }),
        1 => Just(Step::TakeAll),
        1 => thread.prop_map(|thread| Step::Move { thread }),
    ]
}

/// The expected state of a ring: its tail, and the bytes that each entry takes, filler included.
#[derive(Default)]
struct Expected {
    tail: usize,
    waiting: VecDeque<usize>,
}

impl Expected {
    /// Bytes that an entry would take; `None` if there is no room.
    fn room_for(&self, len: usize) -> Option<usize> {
        let (bytes, to_end) = (entry_bytes(len), RING_BYTES - self.tail % RING_BYTES);
        let needed = if bytes > to_end { to_end + bytes } else { bytes };
        (self.waiting.iter().sum::<usize>() + needed <= RING_BYTES).then_some(needed)
    }

    fn push(&mut self, needed: usize) {
        self.tail += needed;
        self.waiting.push_back(needed);
    }
}

struct Model {
    lane: Lane,
    rings: Vec<Ring>,
    expected: Vec<Expected>,
    /// The writes in order, each with its ring.
    queue: VecDeque<(usize, Taken)>,
    posted: u64,
}

impl Model {
    fn new() -> Model {
        let lane = Lane::with_file(4, 0);
        lane.board.set_size(SLOT, 1 << 21);
        let rings = (0..THREADS).map(|thread| lane.ring(thread as u32 + 1)).collect();
        let expected = (0..THREADS).map(|_| Expected::default()).collect();
        Model { lane, rings, expected, queue: VecDeque::new(), posted: 0 }
    }

    fn post(&mut self, thread: usize, to: To, len: usize) {
        self.posted += 1;
        let bytes: Vec<u8> =
            (0..len as u64).map(|at| (self.posted.wrapping_mul(0x9d) + at * 7) as u8).collect();
        let done = post(&self.lane.client, &self.rings[thread], FILE, to, &bytes);
        match self.expected[thread].room_for(len) {
            None => assert_eq!(done, Err(Miss::Full)),
            Some(needed) => {
                assert!(done.is_ok(), "{done:?}");
                self.expected[thread].push(needed);
                let offset = if let To::Offset(offset) = to { Some(offset) } else { None };
                self.queue
                    .push_back((thread, Taken { description: FILE.description, offset, bytes }));
            }
        }
    }

    fn take(&mut self, at_most: usize) {
        let cut = self.lane.inbox.begin().unwrap();
        for _ in 0..at_most {
            let Some(posted) = self.lane.inbox.next(cut).unwrap() else { break };
            let (thread, expected) = self.queue.pop_front().expect("no more than was posted");
            assert_eq!(posted.offset, expected.offset);
            assert_eq!(self.lane.inbox.payload(), expected.bytes);
            self.lane.inbox.settle(posted, Some(SLOT)).unwrap();
            self.expected[thread].waiting.pop_front();
        }
    }

    fn take_all(&mut self) {
        self.take(usize::MAX);
        assert!(self.queue.is_empty() && !self.lane.inbox.has_posted());
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Post { thread, to_end: true, len, .. } => self.post(thread, To::End, len),
            Step::Post { thread, offset, len, .. } => self.post(thread, To::Offset(offset), len),
            Step::Interrupt { thread, len } => {
                let ends = &self.lane.client.region.ring(self.rings[thread].number()).ends;
                let place = ends.begin(len);
                self.lane.inbox.revoke();
                if let Ok(place) = place {
                    assert!(ends.publish(place).is_err());
                }
            }
            Step::Revoke => {
                self.lane.board.set_mode(SLOT, Mode::Kernel, 0);
                self.lane.inbox.revoke();
                self.take_all();
                let refused = post(&self.lane.client, &self.rings[0], FILE, To::End, b"x");
                assert_eq!(refused, Err(Miss::Mode));
                assert!(!self.lane.inbox.has_posted());
                self.lane.board.set_mode(SLOT, Mode::Exclusive, CLIENT);
            }
            Step::Take { at_most } => self.take(at_most),
            Step::TakeAll => self.take_all(),
            Step::Move { thread } => {
                // The lowest free ring is taken: the same again.
                self.lane.client.release_ring(&self.rings[thread]);
                self.rings[thread] = self.lane.ring(thread as u32 + 1);
            }
        }
        let appending: usize = (self.queue.iter())
            .filter(|(_, taken)| taken.offset.is_none())
            .map(|(_, taken)| taken.bytes.len())
            .sum();
        let ends = &self.lane.client.region.head().ends;
        assert_eq!(ends.appending.load(Relaxed), appending as u64);
        assert_eq!(ends.extending.load(Relaxed), 0);
        assert_eq!(self.lane.inbox.has_posted(), !self.queue.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn posts_are_taken_as_a_queue(steps in prop::collection::vec(step(), 1..300)) {
        let mut model = Model::new();
        for step in steps {
            model.run(step);
        }
        model.take_all();
        let region = &model.lane.client.region;
        prop_assert!((0..1 << 10).all(|page| region.pending(SLOT, page).load(Relaxed) == 0));
    }
}
