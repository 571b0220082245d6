//! What goes on over the time of a load: watermarks, what is dirty, requests to the disk, of the first
//! round.
//!
//! Moments lie where they were looked at; a plot has them on whole steps.

use super::panel::{DISKS, OVER_TIME, panel};
use crate::disk::Model;
use crate::document::figures::series_of;
use crate::document::markdown::Table;
use crate::measure::mean;
use crate::nbw::awol::optimum;
use crate::nbw::names::{ADAPTIVE, DASH, rate};
use crate::nbw::results::{Curves, Moment, Requests, Results};
use crate::plot::{Figure, Kind, Mark, Marker, Panel, RGBColor, Series};

/// Steps of a plot, at most.
const STEPS_MAX: f64 = 120.0;
/// Ticks of its axis, at most.
const TICKS_MAX: usize = 7;

/// A share of a moment, percent.
type Share = fn(&Moment) -> f64;

/// The curves of a plot of watermarks.
const SHARES: [(&str, RGBColor, Share); 4] = [
    ("high watermark, h(t)", RGBColor(0xd5, 0x5e, 0x00), |moment| moment.high_percent),
    ("low watermark, l(t)", RGBColor(0x00, 0x72, 0xb2), |moment| moment.low_percent),
    ("most of h, h_max(t)", RGBColor(0xc9, 0xb0, 0x00), |moment| moment.max_percent),
    ("dirty", RGBColor(0x33, 0x33, 0x33), |moment| moment.dirty_percent),
];

/// Watermarks of adaptive write-back in some workloads.
pub fn watermarks(results: &Results, figure: &str, workloads: &[&str]) -> Figure {
    let shown = |disk: Model, workload: &str| {
        let moments = curves(results, &format!("{disk}/{workload}"), ADAPTIVE)
            .map_or(&[][..], |curves| &curves.moments);
        let grid = Grid::over(moments.last().map(|last| last.seconds));
        let marks = SHARES.iter().map(|(.., share)| {
            grid.marks(moments.iter().map(|moment| (moment.seconds, share(moment))))
        });
        let best = optimum::percent_of(results, &format!("{disk}/{workload}")).map(f64::from);
        Panel {
            line_at: best,
            ..grid.panel(
                &format!("{disk}: {workload}"),
                "percent of memory for pages",
                marks.collect(),
            )
        }
    };
    let series =
        SHARES.map(|(name, colour, _)| Series { name: name.into(), colour, marker: Marker::Disc });
    Figure {
        title: format!("{figure}: watermarks over time (profile {})", results.profile.name),
        note: "Adaptive write-back, the first round. Across: the best static setting, where it was searched."
            .into(),
        columns: 2,
        series: series.into(),
        panels: workloads
            .iter()
            .flat_map(|workload| DISKS.map(|disk| shown(disk, workload)))
            .collect(),
    }
}

/// Requests to the disk while clients come and go.
pub fn requests(results: &Results) -> Figure {
    let shown = |disk: Model| {
        let of = |who: &&str| {
            let found = curves(results, &format!("{disk}/vrvw"), who);
            found.map_or(&[][..], |curves| &curves.requests)
        };
        let all = OVER_TIME.map(|who| of(&who));
        let ends = all.iter().filter_map(|steps| steps.last()).map(|last| last.seconds);
        let grid = Grid::over(ends.reduce(f64::max));
        let marks =
            all.iter().map(|steps| grid.marks(steps.iter().map(|step| (step.seconds, both(step)))));
        grid.panel(&format!("{disk}: vrvw"), "requests a second", marks.collect())
    };
    Figure {
        title: format!("Figure 18: requests to the disk (profile {})", results.profile.name),
        note: "Reads and writes, of the load and of write-back; the first round.".into(),
        columns: 2,
        series: series_of(OVER_TIME.to_vec()),
        panels: DISKS.map(shown).into(),
    }
}

