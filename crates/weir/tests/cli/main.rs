//! The built `weir` command, run as people and mount(8) run it.
//!
//! What needs FUSE, root or a tool that is missing says so and is skipped; with `CI=true` it has
//! failed.

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
