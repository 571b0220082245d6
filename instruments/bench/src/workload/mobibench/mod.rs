//! MobiBench's traces of Android applications, replayed with their timing, as in the paper's
//! section 6.3.
//!
//! `parse` reads a trace, `plan` says what its calls mean for files, `contents` is the model of what
//! they hold, `replay` does it. Here: preparing, comparing and putting back. The traces themselves
//! and where they are from are in `../traces`.

mod contents;
mod parse;
mod plan;
mod replay;

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use strum::{Display, VariantArray};

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::workload::job::Job;
use crate::workload::outcome::Outcome;
use crate::workload::prepared::{Prepared, first_difference};
use crate::workload::tree::{remove, sync};
use contents::Contents;
use plan::{Action, Plan};

/// Which trace.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Trace {
    /// The Facebook application.
    Facebook,
    /// The Twitter application.
    Twitter,
}

impl Trace {
    fn packed(self) -> &'static [u8] {
        match self {
            Trace::Facebook => include_bytes!("../traces/facebook.trace.gz"),
            Trace::Twitter => include_bytes!("../traces/twitter.trace.gz"),
        }
    }

    fn plan(self) -> Result<Plan> {
        Ok(plan::plan(parse::parse(self.packed())?))
    }

    /// What is read and written, in order.
    pub fn transfers(self) -> Result<Vec<Transfer>> {
        let transfer = |one: plan::Planned| {
            let (offset, length, is_write) = match one.action {
                Action::Read { offset, length, .. } => (offset, length, false),
                Action::Write { offset, length, .. } => (offset, length, true),
                _ => return None,
            };
            Some(Transfer { file: one.file, offset, length, is_write })
        };
        Ok(self.plan()?.operations.into_iter().filter_map(transfer).collect())
    }

    fn root(self, directory: &Path) -> PathBuf {
        directory.join(format!("trace-{self}"))
    }
}

/// Bytes that a trace reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The file's number.
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Written, not read.
    pub is_write: bool,
}

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mobibench {
    /// Which trace.
    pub trace: Trace,
    /// Whether fsyncs are done, or left out.
    pub fsync: bool,
    /// How much of the trace is replayed, seconds of its own time; it has about 120.
    pub seconds: f64,
}

impl Mobibench {
    /// The numbers of the operations that are done.
    fn operations(&self, plan: &Plan) -> Vec<usize> {
        let end = self.end(plan);
        (0..end)
            .filter(|number| {
                self.fsync || !matches!(plan.operations[*number].action, Action::Sync { .. })
            })
            .collect()
    }

    /// The number of the first operation that is too late.
    fn end(&self, plan: &Plan) -> usize {
        plan.operations.partition_point(|one| (one.time_us as f64) < self.seconds * 1e6)
    }
}

impl Job for Mobibench {
    fn file_bytes(&self) -> u64 {
        // Databases of a telephone: a few tens of megabytes.
        64 << 20
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let plan = self.trace.plan()?;
        let root = self.trace.root(home);
        remove(&root)?;
        for (number, file) in plan.files.iter().enumerate() {
            let path = root.join(&file.path);
            let directory = if file.directory { Some(&*path) } else { path.parent() };
            if let Some(directory) = directory {
                fs::create_dir_all(directory).doing("create", directory)?;
            }
            put_back(&plan, number, &path)?;
        }
        sync(&root)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let plan = self.trace.plan()?;
        replay::run(&plan, &self.operations(&plan), &self.trace.root(directory))
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        let plan = self.trace.plan()?;
        let wanted = self.operations(&plan).len() as u64;
        if outcome.done != [wanted] {
            return Err(Error::answer(
                "the load",
                format!("it did {:?} of {wanted} operations", outcome.done),
            ));
        }
        let contents = Contents::new(&plan);
        let root = self.trace.root(home);
        let mut there = HashSet::new();
        for (number, file) in plan.files.iter().enumerate() {
            let path = root.join(&file.path);
            let size = contents.size(number, self.end(&plan));
            if let (Some(size), false) = (size, file.directory) {
                let wanted = contents.bytes(number, self.end(&plan), 0..size);
                verify_file(&path, &wanted)?;
                there.insert(path);
            }
        }
        verify_nothing_else(&root, &there)
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let plan = self.trace.plan()?;
        let root = self.trace.root(home);
        for number in Contents::new(&plan).changed(self.end(&plan)) {
            put_back(&plan, number, &root.join(&plan.files[number].path))?;
        }
        sync(&root)
    }
}

/// Makes a file as it is before a replay, whatever it is now.
fn put_back(plan: &Plan, number: usize, path: &Path) -> Result<()> {
    let file = &plan.files[number];
    match file.prepared {
        _ if file.directory => Ok(()),
        Some(bytes) => {
            let mut options = OpenOptions::new();
            let to = options.write(true).create(true).truncate(false).open(path);
            let to = to.doing("create", path)?;
            Prepared::new(Contents::seed(number)).write(&to, path, 0, bytes)?;
            to.set_len(bytes).doing("cut", path)
        }
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).doing("remove", path)
            }
            _ => Ok(()),
        },
    }
}

