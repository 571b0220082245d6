//! Crashes: cuts the power or kills the daemon, recovers what is left, and compares it.

use weir_log::{Lsn, replay};

use super::{Flight, Life, Name, as_commit};
use crate::crash::broken::{Broken, Crash};
use crate::crash::files::{HomeFile, Recovering};
use crate::crash::log_disk::LogDisk;
use crate::crash::tally::Tally;
use crate::rng::Rng;

/// The log's disk and home after a crash and recovery.
struct Left {
    /// The files that have a name.
    homes: Vec<HomeFile>,
    log_disk: LogDisk,
    end: Lsn,
}

impl Life {
    /// Ends the life by a crash; the next life begins with what was recovered.
    ///
    /// # Errors
    /// A violated promise.
    pub fn reborn(mut self, rng: &mut Rng, tally: &mut Tally) -> Result<Life, Broken> {
        let power = rng.chance(650);
        let Left { homes, mut log_disk, end } = self.crash(power, rng, tally)?;
        let superblock = log_disk.superblock().next_use(end);
        log_disk.write(&as_commit(&superblock));
        Ok(Life::begin(homes, log_disk, superblock, self.plan, self.writes, rng))
    }

    pub(super) fn maybe_cut(
        &mut self,
        sparse: u64,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        if rng.below(sparse) == 0 {
            let power = rng.chance(650);
            self.crash(power, rng, tally)?;
        }
        Ok(())
    }

    /// Cuts the power or kills the daemon on a copy of the devices; recovers and compares.
    fn crash(&mut self, power: bool, rng: &mut Rng, tally: &mut Tally) -> Result<Left, Broken> {
        self.crashes += 1;
        let (failing, idle) = (self.failing > 0, self.idle);
        let mut crash = Crash { nth: self.crashes, power, again: false, failing, idle };
        let mut homes: Vec<HomeFile> = self
            .homes
            .iter()
            .map(|home| if power { home.cut(rng) } else { home.kill(rng) })
            .collect();
        let mut log_disk = self.log_disk.clone();
        for flight in self.flight.values() {
            if let Flight::Log { commit, .. } = flight {
                log_disk.tear(commit, rng);
            }
        }
        let superblock = log_disk.superblock();
        let mut gone = self.gone(power, rng);
        loop {
            tally.count(crash);
            let mut recovering = Recovering::new(homes, gone.clone());
            if rng.chance(300) {
                recovering.writes_left = Some(rng.below(20));
            }
            let replayed = match self.void {
                true => replay(&mut log_disk, superblock, None::<&mut Recovering>),
                false => replay(&mut log_disk, superblock, Some(&mut recovering)),
            };
            match replayed {
                Ok(report) => {
                    let homes = recovering.files;
                    self.check(&homes, &gone, crash, tally)?;
                    // Recovered data is durable before the log is used again.
                    if !homes.iter().all(HomeFile::is_durable) {
                        let cut: Vec<HomeFile> = homes.iter().map(|home| home.cut(rng)).collect();
                        let crash = Crash { power: true, again: true, ..crash };
                        self.check(&cut, &gone, crash, tally)?;
                    }
                    let left = homes.into_iter().zip(gone).filter(|(_, gone)| !gone);
                    let homes = left.map(|(home, _)| home).collect();
                    return Ok(Left { homes, log_disk, end: report.end });
                }
                Err(_) if recovering.writes_left == Some(0) => {
                    tally.recovery_cuts += 1;
                    if !crash.power && rng.chance(500) {
                        crash.power = true;
                        gone = self.gone(true, rng);
                    }
                    let files = recovering.files.iter();
                    homes = files
                        .map(|home| if crash.power { home.cut(rng) } else { home.kill(rng) })
                        .collect();
                }
                Err(error) => return Err(Broken::Log { error: error.to_string(), crash }),
            }
        }
    }

    /// Compares recovered contents with what was promised and with what home had: durable content after a
    /// power cut, everything written to home after a kill.
    pub(super) fn check(
        &self,
        homes: &[HomeFile],
        gone: &[bool],
        crash: Crash,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        for (file, (found, had)) in homes.iter().zip(&self.homes).enumerate() {
            if gone[file] {
                continue;
            }
            let home = if crash.power { had.durable() } else { had.seen() };
            // Records of a failed log are replayed over newer data at home.
            let home = (self.void || !self.engine.log_has_failed()).then_some(home);
            self.histories[file].check(file, found.content(), home, crash)?;
            tally.bytes += found.content().len() as u64;
        }
        Ok(())
    }

    /// Which files have no name after a crash: a power cut may undo a removal that is not durable.
    pub(super) fn gone(&self, power: bool, rng: &mut Rng) -> Vec<bool> {
        let mut is_gone = |&name| match name {
            Name::There => false,
            Name::Removed => !power || rng.chance(500),
            Name::Gone => true,
        };
        self.names.iter().map(&mut is_gone).collect()
    }
}
