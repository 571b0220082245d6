//! The door of a session: by it the library in a member's memory makes system calls that the session's filter would stop, when it knows what
//! the supervisor would say.
//!
//! The library is given memory by the supervisor: this *page*, and the counts ([`crate::promises`]) of each mount in it. It asks by a
//! system call of a number that no kernel has ([`ASK`]): the filter stops it, and the supervisor puts the descriptor into the process. So it
//! does not matter what else the process can reach. The calls themselves are made from one place in memory ([`ADDRESS`]), by which
//! the filter knows them (seccomp(2), `instruction_pointer`).
//!
//! A member that must wait before a call commits by itself, as the supervisor would do it, by an fsync(2) of the mount's root.
//!
//! Invariant: a process without the page has no door: all its calls go by the filter.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::memory::{Access, Memory, create};

/// The number of the call by which a member asks. Its first argument is [`ASK_PAGE`], [`ASK_OUTSIDE`], or the index of a mount, whose counts are
/// asked for. Memory is given as a descriptor. ENOSYS if there is none, and without a session.
pub const ASK: i64 = 0x3765_6972;
/// Asks for the page.
pub const ASK_PAGE: u64 = u64::MAX;
/// Asks whether what is written to a descriptor, the second argument, leaves the session: 1, or 0.
pub const ASK_OUTSIDE: u64 = u64::MAX - 1;
/// Where the library has the [`CODE`]: between the places of programs (from 0x5555_5555_4000, less than 1 TiB) and of libraries, so that it is free.
pub const ADDRESS: usize = 0x5765_6972_0000;
/// `syscall`, `ret`.
pub const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];
/// What the filter sees as the instruction pointer of a call from there.
pub const AFTER_CALL: usize = ADDRESS + 2;
/// Most mounts. A session that uses more has no door.
pub const MOUNTS_MAX: usize = 16;
/// Longest path of a mount, with a zero at its end. With a longer one members do not commit.
pub const PATH_BYTES: usize = 256;
const BYTES: usize = 2 * crate::PAGE_BYTES;

#[repr(C)]
struct Shared {
    /// Not zero: the supervisor has promised what is counted in no memory.
    closed: AtomicU32,
    /// How many mounts there are. Each has its number for good.
    mounts: AtomicU32,
    list: [SharedMount; MOUNTS_MAX],
    /// How often the supervisor has come to trust fewer descriptors.
    distrusts: AtomicU64,
    /// How often a member has taken the other end from a socket.
    disconnections: AtomicU64,
    /// How many mounts are about to be added: their daemons may promise by now what is counted in no memory that members have.
    joining: AtomicU32,
}

#[repr(C)]
struct SharedMount {
    /// Major and minor number.
    device: AtomicU64,
    /// What no other mount has; 0: not known.
    number: AtomicU64,
    /// Where it is mounted; it ends with a zero.
    path: [AtomicU8; PATH_BYTES],
}

/// A mount of a session.
#[derive(Clone, Copy, Debug)]
pub struct Mount<'a> {
    /// `st_dev` of its files: major and minor number.
    pub device: (u32, u32),
    /// The kernel's number for it (statx(2), STATX_MNT_ID_UNIQUE), which no other mount will have; 0 if it is not known.
    pub number: u64,
    /// Where it is mounted.
    pub path: &'a [u8],
}

/// What the supervisor tells members.
#[derive(Debug)]
pub struct Page(Memory);

impl Page {
    /// Makes one, for the supervisor; the descriptor is for the members.
    ///
    /// # Errors
    /// Those of making and mapping memory.
    pub fn create() -> io::Result<(Page, OwnedFd)> {
        let fd = create("weir-door", BYTES)?;
        Ok((Page::open(&fd)?, fd))
    }

    /// The supervisor's.
    ///
    /// # Errors
    /// Those of mapping; `InvalidData` if the memory is too small.
    pub fn open(fd: impl AsFd) -> io::Result<Page> {
        const { assert!(size_of::<Shared>() <= BYTES) };
        Ok(Page(Memory::map(fd, BYTES, Access::ReadWrite)?))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it consists of atomics, and every bit pattern is a number.
        unsafe { self.0.at(0) }
    }

    /// Closes the door for good.
    pub fn close(&self) {
        self.shared().closed.store(1, Ordering::SeqCst);
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.shared().closed.load(Ordering::SeqCst) != 0
    }

    /// A mount's daemon is about to be asked to count what it promises. Until [`Page::end_joining`] no door is open.
    pub fn begin_joining(&self) {
        self.shared().joining.fetch_add(1, Ordering::SeqCst);
    }

