//! Allocating space at home for a user who is not root.
//!
//! A file system keeps a reserve for root, and lets a thread with CAP_SYS_RESOURCE exceed quotas
//! (ext4's `s_resuid`, `ignore_hardlimit` in fs/quota/dquot.c). Both checks look at the allocating
//! thread. So a daemon run by root allocates with the user's file-system identity and without that
//! capability. It keeps all other capabilities: access was checked when the file was opened, or by
//! the kernel.
//!
//! Invariant: outside of [`allocate_as`] a thread has its own file-system user and capabilities.

#![allow(unsafe_code)] // setfsuid has no safe binding.

use std::cell::Cell;
use std::sync::Once;

use rustix::process::geteuid;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, capabilities, capabilities_secure_bits,
    set_capabilities, set_capabilities_secure_bits,
};

thread_local! {
    /// Capabilities survive a change of the thread's file-system user.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `allocate` with home's root reserve and quotas applied as they apply to `user`. A daemon
/// that is not run by root is always subject to them.
pub(crate) fn allocate_as<T>(user: u32, allocate: impl FnOnce() -> T) -> T {
    let root = geteuid();
    if user == 0 || !root.is_root() {
        return allocate();
    }
    if !KEEPS.replace(true) {
        keep_capabilities();
    }
    let _bound = Bound::enter(user);
    allocate()
}

/// Keeps this thread's capabilities when its file-system user changes (capabilities(7)).
pub(crate) fn keep_capabilities() {
    let kept = capabilities_secure_bits()
        .map(|bits| bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)
        .and_then(set_capabilities_secure_bits);
    static WARNED: Once = Once::new();
    if let Err(error) = kept {
        WARNED.call_once(|| {
            tracing::warn!(
                "cannot keep capabilities while acting for other users: {error}; creating in \
                 directories they reach only by a supplementary group will be refused"
            );
        });
    }
}

/// While this value lives, the thread allocates as another user.
struct Bound {
    lent: bool,
}

impl Bound {
    fn enter(user: u32) -> Bound {
        let lent = set_may_exceed(false);
        // SAFETY: changes the identity of this thread alone, and touches no memory.
        unsafe { libc::setfsuid(user) };
        Bound { lent }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: as in `enter`. Only a daemon run by root enters.
        unsafe { libc::setfsuid(0) };
        if self.lent {
            set_may_exceed(true);
        }
    }
}

/// Removes CAP_SYS_RESOURCE from the thread's effective set, or restores it. Returns whether the
/// set changed.
fn set_may_exceed(may: bool) -> bool {
    let Ok(mut sets) = capabilities(None) else { return false };
    if sets.effective.contains(CapabilitySet::SYS_RESOURCE) == may {
        return false;
    }
    sets.effective.set(CapabilitySet::SYS_RESOURCE, may);
    set_capabilities(None, sets).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_removed_and_restored() {
        let before = capabilities(None).unwrap();
        let meanwhile = allocate_as(4321, || capabilities(None).unwrap());
        assert_eq!(capabilities(None).unwrap(), before);
        if geteuid().is_root() {
            assert!(!meanwhile.effective.contains(CapabilitySet::SYS_RESOURCE));
            let others = before.effective - CapabilitySet::SYS_RESOURCE;
            assert_eq!(meanwhile.effective, others);
        }
        assert_eq!(allocate_as(0, || capabilities(None).unwrap()), before);
    }
}
