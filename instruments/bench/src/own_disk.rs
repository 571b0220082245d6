//! What benchmarks of this machine's own disk are given.

use std::path::PathBuf;

/// The program, the disk, and where the results go.
#[derive(clap::Args)]
pub struct OwnDisk {
    /// The weir program; by default the one beside this program, or on PATH.
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Where to work, on the disk to be measured. A directory of its own is made in it and
    /// removed at the end.
    #[arg(long, value_name = "WORKDIR", default_value = ".")]
    pub dir: PathBuf,
    /// Also write the results here.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
