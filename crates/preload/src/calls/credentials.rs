//! Calls that change users, groups, capabilities, root and namespaces.

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

/// Defines calls that are made outside of the lane.
macro_rules! interpose_outside {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        interpose! {$(
            fn $name($($argument: $type),*) -> $result as next {
                outside!(next($($argument),*))
            }
        )*}
    };
}

interpose_outside! {
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setfsuid(user: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setfsgid(group: gid_t) -> c_int;
    fn setgroups(count: usize, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn capset(header: *mut c_void, sets: *const c_void) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
}
