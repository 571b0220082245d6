//! The loop device over a disk's file, and the settings that make the kernel treat it as the drive
//! it stands for.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_drive::parameters;

use super::Model;
use crate::error::{Doing, Error, Result};
use crate::mount_table::loop_devices;

/// linux/fs.h: flush and drop a device's buffers.
const BLKFLSBUF: libc::Ioctl = 0x1261;
/// The queue of a loop device that nobody tuned.
const LOOP_QUEUE: &str = "128";

/// Attaches a loop device with direct I/O to `file`; its name in /dev.
pub fn attach(file: &Path) -> Result<PathBuf> {
    let output = Command::new("losetup")
        .args(["--find", "--show", "--direct-io=on", "--sector-size", "512"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .doing("run", Path::new("losetup"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Error::Missing {
            what: format!("no loop device for an emulated disk ({})", said.trim()),
            remedy: "run as root where loop devices are ('modprobe loop'; in a container, pass \
                     /dev/loop-control and the devices)"
                .into(),
        });
    }
    let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let direct = fs::read_to_string(setting(&device, "loop/dio")).unwrap_or_default();
    if direct.trim() != "1" {
        detach(&device);
        return Err(Error::Missing {
            what: format!("{} cannot do direct I/O on the disk's file", device.display()),
            remedy: "use a kernel whose FUSE has asynchronous direct I/O (Linux 6.6 or later)"
                .into(),
        });
    }
    Ok(device)
}

/// Whether a device has something attached.
pub fn attached(device: &Path) -> bool {
    setting(device, "loop").exists()
}

/// The device whose content is `file`, if there is one.
pub fn device_of(file: &Path) -> Option<PathBuf> {
    loop_devices().find(|(_, backing)| backing == file).map(|(device, _)| device)
}

/// Has the kernel write, or fail to write, what it holds for a device, and forget the rest.
pub fn drop_buffers(device: &Path) -> Result<()> {
    let opened = File::open(device).doing("open", device)?;
    // SAFETY: the descriptor is open, and BLKFLSBUF takes no argument.
    unsafe { libc::ioctl(opened.as_raw_fd(), BLKFLSBUF, 0) };
    Ok(())
}

/// Detaches a device, or has the kernel do it when its last user is gone.
pub fn detach(device: &Path) {
    let _ = fs::write(setting(device, "queue/scheduler"), "none");
    let _ = fs::write(setting(device, "queue/nr_requests"), LOOP_QUEUE);
    // They stay with the device's name, for the next program that attaches it.
    let _ = fs::write(setting(device, "bdi/strict_limit"), "0");
    let _ = fs::write(setting(device, "bdi/max_ratio"), "100");
    let _ = Command::new("losetup").arg("-d").arg(device).stdin(Stdio::null()).output();
}

/// Lets the page cache hold `bytes` dirty bytes of the device before it throttles writers;
/// write-back begins at half of it, as with the kernel's ratios.
///
/// # Errors
/// The kernel bounds dirty pages of the whole machine alone.
pub fn bound_dirty(device: &Path, bytes: u64) -> Result<()> {
    let set = |name: &str, value: String| fs::write(setting(device, name), value);
    set("bdi/max_bytes", bytes.to_string())
        .and_then(|()| set("bdi/strict_limit", "1".into()))
        .map_err(|error| Error::Missing {
            what: format!("the dirty pages of {} cannot be bounded ({error})", device.display()),
            remedy: "use a kernel with /sys/class/bdi/*/strict_limit (Linux 6.2 or later)".into(),
        })
}

/// Gives the device's queue what Linux gives the drive: the scheduler, whether it rotates, and no
/// more commands than the drive's queue has places. The last is refused by kernels that cannot; the
/// model then leaves what is too much waiting in the order it came.
pub fn tune(device: &Path, model: Model) {
    let set = |name: &str, value: &str| {
        let _ = fs::write(setting(device, name), value);
    };
    let (rotates, queue, scheduler) = match model {
        Model::Hdd => ("1", Some(parameters::hdd::QUEUE), "mq-deadline"),
        Model::Ssd => ("0", Some(parameters::ssd::QUEUE), "mq-deadline"),
        Model::Remote => ("0", Some(parameters::remote::QUEUE), "none"),
        Model::None => ("0", None, "none"),
    };
    set("queue/rotational", rotates);
    // Without a scheduler the number is that of the device's own queue; the scheduler that is set
    // after it has one of its own above.
    set("queue/scheduler", "none");
    if let Some(queue) = queue {
        set("queue/nr_requests", &queue.to_string());
    }
    if scheduler != "none" {
        set("queue/scheduler", scheduler);
    }
}

/// A file of a device in sysfs.
fn setting(device: &Path, name: &str) -> PathBuf {
    let device = device.file_name().unwrap_or_default();
    Path::new("/sys/block").join(device).join(name)
}
