//! Which calls are done again in a scratch directory, and what is prepared there.
//!
//! A plan is a piece of the trace, from its beginning, as far as the bounds reach. Its paths are those below the directory
//! that the advice is about. What the calls wrote is not known: other bytes of the same length are written.
//!
//! Invariants: each path of a plan is `.` or names alone, no `..` and no root ([`Plan::check`]); a plan stays within its
//! bounds; a handle is closed after its last use.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::call::{Event, PathId, What, is_below};
use crate::class::{Class, Classifier};
use crate::files::{FileId, Seen, Survey, Walk};
use crate::footprint::{PAGE, Recorder};
use crate::trace::Trace;

/// Most work between two calls that is done again, microseconds: a daemon that has had nothing to do for longer sleeps in any case.
const THINK_MAX_US: f64 = 300.0;
/// What a mapping of a file is taken to read.
const MAPPED_BYTES: u64 = 64 << 10;
/// Most that one call transfers, bytes: longer ones are done with this length.
const STEP_BYTES_MAX: u64 = 16 << 20;
/// The longest path, bytes, and its names: one of more is left out.
const PATH_BYTES_MAX: usize = 3000;
const PATH_NAMES_MAX: usize = 64;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 255;

/// What a plan may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Calls.
    pub steps: usize,
    /// Bytes read, written and allocated.
    pub bytes: u64,
    /// Bytes of files that are prepared.
    pub prepared: u64,
    /// Directories that are prepared.
    pub directories: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { steps: 20_000, bytes: 128 << 20, prepared: 32 << 20, directories: 4096 }
    }
}

/// A file or directory that is made before the calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepared {
    /// Its path.
    pub path: String,
    /// Its size; what the calls do not use is a hole.
    pub size: u64,
    /// Ranges of bytes that hold data.
    pub data: Vec<(u64, u64)>,
    /// None of it is in memory.
    pub cold: bool,
    /// A directory, and no file.
    pub directory: bool,
}

/// A call to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its class.
    pub class: Class,
    /// Its kind.
    pub what: What,
    /// What the program does before it, microseconds of work.
    pub think_us: u32,
    /// Its path, or that of its handle.
    pub path: String,
    /// The second path.
    pub to: String,
    /// The handle it uses.
    pub handle: Option<u32>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Of [`crate::call::flags`].
    pub flags: u16,
}

/// What is done again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Before.
    pub prepared: Vec<Prepared>,
    /// The calls.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Chooses the calls on files below `directory`. `outside`: whether output to what has this name leaves the program.
    pub fn new(
        trace: &Trace,
        survey: &Survey,
        directory: &[u8],
        recorder: Recorder,
        bounds: Bounds,
        outside: &dyn Fn(&[u8]) -> bool,
    ) -> Plan {
        let mut making = Making::new(trace, survey, directory, recorder);
        let (mut walk, mut classifier) = (Walk::new(survey), Classifier::default());
        let mut bytes = 0_u64;
        for event in &trace.events {
            let moves = if making.takes(event) { moved(event) } else { 0 };
            if making.steps.len() >= bounds.steps
                || bytes + moves > bounds.bytes
                || making.touched_bytes() + moves > bounds.prepared
                || making.above.len() >= bounds.directories
            {
                break;
            }
            let seen = walk.step(event);
            making.thinks(event);
            let Some(class) = classifier.of(event, seen, survey) else { continue };
            if event.what == What::Output {
                if event.path.is_some_and(|path| outside(trace.paths.get(path))) {
                    making.output(event);
                }
                continue;
            }
            if !matches!(event.what, What::SyncAll | What::Start) && making.step(event, class, seen)
            {
                bytes += moves;
            }
        }
        making.finish()
    }

    /// Whether each path stays below the directory in which the plan is done.
    ///
    /// # Errors
    /// The first path that does not.
    pub fn check(&self) -> Result<(), &str> {
        let prepared = self.prepared.iter().map(|one| one.path.as_str());
        let steps = self.steps.iter().filter(|step| step.what != What::Output);
        let second = |what| matches!(what, What::Rename | What::Link);
        let steps = steps.flat_map(|step| {
            let to = second(step.what).then_some(step.to.as_str());
            [Some(step.path.as_str()), to].into_iter().flatten()
        });
        match prepared.chain(steps).find(|path| !is_below_here(path)) {
            Some(path) => Err(path),
            None => Ok(()),
        }
    }
}

