//! The cases for people: one line each.

use super::side::{DIRECT, SIDES};
use crate::lane::results::{Case, Round};
use crate::lane::table::show;
use crate::report::number;

/// The heading.
pub fn head() -> String {
    let mut text = format!("  {:<24}{:>7}", "", "files");
    for side in SIDES {
        text += &format!("{:>10}{:>10}", side.name, "all home");
    }
    text + "   times as fast as direct"
}

/// One case: the mean time of an operation and then the time until all was home, on each side; how many times faster
/// than directly, by the median of the rounds; and the daemon, where there are many files.
pub fn line(case: &Case) -> String {
    let mut text = format!("{:<24}{:>7}", case.name, case.files.unwrap_or(0));
    for side in SIDES {
        let value = case.value(side.name).map_or("-".into(), |value| show(case, value));
        let after = case.median(side.name, |round| round.after_seconds);
        let after = after.map_or("-".into(), |seconds| format!("+{} s", number(seconds)));
        text += &format!("{value:>10}{after:>10}");
    }
    for side in SIDES.iter().filter(|side| **side != DIRECT) {
        if let Some(ratio) = case.ratio(side.name, DIRECT.name) {
            text += &format!("   {} {}", side.name, number(ratio));
        }
        let of = |what: fn(&Round) -> Option<f64>| {
            case.median(side.name, |round| what(round).unwrap_or(f64::NAN))
        };
        if case.name.contains(super::plan::MILLION)
            && let (Some(mib), Some(descriptors)) = (
                of(|round| round.daemon_peak_mib),
                of(|round| round.daemon_descriptors.map(|count| count as f64)),
            )
        {
            text += &format!(" ({} MiB, {descriptors} descriptors)", number(mib));
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
    fn each_side_is_shown_with_its_ratio() {
        let sides: [(&str, &[f64]); 2] = [("direct", &[40_000.0]), ("log", &[20_000.0])];
        let mut found = case("sshfs/untar", Figure::Mean, &sides);
        found.files = Some(60);
        let text = line(&found);
        assert!(text.contains("40.0 ms") && text.contains("20.0 ms"), "{text}");
        assert!(text.contains("log 2.00") && text.contains("  60"), "{text}");
    }
}
