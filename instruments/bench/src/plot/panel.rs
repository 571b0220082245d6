//! One plot of a figure: its axes, and its lines or bars.

use super::scale::Scale;
use super::svg::{Anchor, FAINT, INK, Svg};
use super::{HEIGHT, Kind, LETTER, Mark, Marker, Panel, Series, TEXT, WIDTH};

/// Left of the plot: ticks and the y axis' title. Pixels.
const LEFT: f64 = 56.0;
/// Right of the plot, pixels.
const RIGHT: f64 = 10.0;
/// Above the plot: the heading. Pixels.
const ABOVE: f64 = 28.0;
/// Below the plot: categories and the x axis' title. Pixels.
const BELOW: f64 = 46.0;
/// Size of the ticks' text, pixels.
const TICK: f64 = 11.0;
/// Half of a marker's width, pixels.
const MARKER: f64 = 4.0;
/// How far series stand apart at one category of a line plot, so that whiskers can be told from
/// each other. Pixels.
const APART: f64 = 2.0;
/// What a group of bars takes of its category's width.
const GROUP: f64 = 0.82;
/// A spread that is shorter is not drawn, pixels.
const WHISKER: f64 = 2.0;

/// Where a panel's plot is, and how figures become places in it.
struct Plot<'a> {
    panel: &'a Panel,
    scale: Scale,
    left: f64,
    top: f64,
}

/// Draws `panel` with its upper left corner at `corner`.
pub fn draw(svg: &mut Svg, panel: &Panel, series: &[Series], corner: (f64, f64)) {
    let shown = panel.marks.iter().flatten().flatten();
    let figures = shown.flat_map(|mark| {
        let (least, most) = mark.spread.unwrap_or((mark.value, mark.value));
        [mark.value, least, most]
    });
    let figures = figures.chain(panel.line_at);
    let scale =
        if panel.logarithmic { Scale::logarithmic(figures) } else { Scale::linear(figures) };
    let plot = Plot { panel, scale, left: corner.0 + LEFT, top: corner.1 + ABOVE };
    let middle = plot.left + plot.width() / 2.0;
    svg.text((middle, corner.1 + 18.0), TEXT, Anchor::Middle, true, &panel.title);
    plot.axes(svg, corner.0);
    if panel.marks.iter().flatten().all(Option::is_none) {
        let centre = (middle, plot.top + plot.height() / 2.0);
        svg.text(centre, TEXT, Anchor::Middle, false, "not measured");
        return;
    }
    match panel.kind {
        Kind::Lines | Kind::Curves => plot.lines(svg, series),
        Kind::Bars => plot.bars(svg, series),
    }
}

