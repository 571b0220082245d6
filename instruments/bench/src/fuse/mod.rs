//! Through FUSE: Weir against the directory it serves, and against a plain passthrough written with
//! the same crate. Both sides of a comparison run in turn, on the same disk, in one run.

mod cached_read;
mod cold_write;
mod sequential;
mod transports;

use std::path::Path;

pub use self::sequential::RATES;

use crate::error::Result;
use crate::mount::require_fuse;
use crate::report::Report;

/// Runs all of it.
pub fn run(weir: &Path, dir: &Path, report: &mut Report) -> Result<()> {
    require_fuse()?;
    cold_write::run(weir, dir, report)?;
    transports::run(weir, dir, report)?;
    cached_read::run(weir, dir, report)?;
    sequential::run(weir, dir, report)
}
