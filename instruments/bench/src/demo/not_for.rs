//! What Weir is not for, with its figure: data that is in memory anyway, where each call is a trip through FUSE.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Doing, Result};
use crate::measure::{Latencies, show_us};
use crate::mount::WeirMount;
use crate::page::PAGE_BYTES;
use crate::workspace::Workspace;

const FILE_BYTES: usize = 1 << 20;
const TIME: Duration = Duration::from_millis(500);

/// Measures it in `dir`; the line to show.
pub fn measure(weir: &Path, dir: &Path) -> Result<String> {
    let space = Workspace::new(dir, 16 << 20)?;
    let [plain, source, mountpoint] =
        [space.directory("plain")?, space.directory("source")?, space.path().join("mount")];
    let mount = WeirMount::start(weir, &source, &mountpoint, &["--config=/dev/null"])?;
    let straight = overwrite(&plain.join("file"))?;
    let through = overwrite(&mount.path().join("file"))?;
    mount.unmount()?;
    Ok(format!(
        "Not for: programs whose data is in memory anyway. Writing 4 KiB over a page in memory took {} directly and {} through Weir, \
         by the kernel's FUSE; 'weir run' avoids most of that.",
        show_us(straight),
        show_us(through)
    ))
}

/// Median microseconds of overwriting a page in memory.
fn overwrite(path: &Path) -> Result<f64> {
    fs::write(path, vec![1; FILE_BYTES]).doing("write", path)?;
    let file = OpenOptions::new().write(true).open(path).doing("open", path)?;
    let mut latencies = Latencies::new();
    let start = Instant::now();
    let mut page = 0;
    while start.elapsed() < TIME {
        let offset = page * PAGE_BYTES as u64;
        latencies.time(|| file.write_all_at(&[2; PAGE_BYTES], offset)).doing("write", path)?;
        page = (page + 1) % (FILE_BYTES / PAGE_BYTES) as u64;
    }
    Ok(latencies.summary().median_us)
}
