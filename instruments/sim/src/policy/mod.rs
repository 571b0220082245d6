//! Policies, judged in seconds: the real engine under virtual time over a modelled drive, and the programs of
//! [`crate::side_by_side`] at work on it.
//!
//! What is real: every decision of the engine, every page in its memory, every command it gives. What is a
//! model: the drive ([`weir_drive`]); the way of a request to the engine and back ([`TRIP`], on so many [`PROCESSORS`]);
//! the file system at home, in which each file is one piece. What is not there: a kernel's page cache
//! before the engine, and its read-ahead and block layer behind it.
//!
//! | module | owns |
//! |---|---|
//! | `simulation` | the programs, their turns on the processors, virtual time, what comes out |
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
pub(crate) mod simulation;

use weir_drive::Model;
use weir_drive::parameters::{Ns, US};
use weir_engine::{Config, ConfigError, WriteBackPolicy};

use crate::side_by_side::{SideBySide, Unrunnable};

pub use outcome::{Class, Outcome, Sample};
pub use simulation::Simulation;

/// What a system call on the mount takes when the engine answers at once: a trip through FUSE and back.
pub const TRIP: Ns = 7 * US;
/// Trips there are at a time; who finds as many under way waits its turn.
pub const PROCESSORS: usize = 2;

/// One run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the programs do.
    pub load: SideBySide,
    /// On what.
    pub model: Model,
    /// The engine's bounds and policies.
    pub engine: Config,
    /// What goes wrong meanwhile.
    pub trouble: Option<Trouble>,
}

/// Something that goes wrong, in time since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The drive takes so many times as long for everything.
    Slow {
        /// Since then.
        from: Ns,
        /// Until then.
        until: Ns,
        /// How many times.
        times: u64,
    },
    /// The drive does nothing.
    Stall {
        /// Since then.
        from: Ns,
        /// Until then.
        until: Ns,
    },
    /// The clock that the engine is told the time from is ahead from then on, and the drive is not.
    ClockJump {
        /// When.
        at: Ns,
        /// By how much.
        by: Ns,
    },
}

/// A run that is not possible.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The load makes no sense.
    #[error(transparent)]
    Load(#[from] Unrunnable),
    /// The engine does not take its configuration.
    #[error(transparent)]
    Engine(#[from] ConfigError),
    /// There is no memory for its frames.
    #[error("no memory for the frames: {0}")]
    Memory(#[from] std::io::Error),
}

/// The engine as `weir mount --write-back POLICY` makes it, with so much memory.
pub fn engine(
    write_back: WriteBackPolicy,
    model: Model,
    memory_bytes: u64,
    patch_bytes: u64,
) -> Config {
    let usual = Config::default();
    Config {
        memory_bytes_max: memory_bytes,
        patch_bytes_max: patch_bytes,
        write_back,
        dirty_hard_percent: match write_back {
            WriteBackPolicy::Static => usual.dirty_hard_percent,
            WriteBackPolicy::Adaptive => Config::DIRTY_HARD_PERCENT_ADAPTIVE,
        },
        one_arm: model == Model::Hdd,
        opportunistic: write_back == WriteBackPolicy::Adaptive,
        ..usual
    }
}

/// Runs it to its end.
///
/// # Errors
/// The setup's.
pub fn run(setup: &Setup) -> Result<Outcome, SetupError> {
    Ok(Simulation::new(setup)?.finish())
}
