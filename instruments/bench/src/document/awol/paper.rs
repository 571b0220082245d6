//! What the paper says it measured, each statement beside the same figure of ours.
//!
//! The paper is "AWOL: An Adaptive Write Optimizations Layer"; its section is 5. Only what its text
//! states is here: nothing was read off its plots. Ours are of the hard disk, as the paper's.

use super::over_time::{both, curves, most};
use crate::document::markdown::Table;
use crate::measure::{mean, median, spread};
use crate::nbw::awol::macrobench;
use crate::nbw::awol::optimum::best;
use crate::nbw::awol::ratios::{against, found_in_memory, speed};
use crate::nbw::goals::percent_less;
use crate::nbw::names::{ADAPTIVE, BASELINE, STATIC, or_dash, percent};
use crate::nbw::results::{Results, Round};

/// One statement. `ours` is the figure of adaptive write-back, held against another contestant.
struct Statement {
    what: &'static str,
    said: &'static str,
    place: &'static str,
    ours: fn(&Results, &str) -> Option<String>,
}

#[rustfmt::skip]
const STATEMENTS: &[Statement] = &[
    Statement { what: "NRSW, writes, to the best static setting", place: "5.1",
        said: "\"almost as well as the optimal setup\"",
        ours: |results, other| optimal(results, "hdd/static/nrsw", other) },
    Statement { what: "NRZW, writes, to the best static setting", place: "5.1",
        said: "\"slightly higher than Optimal\"",
        ours: |results, other| optimal(results, "hdd/static/nrzw", other) },
    Statement { what: "NRSW, the high watermark", place: "5.1",
        said: "\"quickly converges to its optimal value\"",
        ours: |results, other| settled(results, "hdd/nrsw", other) },
    Statement { what: "ZRZW, hit rate", place: "5.2",
        said: "ghost caching \"achieves the highest hit rate\"",
        ours: |results, other| hits(results, "hdd/zrzw", other) },
    Statement { what: "RRRW, requests to the disk for equal work", place: "5.3",
        said: "\"20% fewer disk operations\"",
        ours: |results, other| change(results, "hdd/rrrw", other, &|round| {
            Some(round.disk_use?.requests_a_thousand)
        }) },
    Statement { what: "RRRW, reads", place: "5.3",
        said: "\"improved by more than 35%\"",
        ours: |results, other| rates(results, "hdd/rrrw", "read", other) },
    Statement { what: "RRRW, writes", place: "5.3",
        said: "\"increases only modestly\"",
        ours: |results, other| rates(results, "hdd/rrrw", "write", other) },
    Statement { what: "ZRZW, reads", place: "5.4",
        said: "\"close to 35% improvement\"",
        ours: |results, other| rates(results, "hdd/zrzw", "read", other) },
    Statement { what: "SRSW, reads", place: "5.4",
        said: "\"close to 10%\"",
        ours: |results, other| rates(results, "hdd/srsw", "read", other) },
    Statement { what: "VRVW, requests to the disk a second", place: "5.4",
        said: "\"fewer destage I/O operations than Linux on average\"",
        ours: |results, other| requests(results, "hdd/vrvw", other) },
    Statement { what: "VRVW, mean time of a read", place: "5.4",
        said: "\"much shorter average read response times\"",
        ours: |results, other| change(results, "hdd/vrvw", other, &|round| {
            let reads = round.classes.iter().find(|class| class.class == "read")?;
            Some(reads.mean_us)
        }) },
    Statement { what: "Unpacking and building, time", place: "5.5",
        said: "reduced \"by almost 21%\"",
        ours: |results, other| gained(results, "build", other).map(|ratio| percent(-percent_less(ratio))) },
    Statement { what: "TPC-C, new orders", place: "5.5",
        said: "improved \"by more than 25%\"",
        ours: |results, other| gained(results, "tpcc", other).map(|ratio| percent((ratio - 1.0) * 100.0)) },
    Statement { what: "TPC-C, h(t)", place: "5.5",
        said: "0.03 on average, at most 0.4",
        ours: |results, other| marks(results, "hdd/macro/tpcc", other) },
];

