//! `weir-bench run names`: what programs do that make, rename, link and remove many files, directly on a home and
//! through Weir in front of the same home, in turn.
//!
//! `plan` says what is run and how often, `home` where, `side` by whom, `perform` runs it and `tree` compares what is
//! left. `shell`, `clone`, `durable`, `packages` and `million` are the cases; git in a tree, Postmark and SQLite
//! are those of [`crate::workload`]. `relay` is the network of the home by sshfs. The JSON is that of [`crate::lane::results`].

mod clone;
mod durable;
mod goals;
mod home;
mod million;
mod packages;
mod perform;
mod plan;
mod plant;
pub mod relay;
mod shell;
mod side;
mod table;
mod tree;

use std::path::Path;

use clap::builder::PossibleValuesParser;
use strum::VariantArray;

use self::home::{Home, Kind};
use self::perform::{Stand, rounds};
use self::side::SIDES;
use crate::error::Result;
use crate::form::{self, Form};
use crate::lane::keeper::Keeper;
use crate::lane::results::IO_URING;
use crate::lane::transport;
use crate::mount::{require_fuse, weir_program};
use crate::own_disk::OwnDisk;
use crate::stage::{Run, require_root};

/// The name of the suite in its JSON.
const SUITE: &str = "names";
/// What the largest case takes: trees of all sides, and what they are made from.
const FILES_BYTES: u64 = 1 << 30;

/// Making, renaming, linking and removing many files: directly on a home and through Weir, in turn. Homes are this
/// machine's own disk, an emulated hard disk, and sshfs with a round trip of 1 ms to a server of this machine. Needs
/// root. Ends with zero only if all sides left equal trees: names, contents, modes, links, and times where they are set.
#[derive(clap::Args)]
pub struct Arguments {
    /// Three rounds with fewer files, fewest on sshfs, in less than eight minutes; otherwise five with all of them, which
    /// takes hours.
    #[arg(long)]
    quick: bool,
    /// Only these cases. 'million' makes a million files (on sshfs 20,000), lists them, and shows the daemon's memory and
    /// descriptors: it is run only when it is named here.
    #[arg(long, value_name = "CASE", value_delimiter = ',', value_parser = PossibleValuesParser::new(plan::names()))]
    only: Vec<String>,
    /// Only on these homes. One that cannot be had is left out, with the reason.
    #[arg(long, value_name = "HOME", value_delimiter = ',', value_enum)]
    home: Vec<Kind>,
    /// How the mounts get their requests. FUSE over io_uring is turned on for the run, and put back; where this kernel
    /// has no such thing, it is the device.
    #[arg(long, default_value = IO_URING, value_parser = transport::SIDES)]
    transport: String,
    #[command(flatten)]
    own: OwnDisk,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        require_root("measuring names")?;
        require_fuse()?;
        let form = if self.quick { form::QUICK } else { form::FULL };
        let weir = weir_program(self.own.weir.clone())?;
        let mut left_out = Vec::new();
        let (by, _put_back) = transport::choose(&self.transport, &mut left_out);
        let json = self.own.json.as_deref();
        let mut keeper = Keeper::begin(SUITE, form.name, by, &weir, left_out, json)?;
        let asked = if self.home.is_empty() { Kind::VARIANTS.to_vec() } else { self.home.clone() };
        let mut kinds = Vec::new();
        for kind in asked {
            match kind.require() {
                Ok(()) => kinds.push(kind),
                Err(why) => keeper.results.passed_over.push(format!("{kind}: {why}")),
            }
        }
        let bytes = FILES_BYTES + kinds.iter().map(|kind| kind.bytes()).sum::<u64>();
        let run = Run::begin(&self.own.dir, bytes)?;
        println!("{}", table::head());
        for kind in kinds {
            self.measure(&run, kind, form, &weir, by, &mut keeper)?;
        }
        let whole = self.only.is_empty() && self.home.is_empty();
        keeper.end(whole, goals::goals)
    }

    /// All cases on one home.
    fn measure(
        &self,
        run: &Run,
        kind: Kind,
        form: Form,
        weir: &Path,
        transport: &str,
        keeper: &mut Keeper<'_>,
    ) -> Result<()> {
        let scratch = run.directory(&format!("scratch-{kind}"))?;
        let left_out = &mut keeper.results.passed_over;
        let cells = plan::cells(form, kind, &self.only, &scratch, left_out)?;
        if cells.is_empty() {
            return Ok(());
        }
        let home = Home::start(run, kind)?;
        let work = run.directory(&format!("weir-{kind}"))?;
        let stand = Stand { run, home: &home, home_name: kind.to_string(), weir, transport, work };
        for cell in cells {
            for case in rounds(&stand, SIDES, &cell, form.rounds)? {
                println!("  {}", table::line(&case));
                keeper.add(case)?;
            }
        }
        Ok(())
    }
}
