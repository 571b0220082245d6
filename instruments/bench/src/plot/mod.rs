//! Plots as SVG, drawn by the crate plotters: panels in a grid under one legend, each with lines or grouped bars over
//! the same kind of categories.
//!
//! Owns how a figure looks; what is in it is the caller's. A figure that was not measured is a gap.
//!
//! Invariant: the same figure gives the same bytes, so that a committed plot changes only with what it shows.

mod figure;
mod panel;

use plotters::prelude::*;

use self::panel::{Area, Failed, TEXT, bold, marker, text};

pub use self::figure::{Figure, Kind, Mark, Marker, Panel, Series};
pub use plotters::style::RGBColor;

/// Width and height of a panel, pixels.
const PANEL: (u32, u32) = (270, 250);
/// What the image has around its panels, pixels.
const MARGIN: u32 = 12;
/// Size of the image's heading, pixels.
const TITLE: u32 = 21;
/// Height of a row of the legend, pixels.
const ROW: u32 = 18;

impl Figure {
    /// The image.
    pub fn svg(&self) -> String {
        let mut image = String::new();
        self.draw(&mut image).expect("a string takes all that is drawn");
        image
    }

    fn draw(&self, image: &mut String) -> Result<(), Failed> {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns);
        let width = 2 * MARGIN + columns as u32 * PANEL.0;
        let legend = self.legend_rows(width);
        let top = MARGIN + TITLE + 2 * TEXT + legend.len() as u32 * ROW;
        let size = (width, top + rows as u32 * PANEL.1 + MARGIN);
        let root = SVGBackend::with_string(image, size).into_drawing_area();
        root.fill(&WHITE)?;
        let left = MARGIN as i32;
        root.draw(&Text::new(printable(&self.title), (left, left), bold(TITLE)))?;
        let mut y = (MARGIN + TITLE + 6) as i32;
        root.draw(&Text::new(printable(&self.note), (left, y), text(TEXT)))?;
        for row in &legend {
            y += ROW as i32;
            let mut x = left;
            for series in row {
                self.legend_entry(&root, series, (x, y))?;
                x += entry_width(series) as i32;
            }
        }
        let (_, grid) = root.split_vertically(top);
        let grid = grid.margin(0, MARGIN, MARGIN, MARGIN);
        for (area, panel) in grid.split_evenly((rows, columns)).iter().zip(&self.panels) {
            panel::draw(area, panel, &self.series)?;
        }
        root.present()
    }

    /// The legend's entries, as many in a row as fit.
    fn legend_rows(&self, width: u32) -> Vec<Vec<&Series>> {
        let mut rows: Vec<Vec<&Series>> = Vec::new();
        let mut used = u32::MAX;
        for series in &self.series {
            let wide = entry_width(series);
            if used.saturating_add(wide) > width - 2 * MARGIN {
                rows.push(Vec::new());
                used = 0;
            }
            used += wide;
            rows.last_mut().expect("a row was begun").push(series);
        }
        rows
    }

    fn legend_entry(&self, root: &Area<'_>, series: &Series, at: (i32, i32)) -> Result<(), Failed> {
        let (x, y) = (at.0, at.1 + 7);
        let all = |kind: Kind| self.panels.iter().all(|panel| panel.kind == kind);
        let style = series.colour.stroke_width(2);
        if series.marker == Marker::Dashes {
            root.draw(&plotters::element::DashedPathElement::new(
                [(x, y), (x + 24, y)],
                6,
                4,
                style,
            ))?;
        } else if all(Kind::Bars) {
            root.draw(&Rectangle::new([(x + 8, y - 6), (x + 20, y + 6)], style.filled()))?;
        } else {
            root.draw(&PathElement::new([(x, y), (x + 24, y)], style))?;
            if !all(Kind::Curves) {
                marker(root, series, (x + 12, y))?;
            }
        }
        let name = printable(&series.name);
        root.draw(&Text::new(name, (x + 29, at.1), text(TEXT)))
    }
}

/// The width of an entry. The font is the reader's; its letters are about this wide.
fn entry_width(series: &Series) -> u32 {
    50 + series.name.chars().count() as u32 * TEXT * 9 / 20
}

/// Text without characters that XML 1.0 does not allow.
fn printable(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(kind: Kind, marks: Vec<Vec<Option<Mark>>>) -> Figure {
        let series = ["ext4", "a<b"].map(|name| Series {
            name: name.into(),
            colour: BLACK,
            marker: Marker::Disc,
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

    /// Shapes with black ink: marks, and the legend's two.
    fn count(svg: &str, element: &str) -> usize {
        let begin = format!("<{element} ");
        svg.lines().filter(|line| line.starts_with(&begin) && line.contains("#000000")).count()
    }

    #[test]
    fn lines_break_where_nothing_was_measured() {
        let whole = figure(Kind::Lines, vec![vec![mark(1.0), mark(2.0), mark(3.0)]]).svg();
        let broken = figure(Kind::Lines, vec![vec![mark(1.0), None, mark(3.0)]]).svg();
        assert_eq!((count(&whole, "circle"), count(&broken, "circle")), (5, 4));
        // A whisker has three strokes.
        assert_eq!(count(&whole, "polyline") - 3, count(&broken, "polyline") + 1);
        assert_eq!(whole, figure(Kind::Lines, vec![vec![mark(1.0), mark(2.0), mark(3.0)]]).svg());
        assert!(whole.contains("a&lt;b"));
    }

    #[test]
    fn curves_have_no_points() {
        let curves = figure(Kind::Curves, vec![vec![mark(1.0), mark(2.0), mark(3.0)]]).svg();
        assert_eq!((count(&curves, "circle"), count(&curves, "polyline")), (0, 3));
    }

    #[test]
    fn bars_and_empty_panels() {
        let bars = figure(Kind::Bars, vec![vec![mark(1.0)], vec![mark(0.5), None, mark(2.0)]]);
        assert_eq!(count(&bars.svg(), "rect"), 5, "two in the legend, three bars");
        let empty = figure(Kind::Bars, Vec::new()).svg();
        assert!(empty.contains("not measured"));
    }
}
