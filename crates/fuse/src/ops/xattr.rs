//! Extended attributes and access control lists, which are extended attributes to FUSE.
//!
//! They are stored at home. Weir adds one that is computed and never stored: [`STATE`].

use std::ffi::OsStr;
use std::sync::{Arc, Weak};

use weir_backend::Changing;
use weir_backend::home_names::{self, Value};
use weir_engine::DataState;
use weir_names::command::NameCommand;
use weir_names::tree::Standing;

use crate::acl;
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode, NodeId};
use crate::ops::attributes::SetAttributes;
use crate::ops::names::note_change;
use crate::ops::privileges::CAPABILITIES;
use crate::write_behind::{Awaited, WriteBehind};

/// The access ACL, acl(5).
pub(crate) const ACCESS_ACL: &str = "system.posix_acl_access";

/// What a directory gives to what is made in it, acl(5).
pub(crate) const DEFAULT_ACL: &str = "system.posix_acl_default";

/// How far a file or directory is on its way home: `dirty`, `logged` or `home`. It is read-only, and not listed, so that
/// programs which copy all attributes of a file do not try to copy it.
pub const STATE: &str = "user.weir.state";

impl FileSystem {
    /// getxattr(2); `len_max` 0 asks for the length alone.
    pub(crate) fn get_xattr(
        self: &Arc<Self>,
        node: NodeId,
        name: &OsStr,
        len_max: u32,
    ) -> Result<Value, Errno> {
        let inode = self.inode(node)?;
        if name == STATE {
            let state = self.state_of(&inode);
            return match len_max as usize {
                // Whatever it is by the time it is asked for.
                0 => Ok(Value::Len("logged".len() as u32)),
                most if most < state.len() => Err(Errno::ERANGE),
                _ => Ok(Value::Bytes(state.into())),
            };
        }
        if inode.has_no_xattrs() {
            return Err(Errno::ENODATA);
        }
        let found = home_names::get_xattr(inode.path_fd()?, name, len_max)?;
        if name != ACCESS_ACL {
            return Ok(found);
        }
        self.mode_at_home(&inode);
        Ok(home_names::get_xattr(inode.path_fd()?, name, len_max)?)
    }

    /// An ACL has the permissions, too: if they were set, home has them before it tells the ACL.
    fn mode_at_home(&self, inode: &Inode) {
        let Some(behind) = &self.write_behind else { return };
        let is_set = behind.lock().tree.overlay(inode.node()).is_some_and(|set| set.mode.is_some());
        if is_set {
            // What home refuses it does not have in the ACL either.
            let _ = behind.wait(&Awaited::Node(inode.node()));
        }
    }

    /// listxattr(2); `len_max` 0 asks for the length alone.
    pub(crate) fn list_xattrs(
        self: &Arc<Self>,
        node: NodeId,
        len_max: u32,
    ) -> Result<Value, Errno> {
        let inode = self.inode(node)?;
        if inode.has_no_xattrs() {
            return Ok(if len_max == 0 { Value::Len(0) } else { Value::Bytes(Vec::new()) });
        }
        Ok(home_names::list_xattrs(inode.path_fd()?, len_max)?)
    }

    /// setxattr(2).
    ///
    /// An access ACL that says what a mode says, of what has no ACL, is a chmod(2): cp -a and install(1) set such a one.
    /// Capabilities are set when the file's data is home and out of the log, since home removes them when the file is written. So no
    /// recovery has to give them back.
    pub(crate) fn set_xattr(
        self: &Arc<Self>,
        caller: &Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if name == STATE {
            return done(Err(Errno::EPERM));
        }
        match self.mode_of_acl(caller, node, name, value) {
            Ok(None) => {}
            Ok(mode) => {
                let set = SetAttributes { mode, ..SetAttributes::default() };
                let fs = Arc::clone(self);
                return self.set_attributes(caller, node, set, move |set| {
                    fs.drop_attributes(node);
                    done(set.map(drop));
                });
            }
            Err(errno) => return done(Err(errno)),
        }
        let inode = match self.check_writable().and_then(|()| self.inode_at_home(node)) {
            Ok(inode) => inode,
            Err(errno) => return done(Err(errno)),
        };
        let changing = match self.before_attribute_changes(&inode, name) {
            Ok(changing) => changing,
            Err(errno) => return done(Err(errno)),
        };
        if name != CAPABILITIES {
            let set = self.set_xattr_at_home(&inode, caller, name, value, flags);
            drop(changing);
            return done(set);
        }
        let (caller, value) = (*caller, value.to_owned());
        let name = name.to_owned();
        let (fs, of) = (Arc::clone(self), Arc::clone(&inode));
        let set = move |flushed: Result<(), Errno>| {
            let set =
                flushed.and_then(|()| fs.set_xattr_at_home(&of, &caller, &name, &value, flags));
            drop(changing);
            done(set);
        };
        // What was posted before this would take them. So would what home refuses of the file's data, which is written there later; and
        // what is in the log is written by a recovery.
        let (fs, of) = (Arc::clone(self), Arc::clone(&inode));
        self.settled(&inode, move || fs.when_out_of_log(&of, set));
    }

