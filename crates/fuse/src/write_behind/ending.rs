//! When the threads that bring names home are not waited for any longer: somebody said so, and no request can come that waits
//! for them.

use std::sync::atomic::{AtomicBool, Ordering};

/// Both only become true.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// The mount has ended.
    no_requests: AtomicBool,
    given_up: AtomicBool,
}

impl Ending {
    /// The mount has ended.
    pub(crate) fn no_requests_come(&self) {
        self.no_requests.store(true, Ordering::SeqCst);
    }

    /// What home does not have when the mount has ended need not go there.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    /// Whether home need get nothing more.
    pub(crate) fn is_reached(&self) -> bool {
        self.no_requests.load(Ordering::SeqCst) && self.given_up.load(Ordering::SeqCst)
    }
}
