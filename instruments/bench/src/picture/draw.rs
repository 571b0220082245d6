//! The image: a bar for each row over a logarithmic axis, so that a gain and a loss of the same factor have the same length.
//!
//! Owns how it looks, in light and in dark: a style sheet in the image replaces the inks where the reader's system is dark. Drawn by the crate
//! plotters. It knows nothing of where the figures are from.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::results::Bar;

/// What is written over the two halves.
pub const SLOWER: &str = "slower with Weir";
/// The right one.
pub const FASTER: &str = "faster with Weir";

const TITLE: &str = "Speed with Weir, of that without";
/// Below the axis.
const NOTE: &str = "hdd, ssd: emulated drives; fast disk: 0.1 ms an fsync; lane: under weir run; \
                    paler: from the least to the most";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failed = DrawingAreaErrorKind<std::io::Error>;

/// Inks, light and dark. The dark one replaces the light one by the style sheet, so no two are the same.
struct Ink(RGBColor, &'static str);
const PAPER: Ink = Ink(RGBColor(0xff, 0xff, 0xff), "#0d1117");
const TEXT: Ink = Ink(RGBColor(0x1f, 0x23, 0x28), "#e6edf3");
const GRID: Ink = Ink(RGBColor(0xe1, 0xe5, 0xea), "#262c34");
const ONE: Ink = Ink(RGBColor(0x57, 0x60, 0x6a), "#9198a1");
const GAIN: Ink = Ink(RGBColor(0x00, 0x8f, 0x68), "#2fb48c");
const GAIN_TO: Ink = Ink(RGBColor(0x9f, 0xd9, 0xc6), "#17604c");
const LOSS: Ink = Ink(RGBColor(0xd5, 0x5e, 0x00), "#e8833a");
const LOSS_TO: Ink = Ink(RGBColor(0xf4, 0xc3, 0x9d), "#7a4015");
const INKS: [&Ink; 8] = [&PAPER, &TEXT, &GRID, &ONE, &GAIN, &GAIN_TO, &LOSS, &LOSS_TO];

/// Pixels: the image's width, where the axis begins and ends, and the head above the bars.
const WIDTH: u32 = 880;
const BEGIN: i32 = 400;
const END: i32 = 790;
const HEAD: i32 = 52;
/// Of a line of text, and of what a row has beside its lines.
const LINE: i32 = 16;
const GAP: i32 = 10;
const BAR: i32 = 14;
/// Size of text. The fonts are the reader's; letters are about `LETTER` wide.
const SIZE: u32 = 16;
const LETTER: f64 = 6.6;
/// The axis.
const LEAST: f64 = 0.2;
const MOST: f64 = 500.0;
const TICKS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0];

/// The image of these bars, the highest first.
pub fn svg(mut bars: Vec<Bar>) -> String {
    let middle = |bar: &Bar| {
        let (least, most) = bar.span();
        (least * most).sqrt()
    };
    bars.sort_by(|one, other| middle(other).total_cmp(&middle(one)));
    let mut image = String::new();
    draw(&mut image, &bars).expect("a string takes all that is drawn");
    with_style(&image)
}

fn draw(image: &mut String, bars: &[Bar]) -> Result<(), Failed> {
    let labels: Vec<Vec<String>> = bars.iter().map(|bar| wrapped(&bar.label)).collect();
    let high: Vec<i32> = labels.iter().map(|lines| lines.len() as i32 * LINE + GAP).collect();
    let bottom = HEAD + high.iter().sum::<i32>();
    let root = SVGBackend::with_string(image, (WIDTH, bottom as u32 + 58)).into_drawing_area();
    root.fill(&PAPER.0)?;
    let write = |text: &str, at: (i32, i32), across: HPos, ink: &Ink, bold: bool| {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = ("sans-serif", SIZE).into_font().style(style).color(&ink.0);
        root.draw(&Text::new(text.to_owned(), at, font.pos(Pos::new(across, VPos::Center))))
    };
    let one = across(1.0);
    write(TITLE, (14, 22), HPos::Left, &TEXT, true)?;
    write(SLOWER, (one - 10, 22), HPos::Right, &LOSS, true)?;
    write(FASTER, (one + 10, 22), HPos::Left, &GAIN, true)?;
    for tick in TICKS {
        let ink = if tick == 1.0 { &ONE } else { &GRID };
        let at = across(tick);
        root.draw(&PathElement::new([(at, HEAD - 10), (at, bottom + 2)], ink.0))?;
        write(&format!("{tick}x"), (at, bottom + 16), HPos::Center, &TEXT, false)?;
    }
    write(NOTE, (14, bottom + 42), HPos::Left, &ONE, false)?;
    let mut top = HEAD;
    for ((bar, lines), high) in bars.iter().zip(&labels).zip(high) {
        let first = top + (high - (lines.len() as i32 - 1) * LINE) / 2;
        for (nth, line) in lines.iter().enumerate() {
            write(line, (BEGIN - 16, first + nth as i32 * LINE), HPos::Right, &TEXT, false)?;
        }
        let end = bar_of(&root, bar, top + high / 2)?;
        write(&bar.shown(), (end + 8, top + high / 2), HPos::Left, &TEXT, false)?;
        top += high;
    }
    root.present()
}