/// The most bytes that one call transfers when it is done again, and the most that are prepared of its file for it.
fn moved(event: &Event) -> u64 {
    match event.what {
        What::Read | What::Write | What::Allocate => event.length.min(STEP_BYTES_MAX),
        What::Map => MAPPED_BYTES,
        _ => 0,
    }
}

/// Whether a relative path is the directory itself, or names alone, and not too many.
fn is_below_here(path: &str) -> bool {
    let is_name = |part: &str| {
        !matches!(part, "" | "." | "..") && part.len() <= NAME_BYTES_MAX && !part.contains('\0')
    };
    let mut parts = path.split('/');
    path == "."
        || (path.len() <= PATH_BYTES_MAX
            && parts.clone().count() <= PATH_NAMES_MAX
            && parts.all(is_name))
}

/// How often each class is called below `directory`, in the whole trace.
pub fn counts(
    trace: &Trace,
    survey: &Survey,
    directory: &[u8],
    outside: &dyn Fn(&[u8]) -> bool,
) -> BTreeMap<Class, u64> {
    let (mut walk, mut classifier) = (Walk::new(survey), Classifier::default());
    let mut counts = BTreeMap::new();
    for event in &trace.events {
        let seen = walk.step(event);
        let Some(class) = classifier.of(event, seen, survey) else { continue };
        let path = event.path.map(|path| trace.paths.get(path));
        let counted = match event.what {
            What::Output => path.is_some_and(outside),
            What::Start => false,
            What::SyncAll => true,
            _ => path.is_some_and(|path| is_below(path, directory)),
        };
        if counted {
            *counts.entry(class).or_insert(0) += 1;
        }
    }
    counts
}

/// A plan that is being made.
struct Making<'a> {
    trace: &'a Trace,
    survey: &'a Survey,
    directory: &'a [u8],
    recorder: Recorder,
    steps: Vec<Step>,
    /// Names that were there, and their files.
    there: BTreeMap<String, FileId>,
    /// Names that calls of the plan have made or looked for.
    met: HashSet<PathId>,
    /// Pages that were there and are used, and how many first uses waited, of how many.
    touched: HashMap<FileId, BTreeSet<u64>>,
    waits: HashMap<FileId, (u64, u64)>,
    pages: u64,
    /// Directories above the steps' paths.
    above: HashSet<String>,
    /// When the last call ended, and what was done since the last step, microseconds.
    last_end_us: u64,
    thought_us: f64,
}

