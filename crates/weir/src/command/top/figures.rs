//! Figures in a few characters, for columns: counts, sizes and times; and texts that fit a width.

use std::time::Duration;

use ratatui::text::Span;

use crate::failure::one_line;

/// A count or a rate in at most five characters: `0.5`, `12`, `999`, `1.2k`, `12k`, `3.4M`.
pub(super) fn count(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value < 9.95 && value.fract() != 0.0 {
        return if value < 0.05 { "<0.1".to_owned() } else { format!("{value:.1}") };
    }
    scaled(value, 1000.0, ["", "k", "M", "G", "T"])
}

/// Bytes in at most five characters, by powers of 1024: `0`, `512`, `1.5K`, `64M`.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, ["", "K", "M", "G", "T"])
}

fn scaled(value: f64, base: f64, units: [&str; 5]) -> String {
    let mut value = value;
    let mut unit = 0;
    // What would be rounded to the base is shown in the next unit.
    while value.round() >= base.min(1000.0) && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0}"),
        _ if value < 9.95 => format!("{value:.1}{}", units[unit]),
        _ => format!("{value:.0}{}", units[unit]),
    }
}

/// A time in nanoseconds, in at most six characters: `850ns`, `12us`, `3.4ms`, `2.1s`, `15min`.
pub(super) fn time(nanos: u64) -> String {
    let nanos = nanos as f64;
    for (unit, name, next) in
        [(1.0, "ns", 1e3), (1e3, "us", 1e6), (1e6, "ms", 1e9), (1e9, "s", 1e11)]
    {
        let value = nanos / unit;
        if nanos < 0.9995 * next {
            let is_short = value < 9.95 && value.round() != value;
            return if is_short {
                format!("{value:.1}{name}")
            } else {
                format!("{value:.0}{name}")
            };
        }
    }
    age(Duration::from_nanos(nanos as u64))
}

/// An age in its largest unit, or two: `5s`, `12min`, `3h12`, `4d`.
pub(super) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..100 => format!("{seconds}s"),
        100..5940 => format!("{}min", seconds / 60),
        5940..86400 => format!("{}h{:02}", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86400),
    }
}

/// An interval as it was given: `500ms`, `1s`, `5min`.
pub(super) fn interval(interval: Duration) -> String {
    match interval.as_millis() {
        millis if millis % 1000 != 0 => format!("{millis}ms"),
        millis if millis >= 60_000 && millis % 60_000 == 0 => format!("{}min", millis / 60_000),
        millis => format!("{}s", millis / 1000),
    }
}

/// A share in percent; `None` if the whole is 0.
pub(super) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A name on one line: control characters are escaped, and so are those that change the direction of what follows.
pub(super) fn name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for letter in one_line(text).chars() {
        match letter {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                name.extend(letter.escape_default());
            }
            _ => name.push(letter),
        }
    }
    name
}

/// The columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in exactly `columns`, at the left; of a longer one the end, which tells more of a path.
pub(super) fn left(text: &str, columns: usize) -> String {
    let mut shown = text.to_owned();
    let mut rest = text.chars();
    while width(&shown) > columns {
        // The widths of letters do not add up: some join with others.
        shown = match rest.next() {
            Some(_) => format!("…{}", rest.as_str()),
            None => String::new(),
        };
    }
    let taken = width(&shown);
    shown + &" ".repeat(columns - taken)
}

/// The text in at least `columns`, at the right.
pub(super) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The text without what does not fit into `columns`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    let mut shown = text.to_owned();
    while width(&shown) > columns {
        shown.pop();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.01, "<0.1"),
            (0.5, "0.5"),
            (9.0, "9"),
            (9.97, "10"),
            (12.4, "12"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (1234.0, "1.2k"),
            (99_960.0, "100k"),
            (999_700.0, "1.0M"),
            (3.4e6, "3.4M"),
            (5e15, "5000T"),
        ] {
            assert_eq!(count(value), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (512.0, "512"),
            (1000.0, "1.0K"),
            (1536.0, "1.5K"),
            (65536.0, "64K"),
            (1023.9 * 1024.0, "1.0M"),
            (64.0 * 1048576.0, "64M"),
            (1.5 * 1073741824.0, "1.5G"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn times_are_short() {
        for (nanos, text) in [
            (0, "0ns"),
            (850, "850ns"),
            (1_000, "1us"),
            (12_345, "12us"),
            (3_400_000, "3.4ms"),
            (999_900_000, "1.0s"),
            (2_100_000_000, "2.1s"),
            (99_000_000_000, "99s"),
            (900_000_000_000, "15min"),
            (11_520_000_000_000, "3h12"),
        ] {
            assert_eq!(time(nanos), text);
        }
        assert_eq!(age(Duration::from_secs(400_000)), "4d");
        assert_eq!(interval(Duration::from_millis(1500)), "1500ms");
        assert_eq!(interval(Duration::from_secs(90)), "90s");
        assert_eq!(interval(Duration::from_secs(300)), "5min");
    }

    #[test]
    fn names_stay_on_their_line_and_in_their_columns() {
        assert_eq!(name("a\nb\u{1b}[31m\u{202e}c"), "a\\nb\\u{1b}[31m\\u{202e}c");
        assert_eq!(left("/mnt/data", 12), "/mnt/data   ");
        assert_eq!(left("/mnt/data", 6), "…/data");
        assert_eq!(left("/mnt/data", 0), "");
        // A wide letter does not fit into one column.
        assert_eq!(left("/日本", 4), "…本 ");
        assert_eq!(left("日本", 4), "日本");
        assert_eq!(right("12", 5), "   12");
        assert_eq!(cut("日本", 3), "日");
        assert_eq!(percent(1, 0), None);
        assert_eq!(percent(1, 4), Some(25.0));
    }

    proptest::proptest! {
        #[test]
        fn every_text_fits(text: String, columns in 0usize..40) {
            let shown = name(&text);
            proptest::prop_assert!(!shown.contains(char::is_control));
            proptest::prop_assert_eq!(width(&left(&shown, columns)), columns);
            proptest::prop_assert!(width(&cut(&shown, columns)) <= columns);
        }
    }
}
