//! The built `weir` command, run as people and mount(8) run it.
//!
//! A test that needs FUSE, root or a missing tool reports that and is skipped; with `CI=true` it
//! fails.

#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

mod bad_input;
mod configuration;
mod ending;
mod helper;
mod lifecycle;
mod ordinary_user;
mod recording;
mod scene;
mod trouble;