impl Plot<'_> {
    fn width(&self) -> f64 {
        WIDTH - LEFT - RIGHT
    }

    fn height(&self) -> f64 {
        HEIGHT - ABOVE - BELOW
    }

    fn y(&self, figure: f64) -> f64 {
        self.top + self.height() * (1.0 - self.scale.place(figure))
    }

    /// Width of a category.
    fn step(&self) -> f64 {
        self.width() / self.panel.categories.len().max(1) as f64
    }

    fn x(&self, category: usize) -> f64 {
        self.left + (category as f64 + 0.5) * self.step()
    }

    fn axes(&self, svg: &mut Svg, outer_left: f64) {
        let (right, bottom) = (self.left + self.width(), self.top + self.height());
        for (figure, label) in self.scale.ticks() {
            let y = self.y(figure);
            svg.line((self.left, y), (right, y), FAINT, 1.0);
            svg.text((self.left - 5.0, y + TICK * 0.35), TICK, Anchor::End, false, &label);
        }
        if let Some(figure) = self.panel.line_at {
            svg.line((self.left, self.y(figure)), (right, self.y(figure)), "#777777", 1.2);
        }
        svg.line((self.left, self.top), (self.left, bottom), INK, 1.0);
        svg.line((self.left, bottom), (right, bottom), INK, 1.0);
        for (at, category) in self.panel.categories.iter().enumerate() {
            if category.is_empty() {
                continue;
            }
            let next = self.panel.categories[at + 1..].iter().take_while(|next| next.is_empty());
            let room = self.step() * (1 + next.count()) as f64;
            let wide = category.chars().count() as f64 * TICK * LETTER;
            let size = if wide > room { TICK * room / wide } else { TICK };
            svg.text((self.x(at), bottom + 15.0), size, Anchor::Middle, false, category);
        }
        let middle = (self.left + self.width() / 2.0, bottom + 33.0);
        svg.text(middle, TEXT, Anchor::Middle, false, &self.panel.x_title);
        let beside = (outer_left + 13.0, self.top + self.height() / 2.0);
        svg.text_up(beside, TEXT, &self.panel.y_title);
    }

    fn lines(&self, svg: &mut Svg, series: &[Series]) {
        let middle = (self.panel.marks.len() as f64 - 1.0) / 2.0;
        let points_shown = self.panel.kind == Kind::Lines;
        let apart = if points_shown { APART } else { 0.0 };
        for (order, (series, marks)) in series.iter().zip(&self.panel.marks).enumerate() {
            let shift = (order as f64 - middle) * apart;
            let points: Vec<Option<((f64, f64), Mark)>> = marks
                .iter()
                .take(self.panel.categories.len())
                .enumerate()
                .map(|(at, mark)| mark.map(|mark| ((self.x(at) + shift, self.y(mark.value)), mark)))
                .collect();
            for run in points.split(Option::is_none) {
                let run: Vec<(f64, f64)> = run.iter().flatten().map(|(point, _)| *point).collect();
                svg.polyline(&run, series.colour, series.marker == Marker::Dashes);
            }
            for (point, mark) in points.into_iter().flatten().filter(|_| points_shown) {
                self.whisker(svg, point.0, mark, series.colour);
                marker(svg, series, point);
            }
        }
    }

    fn bars(&self, svg: &mut Svg, series: &[Series]) {
        let count = self.panel.marks.len().max(1) as f64;
        let wide = self.step() * GROUP / count;
        let bottom = self.top + self.height();
        for (order, (series, marks)) in series.iter().zip(&self.panel.marks).enumerate() {
            for (at, mark) in marks.iter().take(self.panel.categories.len()).enumerate() {
                let Some(mark) = mark else { continue };
                let left = self.x(at) + (order as f64 - count / 2.0) * wide;
                let y = self.y(mark.value);
                svg.rect((left, y), ((wide - 0.6).max(0.4), bottom - y), series.colour);
                self.whisker(svg, left + wide / 2.0, *mark, INK);
            }
        }
    }

    /// The spread of a mark, where it is long enough to be seen.
    fn whisker(&self, svg: &mut Svg, x: f64, mark: Mark, colour: &str) {
        let Some((least, most)) = mark.spread else { return };
        let (low, high) = (self.y(least), self.y(most));
        if low - high < WHISKER {
            return;
        }
        svg.line((x, low), (x, high), colour, 1.0);
        for y in [low, high] {
            svg.line((x - 2.5, y), (x + 2.5, y), colour, 1.0);
        }
    }
}

/// The point of a series at `(x, y)`.
pub fn marker(svg: &mut Svg, series: &Series, (x, y): (f64, f64)) {
    let r = MARKER;
    match series.marker {
        Marker::Disc => svg.disc((x, y), r, series.colour),
        Marker::Square => svg.rect((x - r, y - r), (2.0 * r, 2.0 * r), series.colour),
        Marker::Up => svg.shape(&[(x - r, y + r), (x + r, y + r), (x, y - r)], series.colour),
        Marker::Down => svg.shape(&[(x - r, y - r), (x + r, y - r), (x, y + r)], series.colour),
        Marker::Diamond => {
            let tip = r * 1.3;
            let corners = [(x, y - tip), (x + tip, y), (x, y + tip), (x - tip, y)];
            svg.shape(&corners, series.colour);
        }
        Marker::Cross => {
            svg.line((x - r, y - r), (x + r, y + r), series.colour, 2.2);
            svg.line((x - r, y + r), (x + r, y - r), series.colour, 2.2);
        }
        Marker::Dashes => {}
    }
}
