//! The lane's protocols under the model checker: every order of steps that the memory model allows.

#![allow(unsafe_code)] // The checker's cells for memory that is not atomic need it.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::doorbell::Doorbell;
use crate::post_order::PostOrder;
use crate::ring::{Ends, Refused, advance, entry_bytes};
use crate::sequence_lock::SequenceLock;
use crate::write_sequence::WriteSequence;

/// A ring with room for one entry.
struct Ring {
    ends: Ends,
    entry: UnsafeCell<u64>,
}

// SAFETY: that the entry is never written while another thread reads it is what the models check.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Ring {
        Ring { ends: Ends::new(), entry: UnsafeCell::new(0) }
    }

    /// Posts one entry as a program does.
    fn post(&self, entry: u64, may_post: impl Fn() -> bool) -> bool {
        loop {
            let place = self.ends.begin(8).expect("the ring is empty");
            if !may_post() {
                return false;
            }
            self.put(entry);
            match self.ends.publish(place) {
                Ok(()) => return true,
                Err(Refused::Revoked) => {}
                Err(Refused::Full) => unreachable!(),
            }
        }
    }

    fn put(&self, entry: u64) {
        // SAFETY: see the `Sync` above.
        self.entry.with_mut(|at| unsafe { *at = entry });
    }

    fn get(&self) -> u64 {
        // SAFETY: see the `Sync` above.
        self.entry.with(|at| unsafe { *at })
    }

    /// What was posted, if anything was.
    fn posted(&self) -> Option<u64> {
        (self.ends.tail() != 0).then(|| self.get())
    }
}

#[test]
fn a_post_fails_after_the_right_was_revoked() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let right = Arc::new(AtomicU64::new(1));
        let producer = {
            let (ring, right) = (Arc::clone(&ring), Arc::clone(&right));
            thread::spawn(move || ring.post(5, || right.load(Ordering::Acquire) == 1))
        };
        right.store(0, Ordering::Release);
        ring.ends.revoke();
        // The last read: nothing is published after it.
        let seen = ring.posted();
        let posted = producer.join().unwrap();
        assert_eq!(seen, posted.then_some(5));
        assert_eq!(ring.posted(), seen);
    });
}

#[test]
fn a_post_succeeds_after_the_right_was_revoked_and_granted_again() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let right = Arc::new(AtomicU64::new(1));
        let producer = {
            let (ring, right) = (Arc::clone(&ring), Arc::clone(&right));
            thread::spawn(move || ring.post(5, || right.load(Ordering::Acquire) != 0))
        };
        right.store(2, Ordering::Release);
        ring.ends.revoke();
        assert!(producer.join().unwrap());
        assert_eq!(ring.posted(), Some(5));
    });
}

#[test]
fn room_is_used_again_only_after_it_was_read() {
    const PAYLOAD: usize = crate::ring::PAYLOAD_BYTES_MAX;
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let mut fit = 0;
        while let Ok(place) = ring.ends.begin(PAYLOAD) {
            ring.put(1);
            ring.ends.publish(place).unwrap();
            fit += 1;
        }
        assert!(fit > 1);
        let server = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let read = ring.get();
                ring.ends.release(advance(0, 2 * entry_bytes(PAYLOAD)));
                read
            })
        };
        if let Ok(place) = ring.ends.begin(PAYLOAD) {
            ring.put(2);
            ring.ends.publish(place).unwrap();
        }
        assert_eq!(server.join().unwrap(), 1);
    });
}

#[test]
fn reads_under_a_sequence_lock_are_consistent() {
    loom::model(|| {
        let lock = Arc::new((SequenceLock::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let writer = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                let (lock, first, second) = &*lock;
                for value in 1..3 {
                    let begun = lock.begin();
                    first.store(value, Ordering::Relaxed);
                    second.store(value, Ordering::Relaxed);
                    lock.end(begun);
                }
            })
        };
        let (lock, first, second) = &*lock;
        if let Some(number) = lock.read() {
            let read = (second.load(Ordering::Relaxed), first.load(Ordering::Relaxed));
            if lock.is_still(number) {
                assert_eq!(read, (number / 2, number / 2));
            }
        }
        writer.join().unwrap();
    });
}

/// A frame that holds a page, then none, then another: its bytes are never taken for another page's.
#[test]
fn a_frame_is_read_as_the_page_it_holds() {
    loom::model(|| {
        let frame = Arc::new((SequenceLock::new(), AtomicU64::new(1), AtomicU64::new(1)));
        let set_key = |(lock, key, _): &(SequenceLock, AtomicU64, AtomicU64), to: u64| {
            let begun = lock.begin();
            key.store(to, Ordering::Relaxed);
            lock.end(begun);
        };
        let writer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || {
                set_key(&frame, 0);
                // No sequence number changes while the frame cannot be read.
                frame.2.store(2, Ordering::Relaxed);
                set_key(&frame, 2);
            })
        };
        let (lock, key, content) = &*frame;
        if let Some(number) = lock.read() {
            let key = key.load(Ordering::Relaxed);
            let content = content.load(Ordering::Relaxed);
            if lock.is_still(number) && key != 0 {
                assert_eq!(content, key);
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let lane = Arc::new((Ring::new(), Doorbell::new()));
        let client = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                assert!(lane.0.post(5, || true));
                lane.1.must_wake(false)
            })
        };
        lane.1.stop_polling();
        let seen = lane.0.posted().is_some();
        assert!(client.join().unwrap() || seen, "the daemon sleeps, and no client wakes it");
    });
}

