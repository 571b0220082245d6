//! Attributes: asking for them and setting them, the size included; statfs(2).

use std::sync::Arc;

use rustix::fs::{FileType, StatVfs};
use weir_backend::home_names::space;
use weir_backend::{HomeFile, Timestamp};
use weir_engine::{Error, FreezeEnd, FreezeScope};
use weir_names::command::{NameCommand, SetTime};
use weir_names::tree::{self, Moment, Refused};

use crate::attr::{self, Attributes, moment, timestamp};
use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::given::Thread;
use crate::inode::{DataNode, Inode, NodeId};
use crate::ops::names::note_change;
use crate::write_behind::{Awaited, Unchanged, WriteBehind};

/// The attributes to set; those that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SetAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    /// The description by which the size is set: not by truncate(2) and open(2).
    pub(crate) handle: Option<u64>,
    pub(crate) atime: Option<SetTime>,
    pub(crate) mtime: Option<SetTime>,
    /// With the size: the file loses set-user-ID and set-group-ID.
    pub(crate) drops_privileges: bool,
}

impl FileSystem {
    /// What stat(2) shows, for a thread.
    pub(crate) fn get_attributes(
        self: &Arc<Self>,
        node: NodeId,
        by: Thread,
    ) -> Result<Attributes, Errno> {
        let inode = self.inode(node)?;
        self.give_attributes(node, inode.kind(), by);
        self.attributes(&inode)
    }

    /// chmod(2), chown(2), truncate(2), utimensat(2), or several of them, in an order in which none undoes another.
    pub(crate) fn set_attributes(
        self: &Arc<Self>,
        caller: &Caller,
        node: NodeId,
        set: SetAttributes,
        done: impl FnOnce(Result<Attributes, Errno>) + Send + 'static,
    ) {
        let inode = match self.check_writable().and_then(|()| self.inode(node)) {
            Ok(inode) => inode,
            Err(errno) => return done(Err(errno)),
        };
        if inode.device() != self.device {
            // Home gets them at once, later in this call.
            drop(self.commit_before_home());
        }
        let fs = Arc::clone(self);
        let (caller, of) = (*caller, Arc::clone(&inode));
        self.settled(&inode, move || {
            let set = fs.without_size_after_failure(caller.pid, &of, set);
            fs.set_settled(&caller, of, set, done);
        });
    }

    /// A thread has made another call on a file than a write.
    pub(crate) fn write_is_over(&self, node: NodeId, caller: &Caller) {
        if let Some(inode) = self.inodes.get(node) {
            inode.lane.write_is_over(caller.pid);
        }
    }

    /// What is to be set: not the size that the kernel sets after a write of its own has failed, since it does not know what was posted.
    fn without_size_after_failure(
        &self,
        thread: u32,
        inode: &Inode,
        set: SetAttributes,
    ) -> SetAttributes {
        let Some(size) = set.size.filter(|_| inode.lane.was_posted_to()) else { return set };
        let by = set.handle.map(|handle| (thread, handle));
        let SetAttributes { size: _, handle, drops_privileges, .. } = set;
        let is_alone = set
            == SetAttributes { size: Some(size), handle, drops_privileges, ..Default::default() };
        let (Some(by), true) = (by, is_alone) else {
            inode.lane.size_is_set();
            return set;
        };
        let now = self.shard.size(inode.node().file()).unwrap_or(0);
        match inode.lane.size_after_failure(by, size, now) {
            Some(size) if size == now => SetAttributes::default(),
            Some(size) => SetAttributes { size: Some(size), ..set },
            None => set,
        }
    }

