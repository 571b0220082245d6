//! The thread that writes units into files and removes them.
//!
//! It looks through the directory first; what it is told meanwhile waits in its queue. The bound on the directory holds at
//! every moment: the oldest units go before a new one is written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::counts::{Counts, say};
use super::directory::{Directory, OWN_BYTES, disk_bytes};
use super::index::Index;
use super::unit::{Identity, Name, SLOTS, head};

/// After a failure nothing is written for this long.
const REST: Duration = Duration::from_secs(10);

/// What it is told.
#[derive(Debug)]
pub enum Order {
    /// Keep a unit of the object with that ETag.
    #[allow(missing_docs)] // The names say it.
    Keep { key: Arc<str>, etag: Arc<str>, unit: u64, bytes: Bytes },
    /// A unit was used.
    Used(Name),
    /// A unit is damaged.
    Drop(Name),
    /// Answer when all before is done.
    #[cfg(test)]
    Answer(std::sync::mpsc::Sender<()>),
}

/// The thread's state.
pub struct Keeper {
    store: Arc<str>,
    directory: Arc<Directory>,
    counts: Arc<Counts>,
    /// What units may take.
    bytes_max: u64,
    index: Index,
    /// The time that was given last: each use has its own.
    clock: u64,
    resting_until: Option<Instant>,
    told_of_failure: bool,
}

impl Keeper {
    /// One whose directory takes `bytes_max` at most.
    pub fn new(
        store: Arc<str>,
        directory: Arc<Directory>,
        counts: Arc<Counts>,
        bytes_max: u64,
    ) -> Keeper {
        Keeper {
            store,
            directory,
            counts,
            bytes_max: bytes_max.saturating_sub(OWN_BYTES),
            index: Index::default(),
            clock: 0,
            resting_until: None,
            told_of_failure: false,
        }
    }

    /// Works until nobody can tell it anything any more.
    pub fn run(mut self, orders: &Receiver<Order>) {
        if let Err(error) = self.scan() {
            // What is there would not be counted.
            say(&format!(
                "the cache {} cannot be looked through, and so takes nothing: {error}",
                self.directory.path().display()
            ));
            return;
        }
        while let Ok(order) = orders.recv() {
            self.carry_out(order);
            self.counts.bytes.store(self.index.bytes(), Relaxed);
        }
    }

    /// Now; never the same twice.
    fn now(&mut self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.clock = (since.as_nanos() as u64).max(self.clock + 1);
        self.clock
    }

    fn scan(&mut self) -> io::Result<()> {
        let now = self.now();
        for slot in 0..SLOTS {
            for entry in self.directory.list(slot)? {
                let used = entry.used.min(now);
                self.index.insert(entry.name, disk_bytes(entry.length), used);
            }
            self.counts.bytes.store(self.index.bytes(), Relaxed);
        }
        // The bound may have been larger.
        self.make_room(0)?;
        self.counts.bytes.store(self.index.bytes(), Relaxed);
        Ok(())
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Keep { key, etag, unit, bytes } => {
                if self.resting_until.is_some_and(|until| Instant::now() < until) {
                    self.counts.skipped.fetch_add(1, Relaxed);
                    return;
                }
                let store = self.store.clone();
                let identity = Identity { store: &store, key: &key, etag: &etag, unit };
                if let Err(error) = self.keep(&identity, &bytes) {
                    self.counts.skipped.fetch_add(1, Relaxed);
                    self.rest(&error);
                }
            }
            Order::Used(name) => {
                let now = self.now();
                if self.index.touch(name, now) {
                    self.directory.touch(name, now);
                }
            }
            Order::Drop(name) => {
                if let Err(error) = self.remove(name) {
                    self.rest(&error);
                }
            }
            #[cfg(test)]
            Order::Answer(done) => {
                self.counts.bytes.store(self.index.bytes(), Relaxed);
                let _ = done.send(());
            }
        }
    }

    fn keep(&mut self, identity: &Identity, bytes: &[u8]) -> io::Result<()> {
        let name = identity.name();
        let head = head(identity, bytes);
        let takes = disk_bytes((head.len() + bytes.len()) as u64);
        self.remove(name)?;
        self.make_room(takes)?;
        if !self.directory.has_room(takes)? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let now = self.now();
        self.directory.write(name, [&head, bytes], now)?;
        self.index.insert(name, takes, now);
        Ok(())
    }

    /// What cannot be removed stays counted.
    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.directory.remove(name)?;
        self.index.remove(name);
        Ok(())
    }

    /// Removes the oldest units until there is room for so much.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let most = self.bytes_max.saturating_sub(bytes);
        while let Some(name) = self.index.oldest_above(most) {
            self.remove(name)?;
        }
        Ok(())
    }

    fn rest(&mut self, error: &io::Error) {
        self.resting_until = Some(Instant::now() + REST);
        if !std::mem::replace(&mut self.told_of_failure, true) {
            let why = match error.kind() {
                io::ErrorKind::StorageFull => "the disk is full".to_owned(),
                _ => error.to_string(),
            };
            say(&format!(
                "the cache {} takes nothing at present: {why}. Files are read from the bucket",
                self.directory.path().display()
            ));
        }
    }
}
