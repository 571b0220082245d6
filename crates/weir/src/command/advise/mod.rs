//! `weir advise`: records a program, or reads a trace, tries a piece of it, and says what Weir would do for it.
//!
//! Here is the order of things; what the figures mean is [`weir_advise`]'s.

mod beneath;
mod output;
mod places;
mod probe;
mod record;
mod replay;
mod scratch;

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use weir_advise::call::{Event, What, is_below};
use weir_advise::class::Class;
use weir_advise::files::{Before, Survey};
use weir_advise::footprint::{self, Recorder};
use weir_advise::plan::{self, Bounds, Measured, Plan, Step};
use weir_advise::prediction::{Basis, Disk, Way, predict};
use weir_advise::report::{ClassCosts, Report};
use weir_advise::trace::{self, Trace};
use weir_advise::verdict::{Verdict, quoted};
use weir_advise::{page, summary};

use crate::cli::{AdviseArguments, ReplayArguments};
use crate::failure::{Failure, one_line};
use crate::mounts::{self, MountTable};
use crate::run::outcome::status_code;
use crate::run::{forward, program};
use output::{Output, Replaces};
use probe::{Trial, Tried};
use record::Recorded;
use scratch::Scratch;

/// Where the page goes by default.
const PAGE_FILE: &str = "weir-advise.html";
/// Calls that the recorder is measured by.
const CALIBRATION_CALLS: usize = 3000;
/// What a recorder adds where it cannot be measured, microseconds a call.
const ADDED_US: f64 = 20.0;
/// A call in memory takes less, microseconds.
const WAITS_LEAST_US: f64 = 10.0;
/// What a random read takes at least where that cannot be measured, microseconds.
const WAITS_FROM_US: f64 = 50.0;

/// Does a plan's calls again, for [`run`].
pub fn replay(arguments: &ReplayArguments) -> Result<ExitCode, Failure> {
    replay::run(arguments)
}

/// What the advice is made of.
struct Subject {
    trace: Trace,
    recorded: Option<Recorded>,
    /// As a shell reads it.
    command: String,
    begun: Option<SystemTime>,
}

/// Advises.
pub fn run(arguments: &AdviseArguments) -> Result<ExitCode, Failure> {
    let outputs = Outputs::new(arguments)?;
    // From here on something is left to remove.
    forward::hold()
        .map_err(|error| Failure::Refused(format!("cannot handle signals: {error}")))?
        .release();
    let advised = advise_and_show(arguments, &outputs);
    // What failed, failed because of it.
    if advised.is_err() {
        go_on()?;
    }
    advised
}

fn advise_and_show(arguments: &AdviseArguments, outputs: &Outputs) -> Result<ExitCode, Failure> {
    let aside = Scratch::new(&std::env::temp_dir()).map_err(|error| {
        Failure::Refused(format!(
            "cannot make a directory in {}: {error}",
            std::env::temp_dir().display()
        ))
    })?;
    let mut subject = match &arguments.trace {
        Some(path) => read(path, arguments)?,
        None => record(arguments, &aside)?,
    };
    go_on()?;
    if let Some(output) = &outputs.trace {
        output.write(|to| trace::write(&subject.trace, to))?;
    }
    let status = subject.recorded.take();
    let report = advise(arguments, &subject, status.as_ref(), &aside)?;
    go_on()?;
    outputs.page.write(|to| to.write_all(page::html(&report).as_bytes()))?;
    if let Some(output) = &outputs.json {
        let text = serde_json::to_vec_pretty(&report)
            .map_err(|error| Failure::Refused(error.to_string()))?;
        output.write(|to| to.write_all(&text))?;
    }
    let page = outputs.page.path().display();
    show(&format!("{}The page is {page}\n", summary::text(&report)), status.is_some());
    Ok(ExitCode::from(status.map_or(0, |recorded| status_code(recorded.status))))
}

