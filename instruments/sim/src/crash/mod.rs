//! Power cuts: the real engine and its redo log on devices that lose data that was not made durable.
//!
//! Programs write, rewrite, truncate, extend, punch and sync a few files, and are idle for a minute or two
//! now and then. At every request to a device, and at its completion, the devices are copied and the power is
//! cut there: durable data stays, and each other sector of 512 bytes is kept or lost at random. Or the daemon
//! is killed, and home keeps everything written to it. The log is then replayed to the remaining home (the replay
//! may also be stopped at a write and repeated), and the files are compared:
//!
//! - data that was acknowledged as synced is there;
//! - home has not gone back: no byte and no size is older than what home had, or after a power cut had
//!   durable;
//! - every byte was written there since, or is zero because of a truncation or a hole;
//! - the same holds after a power cut directly after recovery.
//!
//! In a third of the lives syncs of home fail now and then, as on Linux: some of what was not durable is
//! dropped, the error is reported once, and the next sync succeeds. In a sixth the log fails once and for
//! good: data synced before is still there, though home may go back to it.
//!
//! At the end of a life the devices themselves crash, and the next life continues with the recovered files.
//!
//! The model (`history`, `files`, `edit`) knows nothing of the log: it numbers every change to a file, and
//! knows for every byte at home which change it is from.

mod broken;
pub(crate) mod edit;
pub(crate) mod files;
pub(crate) mod history;
mod life;
pub(crate) mod log_disk;
mod plan;
mod tally;
mod undo;

use crate::rng::Rng;

pub use broken::{Broken, Crash};
pub use life::Life;
pub use plan::{Homes, Plan};
pub use tally::Tally;
pub use undo::Undo;

/// Runs a plan under one seed. The counts include what happened before a failure.
///
/// # Errors
/// The violated promise, if there is one.
pub fn run(seed: u64, plan: &Plan, tally: &mut Tally) -> Result<(), Broken> {
    let mut rng = Rng::new(seed);
    let mut life = Life::first(plan, &mut rng);
    for _ in 0..plan.lives {
        life.live(plan.operations, plan.sparse, &mut rng, tally)?;
        life = life.reborn(&mut rng, tally)?;
    }
    Ok(())
}
