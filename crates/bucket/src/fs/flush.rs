//! When what is pending goes into the bucket: a sync, a quiet time, too much of it, the end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::stream::{is_streamed, to_be_streamed};
use super::tree::{Node, Tree};
use super::upload::RETRY;
use super::{Error, FileSystem, ROOT, Result, in_parallel, say};
use crate::store::StoreError;

/// How often it is looked at what is due.
const TICK: Duration = Duration::from_millis(100);

impl FileSystem {
    /// Brings a file into the bucket.
    pub fn sync_file(&self, id: u64) -> Result<()> {
        if self.store.is_fenced() {
            return Err(Error::Store(StoreError::Fenced));
        }
        self.upload(id)
    }

    /// Brings a directory and all below it into the bucket.
    pub fn sync_below(&self, directory: u64) -> Result<()> {
        if self.store.is_fenced() {
            return Err(Error::Store(StoreError::Fenced));
        }
        let pending: Vec<u64> = {
            let tree = self.tree();
            let pending = tree.dirty.iter().copied();
            pending.filter(|id| is_below(&tree, *id, directory)).collect()
        };
        self.upload_all(&pending)
    }

    /// Uploads nodes; the first error.
    pub(super) fn upload_all(&self, nodes: &[u64]) -> Result<()> {
        let results = in_parallel(nodes, self.settings.parallel, |id| self.upload(*id));
        results.into_iter().collect()
    }

    /// Uploads what is due, until the file system is stopped.
    pub fn run_flusher(self: &Arc<Self>) {
        let mut said = None;
        let mut tidy_at = Instant::now();
        while !self.stopping.load(Relaxed) {
            std::thread::sleep(TICK);
            if Instant::now() >= tidy_at && self.finish_leftovers().is_err() {
                tidy_at = Instant::now() + RETRY;
            }
            let due = self.due();
            let results = in_parallel(&due, self.settings.parallel, |id| {
                let result = self.upload(*id);
                if result.is_err() {
                    // The bucket may be out of reach for long: what this machine has of it is kept.
                    self.keep_content(*id)?;
                }
                result
            });
            for error in results.into_iter().filter_map(|result| result.err()) {
                let words = error.to_string();
                if said.as_ref() != Some(&words) {
                    say(&format!("an upload failed, and is tried again: {words}"));
                    said = Some(words);
                }
            }
        }
    }

    /// Nodes that are to be uploaded now.
    pub(super) fn due(&self) -> Vec<u64> {
        let tree = self.tree();
        if self.store.is_fenced() {
            return Vec::new();
        }
        let (now, part) = (Instant::now(), self.settings.limits.part);
        let nodes = tree.dirty.iter().filter_map(|id| tree.get(*id));
        // What was written again, or came out of order.
        let few = self.settings.pending_bytes_max / 4;
        let left = |node: &Node| node.content.dirty.total() - to_be_streamed(node, part);
        let bytes: u64 = nodes.map(left).sum();
        let much = bytes > self.settings.pending_bytes_max
            || tree.dirty.len() > self.settings.pending_nodes_max;
        let is_due = |id: &u64| {
            let Some(node) = tree.get(*id) else { return false };
            let quiet = node.changed_at.is_none_or(|at| now - at >= self.settings.quiet);
            node.is_dirty()
                && !node.busy
                && node.retry_after.is_none_or(|at| at <= now)
                && (quiet || much && !(is_streamed(node, part) && left(node) <= few))
        };
        tree.dirty.iter().copied().filter(is_due).collect()
    }

    /// Brings everything into the bucket and ends the flusher. What the bucket does not take is kept here, also what nobody
    /// synced.
    pub fn stop(&self) -> Result<()> {
        let result = self.sync_below(ROOT);
        self.stopping.store(true, Relaxed);
        if result.is_err() {
            let pending: Vec<u64> = self.tree().dirty.iter().copied().collect();
            for id in pending {
                if let Err(error) = self.keep_content(id) {
                    let key = self.key(&self.tree(), id);
                    say(&format!("the content of {key} is lost: it cannot be kept here: {error}"));
                }
            }
        }
        result
    }
}

/// Whether a node is a directory, or below it.
fn is_below(tree: &Tree, id: u64, directory: u64) -> bool {
    let mut at = id;
    loop {
        if at == directory {
            return true;
        }
        match tree.get(at) {
            Some(node) if at != ROOT => at = node.parent,
            _ => return false,
        }
    }
}
