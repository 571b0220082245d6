//! Runs seeds of the simulator: one with its trace, or a range on several threads.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use weir_sim::{Options, run};

/// Simulates Weir's engine with a faulty device under virtual time and compares it with a model.
#[derive(Parser)]
#[command(name = "weir-sim")]
struct Arguments {
    /// Run this seed twice and compare the runs.
    #[arg(long, conflicts_with = "seeds", required_unless_present = "seeds")]
    seed: Option<u64>,
    /// Print everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Steps before the liveness phase, instead of what the seed says.
    #[arg(long, requires = "seed")]
    steps: Option<u32>,
    /// Run the seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
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
    if let Some(seed) = arguments.seed {
        return run_one(seed, Options { print: arguments.trace, steps: arguments.steps });
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
            println!("seed {seed}: {} actions, hash {:016x}", first.actions, first.hash);
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

fn run_many(seeds: &Range<u64>, jobs: u64, keep_going: bool) -> ExitCode {
    let next = AtomicU64::new(seeds.start);
    let (actions, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || (!keep_going && failed.load(Ordering::Relaxed) > 0) {
                        return;
                    }
                    match run(seed, Options::default()) {
                        Ok(summary) => {
                            actions.fetch_add(summary.actions, Ordering::Relaxed);
                        }
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            eprintln!("{failure}\n");
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    let count = seeds.end.saturating_sub(seeds.start);
    println!("{count} seeds, {} actions, {failed} failed", actions.into_inner());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
