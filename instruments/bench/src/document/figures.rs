//! The plots of a run, laid out like the paper's Figures 10 to 13.
//!
//! Each has the panels its figure has in the paper whether they were measured or not, so that what
//! is missing shows.

use crate::disk::Model;
use crate::measure;
use crate::nbw::names::{
    BASELINE, DEFAULT, PERSONALITIES, bytes, contestants, each_once, sizes, without_fsync,
    workloads,
};
use crate::nbw::results::{Case, Experiment, Results};
use crate::plot::{Figure, Kind, Mark, Marker, Panel, RGBColor, Series};

/// The disks of the paper.
const DISKS: [Model; 2] = [Model::Hdd, Model::Ssd];
/// What a whisker is.
const WHISKERS: &str = "Whiskers: least and most of the repetitions.";
/// What the colour of a bound is.
const BOUND: RGBColor = RGBColor(0x6b, 0x6b, 0x6b);

/// File names and what is drawn in them.
pub fn all(results: &Results) -> Vec<(&'static str, Figure)> {
    vec![
        ("figure-10.svg", personalities(results)),
        ("figure-11.svg", memory(results)),
        ("figure-12.svg", file_server(results)),
        ("figure-13.svg", traces(results)),
    ]
}

/// Colours that the colour-blind tell apart (Okabe and Ito's), and shapes for the others, of all
/// contestants.
fn series(results: &Results) -> Vec<Series> {
    series_of(contestants(results))
}

/// The same of some.
pub fn series_of(contestants: Vec<&str>) -> Vec<Series> {
    const OTHERS: [(RGBColor, Marker); 2] =
        [(RGBColor(0x00, 0x72, 0xb2), Marker::Up), (RGBColor(0xc9, 0xb0, 0x00), Marker::Down)];
    let mut others = OTHERS.iter().cycle();
    let mut look = |name: &str| match name {
        BASELINE => (RGBColor(0x33, 0x33, 0x33), Marker::Square),
        "weir-blocking" => (RGBColor(0xcc, 0x79, 0xa7), Marker::Cross),
        "weir-async-fg" => (RGBColor(0xe6, 0x9f, 0x00), Marker::Up),
        "weir-async-bg" => (RGBColor(0x56, 0xb4, 0xe9), Marker::Down),
        "weir-lazy" | "weir-adaptive" => (RGBColor(0x00, 0x9e, 0x73), Marker::Diamond),
        DEFAULT => (RGBColor(0xd5, 0x5e, 0x00), Marker::Disc),
        _ => others.next().copied().unwrap_or(OTHERS[0]),
    };
    let one = |name: &str| {
        let (colour, marker) = look(name);
        Series { name: called(name), colour, marker }
    };
    contestants.into_iter().map(one).collect()
}

fn called(contestant: &str) -> String {
    match contestant.strip_prefix("weir-") {
        Some("auto") => "Weir, auto (its default)".to_owned(),
        Some(policy) => format!("Weir, {policy}"),
        None if contestant == BASELINE => "ext4 (blocking writes)".to_owned(),
        None => contestant.to_owned(),
    }
}

fn heading(results: &Results, figure: &str) -> String {
    let memory = bytes(results.profile.memory_bytes);
    with_patches(
        results,
        &format!("{figure} (profile {}: {memory} of memory", results.profile.name),
    )
}

/// Closes what `heading` opened in parentheses with the memory for patches.
fn with_patches(results: &Results, heading: &str) -> String {
    format!("{heading}, {} for patches)", bytes(results.profile.patch_bytes))
}

/// What a panel shows of its cases.
struct Selection<'a> {
    results: &'a Results,
    experiment: Experiment,
    disk: Model,
    workload: &'a str,
}

impl<'a> Selection<'a> {
    fn cases(&self, contestant: &str) -> impl Iterator<Item = &'a Case> {
        self.results.cases.iter().filter(move |case| {
            case.experiment == self.experiment
                && case.disk == self.disk
                && case.workload == self.workload
                && case.contestant == contestant
        })
    }

    /// For each contestant, `shown` of the case that has each of `sizes`.
    fn by_size(
        &self,
        sizes: &[u64],
        of: fn(&Case) -> u64,
        shown: impl Fn(&Case) -> Option<Mark>,
    ) -> Vec<Vec<Option<Mark>>> {
        let at = |contestant: &str, size: u64| {
            let case = self.cases(contestant).find(|case| of(case) == size)?;
            shown(case).filter(|mark| mark.value.is_finite())
        };
        contestants(self.results)
            .into_iter()
            .map(|name| sizes.iter().map(|size| at(name, *size)).collect())
            .collect()
    }

    /// The bound, by the default policy's cases or whichever has one.
    fn bounds(&self, sizes: &[u64]) -> Vec<Option<Mark>> {
        let mut order = contestants(self.results);
        order.reverse();
        let at = |size: u64| {
            let cases = order.iter().flat_map(|name| self.cases(name));
            let mut bounds = cases.filter(|case| case.size_bytes == size);
            let value = bounds.find_map(|case| case.bound_ops_per_s)?;
            Some(Mark { value, spread: None })
        };
        sizes.iter().map(|size| at(*size)).collect()
    }
}