#[test]
fn of_two_posts_while_the_daemon_sleeps_one_wakes_it() {
    loom::model(|| {
        let lane = Arc::new((Ring::new(), Ring::new(), Doorbell::new()));
        let clients = [0, 1].map(|client| {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                let ring = if client == 0 { &lane.0 } else { &lane.1 };
                assert!(ring.post(5, || true));
                lane.2.must_wake(false)
            })
        });
        lane.2.stop_polling();
        let seen = lane.0.posted().is_some() && lane.1.posted().is_some();
        let rang = clients.map(|client| client.join().unwrap());
        assert!(rang.contains(&true) || seen);
        assert!(!(rang[0] && rang[1]), "the doorbell is rung once");
    });
}

#[test]
fn a_scan_that_takes_a_write_takes_the_writes_before_it() {
    loom::model(|| {
        let lane = Arc::new((Ring::new(), Ring::new(), WriteSequence::new()));
        let returned = Arc::new(AtomicU64::new(0));
        let first = {
            let (lane, returned) = (Arc::clone(&lane), Arc::clone(&returned));
            thread::spawn(move || {
                let sequence = lane.2.take();
                assert!(lane.0.post(sequence + 10, || true));
                returned.store(1, Ordering::Release);
            })
        };
        let second = {
            let (lane, returned) = (Arc::clone(&lane), Arc::clone(&returned));
            thread::spawn(move || {
                let follows = returned.load(Ordering::Acquire) == 1;
                let sequence = lane.2.take();
                assert!(lane.1.post(sequence + 10, || true));
                follows
            })
        };
        // A scan.
        let cut = lane.2.next();
        let taken = [lane.0.posted(), lane.1.posted()].map(|entry| entry.filter(|e| e - 10 < cut));
        first.join().unwrap();
        if second.join().unwrap() && taken[1].is_some() {
            assert!(taken[0].is_some() && taken[0] < taken[1]);
        }
    });
}

/// Two clients of a session, of which the second one becomes the poster: when it may post, what the first one had posted is applied, if the first one's
/// call had returned.
#[test]
fn a_post_comes_after_those_that_had_returned() {
    loom::model(|| {
        let session = Arc::new((PostOrder::new(), Ring::new()));
        let (returned, applied) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let vacancy = session.0.vacate();
        assert!(session.0.appoint(1, vacancy));
        let first = {
            let (session, returned) = (Arc::clone(&session), Arc::clone(&returned));
            thread::spawn(move || {
                let (order, ring) = &*session;
                // If it has lost the right, the call does not return before the daemon has applied the post.
                if order.may_post(1) && ring.post(5, || true) && order.has_posted(1) {
                    returned.store(1, Ordering::Release);
                }
            })
        };
        let second = {
            let session = Arc::clone(&session);
            let (returned, applied) = (Arc::clone(&returned), Arc::clone(&applied));
            thread::spawn(move || {
                let follows = returned.load(Ordering::Acquire) == 1;
                if follows && session.0.may_post(2) {
                    assert_eq!(applied.load(Ordering::Acquire), 1, "it posts too early");
                }
            })
        };
        let (order, ring) = &*session;
        let vacancy = order.vacate();
        if ring.posted() == Some(5) {
            applied.store(1, Ordering::Release);
        }
        assert!(order.appoint(2, vacancy));
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// A change that follows a post is carried out after it.
#[test]
fn a_change_comes_after_the_posts_that_had_returned() {
    loom::model(|| {
        let session = Arc::new((PostOrder::new(), Ring::new()));
        let returned = Arc::new(AtomicU64::new(0));
        let vacancy = session.0.vacate();
        assert!(session.0.appoint(1, vacancy));
        let client = {
            let (session, returned) = (Arc::clone(&session), Arc::clone(&returned));
            thread::spawn(move || {
                assert!(session.1.post(5, || session.0.may_post(1)));
                assert!(session.0.has_posted(1));
                returned.store(1, Ordering::Release);
            })
        };
        let apply = || {
            let posts = session.0.unapplied()?;
            let applied = session.1.posted();
            session.0.are_applied(posts);
            applied
        };
        // Another request had it applied, or began to, before.
        let before = apply();
        let follows = returned.load(Ordering::Acquire) == 1;
        let now = apply();
        if follows {
            assert!(before.or(now) == Some(5), "the change is before the post");
        }
        client.join().unwrap();
    });
}