/// Prints the summary. Standard output is the program's if one was run, and may go into a file of its own. Who does not read to
/// the end has the page.
fn show(text: &str, was_run: bool) {
    let _ = match was_run {
        true => io::stderr().write_all(text.as_bytes()),
        false => io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
    };
}

/// Whether this process is to end.
fn go_on() -> Result<(), Failure> {
    forward::noted().map_or(Ok(()), |signal| Err(Failure::Interrupted(signal)))
}

/// What is written.
struct Outputs {
    page: Output,
    json: Option<Output>,
    trace: Option<Output>,
}

impl Outputs {
    /// Refuses what cannot be written, before anything is run.
    fn new(arguments: &AdviseArguments) -> Result<Outputs, Failure> {
        let file = |path: &Option<PathBuf>| {
            path.as_deref().map(|path| Output::new(path, Replaces::Files)).transpose()
        };
        let page = arguments.out.as_deref().unwrap_or(Path::new(PAGE_FILE));
        Ok(Outputs {
            page: Output::new(page, Replaces::Pages)?,
            json: file(&arguments.json)?,
            trace: file(&arguments.save_trace)?,
        })
    }
}

fn record(arguments: &AdviseArguments, aside: &Scratch) -> Result<Subject, Failure> {
    let [name, rest @ ..] = &arguments.command[..] else {
        return Err(Failure::Usage("name a program; see 'weir advise --help'".to_owned()));
    };
    let program = program::find(name)?;
    go_on()?;
    let mut recorded = record::run(name, program.path(), rest, &aside.path().join("calls"), true)?;
    let trace = std::mem::take(&mut recorded.trace);
    let words: Vec<String> =
        arguments.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let begun = Some(recorded.begun);
    Ok(Subject { trace, recorded: Some(recorded), command: one_line(&words.join(" ")), begun })
}

fn read(path: &Path, arguments: &AdviseArguments) -> Result<Subject, Failure> {
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let trace = record::read(
        path,
        arguments.format.map(record::form),
        directory.as_os_str().as_bytes(),
        false,
    )
    .map_err(|error| {
        Failure::Refused(format!("cannot read the trace {}: {error}", path.display()))
    })?;
    Ok(Subject { trace, recorded: None, command: "CMD".to_owned(), begun: None })
}

/// Which files the advice is about, and on which disk it is tried.
struct Place {
    about: PathBuf,
    disk: PathBuf,
    kind: String,
}

fn place(arguments: &AdviseArguments, trace: &Trace, table: &MountTable) -> Result<Place, Failure> {
    let given = match &arguments.source {
        Some(source) => {
            let cannot = |error: io::Error| {
                Failure::Refused(format!("cannot use {}: {error}", source.display()))
            };
            let clean = std::fs::canonicalize(source).map_err(cannot)?;
            if !clean.is_dir() {
                return Err(cannot(io::ErrorKind::NotADirectory.into()));
            }
            Some(clean)
        }
        None => None,
    };
    let is_used = |directory: &Path| {
        let below =
            |event| places::path(trace, event).is_some_and(|path| path.starts_with(directory));
        trace.events.iter().any(below)
    };
    let found = given.clone().filter(|given| is_used(given)).or_else(|| match given {
        Some(_) => None,
        None => places::source(trace, table),
    });
    let (about, disk) = match (found, given) {
        (Some(found), _) => (found.clone(), found),
        // A trace of another machine, tried on a disk of this one.
        (None, given) if arguments.trace.is_some() => {
            let here = || std::env::current_dir().unwrap_or_else(|_| "/".into());
            (PathBuf::from("/"), given.unwrap_or_else(here))
        }
        (None, Some(given)) => {
            return Err(Failure::Refused(format!(
                "the program used no file below {}",
                given.display()
            )));
        }
        (None, None) => {
            return Err(Failure::Refused(
                "the program's files have no directory in common, or it used none: name one with --source".to_owned(),
            ));
        }
    };
    let mount = mounts::absolute(&disk).ok().and_then(|path| table.containing(&path));
    if mount.is_some_and(mounts::Mount::is_weir) {
        return Err(Failure::Refused(format!(
            "{} is on a weir mount already: name its SOURCE, and run the program on that",
            disk.display()
        )));
    }
    let kind = mount.map_or(places::UNKNOWN.to_owned(), |mount| {
        format!("{} on {}", mount.fs_type, mount.source.display())
    });
    Ok(Place { about, disk, kind })
}

