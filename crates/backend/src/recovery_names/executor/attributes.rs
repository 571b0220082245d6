//! Attributes of what a recovery makes, or finds.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::fstat;
use weir_names::NodeId;
use weir_names::command::{NameCommand, SetTime};
use weir_names::tree::{Attributes, Change, HomeError, Kind, Moment, Tree, Xattrs};

use super::{ACCESS_ACL, DEFAULT_ACL, Executor, failed, gone};

impl Executor<'_> {
    /// Sets permissions and times of directories. To be called when nothing is to be done in them any more. What home
    /// refused.
    pub(crate) fn finish_directories(&mut self) -> Vec<(NodeId, HomeError)> {
        let directories = std::mem::take(&mut self.directories);
        let mut refused = Vec::new();
        // Those that were made later, and may be below the others, first.
        for (node, attributes) in directories.into_iter().rev() {
            let set = self.inodes.open(node, None).map_err(gone).and_then(|inode| {
                self.set_mode_and_times(inode.as_fd(), &attributes).map_err(failed)
            });
            match set {
                // Removed meanwhile: nobody will see them.
                Ok(()) | Err(HomeError::Gone) => {}
                Err(error) => refused.push((node, error)),
            }
        }
        refused
    }

    /// What was made has not all its attributes: that is tried again by itself, and reported if home refuses it.
    pub(super) fn set_later(
        &mut self,
        tree: &mut Tree,
        node: NodeId,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) {
        let changes = xattrs.iter().map(|(name, value)| {
            let (name, value) = (name.clone(), value.clone());
            Change::SetXattr { node, name, value }
        });
        let attributes = Change::Set { node, attributes: *attributes };
        for change in changes.chain([attributes]).collect::<Vec<_>>() {
            let lsn = self.next_lsn();
            tree.apply(change, lsn);
        }
    }

    /// Removes the ACLs that a new inode got from its directory: the log says which it has. Permissions are set after that.
    pub(super) fn remove_inherited(&self, inode: BorrowedFd<'_>, kind: &Kind) {
        let names: &[&str] = match kind {
            // It has none of its own.
            Kind::Symlink(_) => &[],
            Kind::Directory => &[ACCESS_ACL, DEFAULT_ACL],
            _ => &[ACCESS_ACL],
        };
        for name in names.iter().map(OsStr::new) {
            // Most have none.
            let _ = self.at_home(NameCommand::RemoveXattr { inode, name });
        }
    }

    pub(super) fn set(
        &mut self,
        node: NodeId,
        kind: &Kind,
        inode: BorrowedFd<'_>,
        attributes: &Attributes,
        xattrs: &Xattrs,
    ) -> io::Result<()> {
        if matches!(kind, Kind::Symlink(_)) && !self.home.sets_links() {
            return Ok(());
        }
        let status = fstat(inode)?;
        // Not every home changes the owner of everything.
        let uid = attributes.uid.filter(|uid| *uid != status.st_uid);
        let gid = attributes.gid.filter(|gid| *gid != status.st_gid);
        if uid.is_some() || gid.is_some() {
            self.at_home(NameCommand::SetOwner { inode, uid, gid })?;
        }
        for (name, value) in xattrs {
            let name = OsStr::from_bytes(name);
            let set = self.at_home(match value {
                Some(value) => NameCommand::SetXattr { inode, name, value, flags: 0 },
                None => NameCommand::RemoveXattr { inode, name },
            });
            match set {
                Err(error) if value.is_none() && error.raw_os_error() == Some(libc::ENODATA) => {}
                set => drop(set?),
            }
        }
        let is_link = matches!(kind, Kind::Symlink(_));
        let mode = attributes.mode.filter(|_| !is_link);
        let rest = Attributes { mode, uid: None, gid: None, ..*attributes };
        if kind.is_directory() {
            self.directories.entry(node).or_default().overlay(&rest);
            return Ok(());
        }
        match self.set_mode_and_times(inode, &rest) {
            // Some homes set the times of what a symbolic link leads to, if that is there.
            Err(_) if is_link => Ok(()),
            set => set,
        }
    }

    fn set_mode_and_times(&self, inode: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
        if let Some(mode) = attributes.mode {
            self.at_home(NameCommand::SetMode { inode, mode: mode & 0o7777 })?;
        }
        let (atime, mtime) = (attributes.atime.map(set_time), attributes.mtime.map(set_time));
        if atime.is_some() || mtime.is_some() {
            self.at_home(NameCommand::SetTimes { inode, atime, mtime })?;
        }
        Ok(())
    }
}

fn set_time(moment: Moment) -> SetTime {
    SetTime::To { seconds: moment.seconds, nanoseconds: moment.nanoseconds }
}
