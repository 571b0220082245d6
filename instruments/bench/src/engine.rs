//! The engine alone: nanoseconds for a small write, bytes for a patch. One thread, no I/O.
//!
//! Each figure is the median over many batches; a batch is a few thousand writes at positions drawn
//! beforehand. As in the daemon, the queue of outputs is looked at after each write.

use std::fs;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_engine::{
    Command, Completion, Config, DESCRIPTOR_BYTES, Durability, Engine, FetchPolicy, FileId,
    FramePool, HomeAttributes, Outcome, Output, RequestId, Time,
};

use crate::content::Random;
use crate::error::{Error, Result};
use crate::measure::median;
use crate::page::{PAGE, PAGE_BYTES};
use crate::report::Report;

const FILE: FileId = FileId(1);
const MEMORY_BYTES: u64 = 2 << 30;
const WRITE_BYTES: usize = 64;
/// Distance between patches that must stay apart.
const STRIDE_BYTES: usize = 192;
/// As many as fit a page.
const PATCHES_MANY: usize = PAGE_BYTES / STRIDE_BYTES;
const PATCHES_FEW: usize = 4;
const BATCH_WRITES: usize = 4096;
const BATCHES: usize = 500;
/// Where each begins with nothing in memory.
const BATCHES_ANEW: usize = 60;

/// Runs all of it.
pub fn run(report: &mut Report) -> Result<()> {
    println!("Engine alone (one core, {WRITE_BYTES} B writes)");
    let up_to_date = up_to_date(1024)?;
    let clean = up_to_date_clean()?;
    let spread = up_to_date_spread()?;
    let overwrite = patched_overwrite()?;
    let anywhere = patched_anywhere()?;
    let insert_few = patched_insert(PATCHES_FEW)?;
    let insert_many = patched_insert(PATCHES_MANY)?;
    let first = first_patch()?;
    let one_a_page = overhead(400_000, 1)?;
    let many_a_page = overhead(40_000, 10)?;
    report.figures(
        "engine",
        serde_json::json!({
            "up_to_date_ns": up_to_date,
            "up_to_date_clean_ns": clean,
            "up_to_date_over_256_mib_ns": spread,
            "patched_anywhere_ns": anywhere,
            "patched_same_place_ns": overwrite,
            "patched_new_run_of_4_ns": insert_few,
            "patched_new_run_of_21_ns": insert_many,
            "absent_first_patch_ns": first,
            "overhead_one_patch_a_page": one_a_page,
            "overhead_ten_patches_a_page": many_a_page,
        }),
    );
    for (name, nanos) in [
        ("up-to-date page, dirty", up_to_date),
        ("up-to-date page, clean", clean),
        ("up-to-date page, dirty, among 256 MiB of them", spread),
        ("absent page: its first patch", first),
        ("patched page, over an earlier patch", overwrite),
        ("patched page, anywhere, up to 8 patches", anywhere),
        ("patched page, beside up to 4 patches", insert_few),
        ("patched page, beside up to 21 patches", insert_many),
    ] {
        println!("  {name:<48}{:>6.0} ns (least {:.0})", nanos.median, nanos.least);
    }
    report.at_most("engine: 64 B write to an up-to-date page", up_to_date.median, 80.0, "ns");
    report.at_most("engine: 64 B write to a patched page", anywhere.median, 150.0, "ns");
    println!(
        "  counted per patch: {:.0} B alone on its page, {:.0} B with nine others, the page's \
         descriptor ({DESCRIPTOR_BYTES} B) included",
        one_a_page.counted, many_a_page.counted
    );
    let alone = one_a_page.counted - DESCRIPTOR_BYTES as f64;
    report.at_most(
        "engine: patch overhead beyond its bytes, without its page's descriptor",
        alone.max(many_a_page.counted),
        64.0,
        "B",
    );
    Ok(())
}

/// Nanoseconds a write, over batches.
#[derive(Clone, Copy, Serialize)]
struct Nanos {
    median: f64,
    least: f64,
}

impl Nanos {
    fn of(batches: &[f64]) -> Nanos {
        Nanos {
            median: median(batches),
            least: batches.iter().copied().fold(f64::INFINITY, f64::min),
        }
    }
}

