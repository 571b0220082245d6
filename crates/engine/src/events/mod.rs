//! The events of an engine: what a call, a completion or a tick does.
//!
//! Each file is one kind of event, or one step that several events share. Only events use more than one part.

mod attach;
mod bind;
mod check;
mod cut;
mod destage;
mod destage_run;
mod dispatch;
mod failure;
mod fetch;
mod fetch_run;
mod frames;
mod freeze;
mod lane;
mod layout;
mod log;
mod log_space;
pub(crate) mod names;
mod next_page;
mod order;
mod pacing;
mod pages;
mod patch_memory;
mod read;
mod read_ahead;
mod readers;
mod records;
mod repair;
mod reserve;
mod retention;
mod share;
mod spill;
mod spilled;
mod stats;
mod sweep;
mod sync;
mod sync_by_log;
mod sync_home;
mod unspill;
mod waiting;
mod write;
mod write_ahead;
