//! NBW's evaluation (papers 000 and 001, section 6) on emulated disks: the kernel's ext4, whose
//! small writes wait for their pages, and Weir in front of the same ext4, side by side.
//!
//! `profile` says how much is run, `plan` what, `perform` runs it and `run` begins a run, `summary` makes figures of it,
//! `results` is the JSON they are kept in, `bound` what could be reached at most, `goals` what was
//! to be reached, `table` what is printed.

pub mod awol;
mod bound;
pub mod command;
pub mod goals;
pub mod names;
mod perform;
pub mod plan;
mod profile;
mod progress;
pub mod results;
pub mod run;
#[cfg(test)]
pub mod sample;
pub mod spill;
pub mod summary;
pub mod synced;
pub mod table;
