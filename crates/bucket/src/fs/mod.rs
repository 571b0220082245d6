//! The file system's logic, against a [`Store`]. FUSE is on top of it ([`crate::serve`]).
//!
//! Names and attributes made here are durable in the state file when a call returns, and in the bucket after a sync, a
//! quiet time, or an unmount. Bytes are in the spool, and durable when a sync of the file returns. What removes or moves
//! objects is done in the bucket before the call returns.
//!
//! | file | what |
//! |---|---|
//! | `tree` | nodes and their places |
//! | `listing` | what the bucket has: lookups, listings, metadata |
//! | `names` | names made and removed |
//! | `moves` | renames |
//! | `data` | bytes and attributes read and written |
//! | `fetch` | bytes of objects, read ahead |
//! | `upload`, `transfer`, `conflict` | one node's way into the bucket |
//! | `bodies` | how much of it is in memory |
//! | `doubt` | what became of requests whose answers were lost |
//! | `stream` | large new files, uploaded while they are written |
//! | `flush` | when, and syncs |
//! | `recover` | the start after a crash |
//!
//! Locks, in this order: `moving` (shared by all that changes objects, exclusive for the move of a directory),
//! then `removing`, then the tree, then the state file's own. The bucket is never asked under the tree's lock.

mod bodies;
mod conflict;
mod data;
mod doubt;
mod error;
mod fetch;
mod flush;
mod listing;
mod moves;
mod names;
mod recover;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod upload;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use serde::Serialize;

pub use data::NewAttributes;
pub use error::{Error, Result};
pub use listing::Entry;
pub use names::Made;
pub use tree::ROOT;

use crate::cache::{Cache, CacheCounts};
use crate::metadata::{Attributes, Defaults, Time};
use crate::plan::Limits;
use crate::state_file::{Change, Position, StateFile};
use crate::store::{Metered, Store};
use bodies::Bodies;
use fetch::Fetched;
use tree::{Node, Tree};

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys begin with this: empty, or ending in a slash.
    pub prefix: String,
    /// The state directory.
    pub state: PathBuf,
    /// Sizes of parts.
    pub limits: Limits,
    /// How long a listing, or what is known of an object, is believed.
    pub listing_ttl: Duration,
    /// What was not changed for this long is uploaded.
    pub quiet: Duration,
    /// A file that is written for longer than this is uploaded while it grows.
    pub stream_after: Duration,
    /// How long an object may be missing that the store says it has made.
    pub seen_within: Duration,
    /// More bytes than these, or nodes, are not left pending; those that are uploaded while their file grows do not count.
    pub pending_bytes_max: u64,
    /// See `pending_bytes_max`.
    pub pending_nodes_max: usize,
    /// Requests at a time.
    pub parallel: usize,
    /// Attributes of objects that say nothing.
    pub defaults: Defaults,
}

/// What a file system shows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub id: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its size, bytes.
    pub size: u64,
    /// Names: 2 for a directory, 0 for what was removed.
    pub links: u32,
}

/// What happened, beside requests.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct Happened {
    pub pending_nodes: u64,
    pub pending_bytes: u64,
    pub conflicts: u64,
    pub uploads_failed: u64,
    pub lease_lost: bool,
}

/// A bucket's prefix as a file system.
pub struct FileSystem {
    store: Arc<Metered>,
    settings: Settings,
    /// Tells this state directory's objects from others'.
    owner: String,
    tree: Mutex<Tree>,
    /// A node or a directory is not busy any more.
    idle: Condvar,
    moving: RwLock<()>,
    /// Leftovers of moves are being removed.
    removing: Mutex<()>,
    state: StateFile,
    fetched: Fetched,
    bodies: Bodies,
    temporary: AtomicU64,
    conflicts: AtomicU64,
    uploads_failed: AtomicU64,
    stopping: AtomicBool,
}

/// Now, as files show it.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

/// Says something to who watches the program.
fn say(words: &str) {
    eprintln!("weir-bucket: {words}");
}

