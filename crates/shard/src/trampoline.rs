//! Runs continuations so that their nesting on one thread is bounded.
//! A continuation may call the shard; if that call is answered at once, its continuation is run inside the
//! first one, and may call the shard again. Up to [`DEPTH_MAX`] continuations nest. Further ones are deferred
//! until the thread has returned to the outermost one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::pending::Answer;

/// Depth of nested continuations.
const DEPTH_MAX: u32 = 8;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static DEFERRED: RefCell<VecDeque<Answer>> = const { RefCell::new(VecDeque::new()) };
}

/// Runs `continuation` on this thread: now, or before the outermost continuation's `run` returns.
pub(crate) fn run(continuation: impl FnOnce() + Send + 'static) {
    let depth = DEPTH.get();
    if depth >= DEPTH_MAX {
        DEFERRED.with_borrow_mut(|deferred| deferred.push_back(Box::new(continuation)));
        return;
    }
    DEPTH.set(depth + 1);
    let _restore = RestoreDepth(depth);
    continuation();
    if depth == 0 {
        while let Some(continuation) = DEFERRED.with_borrow_mut(VecDeque::pop_front) {
            continuation();
        }
    }
}

/// Whether this thread runs a continuation. Such a thread may be the one that completes all requests.
pub(crate) fn is_nested() -> bool {
    DEPTH.get() > 0
}

/// Restores the depth, also when a continuation panics: its thread may continue.
struct RestoreDepth(u32);

impl Drop for RestoreDepth {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn nest(left: u32, ran: Arc<AtomicU32>) {
        assert!(DEPTH.get() <= DEPTH_MAX);
        ran.fetch_add(1, Ordering::Relaxed);
        if left > 0 {
            run(move || nest(left - 1, ran));
        }
    }

    #[test]
    fn deep_nesting_runs_flat_and_to_its_end() {
        let ran = Arc::new(AtomicU32::new(0));
        let inside = Arc::clone(&ran);
        run(move || nest(1_000_000, inside));
        assert_eq!(ran.load(Ordering::Relaxed), 1_000_001);
        assert_eq!(DEPTH.get(), 0);
    }
}
