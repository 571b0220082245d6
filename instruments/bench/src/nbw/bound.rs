//! How fast random writes smaller than a page could be at most, where patch memory and the rate at
//! which the device fetches pages set a bound.
//!
//! In a run of `seconds`, patch memory takes in a number of patches, and every page that is fetched
//! meanwhile makes room for one more. Fetching is random reads of one page, as many at once as the
//! device orders among themselves; the rate is measured on the same disk in the same run. It is a
//! bound for whoever fetches page by page: an engine that sweeps, and reads neighbours and what lies
//! between them in one request, may pass it.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::page::{PAGE, PAGE_BYTES};
use crate::threads::at_once;

/// Memory a patch alone on its page takes beyond its bytes, bytes, as `weir status` counts it.
pub const PATCH_OVERHEAD_BYTES: u64 = 152;

/// Requests kept under way: the hard disk's queue.
const DEPTH: u64 = 32;

/// The bound in operations a second.
pub fn ops_per_s(patch_bytes: u64, io_bytes: u64, fetches_per_s: f64, seconds: f64) -> f64 {
    let held = patch_bytes / (io_bytes + PATCH_OVERHEAD_BYTES);
    held as f64 / seconds + fetches_per_s
}

/// A page-aligned buffer, as O_DIRECT wants it.
#[repr(align(4096))]
struct AlignedPage([u8; PAGE_BYTES]);

/// Pages a second that the disk under `file` gives to random reads, [`DEPTH`] at once, past the page
/// cache, for about `time`.
pub fn fetch_rate(file: &Path, time: Duration) -> Result<f64> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(file)
        .doing("open for direct reads", file)?;
    let pages = opened.metadata().doing("look at", file)?.len() / PAGE;
    if pages == 0 {
        return Err(Error::Missing {
            what: format!("{} is empty", file.display()),
            remedy: "prepare it first".into(),
        });
    }
    let started = Instant::now();
    let opened = &opened;
    let counts = at_once((0..DEPTH).map(|nth| {
        move || {
            let mut random = Random::of(0xf37c_4a7e, nth);
            let mut page = Box::new(AlignedPage([0; PAGE_BYTES]));
            let mut count = 0_u64;
            while started.elapsed() < time {
                let offset = random.below(pages) * PAGE;
                opened.read_exact_at(&mut page.0, offset).doing("read", file)?;
                count += 1;
            }
            Ok(count)
        }
    }))?;
    Ok(counts.iter().sum::<u64>() as f64 / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_memory_and_fetches_add_up() {
        let bound = ops_per_s(1000 * (128 + PATCH_OVERHEAD_BYTES), 128, 200.0, 2.0);
        assert_eq!(bound, 700.0);
        let none = ops_per_s(0, 128, 200.0, 2.0);
        assert_eq!(none, 200.0);
    }
}
