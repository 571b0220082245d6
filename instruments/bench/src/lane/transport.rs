//! FUSE by the kernel's two ways, the device and io_uring: small writes to pages in memory, without the lane.
//!
//! The kernel has the second one off until root turns it on; it is turned on for the run, and put back.

use std::fs;
use std::path::Path;

use super::plan::{Form, calls};
use super::results::{Case, DEVICE, Figure, IO_URING};
use super::side::{Side, Stand};
use crate::cleanup::{Undo, undo};
use crate::error::Result;
use crate::measure::turn;
use crate::workload::tree::clear;
use crate::workload::{Call, Calls, Outcome, Where, Workload};

/// As it is called in results.
pub const NAME: &str = "transport/64";
const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";
/// See Documentation/admin-guide/sysctl/kernel.rst.
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";
/// Both.
pub const SIDES: [&str; 2] = [DEVICE, IO_URING];

/// The one that is `wanted`, or else the device, and what puts back what was turned on for it.
pub fn choose(wanted: &str, passed_over: &mut Vec<String>) -> (&'static str, Option<Undo>) {
    if wanted == DEVICE {
        return (DEVICE, None);
    }
    match enable() {
        Ok(put_back) => (IO_URING, put_back),
        Err(why) => {
            passed_over.push(format!("FUSE over io_uring, for all mounts: {why}"));
            (DEVICE, None)
        }
    }
}

/// Turns it on; what puts it back, if that is needed.
fn enable() -> std::result::Result<Option<Undo>, String> {
    let setting = Path::new(SETTING);
    if fs::read_to_string(DISABLED).is_ok_and(|level| level.trim() == "2") {
        return Err("this system allows no io_uring".into());
    }
    match fs::read_to_string(setting) {
        Err(_) => Err("this kernel has no FUSE over io_uring".into()),
        Ok(text) if text.starts_with('Y') => Ok(None),
        Ok(_) => {
            let put_back = undo(|| drop(fs::write(SETTING, "N")));
            fs::write(setting, "Y")
                .map_err(|_| format!("root has not turned it on in {SETTING}"))?;
            Ok(Some(put_back))
        }
    }
}

/// Measures it; or says why it cannot be.
pub fn measure(stand: &Stand, form: Form) -> Result<std::result::Result<Case, String>> {
    let _put_back = match enable() {
        Ok(undo) => undo,
        Err(why) => return Ok(Err(why)),
    };
    let workload = Workload::Calls(Calls {
        seconds: form.seconds / 2.0,
        timed_seconds: form.seconds,
        seed: 3,
        ..calls(Call::Write, Where::Random, 64, form)
    });
    workload.prepare(&stand.source())?;
    let mut case = Case::new(NAME, Figure::Median, SIDES);
    case.io_bytes = Some(64);
    for round in 0..form.rounds {
        for side in turn(round, SIDES.len()) {
            let mount = match stand.mount_by(SIDES[side]) {
                Ok(mount) => mount,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let outcome: Outcome = stand.ask(Side::Fuse, "load", mount.path(), &workload)?;
            mount.unmount()?;
            workload.verify(&stand.source(), &outcome)?;
            workload.reset(&stand.source(), &outcome)?;
            case.note(side, &outcome, "write", 0.0)?;
        }
    }
    clear(&stand.source())?;
    Ok(Ok(case))
}
