//! Ratios between contestants, each within a round, and what operations are judged by.
//!
//! Pure: results in, figures out. What is missing is `None`.

use crate::measure::{median, spread};
use crate::nbw::goals::SLOWER;
use crate::nbw::names::{BASELINE, times};
use crate::nbw::results::{Class, Results, Round};

/// A figure of a round, where it has it.
pub type Figure<'a> = &'a dyn Fn(&Round) -> Option<f64>;

/// What one class of operations is judged by in the case of that name; more is better.
pub fn speed(case: &str, class: &str) -> impl Fn(&Round) -> Option<f64> {
    let by_time = by_time(case, class);
    move |round| {
        let class = find(&round.classes, class)?;
        Some(if by_time { 1e6 / class.mean_us } else { class.ops_per_s })
    }
}

/// How fast `who`'s operations of a class are, times ext4's.
pub fn times_baseline(results: &Results, case: &str, who: &str, class: &str) -> Option<Ratios> {
    against(results, case, who, BASELINE, &speed(case, class))
}

/// Whether that is the mean time of an operation, and not the rate.
pub fn by_time(case: &str, class: &str) -> bool {
    case.ends_with("/vrvw") && class == "read"
}

/// What it is called.
pub fn called(case: &str, class: &str) -> String {
    if by_time(case, class) { format!("mean {class}") } else { format!("{class}s/s") }
}

/// The class of that name.
pub fn find<'a>(classes: &'a [Class], name: &str) -> Option<&'a Class> {
    classes.iter().find(|class| class.class == name)
}

/// The ratios of a figure of two contestants in the rounds of one case.
#[derive(Clone, Copy, Debug)]
pub struct Ratios {
    /// The median over the rounds.
    pub median: f64,
    /// The least of them.
    pub least: f64,
    /// The most.
    pub most: f64,
    rounds: usize,
}

impl Ratios {
    /// For a table; `!` marks what is too little.
    pub fn show(&self) -> String {
        let mark = if self.median < SLOWER { "!" } else { "" };
        let median = times(self.median);
        match self.rounds {
            1 => format!("{median}{mark}"),
            _ => format!("{median}{mark} ({}–{})", times(self.least), times(self.most)),
        }
    }
}

/// `who`'s figure over `other`'s; `None` if one of them has none.
pub fn against(
    results: &Results,
    case: &str,
    who: &str,
    other: &str,
    figure: Figure<'_>,
) -> Option<Ratios> {
    let rounds = results.find(case, who)?.rounds.iter().zip(&results.find(case, other)?.rounds);
    let ratios = rounds.filter_map(|(own, other)| Some(figure(own)? / figure(other)?));
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let (least, most) = spread(ratios.iter().copied())?;
    Some(Ratios { least, most, rounds: ratios.len(), median: median(&ratios) })
}

/// Pages read by programs that no page read from the disk stands for, percent: found in memory, be it
/// Weir's or the kernel's. Reading ahead of programs makes it less than it is; `None` where more was read than
/// programs asked for, be it ahead of them or to write stretches whole: that tells nothing.
pub fn found_in_memory(round: &Round, page_bytes: u64) -> Option<f64> {
    let read = find(&round.classes, "read")?.ops as f64 * page_bytes as f64;
    let from_disk = round.disk_use?.read_bytes;
    (from_disk < read).then(|| 100.0 * (1.0 - from_disk / read))
}
