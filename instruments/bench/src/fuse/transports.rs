//! 64 B written to a page in memory: over /dev/fuse, and over io_uring where the kernel has it on.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cold::make_file;
use crate::content::Random;
use crate::error::{Doing, Result};
use crate::measure::{Latencies, show_us};
use crate::mount::WeirMount;
use crate::page::{PAGE, PAGE_BYTES};
use crate::report::Report;
use crate::workspace::Workspace;

const FILE_PAGES: u64 = 256;
const ROUNDS: usize = 5;
const WRITES: u32 = 20_000;
const WRITE_BYTES: usize = 64;

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Goals: the median, and the 99th percentile by the median.
const MEDIAN_US_MAX: f64 = 8.0;
const SPREAD_MAX: f64 = 2.0;

/// Runs it.
pub fn run(weir: &Path, dir: &Path, report: &mut Report) -> Result<()> {
    let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
    if !setting.starts_with('Y') {
        println!("64 B write by transport: passed over, FUSE over io_uring is off in the kernel");
        return Ok(());
    }
    println!("64 B write to a page in memory ({ROUNDS} rounds of {WRITES} a transport, in turn)");
    let space = Workspace::new(dir, 2 * FILE_PAGES * PAGE)?;
    let mut sides = Vec::new();
    for transport in ["device", "io-uring"] {
        sides.push(Side::start(weir, &space, transport)?);
    }
    // The first round is for warming up.
    for round in 0..=ROUNDS {
        for side in &mut sides {
            let latencies = side.round(round as u64)?;
            if round > 0 {
                side.latencies.add(&latencies);
            }
        }
    }
    let mut figures = serde_json::Map::new();
    for side in sides {
        let Side { mount, transport, latencies, file, .. } = side;
        // A mount with an open file is in use.
        drop(file);
        mount.unmount()?;
        let summary = latencies.summary();
        let (p50, p99) = (summary.median_us, summary.p99_us);
        println!("  {transport}: median {}, p99 {}", show_us(p50), show_us(p99));
        figures.insert(transport.to_owned(), json!(summary));
        if transport == "io-uring" {
            report.at_most("64 B write over io_uring, median", p50, MEDIAN_US_MAX, "us");
            report.at_most("the same, p99 by median", p99 / p50, SPREAD_MAX, "x");
        }
    }
    report.figures("write_64_b_by_transport", figures);
    Ok(())
}

/// One transport's mount, and a file in it.
struct Side {
    transport: &'static str,
    mount: WeirMount,
    file: File,
    path: PathBuf,
    latencies: Latencies,
}

impl Side {
    fn start(weir: &Path, space: &Workspace, transport: &'static str) -> Result<Side> {
        let source = space.directory(transport)?;
        make_file(&source.join("data"), 41, FILE_PAGES)?;
        let mountpoint = space.path().join(format!("{transport}-mount"));
        let options = ["--transport", transport];
        let mount = WeirMount::start(weir, &source, &mountpoint, &options)?;
        let path = mount.path().join("data");
        let file = OpenOptions::new().read(true).write(true).open(&path).doing("open", &path)?;
        let mut data = vec![0; FILE_PAGES as usize * PAGE_BYTES];
        file.read_exact_at(&mut data, 0).doing("read", &path)?;
        file.write_all_at(&data, 0).doing("write", &path)?;
        Ok(Side { transport, mount, file, path, latencies: Latencies::new() })
    }

    fn round(&self, seed: u64) -> Result<Latencies> {
        let mut random = Random::new(seed);
        let mut latencies = Latencies::new();
        let places = FILE_PAGES * PAGE - WRITE_BYTES as u64;
        for _ in 0..WRITES {
            let (bytes, offset) = ([7; WRITE_BYTES], random.below(places));
            let written = latencies.time(|| self.file.write_all_at(&bytes, offset));
            written.doing("write", &self.path)?;
        }
        Ok(latencies)
    }
}
