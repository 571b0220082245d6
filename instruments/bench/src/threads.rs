//! Work on several threads at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::Result;

/// Does all of `works` at once, each on a thread of its own, and waits for all of them. What they
/// return, in their order, or the first error in that order.
pub fn at_once<T: Send>(
    works: impl IntoIterator<Item = impl FnOnce() -> Result<T> + Send>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let running: Vec<_> = works.into_iter().map(|work| scope.spawn(work)).collect();
        let ended: Vec<Result<T>> =
            running.into_iter().map(|one| one.join().expect("no work panics")).collect();
        ended.into_iter().collect()
    })
}

/// Does `act`, and looks at something again and again meanwhile, with `interval` between two looks.
/// What `act` returned, and what was seen; where there was nothing to be seen it is looked at again later.
pub fn watched<T, S: Send>(
    interval: Duration,
    look: impl Fn() -> Option<S> + Sync,
    act: impl FnOnce() -> T,
) -> (T, Vec<S>) {
    let over = AtomicBool::new(false);
    let watch = || {
        let mut seen = Vec::new();
        while !over.load(Ordering::Relaxed) {
            seen.extend(look());
            thread::park_timeout(interval);
        }
        seen
    };
    thread::scope(|scope| {
        let watcher = scope.spawn(watch);
        let value = act();
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        (value, watcher.join().expect("a watcher does not panic"))
    })
}
