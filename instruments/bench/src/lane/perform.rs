//! Runs the cells: sides take turns from round to round, and after each turn every byte is compared with what must be
//! there.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::plan::Cell;
use super::results::Case;
use super::side::{Side, Stand, drop_all_cached};
use crate::cold::drop_machine_caches;
use crate::error::{Doing, Result};
use crate::measure::turn;
use crate::mount::WeirMount;
use crate::workload::tree::{clear, sync};
use crate::workload::{Outcome, Ran, Workload, postgres_owner};

/// A side's files: at home, and as the side sees them.
struct Files {
    side: Side,
    home: PathBuf,
    shown: PathBuf,
}

impl Files {
    /// Those in a directory of that name.
    fn of(stand: &Stand, side: Side, name: &str) -> Files {
        let (home, shown) = match side {
            Side::Ext4 => (stand.plain(), stand.plain()),
            Side::Fuse | Side::Lane => (stand.source(), stand.mountpoint()),
        };
        Files { side, home: home.join(name), shown: shown.join(name) }
    }
}

/// What one turn of one side found.
struct Turn {
    outcome: Outcome,
    /// Seconds until all was on the disk.
    after_seconds: f64,
    /// Writes that came by shared memory, where the daemon counts them.
    posted_writes: Option<u64>,
}

/// The cells that share one mount. Each is told when it is done.
pub fn warm(
    stand: &Stand,
    sides: &[Side],
    cells: &[Cell],
    mut done: impl FnMut(Case) -> Result<()>,
) -> Result<()> {
    let files: Vec<Files> = sides
        .iter()
        .map(|side| {
            let files = Files::of(stand, *side, side.name());
            fs::create_dir(&files.home).doing("create", &files.home)?;
            Ok(files)
        })
        .collect::<Result<_>>()?;
    let mount = stand.mount(None)?;
    let mut before: Option<&Workload> = None;
    for cell in cells {
        if !before.is_some_and(|before| before.shares_files_with(&cell.workload)) {
            for side in &files {
                clear(&side.shown)?;
                cell.workload.prepare(&side.shown)?;
            }
        }
        before = Some(&cell.workload);
        done(rounds(cell, &files, |files| warm_turn(stand, &mount, cell, files))?)?;
    }
    for side in &files {
        clear(&side.shown)?;
    }
    mount.unmount()?;
    for side in &files {
        fs::remove_dir_all(&side.home).doing("remove", &side.home)?;
    }
    Ok(())
}

/// One after the other, each turn from nothing in memory.
pub fn cold(
    stand: &Stand,
    sides: &[Side],
    cells: &[Cell],
    mut done: impl FnMut(Case) -> Result<()>,
) -> Result<()> {
    let mut before: Option<&Workload> = None;
    for cell in cells {
        let user = if cell.workload.is_of_another_user() { Some(postgres_owner()?) } else { None };
        if !before.is_some_and(|before| before.shares_files_with(&cell.workload)) {
            for home in [stand.plain(), stand.source()] {
                clear(&home)?;
                cell.workload.prepare(&home)?;
            }
        }
        before = Some(&cell.workload);
        let files: Vec<Files> = sides.iter().map(|side| Files::of(stand, *side, "")).collect();
        done(rounds(cell, &files, |files| cold_turn(stand, user, cell, files))?)?;
    }
    for home in [stand.plain(), stand.source()] {
        clear(&home)?;
    }
    Ok(())
}

/// All rounds of a cell.
fn rounds(
    cell: &Cell,
    files: &[Files],
    mut take: impl FnMut(&Files) -> Result<Turn>,
) -> Result<Case> {
    let mut case = Case::new(&cell.name, cell.figure, files.iter().map(|files| files.side.name()));
    if let Workload::Calls(calls) = &cell.workload {
        case.io_bytes = Some(calls.io_bytes);
    }
    for round in 0..cell.rounds {
        for side in turn(round, files.len()) {
            let Turn { outcome, after_seconds, posted_writes } = take(&files[side])?;
            case.note(side, &outcome, cell.class, after_seconds)?.posted_writes = posted_writes;
        }
    }
    Ok(case)
}

/// Runs the load, and brings what it wrote to the disk.
fn load(
    stand: &Stand,
    mount: Option<&WeirMount>,
    workload: &Workload,
    files: &Files,
) -> Result<Turn> {
    // Only a weir that has a lane counts them.
    let posted = || mount.and_then(|mount| mount.status().ok()?.get("posted_writes").ok());
    let before = posted();
    let outcome: Outcome = stand.ask(files.side, "load", &files.shown, workload)?;
    let start = Instant::now();
    match mount {
        None => sync(&files.home)?,
        Some(mount) => mount.sync()?,
    }
    let after_seconds = start.elapsed().as_secs_f64();
    let posted_writes = before.and_then(|before| Some(posted()?.saturating_sub(before)));
    Ok(Turn { outcome, after_seconds, posted_writes })
}

/// A turn on a mount that stays.
fn warm_turn(stand: &Stand, mount: &WeirMount, cell: &Cell, files: &Files) -> Result<Turn> {
    let workload = &cell.workload;
    if files.side == Side::Ext4 {
        let turn = load(stand, None, workload, files)?;
        workload.verify(&files.home, &turn.outcome)?;
        workload.reset(&files.home, &turn.outcome)?;
        return Ok(turn);
    }
    let turn = load(stand, Some(mount), workload, files)?;
    // By this process, which is not under the lane; by one that is as the load was; and at home.
    workload.verify(&files.shown, &turn.outcome)?;
    let ran = Ran { workload: workload.clone(), outcome: turn.outcome.clone() };
    let _: bool = stand.ask(files.side, "check", &files.shown, &ran)?;
    drop_all_cached(&files.home)?;
    workload.verify(&files.home, &turn.outcome)?;
    // What home's page cache holds would have to be thrown out as Weir writes there.
    drop_all_cached(&files.home)?;
    workload.reset(&files.shown, &turn.outcome)?;
    Ok(turn)
}

/// A turn from nothing in memory.
fn cold_turn(stand: &Stand, user: Option<u32>, cell: &Cell, files: &Files) -> Result<Turn> {
    let workload = &cell.workload;
    sync(&files.home)?;
    drop_all_cached(&files.home)?;
    drop_machine_caches();
    let mount = match files.side {
        Side::Ext4 => None,
        Side::Fuse | Side::Lane => Some(stand.mount(user)?),
    };
    let turn = load(stand, mount.as_ref(), workload, files)?;
    if let Some(mount) = mount {
        if matches!(workload, Workload::Calls(_)) {
            workload.verify(&files.shown, &turn.outcome)?;
        }
        mount.unmount()?;
    }
    workload.verify(&files.home, &turn.outcome)?;
    workload.reset(&files.home, &turn.outcome)?;
    Ok(turn)
}
