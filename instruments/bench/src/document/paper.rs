//! What the paper says it measured, each statement beside the same figure of ours.
//!
//! The paper is "Non-blocking Writes to Files" (NBW); its text is in two files, 000 and 001, which
//! say the same. Only what its text states is here: nothing was read off its plots.

use super::markdown::Table;
use crate::disk::Model;
use crate::measure::{mean, spread};
use crate::nbw::goals::percent_less;
use crate::nbw::names::{BASELINE, DASH, DEFAULT, percent, rate, times, without_fsync, writes};
use crate::nbw::results::{Case, Experiment, Results};
use crate::page::PAGE;

/// From this ratio on, percent more are not easily read.
const TOO_MUCH: f64 = 10.0;

/// How figures of several cases are said together.
#[derive(Clone, Copy)]
enum Show {
    /// Operations a second, from and to.
    Rate,
    /// Ratio, from and to.
    Times,
    /// Ratio, the mean and the most.
    MeanTimes,
    /// Ratio, the most.
    MostTimes,
    /// Percent more operations, from and to.
    More,
    /// Percent more operations, the mean.
    MeanMore,
    /// Percent more operations, the most.
    MostMore,
    /// Percent less latency, from and to; of the class named.
    Less(Option<&'static str>),
}

/// Which of the cases a statement is about.
#[derive(Clone, Copy)]
enum Of {
    /// The workload of that name, with I/O below a page.
    Partial(&'static str),
    /// Any personality, with I/O of a page.
    Page,
    /// Personalities that write, all sizes.
    Writing,
    /// Personalities that only read.
    Reading,
    /// Mixes, or traces, as `true` for each.
    Each(fn(&Case) -> bool),
}

/// One statement of the paper.
struct Statement {
    experiment: Experiment,
    disk: Option<Model>,
    what: &'static str,
    said: &'static str,
    place: &'static str,
    of: Of,
    who: &'static [&'static str],
    show: Show,
}

const HDD: Option<Model> = Some(Model::Hdd);
const SSD: Option<Model> = Some(Model::Ssd);
/// The paper's modes, by the names of Weir's policies.
const MODES: &[&str] = &["weir-async-fg", "weir-async-bg", "weir-lazy"];
const FG: &[&str] = &["weir-async-fg"];
const BG: &[&str] = &["weir-async-bg"];
const LAZY: &[&str] = &["weir-lazy"];
const KERNEL: &[&str] = &[BASELINE];
const SEQUENTIAL: Of = Of::Partial("sequential-write");
const RANDOM: Of = Of::Partial("random-write");
const MIXED: Of = Of::Partial("random-readwrite");

const fn said(
    disk: Option<Model>,
    what: &'static str,
    said: &'static str,
    place: &'static str,
    (of, who, show): (Of, &'static [&'static str], Show),
) -> Statement {
    Statement { experiment: Experiment::Personality, disk, what, said, place, of, who, show }
}

const fn of(experiment: Experiment, statement: Statement) -> Statement {
    Statement { experiment, ..statement }
}

const fn any(_: &Case) -> bool {
    true
}

fn has_writes(case: &Case) -> bool {
    case.classes.iter().any(|class| class.class == "write" && class.ops > 0)
}

fn recorded(case: &Case) -> bool {
    !without_fsync(&case.workload)
}

fn no_fsync(case: &Case) -> bool {
    without_fsync(&case.workload)
}

