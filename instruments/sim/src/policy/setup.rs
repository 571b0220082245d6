//! The setup of one run: the load, the drive, the engine, and the faults.

use weir_drive::Model;
use weir_drive::parameters::{Ns, US};
use weir_engine::{Config, ConfigError, WriteBackPolicy};

use crate::side_by_side::{SideBySide, Unrunnable};

/// The time of a system call on the mount that the engine answers at once: a trip through FUSE and back.
pub const TRIP: Ns = 7 * US;
/// Most trips at a time; further requests wait for their turn.
pub const PROCESSORS: usize = 2;

/// One run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The load of the programs.
    pub load: SideBySide,
    /// The drive.
    pub model: Model,
    /// The engine's bounds and policies.
    pub engine: Config,
    /// The faults.
    pub trouble: Option<Trouble>,
}

/// A fault. Times are since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The drive takes several times as long for everything.
    Slow {
        /// When it begins.
        from: Ns,
        /// When it ends.
        until: Ns,
        /// The factor.
        times: u64,
    },
    /// The drive does nothing.
    Stall {
        /// When it begins.
        from: Ns,
        /// When it ends.
        until: Ns,
    },
    /// The engine's clock is ahead from then on; the drive's is not.
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
    /// The engine refuses its configuration.
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
        rotational: model == Model::Hdd,
        opportunistic: write_back == WriteBackPolicy::Adaptive,
        ..usual
    }
}
