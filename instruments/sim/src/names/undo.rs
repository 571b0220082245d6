//! Rules that a run can break on purpose, to show that the checks find it.

use std::str::FromStr;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Home is given a change of names only after its record is durable.
    WriteAhead,
    /// The log is kept for changes of names that are not settled at home.
    Tail,
    /// A file's data is in the log before its name replaces another file's.
    DataFirst,
    /// Nothing goes into what was made at home before the log names it durably.
    Identity,
    /// Groups of the log name a new inode from when a record has named it, and not only when that record is durable.
    NameAtOnce,
    /// A sync is acknowledged when what it covers is durable.
    Acknowledgement,
    /// After a sync of home that failed, nothing that it covered is settled.
    HomeSync,
    /// A recovery notes what it makes before anything goes into it.
    Note,
    /// Home is given data that supersedes records only after newer records are durable.
    Supersede,
    /// A file is cut at home only after its records are revoked, durably.
    Cut,
    /// If everything is logged: home is given data only after its records are durable.
    Ahead,
    /// If everything is logged: a commit takes all that is not logged.
    Moment,
}

impl Undo {
    /// All of them.
    pub const ALL: [Undo; 12] = [
        Undo::WriteAhead,
        Undo::Tail,
        Undo::DataFirst,
        Undo::Identity,
        Undo::NameAtOnce,
        Undo::Acknowledgement,
        Undo::HomeSync,
        Undo::Note,
        Undo::Supersede,
        Undo::Cut,
        Undo::Ahead,
        Undo::Moment,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Undo::WriteAhead => "write-ahead",
            Undo::Tail => "tail",
            Undo::DataFirst => "data-first",
            Undo::Identity => "identity",
            Undo::NameAtOnce => "name-at-once",
            Undo::Acknowledgement => "acknowledgement",
            Undo::HomeSync => "home-sync",
            Undo::Note => "note",
            Undo::Supersede => "supersede",
            Undo::Cut => "cut",
            Undo::Ahead => "ahead",
            Undo::Moment => "moment",
        }
    }
}

impl FromStr for Undo {
    type Err = String;

    fn from_str(name: &str) -> Result<Undo, String> {
        let found = Undo::ALL.into_iter().find(|undo| undo.name() == name);
        let names = || Undo::ALL.map(Undo::name).join(", ");
        found.ok_or_else(|| format!("no rule is called '{name}': use one of {}", names()))
    }
}
