//! What a stage needs of the machine, looked at before anything is made.

use std::fs;
use std::path::Path;

use super::cgroup;
use super::file_system::MAKER;
use crate::error::{Error, Result};
use crate::mount::{require_fuse, require_program};

/// Fails, saying what to do, where emulated disks, mounts or memory limits cannot be had.
pub fn require() -> Result<()> {
    require_root("mounting emulated disks")?;
    require_fuse()?;
    require_loop_devices(Path::new("/dev/loop-control"))?;
    require_program(MAKER, "e2fsprogs")?;
    cgroup::require()
}

/// Fails for anybody but root.
pub fn require_root(purpose: &str) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("{purpose} needs root"),
        remedy: "run it with sudo, or in a container started with '--privileged'".into(),
    })
}

fn require_loop_devices(control: &Path) -> Result<()> {
    match fs::OpenOptions::new().read(true).write(true).open(control) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Missing {
            what: format!("there are no loop devices ({}: {error})", control.display()),
            remedy: "run 'modprobe loop' as root, or start the container with '--privileged'"
                .into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let error = require_loop_devices(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("no loop devices") && error.contains("modprobe loop"), "{error}");
    }
}