fn advise(
    arguments: &AdviseArguments,
    subject: &Subject,
    recorded: Option<&Recorded>,
    aside: &Scratch,
) -> Result<Report, Failure> {
    let trace = &subject.trace;
    let table = MountTable::read()
        .map_err(|error| Failure::Refused(format!("cannot read /proc/self/mountinfo: {error}")))?;
    let place = place(arguments, trace, &table)?;
    let mut notes = Vec::new();
    let scratch = match arguments.no_probe {
        true => Err("--no-probe".to_owned()),
        false => Scratch::new(&place.disk).map_err(|error| {
            format!("cannot make a directory in {}: {error}", place.disk.display())
        }),
    };
    let disk = match &scratch {
        Ok(scratch) => {
            probe::disk(scratch).map_err(|error| format!("cannot try the disk: {error}"))
        }
        Err(why) => Err(why.clone()),
    };
    go_on()?;
    let (added_us, delay_us) = match trace.timed {
        true => calibrate(aside).unwrap_or((ADDED_US, ADDED_US)),
        false => (0.0, 0.0),
    };
    let waits_from_us =
        disk.as_ref().map_or(WAITS_FROM_US, |disk| (disk.read_fast_us / 2.0).max(WAITS_LEAST_US));
    let gap_us = (delay_us - added_us).max(0.0);
    let recorder = Recorder { added_us, gap_us, waits_from_us };
    let before = |path: &[u8]| before(path, subject.begun);
    let survey = Survey::new(&trace.events, &trace.paths, &before);
    let about = place.about.as_os_str().as_bytes();
    let outside = outside(recorded.is_some());
    let plan = Plan::new(trace, &survey, about, recorder, Bounds::default(), &outside);
    let counts = plan::counts(trace, &survey, about, &outside);
    let tried = match (&scratch, &disk) {
        (Ok(scratch), Ok(disk)) => try_all(scratch, aside, &plan, *disk, trace.starts > 1),
        (Err(why), _) | (_, Err(why)) => {
            let ways = Way::ALL.map(|way| (way, Err(why.clone())));
            Tried { disk: Disk::default(), direct: None, ways: ways.into() }
        }
    };
    let (overlap, seen) = overlap(trace);
    let recorder_us = delay_us * trace.calls as f64;
    let observed = trace.timed.then(|| observed_us(trace, about, recorder) * overlap);
    let basis = Basis {
        observed_us: observed,
        wall_us: (trace.wall_us as f64 - recorder_us).max(0.0),
        recorder_share: (recorder_us / (trace.wall_us as f64).max(1.0)).min(1.0),
        user_us: recorded.map_or(0.0, |recorded| recorded.user.as_secs_f64() * 1e6),
        counts,
        starts: trace.starts,
        overlap,
        disk: tried.disk,
        direct: tried.direct.clone(),
        doubts: doubts(trace, seen),
    };
    let source = quoted(&place.disk.to_string_lossy());
    let mut verdicts = Vec::new();
    let mut untried = Vec::new();
    for (way, costs) in &tried.ways {
        let prediction = predict(&basis, *way, costs.as_ref().ok());
        verdicts.push(Verdict::new(prediction, &source, &subject.command));
        if let Err(why) = costs {
            untried.push((way.to_string(), why.clone()));
        }
    }
    if trace.truncated {
        notes.push(format!("only the first {} calls were looked at", trace::EVENTS_MAX));
    }
    let analysed = footprint::analyse(&trace.events, &trace.paths, &survey, about, recorder);
    let total: u64 = basis.counts.values().sum();
    let done = tried.direct.as_ref().map_or(0, |direct| direct.steps as u64);
    Ok(Report {
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        subject: match &arguments.trace {
            Some(path) => path.display().to_string(),
            None => subject.command.clone(),
        },
        exit_status: recorded.map(|recorded| status_code(recorded.status)),
        source: place.about.display().to_string(),
        source_kind: place.kind,
        recorded_us: recorded
            .map_or(trace.wall_us as f64, |recorded| recorded.wall.as_secs_f64() * 1e6),
        alone_us: verdicts.first().map_or(basis.wall_us, |verdict| verdict.prediction.direct_us),
        calls: trace.calls,
        processes: trace.processes,
        starts: trace.starts,
        file_systems: places::used(trace, &table, recorder),
        footprint: analysed,
        disk: tried.disk,
        sample: (done, total),
        costs: costs(&basis, &tried),
        recorder_share: basis.recorder_share,
        user_us: basis.user_us,
        verdicts,
        untried,
        notes,
    })
}

