//! What changes users, groups, capabilities, root and namespaces.

use std::ffi::{c_char, c_int, c_void};

use libc::{gid_t, uid_t};

use super::interpose;

/// Makes a call outside of the lane.
macro_rules! outside {
    ($call:expr) => {{
        let locked = $crate::credentials::before();
        let result = $call;
        $crate::credentials::after(locked);
        result
    }};
}
pub(super) use outside;

interpose! {
    fn setuid(user: uid_t) -> c_int as next {
        outside!(next(user))
    }

    fn seteuid(user: uid_t) -> c_int as next {
        outside!(next(user))
    }

    fn setreuid(real: uid_t, effective: uid_t) -> c_int as next {
        outside!(next(real, effective))
    }

    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int as next {
        outside!(next(real, effective, saved))
    }

    fn setfsuid(user: uid_t) -> c_int as next {
        outside!(next(user))
    }

    fn setgid(group: gid_t) -> c_int as next {
        outside!(next(group))
    }

    fn setegid(group: gid_t) -> c_int as next {
        outside!(next(group))
    }

    fn setregid(real: gid_t, effective: gid_t) -> c_int as next {
        outside!(next(real, effective))
    }

    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int as next {
        outside!(next(real, effective, saved))
    }

    fn setfsgid(group: gid_t) -> c_int as next {
        outside!(next(group))
    }

    fn setgroups(count: usize, groups: *const gid_t) -> c_int as next {
        outside!(next(count, groups))
    }

    fn initgroups(user: *const c_char, group: gid_t) -> c_int as next {
        outside!(next(user, group))
    }

    fn capset(header: *mut c_void, sets: *const c_void) -> c_int as next {
        outside!(next(header, sets))
    }

    fn chroot(path: *const c_char) -> c_int as next {
        outside!(next(path))
    }

    fn unshare(flags: c_int) -> c_int as next {
        outside!(next(flags))
    }

    fn setns(fd: c_int, kind: c_int) -> c_int as next {
        outside!(next(fd, kind))
    }
}
