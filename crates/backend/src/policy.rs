//! How the calling thread is scheduled (sched(7)).

#![allow(unsafe_code)] // sched_setscheduler(2) and sched_getscheduler(2) have no safe binding.

/// A policy without priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Policy {
    /// As any other (SCHED_OTHER).
    Ordinary = libc::SCHED_OTHER,
    /// It makes way for all others (SCHED_IDLE).
    MakesWay = libc::SCHED_IDLE,
}

impl Policy {
    /// Whether it is the calling thread's.
    pub(crate) fn is_ours(self) -> bool {
        // SAFETY: asks for a number.
        unsafe { libc::sched_getscheduler(0) == self as i32 }
    }

    /// Makes it the calling thread's; says whether that could be. To become an ordinary one again takes CAP_SYS_NICE or
    /// RLIMIT_NICE.
    pub fn set(self) -> bool {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure is read before the call returns.
        unsafe { libc::sched_setscheduler(0, self as i32, &raw const parameters) == 0 }
    }
}
