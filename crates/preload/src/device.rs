//! The FUSE file systems on which files were found, and which of them have a daemon with a lane.
//!
//! A daemon is asked for its socket's name when the first file of its device is found ([`of`]). [`crate::attach`]
//! connects to it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use weir_lane::wire::{FIND, Found, MESSAGE_BYTES};

use crate::report;
use crate::session::posts;
use crate::sys::{self, Errno};

/// Most file systems without a block device that are remembered; files on further ones are left to the kernel.
const DEVICES: usize = 32;
/// The type of FUSE file systems (statfs(2)).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
/// States of a device. [`CLIENT`] and above: connected, as the client of index `state - CLIENT`.
const UNKNOWN: u32 = 0;
const OTHER: u32 = 1;
const LANE: u32 = 2;
const NO_LANE: u32 = 3;
const CLIENT: u32 = 4;

/// A file system, by its device number.
pub(crate) struct Device {
    /// stat(2)'s, plus one; 0: the place is free.
    number: AtomicU64,
    state: AtomicU32,
    /// The name of the daemon's socket, its length first.
    name: [AtomicU8; MESSAGE_BYTES],
    /// The proof that the daemon will send ([`Found`]).
    proof: AtomicU64,
    /// Connecting before a fork failed, by a name that may be old.
    is_unreachable: AtomicBool,
    /// New files may not be posted to at first: space is reserved for what they grow by.
    reserves: AtomicBool,
    /// In a session: the index of its mount there, plus one; 0: it is none that the session knows.
    mount: AtomicU32,
}

static DEVICES_ALL: [Device; DEVICES] = [const {
    Device {
        number: AtomicU64::new(0),
        state: AtomicU32::new(UNKNOWN),
        name: [const { AtomicU8::new(0) }; MESSAGE_BYTES],
        proof: AtomicU64::new(0),
        is_unreachable: AtomicBool::new(false),
        reserves: AtomicBool::new(false),
        mount: AtomicU32::new(0),
    }
}; DEVICES];

/// The device of a regular file, if it is a FUSE file system.
pub(crate) fn of(fd: c_int, number: u64) -> Option<u32> {
    if libc::major(number) != 0 {
        return None;
    }
    let index = place(number + 1)?;
    let device = &DEVICES_ALL[index];
    if device.state.load(Ordering::Relaxed) == UNKNOWN {
        let is_fuse = sys::file_system(fd) == Ok(FUSE_SUPER_MAGIC);
        if is_fuse {
            report::begin();
        }
        let state = match is_fuse.then(|| device.find(fd)) {
            None => OTHER,
            Some(Ok(())) => LANE,
            Some(Err(_)) => NO_LANE,
        };
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        let _ = device.state.compare_exchange(UNKNOWN, state, success, failure);
    }
    match device.state.load(Ordering::Relaxed) {
        OTHER => None,
        // Files without a lane are only counted, and only if this process counts.
        NO_LANE if report::program().is_none() => None,
        _ => Some(index as u32),
    }
}

fn place(number: u64) -> Option<usize> {
    DEVICES_ALL.iter().position(|device| {
        let kept = device.number.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        kept.is_ok() || kept == Err(number)
    })
}

/// Whether this process is a client of the device's daemon.
#[inline]
pub(crate) fn is_connected(device: u32) -> bool {
    DEVICES_ALL[device as usize].state.load(Ordering::Relaxed) >= CLIENT
}

/// Whether new files on the device may not be posted to at first, as far as is known.
pub(crate) fn reserves(device: u32) -> bool {
    DEVICES_ALL[device as usize].reserves.load(Ordering::Relaxed)
}

/// Whether the device has a lane.
pub(crate) fn has_lane(device: u32) -> bool {
    DEVICES_ALL[device as usize].state.load(Ordering::Relaxed) != NO_LANE
}

/// The device by its index in a description.
pub(crate) fn at(index: u32) -> &'static Device {
    &DEVICES_ALL[index as usize]
}

/// All devices, each with its index in descriptions.
pub(crate) fn all() -> impl Iterator<Item = (u32, &'static Device)> {
    (0..).zip(&DEVICES_ALL)
}

impl Device {
    /// Asks the daemon for its socket's name and proof. In a session only daemons of its mounts are asked: others are outside.
    pub(crate) fn find(&self, fd: c_int) -> sys::Result<()> {
        let mount = posts::mount_of(fd);
        self.mount.store(mount.map_or(0, |index| index as u32 + 1), Ordering::Relaxed);
        if posts::is_in_session() && mount.is_none() {
            return Err(Errno(libc::EPERM));
        }
        let mut message = [0; MESSAGE_BYTES];
        sys::ioctl(fd, FIND, &mut message)?;
        let name = Found::socket_in(&message).ok_or(Errno(libc::EPROTO))?;
        self.proof.store(Found::proof_in(&message), Ordering::Relaxed);
        self.name[0].store(name.len() as u8, Ordering::Relaxed);
        for (to, from) in self.name[1..].iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// In a session the index of its mount there. The descriptor is of a file that is on the device.
    pub(crate) fn mount_in_session(&self, fd: c_int) -> Option<usize> {
        let mount = posts::mount_of(fd)?;
        (self.mount.load(Ordering::Relaxed) as usize == mount + 1).then_some(mount)
    }

    /// The same of a descriptor that was attached, and so was on this mount.
    #[inline]
    pub(crate) fn mount(&self) -> Option<usize> {
        (self.mount.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// The name of the daemon's socket, its length first, and the daemon's proof.
    pub(crate) fn daemon(&self) -> ([u8; MESSAGE_BYTES], u64) {
        let name = std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed));
        (name, self.proof.load(Ordering::Relaxed))
    }

    /// The client of its daemon, if the process is or was connected; an error if it has no lane.
    pub(crate) fn client(&self) -> sys::Result<Option<usize>> {
        match self.state.load(Ordering::Relaxed) {
            NO_LANE => Err(Errno(libc::ENOTTY)),
            state => Ok(state.checked_sub(CLIENT).map(|index| index as usize)),
        }
    }

    /// Notes whether new files may not be posted to at first, as one showed when it was attached.
    pub(crate) fn set_reserves(&self, reserves: bool) {
        self.reserves.store(reserves, Ordering::Relaxed);
    }

    /// It is connected from now on, as the client of that index.
    pub(crate) fn set_client(&self, index: usize) {
        self.state.store(CLIENT + index as u32, Ordering::Relaxed);
    }

    /// It has no lane that this process can use.
    pub(crate) fn set_without_lane(&self) {
        self.state.store(NO_LANE, Ordering::Relaxed);
    }

    /// It is not connected any more. Other processes can still use its lane.
    pub(crate) fn disconnect(&self) {
        if self.state.load(Ordering::Relaxed) >= CLIENT {
            self.state.store(LANE, Ordering::Relaxed);
        }
    }

    /// Whether it has a lane that this process is not connected to, and that should be tried before a fork.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.state.load(Ordering::Acquire) == LANE && !self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Connecting is not tried again before forks. A use of a file asks for the daemon's name again.
    pub(crate) fn set_unreachable(&self) {
        self.is_unreachable.store(true, Ordering::Relaxed);
    }
}
