//! Violated promises of names, by the number of the invariant (see the module).

use crate::crash;

/// How a crash was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Its number in its life.
    pub nth: u64,
    /// The power was cut; otherwise the daemon was killed.
    pub power: bool,
    /// Recoveries of it that were cut, too.
    pub recoveries: u32,
    /// Syncs of home failed in this life.
    pub failing: bool,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.power { "power cut" } else { "kill" };
        write!(f, "{what} {}", self.nth)?;
        if self.recoveries > 0 {
            write!(f, ", {} recoveries cut", self.recoveries)?;
        }
        if self.failing {
            write!(f, ", syncs of home fail")?;
        }
        Ok(())
    }
}

/// A violated promise.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Broken {
    /// After a crash.
    #[error("invariant {invariant} is broken: {what} ({cut}); before it:{told}")]
    Invariant {
        /// Its number.
        invariant: u8,
        /// What is wrong.
        what: String,
        /// The crash.
        cut: Cut,
        /// The last operations.
        told: String,
    },
    /// The tail went on too early.
    #[error("invariant 6 is broken: the log's tail passed {what}; before it:{told}")]
    Tail {
        /// Which change.
        what: String,
        /// The last operations.
        told: String,
    },
    /// A wrong answer, or no end.
    #[error("{what}; before it:{told}")]
    Answer {
        /// What is wrong.
        what: String,
        /// The last operations.
        told: String,
    },
}

impl Broken {
    /// The number of the invariant, if it is one.
    pub fn invariant(&self) -> Option<u8> {
        match self {
            Broken::Invariant { invariant, .. } => Some(*invariant),
            Broken::Tail { .. } => Some(6),
            Broken::Answer { .. } => None,
        }
    }
}

/// Which invariant the bytes of a file break, and how.
pub(super) fn of_bytes(broken: &crash::Broken, cut: Cut) -> (u8, String) {
    let invariant = if broken.is_taken_back() { 3 } else { 1 };
    let or = match broken {
        crash::Broken::Byte { found: 1.., .. } => "; if nobody wrote that byte there: invariant 4",
        _ => "",
    };
    // Whatever a failed sync of home covered must not be taken for clean.
    let why =
        if cut.failing { "; if a failed sync of home made it clean: invariant 5" } else { "" };
    (invariant, format!("{broken}{or}{why}"))
}
