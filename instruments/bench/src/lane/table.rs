//! The cases for people: one line each.

use super::results::{Case, Figure};
use crate::measure::show_us;
use crate::report::number;

/// The heading.
pub fn head() -> String {
    format!("  {:<26}{:>12}{:>12}{:>12}   the lane, times", "", "ext4", "FUSE", "lane")
}

/// One case: what was measured on each side, and how many times better the last is than the others.
pub fn line(case: &Case) -> String {
    let mut text = format!("{:<26}", case.name);
    let of_three = ["ext4", "fuse", "lane"].iter().any(|side| case.value(side).is_some());
    if !of_three || case.value("ext4").is_none() {
        for side in &case.sides {
            let value = case.value(&side.side).unwrap_or(f64::NAN);
            text += &format!("  {} {}", side.side, show(case, value));
        }
        return text;
    }
    for side in ["ext4", "fuse", "lane"] {
        let shown = case.value(side).map_or("-".into(), |value| show(case, value));
        text += &format!("{shown:>12}");
    }
    for than in ["ext4", "fuse"] {
        if let Some(ratio) = case.ratio("lane", than) {
            text += &format!("   {} x {than}", number(ratio));
        }
    }
    if case.figure == Figure::Rate
        && case.median("lane", |round| round.p99_us).is_some_and(|us| us > 0.0)
    {
        let us =
            |of: fn(&super::results::Round) -> f64| case.median("lane", of).unwrap_or(f64::NAN);
        text += &format!(
            "   p50 {}, p99 {}",
            show_us(us(|one| one.p50_us)),
            show_us(us(|one| one.p99_us))
        );
    }
    text
}

/// A figure with its unit.
pub fn show(case: &Case, value: f64) -> String {
    match case.figure {
        Figure::Median | Figure::Mean | Figure::P99 => show_us(value),
        Figure::Rate => rate(value),
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{} M/s", number(rate / 1e6)),
        rate if rate >= 1e4 => format!("{} k/s", number(rate / 1e3)),
        rate => format!("{} /s", number(rate)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::case;
    use super::*;

    #[test]
    fn each_side_is_shown_with_what_is_missing() {
        let rate =
            case("write/64", Figure::Rate, &[("ext4", &[2e6]), ("fuse", &[9e4]), ("lane", &[2e7])]);
        let text = line(&rate);
        assert!(
            text.contains("2.00 M/s") && text.contains("90.0 k/s") && text.contains("10.0 x ext4"),
            "{text}"
        );
        let two = case("miss", Figure::Median, &[("ext4", &[50.0]), ("fuse", &[70.0])]);
        assert!(line(&two).contains("70.0 us") && line(&two).contains(" -"), "{}", line(&two));
        let other = case("transport", Figure::Median, &[("device", &[9.0]), ("io-uring", &[7.0])]);
        assert!(line(&other).contains("io-uring 7.0 us"));
    }
}
