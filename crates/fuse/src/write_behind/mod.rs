//! Names that do not wait for home: changes of names and attributes are applied to a tree in memory, answered, and
//! executed at home by threads of this module.
//!
//! What a program may do and sees is decided on the thread that read the request, under one lock ([`State`]). The tree
//! ([`weir_names::tree`]) decides what home is to do next; [`crate::ops::names_home`] does it, on as many threads as home is slow.
//! The changes are in the redo log ([`log`]), and a sync waits for that alone. With `--names behind` they are not: a sync of a
//! file or directory waits until home has its names, and a crash loses changes of names that were not synced. A log that fails goes on
//! in SOURCE for a while ([`continued`]).
//!
//! Where home is far away, [`listers`] tell the tree of directories before a program asks for them ([`ahead`]).
//!
//! Owns the tree, the threads, and the requests that wait for home. Does not own inodes, nor the rules that decide which
//! changes are written back ([`crate::ops::behind`]).
//!
//! Invariants:
//! - no system call and no continuation under the lock;
//! - an entry that the tree knows is answered by the tree; home is asked only for what it does not know;
//! - a node that the tree knows stays known to the table of inodes ([`crate::inodes::Inodes::keep`]).
//!
//! Lock order: an inode's `open` state, then this lock, then the namespace's. The shard is called under it to append to the log, and for nothing else.

mod ahead;
mod changed_by_others;
mod commit;
mod conflicts;
mod continued;
mod crew;
mod doubts;
mod ending;
mod goes_on;
mod held;
mod hold;
mod known_names;
mod listers;
mod log;
mod made;
mod moves;
mod refused_steps;
mod refusing;
mod state;
mod steps;
mod workers;

pub(crate) use commit::{NamesLog, Settling, SyncOfHome};
pub(crate) use doubts::Doubt;
pub(crate) use listers::FoundAhead;
pub(crate) use log::LogJob;
pub(crate) use made::{Made, Named};
pub(crate) use moves::{Begun, Stage};
pub(crate) use refused_steps::stays_begun;
pub(crate) use state::{Awaited, Known, Shown, Unchanged, WriteBehind};
pub(crate) use steps::Refusal;
pub(crate) use workers::Job;
