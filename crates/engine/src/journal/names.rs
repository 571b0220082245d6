//! The journal's state of names: the namespace is one holder of the log, beside the files.

use std::collections::HashSet;

use weir_journal::AfterLsn;
use weir_log::Lsn;

use crate::command::RequestId;

/// Records of names in the log.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The nodes that the open group names, and that group's position.
    pub(crate) named: HashSet<u64>,
    pub(crate) named_in: Option<Lsn>,
    /// The last record of all.
    pub(crate) last: Option<Lsn>,
    /// The last record when the last sync of home began that frees the log of removed files' data. Home need not know of the
    /// removals: the log is freed when this record is durable, too.
    pub(crate) freed_after: Option<Lsn>,
    /// From where on the log is needed for names when a record, which is repeated here, is durable. A change can make earlier
    /// ones needless: they are needed until it is durable itself.
    pub(crate) needs: AfterLsn<(Lsn, Option<Lsn>)>,
    /// Requests that wait for a record to be durable.
    pub(crate) waiting: AfterLsn<RequestId>,
}
