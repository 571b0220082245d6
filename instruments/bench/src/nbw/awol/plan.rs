//! What the suite runs, at which size.
//!
//! The paper's machine had 2 GB, of which 1.5 were page cache, and files of 1 GB. Memory and files
//! are divided alike, by [`SCALE`], so that the two files of ZRZW are a third more than the page
//! cache as they were there. Files that are read in order are not divided: a pass over one is to
//! last, and nothing of it to be in memory. On the hard disk, where a read beside a writer may wait
//! for two seconds, a load is twice as long as elsewhere.

use crate::disk::Model;
use crate::nbw::awol::sweep::Sweep;
use crate::nbw::plan::{Cell, Filter};
use crate::nbw::profile::Form;
use crate::nbw::results::{Experiment, Profile, Sizes};
use crate::page::PAGE;
use crate::stage::Contestant;
use crate::workload::{Access, SideBySide, WORKLOADS, Workload};

/// What the paper's sizes are divided by.
const SCALE: u32 = 16;
/// Memory of the paper's machine.
const PAPER_MEMORY_BYTES: u64 = 2 << 30;
/// Its files.
const PAPER_FILE_BYTES: u64 = 1 << 30;
/// The greatest file of clients that come and go.
const PAPER_VARIABLE_BYTES: u64 = 512 << 20;
/// `--patch-memory`: whole pages make no patches, so it is hardly used.
const PATCH_BYTES: u64 = 4 << 20;
/// Length of a load on the hard disk.
const SECONDS: f64 = 10.0;
/// Files that are read in order.
const SEQUENTIAL_BYTES: u64 = 1 << 30;
/// The mean time between changes where clients come and go.
const CHANGE_SECONDS: f64 = 0.5;
/// The seed of everything a load draws.
const SEED: u64 = 0x6177_6f6c;

/// The sizes and times of a form, named after it and the setting that is gone through.
pub fn profile(quick: bool, sweep: Option<Sweep>) -> Profile {
    let (name, rounds) = if quick { ("quick", 1) } else { ("full", 3) };
    let mut profile = Profile {
        name: sweep.map_or(name.into(), |sweep| format!("{name}-{sweep}")),
        scale: SCALE,
        file_bytes: PAPER_FILE_BYTES / u64::from(SCALE),
        memory_bytes: PAPER_MEMORY_BYTES / u64::from(SCALE),
        patch_bytes: PATCH_BYTES,
        seconds: SECONDS,
        rounds,
        ..Form::Quick.profile()
    };
    let mut sizes = Sizes {
        file_bytes: profile.file_bytes,
        sequential_bytes: SEQUENTIAL_BYTES,
        variable_bytes: [0, PAPER_VARIABLE_BYTES / u64::from(SCALE)],
        change_seconds: CHANGE_SECONDS,
        seed: SEED,
    };
    sizes.variable_bytes =
        workload(&profile, &sizes, (None, Access::Variable)).least_and_greatest();
    profile.side_by_side = Some(sizes);
    profile
}

/// The cells of `profile` for `contestants`, of which ext4 is the first: all of them, or those in which
/// a setting is gone through.
pub fn cells(
    profile: &Profile,
    contestants: &[Contestant],
    sweep: Option<Sweep>,
    filter: &Filter,
) -> Vec<Cell> {
    let sizes = profile.side_by_side.as_ref().expect("this suite's profile has them");
    let mut cells = Vec::new();
    for &disk in &filter.disks {
        for sides in WORKLOADS {
            let workload = workload(profile, sizes, sides);
            let cell = cell(disk, profile, contestants, workload);
            match sweep {
                Some(sweep) if !sweep.wants(&cell.label) => {}
                Some(sweep) => cells.push(Cell {
                    name: format!("{disk}/{sweep}/{}", cell.label),
                    experiment: Experiment::Setting,
                    ..cell
                }),
                None => cells.push(cell),
            }
        }
    }
    cells.retain(|cell| filter.wants(cell));
    cells
}

