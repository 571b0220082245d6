//! How long a request takes from a program to the disk's server and back beside the disk's own
//! delay: through the block layer, the loop driver and FUSE, and the wake-ups of the threads it
//! passes, the one that keeps time among them. The model's times are those of the drive; this much
//! of them has passed by the time the answer arrives.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use weir_drive::parameters::Ns;
use weir_drive::{PAGE_BYTES, Ways};

use crate::error::{Doing, Result};

/// Single requests in a batch, and batches: the machine is not busy during all of them.
const REQUESTS: usize = 40;
const BATCHES: usize = 15;

/// The delay that is taken off what is measured: about that of a quick drive, so that processors
/// and threads are as awake as they will be.
pub const DELAY: Ns = 75_000;

/// The ways to a disk that answers each request [`DELAY`] after it came: the least of the medians of
/// batches of single requests for a page, one at a time. What is written is what was read.
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
    let read = least_median(|| Ok(()), || file.read_exact_at(room, 0)).doing("read", device)?;
    let room = &*room;
    let mut write = || file.write_all_at(room, 0);
    // A flush with something to flush: then more of the kernel is on its way.
    let flush = least_median(&mut write, || file.sync_data()).doing("flush", device)?;
    let write = least_median(|| Ok(()), write).doing("write", device)?;
    let beside = |time: Ns| time.saturating_sub(DELAY);
    Ok(Ways { read: beside(read), write: beside(write), flush: beside(flush) })
}

fn least_median(
    mut before: impl FnMut() -> io::Result<()>,
    mut request: impl FnMut() -> io::Result<()>,
) -> io::Result<Ns> {
    let mut least = Ns::MAX;
    for _ in 0..BATCHES {
        let mut times = [0; REQUESTS];
        for time in &mut times {
            before()?;
            let begin = Instant::now();
            request()?;
            *time = begin.elapsed().as_nanos() as Ns;
        }
        times.sort_unstable();
        least = least.min(times[REQUESTS / 2]);
    }
    Ok(least)
}
