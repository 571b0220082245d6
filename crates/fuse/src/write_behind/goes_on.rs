//! Writing where a log that has failed goes on ([`super::continued`]), and what waits for that.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use weir_log::Lsn;
use weir_names::NodeId;
use weir_names::tree::HomeError;
use weir_shard::Shard;

use crate::errno::Errno;
use crate::inode::DataNode;
use crate::write_behind::continued::Positioned;
use crate::write_behind::log::NamesLog;
use crate::write_behind::state::{State, WriteBehind};

impl State {
    /// Nothing of a failed log is to be replayed any more: changes have no records.
    pub(super) fn end_continuation(&mut self) {
        let Some(log) = &mut self.log else { return };
        if log.continued.is_none() || log.shard.has_stale_log() {
            return;
        }
        log.continued = None;
        // A sync that waits for what was changed until now waits for what has a record, too.
        self.next_lsn = self.next_lsn.max(log.last.0 + 1);
        self.tree.committed(Lsn(u64::MAX));
        self.drained = false;
    }

    /// Why what waits for a record will not be home soon.
    pub(super) fn continuation_refused(&self) -> Option<HomeError> {
        let continued = self.log.as_ref()?.continued.as_ref()?;
        if !self.tree.has_uncommitted() {
            return None;
        }
        let of_data = || {
            let (_, error) = self.tree.refused().next().filter(|_| continued.is_blocked)?;
            Some(error)
        };
        continued.refused.or_else(of_data)
    }
}

impl WriteBehind {
    /// Whether programs' changes go home at once, as without a log: it has failed, and nothing is, or soon will be, left to be replayed.
    pub(crate) fn log_has_ended(&self) -> bool {
        let state = self.lock();
        let log = state.log.as_ref().filter(|log| log.failed);
        log.is_some_and(|log| log.continued.as_ref().is_none_or(|continued| continued.is_ending))
    }

    /// The log has failed, and nearly all that it has is home. If `is_ending`, programs' changes go home at once, after what is not there
    /// yet, so that nothing is added to that; if not, they are logged.
    pub(crate) fn set_log_ending(&self, is_ending: bool) {
        let mut state = self.lock();
        let State { tree, log: Some(log), .. } = &mut *state else { return };
        if let Some(continued) = &mut log.continued {
            continued.is_ending = is_ending;
            log.need(tree.needed_from());
        }
    }

    /// If the log has failed: what home was said to have, or to do, until now is durable after that. Blocks while it is written, with
    /// changes. Gives the file for whose data further changes wait.
    ///
    /// # Errors
    /// Why it cannot be written: home must not be changed now.
    pub(crate) fn continue_log(&self) -> Result<Option<NodeId>, HomeError> {
        if self.lock().log.as_ref().is_none_or(|log| log.continued.is_none()) {
            return Ok(None);
        }
        let _turn = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let (shard, from, next, batch, (records, named)) = {
            let mut state = self.lock();
            let Some(log) = state.log.as_mut() else { return Ok(None) };
            let (shard, Some(continued)) = (Arc::clone(&log.shard), &mut log.continued) else {
                return Ok(None);
            };
            let batch = continued.take(|node| shard.has_dirty(node.file()));
            let records = continued.records(&batch);
            // What has no record has the position of the last one.
            let next = continued.first_change().unwrap_or(Lsn(log.last.0 + 1));
            (shard, continued.from, next, batch, records)
        };
        let written = match records.is_empty() {
            true => Ok(()),
            false => write(&shard, from, records, batch.replaces()),
        };
        let mut state = self.lock();
        let state = &mut *state;
        let blocked = batch.blocked;
        let Some(continued) = state.log.as_mut().and_then(|log| log.continued.as_mut()) else {
            return Ok(None);
        };
        let committed = match written {
            Ok(()) => {
                continued.named.extend(named);
                continued.refused = None;
                if !std::mem::replace(&mut continued.is_begun, true) {
                    state.tree.all_named();
                    state.drained = false;
                }
                Some(next)
            }
            Err(error) => {
                tracing::debug!("cannot log names in '.weir': {error:?}");
                continued.put_back(batch);
                continued.refused = Some(error);
                state.refusing.answered(Err(error), Instant::now());
                let is_full = matches!(error, HomeError::Refused(libc::ENOSPC | libc::EDQUOT));
                continued.removals().filter(|_| is_full).map(|last| Lsn(last.0 + 1))
            }
        };
        if let Some(durable) = committed {
            state.tree.committed(durable);
            state.drained = false;
            self.call_workers(state);
        }
        self.progress.notify_all();
        written.map(|()| blocked)
    }

    /// Changes wait for the data of a file that home may not have.
    pub(crate) fn make_ahead(&self, node: NodeId) {
        let mut state = self.lock();
        state.tree.make_ahead(node);
        state.drained = false;
        self.call_workers(&mut state);
    }

    /// A position for what the log says of an inode, at `lsn` unless the log has failed. It is durable.
    pub(crate) fn position_of_name(&self, lsn: Lsn) -> Lsn {
        if self.log_has_failed() { Lsn(0) } else { lsn }
    }

    /// A thread that was to write what there is has done so, or cannot now.
    pub(crate) fn continued(&self, is_done: bool) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(continued) = state.log.as_mut().and_then(|log| log.continued.as_mut()) else {
            return;
        };
        continued.end_writing(is_done);
        self.call_workers(state);
    }

    /// Whether what is made at home is named by a record.
    pub(crate) fn names_what_is_made(&self) -> bool {
        self.lock().log.as_ref().is_some_and(NamesLog::is_recorded)
    }
}

/// Writes records where the log goes on.
fn write(
    shard: &Shard,
    from: Lsn,
    records: Vec<Positioned>,
    replaces: bool,
) -> Result<(), HomeError> {
    if replaces {
        // What replaces is home, and is to stay so whatever happens.
        let code = |kind| Errno::from(weir_engine::Error::Home(kind)).code();
        shard.settle_home().map_err(|failed| HomeError::Refused(code(failed.kind)))?;
    }
    shard
        .continue_names(from, records)
        .map_err(|error| HomeError::Refused(Errno::from(error).code()))
}
