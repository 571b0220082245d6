//! Ending a mount although home does not have everything (`weir umount --force`).

use std::sync::Arc;
use std::sync::mpsc::channel;

use weir_engine::ErrorKind;

use crate::file_system::FileSystem;
use crate::write_behind::{Awaited, WriteBehind};

impl FileSystem {
    /// What home does not have when the mount has ended need not go there.
    pub(crate) fn give_up_names(self: &Arc<Self>) {
        let Some(behind) = &self.write_behind else { return };
        behind.ending.give_up();
        self.end_names(behind);
    }

    /// The mount has ended.
    pub(crate) fn no_requests_come(self: &Arc<Self>) {
        let Some(behind) = &self.write_behind else { return };
        behind.ending.no_requests_come();
        self.end_names(behind);
    }

    fn end_names(self: &Arc<Self>, behind: &WriteBehind) {
        if !behind.ending.is_reached() {
            return;
        }
        if behind.is_logged() {
            let (sender, committed) = channel();
            self.shard.commit_names(move |result| sender.send(result).unwrap_or(()));
            if let Ok(Err(error)) = committed.recv() {
                tracing::error!("the last changes of names are not in the log: {error}");
            }
        }
        // What home can have it gets. Others may have changed names until the mount ended.
        let _ = behind.wait(&Awaited::All);
        behind.stop();
        self.fail_files_that_home_lacks();
    }

    /// Syncs that wait for files which home does not have fail: home will not have them soon.
    pub(crate) fn fail_files_that_home_lacks(&self) {
        self.shard.home_refuses_files(ErrorKind::Stale);
    }
}
