//! Bounds how many bytes of requests are in memory.

use std::sync::{Condvar, Mutex, PoisonError};

/// Room for bodies, in parts.
pub struct Bodies {
    part_bytes: u64,
    parts: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

impl Bodies {
    /// Room for `parts` bodies of one part each.
    pub fn new(part_bytes: u64, parts: usize) -> Bodies {
        Bodies { part_bytes, parts, free: Mutex::new(parts), freed: Condvar::new() }
    }

    /// Waits for room for a body, and has it while `work` is done. A body that is larger than the bound waits until no other is in memory.
    pub fn with<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> T {
        let wanted = (bytes.div_ceil(self.part_bytes) as usize).clamp(1, self.parts);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < wanted {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= wanted;
        drop(free);
        let result = work();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += wanted;
        self.freed.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn bodies_of_any_size_have_bounded_memory() {
        let (bodies, held, most) = (Bodies::new(10, 4), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for bytes in [0, 10, 15, 20, 40, 3, 25, 10].into_iter().cycle().take(32) {
                let (bodies, held, most) = (&bodies, &held, &most);
                scope.spawn(move || {
                    bodies.with(bytes, || {
                        most.fetch_max(held.fetch_add(bytes, SeqCst) + bytes, SeqCst);
                        thread::sleep(Duration::from_millis(2));
                        held.fetch_sub(bytes, SeqCst);
                    });
                });
            }
        });
        assert!(most.load(SeqCst) <= 40, "{} bytes at once", most.load(SeqCst));
        bodies.with(1000, || assert_eq!(*bodies.free.lock().unwrap(), 0));
    }
}