/// Draws a bar from 1 to the figure that is nearer to it, and paler to the farther one. Returns where there is place to its right.
fn bar_of(root: &Area<'_>, bar: &Bar, middle: i32) -> Result<i32, Failed> {
    let (least, most) = bar.span();
    let one = across(1.0);
    let part = |from: f64, to: f64, ink: &Ink| {
        let corners = [(across(from), middle - BAR / 2), (across(to), middle + BAR / 2)];
        if from < to { root.draw(&Rectangle::new(corners, ink.0.filled())) } else { Ok(()) }
    };
    part(least.max(1.0), most, &GAIN_TO)?;
    part(1.0, least, &GAIN)?;
    part(least, most.min(1.0), &LOSS_TO)?;
    part(most, 1.0, &LOSS)?;
    Ok(one.max(across(most)))
}

/// The position of a ratio.
fn across(ratio: f64) -> i32 {
    let share = (ratio.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    BEGIN + (share * f64::from(END - BEGIN)).round() as i32
}

/// A label in as few lines as fit, all about as long.
fn wrapped(label: &str) -> Vec<String> {
    let most = (f64::from(BEGIN - 30) / LETTER) as usize;
    let least = in_lines(label, most).len();
    let even = (1..most).find(|&most| in_lines(label, most).len() == least);
    in_lines(label, even.unwrap_or(most))
}

/// A label in lines of at most so many characters, or of one word.
fn in_lines(label: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split_whitespace() {
        let line = lines.last_mut().expect("there is one at least");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > most {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// The image with a title for those who do not see it, and with its inks for dark systems.
fn with_style(image: &str) -> String {
    let mut style = String::from("\n<title>");
    style += TITLE;
    style += "</title>\n<style>@media (prefers-color-scheme: dark) {";
    for Ink(RGBColor(red, green, blue), dark) in INKS {
        let light = format!("#{red:02X}{green:02X}{blue:02X}");
        style += &format!(
            " [fill=\"{light}\"] {{ fill: {dark} }} [stroke=\"{light}\"] {{ stroke: {dark} }}"
        );
    }
    style += " }</style>";
    let at = image.find('>').map_or(0, |at| at + 1);
    let (head, rest) = image.split_at(at);
    [head, &style, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::super::results::bars;
    use super::*;

    fn image(figures: &str) -> String {
        svg(bars(&format!("| a<b | **{figures}** | [p](p.md) |")).expect("a bar"))
    }

    /// How many bars have this ink, beside the style sheet.
    fn inked(image: &str, ink: &Ink) -> usize {
        let RGBColor(red, green, blue) = ink.0;
        let fill = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
        image.lines().filter(|line| line.starts_with("<rect") && line.contains(&fill)).count()
    }

    #[test]
    fn gains_and_losses_and_what_is_both() {
        let parts =
            |text: &str| [GAIN, GAIN_TO, LOSS, LOSS_TO].map(|ink| inked(&image(text), &ink));
        assert_eq!(parts("3x"), [1, 0, 0, 0]);
        assert_eq!(parts("3x to 9x"), [1, 1, 0, 0]);
        assert_eq!(parts("0.5x"), [0, 0, 1, 0]);
        assert_eq!(parts("0.3x, 0.5x"), [0, 0, 1, 1]);
        assert_eq!(parts("0.5x, 2x"), [0, 1, 0, 1]);
        assert!(image("3x").contains("a&lt;b"));
    }

    #[test]
    fn every_ink_is_used_and_has_another_in_the_dark() {
        let all = svg(bars("| a | **0.3x, 0.5x** | [p](p.md) |\n| b | **3x, 9x** | [p](p.md) |")
            .expect("bars"));
        for Ink(RGBColor(red, green, blue), dark) in INKS {
            let light = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
            assert!(all.matches(&light).count() > 2 && all.contains(dark), "{light}");
        }
    }

    #[test]
    fn equal_factors_have_equal_lengths_and_labels_are_wrapped() {
        assert!((across(2.0) + across(0.5) - 2 * across(1.0)).abs() <= 1);
        assert_eq!(across(1e9), END);
        let lines = wrapped(&"word ".repeat(30));
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() < 60));
        let even = wrapped("small random writes to pages not in memory, ssd; fast disk");
        assert!(NOTE.chars().count() as f64 * LETTER < f64::from(WIDTH) - 28.0);
        assert!(even.len() == 2 && even[1].len() > 20, "{even:?}");
    }
}
