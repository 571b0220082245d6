//! The plots of a run, laid out like the paper's figures of the same numbers.
//!
//! Each has its panels whether they were measured or not, so that what is missing shows.

use super::over_time;
use super::panel::{DISKS, panel};
use crate::disk::Model;
use crate::document::figures::series_of;
use crate::measure::{median, spread};
use crate::nbw::awol::ratios::{Figure as Of, against, found_in_memory, speed, times_baseline};
use crate::nbw::awol::sweep::Sweep;
use crate::nbw::names::{BASELINE, contestants_of, workloads};
use crate::nbw::results::{Case, Class, Experiment, Results};
use crate::plot::{Figure, Kind, Mark, Marker, Panel, RGBColor, Series};

/// What a whisker is.
const WHISKERS: &str = "Whiskers: least and most of the rounds.";
/// The workloads whose reads may find in memory what they look for.
const WITH_HITS: [&str; 3] = ["rrrw", "zrzw", "vrvw"];

/// File names and what is drawn in them.
pub fn all(results: &Results) -> Vec<(&'static str, Figure)> {
    let run = Run { results, who: of(results, Experiment::SideBySide) };
    vec![
        ("rates.svg", run.rates()),
        ("figure-11.svg", over_time::watermarks(results, "Figure 11", &["nrsw", "nrvw"])),
        ("figure-12.svg", run.hits()),
        ("figure-14.svg", over_time::watermarks(results, "Figure 14", &["zrzw"])),
        ("figure-16.svg", run.throughput()),
        ("figure-17.svg", run.times()),
        ("figure-18.svg", over_time::requests(results)),
        ("figure-20.svg", intervals(results)),
    ]
}

/// Those who have cases of an experiment.
fn of(results: &Results, experiment: Experiment) -> Vec<&str> {
    contestants_of(results.cases.iter().filter(|case| case.experiment == experiment))
}

/// The readers and writers of a run, and who ran them.
struct Run<'a> {
    results: &'a Results,
    who: Vec<&'a str>,
}

impl Run<'_> {
    fn figure(&self, title: &str, note: &str, columns: usize, panels: Vec<Panel>) -> Figure {
        Figure {
            title: format!("{title} (profile {})", self.results.profile.name),
            note: format!("{note} {WHISKERS}"),
            columns,
            series: series_of(self.who.clone()),
            panels,
        }
    }

    /// For each contestant, a mark for each category.
    fn marks<T>(
        &self,
        categories: &[T],
        of: impl Fn(&str, &T) -> Option<Mark>,
    ) -> Vec<Vec<Option<Mark>>> {
        let row = |who: &&str| categories.iter().map(|category| of(who, category)).collect();
        self.who.iter().map(row).collect()
    }

    fn rates(&self) -> Figure {
        let workloads = workloads(self.results, Experiment::SideBySide);
        let panel = |disk: Model, class: &str| {
            // Those that have such operations at all, on any disk.
            let has = |workload: &&&str| class == "write" || !workload.starts_with('n');
            let shown: Vec<&str> = workloads.iter().filter(has).copied().collect();
            let marks = self.marks(&shown, |who, workload| {
                let case = format!("{disk}/{workload}");
                let found = times_baseline(self.results, &case, who, class)?;
                let spread = Some((found.least, found.most));
                (found.median > 0.0).then_some(Mark { value: found.median, spread })
            });
            Panel {
                logarithmic: true,
                line_at: Some(1.0),
                ..panel(&format!("{disk}: {class}s"), "times ext4", Kind::Lines, &shown, marks)
            }
        };
        let panels = DISKS.into_iter().flat_map(|disk| ["read", "write"].map(|it| panel(disk, it)));
        self.figure(
            "Readers and writers side by side",
            "Rates to ext4's in the same round, of VRVW's reads their mean time; more is better.",
            2,
            panels.collect(),
        )
    }

    fn hits(&self) -> Figure {
        let panel = |disk: Model| {
            let marks = self.marks(&WITH_HITS, |who, workload| {
                let case = self.results.find(&format!("{disk}/{workload}"), who)?;
                figure(case, &|round| found_in_memory(round, case.size_bytes))
            });
            panel(&format!("{disk}"), "percent of pages read", Kind::Bars, &WITH_HITS, marks)
        };
        self.figure(
            "Figure 12: reads that no read of the disk stands for",
            "More is better.",
            2,
            DISKS.map(panel).into(),
        )
    }

    fn throughput(&self) -> Figure {
        const CLASSES: [&str; 2] = ["read", "write"];
        let panel = |disk: Model| {
            let name = format!("{disk}/rrrw");
            let marks = self.marks(&CLASSES, |who, class| {
                figure(self.results.find(&name, who)?, &speed(&name, class))
            });
            Panel {
                logarithmic: true,
                ..panel(&format!("{disk}: rrrw"), "pages a second", Kind::Lines, &CLASSES, marks)
            }
        };
        self.figure(
            "Figure 16: random reads beside random writes",
            "Pages a second, logarithmic; more is better.",
            2,
            DISKS.map(panel).into(),
        )
    }

    /// The paper's execution times: of the reads, which are done last.
    fn times(&self) -> Figure {
        const SHOWN: [&str; 2] = ["srsw", "zrzw"];
        let panel = |disk: Model| {
            let marks = self.marks(&SHOWN, |who, workload| {
                let case = format!("{disk}/{workload}");
                let found = against(self.results, &case, BASELINE, who, &speed(&case, "read"))?;
                Some(Mark { value: found.median, spread: Some((found.least, found.most)) })
            });
            Panel {
                line_at: Some(1.0),
                ..panel(&format!("{disk}"), "time, ext4 = 1", Kind::Bars, &SHOWN, marks)
            }
        };
        self.figure(
            "Figure 17: time that equal reading takes",
            "Of the reader; less is better.",
            2,
            DISKS.map(panel).into(),
        )
    }
}

