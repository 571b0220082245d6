//! Power cuts under names and data together: the real tree of names, the real engine with its log, and the real replay, over a
//! home that forgets.
//!
//! Programs make, link, rename, exchange and remove files, directories, symbolic links and FIFOs, set attributes, write, truncate and
//! sync. At any request to home or to the log, and between its execution and its answer, the devices are copied and the power is cut
//! there, or the daemon is killed. Home (`home`) keeps or loses each change that no sync covered; the log keeps or loses each
//! sector. Then home is recovered (`recovery`), which is itself cut, again and again, and what is found is compared with
//! what programs saw and were promised (`seen`, `crashes`).
//!
//! Homes have file handles that last. They refuse (EACCES, ENOSPC, EROFS, EDQUOT) for a while or to the end of a life, take no more
//! inodes or bytes, and fail to sync, in some of the lives. `life` joins the tree and the engine as the mount does, in one thread.
//!
//! Checked, by the numbers of the invariants in a failure:
//! 1. names and attributes are as at a moment that is not before the last acknowledged sync, and each file has the bytes that were
//!    synced, or later ones;
//! 2. names and attributes are as at one moment, and a name that replaced another leads to what the file had then, or later;
//! 3. names, attributes, bytes and sizes are not older than home had them: durably, if the power was cut;
//! 4. each byte was written there, or is zero where that is permitted (a failure of 1 says that it may be this);
//! 5. 1 to 3 hold where syncs of home fail and drop what they covered;
//! 6. when the log's tail goes on, each change before it is durable at home, or there is a later one of the same name or
//!    attributes behind the tail;
//! 7. if everything is logged (`Plan::order`): names and the bytes of all files together are as at one time, not before the last
//!    acknowledged sync (`timeline`).
//!
//! Neither the home nor the checks know the tree or the log: they are plain file systems (`plain`), histories of bytes
//! (`crash::history`), and moments. Two exceptions: a change of programs is told to the checks with its place in the log, which
//! only 6 asks for; and home uses the tree's words for what is changed.
//!
//! Not modelled: homes without lasting handles (tests of `weir_backend::recovery_names` cut those); open files without a
//! name; extended attributes; times that change by writing; what others change at home; the back end's own recovery, in
//! whose place `recovery` does the same over the simulated home.

mod broken;
mod crashes;
mod devices;
mod home;
mod inodes;
mod life;
mod names_home;
mod plain;
mod plan;
mod programs;
mod recovery;
mod rest;
mod seen;
mod tally;
mod timeline;
mod undo;

use crate::rng::Rng;
use life::Life;

pub use broken::{Broken, Cut};
pub use plan::Plan;
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
        life.live(&mut rng, tally)?;
        life = life.reborn(&mut rng, tally)?;
    }
    Ok(())
}
