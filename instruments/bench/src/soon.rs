//! Waiting for what comes by itself.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const NAP: Duration = Duration::from_millis(5);

/// Looks again and again until it is so, for `patience` at most. Whether it is.
pub fn soon(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(NAP);
    }
}
