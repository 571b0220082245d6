//! External synchrony for a tree of processes (xsyncfs, OSDI'06, sections 3 and 4; output commit): a sync returns at
//! once, and what leaves the tree waits until all that was synced before is durable.
//!
//! A *session* is a program and all processes that come from it. A filter of the kernel (`filter`) stops every call of theirs that could
//! be noticed outside, and the *supervisor*, which is this process, answers it (`listener`). It reads from the call what it does
//! (`call`), finds out about its descriptors, paths and memory (`task`, `memory`), and judges whether it stays inside (`judge`). A call that leaves
//! waits for the commit (`commit`) of the mounts on which something was promised (`mounts`), and is then carried out by the kernel as
//! it was made.
//!
//! Invariants:
//! - a call that is not understood, or cannot be judged, waits: it never passes while a promise is not durable;
//! - a sync is a promise only on a mount whose changes become durable in the order in which they were made; elsewhere it is
//!   done at once;
//! - when a commit fails, or this process dies, nothing leaves any more.
//!
//! The receiving thread never waits for a commit. The thread that starts the program is itself behind the fence: it makes no call
//! that leaves, and ends with the session.

mod admission;
mod call;
mod commit;
mod filter;
mod group;
mod judge;
mod kill;
mod listener;
mod memory;
mod mounts;
mod supervisor;
mod task;
mod tcp;

pub use admission::Refusal;
pub use commit::{Counts, Failure};
pub use group::{Tree, TreeEvent, run_tree};
pub use kill::{kill_descendants, sees_itself};
pub use listener::can_stop_calls;
pub use mounts::{FindMounts, Joined, Mount, Ordered, Promised};
pub use supervisor::{Event, Group, run};