fn verify_file(path: &Path, wanted: &[u8]) -> Result<()> {
    let found = fs::read(path).doing("read", path)?;
    if found == wanted {
        return Ok(());
    }
    let at = first_difference(&found, wanted);
    Err(Error::Different(format!(
        "{} at byte {at}: {} bytes are there instead of {}",
        path.display(),
        found.len(),
        wanted.len()
    )))
}

/// [`Error::Different`] if there is a file that should not be.
fn verify_nothing_else(directory: &Path, there: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).doing("read", directory)? {
        let entry = entry.doing("read", directory)?;
        let path = entry.path();
        if entry.file_type().doing("look at", &path)?.is_dir() {
            verify_nothing_else(&path, there)?;
        } else if !there.contains(&path) {
            return Err(Error::Different(format!("{} should not be there", path.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    /// The first moments of a trace.
    fn workload(trace: Trace, fsync: bool) -> Workload {
        Workload::Mobibench(Mobibench { trace, fsync, seconds: 0.2 })
    }

    #[test]
    fn traces_are_understood() {
        for &trace in Trace::VARIANTS {
            let plan = trace.plan().unwrap();
            let count = |wanted: fn(&Action) -> bool| {
                plan.operations.iter().filter(|one| wanted(&one.action)).count()
            };
            let found = [
                plan.files.len(),
                plan.operations.len(),
                count(|action| matches!(action, Action::Read { .. })),
                count(|action| matches!(action, Action::Write { .. })),
                count(|action| matches!(action, Action::Sync { .. })),
            ];
            let expected = match trace {
                Trace::Facebook => [602, 28132, 8256, 13912, 996],
                Trace::Twitter => [202, 12669, 4187, 5370, 284],
            };
            assert_eq!(found, expected, "as traces/ORIGIN.md says of {trace}");
            let last = plan.operations.last().unwrap().time_us;
            assert!((110_000_000..130_000_000).contains(&last), "{last}");
            // The model says nothing of a file that is unlinked while it is open.
            for (number, file) in plan.files.iter().enumerate() {
                let of = |one: &&plan::Planned| one.file == number;
                let gone =
                    plan.operations.iter().filter(of).position(|one| one.action == Action::Unlink);
                let used =
                    plan.operations.iter().filter(of).any(|one| {
                        matches!(one.action, Action::Read { .. } | Action::Write { .. })
                    });
                assert!(gone.is_none() || !used, "{}", file.path.display());
            }
        }
    }

    #[test]
    fn each_leaves_what_it_must_and_can_be_put_back() {
        for (trace, fsync) in [(Trace::Facebook, true), (Trace::Twitter, false)] {
            let workload = workload(trace, fsync);
            let home = Scratch::new(&workload);
            let outcome = workload.run(&home).unwrap();
            workload.verify(&home, &outcome).unwrap();
            assert!(outcome.class("write").unwrap().ops > 10);
            assert_eq!(outcome.class("sync").is_some(), fsync);
            let read = outcome.class("read").map_or(0, |class| class.ops);
            assert_eq!(outcome.checked_reads, read);
            workload.reset(&home, &outcome).unwrap();
            let again = workload.run(&home).unwrap();
            workload.verify(&home, &again).unwrap();
        }
    }

    #[test]
    #[ignore = "takes two minutes, the traces have their own time: make test-long"]
    fn whole_traces() {
        let replay = |trace| {
            let workload = Workload::Mobibench(Mobibench { trace, fsync: true, seconds: 1e3 });
            let home = Scratch::new(&workload);
            let outcome = workload.run(&home).unwrap();
            workload.verify(&home, &outcome).unwrap();
            workload.reset(&home, &outcome).unwrap();
            println!("{trace}: {outcome:#?}");
        };
        std::thread::scope(|scope| {
            for &trace in Trace::VARIANTS {
                scope.spawn(move || replay(trace));
            }
        });
    }

    #[test]
    fn faults_are_found() {
        let workload = workload(Trace::Facebook, false);
        let home = Scratch::new(&workload);
        let before = workload.verify(&home, &Outcome::new(&[], vec![0], 0));
        assert!(matches!(before, Err(Error::Answer { .. })), "an outcome of another load");
        let outcome = workload.run(&home).unwrap();
        let Workload::Mobibench(one) = &workload else { unreachable!() };
        let plan = one.trace.plan().unwrap();
        let written = plan.operations.iter().rev().find_map(|operation| match operation.action {
            Action::Write { offset, .. } if operation.time_us < 200_000 => {
                Some((operation.file, offset as usize))
            }
            _ => None,
        });
        let (file, offset) = written.unwrap();
        let path = one.trace.root(&home).join(&plan.files[file].path);
        let good = fs::read(&path).unwrap();
        let mut bytes = good.clone();
        bytes[offset] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_different(workload.verify(&home, &outcome), &format!("at byte {offset}"));
        fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert_different(workload.verify(&home, &outcome), "bytes are there instead of");
        fs::write(&path, &good).unwrap();
        let stray = path.with_file_name("stray");
        fs::write(&stray, "").unwrap();
        assert_different(workload.verify(&home, &outcome), "should not be there");
        fs::remove_file(&stray).unwrap();
        workload.verify(&home, &outcome).unwrap();
    }
}
