//! The order of what the members of a session post by the lane (output commit): a change that follows a posted write, by any member, comes
//! after it in the mount's order.
//!
//! The daemon takes out one client's posts in their order, but knows no order between clients. So one client at a time may post: the
//! *poster*. The daemon appoints it when everything posted before is applied. All other changes reach the daemon as requests, and it applies
//! what was posted before it carries out one of these. A post is counted when it is published, before its call returns, so the
//! daemon sees from the counts alone whether there is something to apply.
//!
//! Two changes of which neither call had returned when the other one began have no order that anybody could know.
//!
//! Invariants:
//! - a client is appointed only if nobody was since the earlier poster lost the right, and everything posted until then was applied after
//!   that. So a client that posts while it loses the right has its post applied, or sees that it lost the right;
//! - a client that sees that returns from the call only when the daemon has applied what was posted.

use crate::sync::{AtomicU64, Ordering, store_before_load};

/// The words of the order. All zeros: nobody may post.
#[derive(Debug)]
#[repr(C)]
pub struct PostOrder {
    /// In the low half the client that may post, or 0; in the high one how often the right was taken from somebody.
    poster: AtomicU64,
    /// Posts published. By clients.
    posted: AtomicU64,
    /// How many of them are applied. By the daemon.
    applied: AtomicU64,
}

/// What was posted until some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Posts(u64);

/// That nobody may post, until a client is appointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Vacancy(u64);

const CLIENT: u64 = u32::MAX as u64;

impl PostOrder {
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> PostOrder {
        PostOrder {
            poster: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            applied: AtomicU64::new(0),
        }
    }

    /// Client: whether it may post.
    #[inline]
    pub fn may_post(&self, client: u32) -> bool {
        self.poster.load(Ordering::Acquire) & CLIENT == u64::from(client)
    }

    /// Client: it has published a post. False: it has lost the right, and must have the daemon apply what was posted before its call returns.
    #[inline]
    pub fn has_posted(&self, client: u32) -> bool {
        self.posted.fetch_add(1, Ordering::SeqCst);
        store_before_load();
        self.poster.load(Ordering::SeqCst) & CLIENT == u64::from(client)
    }

    /// Daemon: what is to be applied before a change; `None` if nothing is.
    pub fn unapplied(&self) -> Option<Posts> {
        let applied = self.applied.load(Ordering::Acquire);
        let posted = self.posted.load(Ordering::SeqCst);
        (posted != applied).then_some(Posts(posted))
    }

    /// Daemon: all that clients had published when `posts` were taken is applied.
    pub fn are_applied(&self, posts: Posts) {
        self.applied.fetch_max(posts.0, Ordering::AcqRel);
    }

    /// Daemon: takes the right from the client that has it. What was posted is to be applied afterwards.
    pub fn vacate(&self) -> Vacancy {
        let mut now = self.poster.load(Ordering::SeqCst);
        loop {
            let next = (now | CLIENT).wrapping_add(1);
            match self.poster.compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break store_before_load_of(Vacancy(next)),
                Err(other) => now = other,
            }
        }
    }

    /// Daemon: gives the right to a client, if it was not taken or given since; says whether it did.
    pub fn appoint(&self, client: u32, vacancy: Vacancy) -> bool {
        let next = vacancy.0 | u64::from(client);
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        self.poster.compare_exchange(vacancy.0, next, success, failure).is_ok()
    }
}

fn store_before_load_of(vacancy: Vacancy) -> Vacancy {
    store_before_load();
    vacancy
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_client_at_a_time_may_post() {
        let order = PostOrder::new();
        assert!(!order.may_post(1));
        let vacancy = order.vacate();
        assert!(!order.may_post(1) && order.appoint(1, vacancy) && order.may_post(1));
        assert!(!order.appoint(2, vacancy), "somebody was appointed");
        let (first, second) = (order.vacate(), order.vacate());
        assert!(!order.may_post(1));
        assert!(!order.appoint(1, first), "the right was taken again");
        assert!(order.appoint(2, second) && order.may_post(2) && !order.may_post(1));
    }

    #[test]
    fn what_was_posted_is_to_be_applied() {
        let order = PostOrder::new();
        let vacancy = order.vacate();
        assert!(order.appoint(7, vacancy));
        assert_eq!(order.unapplied(), None);
        assert!(order.has_posted(7));
        let posts = order.unapplied().unwrap();
        assert!(order.has_posted(7));
        order.are_applied(posts);
        let posts = order.unapplied().unwrap();
        order.are_applied(posts);
        assert_eq!(order.unapplied(), None);
        let _ = order.vacate();
        assert!(!order.has_posted(7));
    }
}
