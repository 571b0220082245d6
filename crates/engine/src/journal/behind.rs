//! Commands that wait until records of the log are durable (write ahead of superseding).

use weir_journal::AfterLsn;

use crate::command::Command;
use crate::time::Time;

/// Commands that wait for the log.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    pub(crate) commands: AfterLsn<Command>,
    /// Since when pages are held back because the log has no room for their bytes; `None` if there are none.
    pub(crate) lacks_room: Option<Time>,
}