/// What the plots show, in figures: a row for each case.
pub fn table(results: &Results) -> String {
    let columns = [
        "case, adaptive",
        "h, mean",
        "least",
        "most",
        "l, mean",
        "least h_max",
        "dirty, mean",
        "most",
        "requests/s, ext4",
        "static",
        "adaptive",
    ];
    let mut table = Table::new(&columns, 1);
    for case in results.cases.iter().filter(|case| case.contestant == ADAPTIVE) {
        let Some(found) = curves(results, &case.name, ADAPTIVE) else { continue };
        let share = |of: Share, sum: fn(&[f64]) -> f64| {
            let shares: Vec<f64> = found.moments.iter().map(of).collect();
            if shares.is_empty() { DASH.to_owned() } else { format!("{:.1} %", sum(&shares)) }
        };
        let [(.., high), (.., low), (.., max), (.., dirty)] = SHARES;
        let mut row = vec![
            case.name.clone(),
            share(high, mean),
            share(high, least),
            share(high, most),
            share(low, mean),
            share(max, least),
            share(dirty, mean),
            share(dirty, most),
        ];
        row.extend(OVER_TIME.map(|who| {
            let steps = curves(results, &case.name, who).map_or(&[][..], |found| &found.requests);
            let steps: Vec<f64> = steps.iter().map(both).collect();
            if steps.is_empty() { DASH.to_owned() } else { rate(mean(&steps)) }
        }));
        table.row(row);
    }
    table.text()
}

/// The curves of the first round.
pub fn curves<'a>(results: &'a Results, case: &str, who: &str) -> Option<&'a Curves> {
    results.find(case, who)?.rounds.first()?.over_time.as_ref()
}

/// Reads and writes a second.
pub fn both(step: &Requests) -> f64 {
    step.reads_per_s + step.writes_per_s
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The most of some values.
pub fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The time axis of a plot: whole steps.
struct Grid {
    step: f64,
    count: usize,
}

impl Grid {
    fn over(seconds: Option<f64>) -> Grid {
        let seconds = seconds.filter(|it| (0.0..1e6).contains(it)).unwrap_or(0.0);
        let step = (seconds / STEPS_MAX).ceil().max(1.0);
        Grid { step, count: (seconds / step).round() as usize + 1 }
    }

    /// Each step's newest point, where there is one nearby.
    fn marks(&self, points: impl Iterator<Item = (f64, f64)>) -> Vec<Option<Mark>> {
        let points: Vec<(f64, f64)> = points.collect();
        let newest = |at: usize| {
            let end = (at as f64 + 0.5) * self.step;
            let (when, value) = points.iter().rev().find(|(when, _)| *when <= end)?;
            let fresh = end - when < 2.0 * self.step && value.is_finite();
            fresh.then_some(Mark { value: *value, spread: None })
        };
        (0..self.count).map(newest).collect()
    }

    /// Seconds at the ticks, which are few; nothing between them.
    fn categories(&self) -> Vec<String> {
        let every = (0..).flat_map(|power| [1, 2, 5].map(|factor| factor * 10usize.pow(power)));
        let every = every.take(18).find(|every| self.count.div_ceil(*every) <= TICKS_MAX);
        let every = every.unwrap_or(self.count);
        let tick = |at: usize| match at % every {
            0 => format!("{}", at as f64 * self.step),
            _ => String::new(),
        };
        (0..self.count).map(tick).collect()
    }

    fn panel(&self, title: &str, y_title: &str, marks: Vec<Vec<Option<Mark>>>) -> Panel {
        Panel {
            x_title: "seconds".into(),
            categories: self.categories(),
            ..panel(title, y_title, Kind::Curves, &[], marks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_on_the_step_they_are_near() {
        let grid = Grid::over(Some(9.8));
        assert_eq!((grid.step, grid.count), (1.0, 11));
        let points = (0..10).map(|at| (f64::from(at) + 0.8, f64::from(at)));
        let marks: Vec<_> = grid.marks(points).iter().map(|it| it.map(|it| it.value)).collect();
        assert_eq!(marks[..3], [None, Some(0.0), Some(1.0)]);
        assert_eq!(marks[10], Some(9.0));
        let stale = grid.marks(std::iter::once((2.0, 7.0)));
        assert_eq!(stale.iter().flatten().count(), 2, "no line on after the last look");
    }

    #[test]
    fn a_long_axis_has_few_ticks() {
        let grid = Grid::over(Some(3600.0));
        assert_eq!((grid.step, grid.count), (30.0, 121));
        let ticks: Vec<_> = grid.categories().into_iter().filter(|it| !it.is_empty()).collect();
        assert_eq!(ticks, ["0", "600", "1200", "1800", "2400", "3000", "3600"]);
        assert_eq!(Grid::over(None).categories(), ["0"]);
    }
}