/// The statements as a table: the paper's, and ours against ext4 and against static write-back.
pub fn beside(results: &Results) -> String {
    let columns = ["hdd", "the paper", "section", "Weir, adaptive, to ext4", "to Weir, static"];
    let mut table = Table::new(&columns, 3);
    for statement in STATEMENTS {
        let ours = |other: &str| or_dash((statement.ours)(results, other), |text| text);
        let texts = [statement.what, statement.said, statement.place].map(str::to_owned);
        table.row([&texts[..], &[ours(BASELINE), ours(STATIC)]].concat());
    }
    table.text()
}

/// How much more a rate is, percent.
fn rates(results: &Results, case: &str, class: &str, other: &str) -> Option<String> {
    change(results, case, other, &speed(case, class))
}

fn change(
    results: &Results,
    case: &str,
    other: &str,
    figure: &dyn Fn(&Round) -> Option<f64>,
) -> Option<String> {
    let ratios = against(results, case, ADAPTIVE, other, figure)?;
    Some(percent((ratios.median - 1.0) * 100.0))
}

fn gained(results: &Results, label: &str, other: &str) -> Option<f64> {
    Some(macrobench::gain(results, label, other)?.median)
}

/// The high watermark of the first round, which has nobody to be held against.
fn marks(results: &Results, case: &str, other: &str) -> Option<String> {
    let moments = &curves(results, case, ADAPTIVE).filter(|_| other == BASELINE)?.moments;
    let shares: Vec<f64> = moments.iter().map(|moment| moment.high_percent / 100.0).collect();
    (!shares.is_empty())
        .then(|| format!("{:.2} on average, at most {:.2}", mean(&shares), most(&shares)))
}

/// Against the best of all static settings.
fn optimal(results: &Results, case: &str, other: &str) -> Option<String> {
    let all = best(results);
    let best = all.iter().find(|best| best.case == case && other == STATIC)?;
    let more = percent((best.adaptive?.median - 1.0) * 100.0);
    Some(format!("{more}, of background at {} %", best.percent))
}

/// Both hit rates.
fn hits(results: &Results, case: &str, other: &str) -> Option<String> {
    let of = |who: &str| {
        let case = results.find(case, who)?;
        let rounds = case.rounds.iter();
        let rates: Vec<f64> =
            rounds.filter_map(|round| found_in_memory(round, case.size_bytes)).collect();
        (!rates.is_empty()).then(|| median(&rates))
    };
    Some(format!("{:.0} % to {:.0} %", of(ADAPTIVE)?, of(other)?))
}

/// Of the first round, over its time.
fn requests(results: &Results, case: &str, other: &str) -> Option<String> {
    let of = |who: &str| {
        let steps: Vec<f64> = curves(results, case, who)?.requests.iter().map(both).collect();
        (!steps.is_empty()).then(|| mean(&steps))
    };
    let ratio = of(ADAPTIVE)? / of(other)?;
    ratio.is_finite().then(|| percent((ratio - 1.0) * 100.0))
}

/// The watermark itself has nobody to be held against: its first value, and those of the second half.
fn settled(results: &Results, case: &str, other: &str) -> Option<String> {
    let moments = &curves(results, case, ADAPTIVE)?.moments;
    let first = moments.first().filter(|_| other == BASELINE)?.high_percent;
    let late = moments[moments.len() / 2..].iter().map(|moment| moment.high_percent);
    let (least, most) = spread(late)?;
    Some(format!("h from {first:.1} % to {least:.1}–{most:.1} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::awol::sample;
    use crate::nbw::names::DASH;

    #[test]
    fn ours_beside_the_papers() {
        let table = beside(&sample::results());
        let row = |start: &str| {
            let line = table.lines().find(|line| line[2..].starts_with(start)).expect("a row");
            line.split(" | ").skip(3).map(|it| it.trim_end_matches(" |").to_owned()).collect()
        };
        let cells: Vec<String> = row("RRRW, reads");
        assert_eq!(cells, ["+40 %", "+40 %"], "{table}");
        let cells: Vec<String> = row("NRSW, the high");
        assert_eq!(cells, ["h from 20.0 % to 5.0–6.0 %", DASH], "{table}");
        let cells: Vec<String> = row("VRVW, requests");
        assert_eq!(cells, ["−40 %", "−25 %"], "{table}");
    }

    #[test]
    fn nothing_run_leaves_dashes() {
        let mut results = sample::results();
        results.cases.clear();
        let table = beside(&results);
        assert!(table.lines().skip(2).all(|line| line.ends_with("| – | – |")), "{table}");
    }
}
