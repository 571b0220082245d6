//! Emulated disks: block devices with the timing of storage this machine does not have.
//!
//! A disk is an image file served by a process of its own (`weir-bench disk serve`) as the one file
//! of a FUSE mount, under a loop device with direct I/O. File systems are made on the loop device
//! as on any other. Requests go down like this:
//!
//! | layer | does |
//! |---|---|
//! | block layer, loop driver | the scheduler of the drive; asynchronous direct I/O on the file below |
//! | [`server`] | receives them from FUSE, answers each when it is due |
//! | `weir-drive` | what a request means and when it is complete, over the [`image`] |
//!
//! A [`Disk`] owns the server process, its mount and its loop device, and not the image: that is
//! the caller's, and keeps what is durable. What is mounted on the device must be unmounted first.

pub mod attach;
mod check;
pub mod command;
mod control;
mod image;
mod server;
mod way;

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_drive::{PAGE_BYTES, parameters};

pub use weir_drive::{Counts, Model, pass};

use self::control::Ask;
use crate::cleanup::{Undo, undo};
use crate::cold::free_bytes;
use crate::error::{Doing, Error, Result};
use crate::mount::{force_unmount, require_fuse};
use crate::soon::soon;

/// The smallest disk: less holds no file system.
const BYTES_MIN: u64 = 1 << 20;
/// The name of the mount in a disk's directory.
const MOUNTPOINT: &str = "fuse";
/// How long the server may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a device may take to be detached, and a server to end, before it is ended.
const TAKE_DOWN_TIME: Duration = Duration::from_secs(2);

/// A running emulated disk. It is stopped, detached and unmounted when this goes, or on a signal.
pub struct Disk {
    device: PathBuf,
    directory: PathBuf,
    pid: u32,
    _undo: Undo,
}

impl Disk {
    /// Starts one of `bytes` with the content of `image`, which is made, empty, if it is not there.
    /// Its mount and its control socket go into `directory`. It is paced from the start.
    pub fn start(model: Model, image: &Path, bytes: u64, directory: &Path) -> Result<Disk> {
        require_root()?;
        require_fuse()?;
        let directory = directory.canonicalize().doing("find", directory)?;
        let image = prepare_image(model, image, bytes)?;
        let mountpoint = directory.join(MOUNTPOINT);
        fs::create_dir_all(&mountpoint).doing("create", &mountpoint)?;
        let child = spawn_server(model, &image, bytes, &directory)?;
        let pid = child.id();
        let parts = Arc::new(Mutex::new(Parts { child, mountpoint, device: None }));
        let undo = {
            let parts = parts.clone();
            undo(move || parts.lock().unwrap_or_else(PoisonError::into_inner).take_down())
        };
        let mut held = parts.lock().unwrap_or_else(PoisonError::into_inner);
        held.wait_for_server(&directory)?;
        let device = attach::attach(&held.mountpoint.join(server::FILE))?;
        held.device = Some(device.clone());
        drop(held);
        attach::tune(&device, model);
        let disk = Disk { device, directory, pid, _undo: undo };
        disk.set_paced(false)?;
        control::order(&disk.directory, Ask::Delay { ns: way::DELAY })?;
        let ways = way::measure(&disk.device)?;
        control::order(&disk.directory, Ask::Delay { ns: 0 })?;
        control::order(&disk.directory, Ask::SetWays { ways })?;
        disk.set_paced(true)?;
        Ok(disk)
    }

    /// The block device: a loop device in /dev.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The process that serves it.
    pub fn server_pid(&self) -> u32 {
        self.pid
    }

    /// What it did so far.
    pub fn counts(&self) -> Result<Counts> {
        control::counts(&self.directory)
    }

    /// Ends all delays, for preparing and verifying, or begins them again. Either way everything
    /// that is under way or in the drive's cache is made durable first, and the drive is at rest.
    pub fn set_paced(&self, on: bool) -> Result<()> {
        control::order(&self.directory, Ask::SetPaced { on })
    }

