//! What a stopped system call does, as far as the session is concerned: what it promises, and through which descriptors,
//! names or signals it could be noticed outside. From the call's number and arguments alone.
//!
//! A call that is not named here is [`Call::Unknown`]: it waits.

use std::borrow::Cow;

use libc::c_long;
use weir_lane::door;

use crate::filter::{AUDIT_ARCH_X86_64, F_SETOWN_EX, F_SETSIG};

/// A stopped call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// fsync(2), fdatasync(2): what was written to the file is to be durable.
    Sync { fd: i32 },
    /// syncfs(2).
    SyncFileSystem { fd: i32 },
    /// sync_file_range(2): starts writing, and promises nothing.
    WriteOut { fd: i32 },
    /// sync(2).
    SyncAll,
    /// pipe(2), pipe2(2): where the numbers of the two descriptors are to be written.
    Pipe { address: u64, flags: i32 },
    /// A member's library asks for memory ([`weir_lane::door`]).
    AsksForDoor { what: u64 },
    /// It asks whether what is written to a descriptor leaves.
    AsksWhetherOutside { fd: i32 },
    /// Writes to a descriptor, changes its file, or lets others notice it otherwise.
    Output { fd: i32 },
    /// Locks a file, or gives a lock back (flock(2), fcntl_locking(2), F_SETLEASE).
    Locks { fd: i32 },
    /// io_submit(2): how many requests, and where the list of their addresses is.
    Submits { count: u64, list: u64 },
    /// Asks something of a descriptor's driver (ioctl(2)): what, is not known.
    Control { fd: i32 },
    /// A thread of the kernel is to work for a device of the caller's (vhost): it would send without a call.
    Employs,
    /// Somebody is to get signals when something happens to a descriptor (fcntl(2), F_SETOWN).
    Owner,
    /// From one descriptor into another (splice(2), tee(2)). The first may be noticed, too, where it is a pipe; and what comes into it
    /// later leaves by the same call.
    Moves { from: i32, into: i32 },
    /// Gives a pipe or socket pages of a file or of memory, not copies of them (sendfile(2), vmsplice(2)): what is written to the pages later leaves,
    /// too.
    Sends { fd: i32 },
    /// sendmsg(2) and sendmmsg(2): the message may carry descriptors. Where its header is; `None`: several messages.
    Message { fd: i32, header: Option<u64> },
    /// connect(2): where the address is.
    Connects { fd: i32, address: u64 },
    /// bind(2): gives a socket a name. Somebody outside may find it by that, also if a member is at its other end.
    Binds,
    /// listen(2): from now on the kernel names the caller as the peer of those who connect (SO_PEERCRED, unix(7)).
    Listens { fd: i32 },
    /// recvmsg(2) and recvmmsg(2): a message may bring descriptors. The header as above.
    Receives { fd: i32, header: Option<u64> },
    /// pidfd_getfd(2): takes a descriptor from a process.
    Takes,
    /// Closes descriptors from the first to the last one.
    Closes { first: u32, last: u32 },
    /// The process ends, or becomes another program: descriptors are closed.
    Ends,
    /// Changes what one or two paths name, each given by a directory's descriptor and the address of a path.
    Names { first: Path, second: Option<Path> },
    /// Opens, and makes or cuts a file.
    Opens { path: Path },
    /// Mounts a file system, which a member may serve (mount(2), fsmount(2), move_mount(2)).
    Mounts,
    /// A signal to a process, by number.
    Signal { process: i32 },
    /// A call of another architecture or ABI, by number: it may pass descriptors out or receive some.
    Foreign { number: c_long },
    /// Anything else, by number.
    Unknown { number: c_long },
}

/// Commands of fcntl(2) after which others may get signals.
const SIGNALS: [u32; 3] = [libc::F_SETOWN as u32, F_SETSIG, F_SETOWN_EX];
/// Requests of ioctl(2) that do the same: FIOASYNC, FIOSETOWN, SIOCSPGRP (asm-generic/ioctls.h, sockios.h).
const ASYNCHRONOUS: [u32; 3] = [0x5452, 0x8901, 0x8902];

/// The request of ioctl(2) with which each use of vhost begins: VHOST_SET_OWNER (linux/vhost.h).
const VHOST_SET_OWNER: u32 = 0xaf01;
/// ioctl(2) of i386, and of x32.
const FOREIGN_IOCTL: [c_long; 2] = [54, X32_BIT | 514];

