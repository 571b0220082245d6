//! Whether the lease on the prefix is held. Whoever makes requests that change objects looks at it before each.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Shared by who renews the lease and by who makes requests.
#[derive(Debug, Default)]
pub struct Fence {
    /// Another writer has the lease.
    lost: AtomicBool,
    /// When the lease that is held ends, if it is not renewed until then.
    end: Mutex<Option<Instant>>,
}

impl Fence {
    /// Another writer has the lease: changes are refused from now on.
    pub fn lose(&self) {
        self.lost.store(true, Relaxed);
    }

    /// The lease is valid until then. After that changes are refused, whatever its renewal is waiting for.
    pub fn valid_until(&self, end: Instant) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Whether the lease is lost, or has run out.
    pub fn is_closed(&self) -> bool {
        let end = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.lost.load(Relaxed) || end.is_some_and(|end| Instant::now() >= end)
    }
}
