//! The definitions that come after this library's: the C library's, or another preloaded library's.
//!
//! Found by dlsym(3) when the library is loaded: it takes the loader's lock and may allocate, which a signal handler's
//! or a forked child's write(2) must not (signal-safety(7)). Only a call that comes before that, from the constructor of a
//! library that is initialised earlier, finds its own. The C library's definitions are called, and not the kernel, because they are
//! cancellation points.

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

    /// Finds it, when the library is loaded. A C library may not have it; then nobody is linked to it.
    pub(crate) fn find_at_load(&self) {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: it takes nothing. The program is not to be told of this one.
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
            // Whoever calls it was linked to a C library that has it.
            // SAFETY: it takes nothing.
            unsafe { libc::abort() };
        }
        found
    }
}

/// Has a [`Next`] found when the library is loaded. To be put beside it.
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
