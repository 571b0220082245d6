//! What the demo tells the person watching: bars, and no figure without what it means.

use std::path::Path;
use std::time::Duration;

use super::figures::{Outcome, Pair, Unit};
use crate::measure::{show_count, show_us};

/// Columns of the longest bar.
const BAR: usize = 32;

/// Columns of a line of text.
const LINE: usize = 100;

/// Before the first scene.
pub fn introduction() {
    println!(
        "Weir demo: the same programs use a directory, and another that Weir serves. The sides take turns.\n\
         At the end the directories themselves are compared, byte for byte."
    );
}

/// One figure as a person reads it.
pub fn figure(unit: Unit, figure: f64) -> String {
    match unit {
        Unit::Us => show_us(figure),
        Unit::PerSecond => format!("{}/s", show_count(figure as u64)),
        Unit::Count => show_count(figure as u64),
    }
}

/// After a scene.
pub fn scene(outcome: &Outcome) {
    match outcome {
        Outcome::Shown(shown) => {
            println!("\n{}\n{}", shown.title, wrapped(&shown.what));
            for pair in &shown.pairs {
                bars(pair);
            }
            println!("\n{} ({:.0} s)", wrapped(&shown.proof), shown.took.as_secs_f64());
        }
        Outcome::LeftOut { title, why } => {
            println!("\n{title}\n{}", wrapped(&format!("Left out: {why}")))
        }
    }
}

fn bars(pair: &Pair) {
    println!("\n  {:<44}{}", pair.name, pair.verdict());
    let sides = [("directly", pair.straight), ("through Weir", pair.through)];
    for ((side, of_side), part) in sides.into_iter().zip(pair.parts()) {
        println!("    {side:<13}{:<BAR$} {}", bar(part), figure(pair.unit, of_side));
    }
}

/// A paragraph, indented.
fn wrapped(text: &str) -> String {
    let mut paragraph = String::from(" ");
    let mut columns = 1;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if columns + 1 + length > LINE {
            paragraph += "\n ";
            columns = 1;
        }
        paragraph = paragraph + " " + word;
        columns += 1 + length;
    }
    paragraph
}

/// A bar in eighths of a column; one that is not empty can be seen.
fn bar(part: f64) -> String {
    let eighths = (part * (BAR * 8) as f64).round() as usize;
    let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + rest
}

/// What Weir is not for.
pub fn not_for(line: &str) {
    println!("\n{}", wrapped(line));
}

/// At the end.
pub fn end(took: Duration, report: &Path) {
    println!("\nReport: {}\nThe demo took {:.0} s.", report.display(), took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_have_short_lines_and_all_words() {
        let text = "some words ".repeat(40);
        let paragraph = wrapped(&text);
        assert!(paragraph.lines().all(|line| line.len() <= LINE && line.starts_with("  s") | line.starts_with("  w")));
        assert_eq!(paragraph.split_whitespace().count(), 80);
    }

    #[test]
    fn bars_have_their_length_and_small_ones_are_seen() {
        assert_eq!(bar(1.0).chars().count(), BAR);
        assert_eq!(bar(0.5).chars().count(), BAR / 2);
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1e-9), "▏");
    }
}
