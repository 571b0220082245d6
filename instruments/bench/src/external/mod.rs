//! `weir-bench run sync`: what programs that sync gain by `weir run --sync external`, against the same programs straight on
//! ext4, there without their syncs (eatmydata), and through the same mount without a session, in turn.
//!
//! `plan` says what is run, `side` by whom and how, `home` where; `goals` is what was to be reached, and `table` what is printed. The
//! JSON is that of [`crate::lane::results`].

mod goals;
mod home;
mod plan;
mod side;
mod table;

use std::path::Path;

use clap::builder::PossibleValuesParser;
use strum::VariantArray;

use self::home::{Home, Kind};
use self::side::{Side, Stand};
use crate::error::Result;
use crate::form::{self, Form};
use crate::lane::keeper::Keeper;
use crate::lane::results::{Case, IO_URING};
use crate::lane::transport;
use crate::measure::turn;
use crate::mount::{require_fuse, weir_program};
use crate::own_disk::OwnDisk;
use crate::stage::{Run, require_root};

/// The name of the suite in its JSON.
const SUITE: &str = "sync";
/// What the largest case takes on this machine's disk.
const FILES_BYTES: u64 = 1 << 30;

/// What programs that sync gain by 'weir run --sync external': straight on ext4, there under eatmydata, which takes the syncs out, by
/// FUSE through a mount with '--order all', and through the same mount in a session, in turn; 'postmark-every-write' in one with '--sync every-write'. The homes are this machine's own disk, and an
/// emulated hard disk and flash drive. Needs root. Ends with zero only if all that was written is found afterwards.
#[derive(clap::Args)]
pub struct Arguments {
    /// Three rounds of fewer transactions, instead of five.
    #[arg(long)]
    quick: bool,
    /// Only these cases.
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
        require_root("measuring syncs")?;
        require_fuse()?;
        let form = if self.quick { form::QUICK } else { form::FULL };
        let weir = weir_program(self.own.weir.clone())?;
        let mut left_out = Vec::new();
        let (by, _put_back) = transport::choose(&self.transport, &mut left_out);
        let sides = side::those_here(&mut left_out);
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
            self.measure(&run, kind, form, (&weir, by), &sides, &mut keeper)?;
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
        (weir, transport): (&Path, &str),
        sides: &[Side],
        keeper: &mut Keeper<'_>,
    ) -> Result<()> {
        let cells = plan::cells(form, kind, &self.only, &mut keeper.results.passed_over);
        if cells.is_empty() {
            return Ok(());
        }
        let home = Home::start(run, kind)?;
        let work = run.directory(&format!("weir-{kind}"))?;
        let stand = Stand::new(run, &home, weir, transport, work)?;
        for cell in cells {
            let name = format!("{kind}/{}", cell.name);
            let mut case = Case::new(name, cell.setup.figure, sides.iter().map(|side| side.name()));
            cell.workload.prepare(&stand.files())?;
            for round in 0..form.rounds {
                for side in turn(round, sides.len()) {
                    let (outcome, after_seconds) = stand.turn(sides[side], &cell)?;
                    case.note(side, &outcome, cell.setup.class, after_seconds)?;
                }
            }
            stand.clear()?;
            println!("  {}", table::line(&case));
            keeper.add(case)?;
        }
        Ok(())
    }
}
