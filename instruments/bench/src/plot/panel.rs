//! One plot of a figure: its axes, and its lines or bars.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{
    AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter,
};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::{Kind, Mark, Marker, Panel, Series};

/// Where a panel is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What drawing can fail with.
pub type Failed = DrawingAreaErrorKind<std::io::Error>;
/// A chart with figures over categories; category `n` is from `n` to `n + 1`.
type Chart<'a, 'b, 'c, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Categories<'c>, Y>>;

/// Ink of text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Ink of lines that help reading.
const FAINT: RGBColor = RGBColor(0xd9, 0xd9, 0xd9);
/// Ink of a figure that others are measured by.
const ACROSS: RGBColor = RGBColor(0x77, 0x77, 0x77);
/// Size of a panel's text, and of its ticks'. Pixels.
pub const TEXT: u32 = 15;
const TICK: u32 = 13;
/// Room for the y axis' ticks and title, and for the x axis'. Pixels.
const LEFT: u32 = 58;
const BELOW: u32 = 38;
/// Half of a point's width, and of a whisker's caps. Pixels.
const POINT: i32 = 4;
const CAP: f64 = 2.5;
/// Series stand apart by this at one category of a line plot, so that whiskers can be told from each other. Pixels.
const APART: f64 = 2.0;
/// What a group of bars takes of its category's width.
const GROUP: f64 = 0.82;
/// No figure of a measurement is beyond these; what is, is a gap.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1e-9..=1e15;

/// Draws a panel.
pub fn draw(area: &Area<'_>, panel: &Panel, series: &[Series]) -> Result<(), Failed> {
    let shown = panel.marks.iter().flatten().flatten().filter(|mark| plausible(panel, mark.value));
    let figures = shown.flat_map(|mark| {
        let (least, most) = mark.spread.unwrap_or((mark.value, mark.value));
        [mark.value, least, most]
    });
    let figures = figures.chain(panel.line_at).filter(|figure| PLAUSIBLE.contains(figure));
    let (least, most) = figures
        .fold((f64::INFINITY, 0.0), |(least, most), figure| (figure.min(least), figure.max(most)));
    if panel.logarithmic {
        let figures = if most > 0.0 { least / 1.05..=most * 1.05 } else { 1.0..=10.0 };
        let ticks = ticks_of_decades(*figures.start(), *figures.end());
        let (least, most) = (ticks[0], ticks[ticks.len() - 1]);
        let axis = (least..most).log_scale().with_key_points(ticks);
        Plot { panel, series, bottom: least }.draw(area, axis)
    } else {
        let most = if most > 0.0 { most * 1.08 } else { 1.0 };
        Plot { panel, series, bottom: 0.0 }.draw(area, 0.0..most)
    }
}

/// Whether a figure has a place in the panel.
fn plausible(panel: &Panel, figure: f64) -> bool {
    PLAUSIBLE.contains(&figure) || (figure == 0.0 && !panel.logarithmic)
}

/// Ticks around figures: 1, 2 and 5 times powers of ten, or the powers alone if there are many.
fn ticks_of_decades(least: f64, most: f64) -> Vec<f64> {
    let factors: &[f64] = if most / least > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let mut ticks: Vec<f64> = powers
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .collect();
    let below = ticks.iter().filter(|tick| **tick <= least).count();
    let above = ticks.iter().filter(|tick| **tick >= most).count();
    ticks.truncate(ticks.len() + 1 - above.max(1));
    ticks.drain(..below.max(1) - 1);
    ticks
}

/// A tick's figure, thousands as `k`, millions as `M`.
fn short(figure: f64) -> String {
    let (figure, unit) = match figure {
        figure if figure >= 999_999.0 => (figure / 1e6, "M"),
        figure if figure >= 999.9 => (figure / 1e3, "k"),
        figure => (figure, ""),
    };
    let text = format!("{figure:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + unit
}

/// Text of a size, in pixels.
pub fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// The same in bold.
pub fn bold(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().style(FontStyle::Bold).color(&INK)
}

/// The x axis: category `n` is from `n` to `n + 1`; those with a name have a tick in their middle.
struct Categories<'a>(&'a [String]);

