//! The demo's report: one HTML page with pictures, which needs nothing beside itself. It is readable in light and in dark, on a
//! narrow screen, and by those who do not see the pictures: each bar has its figure as text.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::figures::{Outcome, Pair};
use super::screen::figure;
use crate::error::{Doing, Result};

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --faint: #57606a; --direct: #8c959f; --weir: #0a6ebd; --line: #d0d7de }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --direct: #6e7681; --weir: #58a6ff; --line: #30363d }
}
body { margin: 2rem auto; max-width: 44rem; padding: 0 1rem; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
section { border-top: 1px solid var(--line); margin-top: 2rem }
svg { display: block; width: 100%; height: auto }
text { font: 13px system-ui, sans-serif; fill: var(--ink) }
.name { font-weight: 600 } .verdict { fill: var(--weir) }
.direct { fill: var(--direct) } .weir { fill: var(--weir) }
.proof, footer { color: var(--faint) }
";

/// Pixels of the picture: its width, where bars begin, the longest bar, and the height of one pair.
const WIDTH: f64 = 640.0;
const LEFT: f64 = 100.0;
const BAR: f64 = 420.0;
const PAIR: f64 = 78.0;

/// Writes it.
pub fn write(path: &Path, outcomes: &[Outcome], not_for: &str, took: Duration) -> Result<()> {
    // Complete or not at all.
    let unready = path.with_extension("html.new");
    fs::write(&unready, text(outcomes, not_for, took)).doing("write", &unready)?;
    fs::rename(&unready, path).doing("write", path)
}

fn text(outcomes: &[Outcome], not_for: &str, took: Duration) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Weir demo</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Weir demo</h1>\n\
         <p>The same programs use a directory, and another that Weir serves. The sides take turns; at the end the directories themselves \
         are compared, byte for byte.</p>\n"
    );
    for outcome in outcomes {
        // A String takes whatever is written to it.
        let _ = match outcome {
            Outcome::Shown(shown) => write!(
                page,
                "<section>\n<h2>{}</h2>\n<p>{}</p>\n{}<p class=\"proof\">{}</p>\n</section>\n",
                escaped(&shown.title),
                escaped(&shown.what),
                picture(&shown.title, &shown.pairs),
                escaped(&shown.proof)
            ),
            Outcome::LeftOut { title, why } => write!(
                page,
                "<section>\n<h2>{}</h2>\n<p>Left out: {}</p>\n</section>\n",
                escaped(title),
                escaped(why)
            ),
        };
    }
    let _ = write!(
        page,
        "<section>\n<p>{}</p>\n</section>\n<footer><p>The demo took {:.0} s.</p></footer>\n</body>\n</html>\n",
        escaped(not_for),
        took.as_secs_f64()
    );
    page
}

fn picture(title: &str, pairs: &[Pair]) -> String {
    let height = PAIR * pairs.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(title)
    );
    for (number, pair) in pairs.iter().enumerate() {
        let top = PAIR * number as f64;
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"0\" y=\"{:.0}\">{}</text><text class=\"verdict\" x=\"{WIDTH}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
            top + 16.0,
            escaped(&pair.name),
            top + 16.0,
            escaped(&pair.verdict())
        );
        let sides = [("directly", "direct", pair.straight), ("through Weir", "weir", pair.through)];
        for (line, ((side, class, of_side), part)) in
            sides.into_iter().zip(pair.parts()).enumerate()
        {
            let y = top + 24.0 + 24.0 * line as f64;
            let width = if part > 0.0 { (part * BAR).max(1.0) } else { 0.0 };
            let _ = writeln!(
                svg,
                "<text x=\"0\" y=\"{:.0}\">{side}</text><rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"18\"/>\
                 <text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                y + 14.0,
                LEFT + width + 6.0,
                y + 14.0,
                escaped(&figure(pair.unit, of_side))
            );
        }
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Shown, Unit};
    use super::*;

    #[test]
    fn the_page_has_every_figure_and_needs_nothing_else() {
        let shown = Shown {
            title: "A <disk>".into(),
            what: "Writes & syncs".into(),
            pairs: vec![Pair::new("write, median", Unit::Us, 9000.0, 30.0)],
            proof: "All equal.".into(),
            took: Duration::from_secs(1),
        };
        let left_out = Outcome::LeftOut { title: "Another".into(), why: "it needs root".into() };
        let page = text(&[Outcome::Shown(shown), left_out], "Not for x.", Duration::from_secs(42));
        for wanted in [
            "A &lt;disk&gt;",
            "Writes &amp; syncs",
            "9000 us",
            "30.0 us",
            "300 times faster",
            "Left out: it needs root",
            "42 s",
        ] {
            assert!(page.contains(wanted), "{wanted}");
        }
        assert_eq!(page.matches("<rect").count(), 2);
        for foreign in ["http", "<script", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
