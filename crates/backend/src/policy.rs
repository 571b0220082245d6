//! The scheduling policy of the calling thread (sched(7)).

#![allow(unsafe_code)] // sched_setscheduler(2) and sched_getscheduler(2) have no safe binding.

/// A policy without priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Policy {
    /// SCHED_OTHER, the default.
    Normal = libc::SCHED_OTHER,
    /// SCHED_IDLE: the thread yields the CPU to any other.
    Idle = libc::SCHED_IDLE,
}

impl Policy {
    /// Whether this is the calling thread's policy.
    pub(crate) fn is_ours(self) -> bool {
        // SAFETY: asks for a number.
        unsafe { libc::sched_getscheduler(0) == self as i32 }
    }

    /// Makes this the calling thread's policy; says whether that succeeded. Going back from `Idle` to `Normal`
    /// needs CAP_SYS_NICE or RLIMIT_NICE.
    pub fn set(self) -> bool {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure is read before the call returns.
        unsafe { libc::sched_setscheduler(0, self as i32, &raw const parameters) == 0 }
    }
}