fn ops_per_s(case: &Case) -> Option<Mark> {
    let rounds = case.rounds.iter().map(|round| round.ops_per_s);
    Some(Mark { value: case.ops_per_s, spread: spread(rounds) })
}

/// Least and most, where there is more than one.
fn spread(figures: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    measure::spread(figures.iter().copied()).filter(|_| figures.len() > 1)
}

/// `128`, `2K`, `64M`, `4G`.
fn tick(bytes: u64) -> String {
    for (unit, size) in [("G", 1u64 << 30), ("M", 1 << 20), ("K", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

fn personalities(results: &Results) -> Figure {
    let sizes = sizes(results, Experiment::Personality, |case| case.size_bytes);
    let others = results.cases.iter().filter(|case| case.experiment == Experiment::Personality);
    let mut disks = each_once(DISKS.into_iter().chain(others.map(|case| case.disk)));
    disks.sort_unstable();
    let mut series = series(results);
    series.push(Series {
        name: "bound of patch memory and fetch rate".into(),
        colour: BOUND,
        marker: Marker::Dashes,
    });
    let panel = |disk: Model, workload: &str| {
        let selection = Selection { results, experiment: Experiment::Personality, disk, workload };
        let mut marks = selection.by_size(&sizes, |case| case.size_bytes, ops_per_s);
        marks.push(selection.bounds(&sizes));
        Panel {
            title: format!("{disk}: {workload}"),
            x_title: "I/O size, bytes".into(),
            y_title: "operations a second".into(),
            logarithmic: workload.starts_with("random"),
            categories: sizes.iter().map(|size| tick(*size)).collect(),
            marks,
            ..Panel::default()
        }
    };
    Figure {
        title: heading(results, "Figure 10: Filebench personalities over I/O sizes"),
        note: format!(
            "Medians; more is better. The random ones have a logarithmic axis. {WHISKERS}"
        ),
        columns: PERSONALITIES.len(),
        panels: disks
            .into_iter()
            .flat_map(|disk| PERSONALITIES.map(|workload| panel(disk, workload)))
            .collect(),
        series,
    }
}

fn memory(results: &Results) -> Figure {
    let sizes = sizes(results, Experiment::Memory, |case| case.memory_bytes);
    let mut workloads = workloads(results, Experiment::Memory);
    if workloads.is_empty() {
        workloads = PERSONALITIES[..3].to_vec();
    }
    let panel = |workload: &&str| {
        let selection =
            Selection { results, experiment: Experiment::Memory, disk: Model::Hdd, workload };
        Panel {
            title: format!("hdd: {workload}"),
            x_title: "memory".into(),
            y_title: "operations a second".into(),
            logarithmic: workload.starts_with("random"),
            categories: sizes.iter().map(|size| tick(*size)).collect(),
            marks: selection.by_size(&sizes, |case| case.memory_bytes, ops_per_s),
            ..Panel::default()
        }
    };
    Figure {
        title: with_patches(
            results,
            &format!("Figure 11: memory (profile {}", results.profile.name),
        ),
        note: format!("I/O of 2 KiB. Medians; more is better. {WHISKERS}"),
        columns: workloads.len(),
        series: series(results),
        panels: workloads.iter().map(panel).collect(),
    }
}

/// Mean latency of a class, ext4's being 1; of all operations where there is no class.
pub fn normalized(case: &Case, class: Option<&str>) -> Option<Mark> {
    let Some(class) = class else {
        let rounds = case.rounds.iter().map(|round| 1.0 / round.ratio_to_blocking);
        return mark(1.0 / case.ratio_to_blocking, spread(rounds));
    };
    let of = |classes: &'_ [crate::nbw::results::Class]| {
        let found = classes.iter().find(|found| found.class == class && found.ops > 0)?;
        Some(1.0 / found.ratio_to_blocking)
    };
    let rounds = case.rounds.iter().filter_map(|round| of(&round.classes));
    mark(of(&case.classes)?, spread(rounds))
}

fn mark(value: f64, spread: Option<(f64, f64)>) -> Option<Mark> {
    value.is_finite().then_some(Mark { value, spread })
}

/// The classes of the file server: what they are called in the results, and in the paper.
pub const CLASSES: [(Option<&str>, &str); 4] = [
    (Some("write"), "write"),
    (Some("read"), "read"),
    (Some("other"), "others"),
    (None, "overall"),
];

fn file_server(results: &Results) -> Figure {
    let mut mixes = workloads(results, Experiment::FileServer);
    if mixes.is_empty() {
        mixes = vec!["18-10-72"];
    }
    let panel = |disk: Model, workload: &str| {
        let selection = Selection { results, experiment: Experiment::FileServer, disk, workload };
        let of = |contestant: &str| {
            let case = selection.cases(contestant).next();
            CLASSES.map(|(class, _)| normalized(case?, class)).to_vec()
        };
        Panel {
            title: format!("{disk}: {workload}"),
            y_title: "mean latency, ext4 = 1".into(),
            kind: Kind::Bars,
            categories: CLASSES.map(|(_, called)| called.to_owned()).to_vec(),
            marks: contestants(results).into_iter().map(of).collect(),
            line_at: Some(1.0),
            ..Panel::default()
        }
    };
    Figure {
        title: heading(results, "Figure 12: file server, latency by class of operation"),
        note: format!("Less is better. Mixes are reads, writes and others in percent. {WHISKERS}"),
        columns: mixes.len(),
        series: series(results),
        panels: DISKS
            .into_iter()
            .flat_map(|disk| mixes.iter().map(move |mix| (disk, *mix)))
            .map(|(disk, mix)| panel(disk, mix))
            .collect(),
    }
}

fn traces(results: &Results) -> Figure {
    let base = |workload: &str| workload.strip_suffix("-no-fsync").unwrap_or(workload).to_owned();
    let traces = each_once(workloads(results, Experiment::Trace).into_iter().map(base));
    let panel = |no_fsync: bool, disk: Model| {
        let of = |contestant: &str, trace: &String| {
            let case = results.cases.iter().find(|case| {
                case.experiment == Experiment::Trace
                    && case.disk == disk
                    && case.contestant == contestant
                    && base(&case.workload) == *trace
                    && without_fsync(&case.workload) == no_fsync
            })?;
            normalized(case, None)
        };
        let kind = if no_fsync { "without fsync" } else { "as recorded" };
        Panel {
            title: format!("{disk}: {kind}"),
            x_title: "trace".into(),
            y_title: "mean latency, ext4 = 1".into(),
            kind: Kind::Bars,
            categories: traces.clone(),
            marks: contestants(results)
                .into_iter()
                .map(|name| traces.iter().map(|trace| of(name, trace)).collect())
                .collect(),
            line_at: Some(1.0),
            ..Panel::default()
        }
    };
    Figure {
        title: heading(results, "Figure 13: MobiBench traces, latency of all operations"),
        note: format!("Less is better. {WHISKERS}"),
        columns: 4,
        series: series(results),
        panels: [false, true]
            .into_iter()
            .flat_map(|no_fsync| DISKS.map(|disk| panel(no_fsync, disk)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    fn named(results: &Results, name: &str) -> Figure {
        let found = all(results).into_iter().find(|(file, _)| *file == name);
        found.expect("one of the four").1
    }

    #[test]
    fn figure_10_has_a_row_a_disk_and_gaps() {
        let results = sample::results();
        let figure = named(&results, "figure-10.svg");
        assert_eq!((figure.columns, figure.panels.len()), (5, 10));
        let panel = &figure.panels[1];
        assert_eq!(panel.title, "hdd: random-write");
        assert_eq!(panel.categories, ["128", "2K", "4K"]);
        assert_eq!(panel.marks[0][0].map(|mark| mark.value), Some(97.0));
        let bound = panel.marks.last().expect("the bound");
        assert!(bound[0].is_none() && bound[1].is_some());
        assert!(figure.panels[5].marks.iter().flatten().all(Option::is_none));
        assert_eq!(figure.series.len(), 5);
    }

    #[test]
    fn latencies_are_normalized_and_their_spread_is_in_order() {
        let results = sample::results();
        let figure = named(&results, "figure-12.svg");
        assert_eq!((figure.columns, figure.panels.len()), (1, 2));
        let auto = figure.panels[0].marks.last().expect("weir-auto");
        let write = auto[0].expect("writes");
        assert!((write.value - 0.1).abs() < 1e-9);
        assert!(auto[2].is_none(), "no class of others in the sample");
        let overall = auto[3].expect("overall");
        let (least, most) = overall.spread.expect("three rounds");
        assert!(least < overall.value && overall.value < most);
        let traces = named(&results, "figure-13.svg");
        assert_eq!(traces.panels[2].title, "hdd: without fsync");
        assert_eq!(traces.panels[2].categories, ["facebook"]);
        assert!(traces.panels[2].marks[1][0].is_none());
        assert!(traces.panels[2].marks[3][0].is_some());
    }

    #[test]
    fn nothing_run_is_drawn_too() {
        let mut results = sample::results();
        results.cases.clear();
        for (name, figure) in all(&results) {
            assert!(figure.svg().contains("not measured"), "{name}");
        }
    }
}