    fn set_settled(
        self: &Arc<Self>,
        caller: &Caller,
        inode: Arc<Inode>,
        set: SetAttributes,
        done: impl FnOnce(Result<Attributes, Errno>) + Send + 'static,
    ) {
        // A daemon that is not root loses setuid and setgid bits to its own writes at home, and to those of a recovery.
        if set.mode.is_some_and(|mode| mode & (libc::S_ISUID | libc::S_ISGID) != 0) {
            let fs = Arc::clone(self);
            let (caller, of) = (*caller, Arc::clone(&inode));
            if !rustix::process::geteuid().is_root() {
                return self.when_out_of_log(&inode, move |flushed| match flushed {
                    // What home refuses of the data is written there later.
                    Err(errno) => done(Err(errno)),
                    Ok(()) => fs.set_of(&caller, of, set, done),
                });
            }
            return self.when_flushed(&inode, move |_| fs.set_of(&caller, of, set, done));
        }
        self.set_of(caller, inode, set, done);
    }

    fn set_of(
        self: &Arc<Self>,
        caller: &Caller,
        inode: Arc<Inode>,
        set: SetAttributes,
        done: impl FnOnce(Result<Attributes, Errno>) + Send + 'static,
    ) {
        // The owner first: changing it clears setuid, which a new mode may set.
        let owner = SetAttributes { size: None, handle: None, atime: None, mtime: None, ..set };
        let times = SetAttributes { atime: set.atime, mtime: set.mtime, ..Default::default() };
        if let Err(errno) = self.set_some(caller, &inode, &owner) {
            return done(Err(errno));
        }
        let (fs, of) = (Arc::clone(self), *caller);
        let finish = move |inode: &Arc<Inode>, resized: Result<(), Errno>| {
            resized?;
            fs.set_some(&of, inode, &times)?;
            fs.attributes(inode)
        };
        match set.size {
            None => done(finish(&inode, Ok(()))),
            Some(size) => {
                let truncated = move |inode: &_, resized| done(finish(inode, resized));
                self.truncate(caller, inode, size, set.drops_privileges, truncated);
            }
        }
    }

    /// Sets all but the size: where names are written back, later at home.
    fn set_some(
        self: &Arc<Self>,
        caller: &Caller,
        inode: &Arc<Inode>,
        set: &SetAttributes,
    ) -> Result<(), Errno> {
        if self.set_behind(caller, inode, set)? {
            return Ok(());
        }
        let _changing = self.shard.change_home();
        self.set_owner(caller, inode, set)?;
        self.set_mode(inode, set)?;
        if set.atime.is_some() || set.mtime.is_some() {
            self.set_times_with(inode, || self.set_times(inode, set))?;
        }
        let rest = SetAttributes { size: None, handle: None, drops_privileges: false, ..*set };
        if rest != SetAttributes::default() {
            self.note_attributes_changed(inode);
        }
        Ok(())
    }

    /// Whether home can be given an inode's attributes: some homes set those of what a symbolic link leads to.
    pub(crate) fn keeps_attributes(&self, inode: &Inode) -> bool {
        inode.kind() != FileType::Symlink || self.home.sets_links()
    }

    /// Owner and times of a symbolic link where home would set those of what it leads to. The owner can be only what it is
    /// already. Times are not kept: cp(1) fails if a link cannot be given any.
    ///
    /// # Errors
    /// ENOSYS.
    fn check_link_unchanged(
        self: &Arc<Self>,
        inode: &Inode,
        set: &SetAttributes,
    ) -> Result<(), Errno> {
        let is_new = |wanted: Option<u32>, now: u32| wanted.is_some_and(|wanted| wanted != now);
        let now = self.attributes(inode)?;
        match is_new(set.uid, now.uid) || is_new(set.gid, now.gid) {
            true => Err(Errno::ENOSYS),
            false => Ok(()),
        }
    }