/// Throughput over sampling intervals.
fn intervals(results: &Results) -> Figure {
    const LINES: [(&str, RGBColor, Marker); 3] = [
        ("nrsw", RGBColor(0x00, 0x72, 0xb2), Marker::Disc),
        ("nrzw", RGBColor(0xd5, 0x5e, 0x00), Marker::Square),
        ("zrzw", RGBColor(0x00, 0x9e, 0x73), Marker::Diamond),
    ];
    let who: Vec<String> = Sweep::Interval.contestants().iter().map(|who| who.name()).collect();
    let called = |who: &String| who.replace("weir-every-", "").replace('-', " ");
    let panel = |disk: Model| {
        let line = |(workload, ..): &(&str, RGBColor, Marker)| {
            let case = format!("{disk}/{}/{workload}", Sweep::Interval);
            let at = |who: &String| {
                let class = Class::leading(&results.find(&case, who)?.classes)?;
                let found = times_baseline(results, &case, who, &class.class)?;
                Some(Mark { value: found.median, spread: Some((found.least, found.most)) })
            };
            who.iter().map(at).collect()
        };
        Panel {
            x_title: "sampling interval".into(),
            categories: who.iter().map(called).collect(),
            ..panel(
                &format!("{disk}"),
                "times ext4",
                Kind::Lines,
                &[],
                LINES.iter().map(line).collect(),
            )
        }
    };
    let series = LINES.map(|(name, colour, marker)| Series {
        name: format!(
            "{}, {}s",
            name.to_uppercase(),
            if name == "zrzw" { "read" } else { "write" }
        ),
        colour,
        marker,
    });
    Figure {
        title: "Figure 20: sampling intervals of adaptive write-back".into(),
        note: format!("Rates to ext4's in the same round. {WHISKERS}"),
        columns: 2,
        series: series.into(),
        panels: DISKS.map(panel).into(),
    }
}

/// The median over the rounds, and the spread.
fn figure(case: &Case, of: Of<'_>) -> Option<Mark> {
    let values: Vec<f64> = case.rounds.iter().filter_map(of).filter(|it| it.is_finite()).collect();
    let spread = Some(spread(values.iter().copied())?);
    Some(Mark { value: median(&values), spread })
}
