//! Fixes of the engine that can be undone, to show that the checks find what they fixed.

use std::str::FromStr;

use weir_engine::Config;

/// One fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Home gets nothing over what has records in the log before a record that supersedes them is durable.
    Supersede,
    /// A file is cut or rearranged at home only when the log has nothing more of it, durably.
    Cut,
    /// What a sync of home that failed covered is dirty again, and still needed by the log.
    HomeSync,
}

impl Undo {
    /// Every one.
    pub const ALL: [Undo; 3] = [Undo::Supersede, Undo::Cut, Undo::HomeSync];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Undo::Supersede => "supersede",
            Undo::Cut => "cut",
            Undo::HomeSync => "home-sync",
        }
    }

    /// Has an engine do without the fix: the one place that knows how the engine is told.
    pub(super) fn apply(self, config: &mut Config) {
        match self {
            Undo::Supersede => config.undone.supersede = true,
            Undo::Cut => config.undone.cut = true,
            Undo::HomeSync => config.undone.home_sync = true,
        }
    }
}

impl FromStr for Undo {
    type Err = String;

    fn from_str(name: &str) -> Result<Undo, String> {
        let found = Undo::ALL.into_iter().find(|undo| undo.name() == name);
        found.ok_or_else(|| format!("no fix is called '{name}': use supersede, cut or home-sync"))
    }
}