#[rustfmt::skip]
const STATEMENTS: &[Statement] = &[
    said(HDD, "hdd, random-write below 4 KiB, blocking writes",
        "\"a constant throughput of around 97\" operations/s", "6.1.1", (RANDOM, KERNEL, Show::Rate)),
    said(HDD, "hdd, random-readwrite below 4 KiB, blocking writes",
        "around 146 operations/s", "6.1.1", (MIXED, KERNEL, Show::Rate)),
    said(HDD, "hdd, sequential-write, the different modes",
        "\"improvement of 13-160% depending on the I/O size\"", "6.1.1", (SEQUENTIAL, MODES, Show::More)),
    said(HDD, "hdd, random-write, async-fg",
        "\"50-60% performance improvement\"", "6.1.1", (RANDOM, FG, Show::More)),
    said(HDD, "hdd, random-write, async-bg",
        "\"6.7x-29.5x performance improvement\"", "6.1.1", (RANDOM, BG, Show::Times)),
    said(HDD, "hdd, random-readwrite, async-bg",
        "\"from 3.4x-19.5x depending on the I/O size\"", "6.1.1", (MIXED, BG, Show::Times)),
    said(HDD, "hdd, random-write, lazy",
        "\"up to 45.4X performance improvement\"", "6.1.1", (RANDOM, LAZY, Show::MostTimes)),
    said(HDD, "hdd, all that write, the different modes",
        "\"7X on average (up to 45.4X)\"", "abstract", (Of::Writing, MODES, Show::MeanTimes)),
    said(SSD, "ssd, sequential-write, the different modes",
        "\"between 4% and 61% performance improvement\"", "6.1.2", (SEQUENTIAL, MODES, Show::More)),
    said(SSD, "ssd, random-write, async-fg",
        "188 % improvement", "6.1.2", (RANDOM, FG, Show::MeanMore)),
    said(SSD, "ssd, random-readwrite, async-fg",
        "117 % improvement", "6.1.2", (MIXED, FG, Show::MeanMore)),
    said(SSD, "ssd, random-write, async-bg",
        "272 % on average", "6.1.2", (RANDOM, BG, Show::MeanMore)),
    said(SSD, "ssd, random-write, async-bg, best case",
        "\"up to 4.2X in the best case\"", "6.1.2", (RANDOM, BG, Show::MostTimes)),
    said(SSD, "ssd, random-readwrite, async-bg",
        "125 % on average", "6.1.2", (MIXED, BG, Show::MeanMore)),
    said(SSD, "ssd, random-write, lazy",
        "\"163%-211%\"", "6.1.2", (RANDOM, LAZY, Show::More)),
    said(SSD, "ssd, random-readwrite, lazy",
        "70 % improvement", "6.1.2", (MIXED, LAZY, Show::MeanMore)),
    said(SSD, "ssd, all that write, the different modes",
        "\"2.1X on average (up to 4.2X)\"", "abstract", (Of::Writing, MODES, Show::MeanTimes)),
    said(None, "any disk, I/O of 4 KiB",
        "non-blocking writes \"do not impose any overhead\"", "6.1.1", (Of::Page, MODES, Show::Times)),
    said(None, "any disk, read-only personalities",
        "\"the same performance as blocking writes\"", "6.1.1", (Of::Reading, MODES, Show::Times)),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, sequential-write, the different modes",
        "\"45-180% better\"", "6.1.2", (SEQUENTIAL, MODES, Show::More))),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, random-write, async-fg",
        "\"relatively consistent with BW\"", "6.1.2", (RANDOM, FG, Show::More))),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, random-readwrite, async-fg",
        "\"relatively consistent with BW\"", "6.1.2", (MIXED, FG, Show::More))),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, random-write, async-bg",
        "\"as much as 560%\"", "6.1.2", (RANDOM, BG, Show::MostMore))),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, random-readwrite, async-bg",
        "\"as much as 560%\"", "6.1.2", (MIXED, BG, Show::MostMore))),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, random-write, lazy",
        "\"710%\"", "6.1.2", (RANDOM, LAZY, Show::MostMore))),
    of(Experiment::Memory, said(HDD, "hdd, 2 KiB, random-readwrite, lazy",
        "\"710%\"", "6.1.2", (MIXED, LAZY, Show::MostMore))),
    of(Experiment::FileServer, said(None, "write latency, three mixes with writes",
        "\"reduced between 65 and 79 percent\"", "6.2", (Of::Each(has_writes), MODES, Show::Less(Some("write"))))),
    of(Experiment::FileServer, said(None, "read latency",
        "\"little or no degradation in read latencies\"", "6.2", (Of::Each(any), MODES, Show::Less(Some("read"))))),
    of(Experiment::FileServer, said(None, "overall latency",
        "decreased \"between 3.5% and 70%\"", "abstract", (Of::Each(has_writes), MODES, Show::Less(None)))),
    of(Experiment::Trace, said(None, "both traces and disks, as recorded",
        "\"between 20% and 40%\" less", "6.3", (Of::Each(recorded), MODES, Show::Less(None)))),
    of(Experiment::Trace, said(None, "both traces and disks, without fsync",
        "\"reduce latencies by 40-60%\"", "6.3", (Of::Each(no_fsync), MODES, Show::Less(None)))),
];

