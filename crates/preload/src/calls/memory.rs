//! Mappings, and limits.

use std::ffi::{c_int, c_uint, c_void};

use super::interpose;
use crate::{leave, limit};

interpose! {
    fn mmap(
        address: *mut c_void,
        len: usize,
        access: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void as next {
        before_map(flags, fd);
        next(address, len, access, flags, fd, offset)
    }

    fn mmap64(
        address: *mut c_void,
        len: usize,
        access: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void as next {
        before_map(flags, fd);
        next(address, len, access, flags, fd, offset)
    }

    fn setrlimit(resource: c_uint, limit: *const libc::rlimit) -> c_int as next {
        after_limit(resource, next(resource, limit))
    }

    fn setrlimit64(resource: c_uint, limit: *const libc::rlimit) -> c_int as next {
        after_limit(resource, next(resource, limit))
    }

    fn prlimit(
        process: c_int,
        resource: c_uint,
        limit: *const libc::rlimit,
        old: *mut libc::rlimit,
    ) -> c_int as next {
        after_limit(resource, next(process, resource, limit, old))
    }

    fn prlimit64(
        process: c_int,
        resource: c_uint,
        limit: *const libc::rlimit,
        old: *mut libc::rlimit,
    ) -> c_int as next {
        after_limit(resource, next(process, resource, limit, old))
    }
}

#[inline]
fn before_map(flags: c_int, fd: c_int) {
    if flags & libc::MAP_ANONYMOUS == 0 && fd >= 0 {
        // MAP_SHARED_VALIDATE is both bits.
        leave::map(fd, flags & libc::MAP_SHARED != 0);
    }
}

fn after_limit(resource: c_uint, result: c_int) -> c_int {
    if resource == libc::RLIMIT_FSIZE {
        limit::update();
    }
    result
}
