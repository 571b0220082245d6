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

/// Enough that the median is steady, few enough to take no time.
const REQUESTS: u64 = 400;

/// The median time of single reads of a page, one at a time.
pub fn measure(device: &Path) -> Result<Ns> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(device)
        .doing("open", device)?;
    let page = PAGE_BYTES as usize;
    let mut room = vec![0; 2 * page];
    let aligned = room.as_ptr().align_offset(page);
    let mut times = Vec::with_capacity(REQUESTS as usize);
    for _ in 0..REQUESTS {
        let begin = Instant::now();
        file.read_exact_at(&mut room[aligned..aligned + page], 0).doing("read", device)?;
        times.push(begin.elapsed().as_nanos() as Ns);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