/// What each class takes, as far as it was tried.
fn costs(basis: &Basis, tried: &Tried) -> Vec<ClassCosts> {
    let mean = |measured: Option<&Measured>, class: Class| {
        measured.and_then(|measured| measured.costs.get(&class)).map(|cost| cost.mean_us())
    };
    let way = |wanted: Way| {
        let found = tried.ways.iter().find(|(way, _)| *way == wanted);
        found.and_then(|(_, costs)| costs.as_ref().ok()).map(|costs| &costs.measured)
    };
    let of = |(class, calls): (&Class, &u64)| ClassCosts {
        class: *class,
        calls: *calls,
        sampled: tried
            .direct
            .as_ref()
            .and_then(|direct| direct.costs.get(class))
            .map_or(0, |cost| cost.calls),
        direct_us: mean(tried.direct.as_ref(), *class),
        mount_us: mean(way(Way::Mount), *class),
        run_us: mean(way(Way::Run), *class),
        session_us: mean(way(Way::Session), *class),
    };
    basis.counts.iter().map(of).collect()
}

fn try_all(scratch: &Scratch, aside: &Scratch, plan: &Plan, disk: Disk, starts: bool) -> Tried {
    let plan_path = aside.path().join("plan.json");
    let weir =
        std::env::current_exe().map_err(|error| format!("cannot find this command: {error}"));
    let ready = weir.and_then(|weir| {
        let written = aside.create("plan.json").and_then(|file| probe::write_plan(plan, file));
        written
            .map(|()| weir)
            .map_err(|error| format!("cannot write {}: {error}", plan_path.display()))
    });
    match ready {
        Ok(weir) => Trial { weir, scratch, aside, plan, plan_path, starts }.all(disk),
        Err(why) => {
            let ways = Way::ALL.map(|way| (way, Err(why.clone())));
            Tried { disk, direct: None, ways: ways.into() }
        }
    }
}

/// What is known of a path before the program began.
fn before(path: &[u8], begun: Option<SystemTime>) -> Before {
    let Some(begun) = begun else { return Before::Unknown };
    let path = Path::new(OsStr::from_bytes(path));
    let hidden = ["/proc", "/sys", "/dev"].iter().any(|top| path.starts_with(top));
    if hidden || !path.is_absolute() {
        return Before::Unknown;
    }
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Before::Unknown };
    match metadata.created() {
        Ok(made) if made < begun => Before::There(metadata.len()),
        Ok(_) => Before::Missing,
        Err(_) => Before::Unknown,
    }
}

/// Whether output with this name leaves the program: to a terminal, a socket, or where this process's own streams lead.
fn outside(is_own: bool) -> impl Fn(&[u8]) -> bool {
    let own: Vec<PathBuf> =
        (0..3).filter_map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect();
    move |name: &[u8]| {
        let path = Path::new(OsStr::from_bytes(name));
        !is_own
            || path.starts_with("/dev")
            || name.starts_with(b"socket:")
            || own.iter().any(|own| own == path)
    }
}