    /// chmod(2), chown(2), utimensat(2). Says whether the tree took the change.
    pub(crate) fn set_behind(
        self: &Arc<Self>,
        caller: &Caller,
        inode: &Arc<Inode>,
        set: &SetAttributes,
    ) -> Result<bool, Errno> {
        let SetAttributes { mode, uid, gid, atime, mtime, .. } = *set;
        let Some(behind) = self.write_behind.as_ref().filter(|_| inode.device() == self.device)
        else {
            return Ok(false);
        };
        if mode.is_none() && uid.is_none() && gid.is_none() && atime.is_none() && mtime.is_none() {
            return Ok(true);
        }
        if !self.keeps_attributes(inode) {
            self.check_link_unchanged(inode, set)?;
            return Ok(true);
        }
        if behind.log_has_ended() && !inode.is_nameless() {
            return self.set_at_home(behind, inode);
        }
        behind.wait_for_room()?;
        let now = attr::now();
        let time = |time: SetTime| match time {
            SetTime::Now => moment(now),
            SetTime::To { seconds, nanoseconds } => Moment { seconds, nanoseconds },
        };
        let mut mode = mode.map(|mode| mode & 0o7777);
        if (uid.is_some() || gid.is_some()) && mode.is_none() {
            mode = self.mode_after_chown(caller, inode)?;
        }
        let mut attributes =
            tree::Attributes { mode, uid, gid, atime: atime.map(time), mtime: mtime.map(time) };
        let is_logged = behind.is_logged();
        if let Some(home) = inode.file().filter(|_| is_logged) {
            match attributes.mtime {
                Some(mtime) => home.times().set_logged_mtime(timestamp(mtime), now),
                None => home.times().note_logged_change(now),
            }
        } else if let Some(home) = inode.file() {
            match attributes.mtime {
                // Where writes keep it. Home gets it with what is dirty, or when it gets the file.
                Some(mtime) => {
                    home.times().set_mtime(timestamp(mtime), now);
                    let later = !inode.is_at_home() || self.shard.has_dirty(inode.node().file());
                    attributes.mtime = attributes.mtime.filter(|_| !later);
                }
                None => home.times().note_change(now),
            }
        }
        if attributes.is_empty() {
            return Ok(true);
        }
        inode.change_made(|status| {
            status.mode = status.mode & libc::S_IFMT | mode.unwrap_or(status.mode & 0o7777);
            status.uid = uid.unwrap_or(status.uid);
            status.gid = gid.unwrap_or(status.gid);
            status.atime = attributes.atime.map_or(status.atime, timestamp);
            status.mtime = attributes.mtime.map_or(status.mtime, timestamp);
            status.ctime = now;
        });
        inode.note_changed(now);
        let set = behind.set(&self.inodes, inode, now, attributes);
        inode.may_be_privileged();
        match set {
            // It cannot be logged.
            Err(Unchanged::Refused(Refused::Unknown)) => self.set_at_home(behind, inode),
            set => Ok(set.map(|()| true)?),
        }
    }

    /// The tree does not take attributes of an inode: they are set at home at once.
    fn set_at_home(self: &Arc<Self>, behind: &WriteBehind, inode: &Inode) -> Result<bool, Errno> {
        behind.wait(&Awaited::Node(inode.node()))?;
        let _then_changed = self.free_log_of_names()?;
        Ok(false)
    }

    fn set_owner(
        self: &Arc<Self>,
        caller: &Caller,
        inode: &Inode,
        set: &SetAttributes,
    ) -> Result<(), Errno> {
        let SetAttributes { uid, gid, .. } = *set;
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        let mode = self.mode_after_chown(caller, inode)?;
        let at_home = inode.path_fd()?;
        self.home.execute(NameCommand::SetOwner { inode: at_home, uid, gid })?;
        // Home takes what it would take from the daemon, which may keep more than the program.
        if let Some(mode) = mode.filter(|_| set.mode.is_none())
            && inode.status()?.mode & 0o7777 != mode
        {
            self.home.execute(NameCommand::SetMode { inode: at_home, mode })?;
        }
        note_change(inode);
        Ok(())
    }

