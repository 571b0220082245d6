//! A mount by `weir mount` that is in the run's ledger.

use std::path::Path;
use std::process::Command;

use super::ledger::{Ledger, Listed, Thing};
use crate::error::{Doing, Result};
use crate::mount::WeirMount;

/// A directory served by Weir. Listed before it is made, struck after it is gone.
pub struct Served {
    mount: WeirMount,
    listed: Listed,
}

impl Served {
    /// Has `weir` serve `source` on `mountpoint`. The machine's configuration file is not read; `prepare` may change
    /// how the command, and with it the daemon, runs.
    pub fn start(
        ledger: &Ledger,
        weir: &Path,
        source: &Path,
        mountpoint: &Path,
        options: &[&str],
        prepare: impl FnOnce(&mut Command) -> Result<()>,
    ) -> Result<Served> {
        let listed = ledger.list(Thing::Weir {
            program: weir.canonicalize().doing("find", weir)?,
            source: source.to_owned(),
            mountpoint: mountpoint.to_owned(),
        })?;
        // No settings but these, whatever the machine's are.
        let options = [&["--config=/dev/null"], options].concat();
        let mount = WeirMount::start_by(weir, source, mountpoint, &options, prepare)?;
        Ok(Served { mount, listed })
    }

    /// The mount.
    pub fn mount(&self) -> &WeirMount {
        &self.mount
    }

    /// Writes everything home and unmounts; an error if anything failed.
    pub fn unmount(self) -> Result<()> {
        self.mount.unmount()?;
        self.listed.strike()
    }
}
