//! `weir-bench run lane`: what programs gain by `weir run`, straight on ext4, through Weir by FUSE, and through the same
//! mount by the lane, on this machine's own disk, in turn.
//!
//! `plan` says what is run, `side` where and as whom, `perform` runs it; `startup` and `transport` are what has other
//! sides; `results` is the JSON, `goals` what was to be reached, `table` what is printed.

mod goals;
pub mod keeper;
mod perform;
mod plan;
pub mod results;
mod side;
mod startup;
pub mod table;
pub mod transport;

use std::path::PathBuf;

use strum::VariantArray;

use self::keeper::Keeper;
use self::perform::{cold, warm};
use self::plan::{Form, Style};
use self::results::{Case, IO_URING, SUITE};
use self::side::{Side, Stand};
use crate::error::{Error, Result};
use crate::mount::{require_fuse, weir_program};
use crate::own_disk::OwnDisk;
use crate::report::line;

pub use self::goals::goals;

/// What the largest cells take on the disk: files of both sides, and copies.
const DISK_BYTES: u64 = 4 << 30;

/// What programs gain by 'weir run': straight on this machine's own disk, through Weir by FUSE, and through the same
/// mount by memory they share with the daemon, in turn. Ends with zero only if every byte was found right.
#[derive(clap::Args)]
pub struct Arguments {
    /// Three short rounds of each, in about eight minutes, instead of five long ones.
    #[arg(long)]
    quick: bool,
    /// Only what has one of these in its name, such as 'write/64' or 'sqlite'.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// How the mounts get their requests. FUSE over io_uring is turned on for the run, and put back; where this kernel
    /// or this user has no such thing, it is the device.
    #[arg(long, default_value = IO_URING, value_parser = transport::SIDES)]
    transport: String,
    /// Say what there is, and stop.
    #[arg(long)]
    list: bool,
    /// The C sources that are built: an archive that 'scripts/setup bench' fetched.
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    #[command(flatten)]
    own: OwnDisk,
}

/// Prints a case and keeps it.
fn keep(keeper: &mut Keeper<'_>, case: Case) -> Result<()> {
    println!("  {}", table::line(&case));
    keeper.add(case)
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let form = if self.quick { plan::QUICK } else { plan::FULL };
        let sources = self.sources.clone().unwrap_or_else(plan::default_sources);
        let (cells, mut passed_over) = plan::cells(form, &sources, &self.only);
        if self.list {
            cells.iter().for_each(|cell| println!("{}", cell.name));
            println!("{}\nstart/true\nstart/copy\noff-mount/64", transport::NAME);
            return Ok(());
        }
        require_fuse()?;
        let weir = weir_program(self.own.weir.clone())?;
        let mut sides = Side::VARIANTS.to_vec();
        if !Stand::has_lane(&weir) {
            sides.retain(|side| *side != Side::Lane);
            passed_over.push(format!("lane: {} has no 'run'", weir.display()));
        }
        let (by, _put_back) = transport::choose(&self.transport, &mut passed_over);
        let json = self.own.json.as_deref();
        let mut keeper = Keeper::begin(SUITE, form.name, by, &weir, passed_over, json)?;
        let stand = Stand::new(weir, &self.own.dir, DISK_BYTES, by)?;
        let some_warm = cells.partition_point(|cell| cell.style == Style::Warm);
        let (warm_cells, cold_cells) = cells.split_at(some_warm);
        println!("{}", table::head());
        if !warm_cells.is_empty() {
            warm(&stand, &sides, warm_cells, |case| keep(&mut keeper, case))?;
        }
        cold(&stand, &sides, cold_cells, |case| keep(&mut keeper, case))?;
        self.others(&stand, form, &sides, &mut keeper)?;
        self.end(keeper)
    }

    /// What has other sides.
    fn others(
        &self,
        stand: &Stand,
        form: Form,
        sides: &[Side],
        keeper: &mut Keeper<'_>,
    ) -> Result<()> {
        if plan::wanted(&self.only, transport::NAME) {
            match transport::measure(stand, form)? {
                Ok(case) => keep(keeper, case)?,
                Err(why) => keeper.results.passed_over.push(format!("{}: {why}", transport::NAME)),
            }
        }
        if sides.contains(&Side::Lane) {
            startup::measure(stand, form, &self.only, |case| keep(keeper, case))?;
        }
        Ok(())
    }

    fn end(&self, mut keeper: Keeper<'_>) -> Result<()> {
        if keeper.results.cases.is_empty() {
            let what = keeper.results.passed_over.join("; ");
            return Err(Error::Missing {
                what: format!(
                    "nothing of the suite has that name{}{what}",
                    if what.is_empty() { "" } else { ": " }
                ),
                remedy: "see 'weir-bench run lane --list'".into(),
            });
        }
        keeper.results.complete = self.only.is_empty() && keeper.results.passed_over.is_empty();
        keeper.save()?;
        for why in &keeper.results.passed_over {
            println!("passed over: {why}");
        }
        println!("\nGoals ({:.0} s in all)", keeper.results.took_seconds);
        for goal in goals(&keeper.results) {
            println!("  {}", line(&goal));
        }
        Ok(())
    }
}
