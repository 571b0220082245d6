//! Stands before a store: counts requests and bytes, keeps to a rate, and refuses changes when the lease is lost.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{
    Begun, Completed, Condition, Fence, Head, Page, Result, Store, StoreError, Take, Unfinished,
};
use crate::metadata::Properties;

/// Requests by kind, and bytes of content.
#[derive(Default)]
pub struct Counts {
    list: AtomicU64,
    head: AtomicU64,
    get: AtomicU64,
    put: AtomicU64,
    copy: AtomicU64,
    delete: AtomicU64,
    multipart_begin: AtomicU64,
    upload_part: AtomicU64,
    copy_part: AtomicU64,
    multipart_complete: AtomicU64,
    multipart_abort: AtomicU64,
    failed: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct Counted {
    pub requests: u64,
    pub list: u64,
    pub head: u64,
    pub get: u64,
    pub put: u64,
    pub copy: u64,
    pub delete: u64,
    pub multipart_begin: u64,
    pub upload_part: u64,
    pub copy_part: u64,
    pub multipart_complete: u64,
    pub multipart_abort: u64,
    pub failed: u64,
    pub bytes_up: u64,
    pub bytes_down: u64,
}

impl Counts {
    /// The counts now.
    pub fn now(&self) -> Counted {
        let mut counted = Counted {
            requests: 0,
            list: self.list.load(Relaxed),
            head: self.head.load(Relaxed),
            get: self.get.load(Relaxed),
            put: self.put.load(Relaxed),
            copy: self.copy.load(Relaxed),
            delete: self.delete.load(Relaxed),
            multipart_begin: self.multipart_begin.load(Relaxed),
            upload_part: self.upload_part.load(Relaxed),
            copy_part: self.copy_part.load(Relaxed),
            multipart_complete: self.multipart_complete.load(Relaxed),
            multipart_abort: self.multipart_abort.load(Relaxed),
            failed: self.failed.load(Relaxed),
            bytes_up: self.bytes_up.load(Relaxed),
            bytes_down: self.bytes_down.load(Relaxed),
        };
        let Counted { list, head, get, put, copy, delete, .. } = counted;
        counted.requests = list + head + get + put + copy + delete + counted.multipart_begin;
        counted.requests += counted.upload_part + counted.copy_part;
        counted.requests += counted.multipart_complete + counted.multipart_abort;
        counted
    }
}

/// A store, and what is kept to when it is asked.
pub struct Metered {
    store: Arc<dyn Store>,
    counts: Counts,
    fence: Arc<Fence>,
    /// The least time between requests, and when the next may be made.
    interval: Duration,
    next: Mutex<Instant>,
}

impl Metered {
    /// Stands before `store`; `rate`: requests a second at most. `fence`: what the store itself looks at, too, before it makes a request
    /// again.
    pub fn new(store: Arc<dyn Store>, rate: Option<u32>, fence: Arc<Fence>) -> Self {
        Metered {
            store,
            counts: Counts::default(),
            fence,
            interval: rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.max(1)),
            next: Mutex::new(Instant::now()),
        }
    }

    /// The counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether the lease is held.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Whether the lease is lost, or has run out.
    pub fn is_fenced(&self) -> bool {
        self.fence.is_closed()
    }

    /// Waits for its turn and counts.
    fn ask<T>(&self, count: &AtomicU64, call: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        if !self.interval.is_zero() {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let turn = (*next).max(now);
            *next = turn + self.interval;
            drop(next);
            thread::sleep(turn - now);
        }
        count.fetch_add(1, Relaxed);
        let result = call(&*self.store);
        if matches!(result, Err(StoreError::Refused(_) | StoreError::Failed(_))) {
            self.counts.failed.fetch_add(1, Relaxed);
        }
        result
    }

    fn change<T>(
        &self,
        count: &AtomicU64,
        call: impl FnOnce(&dyn Store) -> Result<T>,
    ) -> Result<T> {
        if self.is_fenced() {
            return Err(StoreError::Fenced);
        }
        self.ask(count, call)
    }

    /// The lease's own requests, which are made in order to have it back.
    pub fn unfenced(&self) -> &dyn Store {
        &*self.store
    }
}

impl Store for Metered {
    fn list(&self, prefix: &str, shallow: bool, page: Option<&str>) -> Result<Page> {
        self.ask(&self.counts.list, |store| store.list(prefix, shallow, page))
    }

    fn head(&self, key: &str) -> Result<Head> {
        self.ask(&self.counts.head, |store| store.head(key))
    }

    fn read(&self, key: &str, range: Range<u64>, etag: &str, take: Take<'_>) -> Result<()> {
        let mut count = |bytes: &[u8]| {
            self.counts.bytes_down.fetch_add(bytes.len() as u64, Relaxed);
            take(bytes);
        };
        self.ask(&self.counts.get, |store| store.read(key, range, etag, &mut count))
    }

    fn put(
        &self,
        key: &str,
        body: Vec<u8>,
        properties: &Properties,
        condition: &Condition,
    ) -> Result<String> {
        self.counts.bytes_up.fetch_add(body.len() as u64, Relaxed);
        self.change(&self.counts.put, |store| store.put(key, body, properties, condition))
    }

    fn copy(
        &self,
        from: &str,
        etag: &str,
        to: &str,
        properties: Option<&Properties>,
    ) -> Result<String> {
        self.change(&self.counts.copy, |store| store.copy(from, etag, to, properties))
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.change(&self.counts.delete, |store| store.delete(key))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.change(&self.counts.delete, |store| store.delete_many(keys))
    }

    fn begin(&self, key: &str, properties: &Properties) -> Result<Begun> {
        self.change(&self.counts.multipart_begin, |store| store.begin(key, properties))
    }

    fn unfinished(&self, prefix: &str) -> Result<Vec<Unfinished>> {
        self.ask(&self.counts.list, |store| store.unfinished(prefix))
    }

    fn upload_part(&self, key: &str, upload: &str, number: i32, body: Vec<u8>) -> Result<String> {
        self.counts.bytes_up.fetch_add(body.len() as u64, Relaxed);
        self.change(&self.counts.upload_part, |store| store.upload_part(key, upload, number, body))
    }

    fn copy_part(
        &self,
        key: &str,
        upload: &str,
        number: i32,
        from: &str,
        etag: &str,
        range: Range<u64>,
    ) -> Result<String> {
        self.change(&self.counts.copy_part, |store| {
            store.copy_part(key, upload, number, from, etag, range)
        })
    }

    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[(i32, String)],
        condition: &Condition,
    ) -> Result<Completed> {
        self.change(&self.counts.multipart_complete, |store| {
            store.complete(key, upload, parts, condition)
        })
    }

    fn abort(&self, key: &str, upload: &str) -> Result<()> {
        self.change(&self.counts.multipart_abort, |store| store.abort(key, upload))
    }
}
