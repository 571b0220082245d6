//! Safeguards of the engine that can be switched off, to show that the checks detect their absence.

use std::str::FromStr;

use weir_engine::Config;

/// One safeguard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Data that supersedes records of the log goes home only when newer records of it are durable.
    Supersede,
    /// A file is cut or rearranged at home only after its records are revoked, durably.
    Cut,
    /// What a failed sync of home covered becomes dirty again and keeps its log space.
    HomeSync,
}

impl Undo {
    /// All of them.
    pub const ALL: [Undo; 3] = [Undo::Supersede, Undo::Cut, Undo::HomeSync];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Undo::Supersede => "supersede",
            Undo::Cut => "cut",
            Undo::HomeSync => "home-sync",
        }
    }

    /// Switches the safeguard off in an engine's configuration. No other place does that.
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
