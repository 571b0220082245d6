//! What is known of the last moment at which nothing could be done.

use weir_log::Lsn;

/// When nothing was under way, and nothing to be done, for the last time: everything was at home, refused, or waited for
/// something refused or for the log.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// The retries until then.
    pub(crate) retry: u64,
    /// Up to where the log was durable.
    pub(crate) durable: Lsn,
    /// The first change that home did not have. `None` also if that was not known, since some were not settled or committed.
    pub(crate) left: Option<Lsn>,
}
