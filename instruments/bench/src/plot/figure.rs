//! What a plot shows.

use plotters::style::RGBColor;

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
    /// Of its marks.
    pub colour: RGBColor,
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
#[derive(Default)]
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
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Points, joined where neighbours were measured.
    #[default]
    Lines,
    /// Lines over many categories, without points.
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