    /// The whole mode that an access ACL comes to, if it says no more than a mode and there is no ACL yet.
    ///
    /// # Errors
    /// EOPNOTSUPP if home has no ACLs.
    fn mode_of_acl(
        self: &Arc<Self>,
        caller: &Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
    ) -> Result<Option<u32>, Errno> {
        let Some(permissions) = (name == ACCESS_ACL).then(|| acl::permissions(value)).flatten()
        else {
            return Ok(None);
        };
        let inode = self.inode(node)?;
        if self.has_acl(&inode, name)? {
            return Ok(None);
        }
        let status = self.attributes(&inode)?;
        let mut special = status.mode & 0o7000;
        if !caller.keeps_privileges() && !caller.is_in_group(status.gid) {
            special &= !libc::S_ISGID;
        }
        Ok(Some(special | permissions))
    }

    /// Whether an inode has an ACL of this name. What home does not have yet has none.
    ///
    /// # Errors
    /// EOPNOTSUPP if home has no ACLs.
    fn has_acl(self: &Arc<Self>, inode: &Arc<Inode>, name: &OsStr) -> Result<bool, Errno> {
        let is_at_home = !inode.has_no_xattrs();
        let asked = if is_at_home { Arc::clone(inode) } else { self.inode(NodeId::ROOT)? };
        match home_names::get_xattr(asked.path_fd()?, name, 0) {
            Ok(_) => Ok(is_at_home),
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// An attribute is about to be set at home, or removed. If it is an ACL or capabilities, home has the permissions that were
    /// set before, and no record of these is replayed after that. As [`FileSystem::commit_before_home`].
    fn before_attribute_changes(
        self: &Arc<Self>,
        inode: &Inode,
        name: &OsStr,
    ) -> Result<Option<Changing>, Errno> {
        if name == DEFAULT_ACL {
            // From here on, what is made at home may inherit it.
            inode.set_not_plain();
        }
        let Some(behind) = &self.write_behind else { return Ok(None) };
        if name != DEFAULT_ACL && name != ACCESS_ACL && name != CAPABILITIES {
            return Ok(self.commit_before_home());
        }
        behind.wait(&Awaited::Node(inode.node()))?;
        self.free_log_of_names()
    }

    /// removexattr(2).
    pub(crate) fn remove_xattr(self: &Arc<Self>, node: NodeId, name: &OsStr) -> Result<(), Errno> {
        self.check_writable()?;
        if name == STATE {
            return Err(Errno::EPERM);
        }
        let is_acl = name == ACCESS_ACL || name == DEFAULT_ACL;
        if is_acl && !self.has_acl(&self.inode(node)?, name)? {
            // Removing an ACL that is not there succeeds; removexattr(2) of other attributes does not.
            return Ok(());
        }
        let inode = self.inode_at_home(node)?;
        let _changing = self.before_attribute_changes(&inode, name)?;
        self.home.execute(NameCommand::RemoveXattr { inode: inode.path_fd()?, name })?;
        if is_acl {
            self.drop_attributes(node);
        }
        self.changed_at_home(&inode);
        Ok(())
    }

    fn set_xattr_at_home(
        &self,
        inode: &Inode,
        caller: &Caller,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let flags = flags.cast_unsigned();
        let at_home = inode.path_fd()?;
        let set = self.home.execute(NameCommand::SetXattr { inode: at_home, name, value, flags });
        if name == DEFAULT_ACL {
            inode.forget_plain();
        }
        set?;
        if name == ACCESS_ACL {
            self.drop_setgid_of_stranger(inode, caller)?;
            self.drop_attributes(inode.node());
        }
        self.changed_at_home(inode);
        Ok(())
    }

    /// An ACL has changed the mode. The kernel does not count that as a change of attributes, and would take older ones from an
    /// answer to a listing that is under way (`fuse_set_acl`, fs/fuse/acl.c): it is told before it gets the answer.
    fn drop_attributes(&self, node: NodeId) {
        if let Some(kernel) = self.kernel.get().and_then(Weak::upgrade) {
            kernel.drop_attributes(node);
        }
    }

    /// Setting an ACL changes the mode, which clears setgid if the program is not in the file's group (chmod(2)). Home did
    /// not clear it, because the daemon may keep it.
    fn drop_setgid_of_stranger(&self, inode: &Inode, caller: &Caller) -> Result<(), Errno> {
        let status = inode.status()?;
        let setgid = status.mode & libc::S_ISGID != 0;
        if !setgid || caller.keeps_privileges() || caller.is_in_group(status.gid) {
            return Ok(());
        }
        let mode = status.mode & 0o7777 & !libc::S_ISGID;
        self.home.execute(NameCommand::SetMode { inode: inode.path_fd()?, mode })?;
        Ok(())
    }
}

impl FileSystem {
    /// An attribute was changed at home, where a sync makes it durable.
    fn changed_at_home(&self, inode: &Inode) {
        // It may have been a capability.
        inode.may_be_privileged();
        note_change(inode);
        self.note_attributes_changed(inode);
    }

    /// The value of [`STATE`]: the least that holds of a file's names, attributes and data, or of a directory's own name and
    /// attributes and the names in it.
    fn state_of(self: &Arc<Self>, inode: &Arc<Inode>) -> &'static str {
        let named = |behind: &WriteBehind| {
            let state = behind.lock();
            [state.tree.standing(inode.node()), state.tree.standing_of_entries(inode.node())]
                .iter()
                .all(|standing| *standing == Standing::Home)
        };
        if !self.write_behind.as_ref().is_none_or(named) {
            return "dirty";
        }
        if inode.file().is_none() {
            return "home";
        }
        if !self.try_settle(inode) {
            return "dirty";
        }
        match self.shard.data_state(inode.node().file()) {
            DataState::Home => "home",
            DataState::Logged => "logged",
            DataState::Dirty => "dirty",
        }
    }
}