/// `__X32_SYSCALL_BIT` (asm/unistd.h).
const X32_BIT: c_long = 0x4000_0000;

/// A path as a system call has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The descriptor of the directory that it begins in, or `AT_FDCWD`.
    pub(crate) directory: i32,
    /// Where its bytes are in the memory of the process; 0: the descriptor itself is meant (utimensat(2)).
    pub(crate) address: u64,
}

/// Calls of other architectures that give pipes and sockets pages instead of copies, or make an io_uring: of i386 (arch/x86/entry/syscalls/syscall_32.tbl)
/// sendfile, sendfile64, splice, tee, vmsplice, and of x32 the same. The last three of each: io_uring.
const FOREIGN_REFUSED: [c_long; 16] = [
    187,
    239,
    313,
    315,
    316,
    425,
    426,
    427,
    X32_BIT | 40,
    X32_BIT | 275,
    X32_BIT | 276,
    X32_BIT | 532,
    X32_BIT | 278,
    X32_BIT | 425,
    X32_BIT | 426,
    X32_BIT | 427,
];

impl Call {
    /// The error with which a call is refused, as where the kernel does not have it: what leaves by it cannot be stopped later.
    pub(crate) fn refused(self) -> Option<i32> {
        match self {
            Call::Foreign { number } if FOREIGN_REFUSED.contains(&number) => Some(libc::ENOSYS),
            // Emulators then send by themselves.
            Call::Employs => Some(libc::ENOTTY),
            _ => None,
        }
    }

