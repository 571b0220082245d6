//! The cases for people: one line each.

use super::goals::whole;
use super::side::Side;
use crate::lane::results::{Case, Round};
use crate::lane::table::show;
use crate::report::number;

/// The heading.
pub fn head(sides: &[Side]) -> String {
    let mut text = format!("  {:<10}", "");
    for side in sides {
        text += &format!("{:>44}", side.name());
    }
    text + "\n            (until it returns, in all until it is in the bucket, MiB moved, requests)"
}

/// One case, by the medians of the rounds.
pub fn line(case: &Case) -> String {
    let mut text = format!("{:<10}", case.name);
    for side in &case.sides {
        let median = |of: &dyn Fn(&Round) -> f64| case.median(&side.side, of).unwrap_or_default();
        let returns = case.value(&side.side).map_or("-".into(), |value| show(case, value));
        let mib =
            median(&|round| round.moved_bytes.unwrap_or_default() as f64 / f64::from(1 << 20));
        let requests = median(&|round| round.requests.unwrap_or_default() as f64);
        text += &format!(
            "{returns:>14} {:>10} s {:>8} {:>8}",
            number(median(&whole)),
            number(mib),
            format!("{requests:.0}")
        );
    }
    text
}
