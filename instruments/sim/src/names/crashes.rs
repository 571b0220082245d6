//! Crashes: cuts the power or kills the daemon, recovers what is left, and compares it with what programs saw.

use weir_engine::Order;
use weir_log::{Lsn, Superblock, replay};
use weir_names::NodeId;

use super::broken::{Broken, Cut, of_bytes};
use super::home::{Home, Refusal};
use super::life::{Flight, Life};
use super::plain::Picture;
use super::recovery::Recovery;
use super::tally::Tally;
use crate::crash::Crash;
use crate::crash::log_disk::LogDisk;
use crate::rng::Rng;

/// Recoveries of one crash that are cut, at most.
const RECOVERIES_CUT_MAX: u32 = 4;

/// Home and the log after a crash and a recovery.
struct Left {
    home: Home,
    log_disk: LogDisk,
    superblock: Superblock,
    end: Lsn,
}

impl Life {
    /// Ends the life by a crash; the next one begins with what was recovered.
    pub(super) fn reborn(mut self, rng: &mut Rng, tally: &mut Tally) -> Result<Life, Broken> {
        let Left { home, log_disk, superblock, end } = self.crash(rng, tally)?;
        let superblock = superblock.next_use(end);
        Ok(Life::begin(home, log_disk, superblock, self.plan, self.writes, rng))
    }

    pub(super) fn maybe_cut(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        if rng.below(self.plan.sparse) == 0 {
            self.crash(rng, tally)?;
        }
        Ok(())
    }

