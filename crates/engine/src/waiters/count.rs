//! The number of writers that wait.

use crate::waiters::Waiters;
use crate::waiters::freeze_state::Event;
use crate::waiters::request::Pending;

impl Waiters {
    pub(crate) fn writers_waiting(&self) -> usize {
        let starved =
            self.starved.iter().filter(|(.., event)| matches!(event, Event::Write { .. })).count();
        let blocked = |pending: &&Pending| {
            matches!(pending, Pending::Write { .. } | Pending::Reserving { .. })
        };
        starved + self.pending.values().filter(blocked).count()
    }
}
