//! The two forms of a suite: the quick one, and the full one.

/// How much is run, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// As it is called in results.
    pub name: &'static str,
    /// Rounds of a case.
    pub rounds: u32,
    /// Less is run where it takes long.
    pub is_quick: bool,
}

/// In minutes.
pub const QUICK: Form = Form { name: "quick", rounds: 3, is_quick: true };
/// Whole numbers on every home: up to hours.
pub const FULL: Form = Form { name: "full", rounds: 5, is_quick: false };
