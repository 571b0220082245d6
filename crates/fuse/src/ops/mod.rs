//! The operations programs ask for, one file an idea.
//!
//! Each takes our own types, has the engine or the back end change what is asked, and answers with our own types or an
//! [`crate::errno::Errno`]. Those that may have to wait for data take a continuation, which is run
//! exactly once, perhaps by another thread; the others answer at once.

mod admission;
pub(crate) mod attributes;
pub(crate) mod behind;
pub(crate) mod closing;
pub(crate) mod data;
pub(crate) mod directories;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod privileges;
mod reach;
pub(crate) mod reclaim;
pub(crate) mod space;
pub(crate) mod xattr;
