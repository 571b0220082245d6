//! Recoveries of real directories, on the file system that temporary directories are on.

mod cases;
mod cases_by_name;
mod changed;
mod continued;
mod crash;
mod crash_by_name;
mod damage;
mod damage_by_name;
mod logs;
mod model;
mod programs;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weir_names::tree::{Attributes, HomeError, Moment};

use super::*;
use crate::identity::handle_of;

pub(super) const LOG: Identity = [7; 16];

/// A SOURCE.
pub(super) struct Source {
    place: tempfile::TempDir,
    fd: fs::File,
}

impl Source {
    /// `None` on a file system without file handles: there names are not recovered.
    pub(super) fn new() -> Option<Source> {
        Source::at(tempfile::tempdir().unwrap())
    }

    /// In memory, where a sync costs nothing, if this system has such a place.
    pub(super) fn in_memory() -> Option<Source> {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Source::at(place.unwrap())
    }

    fn at(place: tempfile::TempDir) -> Option<Source> {
        let own = place.path().join(".weir");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        let fd = fs::File::open(place.path()).unwrap();
        let is_by_path = Naming::of(fd.as_fd()).unwrap().is_by_path();
        (!is_by_path).then_some(Source { place, fd })
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.path().join(name)
    }

    pub(super) fn handle(&self, name: &str) -> Vec<u8> {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
        let mode = rustix::fs::Mode::empty();
        handle_of(rustix::fs::open(self.path(name), flags, mode).unwrap().as_fd()).unwrap()
    }
}

pub(super) fn at(directory: u64, name: &str) -> Place {
    Place::new(NodeId(directory), name.as_bytes()).unwrap()
}

/// Attributes of a file with these permissions, of this user.
pub(super) fn attributes(mode: u32) -> Attributes {
    let uid = Some(rustix::process::geteuid().as_raw());
    let gid = Some(rustix::process::getegid().as_raw());
    let mtime = Some(Moment { seconds: 1_000_000_000, nanoseconds: 5 });
    Attributes { mode: Some(mode), uid, gid, atime: None, mtime }
}
