//! How long a request takes from a program to the disk's server and back when the disk adds no
//! delay: through the block layer, the loop driver and FUSE, and two threads' wake-ups. The model's
//! times are those of the drive; this much of them has passed by the time the server answers.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::cache::PAGE_BYTES;
use super::parameters::Ns;
use crate::error::{Doing, Result};

/// Single requests in a batch, and batches: the machine is not busy during all of them.
const REQUESTS: usize = 40;
const BATCHES: usize = 15;

/// The ways of the two kinds of requests, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways {
    /// Of a read.
    pub read: Ns,
    /// Of a write, and of a flush.
    pub write: Ns,
}

/// The time of single requests for a page, one at a time: the least of the batches' medians. What
/// is written is what was read.
pub fn measure(device: &Path) -> Result<Ways> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(device)
        .doing("open", device)?;
    let page = PAGE_BYTES as usize;
    let mut room = vec![0; 2 * page];
    let aligned = room.as_ptr().align_offset(page);
    let room = &mut room[aligned..aligned + page];
    let read = least_median(|| file.read_exact_at(room, 0)).doing("read", device)?;
    let write = least_median(|| file.write_all_at(room, 0)).doing("write", device)?;
    Ok(Ways { read, write })
}

fn least_median(mut request: impl FnMut() -> io::Result<()>) -> io::Result<Ns> {
    let mut least = Ns::MAX;
    for _ in 0..BATCHES {
        let mut times = [0; REQUESTS];
        for time in &mut times {
            let begin = Instant::now();
            request()?;
            *time = begin.elapsed().as_nanos() as Ns;
        }
        times.sort_unstable();
        least = least.min(times[REQUESTS / 2]);
    }
    Ok(least)
}
