//! Comparing policies in virtual time: the real engine over a modelled drive, used by the programs of
//! [`crate::side_by_side`].
//!
//! Real are every decision of the engine, every page in its memory and every command. Models are the drive
//! ([`weir_drive`]), the path of a request to the engine and back ([`TRIP`], on [`PROCESSORS`] processors), and the file
//! system at home, in which each file is contiguous. There is no page cache of a kernel before the engine, and no
//! read-ahead or block layer behind it.
//!
//! | module | owns |
//! |---|---|
//! | `simulation` | the programs, their turns on the processors, virtual time, what comes out |
//! | `setup` | what one run is: load, drive, engine, what goes wrong |
//! | `program` | one reader or writer |
//! | `machine` | the engine and what it has under way |
//! | `device` | the drive, and what goes wrong with it |
//! | `files` | where each file is on the drive, and what each page holds |
//! | `outcome` | the figures |
//!
//! Invariants: one [`Setup`] has one [`Outcome`]; engine time never goes back; what a program reads is what was
//! last written there, and what came home is what was given to the device, by a number in each page.

mod device;
mod files;
mod machine;
mod outcome;
pub(crate) mod program;
mod setup;
pub(crate) mod simulation;

pub use outcome::{Class, Outcome, Sample};
pub use setup::{PROCESSORS, Setup, SetupError, TRIP, Trouble, engine};
pub use simulation::Simulation;

/// Runs it to its end.
///
/// # Errors
/// The setup's.
pub fn run(setup: &Setup) -> Result<Outcome, SetupError> {
    Ok(Simulation::new(setup)?.finish())
}
