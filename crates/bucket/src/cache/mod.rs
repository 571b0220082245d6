//! A cache on this machine's disk of what was fetched from a bucket. It survives restarts.
//!
//! A unit is a piece of an object as `fs/fetch` has them in memory. It is found by the store, the key and its number, and
//! counts only if it was fetched from the object with the same ETag. What is damaged is a miss, so that the directory may
//! be lost, cut off or altered at any time.
//!
//! | file | what |
//! |---|---|
//! | `unit` | the format of a unit's file, and its name |
//! | `directory` | the files, the lock, the room on the disk |
//! | `index` | which units there are, and which goes first |
//! | `keeper` | the thread that writes and removes files |
//! | `counts`, `error` | what is told |
//!
//! Invariants:
//! - readers read files and change none; the keeper alone writes, removes and counts them;
//! - nobody waits for the keeper: what its queue has no room for is not kept;
//! - files are replaced by rename, so that a reader sees a whole one unless the machine went down meanwhile.

mod counts;
mod directory;
mod error;
mod index;
mod keeper;
mod unit;

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub use counts::CacheCounts;
pub use error::CacheError;

use crate::address::Address;
use counts::{Counts, say};
use directory::Directory;
use keeper::{Keeper, Order};
use unit::{Fault, Identity};

/// The least `--cache-size`, and the one that holds if none is given.
pub const BYTES_MIN: u64 = 64 << 20;
/// See [`BYTES_MIN`].
pub const BYTES_DEFAULT: u64 = 10 << 30;
/// Orders that wait for the keeper: 64 MiB of units at most.
const QUEUE: usize = 512;
/// How long an end waits for units that are still to be written.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Where a cache is, and for what.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The directory that the user named. Each prefix has a directory of its own there.
    pub directory: &'a Path,
    /// What tells the bucket from all others.
    pub store: &'a str,
    /// The bucket's name, and the prefix.
    pub address: &'a Address,
}

impl Place<'_> {
    /// The name of the prefix's own directory: a hash, and what people can read.
    fn name(&self) -> String {
        let hash = unit::hash(self.store, &self.address.prefix);
        let readable = format!("{}/{}", self.address.bucket, self.address.prefix);
        let mut name = format!("{hash:016x}-{}", utf8_percent_encode(&readable, NON_ALPHANUMERIC));
        name.truncate(200);
        name
    }
}

/// The cache of one prefix.
#[derive(Debug)]
pub struct Cache {
    store: Arc<str>,
    directory: Arc<Directory>,
    counts: Arc<Counts>,
    /// None at the end.
    orders: Mutex<Option<SyncSender<Order>>>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// Whether two objects with this ETag are the same byte for byte: a weak one does not say that, and none says nothing.
fn tells_content(etag: &str) -> bool {
    !etag.starts_with("W/") && !etag.trim_matches('"').is_empty()
}

impl Cache {
    /// Opens a cache that takes `bytes_max` on the disk at most. What is there is looked through by another thread.
    ///
    /// # Errors
    /// See [`CacheError`].
    pub fn open(place: &Place, bytes_max: u64) -> Result<Cache, CacheError> {
        let directory = Arc::new(Directory::open(place.directory, &place.name())?);
        let store: Arc<str> = place.store.into();
        let counts = Arc::new(Counts::default());
        let keeper = Keeper::new(store.clone(), directory.clone(), counts.clone(), bytes_max);
        let (orders, received) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("cache".into());
        let thread = thread
            .spawn(move || keeper.run(&received))
            .map_err(|error| CacheError::Io { path: place.directory.to_owned(), error })?;
        Ok(Cache {
            store,
            directory,
            counts,
            orders: Mutex::new(Some(orders)),
            keeper: Mutex::new(Some(thread)),
        })
    }

    /// The `length` bytes of a unit of the object with that ETag, if they are here.
    pub fn find(&self, key: &str, etag: &str, unit: u64, length: usize) -> Option<Bytes> {
        if !tells_content(etag) {
            return None;
        }
        let identity = Identity { store: &self.store, key, etag, unit };
        let name = identity.name();
        let found = self.directory.read(name, unit::file_bytes(&identity, length));
        let fault = match &found {
            Ok(Some(file)) => match unit::content(file, &identity, length) {
                Ok(bytes) => {
                    self.counts.hits.fetch_add(1, Relaxed);
                    self.order(Order::Used(name));
                    return Some(Bytes::copy_from_slice(bytes));
                }
                Err(Fault::OtherEtag) => None,
                Err(Fault::Damaged) => {
                    self.counts.damaged.fetch_add(1, Relaxed);
                    self.order(Order::Drop(name));
                    Some("it is not as it was written".to_owned())
                }
            },
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        self.counts.misses.fetch_add(1, Relaxed);
        if let Some(fault) = fault
            && !self.counts.told_of_fault.swap(true, Relaxed)
        {
            say(&format!(
                "a piece of {key} in the cache {} cannot be used: {fault}. It is fetched from the bucket, \
                 as all such pieces are from now on",
                self.directory.path().display()
            ));
        }
        None
    }

    /// Has a unit kept that was fetched from the object with that ETag. Returns at once.
    pub fn keep(&self, key: &Arc<str>, etag: &Arc<str>, unit: u64, bytes: &Bytes) {
        if !tells_content(etag) {
            return;
        }
        let order =
            Order::Keep { key: key.clone(), etag: etag.clone(), unit, bytes: bytes.clone() };
        if !self.order(order) {
            self.counts.skipped.fetch_add(1, Relaxed);
        }
    }

    /// Gives the keeper an order, if its queue has room.
    fn order(&self, order: Order) -> bool {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        match orders.as_ref().map(|orders| orders.try_send(order)) {
            Some(Ok(())) => true,
            None | Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) => false,
        }
    }

    /// The counts.
    pub fn counts(&self) -> CacheCounts {
        self.counts.now()
    }

    /// Takes nothing any more. Waits for what is still to be written, though not long.
    pub fn end(&self) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let start = Instant::now();
        while !keeper.is_finished() && start.elapsed() < END_PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the keeper has done what it was told.
    #[cfg(test)]
    fn settle(&self) {
        let (done, wait) = std::sync::mpsc::channel();
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone();
        orders.expect("it has not ended").send(Order::Answer(done)).unwrap();
        wait.recv().unwrap();
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a `--cache-size`: digits and K, M, G or T, also KiB and so on; powers of 1024.
///
/// # Errors
/// What is wrong with it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("give a size such as 500M or 10G".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "give a size such as 500M or 10G".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= BYTES_MIN => Ok(bytes),
        Some(_) => Err(format!("a cache needs at least {} MiB", BYTES_MIN >> 20)),
        None => Err("it is too large".to_owned()),
    }
}

#[cfg(test)]
mod tests;