    fn crash(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<Left, Broken> {
        self.crashes += 1;
        let power = rng.chance(650);
        let mut cut = Cut { nth: self.crashes, power, recoveries: 0, failing: self.failing > 0 };
        let mut log_disk = self.log_disk.clone();
        for flight in self.flight.values() {
            if let Flight::Log { commit, .. } = flight {
                log_disk.tear(commit, rng);
            }
        }
        let mut home = self.done_or_not(rng);
        home = if power { home.cut(rng) } else { home.kill(rng) };
        let mut floor = if power { self.home.settled } else { self.home.newest() };
        tally.cuts += 1;
        tally.kills += u64::from(!power);
        let superblock = log_disk.superblock();
        let mut note = Vec::new();
        loop {
            let mut recovery = Recovery::new(home, note, &self.plan.undone, rng);
            let may_cut = cut.recoveries < RECOVERIES_CUT_MAX;
            if may_cut && rng.chance(350) {
                recovery.requests_left = Some(rng.below(30));
            }
            if may_cut && rng.chance(60) {
                recovery.home.refusal = Some(Refusal::some(rng.chance(300), rng));
            }
            let replayed = replay(&mut log_disk, superblock, Some(&mut recovery));
            tally.recoveries += 1;
            tally.recovered += recovery.commands;
            let is_refused = matches!(&replayed, Ok(report) if !report.names_left.is_empty());
            if is_refused && !may_cut {
                let left = replayed.map(|report| report.names_left).unwrap_or_default();
                return Err(self.broken(2, format!("recovery leaves {left:?}"), cut));
            }
            match replayed {
                Ok(report) if !is_refused => {
                    let home = recovery.home;
                    self.check(&home, floor, cut, tally)?;
                    return Ok(Left { home, log_disk, superblock, end: report.end });
                }
                Err(error) if recovery.requests_left != Some(0) => {
                    return Err(self.broken(1, format!("recovery fails: {error}"), cut));
                }
                _ => {
                    tally.recovery_cuts += u64::from(!is_refused);
                    tally.refused_recoveries += u64::from(is_refused);
                    cut.recoveries += 1;
                    let cut_again = rng.chance(650);
                    if cut_again {
                        (cut.power, floor) = (true, self.home.settled);
                    }
                    note = recovery.note;
                    home = recovery.home;
                    home.refusal = None;
                    home = if cut_again { home.cut(rng) } else { home.kill(rng) };
                }
            }
        }
    }

    /// Home, which has done some of what it was asked for and nobody was told of.
    fn done_or_not(&self, rng: &mut Rng) -> Home {
        let mut home = self.home.clone();
        let mut inodes = self.inodes.clone();
        for flight in self.flight.values() {
            let Flight::Names { command, answer: None, .. } = flight else { continue };
            let Some(change) = super::inodes::change_of(command) else { continue };
            if rng.chance(500) {
                if let weir_names::tree::Change::Make { node, .. } = &change {
                    inodes.put(*node, home.new_inode());
                }
                if let Some(change) = inodes.at_home(&change) {
                    let _ = home.execute(change, 0);
                }
            }
        }
        home
    }

    pub(super) fn broken(&self, invariant: u8, what: String, cut: Cut) -> Broken {
        Broken::Invariant { invariant, what, cut, told: self.told() }
    }

    /// Compares what was recovered with what programs saw and were promised, and with what home had for good: everything
    /// programs did up to `floor`.
    fn check(&self, found: &Home, floor: usize, cut: Cut, tally: &mut Tally) -> Result<(), Broken> {
        if found.seen.list(NodeId::PARKING).next().is_some() {
            return Err(self.broken(2, "something stays parked".to_owned(), cut));
        }
        let picture = found.seen.picture();
        let moments = (0..=self.seen.moment()).rev();
        let mut all = moments.filter(|&moment| *self.seen.picture(moment) == picture);
        let Some(moment) = all.next() else {
            return Err(self.broken(2, self.difference(&picture), cut));
        };
        // The latest moment that looks like this is the most favourable one for names. The bytes may be of another one.
        if moment < self.seen.promised {
            let promised = self.seen.promised;
            let what =
                format!("names are as at {moment}, and a sync of {promised} was acknowledged");
            return Err(self.broken(1, what, cut));
        }
        if moment < floor {
            let what = format!("names are as at {moment}, and home had what was done at {floor}");
            return Err(self.broken(3, what, cut));
        }
        if self.plan.order == Order::All {
            self.check_order(found, &picture, floor, cut)?;
        }
        tally.kept += self.seen.promised as u64;
        let least = self.seen.promised.max(floor);
        let mut first = self.check_bytes(found, moment, cut, tally);
        while first.is_err()
            && let Some(moment) = all.next().filter(|&moment| moment >= least)
        {
            if self.check_bytes(found, moment, cut, tally).is_ok() {
                first = Ok(());
            }
        }
        first
    }

    /// Names and all bytes are as at one time, not before the last acknowledged sync.
    fn check_order(
        &self,
        found: &Home,
        picture: &Picture,
        floor: usize,
        cut: Cut,
    ) -> Result<(), Broken> {
        let there = found.seen.paths();
        let wrong_at = |moment: usize, time: u64| {
            let paths = self.seen.state(moment).paths().into_iter();
            let mut files = paths.filter(|(_, node)| self.seen.histories.contains_key(node));
            files.find(|(path, node)| {
                let content = found.files[&there[path]].content();
                !self.timeline.may_have(*node, time, content)
            })
        };
        let mut wrong = None;
        for moment in (floor..=self.seen.moment()).rev() {
            if self.seen.picture(moment) != picture {
                continue;
            }
            for time in self.timeline.times_of(moment) {
                match wrong_at(moment, time) {
                    None => return Ok(()),
                    Some((path, node)) => drop(wrong.get_or_insert((path, node, time))),
                }
            }
        }
        let what = match wrong {
            Some((path, node, time)) => {
                let content = found.files[&there[&path]].content();
                let path = String::from_utf8_lossy(&path).into_owned();
                let differs = self.timeline.difference(node, time, content);
                format!(
                    "bytes and names are of no one time: at {time} {path}, which is {node:?}, {differs}"
                )
            }
            None => "names are as they were before the last acknowledged sync".to_owned(),
        };
        Err(self.broken(7, what, cut))
    }

    /// The bytes of all files, if names are as at a moment.
    fn check_bytes(
        &self,
        found: &Home,
        moment: usize,
        cut: Cut,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let (wanted, there) = (self.seen.state(moment).paths(), found.seen.paths());
        for (path, node) in wanted {
            let Some(history) = self.seen.histories.get(&node) else { continue };
            let content = found.files[&there[&path]].content();
            let inode = self.inodes.of(node);
            let had = match cut.power {
                true => &self.home.durable,
                false => &self.home.seen,
            };
            let had = inode.filter(|&inode| had.names_of(inode).next().is_some());
            let had = had
                .and_then(|inode| self.home.files.get(&inode))
                .map(|file| if cut.power { file.durable() } else { file.seen() });
            let Cut { nth, power, failing, .. } = cut;
            let crash = Crash { nth, power, again: cut.recoveries > 0, failing, idle: false };
            let number = node.0 as usize;
            tally.bytes += content.len() as u64;
            tally.files += 1;
            history.check(number, content, had, crash).map_err(|broken| {
                let (invariant, what) = of_bytes(&broken, cut);
                let what = format!("{}: {what}", String::from_utf8_lossy(&path));
                self.broken(invariant, what, cut)
            })?;
            let replaced = self.seen.replaced.iter();
            let replaced = replaced.filter(|of| of.node == node && of.moment <= moment);
            if let Some(position) = replaced.map(|of| of.position).max() {
                let mut history = history.clone();
                history.synced(position);
                history.check(number, content, None, crash).map_err(|broken| {
                    let path = String::from_utf8_lossy(&path).into_owned();
                    let what = format!("{path} has its name before its data: {broken}");
                    self.broken(2, what, cut)
                })?;
            }
        }
        Ok(())
    }

    /// How a picture differs from the moment that is most like it.
    fn difference(&self, found: &super::plain::Picture) -> String {
        let differences = |moment: usize| {
            let wanted = self.seen.picture(moment);
            let missing = wanted.iter().filter(|(path, of)| found.get(*path) != Some(of));
            let more = found.iter().filter(|(path, _)| !wanted.contains_key(*path));
            let missing = missing.map(|(path, of)| {
                format!("{} was {of:?}, is {:?}", String::from_utf8_lossy(path), found.get(path))
            });
            let more =
                more.map(|(path, of)| format!("{} is {of:?}", String::from_utf8_lossy(path)));
            missing.chain(more).collect::<Vec<String>>()
        };
        let all = (self.seen.promised..=self.seen.moment()).map(|at| (differences(at), at));
        let (least, at) = all.min_by_key(|(all, _)| all.len()).expect("there is one");
        format!("names are as at no moment; at {at}: {}", least.join(", "))
    }

    /// The tail of the log as it is durable passes no change that is not settled at home or superseded.
    pub(super) fn check_tail(&mut self) -> Result<(), Broken> {
        let tail = self.log_disk.superblock().checkpoint;
        if tail <= self.tail {
            return Ok(());
        }
        self.tail = tail;
        let (now, durable) = (self.seen.now(), &self.home.durable);
        let passed = |what: String| Broken::Tail { what, told: self.told() };
        let home_of = |directory| self.inodes.of(directory).filter(|&at| durable.is_directory(at));
        for (at, moment, node) in self.seen.entries_settled_before(tail) {
            // What was in a directory that is gone does not count.
            if now.inode(at.parent()).is_none() {
                continue;
            }
            let there = home_of(at.parent()).and_then(|parent| {
                durable.get(&weir_names::Place::new(parent, at.name()).expect("it is a name"))
            });
            if there.and_then(|inode| self.inodes.node(inode)) != node
                || there.is_some() != node.is_some()
            {
                return Err(passed(format!("change {moment} of {at:?}, to {node:?}")));
            }
        }
        for (node, moment, wanted) in self.seen.attributes_settled_before(tail) {
            if now.inode(node).is_none() {
                continue;
            }
            let there = self.inodes.of(node).and_then(|inode| durable.inode(inode));
            if there.is_none_or(|there| there.attributes != *wanted) {
                return Err(passed(format!("change {moment} of {node:?}, to {wanted:?}")));
            }
        }
        Ok(())
    }
}
