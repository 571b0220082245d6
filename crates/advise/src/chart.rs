//! Charts as inline SVG. Colours are classes, which the page's style gives for light and dark.
//!
//! Every text that is not ours is escaped ([`escaped`]).

use std::fmt::Write as _;

/// Width of all charts, units of the view box.
const WIDTH: f64 = 720.0;
const LABEL: f64 = 190.0;
const ROW: f64 = 34.0;

/// Text for HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

fn open(height: f64, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>\n"
    )
}

/// A bar of parts: class of its colour, value, and what it is.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) parts: Vec<(&'static str, f64, String)>,
    pub(crate) end: String,
}

/// Horizontal bars, each of parts in one unit.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars
        .iter()
        .map(|bar| bar.parts.iter().map(|(_, value, _)| value).sum::<f64>())
        .fold(1e-9, f64::max);
    let room = WIDTH - LABEL - 110.0;
    let mut svg = open(ROW * bars.len() as f64 + 4.0, title);
    for (row, bar) in bars.iter().enumerate() {
        let y = ROW * row as f64 + 4.0;
        let middle = y + 17.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{middle}\" class=\"label\" text-anchor=\"end\" dominant-baseline=\"middle\">{}</text>",
            LABEL - 10.0,
            escaped(&bar.label)
        );
        let mut x = LABEL;
        for (class, value, what) in &bar.parts {
            let width = value / most * room;
            if width > 0.2 {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"22\" class=\"{class}\"><title>{}</title></rect>",
                    y + 6.0,
                    escaped(what)
                );
            }
            x += width;
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{middle}\" class=\"value\" dominant-baseline=\"middle\">{}</text>",
            x + 8.0,
            escaped(&bar.end)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line of a chart: class of its colour, its name, and its values, one for each place.
pub(crate) struct Series {
    pub(crate) class: &'static str,
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// Lines over named places, from zero up.
pub(crate) fn lines(title: &str, places: &[String], series: &[Series], axis: &str) -> String {
    // At the right there is half of the last place's name.
    let (left, right, top, bottom, height) = (70.0, 40.0, 34.0, 46.0, 280.0);
    let most =
        series.iter().flat_map(|one| &one.values).fold(1.0_f64, |most, value| most.max(*value));
    let most = rounded_up(most);
    let x = |at: usize| {
        let steps = places.len().saturating_sub(1).max(1) as f64;
        left + (WIDTH - left - right) * at as f64 / steps
    };
    let y = |value: f64| top + (height - top - bottom) * (1.0 - value / most);
    let mut svg = open(height, title);
    for step in 0..=4 {
        let value = most * f64::from(step) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/><text x=\"{}\" y=\"{at:.1}\" \
             class=\"tick\" text-anchor=\"end\" dominant-baseline=\"middle\">{}</text>",
            WIDTH - right,
            left - 8.0,
            crate::report::count(value.round() as u64)
        );
    }
    let every = places.len().div_ceil(8).max(1);
    for (at, place) in places.iter().enumerate().filter(|(at, _)| at % every == 0) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" class=\"tick\" text-anchor=\"middle\">{}</text>",
            x(at),
            height - bottom + 18.0,
            escaped(place)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" class=\"tick\" text-anchor=\"middle\">{}</text>",
        (left + WIDTH - right) / 2.0,
        height - 6.0,
        escaped(axis)
    );
    for (number, one) in series.iter().enumerate() {
        let points: Vec<String> = one
            .values
            .iter()
            .enumerate()
            .map(|(at, value)| format!("{:.1},{:.1}", x(at), y(*value)))
            .collect();
        let legend = left + 180.0 * number as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" class=\"line {}\"/><rect x=\"{legend}\" y=\"8\" width=\"14\" height=\"14\" class=\"{}\"/>\
             <text x=\"{}\" y=\"16\" class=\"label\" dominant-baseline=\"middle\">{}</text>",
            points.join(" "),
            one.class,
            one.class,
            legend + 20.0,
            escaped(&one.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next of 1, 2, 4, 5, 8 times a power of ten: four equal steps of it are round.
fn rounded_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(4.0).log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_leave_its_element() {
        assert_eq!(escaped("<a b='c'>&\"\n"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
        let bar =
            Bar { label: "<x>".into(), parts: vec![("w", 2.0, "two".into())], end: "2 s".into() };
        let svg = bars("t", &[bar]);
        assert!(svg.contains("&lt;x&gt;") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn axes_end_at_round_values() {
        assert_eq!((rounded_up(7.0), rounded_up(1234.0), rounded_up(0.0)), (8.0, 2000.0, 1.0));
        let one = Series { class: "w", name: "writes".into(), values: vec![0.0, 7.0] };
        let svg = lines("t", &["a".into(), "b".into()], &[one], "memory");
        assert!(svg.contains("70.0,234.0 680.0,59.0"), "{svg}");
    }
}
