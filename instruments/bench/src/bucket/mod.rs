//! `weir-bench run bucket`: what programs do on a bucket of a store that is a network away, through Weir and through s3fs and
//! rclone, in turn, and beside them on this machine's disk.
//!
//! `store` is the server and its contents without a network, `network` what is between it and who mounts it, `side` who does and with which
//! settings, `plan` what is run, `jobs` the loads that no other suite has; `goals` is what was to be reached, and `table` what is printed.
//! The JSON is that of [`crate::lane::results`].

mod goals;
mod http;
mod jobs;
mod network;
mod plan;
mod side;
mod store;
mod table;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;

use self::network::Network;
use self::plan::Cell;
use self::side::{Mounted, Side};
use self::store::Store;
use crate::cold::drop_machine_caches;
use crate::error::{Error, Result};
use crate::form::{self, Form};
use crate::lane::keeper::Keeper;
use crate::lane::results::{Case, DEVICE};
use crate::measure::turn;
use crate::mount::{self, require_fuse, weir_program};
use crate::own_disk::OwnDisk;
use crate::stage::{Run, require_root};
use crate::workload::Outcome;
use crate::workload::tree::{clear, remove, sync};

/// The name of the suite in its JSON.
const SUITE: &str = "bucket";
/// What the largest case takes on this machine's disk: the store's files, what is prepared, a cache and a copy to compare.
const FILES_BYTES: u64 = 6 << 30;
/// Half of a round trip to the store.
const DELAY: Duration = Duration::from_millis(5);

/// Programs on a bucket with a round trip of 10 ms to the store, which is one of this machine: through Weir, s3fs and rclone, in turn, each from
/// nothing in memory or in a cache, and without a bucket on this machine's disk. Counted are times, the bytes that passed the network, and requests. Needs root, versitygw or MinIO, and
/// rclone, which also is the client that contents are compared by. Ends with zero only if all that was written is in the bucket.
#[derive(clap::Args)]
pub struct Arguments {
    /// Three rounds of less: a quarter of the bytes, a tenth of the syncs.
    #[arg(long)]
    quick: bool,
    /// Only these cases.
    #[arg(long, value_name = "CASE", value_delimiter = ',', value_parser = PossibleValuesParser::new(plan::names()))]
    only: Vec<String>,
    /// Only through these, and Weir.
    #[arg(long, value_name = "SIDE", value_delimiter = ',', value_enum)]
    peers: Vec<Side>,
    /// The server; by default MinIO where it is installed, or else versitygw.
    #[arg(long, value_name = "PROGRAM", value_enum)]
    store: Option<store::Kind>,
    #[command(flatten)]
    own: OwnDisk,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        require_root("measuring buckets")?;
        require_fuse()?;
        let form = if self.quick { form::QUICK } else { form::FULL };
        let weir = weir_program(self.own.weir.clone())?;
        let kind = store::Kind::here(self.store)?;
        let mut left_out = Vec::new();
        let sides = side::those_here(&self.peers, &mut left_out);
        let json = self.own.json.as_deref();
        let mut keeper = Keeper::begin(SUITE, form.name, DEVICE, &weir, left_out, json)?;
        let run = Run::begin(&self.own.dir, FILES_BYTES)?;
        let scratch = run.directory("scratch")?;
        let mut store = Store::start(&run, kind)?;
        println!("the store is {kind}, with a round trip of {} ms", 2 * DELAY.as_millis());
        println!("{}", table::head(&sides));
        for cell in plan::cells(form, &self.only, &scratch, &mut keeper.results.passed_over)? {
            let left_out = &mut keeper.results.passed_over;
            let case = measure(&run, &mut store, &sides, &cell, form, &weir, left_out)?;
            println!("  {}", table::line(&case));
            keeper.add(case)?;
        }
        let whole = self.only.is_empty() && self.peers.is_empty();
        keeper.end(whole, goals::goals)
    }
}

/// All rounds of a case, without those peers that it fails through.
fn measure(
    run: &Run,
    store: &mut Store,
    sides: &[Side],
    cell: &Cell,
    form: Form,
    weir: &Path,
    left_out: &mut Vec<String>,
) -> Result<Case> {
    let prepared = run.directory(&format!("prepared-{}", cell.name))?;
    cell.job.prepare(&prepared)?;
    let found = run.directory(&format!("found-{}", cell.name))?;
    let mut case = Case::new(cell.name, cell.figure, sides.iter().map(|side| side.name()));
    case.files = cell.files;
    let mut failed = Vec::new();
    for round in 0..form.rounds {
        for side in turn(round, sides.len()) {
            if failed.contains(&side) {
                continue;
            }
            let turn = match sides[side] {
                Side::Disk => on_disk(run, cell, &prepared),
                mounts => {
                    store.fill(&prepared)?;
                    drop_machine_caches();
                    one_turn(run, store, mounts, cell, &found, weir)
                }
            };
            let turn = match turn {
                Ok(turn) => turn,
                Err(error) if sides[side] == Side::Weir => return Err(error),
                Err(error) => {
                    left_out.push(format!("{} through {}: {error}", cell.name, sides[side].name()));
                    case.sides[side].rounds.clear();
                    failed.push(side);
                    continue;
                }
            };
            let round = case.note(side, &turn.outcome, cell.class, turn.after_seconds)?;
            round.moved_bytes = Some(turn.moved_bytes);
            round.requests = Some(turn.requests);
        }
    }
    remove(&found)?;
    remove(&prepared)?;
    Ok(case)
}

/// What one turn of one side found.
struct Turn {
    outcome: Outcome,
    /// From the end of the load until all is in the bucket.
    after_seconds: f64,
    moved_bytes: u64,
    requests: u64,
}

/// A turn on a directory of this machine's disk, in which `prepared` is.
fn on_disk(run: &Run, cell: &Cell, prepared: &Path) -> Result<Turn> {
    let directory = run.directory(&format!("{}-disk", cell.name))?;
    mount::run(Command::new("cp").arg("-a").arg(prepared.join(".")).arg(&directory))?;
    sync(&directory)?;
    drop_machine_caches();
    let outcome = cell.job.run(&directory)?;
    cell.job.verify(&directory, &outcome)?;
    remove(&directory)?;
    Ok(Turn { outcome, after_seconds: 0.0, moved_bytes: 0, requests: 0 })
}

fn one_turn(
    run: &Run,
    store: &Store,
    side: Side,
    cell: &Cell,
    found: &Path,
    weir: &Path,
) -> Result<Turn> {
    let network = Network::start(store.port(), DELAY)?;
    let mounted = Mounted::start(run, cell.name, side, weir, network.port())?;
    let before = network.counts();
    let outcome = cell.job.run(mounted.path())?;
    let end = Instant::now();
    let settled = mounted.settle(&network)?;
    let after_seconds = settled.duration_since(end).as_secs_f64();
    let counts = network.counts();
    mounted.unmount()?;
    drop(network);
    clear(found)?;
    store.fetch(found)?;
    cell.job.verify(found, &outcome).map_err(|error| match error {
        Error::Different(what) => {
            Error::Different(format!("{} through {}: {what}", cell.name, side.name()))
        }
        other => other,
    })?;
    Ok(Turn {
        outcome,
        after_seconds,
        moved_bytes: counts.bytes - before.bytes,
        requests: counts.requests - before.requests,
    })
}
