//! The arguments of `weir doctor`, and its manual.

use std::path::PathBuf;

use crate::bucket::BucketOptions;

use clap::Args;

/// What `weir doctor` is for.
pub(super) const DOCTOR: &str = "\
Say what this machine has and lacks for Weir, and how to mend it: FUSE, FUSE over io_uring, io_uring, limits, what 'weir run' \
needs, mounts whose daemon does not answer, and redo logs that hold data which SOURCE lacks. With SOURCE also what kind of home \
it is and where its log would be, with MOUNTPOINT also whether SOURCE can be mounted there with the settings that the \
configuration files have for it.

Each line begins with 'ok', 'note' (a mount works, but something is slower or missing) or 'problem' (a mount would fail). \
Nothing is changed. It says what holds for the user who runs it: run it as the user who will mount.";

/// Its examples and exit statuses.
pub(super) const DOCTOR_AFTER: &str = "\
JSON:
  weir_version, source, mountpoint, ready (there is no problem), findings: an array of
    check   what was looked at, the same word in every version
    level   \"ok\", \"note\" or \"problem\"
    found   what was found, a sentence
    mend    the command that mends it, or what to do; left out where there is nothing to mend
  Checks and fields may be added; none changes its meaning.

EXAMPLES:
  weir doctor
  weir doctor /srv/data /mnt/data
  weir doctor --json | jq -r '.findings[] | select(.level != \"ok\") | .mend'

EXIT STATUS:
  0  nothing stands in the way of a mount
  1  something does: the lines that begin with 'problem'
  2  the command line is invalid";

/// Arguments of `weir doctor`.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// The directory to be served, or s3://BUCKET/PREFIX
    pub source: Option<PathBuf>,
    /// The directory that it is to appear at
    pub mountpoint: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub bucket: BucketOptions,
}