impl Ranged for Categories<'_> {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = value / self.range().end;
        limit.0 + (place * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _hint: H) -> Vec<f64> {
        let named = (0..self.0.len()).filter(|at| !self.0[*at].is_empty());
        named.map(|at| at as f64 + 0.5).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..self.0.len().max(1) as f64
    }
}

struct Plot<'a> {
    panel: &'a Panel,
    series: &'a [Series],
    /// The lower end of the y axis.
    bottom: f64,
}

impl Plot<'_> {
    fn draw<Y>(&self, area: &Area<'_>, axis: Y) -> Result<(), Failed>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let categories = &self.panel.categories;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.panel.title, bold(TEXT))
            .margin_right(10)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(Categories(categories), axis)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .y_labels(6)
            .label_style(text(TICK))
            .x_label_style(text(self.category_size(chart_width(area))))
            .axis_desc_style(text(TEXT))
            .x_desc(&self.panel.x_title)
            .y_desc(&self.panel.y_title)
            .x_label_formatter(&|x| categories.get(*x as usize).cloned().unwrap_or_default())
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        if let Some(figure) = self.panel.line_at.filter(|figure| plausible(self.panel, *figure)) {
            let across = [(0.0, figure), (categories.len() as f64, figure)];
            chart.plotting_area().draw(&PathElement::new(across, ACROSS))?;
        }
        if self.panel.marks.iter().flatten().all(Option::is_none) {
            let (width, height) = chart.plotting_area().dim_in_pixel();
            let centre = (width as i32 / 2, height as i32 / 2);
            let text = text(TEXT).pos(Pos::new(HPos::Center, VPos::Center));
            return chart.plotting_area().strip_coord_spec().draw(&Text::new(
                "not measured",
                centre,
                text,
            ));
        }
        match self.panel.kind {
            Kind::Lines | Kind::Curves => self.lines(&mut chart),
            Kind::Bars => self.bars(&chart),
        }
    }

    /// The size at which the longest category does not run into its neighbour.
    fn category_size(&self, width: f64) -> u32 {
        let categories = &self.panel.categories;
        let fits = |(at, name): (usize, &String)| {
            let unnamed = categories[at + 1..].iter().take_while(|next| next.is_empty()).count();
            let room = width / categories.len() as f64 * (1 + unnamed) as f64;
            // A letter of this font is about half as wide as its size says.
            (room / (name.chars().count() as f64 * 0.5)) as u32
        };
        let named = categories.iter().enumerate().filter(|(_, name)| !name.is_empty());
        named.map(fits).min().unwrap_or(TICK).clamp(6, TICK)
    }

    /// The marks of a series that have a place, each with its category.
    fn marks<'b>(
        &'b self,
        marks: &'b [Option<Mark>],
    ) -> impl Iterator<Item = Option<(usize, Mark)>> + 'b {
        let marks = marks.iter().take(self.panel.categories.len()).enumerate();
        marks.map(|(at, mark)| Some((at, mark.filter(|mark| plausible(self.panel, mark.value))?)))
    }

    fn lines<Y: Ranged<ValueType = f64>>(
        &self,
        chart: &mut Chart<'_, '_, '_, Y>,
    ) -> Result<(), Failed> {
        let middle = (self.panel.marks.len() as f64 - 1.0) / 2.0;
        let has_points = self.panel.kind == Kind::Lines;
        let pixel = self.pixel(chart);
        for (order, (series, marks)) in self.series.iter().zip(&self.panel.marks).enumerate() {
            let shift = if has_points { (order as f64 - middle) * APART * pixel } else { 0.0 };
            let points: Vec<Option<((f64, f64), Mark)>> = self
                .marks(marks)
                .map(|mark| mark.map(|(at, mark)| ((at as f64 + 0.5 + shift, mark.value), mark)))
                .collect();
            let style = series.colour.stroke_width(2);
            for run in points.split(Option::is_none).filter(|run| run.len() > 1) {
                let run: Vec<(f64, f64)> = run.iter().flatten().map(|(point, _)| *point).collect();
                match series.marker {
                    Marker::Dashes => chart.draw_series(DashedLineSeries::new(run, 6, 4, style))?,
                    _ => chart.draw_series(LineSeries::new(run, style))?,
                };
            }
            for (point, mark) in points.into_iter().flatten().filter(|_| has_points) {
                self.whisker(chart, point.0, mark, series.colour)?;
                self::marker(chart.plotting_area(), series, point)?;
            }
        }
        Ok(())
    }

    fn bars<Y: Ranged<ValueType = f64>>(&self, chart: &Chart<'_, '_, '_, Y>) -> Result<(), Failed> {
        let count = self.panel.marks.len().max(1) as f64;
        let wide = GROUP / count;
        for (order, (series, marks)) in self.series.iter().zip(&self.panel.marks).enumerate() {
            for (at, mark) in self.marks(marks).flatten() {
                let left = at as f64 + 0.5 + (order as f64 - count / 2.0) * wide;
                let corners = [(left, self.bottom), (left + wide * 0.97, mark.value)];
                chart.plotting_area().draw(&Rectangle::new(corners, series.colour.filled()))?;
                self.whisker(chart, left + wide / 2.0, mark, INK)?;
            }
        }
        Ok(())
    }

    /// The spread of a mark.
    fn whisker<Y: Ranged<ValueType = f64>>(
        &self,
        chart: &Chart<'_, '_, '_, Y>,
        x: f64,
        mark: Mark,
        colour: RGBColor,
    ) -> Result<(), Failed> {
        let Some((least, most)) = mark.spread else { return Ok(()) };
        if !(plausible(self.panel, least) && plausible(self.panel, most)) {
            return Ok(());
        }
        let area = chart.plotting_area();
        let height = area.map_coordinate(&(x, least)).1 - area.map_coordinate(&(x, most)).1;
        if height < 2 {
            return Ok(());
        }
        let cap = CAP * self.pixel(chart);
        area.draw(&PathElement::new([(x, least), (x, most)], colour))?;
        for y in [least, most] {
            area.draw(&PathElement::new([(x - cap, y), (x + cap, y)], colour))?;
        }
        Ok(())
    }

    /// The width of a pixel, in categories.
    fn pixel<Y: Ranged<ValueType = f64>>(&self, chart: &Chart<'_, '_, '_, Y>) -> f64 {
        let width = chart.plotting_area().dim_in_pixel().0.max(1);
        self.panel.categories.len() as f64 / f64::from(width)
    }
}