    /// What it does, for a report.
    pub(crate) fn what(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Call::Sync { .. } | Call::SyncFileSystem { .. } | Call::SyncAll => "syncing",
            Call::WriteOut { .. } => "writing out",
            Call::Pipe { .. } => "making a pipe",
            Call::AsksForDoor { .. } | Call::AsksWhetherOutside { .. } => "asking the supervisor",
            Call::Output { .. } => "writing or sending",
            Call::Locks { .. } => "locking",
            Call::Submits { .. } => "submitting asynchronous I/O",
            Call::Control { .. } => "asking a device",
            Call::Employs => "employing the kernel",
            Call::Owner => "having signals sent",
            Call::Moves { .. } => "moving between descriptors",
            Call::Sends { .. } => "sending pages",
            Call::Message { .. } => "sending a message",
            Call::Receives { .. } => "receiving a message",
            Call::Takes => "taking a descriptor",
            Call::Closes { .. } => "closing",
            Call::Ends => "ending, or starting a program",
            Call::Names { .. } => "changing names or attributes",
            Call::Opens { .. } => "making or cutting a file",
            Call::Mounts => "mounting",
            Call::Signal { .. } => "signalling",
            Call::Connects { .. } => "connecting",
            Call::Binds => "binding",
            Call::Listens { .. } => "listening",
            Call::Foreign { number } | Call::Unknown { number } => {
                return format!("system call {number}").into();
            }
        })
    }

    /// Reads a call.
    pub(crate) fn of(architecture: u32, number: c_long, arguments: &[u64; 6]) -> Call {
        if architecture != AUDIT_ARCH_X86_64 || number & X32_BIT != 0 {
            return match FOREIGN_IOCTL.contains(&number) && arguments[1] as u32 == VHOST_SET_OWNER {
                true => Call::Employs,
                false => Call::Foreign { number },
            };
        }
        let fd = |index: usize| arguments[index] as i32;
        let path = |index: usize| Path { directory: libc::AT_FDCWD, address: arguments[index] };
        let at = |directory: usize, index: usize| Path {
            directory: fd(directory),
            address: arguments[index],
        };
        let one = |first| Call::Names { first, second: None };
        let two = |first, second| Call::Names { first, second: Some(second) };
        match number {
            libc::SYS_fsync | libc::SYS_fdatasync => Call::Sync { fd: fd(0) },
            libc::SYS_syncfs => Call::SyncFileSystem { fd: fd(0) },
            libc::SYS_sync_file_range => Call::WriteOut { fd: fd(0) },
            libc::SYS_sync => Call::SyncAll,
            libc::SYS_pipe => Call::Pipe { address: arguments[0], flags: 0 },
            libc::SYS_pipe2 => Call::Pipe { address: arguments[0], flags: fd(1) },
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
            | libc::SYS_shutdown
            | libc::SYS_setsockopt
            | libc::SYS_getsockopt
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_fsetxattr
            | libc::SYS_fremovexattr => Call::Output { fd: fd(0) },
            // Nothing is sent, but all is checked.
            libc::SYS_sendfile if arguments[3] == 0 => Call::Output { fd: fd(0) },
            libc::SYS_sendfile | libc::SYS_vmsplice => Call::Sends { fd: fd(0) },
            libc::SYS_connect => Call::Connects { fd: fd(0), address: arguments[1] },
            libc::SYS_bind => Call::Binds,
            libc::SYS_listen => Call::Listens { fd: fd(0) },
            libc::SYS_fcntl if SIGNALS.contains(&(arguments[1] as u32)) => Call::Owner,
            libc::SYS_flock | libc::SYS_fcntl => Call::Locks { fd: fd(0) },
            libc::SYS_ioctl if ASYNCHRONOUS.contains(&(arguments[1] as u32)) => Call::Owner,
            libc::SYS_ioctl if arguments[1] as u32 == VHOST_SET_OWNER => Call::Employs,
            libc::SYS_ioctl => Call::Control { fd: fd(0) },
            libc::SYS_io_submit => Call::Submits { count: arguments[1], list: arguments[2] },
            libc::SYS_copy_file_range => Call::Output { fd: fd(2) },
            libc::SYS_splice => Call::Moves { from: fd(0), into: fd(2) },
            libc::SYS_tee => Call::Moves { from: fd(0), into: fd(1) },
            libc::SYS_sendmsg => Call::Message { fd: fd(0), header: Some(arguments[1]) },
            libc::SYS_sendmmsg => Call::Message { fd: fd(0), header: None },
            libc::SYS_recvmsg => Call::Receives { fd: fd(0), header: Some(arguments[1]) },
            libc::SYS_recvmmsg => Call::Receives { fd: fd(0), header: None },
            libc::SYS_pidfd_getfd => Call::Takes,
            libc::SYS_close => {
                Call::Closes { first: arguments[0] as u32, last: arguments[0] as u32 }
            }
            libc::SYS_dup2 | libc::SYS_dup3 => {
                Call::Closes { first: arguments[1] as u32, last: arguments[1] as u32 }
            }
            libc::SYS_close_range => {
                Call::Closes { first: arguments[0] as u32, last: arguments[1] as u32 }
            }
            libc::SYS_exit | libc::SYS_exit_group | libc::SYS_execve | libc::SYS_execveat => {
                Call::Ends
            }
            libc::SYS_open | libc::SYS_creat => Call::Opens { path: path(0) },
            // openat2(2) may be told to follow the path in another way.
            libc::SYS_openat => Call::Opens { path: at(0, 1) },
            libc::SYS_truncate
            | libc::SYS_mkdir
            | libc::SYS_rmdir
            | libc::SYS_unlink
            | libc::SYS_chmod
            | libc::SYS_chown
            | libc::SYS_lchown
            | libc::SYS_utime
            | libc::SYS_utimes
            | libc::SYS_mknod
            | libc::SYS_setxattr
            | libc::SYS_lsetxattr
            | libc::SYS_removexattr
            | libc::SYS_lremovexattr => one(path(0)),
            libc::SYS_mkdirat
            | libc::SYS_mknodat
            | libc::SYS_unlinkat
            | libc::SYS_fchmodat
            | libc::SYS_fchmodat2
            | libc::SYS_fchownat
            | libc::SYS_futimesat
            | libc::SYS_utimensat => one(at(0, 1)),
            libc::SYS_rename | libc::SYS_link => two(path(0), path(1)),
            libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => two(at(0, 1), at(2, 3)),
            libc::SYS_symlink => one(path(1)),
            libc::SYS_symlinkat => one(at(1, 2)),
            libc::SYS_mount | libc::SYS_fsmount | libc::SYS_move_mount => Call::Mounts,
            libc::SYS_kill
            | libc::SYS_tgkill
            | libc::SYS_rt_sigqueueinfo
            | libc::SYS_rt_tgsigqueueinfo
            | libc::SYS_tkill => Call::Signal { process: fd(0) },
            door::ASK if arguments[0] == door::ASK_OUTSIDE => {
                Call::AsksWhetherOutside { fd: fd(1) }
            }
            door::ASK => Call::AsksForDoor { what: arguments[0] },
            _ => Call::Unknown { number },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: c_long, arguments: [u64; 6]) -> Call {
        Call::of(AUDIT_ARCH_X86_64, number, &arguments)
    }

    #[test]
    fn calls_have_their_arguments_in_the_right_places() {
        let cwd = libc::AT_FDCWD;
        assert_eq!(of(libc::SYS_fdatasync, [7, 0, 0, 0, 0, 0]), Call::Sync { fd: 7 });
        assert_eq!(of(libc::SYS_copy_file_range, [3, 0, 4, 0, 9, 0]), Call::Output { fd: 4 });
        assert_eq!(of(libc::SYS_splice, [3, 0, 4, 0, 9, 0]), Call::Moves { from: 3, into: 4 });
        assert_eq!(of(libc::SYS_sendfile, [4, 3, 0, 9, 0, 0]), Call::Sends { fd: 4 });
        assert_eq!(of(libc::SYS_sendfile, [4, 3, 0, 0, 0, 0]), Call::Output { fd: 4 });
        let submits = of(libc::SYS_io_submit, [9, 2, 0x10, 0, 0, 0]);
        assert_eq!(submits, Call::Submits { count: 2, list: 0x10 });
        let owner = [3, libc::F_SETOWN as u64, 1, 0, 0, 0];
        assert_eq!(of(libc::SYS_fcntl, owner), Call::Owner);
        assert_eq!(of(libc::SYS_ioctl, [3, 0x8901, 0, 0, 0, 0]), Call::Owner);
        assert_eq!(of(libc::SYS_ioctl, [3, 1, 0, 0, 0, 0]), Call::Control { fd: 3 });
        assert_eq!(of(libc::SYS_bind, [3, 1, 0, 0, 0, 0]), Call::Binds);
        assert_eq!(of(libc::SYS_dup2, [3, 5, 0, 0, 0, 0]), Call::Closes { first: 5, last: 5 });
        assert_eq!(
            of(libc::SYS_symlink, [0x10, 0x20, 0, 0, 0, 0]),
            Call::Names { first: Path { directory: cwd, address: 0x20 }, second: None }
        );
        assert_eq!(
            of(libc::SYS_renameat2, [cwd as u64, 0x10, 6, 0x20, 0, 0]),
            Call::Names {
                first: Path { directory: cwd, address: 0x10 },
                second: Some(Path { directory: 6, address: 0x20 })
            }
        );
    }

    #[test]
    fn the_kernel_works_for_no_device_of_a_session() {
        let arguments = [3, u64::from(VHOST_SET_OWNER), 0, 0, 0, 0];
        let foreign = Call::of(0x4000_0003, 54, &arguments);
        for call in [of(libc::SYS_ioctl, arguments), of(X32_BIT | 514, arguments), foreign] {
            assert_eq!(call.refused(), Some(libc::ENOTTY));
        }
        assert_eq!(Call::of(0x4000_0003, 54, &[1; 6]), Call::Foreign { number: 54 });
    }

    #[test]
    fn what_is_not_known_is_unknown() {
        let asked = Call::AsksForDoor { what: 3 };
        assert_eq!(of(door::ASK, [3, 0, 0, 0, 0, 0]), asked);
        let asked = of(door::ASK, [door::ASK_OUTSIDE, 5, 0, 0, 0, 0]);
        assert_eq!(asked, Call::AsksWhetherOutside { fd: 5 });
        for number in [libc::SYS_openat2, libc::SYS_umount2] {
            assert_eq!(of(number, [0; 6]), Call::Unknown { number });
        }
        assert_eq!(Call::of(0x4000_0003, 4, &[1; 6]), Call::Foreign { number: 4 });
        assert_eq!(of(0x4000_0004, [0; 6]), Call::Foreign { number: 0x4000_0004 });
        let refused = Some(libc::ENOSYS);
        assert_eq!(Call::of(0x4000_0003, 187, &[1; 6]).refused(), refused);
        assert_eq!(of(0x4000_0028, [0; 6]).refused(), refused);
        assert_eq!((of(0x4000_0004, [0; 6]).refused(), of(187, [0; 6]).refused()), (None, None));
        assert_eq!(Call::Unknown { number: 165 }.what(), "system call 165");
    }
}
