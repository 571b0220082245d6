//! The sides that are compared. One more is one entry in [`SIDES`].

/// One side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// As it is called in results.
    pub name: &'static str,
    /// The options of `weir mount` that only it has; `None` if its programs work on home directly.
    pub mount: Option<&'static [&'static str]>,
}

/// The one that the others are compared with.
pub const DIRECT: Side = Side { name: "direct", mount: None };
/// Each change of a name waits for home.
pub const SYNC: Side = Side { name: "sync", mount: Some(&["--names", "sync"]) };
/// Weir as it is by default: names are written back, and in the log.
pub const LOG: Side = Side { name: "log", mount: Some(&[]) };

/// All of them, [`DIRECT`] first.
pub const SIDES: &[Side] = &[DIRECT, SYNC, LOG];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_one_side_is_direct() {
        let mut names: Vec<_> = SIDES.iter().map(|side| side.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SIDES.len());
        assert_eq!(SIDES.iter().filter(|side| side.mount.is_none()).count(), 1);
        assert_eq!(SIDES[0], DIRECT);
    }
}
