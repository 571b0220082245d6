//! Runs the plan: cell after cell, every contestant in every round, the order of the contestants
//! turning from round to round, content verified after each.
//!
//! A contestant starts from the same files, cold. What it wrote is read back byte for byte from the
//! disk's own file system after Weir was unmounted, so a mistake on any way home shows; then it is
//! put back for the next one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::measure::turn;
use crate::nbw::awol::over_time::curves;
use crate::nbw::bound;
use crate::nbw::names::BASELINE;
use crate::nbw::plan::Cell;
use crate::nbw::progress::Progress;
use crate::nbw::results::{Case, Experiment, Profile, Results, Round};
use crate::nbw::spill::over_time::over_time;
use crate::nbw::spill::watch;
use crate::nbw::summary;
use crate::stage::{Contestant, Run, Stage, Terms};
use crate::workload::{Kind, Outcome, PERSONALITY_FILE};

/// How long the device's fetch rate is measured.
const FETCH_RATE_TIME: Duration = Duration::from_secs(2);

/// How much longer than its own length a load may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Room on a disk beside the workload's files: the file system's own, and files that grow.
const DISK_BYTES_MORE: u64 = 256 << 20;

/// What a run is about.
pub struct Suite {
    /// The weir program.
    pub weir: PathBuf,
    /// Where its disks' images and mounts go.
    pub run: Run,
    /// The plan.
    pub cells: Vec<Cell>,
    /// The names of every cell there is, those that were not asked for too.
    pub whole: Vec<String>,
    /// Where results are kept as they come.
    pub json: Option<PathBuf>,
    /// Whether what happens over the time of a load is kept, which this weir can record.
    pub over_time: bool,
}

/// Size of the disk a cell runs on.
pub fn disk_bytes(cell: &Cell, profile: &Profile) -> u64 {
    (cell.workload.file_bytes() + profile.log_bytes + DISK_BYTES_MORE).next_multiple_of(1 << 20)
}

/// A stage with its files, and what is known of its disk.
struct Prepared {
    cell: Cell,
    stage: Stage,
    fetches_per_s: Option<f64>,
}

impl Suite {
    /// Runs what `results` does not have yet; saves after each cell.
    pub fn perform(&self, results: &mut Results) -> Result<()> {
        let started = Instant::now();
        let took_before = results.took_seconds;
        let missing: Vec<&Cell> =
            self.cells.iter().filter(|cell| results.find(&cell.name, BASELINE).is_none()).collect();
        let mut progress = Progress::new(&missing);
        let mut prepared: Option<Prepared> = None;
        for cell in missing {
            let usable = prepared.take().filter(|ready| ready.cell.shares_stage(cell));
            let mut ready = match usable {
                Some(ready) => ready,
                None => self.prepare(cell, &results.profile, &progress)?,
            };
            let cases = ready.perform(cell, &results.profile, &mut progress)?;
            results.cases.extend(cases);
            results.took_seconds = took_before + started.elapsed().as_secs_f64();
            self.save(results)?;
            prepared = Some(ready);
        }
        results.complete = self.whole.iter().all(|name| results.find(name, BASELINE).is_some());
        self.save(results)
    }

    fn save(&self, results: &Results) -> Result<()> {
        self.json.as_ref().map_or(Ok(()), |path| results.save(path))
    }

    /// A disk of its own with the cell's files on it.
    fn prepare(&self, cell: &Cell, profile: &Profile, progress: &Progress) -> Result<Prepared> {
        progress.say(&format!("{}: preparing", cell.name));
        let terms = Terms {
            disk: cell.disk,
            disk_bytes: disk_bytes(cell, profile),
            memory_bytes: cell.memory_bytes,
            process_bytes: cell.workload.process_bytes(),
            patch_bytes: profile.patch_bytes,
            log_bytes: profile.log_bytes,
            other_users: cell.workload.is_of_another_user(),
            weir: self.weir.clone(),
            over_time: self.over_time,
            limit: LIMIT + Duration::from_secs_f64(cell.seconds),
        };
        let stage = Stage::new(&self.run, terms)?;
        cell.workload.prepare(stage.home())?;
        Ok(Prepared { cell: cell.clone(), stage, fetches_per_s: None })
    }
}

impl Prepared {
    fn perform(
        &mut self,
        cell: &Cell,
        profile: &Profile,
        progress: &mut Progress,
    ) -> Result<Vec<Case>> {
        let mut rounds = vec![Vec::new(); cell.contestants.len()];
        for round in 0..cell.rounds {
            for nth in turn(round, cell.contestants.len()) {
                progress.say(&format!("{}: {}", cell.name, cell.contestants[nth].name()));
                rounds[nth].push(self.load(cell, cell.contestants[nth], profile)?);
                progress.done(cell.seconds);
            }
        }
        let mut cases = summary::cases(cell, rounds);
        let random_write = cell.label == Kind::RandomWrite.to_string();
        let patches = cell.size_bytes > 0 && cell.size_bytes < crate::page::PAGE_BYTES as u64;
        if cell.experiment == Experiment::Personality && random_write && patches {
            let fetches_per_s = self.fetches_per_s()?;
            let bound = bound::ops_per_s(
                profile.patch_bytes,
                cell.size_bytes,
                fetches_per_s,
                profile.seconds,
            );
            for case in &mut cases {
                case.bound_ops_per_s = Some(bound);
            }
        }
        progress.report(&cases);
        Ok(cases)
    }

    /// One repetition by one contestant.
    fn load(&self, cell: &Cell, contestant: Contestant, profile: &Profile) -> Result<Round> {
        let watched = cell.experiment == Experiment::Spill;
        let ((outcome, log), observed) = self.stage.round(contestant, |arena| {
            if watched {
                return watch::load(arena, &cell.workload);
            }
            Ok((arena.load::<_, Outcome>(&cell.workload)?, Vec::new()))
        })?;
        cell.workload.verify(self.stage.home(), &outcome)?;
        cell.workload.reset(self.stage.home(), &outcome)?;
        let mut round = summary::round(&outcome, &observed)?;
        if cell.experiment.is_awols() {
            round.disk_use = Some(summary::disk_use_of(&outcome, &observed));
        }
        round.over_time = observed.over_time.as_ref().map(curves);
        Ok(if watched { over_time(round, &outcome, &log, cell, profile) } else { round })
    }

    /// Measured once for a disk.
    fn fetches_per_s(&mut self) -> Result<f64> {
        if let Some(rate) = self.fetches_per_s {
            return Ok(rate);
        }
        let (rate, _) = self.stage.round(Contestant::Ext4, |arena| {
            bound::fetch_rate(&arena.directory().join(PERSONALITY_FILE), FETCH_RATE_TIME)
        })?;
        self.fetches_per_s = Some(rate);
        Ok(rate)
    }
}
