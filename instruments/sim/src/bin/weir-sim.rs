//! Runs seeds of the simulator: one with its trace, or a range on several threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Parser;
use weir_engine::{Order, Stats};
use weir_sim::{Options, crash, names, run};

/// Simulates Weir's engine with a faulty device under virtual time and compares it with a model.
#[derive(Parser)]
#[command(
    name = "weir-sim",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// Run this seed twice and compare the runs.
    #[arg(long, conflicts_with = "seeds", required_unless_present_any = ["seeds", "cuts"])]
    seed: Option<u64>,
    /// Print everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Operations before the liveness phase, instead of what the seed says.
    #[arg(long, requires = "seed")]
    operations: Option<u32>,
    /// Run the seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// Run the power cuts of the seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", value_parser = parse_range, conflicts_with_all = ["seed", "seeds"])]
    cuts: Option<Range<u64>>,
    /// Switch off this safeguard of the engine, to show that the crashes detect its absence: supersede, cut
    /// or home-sync. Can be repeated, or given as a list with commas.
    #[arg(long, value_name = "NAME", requires = "cuts", value_delimiter = ',')]
    undo: Vec<crash::Undo>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Cuts the power under names and data: the tree of names, the engine and the log over a home that forgets.
    Names(NamesArguments),
}

#[derive(clap::Args)]
struct NamesArguments {
    /// Run this seed, twice, and compare the runs.
    #[arg(long, conflicts_with_all = ["seeds", "cuts"])]
    seed: Option<u64>,
    /// Print everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run the seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", value_parser = parse_range, conflicts_with = "cuts")]
    seeds: Option<Range<u64>>,
    /// Run seeds from 0 on until N cuts were made.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    cuts: u64,
    /// What is logged before it goes home: sync or all.
    #[arg(long, value_name = "CHANGES", default_value = "sync")]
    order: Order,
    /// Break this rule on purpose, to show that the checks find it. Can be repeated, or given as a list with commas.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    undo: Vec<names::Undo>,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range is written A..B")?;
    let number = |text: &str| text.parse().map_err(|error| format!("'{text}': {error}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Subcommand::Names(arguments)) = &arguments.command {
        return match arguments.seed {
            Some(seed) => names_once(seed, arguments),
            None => names_many(arguments),
        };
    }
    if let Some(seed) = arguments.seed {
        return run_one(seed, Options { print: arguments.trace, operations: arguments.operations });
    }
    if let Some(seeds) = &arguments.cuts {
        return cut_many(seeds, arguments.jobs.max(1), &arguments.undo);
    }
    let seeds = arguments.seeds.clone().unwrap_or(0..0);
    run_many(&seeds, arguments.jobs.max(1), arguments.keep_going)
}

fn run_one(seed: u64, options: Options) -> ExitCode {
    let first = match run(seed, options) {
        Ok(summary) => summary,
        Err(failure) => {
            eprintln!("{failure}");
            return ExitCode::FAILURE;
        }
    };
    match run(seed, Options { print: false, ..options }) {
        Ok(second) if second.hash == first.hash => {
            println!("seed {seed}: {} operations, hash {:016x}", first.operations, first.hash);
            println!("{:#?}", first.stats);
            ExitCode::SUCCESS
        }
        Ok(_) => {
            eprintln!("seed {seed} is not deterministic: two runs differ");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("seed {seed} is not deterministic: the second run failed\n{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each seed on one of `jobs` threads, as long as they say to go on.
fn each_seed(seeds: &Range<u64>, jobs: u64, run: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(seeds.start);
    let (next, run) = (&next, &run);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !run(seed) {
                        return;
                    }
                }
            });
        }
    });
}

/// Lives of one seed's files, and operations in each.
const LIVES: u32 = 3;
const OPERATIONS: u32 = 150;

