//! 64 B written to a page that is not in memory: straight to the directory, and through Weir. For
//! reference also through the passthrough with all pages in memory: what FUSE itself takes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::cold::{make_cold, make_file};
use crate::content::Random;
use crate::error::{Doing, Result};
use crate::measure::{Latencies, median, show_us, turn};
use crate::mount::{PassthroughMount, WeirMount};
use crate::page::{PAGE, PAGE_BYTES};
use crate::report::Report;
use crate::workspace::Workspace;

const FILE_PAGES: u32 = (512 << 20) / PAGE_BYTES as u32;
const ROUNDS: u32 = 7;
const WRITES: u32 = 3000;
const WRITE_BYTES: usize = 64;
const FLOOR_PAGES: u64 = 4096;
const POLICIES: [&str; 4] = ["blocking", "async-fg", "async-bg", "lazy"];
const POLICY_WRITES: u32 = 2000;
const POLICY_ROUNDS: u32 = 3;

/// Runs it.
pub fn run(weir: &Path, dir: &Path, report: &mut Report) -> Result<()> {
    println!("64 B write to a cold page ({ROUNDS} rounds of {WRITES} a side, in turn)");
    let space = Workspace::new(dir, 2 * u64::from(FILE_PAGES) * PAGE)?;
    let source = space.directory("source")?;
    let (home, plain) = (source.join("data"), space.directory("plain")?.join("data"));
    make_file(&home, 21, u64::from(FILE_PAGES))?;
    make_file(&plain, 21, u64::from(FILE_PAGES))?;
    let passed = space.directory("passed")?;
    make_file(&passed.join("data"), 21, FLOOR_PAGES)?;
    make_cold(&[&home, &plain])?;
    let mut pages = Random::new(21).permutation(FILE_PAGES).into_iter();

    let mount = WeirMount::start(weir, &source, &space.path().join("mount"), &[])?;
    let through = Side::open(&mount.path().join("data"))?;
    let straight = Side::open(&plain)?;
    let passthrough = PassthroughMount::start(&passed, &space.path().join("passthrough"))?;
    let floor = Side::open(&passthrough.path().join("data"))?;
    let warm: Vec<u32> = Random::new(22).permutation(FLOOR_PAGES as u32);
    floor.round(&warm)?;
    let [mut weir_rounds, mut plain_rounds, mut floor_rounds] = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let chosen: Vec<u32> = pages.by_ref().take(WRITES as usize).collect();
        for side in turn(round, 2) {
            match side {
                0 => plain_rounds.push(straight.round(&chosen)?),
                _ => weir_rounds.push(through.round(&chosen)?),
            }
        }
        floor_rounds.push(floor.round(&warm[..WRITES as usize])?);
    }
    drop(floor);
    drop(passthrough);
    let status = mount.status()?;
    let blocked = status.get("writers_blocked_fetch")?;
    drop(through);
    mount.unmount()?;

    let policies = by_policy(weir, &source, &space.path().join("mount"), &mut pages)?;
    let (weir_us, plain_us) = (median_us(&weir_rounds), median_us(&plain_rounds));
    report.figures(
        "cold_write_64_b",
        json!({
            "weir": figures(&weir_rounds),
            "directory": figures(&plain_rounds),
            "passthrough_all_in_memory": figures(&floor_rounds),
            "weir_writers_blocked": blocked,
            "policies": policies,
        }),
    );
    println!(
        "  directory: median {}; through Weir: median {}, {blocked} writers waited for a fetch\n  \
         (a passthrough with all of it in memory, FUSE's own share: median {})",
        show_us(plain_us),
        show_us(weir_us),
        show_us(median_us(&floor_rounds))
    );
    report.at_most("64 B write to a cold page through Weir, median", weir_us, 12.0, "us");
    report.at_least(
        "... times faster than straight to the directory",
        plain_us / weir_us,
        4.0,
        "x",
    );
    Ok(())
}

/// The same through Weir under each of the other policies.
fn by_policy(
    weir: &Path,
    source: &Path,
    mountpoint: &Path,
    pages: &mut impl Iterator<Item = u32>,
) -> Result<Map<String, Value>> {
    let home = source.join("data");
    let mut rounds: [Vec<Round>; POLICIES.len()] = Default::default();
    for _ in 0..POLICY_ROUNDS {
        for (policy, rounds) in POLICIES.iter().zip(&mut rounds) {
            make_cold(&[&home])?;
            let mount = WeirMount::start(weir, source, mountpoint, &["--fetch", policy])?;
            let side = Side::open(&mount.path().join("data"))?;
            let chosen: Vec<u32> = pages.take(POLICY_WRITES as usize).collect();
            rounds.push(side.round(&chosen)?);
            drop(side);
            mount.unmount()?;
        }
    }
    let mut figures_of = Map::new();
    for (policy, rounds) in POLICIES.iter().zip(&rounds) {
        let [writes, syncs] = of_rounds(rounds);
        println!(
            "  --fetch {policy:<9} median {:>9}, then fsync {:>9}",
            show_us(median(&writes)),
            show_us(median(&syncs))
        );
        figures_of.insert((*policy).into(), figures(rounds));
    }
    Ok(figures_of)
}

/// Each round's median latency, and its fsync, microseconds.
fn of_rounds(rounds: &[Round]) -> [Vec<f64>; 2] {
    let writes = rounds.iter().map(|round| round.writes.summary().median_us).collect();
    [writes, rounds.iter().map(|round| round.sync_us).collect()]
}

fn median_us(rounds: &[Round]) -> f64 {
    median(&of_rounds(rounds)[0])
}

fn figures(rounds: &[Round]) -> Value {
    let mut all = Latencies::new();
    for round in rounds {
        all.add(&round.writes);
    }
    let [medians, syncs] = of_rounds(rounds);
    json!({
        "writes": all.summary(),
        "rounds_median_us": medians,
        "fsync_after_round_us": median(&syncs),
    })
}

struct Round {
    writes: Latencies,
    /// The fsync after the round: what was put off is done here at the latest.
    sync_us: f64,
}

struct Side {
    file: File,
    path: PathBuf,
}

impl Side {
    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).open(path).doing("open", path)?;
        Ok(Side { file, path: path.to_owned() })
    }

    fn round(&self, pages: &[u32]) -> Result<Round> {
        let mut random = Random::new(u64::from(pages[0]));
        let mut bytes = [0; WRITE_BYTES];
        let mut writes = Latencies::new();
        for page in pages {
            let start = random.below((PAGE_BYTES - WRITE_BYTES + 1) as u64);
            random.fill(&mut bytes);
            let offset = u64::from(*page) * PAGE + start;
            writes.time(|| self.file.write_all_at(&bytes, offset)).doing("write", &self.path)?;
        }
        let start = Instant::now();
        self.file.sync_data().doing("sync", &self.path)?;
        Ok(Round { writes, sync_us: start.elapsed().as_secs_f64() * 1e6 })
    }
}