/// An engine with one file of `pages` pages attached, and a clock that only moves with it.
struct Bench {
    engine: Engine,
    now: Time,
    data: [u8; PAGE_BYTES],
}

impl Bench {
    fn new(pages: u64) -> Result<Bench> {
        let config = Config {
            memory_bytes_max: MEMORY_BYTES,
            patch_bytes_max: MEMORY_BYTES / 2,
            fetch_policy: FetchPolicy::Lazy,
            // Nothing is to go home while a batch is timed.
            dirty_background_percent: 79,
            dirty_hard_percent: 80,
            ..Config::default()
        };
        let frames = (MEMORY_BYTES / PAGE) as u32 + 1024;
        let pool = FramePool::new(frames).map_err(|error| Error::Engine(error.to_string()))?;
        let engine = Engine::new(config, pool).map_err(|error| Error::Engine(error.to_string()))?;
        let mut bench = Bench { engine, now: Time::from_nanos(1), data: [0x5a; PAGE_BYTES] };
        bench.attach(pages);
        Ok(bench)
    }

    fn attach(&mut self, pages: u64) {
        self.engine.attach(
            FILE,
            HomeAttributes { size: pages * PAGE, dense: true, write_unit: 4096, readable: true },
        );
    }

    /// Forgets the file's pages and patches. What they took is free again in the engine and in the
    /// allocator, as in a daemon that has run for a while.
    fn forget(&mut self, pages: u64) {
        self.engine.discard(FILE);
        self.engine.detach(FILE, self.now);
        self.engine.dispatch();
        while self.engine.next_output().is_some() {}
        assert!(!self.engine.is_attached(FILE), "an idle file without dirty data stays attached");
        self.attach(pages);
    }

    fn write(&mut self, offset: u64, len: usize) {
        let outcome = self.engine.write(
            RequestId(1),
            FILE,
            offset,
            &self.data[..len],
            Durability::None,
            self.now,
        );
        assert!(outcome == Outcome::Done(Ok(())), "a write in memory was not taken at once");
        self.engine.dispatch();
        assert!(self.engine.next_output().is_none(), "a write in memory asked for I/O");
    }

    /// Reads the file's pages, as a program that goes through it would.
    fn fetch_all(&mut self, pages: u64) {
        const REQUEST_PAGES: u64 = 256;
        for first in (0..pages).step_by(REQUEST_PAGES as usize) {
            let len = REQUEST_PAGES.min(pages - first) as usize * PAGE_BYTES;
            let offset = first * PAGE;
            let _ = self.engine.read(RequestId(2), FILE, offset, len, self.now);
            self.engine.dispatch();
            while let Some(output) = self.engine.next_output() {
                let Output::Command(Command::Fetch { io, frames, .. }) = output else { continue };
                let result = Ok(frames.len() * PAGE_BYTES);
                self.engine.complete(io, Completion::Fetched { frames, result }, self.now);
                self.engine.dispatch();
            }
        }
    }

    /// Times batches of small writes, each at the offsets that `ready` prepares the engine for.
    fn batches(
        mut self,
        count: usize,
        seed: u64,
        mut ready: impl FnMut(&mut Bench, &mut Random) -> Vec<u64>,
    ) -> Nanos {
        let mut random = Random::new(seed);
        let batches = (0..count).map(|_| {
            let offsets = ready(&mut self, &mut random);
            self.batch(&offsets)
        });
        Nanos::of(&batches.collect::<Vec<f64>>())
    }

    /// Times a batch of small writes; nanoseconds each.
    fn batch(&mut self, offsets: &[u64]) -> f64 {
        self.now = self.now + Duration::from_nanos(100);
        let start = Instant::now();
        for offset in offsets {
            self.write(*offset, WRITE_BYTES);
        }
        start.elapsed().as_nanos() as f64 / offsets.len() as f64
    }
}

fn random_offsets(random: &mut Random, pages: u64) -> Vec<u64> {
    let last = (PAGE_BYTES - WRITE_BYTES) as u64;
    (0..BATCH_WRITES).map(|_| random.below(pages) * PAGE + random.below(last + 1)).collect()
}

/// Small writes anywhere in `pages` pages that are in memory.
fn up_to_date(pages: u64) -> Result<Nanos> {
    let mut bench = Bench::new(pages)?;
    for page in 0..pages {
        bench.write(page * PAGE, PAGE_BYTES);
    }
    Ok(bench.batches(BATCHES, 1, |_, random| random_offsets(random, pages)))
}