/// Cuts the power or kills the daemon at device requests of each seed's runs.
fn cut_many(seeds: &Range<u64>, jobs: u64, undone: &[crash::Undo]) -> ExitCode {
    let plan = crash::Plan { undone: undone.to_vec(), ..crash::Plan::new(LIVES, OPERATIONS, 1) };
    let (taken_back, lost, other) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let all = Mutex::new(crash::Tally::default());
    each_seed(seeds, jobs, |seed| {
        let mut tally = crash::Tally::default();
        let result = crash::run(seed, &plan, &mut tally);
        all.lock().unwrap_or_else(PoisonError::into_inner).add(&tally);
        if let Err(broken) = result {
            let count = match &broken {
                broken if broken.is_taken_back() => &taken_back,
                broken if broken.is_lost() => &lost,
                _ => &other,
            };
            count.fetch_add(1, Ordering::Relaxed);
            eprintln!("seed {seed}, after {} crashes: {broken}", tally.cuts);
        }
        true
    });
    let tally = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (taken_back, lost, other) =
        (taken_back.into_inner(), lost.into_inner(), other.into_inner());
    println!(
        "{} crashes: {} power cuts and {} kills, of these {} during recovery, {} after a rest and {} \
         with homes that fail; {} acknowledged syncs, {} refused ones, {} failed syncs of home, {} redos, {} \
         groups, {} superblocks, {} spilled pages, {} reads of the log; {} bytes compared; {lost} \
         seeds with lost or invented bytes, {taken_back} with home taken back, {other} that failed \
         otherwise",
        tally.cuts,
        tally.cuts - tally.kills,
        tally.kills,
        tally.recovery_cuts,
        tally.idle_cuts,
        tally.failing_cuts,
        tally.syncs,
        tally.failed_syncs,
        tally.failed_home_syncs,
        tally.redos,
        tally.groups,
        tally.checkpoints,
        tally.spilled,
        tally.log_reads,
        tally.bytes
    );
    if taken_back + lost + other == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed of names twice, and compares the runs.
fn names_once(seed: u64, arguments: &NamesArguments) -> ExitCode {
    let undone = arguments.undo.clone();
    let run = |print| {
        let (undone, order) = (undone.clone(), arguments.order);
        let plan = names::Plan { order, undone, print, ..names::Plan::new() };
        let mut tally = names::Tally::default();
        (names::run(seed, &plan, &mut tally), tally)
    };
    let (result, tally) = run(arguments.trace);
    if let Err(broken) = result {
        eprintln!("seed {seed}, after {} cuts: {broken}", tally.cuts);
        return ExitCode::FAILURE;
    }
    if run(false).1 != tally {
        eprintln!("seed {seed} is not deterministic: two runs differ");
        return ExitCode::FAILURE;
    }
    println!("seed {seed}: {tally:#?}");
    ExitCode::SUCCESS
}

/// Runs seeds of names, as many as are named or as it takes for a number of cuts.
fn names_many(arguments: &NamesArguments) -> ExitCode {
    let (order, undone) = (arguments.order, arguments.undo.clone());
    let plan = names::Plan { order, undone, ..names::Plan::new() };
    let all = Mutex::new(names::Tally::default());
    let (runs, failed) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, u64>::new()));
    let started = Instant::now();
    let seeds = arguments.seeds.clone().unwrap_or(0..u64::MAX);
    each_seed(&seeds, arguments.jobs.max(1), |seed| {
        let mut tally = names::Tally::default();
        let result = names::run(seed, &plan, &mut tally);
        runs.fetch_add(1, Ordering::Relaxed);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(&tally);
        let is_fine = result.is_ok();
        if let Err(broken) = result {
            let what =
                broken.invariant().map_or("an answer".to_owned(), |of| format!("invariant {of}"));
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed.entry(what).or_default() += 1;
            eprintln!("seed {seed}, after {} cuts: {broken}\n", tally.cuts);
        }
        let is_enough = arguments.seeds.is_none() && all.cuts >= arguments.cuts;
        !is_enough && (is_fine || arguments.keep_going)
    });
    let tally = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{tally}");
    println!("{} seeds in {:.0} s", runs.into_inner(), started.elapsed().as_secs_f64());
    for (what, seeds) in &failed {
        println!("{what}: broken in {seeds} seeds");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What happened in all runs together: whether the profiles reach what they are meant to.
#[derive(Debug, Default)]
struct Totals {
    writes: u64,
    reads: u64,
    patch_writes: u64,
    fetched_pages: u64,
    fetches_avoided: u64,
    writers_blocked_fetch: u64,
    writers_throttled: u64,
    destages: u64,
    fetch_errors: u64,
    destage_errors: u64,
    sync_errors: u64,
    evictions: u64,
}

impl Totals {
    fn add(&mut self, stats: &Stats) {
        self.writes += stats.writes;
        self.reads += stats.reads;
        self.patch_writes += stats.patch_writes;
        self.fetched_pages += stats.fetched_pages;
        self.fetches_avoided += stats.fetches_avoided;
        self.writers_blocked_fetch += stats.writers_blocked_fetch;
        self.writers_throttled += stats.writers_throttled;
        self.destages += stats.destage_commands;
        self.fetch_errors += stats.fetch_errors;
        self.destage_errors += stats.destage_errors;
        self.sync_errors += stats.sync_errors;
        self.evictions += stats.evictions;
    }
}

fn run_many(seeds: &Range<u64>, jobs: u64, keep_going: bool) -> ExitCode {
    let (operations, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let totals = Mutex::new(Totals::default());
    each_seed(seeds, jobs, |seed| {
        match run(seed, Options::default()) {
            Ok(summary) => {
                operations.fetch_add(u64::from(summary.operations), Ordering::Relaxed);
                let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                totals.add(&summary.stats);
            }
            Err(failure) => {
                failed.fetch_add(1, Ordering::Relaxed);
                eprintln!("{failure}\n");
            }
        }
        keep_going || failed.load(Ordering::Relaxed) == 0
    });
    let failed = failed.into_inner();
    println!("{:#?}", totals.into_inner().unwrap_or_else(PoisonError::into_inner));
    let count = seeds.end.saturating_sub(seeds.start);
    println!("{count} seeds, {} operations, {failed} failed", operations.into_inner());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
