//! Commands that wait until records of the log are durable (write ahead of superseding).

use std::collections::VecDeque;

use weir_log::Lsn;

use crate::command::Command;
use crate::time::Time;

/// Commands that wait for the log.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// In arrival order, each with the record that must be durable first.
    pub(crate) commands: VecDeque<(Lsn, Command)>,
    /// Since when pages are held back because the log has no room for their bytes; `None` if there are none.
    pub(crate) lacks_room: Option<Time>,
}

impl Behind {
    /// Whether a command waits for a record that is not durable yet.
    pub(crate) fn waits_beyond(&self, durable: Lsn) -> bool {
        self.commands.iter().any(|&(lsn, _)| lsn >= durable)
    }

    /// Removes and returns the commands that satisfy a condition.
    pub(crate) fn take(&mut self, wanted: impl Fn(Lsn, &Command) -> bool) -> Vec<Command> {
        let mut taken = Vec::new();
        for (lsn, command) in std::mem::take(&mut self.commands) {
            match wanted(lsn, &command) {
                true => taken.push(command),
                false => self.commands.push_back((lsn, command)),
            }
        }
        taken
    }
}
