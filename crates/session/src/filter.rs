//! The fence: a program of the kernel's packet filter that decides which system calls of a session are stopped for the
//! supervisor (seccomp(2), SECCOMP_RET_USER_NOTIF).
//!
//! Calls that the library of the session makes ([`weir_lane::door`]) pass: it knows what the supervisor would say.
//! Calls that bring descriptors from elsewhere are stopped, too, although they leave nothing.
//!
//! Invariant: a call that is not named here is stopped. So a call that is new to this list waits, and never passes.
//! What depends on nothing but the call's number is decided first: the kernel keeps those answers in a table, and they
//! cost a program nothing.

use libc::{sock_filter, sock_fprog};
use weir_lane::door;

/// `AUDIT_ARCH_X86_64` (linux/audit.h): 64-bit, little-endian, EM_X86_64.
pub(crate) const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const STOP: u32 = libc::SECCOMP_RET_USER_NOTIF;
const NOT_THERE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Its low half.
const INSTRUCTION_POINTER: u32 = 8;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// Flags of open(2) that make or cut a file.
const CHANGING: u32 =
    (libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// Calls that leave nothing outside the process: they read, wait, manage memory, or change what only the process and
/// its members see. Each pair is a range of numbers, both ends included (asm/unistd_64.h).
const HARMLESS: &[(libc::c_long, libc::c_long)] = &[
    (libc::SYS_read, libc::SYS_read),
    (libc::SYS_stat, libc::SYS_rt_sigreturn),
    (libc::SYS_pread64, libc::SYS_pread64),
    (libc::SYS_readv, libc::SYS_readv),
    (libc::SYS_access, libc::SYS_access),
    (libc::SYS_select, libc::SYS_madvise),
    (libc::SYS_shmat, libc::SYS_shmat),
    (libc::SYS_dup, libc::SYS_dup),
    (libc::SYS_pause, libc::SYS_getpid),
    (libc::SYS_socket, libc::SYS_socket),
    (libc::SYS_accept, libc::SYS_accept),
    (libc::SYS_recvfrom, libc::SYS_recvfrom),
    (libc::SYS_getsockname, libc::SYS_socketpair),
    (libc::SYS_clone, libc::SYS_vfork),
    (libc::SYS_wait4, libc::SYS_wait4),
    (libc::SYS_uname, libc::SYS_uname),
    (libc::SYS_shmdt, libc::SYS_shmdt),
    (libc::SYS_getdents, libc::SYS_fchdir),
    (libc::SYS_readlink, libc::SYS_readlink),
    (libc::SYS_umask, libc::SYS_times),
    (libc::SYS_getuid, libc::SYS_getuid),
    (libc::SYS_getgid, libc::SYS_rt_sigtimedwait),
    (libc::SYS_rt_sigsuspend, libc::SYS_sigaltstack),
    (libc::SYS_personality, libc::SYS_personality),
    (libc::SYS_statfs, libc::SYS_getpriority),
    (libc::SYS_sched_getparam, libc::SYS_sched_getparam),
    (libc::SYS_sched_getscheduler, libc::SYS_munlockall),
    (libc::SYS_prctl, libc::SYS_arch_prctl),
    (libc::SYS_setrlimit, libc::SYS_chroot),
    (libc::SYS_gettid, libc::SYS_readahead),
    (libc::SYS_getxattr, libc::SYS_flistxattr),
    (libc::SYS_time, libc::SYS_futex),
    (libc::SYS_sched_getaffinity, libc::SYS_sched_getaffinity),
    (libc::SYS_io_setup, libc::SYS_io_getevents),
    (libc::SYS_io_cancel, libc::SYS_lookup_dcookie),
    (libc::SYS_epoll_create, libc::SYS_set_tid_address),
    (libc::SYS_restart_syscall, libc::SYS_restart_syscall),
    (libc::SYS_fadvise64, libc::SYS_timer_delete),
    (libc::SYS_clock_gettime, libc::SYS_clock_nanosleep),
    (libc::SYS_epoll_wait, libc::SYS_epoll_ctl),
    (libc::SYS_mbind, libc::SYS_get_mempolicy),
    (libc::SYS_waitid, libc::SYS_waitid),
    (libc::SYS_ioprio_get, libc::SYS_inotify_rm_watch),
    (libc::SYS_newfstatat, libc::SYS_newfstatat),
    (libc::SYS_readlinkat, libc::SYS_readlinkat),
    (libc::SYS_faccessat, libc::SYS_get_robust_list),
    (libc::SYS_epoll_pwait, libc::SYS_eventfd),
    (libc::SYS_timerfd_settime, libc::SYS_dup3 - 1),
    (libc::SYS_inotify_init1, libc::SYS_preadv),
    (libc::SYS_perf_event_open, libc::SYS_perf_event_open),
    (libc::SYS_fanotify_init, libc::SYS_fanotify_mark),
    (libc::SYS_name_to_handle_at, libc::SYS_name_to_handle_at),
    (libc::SYS_setns, libc::SYS_process_vm_readv),
    (libc::SYS_kcmp, libc::SYS_kcmp),
    (libc::SYS_sched_getattr, libc::SYS_sched_getattr),
    (libc::SYS_seccomp, libc::SYS_memfd_create),
    (libc::SYS_userfaultfd, libc::SYS_mlock2),
    (libc::SYS_preadv2, libc::SYS_preadv2),
    (libc::SYS_pkey_mprotect, libc::SYS_rseq),
    (libc::SYS_pidfd_open, libc::SYS_clone3),
    (libc::SYS_faccessat2, libc::SYS_epoll_pwait2),
    (libc::SYS_landlock_create_ruleset, libc::SYS_memfd_secret),
    // futex_waitv, set_mempolicy_home_node, cachestat.
    (449, 451),
    // map_shadow_stack, futex_wake, futex_wait, futex_requeue, statmount, listmount, lsm_*, mseal.
    (453, 462),
];

/// A call that passes if the bits of one argument say so.
struct Conditional {
    number: libc::c_long,
    argument: u32,
    passes: Condition,
}

enum Condition {
    /// None of these bits is set.
    WithoutBits(u32),
    /// The argument is none of these.
    NoneOf(&'static [u32]),
    /// The argument is one of these.
    OneOf(&'static [u32]),
}

/// asm-generic/fcntl.h.
pub(crate) const F_SETSIG: u32 = 10;
/// As above.
pub(crate) const F_SETOWN_EX: u32 = 15;

/// Commands of fcntl(2) that others outside the process see: locks, and signals to others.
const LOCKS: &[u32] = &[
    libc::F_SETLK as u32,
    libc::F_SETLKW as u32,
    libc::F_OFD_SETLK as u32,
    libc::F_OFD_SETLKW as u32,
    libc::F_SETLEASE as u32,
    libc::F_SETOWN as u32,
    F_SETSIG,
    F_SETOWN_EX,
];

/// asm-generic/ioctls.h.
const TCGETS2: u32 = 0x802c_542a;

/// Requests of ioctl(2) that ask, or change what only the process sees (ioctl_tty(2), ioctl(2)).
const QUESTIONS: &[u32] = &[
    libc::TCGETS as u32,
    TCGETS2,
    libc::TIOCGWINSZ as u32,
    libc::TIOCGPGRP as u32,
    libc::FIONREAD as u32,
    libc::FIONBIO as u32,
    libc::FIOCLEX as u32,
    libc::FIONCLEX as u32,
];

/// Levels of options whose questions do more than ask: of SCTP, one connects (SCTP_SOCKOPT_CONNECTX3, linux/sctp.h).
const ACTING: &[u32] = &[libc::IPPROTO_SCTP as u32];

const CONDITIONAL: &[Conditional] = &[
    Conditional { number: libc::SYS_open, argument: 1, passes: Condition::WithoutBits(CHANGING) },
    Conditional { number: libc::SYS_openat, argument: 2, passes: Condition::WithoutBits(CHANGING) },
    Conditional {
        number: libc::SYS_open_by_handle_at,
        argument: 2,
        passes: Condition::WithoutBits(CHANGING),
    },
    // These are of the caller alone if they name no process.
    Conditional { number: libc::SYS_prlimit64, argument: 0, passes: Condition::OneOf(&[0]) },
    Conditional { number: libc::SYS_sched_setparam, argument: 0, passes: Condition::OneOf(&[0]) },
    Conditional {
        number: libc::SYS_sched_setscheduler,
        argument: 0,
        passes: Condition::OneOf(&[0]),
    },
    Conditional {
        number: libc::SYS_sched_setaffinity,
        argument: 0,
        passes: Condition::OneOf(&[0]),
    },
    Conditional { number: libc::SYS_sched_setattr, argument: 0, passes: Condition::OneOf(&[0]) },
    Conditional { number: libc::SYS_getsockopt, argument: 1, passes: Condition::NoneOf(ACTING) },
    Conditional { number: libc::SYS_fcntl, argument: 1, passes: Condition::NoneOf(LOCKS) },
    Conditional { number: libc::SYS_ioctl, argument: 1, passes: Condition::OneOf(QUESTIONS) },
];

/// io_uring would make calls that the filter does not see.
const ABSENT: &[libc::c_long] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// The filter, as seccomp(2) takes it.
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    /// Builds it.
    pub(crate) fn new() -> Filter {
        let mut code = vec![
            load(ARCHITECTURE),
            // Another architecture has other numbers: all of its calls are stopped.
            if_equal(AUDIT_ARCH_X86_64, 1, 0),
            answer(STOP),
            load(NUMBER),
        ];
        for (first, last) in HARMLESS {
            // The x32 numbers are all above.
            code.extend([
                if_at_least(number(*first), 0, 2),
                if_greater(number(*last), 1, 0),
                answer(ALLOW),
            ]);
        }
        for absent in ABSENT {
            code.extend([if_equal(number(*absent), 0, 1), answer(NOT_THERE)]);
        }
        let after_call = door::AFTER_CALL as u64;
        code.extend([
            load(INSTRUCTION_POINTER),
            if_equal(after_call as u32, 0, 3),
            load(INSTRUCTION_POINTER + 4),
            if_equal((after_call >> 32) as u32, 0, 1),
            answer(ALLOW),
            load(NUMBER),
        ]);
        for conditional in CONDITIONAL {
            let inner = conditional.code();
            code.push(if_equal(number(conditional.number), 0, inner.len() as u8));
            code.extend(inner);
        }
        code.push(answer(STOP));
        Filter(code)
    }

    /// For seccomp(2); it points into this filter.
    pub(crate) fn program(&mut self) -> sock_fprog {
        sock_fprog { len: self.0.len() as u16, filter: self.0.as_mut_ptr() }
    }
}

impl Conditional {
    fn code(&self) -> Vec<sock_filter> {
        let mut code = vec![load(argument(self.argument))];
        let (values, found, otherwise) = match self.passes {
            Condition::WithoutBits(bits) => {
                code.extend([if_any_bit(bits, 0, 1), answer(STOP), answer(ALLOW)]);
                return code;
            }
            Condition::NoneOf(values) => (values, STOP, ALLOW),
            Condition::OneOf(values) => (values, ALLOW, STOP),
        };
        for value in values {
            code.extend([if_equal(*value, 0, 1), answer(found)]);
        }
        code.push(answer(otherwise));
        code
    }
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("the numbers of calls are small")
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn answer(action: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

/// Skips `then` instructions if the loaded word equals `value`, else `otherwise`; likewise the others.
fn if_equal(value: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, then, otherwise)
}

fn if_at_least(value: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value, then, otherwise)
}

fn if_greater(value: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, value, then, otherwise)
}

fn if_any_bit(bits: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits, then, otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would decide: the instructions used here, interpreted.
    fn decide(filter: &Filter, architecture: u32, call: libc::c_long, arguments: [u32; 3]) -> u32 {
        decide_at(0x7f00_0000_1234, filter, architecture, call, arguments)
    }

    /// The same of a call from this place in memory.
    fn decide_at(
        pointer: u64,
        filter: &Filter,
        architecture: u32,
        call: libc::c_long,
        arguments: [u32; 3],
    ) -> u32 {
        const HIGH: u32 = INSTRUCTION_POINTER + 4;
        let (mut at, mut word) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter.0[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) & !(libc::BPF_K) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    word = match k {
                        NUMBER => call as u32,
                        ARCHITECTURE => architecture,
                        INSTRUCTION_POINTER => pointer as u32,
                        HIGH => (pointer >> 32) as u32,
                        _ => arguments[(k as usize - 16) / 8],
                    };
                }
                code if code == libc::BPF_RET => return k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ => at += jump(word == k),
                code if code == libc::BPF_JMP | libc::BPF_JGE => at += jump(word >= k),
                code if code == libc::BPF_JMP | libc::BPF_JGT => at += jump(word > k),
                code if code == libc::BPF_JMP | libc::BPF_JSET => at += jump(word & k != 0),
                code => panic!("instruction {code:#x} is not used here"),
            }
        }
    }

    fn of(call: libc::c_long, arguments: [u32; 3]) -> u32 {
        decide(&Filter::new(), AUDIT_ARCH_X86_64, call, arguments)
    }

    /// Everything that can carry something out of a process, by name, so that a range above that is too wide is found.
    const LEAVES: &[libc::c_long] = &[
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_pwrite64,
        libc::SYS_writev,
        libc::SYS_pipe,
        libc::SYS_dup2,
        libc::SYS_sendfile,
        libc::SYS_connect,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_shutdown,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_execve,
        libc::SYS_exit,
        libc::SYS_kill,
        libc::SYS_semop,
        libc::SYS_msgsnd,
        libc::SYS_flock,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_truncate,
        libc::SYS_ftruncate,
        libc::SYS_rename,
        libc::SYS_mkdir,
        libc::SYS_rmdir,
        libc::SYS_creat,
        libc::SYS_link,
        libc::SYS_unlink,
        libc::SYS_symlink,
        libc::SYS_chmod,
        libc::SYS_fchmod,
        libc::SYS_chown,
        libc::SYS_fchown,
        libc::SYS_lchown,
        libc::SYS_ptrace,
        libc::SYS_syslog,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_utime,
        libc::SYS_mknod,
        libc::SYS_vhangup,
        libc::SYS_pivot_root,
        libc::SYS_adjtimex,
        libc::SYS_sync,
        libc::SYS_acct,
        libc::SYS_settimeofday,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_reboot,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_init_module,
        libc::SYS_delete_module,
        libc::SYS_quotactl,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        libc::SYS_tkill,
        libc::SYS_io_submit,
        libc::SYS_semtimedop,
        libc::SYS_clock_settime,
        libc::SYS_exit_group,
        libc::SYS_tgkill,
        libc::SYS_utimes,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_mq_timedsend,
        libc::SYS_mq_notify,
        libc::SYS_kexec_load,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_fchownat,
        libc::SYS_futimesat,
        libc::SYS_unlinkat,
        libc::SYS_renameat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_fchmodat,
        libc::SYS_splice,
        libc::SYS_tee,
        libc::SYS_sync_file_range,
        libc::SYS_vmsplice,
        libc::SYS_utimensat,
        libc::SYS_fallocate,
        libc::SYS_dup3,
        libc::SYS_pipe2,
        libc::SYS_pwritev,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_clock_adjtime,
        libc::SYS_syncfs,
        libc::SYS_sendmmsg,
        libc::SYS_process_vm_writev,
        libc::SYS_finit_module,
        libc::SYS_renameat2,
        libc::SYS_kexec_file_load,
        libc::SYS_bpf,
        libc::SYS_execveat,
        libc::SYS_copy_file_range,
        libc::SYS_pwritev2,
        libc::SYS_pidfd_send_signal,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_close_range,
        libc::SYS_openat2,
        libc::SYS_mount_setattr,
        libc::SYS_quotactl_fd,
        libc::SYS_process_mrelease,
        libc::SYS_fchmodat2,
        463,
        466,
        467,
        469,
        500,
        511,
        0x4000_0001,
    ];

    #[test]
    fn what_brings_descriptors_is_stopped() {
        for call in [libc::SYS_recvmsg, libc::SYS_recvmmsg, libc::SYS_pidfd_getfd] {
            assert_eq!(of(call, [0; 3]), STOP, "call {call}");
        }
    }

    #[test]
    fn what_leaves_a_process_is_stopped() {
        for call in LEAVES {
            assert_eq!(of(*call, [0; 3]), STOP, "call {call}");
        }
    }

    #[test]
    fn what_the_library_does_by_the_door_passes() {
        let filter = Filter::new();
        let after = door::AFTER_CALL as u64;
        let at = |pointer, call| decide_at(pointer, &filter, AUDIT_ARCH_X86_64, call, [0; 3]);
        assert_eq!(at(after, libc::SYS_write), ALLOW);
        assert_eq!(at(after + 1, libc::SYS_write), STOP);
        assert_eq!(at(after ^ 1 << 32, libc::SYS_write), STOP);
        assert_eq!(at(after, libc::SYS_io_uring_setup), NOT_THERE);
        assert_eq!(decide_at(after, &filter, 0x4000_0003, 4, [0; 3]), STOP);
    }

    #[test]
    fn what_stays_in_it_passes() {
        for call in [
            libc::SYS_read,
            libc::SYS_fstat,
            libc::SYS_lseek,
            libc::SYS_mmap,
            libc::SYS_brk,
            libc::SYS_futex,
            libc::SYS_fork,
            libc::SYS_clone,
            libc::SYS_wait4,
            libc::SYS_recvfrom,
            libc::SYS_accept4,
            libc::SYS_epoll_wait,
            libc::SYS_epoll_pwait2,
            libc::SYS_statx,
            libc::SYS_getrandom,
            libc::SYS_msync,
            libc::SYS_rt_sigprocmask,
            libc::SYS_timerfd_create,
            libc::SYS_eventfd2,
            libc::SYS_signalfd4,
            libc::SYS_prlimit64,
            libc::SYS_rseq,
            libc::SYS_clone3,
        ] {
            assert_eq!(of(call, [0; 3]), ALLOW, "call {call}");
        }
    }

    #[test]
    fn opening_is_stopped_where_it_changes_something() {
        let opened = |flags: i32| of(libc::SYS_openat, [0, 0, flags as u32]);
        assert_eq!(opened(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC), ALLOW);
        assert_eq!(opened(libc::O_WRONLY | libc::O_APPEND), ALLOW);
        assert_eq!(opened(libc::O_WRONLY | libc::O_CREAT), STOP);
        assert_eq!(opened(libc::O_RDWR | libc::O_TRUNC), STOP);
        assert_eq!(opened(libc::O_RDWR | libc::O_TMPFILE), STOP);
        assert_eq!(of(libc::SYS_open, [0, libc::O_TRUNC as u32, 0]), STOP);
    }

    #[test]
    fn locks_and_what_concerns_others_are_stopped_and_questions_pass() {
        let asked = |call, command: u64| of(call, [0, command as u32, 0]);
        assert_eq!(asked(libc::SYS_fcntl, libc::F_GETFL as u64), ALLOW);
        assert_eq!(asked(libc::SYS_fcntl, libc::F_DUPFD_CLOEXEC as u64), ALLOW);
        assert_eq!(asked(libc::SYS_fcntl, libc::F_SETLKW as u64), STOP);
        assert_eq!(asked(libc::SYS_fcntl, libc::F_OFD_SETLK as u64), STOP);
        assert_eq!(asked(libc::SYS_fcntl, libc::F_SETOWN as u64), STOP);
        assert_eq!(of(libc::SYS_prlimit64, [7, 0, 0]), STOP);
        assert_eq!(asked(libc::SYS_ioctl, libc::TCGETS), ALLOW);
        assert_eq!(asked(libc::SYS_ioctl, libc::TIOCSTI), STOP);
        assert_eq!(asked(libc::SYS_getsockopt, libc::SOL_SOCKET as u64), ALLOW);
        assert_eq!(asked(libc::SYS_getsockopt, libc::IPPROTO_TCP as u64), ALLOW);
        assert_eq!(asked(libc::SYS_getsockopt, libc::IPPROTO_SCTP as u64), STOP);
    }

    #[test]
    fn rings_are_not_there_and_other_architectures_are_stopped() {
        assert_eq!(of(libc::SYS_io_uring_setup, [0; 3]), NOT_THERE);
        // i386: 3 is read(2).
        assert_eq!(decide(&Filter::new(), 0x4000_0003, 3, [0; 3]), STOP);
    }

    #[test]
    fn every_jump_stays_in_the_filter() {
        let filter = Filter::new();
        assert!(filter.0.len() < libc::BPF_MAXINSNS as usize);
        for (at, instruction) in filter.0.iter().enumerate() {
            let furthest = at + 1 + usize::from(instruction.jt.max(instruction.jf));
            assert!(furthest < filter.0.len() || u32::from(instruction.code) == libc::BPF_RET);
        }
    }
}
