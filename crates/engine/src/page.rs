//! stub

/// Where a page stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Not known: only the back end has it.
    Absent,
    /// Patches in memory, no frame.
    Patched,
    /// A fetch is in flight; there may be patches.
    Fetching,
    /// A frame holds the page as programs see it.
    UpToDate,
}