/// The width of an area's plot, pixels.
fn chart_width(area: &Area<'_>) -> f64 {
    f64::from(area.dim_in_pixel().0.saturating_sub(LEFT + 10))
}

/// The point of a series.
pub fn marker<C: CoordTranslate>(
    area: &DrawingArea<SVGBackend<'_>, C>,
    series: &Series,
    at: C::From,
) -> Result<(), Failed>
where
    C::From: Clone,
{
    let style = series.colour.filled();
    let shape = |corners: &[(i32, i32)]| {
        area.draw(&(EmptyElement::at(at.clone()) + Polygon::new(corners.to_vec(), style)))
    };
    let r = POINT;
    match series.marker {
        Marker::Disc => area.draw(&(EmptyElement::at(at.clone()) + Circle::new((0, 0), r, style))),
        Marker::Square => shape(&[(-r, -r), (r, -r), (r, r), (-r, r)]),
        Marker::Up => shape(&[(-r, r), (r, r), (0, -r)]),
        Marker::Down => shape(&[(-r, -r), (r, -r), (0, r)]),
        Marker::Diamond => shape(&[(-r - 1, 0), (0, -r - 1), (r + 1, 0), (0, r + 1)]),
        Marker::Cross => area.draw(
            &(EmptyElement::at(at.clone()) + Cross::new((0, 0), r, series.colour.stroke_width(2))),
        ),
        Marker::Dashes => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_short() {
        let ticks = [50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4];
        assert_eq!(ticks_of_decades(75.0, 6500.0), ticks);
        assert_eq!(ticks_of_decades(140.0, 160.0), [100.0, 200.0]);
        assert_eq!(ticks_of_decades(70.0, 5e6), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7]);
        assert_eq!(ticks_of_decades(1.0, 10.0), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!([0.5, 5000.0, 2e6, 0.0].map(short), ["0.5", "5k", "2M", "0"]);
    }
}
