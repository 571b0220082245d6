//! Whether programs may open more files, and closing others to make room for them.

use std::sync::Arc;

use crate::credentials::Caller;
use crate::descriptors::PER_DESCRIPTION;
use crate::errno::Errno;
use crate::file_system::FileSystem;

impl FileSystem {
    /// Whether a program may open one more file or directory.
    ///
    /// # Errors
    /// EMFILE if the program holds more descriptors than are left for all; ENFILE if none are left.
    pub(crate) fn admit(self: &Arc<Self>, caller: &Caller) -> Result<(), Errno> {
        let check = || {
            let left = self.descriptors.left().saturating_sub(self.descriptors.reserve);
            if left <= PER_DESCRIPTION {
                Err(Errno::ENFILE)
            } else if self.descriptors.held_by(caller.pid) > left {
                Err(Errno::EMFILE)
            } else {
                Ok(())
            }
        };
        if self.descriptors_are_plenty() || check().is_ok() {
            return Ok(());
        }
        self.make_room();
        check()
    }

    /// Keeps the reserve when a known inode is to be held.
    ///
    /// # Errors
    /// ENFILE if only the reserve is left.
    pub(crate) fn spare_reserve(self: &Arc<Self>) -> Result<(), Errno> {
        // Half of the reserve: a file that may be opened must also be looked up.
        let check = || self.descriptors.left() > self.descriptors.reserve / 2;
        if self.descriptors_are_plenty() || check() {
            return Ok(());
        }
        self.make_room();
        if check() { Ok(()) } else { Err(Errno::ENFILE) }
    }

    fn descriptors_are_plenty(&self) -> bool {
        self.descriptors.are_plenty(self.inodes.held(), self.closing.len())
    }

    /// Closes descriptors that are held only to save reopening.
    pub(crate) fn make_room(self: &Arc<Self>) {
        self.inodes.let_go_idle();
        self.wait_for_descriptors(true);
        self.reclaimer.reclaim();
    }
}