    fn set_mode(&self, inode: &Inode, set: &SetAttributes) -> Result<(), Errno> {
        let Some(mode) = set.mode else {
            return Ok(());
        };
        let mode = mode & 0o7777;
        self.home.execute(NameCommand::SetMode { inode: inode.path_fd()?, mode })?;
        inode.may_be_privileged();
        note_change(inode);
        Ok(())
    }

    fn set_times(&self, inode: &Inode, set: &SetAttributes) -> Result<(), Errno> {
        let SetAttributes { atime, mtime, .. } = *set;
        self.home.execute(NameCommand::SetTimes { inode: inode.path_fd()?, atime, mtime })?;
        let Some(home) = inode.file() else {
            return Ok(());
        };
        if let Some(wanted) = mtime {
            home.times().set_mtime(self.mtime_set(inode, home, wanted)?, attr::now());
        } else {
            home.times().note_change(attr::now());
        }
        Ok(())
    }

    /// The modification time just set at home, as home stores it: perhaps less precise than `wanted`.
    fn mtime_set(
        &self,
        inode: &Inode,
        home: &HomeFile,
        wanted: SetTime,
    ) -> Result<Timestamp, Errno> {
        let kept = inode.status()?.mtime;
        if home.times().overlay().0 != Some(kept) {
            return Ok(kept);
        }
        // A destage that ended in the meantime may have restored the former time, or both are the same.
        Ok(match wanted {
            SetTime::Now => attr::now(),
            SetTime::To { seconds, nanoseconds } => {
                Timestamp { tv_sec: seconds, tv_nsec: nanoseconds.into() }
            }
        })
    }

    /// truncate(2), then `done`.
    fn truncate(
        self: &Arc<Self>,
        caller: &Caller,
        inode: Arc<Inode>,
        size: u64,
        drops_privileges: bool,
        done: impl FnOnce(&Arc<Inode>, Result<(), Errno>) + Send + 'static,
    ) {
        if inode.file().is_none() {
            return done(&inode, Err(Errno::EINVAL));
        }
        // Acquired like an open file, so that the engine knows it also if it is not open.
        let cached = match self.acquire(&inode, true) {
            Ok(cached) => cached,
            Err(errno) => return done(&inode, Err(errno)),
        };
        self.drop_privileges(&inode, caller, drops_privileges);
        let fs = Arc::clone(self);
        self.when_fresh(Arc::clone(&inode), cached, move |fresh| {
            if let Err(errno) = fresh {
                fs.release(&inode);
                return done(&inode, Err(errno));
            }
            let file = inode.node().file();
            let shard = Arc::clone(&fs.shard);
            shard.freeze(file, FreezeScope::resizing(size), move |granted| {
                let (end, resized) = resize_at_home(&inode, granted, size);
                let answer = move || {
                    fs.release(&inode);
                    done(&inode, resized);
                };
                (end, answer)
            });
        });
    }

    /// statfs(2).
    pub(crate) fn statfs(self: &Arc<Self>, node: NodeId) -> Result<StatVfs, Errno> {
        let inode = self.inode(node)?;
        // One that home does not have will be on SOURCE's own file system.
        let inode = if inode.is_at_home() { inode } else { self.inode(NodeId::ROOT)? };
        Ok(space(inode.path_fd()?)?)
    }
}

/// Gives a file its new size at home if the freeze was `granted`.
pub(crate) fn resize_at_home(
    inode: &Inode,
    granted: Result<(), Error>,
    size: u64,
) -> (FreezeEnd, Result<(), Errno>) {
    let resized = granted.map_err(Errno::from).and_then(|()| {
        let home = inode.file().ok_or(Errno::EINVAL)?;
        resize(home, size)
    });
    let size = resized.is_ok().then_some(size);
    (FreezeEnd { discard: None, size, written: false }, resized)
}

fn resize(home: &HomeFile, size: u64) -> Result<(), Errno> {
    home.set_size(size)?;
    home.times().note_write(attr::now());
    Ok(())
}
