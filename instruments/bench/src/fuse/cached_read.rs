//! 4 KiB read again: through Weir, and through a plain passthrough with the kernel's page cache.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::cold::make_file;
use crate::content::Random;
use crate::error::{Doing, Result};
use crate::measure::{median, show_us, turn};
use crate::mount::{PassthroughMount, WeirMount};
use crate::page::{PAGE, PAGE_BYTES};
use crate::report::Report;
use crate::workspace::Workspace;

const FILE_PAGES: u64 = (64 << 20) / PAGE;
const ROUNDS: u32 = 15;
const READS: u32 = 20_000;

/// Runs it.
pub fn run(weir: &Path, dir: &Path, report: &mut Report) -> Result<()> {
    println!("4 KiB cached read ({ROUNDS} rounds of {READS} a side, in turn)");
    let space = Workspace::new(dir, 2 * FILE_PAGES * PAGE)?;
    let (source, plain) = (space.directory("source")?, space.directory("plain")?);
    make_file(&source.join("data"), 31, FILE_PAGES)?;
    make_file(&plain.join("data"), 31, FILE_PAGES)?;
    let mount = WeirMount::start(weir, &source, &space.path().join("mount"), &[])?;
    let passthrough = PassthroughMount::start(&plain, &space.path().join("passthrough"))?;
    let sides = [mount.path().join("data"), passthrough.path().join("data")];
    let mut figures = [Vec::new(), Vec::new()];
    let files = open_warm(&sides)?;
    for round in 0..ROUNDS {
        for side in turn(round, 2) {
            figures[side].push(read_us(&files[side], &sides[side], round.into())?);
        }
    }
    drop(files);
    drop(passthrough);
    mount.unmount()?;
    let [weir_us, plain_us] = [median(&figures[0]), median(&figures[1])];
    println!("  Weir {}; passthrough {}", show_us(weir_us), show_us(plain_us));
    report.figures(
        "cached_read_4_kib",
        json!({"weir_us": weir_us, "passthrough_us": plain_us, "rounds_us": figures}),
    );
    report.at_most("4 KiB cached read, time against a passthrough's", weir_us / plain_us, 1.2, "x");
    Ok(())
}

fn open_warm(paths: &[std::path::PathBuf; 2]) -> Result<Vec<File>> {
    paths
        .iter()
        .map(|path| {
            let file = File::open(path).doing("open", path)?;
            let mut buffer = vec![0; 1 << 20];
            let mut offset = 0;
            loop {
                match file.read_at(&mut buffer, offset).doing("read", path)? {
                    0 => return Ok(file),
                    count => offset += count as u64,
                }
            }
        })
        .collect()
}

/// Microseconds a read, over a round.
fn read_us(file: &File, path: &Path, seed: u64) -> Result<f64> {
    let mut random = Random::new(seed);
    let offsets: Vec<u64> = (0..READS).map(|_| random.below(FILE_PAGES) * PAGE).collect();
    let mut page = [0; PAGE_BYTES];
    let start = Instant::now();
    for offset in offsets {
        file.read_exact_at(&mut page, offset).doing("read", path)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(READS))
}
