//! SVG text: the few elements the plots need, escaped, with coordinates cut to a tenth of a pixel.
//!
//! Invariant: the same calls give the same bytes.

use std::fmt::Write;

/// Ink of text and axes.
pub const INK: &str = "#222222";
/// Ink of what helps reading and is not data.
pub const FAINT: &str = "#d9d9d9";

/// Where a text is held.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// At its beginning.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

/// An image under way.
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty image on white, which is readable on a dark page too, with a title for those who
    /// have it read to them.
    pub fn new(width: f64, height: f64, title: &str) -> Svg {
        let (width, height) = (coordinate(width), coordinate(height));
        let mut svg = Svg { text: String::new() };
        svg.line_of(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" role=\"img\">"
        ));
        svg.line_of(&format!("<title>{}</title>", escape(title)));
        svg.line_of(&format!("<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"));
        svg
    }

    fn line_of(&mut self, element: &str) {
        self.text.push_str(element);
        self.text.push('\n');
    }

    /// A filled rectangle.
    pub fn rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str) {
        self.line_of(&format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"/>",
            coordinate(at.0),
            coordinate(at.1),
            coordinate(size.0),
            coordinate(size.1)
        ));
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        self.line_of(&format!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{stroke}\" \
             stroke-width=\"{}\"/>",
            coordinate(from.0),
            coordinate(from.1),
            coordinate(to.0),
            coordinate(to.1),
            coordinate(width)
        ));
    }

    /// A line through points, in the order given; nothing for fewer than two.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: &str, dashed: bool) {
        if points.len() < 2 {
            return;
        }
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{},{} ", coordinate(*x), coordinate(*y));
        }
        let dashes = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        self.line_of(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\"{dashes}/>",
            list.trim_end()
        ));
    }

    /// A closed shape.
    pub fn shape(&mut self, corners: &[(f64, f64)], fill: &str) {
        let list: Vec<String> =
            corners.iter().map(|(x, y)| format!("{},{}", coordinate(*x), coordinate(*y))).collect();
        self.line_of(&format!("<polygon points=\"{}\" fill=\"{fill}\"/>", list.join(" ")));
    }

    /// A disc.
    pub fn disc(&mut self, at: (f64, f64), radius: f64, fill: &str) {
        self.line_of(&format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{fill}\"/>",
            coordinate(at.0),
            coordinate(at.1),
            coordinate(radius)
        ));
    }

    /// A line of text; `at` is on its base line.
    pub fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, bold: bool, text: &str) {
        let (x, y) = (coordinate(at.0), coordinate(at.1));
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        self.line_of(&format!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{INK}\"{weight}>{}\
             </text>",
            coordinate(size),
            anchor.name(),
            escape(text)
        ));
    }

    /// A line of text that reads upwards, centred on `at`.
    pub fn text_up(&mut self, at: (f64, f64), size: f64, text: &str) {
        let (x, y) = (coordinate(at.0), coordinate(at.1));
        self.line_of(&format!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" text-anchor=\"middle\" fill=\"{INK}\" \
             transform=\"rotate(-90 {x} {y})\">{}</text>",
            coordinate(size),
            escape(text)
        ));
    }

    /// The whole image.
    pub fn finish(mut self) -> String {
        self.line_of("</svg>");
        self.text
    }
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// To a tenth of a pixel, without a tenth that is zero.
fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Text as XML has it. Characters XML 1.0 does not allow are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(' '),
            other if other.is_control() || matches!(other, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_coordinates_are_short() {
        let mut svg = Svg::new(100.0, 50.0, "a < b & \"c\"");
        svg.text((1.26, -0.01), 12.0, Anchor::Middle, true, "</text>\u{1}");
        let text = svg.finish();
        assert!(text.contains("<title>a &lt; b &amp; &quot;c&quot;</title>"), "{text}");
        assert!(text.contains("x=\"1.3\" y=\"0\""), "{text}");
        assert!(text.contains(">&lt;/text&gt;\u{fffd}</text>"), "{text}");
        assert!(text.ends_with("</svg>\n"));
    }

    #[test]
    fn a_line_needs_two_points() {
        let mut svg = Svg::new(1.0, 1.0, "");
        svg.polyline(&[(0.0, 0.0)], INK, false);
        assert!(!svg.finish().contains("polyline"));
    }
}
