//! What a stage needs of the machine, looked at before anything is made.

use std::fs;
use std::path::Path;

use super::cgroup;
use super::file_system::Kind;
use crate::error::{Error, Result};
use crate::mount::{find_program, require_fuse};

/// Fails, saying what to do, where emulated disks, mounts or memory limits cannot be had.
pub fn require(kind: Kind) -> Result<()> {
    require_root("mounting emulated disks")?;
    require_fuse()?;
    require_loop_devices(Path::new("/dev/loop-control"))?;
    require_maker(kind)?;
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

fn require_maker(kind: Kind) -> Result<()> {
    let maker = kind.maker();
    if find_program(maker).is_some() {
        return Ok(());
    }
    let package = match kind {
        Kind::Ext4 => "e2fsprogs",
        Kind::Xfs => "xfsprogs",
    };
    Err(Error::Missing {
        what: format!("the program {maker} is missing"),
        remedy: format!("install the package '{package}', or run 'make setup' as root"),
    })
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
