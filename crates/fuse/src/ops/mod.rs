//! The operations of the file system, one file for each kind.
//!
//! Each takes this crate's types, calls the engine or the back end, and returns this crate's types or an
//! [`crate::errno::Errno`]. Operations that may have to wait for data take a continuation, which is run exactly once,
//! perhaps by another thread; the others return their result.

mod admission;
pub(crate) mod attributes;
pub(crate) mod behind;
pub(crate) mod closing;
pub(crate) mod data;
pub(crate) mod directories;
mod giving_up;
mod home_steps;
mod listings_ahead;
mod listings_behind;
pub(crate) mod names;
pub(crate) mod names_home;
pub(crate) mod open;
pub(crate) mod privileges;
mod reach;
pub(crate) mod reclaim;
mod removed_by_others;
mod settling;
pub(crate) mod space;
pub(crate) mod xattr;
