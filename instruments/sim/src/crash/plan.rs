//! What a run is to do.

use super::undo::Undo;

/// How homes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Homes {
    /// They do not.
    Work,
    /// In some lives syncs fail, and what they covered may be dropped, as by Linux.
    Drop,
    /// In some lives syncs fail, and nothing is dropped, as by `weir-bucket`: later ones succeed.
    Keep,
}

/// A run under one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of lives of one set of files.
    pub lives: u32,
    /// Operations in each.
    pub operations: u32,
    /// On average, one of this many device requests is followed by a crash.
    pub sparse: u64,
    /// Safeguards that are switched off in the engine.
    pub undone: Vec<Undo>,
    /// Files are logged; otherwise every sync brings them home.
    pub logged: bool,
    /// How homes fail.
    pub homes: Homes,
    /// The log fails in some lives.
    pub logs_fail: bool,
}

impl Plan {
    /// With all safeguards, a log, and homes that fail now and then.
    pub fn new(lives: u32, operations: u32, sparse: u64) -> Plan {
        Plan {
            lives,
            operations,
            sparse,
            undone: Vec::new(),
            logged: true,
            homes: Homes::Drop,
            logs_fail: true,
        }
    }
}
