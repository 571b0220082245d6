//! The best static setting of each workload, found by search, and how far adaptive write-back is from it.
//!
//! Pure: results of `--sweep static` in, figures out. A setting is held against adaptive write-back in
//! the same rounds, by what the workload is judged by.

use super::ratios::{Ratios, against, called, speed};
use super::sweep::Sweep;
use crate::measure::median;
use crate::nbw::goals::{Measured, worst};
use crate::nbw::names::{ADAPTIVE, groups, or_dash};
use crate::nbw::results::{Case, Class, Experiment, Results};

/// The best setting in one case.
pub struct Best<'a> {
    /// The case.
    pub case: &'a str,
    /// What it is judged by.
    pub by: String,
    /// The share of memory at which write-back begins, percent.
    pub percent: u8,
    /// Adaptive write-back's figure over the best setting's; `None` where it did not run.
    pub adaptive: Option<Ratios>,
}

/// The best setting of each case that went through several.
pub fn best(results: &Results) -> Vec<Best<'_>> {
    groups(results, Experiment::Setting)
        .iter()
        .filter_map(|group| best_of(results, group))
        .collect()
}

fn best_of<'a>(results: &Results, group: &[&'a Case]) -> Option<Best<'a>> {
    let name = group[0].name.as_str();
    let class = &Class::leading(&group[0].classes)?.class;
    let speed = speed(name, class);
    let figure = |case: &Case| median(&case.rounds.iter().filter_map(&speed).collect::<Vec<_>>());
    let settings = Sweep::Static.contestants();
    let tried = settings.iter().filter_map(|who| {
        let percent = who.background_percent()?;
        let name = who.name();
        let case = group.iter().find(|case| case.contestant == name)?;
        Some((percent, *case))
    });
    let (percent, case) =
        tried.max_by(|(_, one), (_, other)| figure(one).total_cmp(&figure(other)))?;
    let adaptive = against(results, name, ADAPTIVE, &case.contestant, &speed);
    Some(Best { case: name, by: called(name, class), percent, adaptive })
}

/// The case in which adaptive write-back is farthest from the best.
pub fn farthest(results: &Results) -> Option<Measured> {
    let all = best(results);
    worst(all.iter().filter_map(|best| Some((best.case.to_owned(), best.adaptive?.median))))
}

/// The best setting of a workload on a disk, percent, as `hdd/nrsw` names it.
pub fn percent_of(results: &Results, case: &str) -> Option<u8> {
    let (disk, workload) = case.split_once('/')?;
    let name = format!("{disk}/{}/{workload}", Sweep::Static);
    best(results).iter().find(|best| best.case == name).map(|best| best.percent)
}

/// Headings, then a row for each case; the first column is text.
pub fn rows(results: &Results) -> Vec<Vec<String>> {
    let head = ["case", "by", "best background", "adaptive to it"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(best(results).into_iter().map(|best| {
        let adaptive = or_dash(best.adaptive, |ratios| ratios.show());
        vec![best.case.to_owned(), best.by, format!("{} %", best.percent), adaptive]
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::goals::SLOWER;
    use crate::nbw::sample;

    /// A search on one workload, with so many writes a second by each.
    fn results(name: &str, of: &[(&str, f64)]) -> Results {
        let case = |(who, writes): &(&str, f64)| {
            sample::case_of(name, Experiment::Setting, who, &[("write", *writes)])
        };
        Results { cases: of.iter().map(case).collect(), ..sample::results() }
    }

    #[test]
    fn the_best_is_found_and_adaptive_held_against_it() {
        let run = results(
            "hdd/static/nrzw",
            &[
                ("ext4", 500.0),
                ("weir-background-1", 50.0),
                ("weir-background-41", 100.0),
                ("weir-adaptive", 93.0),
            ],
        );
        let found = best(&run);
        assert_eq!(
            (found.len(), found[0].percent),
            (1, 41),
            "neither ext4 nor adaptive is a setting"
        );
        let farthest = farthest(&run).expect("adaptive ran");
        assert!((farthest.value - 0.93).abs() < 1e-9 && farthest.value < SLOWER);
        assert_eq!(percent_of(&run, "hdd/nrzw"), Some(41));
        assert_eq!(percent_of(&run, "ssd/nrzw"), None);
        assert_eq!(rows(&run)[1][2], "41 %");
    }

    #[test]
    fn without_a_search_there_is_none() {
        assert!(farthest(&sample::results()).is_none());
        let run = results("hdd/interval/nrsw", &[("ext4", 1.0), ("weir-every-100-ms", 1.0)]);
        assert!(best(&run).is_empty());
        let run = results("hdd/static/nrsw", &[("weir-background-5", 1.0)]);
        assert!(best(&run)[0].adaptive.is_none() && farthest(&run).is_none());
    }
}