    /// Lets the kernel's page cache hold `bytes` dirty bytes of this disk before it throttles
    /// writers, and half as many before it writes back.
    pub fn bound_dirty(&self, bytes: u64) -> Result<()> {
        attach::bound_dirty(&self.device, bytes)
    }

    /// Detaches the device and ends the server; an error if something still uses the device.
    pub fn stop(self) -> Result<()> {
        let device = self.device.clone();
        drop(self);
        if !attach::attached(&device) {
            return Ok(());
        }
        Err(Error::Missing {
            what: format!("{} was still in use when its disk was stopped", device.display()),
            remedy: "unmount what is on it; it is detached then".into(),
        })
    }
}

/// Puts back what was durable on the disk in `directory`. What the kernel still holds for the device is
/// written, and fails, while the power is off: it must not reach the disk after the cut.
fn restore(device: &Path, directory: &Path) -> Result<()> {
    attach::drop_buffers(device)?;
    control::order(directory, Ask::Restore)
}

/// What must be taken away in the end.
struct Parts {
    child: Child,
    mountpoint: PathBuf,
    device: Option<PathBuf>,
}

impl Parts {
    fn wait_for_server(&mut self, directory: &Path) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mounted = self.mountpoint.join(server::FILE).exists();
            if mounted && control::counts(directory).is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().doing("wait for", Path::new("the disk's server"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(Error::Command {
                    command: "weir-bench disk serve".into(),
                    status: ended.map_or("no answer in 10 s".into(), |status| status.to_string()),
                    said: "its own message is above".into(),
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes everything down, in an order that works whatever is still in use: the loop device first, since it
    /// holds the mount; then the mount; then the server, whose end fails what is left under way.
    fn take_down(&mut self) {
        if let Some(device) = self.device.take() {
            attach::detach(&device);
            soon(TAKE_DOWN_TIME, || !attach::attached(&device));
        }
        force_unmount(&self.mountpoint);
        soon(TAKE_DOWN_TIME, || !matches!(self.child.try_wait(), Ok(None)));
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.mountpoint);
    }
}

fn require_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Missing {
        what: "only root can attach loop devices, which emulated disks are made of".into(),
        remedy: "run this as root".into(),
    })
}

/// Makes the image, or checks the one that is there; its absolute path.
fn prepare_image(model: Model, image: &Path, bytes: u64) -> Result<PathBuf> {
    let bad = |what: String| Error::Missing {
        what,
        remedy: "give a multiple of 4096 bytes that the model and the image have".into(),
    };
    let largest = match model {
        Model::Hdd => parameters::hdd::DRIVE_BYTES,
        Model::Ssd => parameters::ssd::DRIVE_BYTES,
        Model::Remote | Model::None => u64::MAX >> 1,
    };
    if bytes < BYTES_MIN || !bytes.is_multiple_of(PAGE_BYTES) || bytes > largest {
        return Err(bad(format!("an emulated {model} disk cannot have {bytes} bytes")));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(image)
        .doing("open the image", image)?;
    let metadata = file.metadata().doing("look at the image", image)?;
    if metadata.len() == 0 {
        let free = free_bytes(image)?;
        if free < bytes {
            let _ = fs::remove_file(image);
            return Err(Error::Missing {
                what: format!(
                    "{} is on a disk with {} MiB free and the emulated disk has {} MiB",
                    image.display(),
                    free >> 20,
                    bytes >> 20
                ),
                remedy: "make room, or give another directory".into(),
            });
        }
        file.set_len(bytes).doing("make the image", image)?;
    } else if metadata.len() != bytes {
        let has = metadata.len();
        return Err(bad(format!("{} has {has} bytes and not {bytes}", image.display())));
    }
    image.canonicalize().doing("find", image)
}

fn spawn_server(model: Model, image: &Path, bytes: u64, directory: &Path) -> Result<Child> {
    let own = std::env::current_exe().doing("find", Path::new("this program"))?;
    Command::new(&own)
        .args(["disk", "serve", "--model", &model.to_string(), "--bytes", &bytes.to_string()])
        .arg("--image")
        .arg(image)
        .arg("--dir")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .doing("run", &own)
}
