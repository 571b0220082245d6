//! How soon a thread of ours runs once it has something to do.
//!
//! Whoever waits for an answer waits for our thread to have a CPU. Where others compute on all of them, a thread that
//! wakes waits for the running one's slice to end, some milliseconds, unless its own slice is shorter than that one's
//! (sched(7), EEVDF): it runs sooner then, though no more in all. Nobody needs a privilege for that.

#![allow(unsafe_code)] // sched_setattr(2) has no safe binding.

/// The shortest slice the kernel takes.
const SLICE_NS: u64 = 100_000;

/// Has the calling thread, and those it makes, run as soon as they can. Before Linux 6.12 nothing changes.
pub fn be_prompt() {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all numbers, of which zero is one.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is as long as is said, and written before the call returns.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } != 0 {
        return;
    }
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.size = size;
        attributes.sched_runtime = SLICE_NS;
        // SAFETY: the structure is read before the call returns. Where it fails nothing has changed.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}
