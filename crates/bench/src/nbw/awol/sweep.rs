//! Settings of adaptive write-back that the paper goes through: the sampling interval (its Figures
//! 20 and 22) and h_max (Figure 15).

use std::fmt;

use clap::ValueEnum;

use crate::stage::{Contestant, Setting};

/// Which setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sweep {
    /// `--write-back-interval`, on NRSW, NRZW and ZRZW.
    Interval,
    /// `--dirty-max`, on ZRZW.
    DirtyMax,
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sweep::Interval => "interval",
            Sweep::DirtyMax => "dirty-max",
        })
    }
}

impl Sweep {
    /// Weir with each value of it.
    pub fn contestants(self) -> Vec<Contestant> {
        let settings = match self {
            Sweep::Interval => [100, 300, 1000, 3000, 10_000].map(Setting::IntervalMs),
            Sweep::DirtyMax => [10, 20, 30, 40, 50].map(Setting::DirtyMaxPercent),
        };
        settings.map(Contestant::WeirAdaptive).to_vec()
    }

    /// Whether the workload of that name is run.
    pub fn wants(self, workload: &str) -> bool {
        match self {
            Sweep::Interval => ["nrsw", "nrzw", "zrzw"].contains(&workload),
            Sweep::DirtyMax => workload == "zrzw",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_contestant_of_its_own() {
        for sweep in [Sweep::Interval, Sweep::DirtyMax] {
            let mut names: Vec<_> = sweep.contestants().into_iter().map(Contestant::name).collect();
            assert!(sweep.wants("zrzw") && !sweep.wants("vrvw"));
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), 5);
        }
    }
}
