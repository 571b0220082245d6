//! How long a request takes from a program to the disk's server and back when the disk adds no
//! delay: through the block layer, the loop driver and FUSE, and two threads' wake-ups. The model's
//! times are those of the drive; this much of them has passed by the time the server answers.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use super::cache::PAGE_BYTES;
use super::parameters::Ns;
use crate::error::{Doing, Result};

/// Single requests in a batch, and batches: the machine is not busy during all of them.
const REQUESTS: usize = 40;
const BATCHES: usize = 15;

/// The time of single reads of a page, one at a time: the least of the batches' medians, ns.
pub fn measure(device: &Path) -> Result<Ns> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(device)
        .doing("open", device)?;
    let page = PAGE_BYTES as usize;
    let mut room = vec![0; 2 * page];
    let aligned = room.as_ptr().align_offset(page);
    let mut least = Ns::MAX;
    for _ in 0..BATCHES {
        let mut times = [0; REQUESTS];
        for time in &mut times {
            let begin = Instant::now();
            file.read_exact_at(&mut room[aligned..aligned + page], 0).doing("read", device)?;
            *time = begin.elapsed().as_nanos() as Ns;
        }
        times.sort_unstable();
        least = least.min(times[REQUESTS / 2]);
    }
    Ok(least)
}