fn workload(
    profile: &Profile,
    sizes: &Sizes,
    (reader, writer): (Option<Access>, Access),
) -> SideBySide {
    let file_bytes = match writer {
        Access::Sequential => sizes.sequential_bytes,
        Access::Random | Access::Zipf => sizes.file_bytes,
        Access::Variable => PAPER_VARIABLE_BYTES / u64::from(SCALE),
    };
    let (seconds, change_seconds) = (profile.seconds, sizes.change_seconds);
    SideBySide { reader, writer, file_bytes, seconds, change_seconds, seed: sizes.seed }
}

/// Length of a load on `disk`.
fn seconds_on(disk: Model, profile: &Profile) -> f64 {
    if disk == Model::Hdd { profile.seconds } else { profile.seconds / 2.0 }
}

fn cell(disk: Model, profile: &Profile, contestants: &[Contestant], workload: SideBySide) -> Cell {
    let seconds = seconds_on(disk, profile);
    let workload = SideBySide { seconds, ..workload };
    Cell {
        name: format!("{disk}/{}", workload.name()),
        experiment: Experiment::SideBySide,
        label: workload.name(),
        disk,
        size_bytes: PAGE,
        memory_bytes: profile.memory_bytes,
        workload: Workload::SideBySide(workload),
        contestants: contestants.to_vec(),
        rounds: profile.rounds,
        seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{Fetch, WriteBack};

    fn all(quick: bool) -> Vec<Cell> {
        let policies = [WriteBack::Static, WriteBack::Adaptive].map(Contestant::WeirWriteBack);
        let contestants = [&[Contestant::Ext4], &policies[..]].concat();
        let filter = Filter { disks: vec![Model::Hdd, Model::Ssd], names: Vec::new() };
        cells(&profile(quick, None), &contestants, None, &filter)
    }

    #[test]
    fn every_workload_is_there_once_and_those_that_share_files_stand_together() {
        let cells = all(true);
        let mut names: Vec<_> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), 14);
        for name in ["nrsw", "nrzw", "nrvw", "srsw", "rrrw", "zrzw", "vrvw"] {
            assert!(names.contains(&format!("hdd/{name}").as_str()));
            assert!(names.contains(&format!("ssd/{name}").as_str()));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 14);
        let stages = cells.windows(2).filter(|two| !two[0].shares_stage(&two[1])).count() + 1;
        assert_eq!(stages, 6, "three sets of files on each disk");
    }

    #[test]
    fn the_quick_form_leaves_enough_of_ten_minutes_to_all_but_loads() {
        let seconds: f64 =
            all(true).iter().map(|cell| f64::from(cell.loads()) * cell.seconds).sum();
        assert!(seconds < 360.0, "{seconds}");
    }

    #[test]
    fn sizes_are_the_papers_divided() {
        let profile = profile(false, None);
        assert_eq!((profile.memory_bytes, profile.file_bytes), (128 << 20, 64 << 20));
        let sizes = profile.side_by_side.clone().unwrap();
        let [least, most] = sizes.variable_bytes;
        assert!((100 << 20) / 16 <= least && least < most && most <= 32 << 20);
        assert!(sizes.sequential_bytes > 2 * profile.memory_bytes);
    }

    #[test]
    fn a_part_is_found_by_its_name() {
        let filter = Filter { disks: vec![Model::Ssd], names: vec!["zrzw".into()] };
        let contestants = [Contestant::Ext4, Contestant::Weir(Fetch::Auto)];
        let names = |sweep| {
            let cells = cells(&profile(true, sweep), &contestants, sweep, &filter);
            cells.into_iter().map(|cell| cell.name).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["ssd/zrzw"]);
        assert_eq!(names(Some(Sweep::DirtyMax)), ["ssd/dirty-max/zrzw"], "another case");
        assert_eq!(profile(true, Some(Sweep::DirtyMax)).name, "quick-dirty-max");
    }
}