    /// The mount was added, or its daemon counts nothing.
    pub fn end_joining(&self) {
        self.shared().joining.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether there are as many mounts as a member knows, and none is about to be added.
    pub fn has_only(&self, mounts: usize) -> bool {
        // In this order: a mount is added before it is not joining any more.
        self.shared().joining.load(Ordering::SeqCst) == 0 && self.mounts() == mounts
    }

    /// Adds a mount, whose counts members may ask for by now. There is no room for more than [`MOUNTS_MAX`]: then the door closes.
    pub fn add(&self, mount: Mount<'_>) {
        let shared = self.shared();
        let index = shared.mounts.load(Ordering::SeqCst) as usize;
        let Some(place) = shared.list.get(index) else { return self.close() };
        place.device.store(packed(mount.device), Ordering::SeqCst);
        if mount.path.len() < PATH_BYTES {
            for (to, from) in place.path.iter().zip(mount.path) {
                to.store(*from, Ordering::SeqCst);
            }
        }
        place.number.store(mount.number, Ordering::SeqCst);
        shared.mounts.store(index as u32 + 1, Ordering::SeqCst);
    }

    /// How many mounts there are.
    pub fn mounts(&self) -> usize {
        (self.shared().mounts.load(Ordering::SeqCst) as usize).min(MOUNTS_MAX)
    }

    /// A mount's number, which no other mount has; `None`: it is not known, or the mount is gone.
    pub fn number(&self, index: usize) -> Option<u64> {
        let number = self.shared().list.get(index)?.number.load(Ordering::SeqCst);
        (number != 0).then_some(number)
    }

    /// A mount's number, and its path with the zero; `None`: members do not commit it.
    pub fn place(&self, index: usize) -> Option<(u64, [u8; PATH_BYTES])> {
        let path = &self.shared().list.get(index)?.path;
        let path: [u8; PATH_BYTES] = std::array::from_fn(|at| path[at].load(Ordering::Relaxed));
        let number = self.number(index)?;
        (path[0] != 0).then_some((number, path))
    }

    /// The mounts with this device are gone: members ask the supervisor what they do there.
    pub fn remove(&self, device: (u32, u32)) {
        for mount in &self.shared().list[..self.mounts()] {
            if mount.device.load(Ordering::SeqCst) == packed(device) {
                mount.number.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Pipes and sockets that were inside may lead outside now.
    pub fn distrust(&self) {
        self.shared().distrusts.fetch_add(1, Ordering::SeqCst);
    }

    /// How often that was said.
    pub fn distrusts(&self) -> u64 {
        self.shared().distrusts.load(Ordering::SeqCst)
    }

    /// A member takes the other end from a socket, which may get another one.
    pub fn disconnected(&self) {
        self.shared().disconnections.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes whenever what the supervisor has said of pipes and sockets may not be so any more.
    pub fn changes(&self) -> u64 {
        self.distrusts().wrapping_add(self.shared().disconnections.load(Ordering::SeqCst))
    }
}

/// File systems on which closing a file that was only read, or a sync, tells nobody: their names in the mount table, and their `f_type` (statfs(2)).
const PLAIN: [(&str, i64); 24] = [
    ("ext4", 0xef53),
    ("ext3", 0xef53),
    ("ext2", 0xef53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683e),
    ("bcachefs", 0xca45_1a4e),
    ("f2fs", 0xf2f5_2010),
    ("zfs", 0x2fc1_2fc1),
    ("jfs", 0x3153_464a),
    ("nilfs2", 0x3434),
    ("ntfs3", 0x7366_746e),
    ("hfsplus", 0x482b),
    ("vfat", 0x4d44),
    ("exfat", 0x2011_bab0),
    ("udf", 0x1501_3346),
    ("iso9660", 0x9660),
    ("squashfs", 0x7371_7368),
    ("erofs", 0xe0f5_e1e2),
    ("overlay", 0x794c_7630),
    ("tmpfs", 0x0102_1994),
    ("devtmpfs", 0x0102_1994),
    ("ramfs", 0x8584_58f6),
    ("proc", 0x9fa0),
    ("sysfs", 0x6265_6572),
];

/// Whether closing a description that was only read has no effect outside, by the `f_type` of its file system. Elsewhere it may end a message
/// queue's notification or a namespace, or be told to a daemon (FUSE) or a server (NFS).
pub fn hides_ends(file_system: i64) -> bool {
    PLAIN.iter().any(|(_, known)| *known == file_system)
}

/// The same by the file system's name in the mount table (proc_pid_mountinfo(5)).
pub fn hides_ends_on(name: &str) -> bool {
    PLAIN.iter().any(|(known, _)| *known == name)
}

fn packed((major, minor): (u32, u32)) -> u64 {
    u64::from(major) << 32 | u64::from(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_see_the_mounts_until_there_are_too_many() {
        let (supervisor, fd) = Page::create().unwrap();
        let member = Page::open(&fd).unwrap();
        assert_eq!(member.mounts(), 0);
        let mount = |minor, path| Mount { device: (0, minor), number: 7, path };
        for minor in 1..=MOUNTS_MAX as u32 {
            supervisor.add(mount(minor, b"/mnt"));
            assert_eq!(member.number(minor as usize - 1), Some(7));
        }
        assert_eq!(member.mounts(), MOUNTS_MAX);
        supervisor.distrust();
        supervisor.disconnected();
        assert_eq!((member.distrusts(), member.changes()), (1, 2));
        assert!(!member.is_closed());
        let (number, path) = member.place(3).unwrap();
        assert_eq!((number, &path[..5]), (7, &b"/mnt\0"[..]));
        supervisor.add(mount(99, b"/mnt"));
        assert!(member.is_closed());
        assert_eq!((member.mounts(), member.number(MOUNTS_MAX)), (MOUNTS_MAX, None));
    }

    #[test]
    fn a_member_has_no_door_while_a_mount_is_about_to_be_added() {
        let (supervisor, fd) = Page::create().unwrap();
        let member = Page::open(&fd).unwrap();
        assert!(member.has_only(0));
        supervisor.begin_joining();
        assert!(!member.has_only(0));
        // Its daemon counts nothing.
        supervisor.end_joining();
        assert!(member.has_only(0));
        supervisor.begin_joining();
        supervisor.add(Mount { device: (0, 1), number: 7, path: b"/mnt" });
        assert!(!member.has_only(0) && !member.has_only(1));
        supervisor.end_joining();
        assert!(!member.has_only(0) && member.has_only(1));
    }

    #[test]
    fn mounts_with_long_paths_are_not_committed_by_members() {
        let (page, _fd) = Page::create().unwrap();
        page.add(Mount { device: (0, 1), number: 7, path: &[b'x'; PATH_BYTES] });
        assert_eq!((page.number(0), page.place(0)), (Some(7), None));
        page.remove((0, 1));
        assert_eq!(page.number(0), None);
    }
}
