//! The demo: the same programs straight on a directory and through a mount of one, side by side, then every byte compared. Three
//! scenes, each of a kind that Weir is for: a hard disk ([`disk`]), a home behind a network ([`network`]), a program that syncs
//! ([`session`]); and in one line what it is not for ([`not_for`]).
//!
//! The sides take turns, so that whatever else the machine does meets both. A scene that this user cannot have, or this machine,
//! says so, and the others go on.

mod disk;
mod figures;
mod hard_disk;
mod network;
mod not_for;
mod page;
mod screen;
mod session;
mod sqlite;

use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use strum::VariantArray;

use crate::error::{Doing, Error, Result};
use crate::mount::require_fuse;

/// The report's name, in the directory that the demo works in.
const REPORT: &str = "report.html";

/// A part of the demo, with a directory of its own that is gone before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, VariantArray)]
pub enum Scene {
    /// Small writes and SQLite on a hard disk, on files that are not in memory.
    Disk,
    /// Files made and saved behind a network.
    Network,
    /// A program that syncs, in a session.
    Session,
}

/// Runs the demo, or one scene of it, with its files in `dir`, and leaves the report there. An error if anything failed or a byte differs.
pub fn run(weir: &Path, dir: &Path, only: Option<Scene>) -> Result<()> {
    let start = Instant::now();
    check_needs(weir)?;
    std::fs::create_dir_all(dir).doing("create", dir)?;
    screen::introduction();
    let mut outcomes = Vec::new();
    for scene in Scene::VARIANTS.iter().filter(|scene| only.is_none_or(|only| only == **scene)) {
        let outcome = match scene {
            Scene::Disk => disk::run(weir, dir),
            Scene::Network => network::run(weir, dir),
            Scene::Session => session::run(weir, dir),
        }?;
        screen::scene(&outcome);
        outcomes.push(outcome);
    }
    let not_for = not_for::measure(weir, dir)?;
    screen::not_for(&not_for);
    let report = dir.join(REPORT);
    page::write(&report, &outcomes, &not_for, start.elapsed())?;
    screen::end(start.elapsed(), &report);
    Ok(())
}

fn check_needs(weir: &Path) -> Result<()> {
    if !weir.is_file() {
        return Err(Error::Missing {
            what: format!("there is no weir program at {}", weir.display()),
            remedy: "build it with 'cargo build --release'".into(),
        });
    }
    require_fuse()
}
