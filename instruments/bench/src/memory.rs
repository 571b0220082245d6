//! Does the daemon stay within its memory under a load that dirties pages faster than they can go
//! home?

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cold::{drop_cached, make_file};
use crate::content::Random;
use crate::error::{Doing, Error, Result};
use crate::measure::{Latencies, show_count, show_us};
use crate::mount::{WeirMount, require_fuse};
use crate::page::PAGE;
use crate::report::Report;
use crate::threads::at_once;
use crate::workspace::Workspace;

const MEMORY_MIB: u64 = 256;
const ALLOWANCE_MIB: u64 = 48;
const FILE_PAGES: u64 = (1 << 30) / PAGE;
const WRITERS: u64 = 2;

/// Runs it for `duration`.
pub fn run(weir: &Path, dir: &Path, duration: Duration, report: &mut Report) -> Result<()> {
    require_fuse()?;
    println!(
        "Memory ({} s of random 16-512 B writes over 1 GiB, --memory {MEMORY_MIB}M)",
        duration.as_secs()
    );
    let space = Workspace::new(dir, FILE_PAGES * PAGE)?;
    let source = space.directory("source")?;
    let home = source.join("data");
    make_file(&home, 11, FILE_PAGES)?;
    drop_cached(&home)?;
    let memory = format!("{MEMORY_MIB}M");
    let mount =
        WeirMount::start(weir, &source, &space.path().join("mount"), &["--memory", &memory])?;
    let pid = mount.pid()?;
    let file = mount.path().join("data");
    let deadline = Instant::now() + duration;
    let mut latencies = Latencies::new();
    let file = &file;
    for series in at_once((0..WRITERS).map(|writer| move || load(file, writer, deadline)))? {
        latencies.add(&series);
    }
    let peak_mib = peak_resident_mib(pid)?;
    mount.unmount()?;
    let summary = latencies.summary();
    println!(
        "  {} writes, median {}, p99 {}, longest {}",
        show_count(summary.count),
        show_us(summary.median_us),
        show_us(summary.p99_us),
        show_us(summary.max_us)
    );
    report.figures(
        "memory",
        json!({"memory_mib": MEMORY_MIB, "peak_resident_mib": peak_mib, "writes": summary}),
    );
    report.at_most(
        "memory: the daemon's peak under --memory 256M",
        peak_mib,
        (MEMORY_MIB + ALLOWANCE_MIB) as f64,
        "MiB",
    );
    Ok(())
}

fn load(path: &Path, writer: u64, deadline: Instant) -> Result<Latencies> {
    let file = OpenOptions::new().write(true).open(path).doing("open", path)?;
    let mut random = Random::of(5, writer);
    let mut data = [0; 512];
    random.fill(&mut data);
    let mut latencies = Latencies::new();
    while Instant::now() < deadline {
        let len = 16 + random.below(497) as usize;
        let offset = random.below(FILE_PAGES * PAGE - len as u64);
        latencies.time(|| file.write_all_at(&data[..len], offset)).doing("write", path)?;
    }
    Ok(latencies)
}

/// VmHWM of a process (proc(5)).
pub fn peak_resident_mib(pid: u64) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).doing("read", Path::new(&path))?;
    text.lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok()
        })
        .map(|kib| kib / 1024.0)
        .ok_or_else(|| Error::answer("/proc", format!("no VmHWM in {path}")))
}