/// The first small write to pages that were read before: they become dirty.
fn up_to_date_clean() -> Result<Nanos> {
    let pages = BATCH_WRITES as u64;
    Ok(Bench::new(pages)?.batches(BATCHES_ANEW, 6, |bench, random| {
        bench.forget(pages);
        bench.fetch_all(pages);
        shuffled(random, slots(pages, 1))
    }))
}

/// The same where neither the pages nor the tables fit the processor's caches.
fn up_to_date_spread() -> Result<Nanos> {
    up_to_date((256 << 20) / PAGE)
}

/// Small writes to pages that have patches, each over an earlier patch.
fn patched_overwrite() -> Result<Nanos> {
    let pages = 1024;
    let mut bench = Bench::new(pages)?;
    let mut offsets = slots(pages, 4);
    for offset in &offsets {
        bench.write(*offset, WRITE_BYTES);
    }
    Ok(bench.batches(BATCHES, 2, |_, random| {
        shuffle(random, &mut offsets);
        offsets[..BATCH_WRITES.min(offsets.len())].to_vec()
    }))
}

/// Small writes anywhere in pages that have one to eight patches: beside, across and over them.
fn patched_anywhere() -> Result<Nanos> {
    let pages = (BATCH_WRITES / 8) as u64;
    Ok(Bench::new(pages)?.batches(BATCHES_ANEW, 5, |bench, random| {
        bench.forget(pages);
        for offset in slots(pages, 1) {
            bench.write(offset, WRITE_BYTES);
        }
        random_offsets(random, pages)
    }))
}

/// Small writes to pages that have a patch, each a run of its own beside the others, until a page
/// has `most`.
fn patched_insert(most: usize) -> Result<Nanos> {
    let pages = (BATCH_WRITES / (most - 1)) as u64;
    Ok(Bench::new(pages)?.batches(BATCHES_ANEW, 3, |bench, random| {
        bench.forget(pages);
        let mut first = slots(pages, most);
        let rest = first.split_off(pages as usize);
        for offset in first {
            bench.write(offset, WRITE_BYTES);
        }
        shuffled(random, rest)
    }))
}

/// The first small write to pages that are not in memory.
fn first_patch() -> Result<Nanos> {
    let pages = BATCH_WRITES as u64;
    Ok(Bench::new(pages)?.batches(BATCHES_ANEW, 4, |bench, random| {
        bench.forget(pages);
        shuffled(random, slots(pages, 1))
    }))
}

/// Offsets of `count` places in each page that stay apart, first those of the first place.
fn slots(pages: u64, count: usize) -> Vec<u64> {
    (0..count)
        .flat_map(|slot| {
            (0..pages).map(move |page| page * PAGE + (slot * STRIDE_BYTES) as u64 + 32)
        })
        .collect()
}

fn shuffle(random: &mut Random, offsets: &mut [u64]) {
    for at in (1..offsets.len()).rev() {
        offsets.swap(at, random.below(at as u64 + 1) as usize);
    }
}

fn shuffled(random: &mut Random, mut offsets: Vec<u64>) -> Vec<u64> {
    shuffle(random, &mut offsets);
    offsets
}

/// Bytes a patch costs beyond the bytes it holds.
#[derive(Clone, Copy, Serialize)]
struct Overhead {
    /// As the engine counts against its bound.
    counted: f64,
    /// As the process grew, everything included (tables that double as they grow, too).
    resident: f64,
}

fn overhead(pages: u64, patches_a_page: usize) -> Result<Overhead> {
    let mut bench = Bench::new(pages)?;
    let before = resident_bytes();
    for offset in slots(pages, patches_a_page) {
        bench.write(offset, WRITE_BYTES);
    }
    let grown = resident_bytes().saturating_sub(before);
    let patches = (pages * patches_a_page as u64) as f64;
    let stats = bench.engine.stats(bench.now);
    Ok(Overhead {
        counted: stats.patch_bytes as f64 / patches - WRITE_BYTES as f64,
        resident: grown as f64 / patches - WRITE_BYTES as f64,
    })
}

fn resident_bytes() -> u64 {
    fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map_or(0, |pages| pages * PAGE)
}
