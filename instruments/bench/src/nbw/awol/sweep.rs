//! Settings of write-back that the paper goes through: the sampling interval (its Figures 20 and 22)
//! and h_max (Figure 15) of the adaptive one, and when the static one begins (Figures 9 and 10): the best
//! of these, workload by workload, is what the adaptive one is to come near.

use strum::Display;

use clap::ValueEnum;

use crate::stage::{Contestant, Setting, WriteBack};

/// Which setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Sweep {
    /// `--write-back-interval`, on NRSW, NRZW and ZRZW.
    Interval,
    /// `--dirty-max`, on ZRZW.
    DirtyMax,
    /// `--dirty-background`, on all, with adaptive write-back beside it.
    Static,
}

impl Sweep {
    /// Weir with each value of it.
    pub fn contestants(self) -> Vec<Contestant> {
        let settings = match self {
            Sweep::Interval => [100, 300, 1000, 3000, 10_000].map(Setting::IntervalMs),
            Sweep::DirtyMax => [10, 20, 30, 40, 50].map(Setting::DirtyMaxPercent),
            Sweep::Static => {
                let adaptive = Contestant::WeirWriteBack(WriteBack::Adaptive);
                let settings = [1, 5, 10, 20, 30, 41].map(Contestant::WeirStatic);
                return [&settings[..], &[adaptive]].concat();
            }
        };
        settings.map(Contestant::WeirAdaptive).to_vec()
    }

    /// Whether the workload of that name is run.
    pub fn wants(self, workload: &str) -> bool {
        match self {
            Sweep::Interval => ["nrsw", "nrzw", "zrzw"].contains(&workload),
            Sweep::DirtyMax => workload == "zrzw",
            Sweep::Static => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_contestant_of_its_own() {
        for sweep in [Sweep::Interval, Sweep::DirtyMax, Sweep::Static] {
            let mut names: Vec<_> = sweep.contestants().into_iter().map(Contestant::name).collect();
            let count = names.len();
            assert!(sweep.wants("zrzw") && count >= 5);
            assert_eq!(sweep.wants("vrvw"), sweep == Sweep::Static);
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