impl FileSystem {
    /// The tree, locked.
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, without the lock, until something is not busy any more.
    fn wait<'a>(&'a self, tree: MutexGuard<'a, Tree>) -> MutexGuard<'a, Tree> {
        self.idle.wait(tree).unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes objects; no directory is moved meanwhile.
    fn stay(&self) -> std::sync::RwLockReadGuard<'_, ()> {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node that is there.
    fn node<'a>(&self, tree: &'a mut Tree, id: u64) -> Result<&'a mut Node> {
        tree.nodes.get_mut(&id).map(Box::as_mut).ok_or(Error::NotFound)
    }

    /// The whole key of a node's object.
    fn key(&self, tree: &Tree, id: u64) -> String {
        match tree.get(id).and_then(|node| node.elsewhere.clone()) {
            Some(key) => key,
            None => self.whole(&tree.key(id)),
        }
    }

    /// A key below the prefix, made whole.
    fn whole(&self, key: &str) -> String {
        format!("{}{key}", self.settings.prefix)
    }

    /// A key for an object that only this program needs.
    fn temporary_key(&self) -> String {
        let number = self.temporary.fetch_add(1, Relaxed);
        format!("{}{TEMPORARY}{}-{number}", self.settings.prefix, self.owner)
    }

    /// Notes in the state file how a node is now; durable up to the position that it returns.
    fn record(&self, tree: &mut Tree, id: u64) -> Result<Position> {
        let batch = self.batch_of(tree, id, Vec::new());
        let position = self.state.append(&batch)?;
        self.node(tree, id)?.recorded = true;
        Ok(position)
    }

    /// The same after something was done in the bucket, in one batch with other changes.
    fn record_end(&self, tree: &mut Tree, id: u64, batch: Vec<Change>) -> Result<Position> {
        let batch = self.batch_of(tree, id, batch);
        let position = self.state.append_end(&batch)?;
        self.node(tree, id)?.recorded = true;
        Ok(position)
    }

    fn batch_of(&self, tree: &mut Tree, id: u64, mut batch: Vec<Change>) -> Vec<Change> {
        if tree.next > tree.reserved {
            tree.reserved = tree.next + 1000;
            batch.push(Change::Numbers(tree.reserved));
        }
        batch.push(Change::Pending(tree.pending(id)));
        batch
    }

    /// What happened until now.
    pub fn happened(&self) -> Happened {
        let tree = self.tree();
        let bytes = tree.dirty.iter().filter_map(|id| tree.get(*id));
        Happened {
            pending_nodes: tree.dirty.len() as u64,
            pending_bytes: bytes.map(|node| node.content.dirty.total()).sum(),
            conflicts: self.conflicts.load(Relaxed),
            uploads_failed: self.uploads_failed.load(Relaxed),
            lease_lost: self.store.is_fenced(),
        }
    }

    /// The counts of requests and what happened, as JSON.
    pub fn counts(&self) -> String {
        #[derive(Serialize)]
        struct All<T> {
            store: T,
            files: Happened,
            #[serde(skip_serializing_if = "Option::is_none")]
            cache: Option<CacheCounts>,
        }
        let all = All {
            store: self.store.counts().now(),
            files: self.happened(),
            cache: self.fetched.cache().map(Cache::counts),
        };
        serde_json::to_string(&all).expect("numbers are JSON")
    }

    /// The cache on the disk takes nothing any more, and has what it was given.
    pub fn end_cache(&self) {
        if let Some(cache) = self.fetched.cache() {
            cache.end();
        }
    }

    /// The store.
    fn store(&self) -> &dyn Store {
        &*self.store
    }
}

/// Below the prefix: objects that only this program needs.
const TEMPORARY: &str = ".weir-tmp/";

/// Calls `work` for each item on a few threads; the results in the items' order.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    if items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicU64::new(0);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(items.len()))
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    loop {
                        let at = next.fetch_add(1, Relaxed) as usize;
                        let Some(item) = items.get(at) else { return done };
                        done.push((at, work(item)));
                    }
                })
            })
            .collect();
        let joined = threads.into_iter().flat_map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
