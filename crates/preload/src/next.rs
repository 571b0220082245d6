//! The definitions that come after this library's: the C library's, or another preloaded library's.
//!
//! Resolved by dlsym(3) when the library is loaded: dlsym takes the loader's lock and may allocate, which
//! write(2) in a signal handler or a forked child must not (signal-safety(7)). Only a call made earlier, by
//! the constructor of a library that is initialised first, resolves its own name. The hooks call the C
//! library's definitions instead of the kernel because those are cancellation points.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition of a name.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address.
    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    /// Resolves the name when the library is loaded. If the C library lacks it, no program is linked to it.
    pub(crate) fn find_at_load(&self) {
        // SAFETY: the name is terminated by a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: takes no arguments. Clears the error so that the program does not see it.
            unsafe { libc::dlerror() };
        }
        self.found.store(found, Ordering::Relaxed);
    }

    /// `extern "C"`: no panic leaves it.
    #[cold]
    extern "C" fn find(&self) -> *mut c_void {
        self.find_at_load();
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // The caller was linked to a C library that has the name.
            // SAFETY: it takes nothing.
            unsafe { libc::abort() };
        }
        found
    }
}

/// Has a [`Next`] resolved when the library is loaded. Put this next to its definition.
#[cfg(not(test))]
macro_rules! find_at_load {
    ($next:ident) => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static FIND_AT_LOAD: extern "C" fn() = {
            extern "C" fn find() {
                $next.find_at_load();
            }
            find
        };
    };
}
#[cfg(not(test))]
pub(crate) use find_at_load;