impl<'a> Making<'a> {
    fn new(
        trace: &'a Trace,
        survey: &'a Survey,
        directory: &'a [u8],
        recorder: Recorder,
    ) -> Making<'a> {
        Making {
            trace,
            survey,
            directory,
            recorder,
            steps: Vec::new(),
            there: BTreeMap::new(),
            met: HashSet::new(),
            touched: HashMap::new(),
            waits: HashMap::new(),
            pages: 0,
            above: HashSet::new(),
            last_end_us: 0,
            thought_us: 0.0,
        }
    }

    fn touched_bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// The path below the directory, if a plan can name it.
    fn relative(&self, path: PathId) -> Option<String> {
        let path = self.trace.paths.get(path);
        if !is_below(path, self.directory) {
            return None;
        }
        let rest = path.strip_prefix(self.directory)?;
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        // Weir's own directory is not shown in mounts.
        let own = rest.split(|byte| *byte == b'/').next() == Some(b".weir");
        let text = std::str::from_utf8(rest).ok()?;
        let text = if text.is_empty() { "." } else { text };
        (!own && is_below_here(text)).then(|| text.to_owned())
    }

    /// Whether a call is about what a plan can name.
    fn takes(&self, event: &Event) -> bool {
        event.path.is_some_and(|path| self.relative(path).is_some())
    }

    /// Notes the directories above a path.
    fn climb(&mut self, path: &str) {
        for (end, _) in path.rmatch_indices('/') {
            if !self.above.insert(path[..end].to_owned()) {
                break;
            }
        }
    }

    /// Takes the time before a call, which may become a step or not.
    fn thinks(&mut self, event: &Event) {
        if self.trace.timed {
            let gap = event.at_us.saturating_sub(self.last_end_us) as f64 - self.recorder.gap_us;
            self.thought_us += gap.max(0.0);
        }
        let end = event.at_us.saturating_add(event.took_us.unwrap_or(0));
        self.last_end_us = self.last_end_us.max(end);
    }

    fn think_us(&mut self) -> u32 {
        std::mem::take(&mut self.thought_us).min(THINK_MAX_US) as u32
    }

    fn output(&mut self, event: &Event) {
        let think_us = self.think_us();
        self.steps.push(Step {
            class: Class::Output,
            what: What::Output,
            think_us,
            path: String::new(),
            to: String::new(),
            handle: None,
            offset: 0,
            length: event.length.min(4096),
            flags: 0,
        });
    }

    /// Adds a call; whether it is part of the plan.
    fn step(&mut self, event: &Event, class: Class, seen: Option<Seen>) -> bool {
        let Some(path_id) = event.path else { return false };
        let Some(path) = self.relative(path_id) else { return false };
        let to = match event.to {
            Some(to) => match self.relative(to) {
                Some(to) => to,
                None => return false,
            },
            None => String::new(),
        };
        if event.what == What::Lock && event.failed {
            return false;
        }
        self.climb(&path);
        self.climb(&to);
        let first_meeting = self.met.insert(path_id);
        if let Some(to) = event.to {
            self.met.insert(to);
        }
        let size = seen.map_or(0, |seen| seen.size_before);
        if let Some(Seen { file, offset, .. }) = seen {
            let initial = self.survey.initial.get(file.0 as usize).copied().unwrap_or_default();
            if first_meeting && initial.existed {
                self.there.insert(path.clone(), file);
            }
            let length = match event.what {
                What::Map => size.min(MAPPED_BYTES),
                _ => event.length.min(STEP_BYTES_MAX),
            };
            let transfers = matches!(event.what, What::Read | What::Write | What::Map);
            if transfers && length > 0 && initial.existed {
                self.touch(event, file, offset..offset.saturating_add(length), initial.size);
            }
        }
        let length = match event.what {
            What::Map => size.min(MAPPED_BYTES),
            What::Read | What::Write | What::Allocate => event.length.min(STEP_BYTES_MAX),
            _ => event.length,
        };
        let think_us = self.think_us();
        self.steps.push(Step {
            class,
            what: event.what,
            think_us,
            path,
            to,
            handle: event.description,
            offset: seen.map_or(event.offset, |seen| seen.offset),
            length,
            flags: event.flags,
        });
        true
    }

    fn touch(&mut self, event: &Event, file: FileId, bytes: Range<u64>, size: u64) {
        let touched = self.touched.entry(file).or_default();
        let offset = bytes.start;
        let last = (bytes.end - 1).min(size.saturating_sub(1)) / PAGE;
        let mut first_use = false;
        if offset < size {
            for page in offset / PAGE..=last {
                if touched.insert(page) {
                    self.pages += 1;
                    first_use = true;
                }
            }
        }
        if first_use && event.what != What::Map {
            let (waited, of) = self.waits.entry(file).or_default();
            *of += 1;
            *waited += u64::from(self.recorder.waited(event));
        }
    }

    fn finish(self) -> Plan {
        let mut prepared = Vec::new();
        for (path, file) in &self.there {
            let initial = self.survey.initial[file.0 as usize];
            let directory = initial.directory || path == ".";
            let touched = self.touched.get(file);
            let data = touched.map(|pages| ranges(pages, initial.size)).unwrap_or_default();
            let (waited, of) = self.waits.get(file).copied().unwrap_or_default();
            // Read-ahead lets most reads of a file that is not in memory find it there.
            let cold = if self.trace.timed { waited * 16 >= of && waited > 0 } else { true };
            prepared.push(Prepared {
                path: path.clone(),
                size: initial.size,
                data,
                cold,
                directory,
            });
        }
        let directories = self.directories();
        prepared.retain(|one| !directories.contains(&one.path));
        let directory =
            |path| Prepared { path, size: 0, data: Vec::new(), cold: false, directory: true };
        let mut all: Vec<Prepared> = directories.into_iter().map(directory).collect();
        all.append(&mut prepared);
        Plan { prepared: all, steps: self.steps }
    }

    /// Directories that the calls use and none of them makes.
    fn directories(&self) -> BTreeSet<String> {
        let made = self
            .steps
            .iter()
            .filter(|step| step.what == What::MakeDirectory)
            .map(|step| step.path.as_str());
        let made: HashSet<&str> = made.collect();
        let moved =
            self.steps.iter().filter(|step| step.what == What::Rename).map(|step| step.to.as_str());
        let moved: HashSet<&str> = moved.collect();
        let mut found = BTreeSet::new();
        for path in self.steps.iter().flat_map(|step| [step.path.as_str(), step.to.as_str()]) {
            for (end, _) in path.match_indices('/') {
                let ancestor = &path[..end];
                if made.contains(ancestor) || moved.contains(ancestor) {
                    break;
                }
                found.insert(ancestor.to_owned());
            }
        }
        found
    }
}

