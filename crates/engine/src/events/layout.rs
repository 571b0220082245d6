//! Where files are on their device: the back end is asked when a request of the file is scheduled.

use std::time::Duration;

use crate::command::{Command, Extent};
use crate::device::home::Mapped;
use crate::device::transfer::Io;
use crate::engine::Engine;
use crate::place::FileIx;
use crate::waiters::freeze_state::FreezeState;

/// The least time between two questions about the same file, however often its layout changes.
const MAP_EVERY: Duration = Duration::from_secs(1);

/// Files shorter than this are not asked for: one request reaches all of them.
const MAPPED_BYTES_MIN: u64 = 1 << 20;

impl Engine {
    /// Asks where a file is, if that is useful and not known.
    pub(crate) fn ask_for_layout(&mut self, file: FileIx) {
        let of_file = &self.cache.files[file];
        let mapped = of_file.home.layout;
        let useful = self.config.rotational && of_file.home_size >= MAPPED_BYTES_MIN;
        let due = mapped.at.is_none_or(|at| mapped.stale && self.clock >= at + MAP_EVERY);
        if mapped.asked
            || !useful
            || !due
            || of_file.waiters.freeze != FreezeState::Thawed
            || of_file.discarded
        {
            return;
        }
        self.cache.files[file].home.layout =
            Mapped { asked: true, at: Some(self.clock), stale: false };
        let id = self.cache.files[file].id;
        let io = self.device.next_io(Io::Map { file });
        self.issue(Command::Map { io, file: id });
    }

    /// The back end said where a file is.
    pub(crate) fn mapped(&mut self, file: FileIx, extents: &[Extent]) {
        self.cache.files[file].home.io_in_flight -= 1;
        self.cache.files[file].home.layout.asked = false;
        self.device.layouts.set(file, extents);
    }
}
