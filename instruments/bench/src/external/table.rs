//! The cases for people: one line each.

use strum::VariantArray;

use super::side::Side;
use crate::lane::results::Case;
use crate::lane::table::show;
use crate::report::number;

/// The heading.
pub fn head() -> String {
    let mut text = format!("  {:<24}", "");
    for side in Side::VARIANTS {
        text += &format!("{:>11}", side.name());
    }
    text + "   times as fast as ext4"
}

/// One case: the mean time of a transaction on each side, and how many times faster than on ext4 the others are, by the median of the
/// rounds.
pub fn line(case: &Case) -> String {
    let mut text = format!("{:<24}", case.name);
    for side in Side::VARIANTS {
        let value = case.value(side.name()).map_or("-".into(), |value| show(case, value));
        text += &format!("{value:>11}");
    }
    for side in Side::VARIANTS.iter().filter(|side| **side != Side::Ext4) {
        if let Some(ratio) = case.ratio(side.name(), Side::Ext4.name()) {
            text += &format!("   {} {}", side.name(), number(ratio));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::results::Figure;
    use crate::lane::results::tests::case;

    #[test]
    fn each_side_is_shown_and_what_is_missing() {
        let sides: [(&str, &[f64]); 2] = [("ext4", &[40_000.0]), ("external", &[400.0])];
        let text = line(&case("hdd/sqlite-wal", Figure::Mean, &sides));
        assert!(text.contains("40.0 ms") && text.contains("external 100"), "{text}");
        assert!(text.contains("          -"), "{text}");
    }
}
