//! Work on several threads at once.

use std::thread;

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