/// What the recorder adds to a call's duration, and what it delays the program by a call, microseconds.
fn calibrate(aside: &Scratch) -> Option<(f64, f64)> {
    let home = aside.directory("calibration").ok()?;
    beneath::create(&home.directory, "file").ok()?.write_all(&[0; 64]).ok()?;
    let read = Step {
        class: Class::ReadAgainSmall,
        what: What::Read,
        think_us: 0,
        path: "file".to_owned(),
        to: String::new(),
        handle: Some(0),
        offset: 0,
        length: 1,
        flags: 0,
    };
    let plan = Plan { prepared: Vec::new(), steps: vec![read; CALIBRATION_CALLS] };
    let plan_path = aside.path().join("calibration.json");
    probe::write_plan(&plan, aside.create("calibration.json").ok()?).ok()?;
    let result = aside.path().join("calibrated.json");
    let weir = std::env::current_exe().ok()?;
    let words = [
        OsStr::new("advise-replay"),
        plan_path.as_os_str(),
        home.path.as_os_str(),
        result.as_os_str(),
    ];
    scratch::run(std::process::Command::new(&weir).args(words)).ok()?;
    let outcome: replay::Outcome =
        serde_json::from_reader(aside.open("calibrated.json").ok()?).ok()?;
    let alone_us = outcome.measured.costs.get(&Class::ReadAgainSmall)?.mean_us();
    let words: Vec<_> = words.iter().map(|word| word.to_os_string()).collect();
    let recorded = record::run(
        weir.as_os_str(),
        &weir,
        &words,
        &aside.path().join("calibration-calls"),
        false,
    )
    .ok()?;
    let reads: Vec<_> = recorded
        .trace
        .events
        .iter()
        .filter(|event| event.what == What::Read && event.length == 1)
        .collect();
    // What else the machine does delays some calls by much: the mean would be of that.
    let took = median(reads.iter().filter_map(|event| event.took_us).collect())?;
    let apart =
        median(reads.windows(2).map(|two| two[1].at_us.saturating_sub(two[0].at_us)).collect())?;
    Some(((took - alone_us).max(0.0), (apart - alone_us).max(0.0)))
}

fn median(mut all: Vec<u64>) -> Option<f64> {
    all.sort_unstable();
    all.get(all.len() / 2).map(|middle| *middle as f64)
}

/// Time in which some call ran, of the sum of all calls' times; and how many calls have transfers that were not seen.
fn overlap(trace: &Trace) -> (f64, u64) {
    let unseen = trace.events.iter().filter(|event| event.what == What::Unseen).count() as u64;
    let mut spans: Vec<(u64, u64)> = trace
        .events
        .iter()
        .filter_map(|event| Some((event.at_us, event.at_us.saturating_add(event.took_us?))))
        .collect();
    spans.sort_unstable();
    let (mut sum, mut any, mut end) = (0.0, 0.0, 0);
    for (from, to) in spans {
        sum += (to - from) as f64;
        any += to.saturating_sub(from.max(end)) as f64;
        end = end.max(to);
    }
    (if sum > 0.0 { any / sum } else { 1.0 }, unseen)
}

/// Time in calls on files below a directory, and in what leaves the program.
fn observed_us(trace: &Trace, about: &[u8], recorder: Recorder) -> f64 {
    let counts = |event: &&Event| {
        let path = event.path.map(|path| trace.paths.get(path));
        event.what != What::Start && path.is_some_and(|path| is_below(path, about))
    };
    trace.events.iter().filter(counts).map(|event| recorder.own_us(event)).sum()
}

fn doubts(trace: &Trace, unseen: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    if unseen > 0 {
        doubts.push(format!(
            "{unseen} calls transfer what the recorder cannot see (io_uring, io_submit, splice)"
        ));
    }
    if !trace.timed {
        doubts.push(
            "the trace has no durations: what is between its calls is taken as it is".to_owned(),
        );
    }
    if trace.truncated {
        doubts.push("the trace was too long to be read to its end".to_owned());
    }
    doubts
}
