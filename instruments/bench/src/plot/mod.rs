//! Plots as SVG: panels in a grid under one legend, each with lines or grouped bars over the same
//! kind of categories.
//!
//! Owns how a figure looks; what is in it is the caller's. A figure that was not measured is a gap.
//!
//! Invariant: the same figure gives the same bytes, so that a committed plot changes only with what
//! it shows.

mod panel;
mod scale;
mod svg;

use svg::{Anchor, Svg};

/// A whole image.
pub struct Figure {
    /// Its heading.
    pub title: String,
    /// A line under the heading: what a mark and its whisker are.
    pub note: String,
    /// Panels in a row.
    pub columns: usize,
    /// What the marks of each panel stand for, in the order of [`Panel::marks`].
    pub series: Vec<Series>,
    /// Row by row.
    pub panels: Vec<Panel>,
}

/// One entry of the legend.
#[derive(Clone)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// `#rrggbb`.
    pub colour: &'static str,
    /// How its points look, so that nobody needs the colours.
    pub marker: Marker,
}

/// The look of a point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// A disc.
    Disc,
    /// A square.
    Square,
    /// A triangle on its base.
    Up,
    /// A triangle on its tip.
    Down,
    /// A square on its tip.
    Diamond,
    /// Two crossed bars.
    Cross,
    /// None: a dashed line, for what was computed and not measured.
    Dashes,
}

/// One plot.
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// What its categories are.
    pub x_title: String,
    /// What its figures are, with the unit.
    pub y_title: String,
    /// Whether the y axis is logarithmic.
    pub logarithmic: bool,
    /// Lines or bars.
    pub kind: Kind,
    /// From left to right. One without a name has no tick.
    pub categories: Vec<String>,
    /// For each series, for each category. Series without an entry are not in this panel.
    pub marks: Vec<Vec<Option<Mark>>>,
    /// A faint line across at this figure: what the others are measured by.
    pub line_at: Option<f64>,
}

/// How a panel shows its marks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Points, joined where neighbours were measured.
    Lines,
    /// The same at so many categories that the points themselves are left out.
    Curves,
    /// Bars side by side at each category.
    Bars,
}

/// One figure and its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// The figure.
    pub value: f64,
    /// Least and most of the repetitions.
    pub spread: Option<(f64, f64)>,
}

/// Width of a panel, pixels.
const WIDTH: f64 = 270.0;
/// Height of a panel, pixels.
const HEIGHT: f64 = 250.0;
/// What the image has around its panels, pixels.
const MARGIN: f64 = 12.0;
/// Size of the image's heading, pixels.
const TITLE: f64 = 17.0;
/// Size of other text, pixels.
const TEXT: f64 = 12.0;
/// Width of a letter by its size: there are no fonts to measure here.
const LETTER: f64 = 0.58;

impl Figure {
    /// The image.
    pub fn svg(&self) -> String {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns);
        let width = 2.0 * MARGIN + columns as f64 * WIDTH;
        let legend = self.legend_rows(width);
        let top = MARGIN + TITLE + 2.0 * TEXT + legend.len() as f64 * (TEXT + 6.0) + 8.0;
        let mut svg = Svg::new(width, top + rows as f64 * HEIGHT + MARGIN, &self.title);
        svg.text((MARGIN, MARGIN + TITLE * 0.8), TITLE, Anchor::Start, true, &self.title);
        let mut y = MARGIN + TITLE + TEXT + 2.0;
        svg.text((MARGIN, y), TEXT, Anchor::Start, false, &self.note);
        for row in &legend {
            y += TEXT + 6.0;
            let mut x = MARGIN;
            for series in row {
                self.legend_entry(&mut svg, series, (x, y));
                x += entry_width(series);
            }
        }
        for (at, panel) in self.panels.iter().enumerate() {
            let corner =
                (MARGIN + (at % columns) as f64 * WIDTH, top + (at / columns) as f64 * HEIGHT);
            panel::draw(&mut svg, panel, &self.series, corner);
        }
        svg.finish()
    }

    /// The legend's entries, as many in a row as fit.
    fn legend_rows(&self, width: f64) -> Vec<Vec<&Series>> {
        let mut rows: Vec<Vec<&Series>> = Vec::new();
        let mut used = f64::INFINITY;
        for series in &self.series {
            let wide = entry_width(series);
            if used + wide > width - 2.0 * MARGIN {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += wide;
            if let Some(row) = rows.last_mut() {
                row.push(series);
            }
        }
        rows
    }

    fn legend_entry(&self, svg: &mut Svg, series: &Series, (x, y): (f64, f64)) {
        let all = |kind: Kind| self.panels.iter().all(|panel| panel.kind == kind);
        if all(Kind::Bars) && series.marker != Marker::Dashes {
            svg.rect((x + 8.0, y - 10.0), (12.0, 12.0), series.colour);
        } else {
            let dashed = series.marker == Marker::Dashes;
            svg.polyline(&[(x, y - 4.0), (x + 24.0, y - 4.0)], series.colour, dashed);
            if !all(Kind::Curves) {
                panel::marker(svg, series, (x + 12.0, y - 4.0));
            }
        }
        svg.text((x + 29.0, y), TEXT, Anchor::Start, false, &series.name);
    }
}

fn entry_width(series: &Series) -> f64 {
    50.0 + series.name.chars().count() as f64 * TEXT * LETTER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(kind: Kind, marks: Vec<Vec<Option<Mark>>>) -> Figure {
        let series = ["ext4", "a<b"].map(|name| Series {
            name: name.into(),
            colour: "#000000",
            marker: Marker::Square,
        });
        let panel = Panel {
            title: "hdd".into(),
            x_title: "size".into(),
            y_title: "ops/s".into(),
            logarithmic: kind == Kind::Lines,
            kind,
            categories: vec!["128".into(), "256".into(), "512".into()],
            marks,
            line_at: None,
        };
        Figure {
            title: "Figure".into(),
            note: String::new(),
            columns: 3,
            series: series.into(),
            panels: vec![panel],
        }
    }

    fn mark(value: f64) -> Option<Mark> {
        Some(Mark { value, spread: Some((value * 0.9, value * 1.1)) })
    }

    #[test]
    fn lines_break_where_nothing_was_measured() {
        let whole = figure(Kind::Lines, vec![vec![mark(1.0), mark(2.0), mark(3.0)]]).svg();
        let broken = figure(Kind::Lines, vec![vec![mark(1.0), None, mark(3.0)]]).svg();
        // Two in the legend, the line itself, and none where no neighbours are left.
        assert_eq!(whole.matches("<polyline").count(), 3);
        assert_eq!(broken.matches("<polyline").count(), 2);
        assert_eq!(whole, figure(Kind::Lines, vec![vec![mark(1.0), mark(2.0), mark(3.0)]]).svg());
        assert!(whole.contains("a&lt;b"));
    }

    #[test]
    fn curves_have_no_points() {
        let curves = figure(Kind::Curves, vec![vec![mark(1.0), mark(2.0), mark(3.0)]]).svg();
        // The background alone: neither squares nor whiskers.
        assert_eq!(curves.matches("<rect").count(), 1);
        assert_eq!(curves.matches("<polyline").count(), 3);
    }

    #[test]
    fn bars_and_empty_panels() {
        let bars = figure(Kind::Bars, vec![vec![mark(1.0)], vec![mark(0.5), None, mark(2.0)]]);
        // Background, two in the legend, three bars.
        assert_eq!(bars.svg().matches("<rect").count(), 6);
        let empty = figure(Kind::Bars, Vec::new()).svg();
        assert!(empty.contains("not measured"));
    }
}