/// Pages as ranges of bytes, up to the file's end.
fn ranges(pages: &BTreeSet<u64>, size: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        let (begin, end) = (page * PAGE, (page * PAGE).saturating_add(PAGE).min(size));
        match ranges.last_mut() {
            Some((_, last)) if *last == begin => *last = end,
            _ => ranges.push((begin, end)),
        }
    }
    ranges
}

/// What a class cost when it was done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Calls.
    pub calls: u64,
    /// All of them, microseconds.
    pub total_us: f64,
}

impl Measured {
    /// Takes what cost less in another doing of the same plan: what else the machine does only adds.
    pub fn least(&mut self, other: &Measured) {
        for (class, cost) in &other.costs {
            let least = self.costs.entry(*class).or_insert(*cost);
            // A doing that ended early has seen less.
            if cost.calls >= least.calls && cost.mean_us() < least.mean_us() {
                *least = *cost;
            }
        }
        self.steps = self.steps.max(other.steps);
        self.failed = self.failed.min(other.failed);
        self.total_us = self.total_us.min(other.total_us);
    }
}

impl Cost {
    /// Of one call.
    pub fn mean_us(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.total_us / self.calls as f64 }
    }
}

/// What doing a plan took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// By class.
    pub costs: BTreeMap<Class, Cost>,
    /// Steps that were done.
    pub steps: usize,
    /// Calls that failed where the recorded one did not.
    pub failed: u64,
    /// All of it, microseconds.
    pub total_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::flags;
    use crate::files::Before;

    fn trace(calls: &[(What, &[u8], u64, u64, u16)]) -> Trace {
        let mut trace = Trace { calls: calls.len() as u64, timed: true, ..Trace::default() };
        for (what, path, offset, length, flags) in calls {
            let path = Some(trace.paths.intern(path));
            let event = Event::new(0, 1, *what);
            let took_us = Some(200);
            trace.events.push(Event {
                path,
                took_us,
                offset: *offset,
                length: *length,
                flags: *flags,
                ..event
            });
        }
        trace
    }

    fn planned(trace: &Trace, bounds: Bounds) -> Plan {
        let survey = Survey::new(&trace.events, &trace.paths, &|_| Before::Unknown);
        let recorder = Recorder { added_us: 10.0, waits_from_us: 50.0, ..Recorder::default() };
        Plan::new(trace, &survey, b"/d", recorder, bounds, &|_| true)
    }

    #[test]
    fn what_was_there_is_prepared_and_what_is_outside_is_left_out() {
        let calls = [
            (What::Open, &b"/d/old"[..], 0, 0, flags::WRITE),
            (What::Stat, b"/d/old", 0, 10_000, 0),
            (What::Write, b"/d/old", 5000, 10, 0),
            (What::Open, b"/d/s/new", 0, 0, flags::WRITE | flags::CREATE),
            (What::Write, b"/d/s/new", 0, 10, 0),
            (What::Write, b"/e/other", 0, 10, 0),
            (What::Stat, b"/d/.weir/log", 0, 10, 0),
            (What::Output, b"pipe:[3]", 0, 10, 0),
        ];
        let plan = planned(&trace(&calls), Bounds::default());
        let old = Prepared {
            path: "old".into(),
            size: 10_000,
            data: vec![(4096, 8192)],
            cold: true,
            directory: false,
        };
        let s = Prepared { path: "s".into(), size: 0, data: vec![], cold: false, directory: true };
        assert_eq!(plan.prepared, [s, old]);
        let steps: Vec<_> = plan.steps.iter().map(|step| (step.what, step.path.as_str())).collect();
        let wanted = [
            (What::Open, "old"),
            (What::Stat, "old"),
            (What::Write, "old"),
            (What::Open, "s/new"),
            (What::Write, "s/new"),
            (What::Output, ""),
        ];
        assert_eq!(steps, wanted);
        assert_eq!(
            serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(),
            plan
        );
    }

    #[test]
    fn a_plan_stays_within_its_bounds() {
        let calls = vec![(What::Write, &b"/d/f"[..], 0, 1000, 0); 100];
        let bounds = Bounds { steps: 10, ..Bounds::default() };
        assert_eq!(planned(&trace(&calls), bounds).steps.len(), 10);
        let bounds = Bounds { bytes: 5000, ..Bounds::default() };
        assert_eq!(planned(&trace(&calls), bounds).steps.len(), 5);
    }

    #[test]
    fn what_one_call_asks_for_is_bounded() {
        for what in [What::Write, What::Read, What::Allocate] {
            let calls = vec![(what, &b"/d/f"[..], 0, u64::MAX, 0); 100];
            let plan = planned(&trace(&calls), Bounds::default());
            let moved: u64 = plan.steps.iter().map(|step| step.length).sum();
            assert!(!plan.steps.is_empty() && moved <= 128 << 20, "{what:?}: {moved}");
            let prepared: u64 = plan
                .prepared
                .iter()
                .flat_map(|one| one.data.iter().map(|(begin, end)| end - begin))
                .sum();
            assert!(prepared <= 32 << 20, "{what:?}: {prepared}");
        }
    }

    #[test]
    fn directories_are_bounded() {
        let paths: Vec<String> = (0..1000).map(|at| format!("/d/{at}/a/b/c/d/e/f/x")).collect();
        let calls: Vec<_> =
            paths.iter().map(|path| (What::Stat, path.as_bytes(), 0, 0, 0)).collect();
        let plan = planned(&trace(&calls), Bounds::default());
        let directories = plan.prepared.iter().filter(|one| one.directory).count();
        assert!((4000..4200).contains(&directories), "{directories}");
    }

    #[test]
    fn no_path_of_a_plan_leads_out() {
        let deep = format!("/d/{}x", "a/".repeat(100));
        let long = format!("/d/{}", "a".repeat(256));
        let calls = [
            (What::Write, &b"/d/../../etc/passwd"[..], 0, 1, 0),
            (What::Write, b"/d/../d2/x", 0, 1, 0),
            (What::Unlink, b"/d//etc/x", 0, 0, 0),
            (What::Unlink, b"/d/./y", 0, 0, 0),
            (What::Unlink, b"/d/z\0", 0, 0, 0),
            (What::Unlink, deep.as_bytes(), 0, 0, 0),
            (What::Unlink, long.as_bytes(), 0, 0, 0),
        ];
        let plan = planned(&trace(&calls), Bounds::default());
        let paths: Vec<_> = plan.steps.iter().map(|step| step.path.as_str()).collect();
        assert_eq!(paths, ["etc/x", "y"]);
        assert_eq!(plan.check(), Ok(()));
        for path in ["..", "a/../b", "/etc", "a//b", "", "a/", "./a"] {
            let mut other = plan.clone();
            other.steps[1].path = path.to_owned();
            assert_eq!(other.check(), Err(path));
            let mut other = plan.clone();
            (other.steps[1].what, other.steps[1].to) = (What::Rename, path.to_owned());
            assert_eq!(other.check(), Err(path));
        }
    }
}