/// The statements about an experiment as a table: the paper's, ours by the same modes, and ours by
/// the default policy.
pub fn beside(results: &Results, experiment: Experiment) -> String {
    let columns = ["", "the paper", "section", "Weir, the same modes", "Weir, auto"];
    let mut table = Table::new(&columns, 3);
    for statement in STATEMENTS.iter().filter(|statement| statement.experiment == experiment) {
        let kernel = statement.who == KERNEL;
        let same = statement.ours(results, statement.who);
        let same = if kernel && same != DASH { format!("ext4: {same}") } else { same };
        let auto = if kernel { DASH.to_owned() } else { statement.ours(results, &[DEFAULT]) };
        let cells = [statement.what, statement.said, statement.place, &same, &auto];
        table.row(cells.map(str::to_owned).to_vec());
    }
    table.text()
}

impl Statement {
    /// The same figure of ours by `who`, or a dash.
    fn ours(&self, results: &Results, who: &[&str]) -> String {
        let cases = results.cases.iter().filter(|case| {
            case.experiment == self.experiment
                && self.disk.is_none_or(|disk| case.disk == disk)
                && who.contains(&case.contestant.as_str())
                && self.of.holds(case)
        });
        let figures: Vec<f64> = cases.filter_map(|case| self.show.figure(case)).collect();
        self.show.text(&figures)
    }
}

impl Of {
    fn holds(self, case: &Case) -> bool {
        let whole_pages = case.size_bytes.is_multiple_of(PAGE);
        match self {
            Of::Partial(workload) => case.workload == workload && !whole_pages,
            Of::Page => whole_pages && writes(&case.workload),
            Of::Writing => writes(&case.workload),
            Of::Reading => !writes(&case.workload),
            Of::Each(holds) => holds(case),
        }
    }
}

impl Show {
    fn figure(self, case: &Case) -> Option<f64> {
        let figure = match self {
            Show::Rate => case.ops_per_s,
            Show::Less(Some(name)) => {
                case.classes.iter().find(|c| c.class == name && c.ops > 0)?.ratio_to_blocking
            }
            _ => case.ratio_to_blocking,
        };
        (figure.is_finite() && figure > 0.0).then_some(figure)
    }

    fn text(self, figures: &[f64]) -> String {
        let Some((least, most)) = spread(figures.iter().copied()) else { return DASH.to_owned() };
        let mean = mean(figures);
        let more = |ratio: f64| match ratio {
            ratio if ratio < TOO_MUCH => percent((ratio - 1.0) * 100.0),
            ratio => format!("{} x", times(ratio)),
        };
        let less = |ratio: f64| percent(-percent_less(ratio));
        match self {
            Show::Rate => format!("{}/s", range(rate(least), rate(most))),
            Show::Times => format!("{} x", range(times(least), times(most))),
            Show::MeanTimes => format!("{} x (up to {} x)", times(mean), times(most)),
            Show::MostTimes => format!("up to {} x", times(most)),
            Show::More => range(more(least), more(most)),
            Show::MeanMore => more(mean),
            Show::MostMore => format!("up to {}", more(most)),
            Show::Less(_) => range(less(least), less(most)),
        }
    }
}

fn range(from: String, to: String) -> String {
    if from == to { from } else { format!("{from} to {to}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    #[test]
    fn ours_beside_the_papers() {
        let results = sample::results();
        let table = beside(&results, Experiment::Personality);
        let row = |start: &str| -> Vec<String> {
            let line = table.lines().find(|line| line[2..].starts_with(start));
            line.expect("a row").split(" | ").map(str::to_owned).collect()
        };
        assert_eq!(row("hdd, random-write below 4 KiB")[3], "ext4: 97.0/s");
        assert_eq!(row("hdd, random-write, async-bg")[3], "6.70 to 29.5 x");
        assert_eq!(row("hdd, random-write, async-bg")[4], "10.0 to 50.0 x |");
        assert_eq!(row("hdd, sequential-write")[3], "+40 % to +160 %");
        assert_eq!(row("ssd, random-write, lazy")[3], DASH);
        assert_eq!(row("any disk, read-only")[3], "1.000 x");
    }

    #[test]
    fn latencies_are_less_or_more() {
        let results = sample::results();
        let table = beside(&results, Experiment::FileServer);
        assert!(table.contains("| −67 % to −80 % | −90 % |"), "{table}");
        assert!(table.contains("| +250 % to +110 % | +5 % |"), "{table}");
        let table = beside(&results, Experiment::Trace);
        assert!(table.contains("−33 % to −38 %"), "{table}");
    }

    #[test]
    fn nothing_run_leaves_dashes() {
        let mut results = sample::results();
        results.cases.clear();
        let table = beside(&results, Experiment::Memory);
        assert!(table.lines().skip(2).all(|line| line.ends_with("| – | – |")), "{table}");
    }
}
