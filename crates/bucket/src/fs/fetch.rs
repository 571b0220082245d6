//! Bytes of objects: fetched by ranges, ahead where somebody reads in order, and kept in a bounded memory.
//!
//! Memory is in units of 128 KiB; that of the units that were not used for the longest time is used again for others. A read that
//! continues those before it has other threads fetch what follows, four times of what was read in order and at most 32 MiB, so that a
//! large object comes over several connections.
//!
//! Units that are not in memory are looked for in the cache on the disk, if there is one, and what the bucket is asked for is
//! given to it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use super::tree::Remote;
use crate::cache::Cache;
use crate::store::{Metered, Result, Store};

const UNIT: u64 = 128 << 10;
const WINDOW_FIRST: u64 = 1 << 20;
const WINDOW_MAX: u64 = 8 << 20;
/// Windows that are fetched ahead of a reader.
const AHEAD: u64 = 4;
const THREADS_MAX: usize = 16;
const BYTES_MAX: u64 = 256 << 20;
/// So many units are told of together while an answer comes: each time wakes those who wait.
const TOLD_UNITS: usize = 8;
/// A gap of at most this many cached units between missing ones is fetched with them: that saves a request.
const GAP_UNITS: u64 = 8;

enum Unit {
    /// Somebody fetches it.
    Fetching,
    /// The bytes of the object with that ETag, and when they were used last.
    Ready(Arc<str>, Bytes, u64),
}

/// What is known of the reads of one file.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where this reader began to read in order.
    start: u64,
    /// Where the next read is expected.
    next: u64,
    /// Up to here it is fetched, or being fetched.
    ahead: u64,
}

impl Stream {
    /// A read of an object of a size: how many bytes from its beginning are fetched for it, as far as they are missing, and the windows
    /// to fetch ahead of it, at most `room`. They are bounded by what was read in order, so that little is fetched for nothing.
    fn follow(&mut self, at: u64, end: u64, size: u64, room: usize) -> (u64, Vec<(u64, u64)>) {
        // The kernel's own read-ahead arrives a little out of order.
        let near = (8 * (end - at)).min(WINDOW_FIRST);
        if at.abs_diff(self.next) > near {
            *self = Stream { start: at, next: end, ahead: end.next_multiple_of(UNIT) };
            return (UNIT, Vec::new());
        }
        self.next = self.next.max(end);
        if at == 0 {
            self.ahead = self.ahead.max(end.next_multiple_of(UNIT)).max(WINDOW_FIRST);
            return (WINDOW_FIRST, Vec::new());
        }
        self.ahead = self.ahead.max(end.next_multiple_of(UNIT));
        let in_order = self.next - self.start.min(self.next);
        let window = (2 * in_order).next_multiple_of(UNIT).min(WINDOW_MAX);
        let until = (self.next + (4 * in_order).min(AHEAD * WINDOW_MAX)).min(size);
        let mut windows = Vec::new();
        while self.ahead < until && windows.len() < room {
            let upto = (self.ahead + window).min(size);
            windows.push((self.ahead, upto));
            self.ahead = upto;
        }
        (window, windows)
    }
}

#[derive(Default)]
struct Inner {
    units: HashMap<(u64, u64), Unit>,
    streams: HashMap<u64, Stream>,
    bytes: u64,
    clock: u64,
    /// Memory of units that were evicted, `UNIT` bytes each.
    free: Vec<BytesMut>,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    came: Condvar,
    threads: AtomicUsize,
}

/// The memory.
#[derive(Clone, Default)]
pub struct Fetched {
    shared: Arc<Shared>,
    cache: Option<Arc<Cache>>,
}

/// An object to fetch from.
#[derive(Clone)]
struct Object {
    id: u64,
    key: Arc<str>,
    etag: Arc<str>,
    size: u64,
}

impl Object {
    /// The bytes that units have.
    fn range(&self, units: Range<u64>) -> Range<u64> {
        units.start * UNIT..(units.end * UNIT).min(self.size)
    }
}

impl Fetched {
    /// An empty memory, over a cache on the disk.
    pub fn new(cache: Option<Arc<Cache>>) -> Fetched {
        Fetched { cache, ..Fetched::default() }
    }

    /// The cache on the disk.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_deref()
    }

    /// Reads bytes of an object, all of which it has.
    pub fn read(
        &self,
        store: &Arc<Metered>,
        id: u64,
        key: &str,
        remote: &Remote,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let object =
            Object { id, key: key.into(), etag: remote.etag.as_str().into(), size: remote.size };
        let Range { start: at, end } = range;
        let window = self.follow(store, &object, at, end);
        let fetch_end = end.max(at + window).min(object.size);
        loop {
            let inner = self.lock();
            match missing(&inner, &object, at / UNIT..end.div_ceil(UNIT)) {
                Missing::Nothing => {
                    let pieces = pieces(inner, &object, at..end);
                    return Ok(joined(pieces));
                }
                Missing::OnItsWay => {
                    drop(self.shared.came.wait(inner).unwrap_or_else(PoisonError::into_inner));
                }
                Missing::From(unit) => {
                    let fetched = self.fetch(&**store, inner, &object, unit, fetch_end);
                    // What was read ahead with it may have failed.
                    let units = at / UNIT..end.div_ceil(UNIT);
                    if fetched.is_err()
                        && !matches!(missing(&self.lock(), &object, units), Missing::Nothing)
                    {
                        fetched?;
                    }
                }
            }
        }
    }

    /// Notes where somebody reads; how much is to be fetched at a time. Has windows ahead fetched.
    fn follow(&self, store: &Arc<Metered>, object: &Object, at: u64, end: u64) -> u64 {
        let mut inner = self.lock();
        let stream = inner.streams.entry(object.id).or_default();
        let room = THREADS_MAX.saturating_sub(self.shared.threads.load(Relaxed));
        let (window, windows) = stream.follow(at, end, object.size, room);
        self.shared.threads.fetch_add(windows.len(), Relaxed);
        drop(inner);
        for (from, upto) in windows {
            let (this, store, object) = (self.clone(), store.clone(), object.clone());
            std::thread::spawn(move || {
                // A reader asks again for what fails, and is told why.
                let _ = this.fetch_window(&store, &object, from, upto);
                this.shared.threads.fetch_sub(1, Relaxed);
            });
        }
        window
    }

    fn fetch_window(&self, store: &Metered, object: &Object, from: u64, upto: u64) -> Result<()> {
        loop {
            let inner = self.lock();
            match missing(&inner, object, from / UNIT..upto.div_ceil(UNIT)) {
                Missing::From(unit) => self.fetch(store, inner, object, unit, upto)?,
                Missing::Nothing | Missing::OnItsWay => return Ok(()),
            }
        }
    }

    /// Fetches units from the first that is missing up to `end` or to one that is not.
    fn fetch(
        &self,
        store: &dyn Store,
        mut inner: MutexGuard<'_, Inner>,
        object: &Object,
        first: u64,
        end: u64,
    ) -> Result<()> {
        let mut last = first;
        while last < end.div_ceil(UNIT) && is_missing(&inner, object, last) {
            inner.put((object.id, last), Unit::Fetching);
            last += 1;
        }
        drop(inner);
        let absent = self.find(object, first..last);
        for run in runs(&absent) {
            let units = absent[run.start]..absent[run.end - 1] + 1;
            let mut arriving = Arriving {
                of: self,
                object,
                next: units.start,
                bytes: BytesMut::new(),
                whole: Vec::new(),
                came: 0,
                absent: &absent[run.clone()],
            };
            let read = store.read(&object.key, object.range(units), &object.etag, &mut |bytes| {
                arriving.take(bytes);
            });
            arriving.pass_on();
            let came = run.start + arriving.came;
            if let Err(error) = read {
                self.give_up(object, &absent[came..]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes units out of the cache on the disk; those that it has not.
    fn find(&self, object: &Object, units: Range<u64>) -> Vec<u64> {
        let Some(cache) = &self.cache else { return units.collect() };
        let is_absent = |unit: &u64| {
            let range = object.range(*unit..*unit + 1);
            let length = (range.end - range.start) as usize;
            let found = cache.find(&object.key, &object.etag, *unit, length);
            let is_absent = found.is_none();
            if let Some(bytes) = found {
                self.came(object, &[(*unit, bytes)]);
            }
            is_absent
        };
        units.filter(is_absent).collect()
    }

    /// Units are there now.
    fn came(&self, object: &Object, units: &[(u64, Bytes)]) {
        let mut inner = self.lock();
        inner.clock += 1;
        let clock = inner.clock;
        for (unit, bytes) in units {
            inner.put((object.id, *unit), Unit::Ready(object.etag.clone(), bytes.clone(), clock));
        }
        inner.evict();
        self.shared.came.notify_all();
    }

    /// Nobody fetches these units any more.
    fn give_up(&self, object: &Object, units: &[u64]) {
        let mut inner = self.lock();
        for unit in units {
            inner.take((object.id, *unit));
        }
        self.shared.came.notify_all();
    }

    /// Nobody has the file open any more.
    pub fn forget(&self, id: u64) {
        self.lock().streams.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer with the content of units, while it comes.
struct Arriving<'a> {
    of: &'a Fetched,
    object: &'a Object,
    /// The unit that the next bytes belong to, and what of it has come.
    next: u64,
    bytes: BytesMut,
    /// Units that nobody was told of yet.
    whole: Vec<(u64, Bytes)>,
    /// The units that are wanted, in order, and how many of them are whole.
    absent: &'a [u64],
    came: usize,
}

impl Arriving<'_> {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let range = self.object.range(self.next..self.next + 1);
            let lacks = (range.end - range.start) as usize - self.bytes.len();
            if self.bytes.capacity() < lacks {
                self.bytes = self.of.lock().memory_for(lacks);
            }
            let (now, rest) = bytes.split_at(lacks.min(bytes.len()));
            self.bytes.extend_from_slice(now);
            bytes = rest;
            if now.len() == lacks {
                self.end_unit();
            }
        }
    }

    fn end_unit(&mut self) {
        if self.absent.get(self.came) == Some(&self.next) {
            self.whole.push((self.next, std::mem::take(&mut self.bytes).freeze()));
            self.came += 1;
        }
        self.bytes.clear();
        self.next += 1;
        if self.whole.len() == TOLD_UNITS {
            self.pass_on();
        }
    }

    /// The units that are whole are there for readers.
    fn pass_on(&mut self) {
        if self.whole.is_empty() {
            return;
        }
        if let Some(cache) = &self.of.cache {
            for (unit, bytes) in &self.whole {
                cache.keep(&self.object.key, &self.object.etag, *unit, bytes);
            }
        }
        self.of.came(self.object, &self.whole);
        self.whole.clear();
    }
}

/// Units that are fetched by one request each time, as ranges of the list, which is in order.
fn runs(units: &[u64]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if unit - units[run.end - 1] <= GAP_UNITS + 1 => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

enum Missing {
    Nothing,
    OnItsWay,
    From(u64),
}

fn is_missing(inner: &Inner, object: &Object, unit: u64) -> bool {
    match inner.units.get(&(object.id, unit)) {
        None => true,
        Some(Unit::Fetching) => false,
        Some(Unit::Ready(etag, ..)) => *etag != object.etag,
    }
}

fn missing(inner: &Inner, object: &Object, units: Range<u64>) -> Missing {
    let mut on_its_way = false;
    for unit in units {
        if is_missing(inner, object, unit) {
            return Missing::From(unit);
        }
        on_its_way |= matches!(inner.units.get(&(object.id, unit)), Some(Unit::Fetching));
    }
    if on_its_way { Missing::OnItsWay } else { Missing::Nothing }
}

/// The bytes of a range, unit by unit, all of which are there. Releases the lock.
fn pieces(mut inner: MutexGuard<'_, Inner>, object: &Object, range: Range<u64>) -> Vec<Bytes> {
    inner.clock += 1;
    let clock = inner.clock;
    let piece = |unit: u64| {
        let Some(Unit::Ready(_, bytes, used)) = inner.units.get_mut(&(object.id, unit)) else {
            unreachable!("the unit was there under this lock");
        };
        *used = clock;
        let (from, upto) = (range.start.max(unit * UNIT), range.end.min((unit + 1) * UNIT));
        bytes.slice((from - unit * UNIT) as usize..(upto - unit * UNIT) as usize)
    };
    (range.start / UNIT..range.end.div_ceil(UNIT)).map(piece).collect()
}

/// Pieces as one; a single one is not copied.
pub(super) fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => pieces.concat().into(),
    }
}

impl Inner {
    fn put(&mut self, key: (u64, u64), unit: Unit) {
        if let Unit::Ready(_, bytes, _) = &unit {
            self.bytes += bytes.len() as u64;
        }
        self.take(key);
        self.units.insert(key, unit);
    }

    /// Takes a unit out; what it had.
    fn take(&mut self, key: (u64, u64)) -> Option<Bytes> {
        let Some(Unit::Ready(_, bytes, _)) = self.units.remove(&key) else { return None };
        self.bytes -= bytes.len() as u64;
        Some(bytes)
    }

    /// Makes room: the quarter that was not used for the longest time goes. Memory to be used again counts.
    fn evict(&mut self) {
        let room = BYTES_MAX.saturating_sub(self.bytes) / UNIT;
        self.free.truncate(room as usize);
        if self.bytes <= BYTES_MAX {
            return;
        }
        let ready = self.units.iter().filter_map(|(key, unit)| match unit {
            Unit::Ready(_, _, used) => Some((*used, *key)),
            Unit::Fetching => None,
        });
        let mut oldest: Vec<_> = ready.collect();
        oldest.sort_unstable();
        for (_, key) in oldest.iter().take(oldest.len() / 4 + 1) {
            if let Some(bytes) = self.take(*key) {
                self.use_again(bytes);
            }
        }
    }

    /// Keeps the memory of a unit for others, unless somebody reads it yet.
    fn use_again(&mut self, bytes: Bytes) {
        if let Ok(mut memory) = bytes.try_into_mut()
            && memory.capacity() == UNIT as usize
        {
            memory.clear();
            self.free.push(memory);
        }
    }

    /// Memory for a unit of `bytes`, empty: an evicted unit's if there is one. The kernel would fill new memory page by page.
    fn memory_for(&mut self, bytes: usize) -> BytesMut {
        let used = if bytes == UNIT as usize { self.free.pop() } else { None };
        used.unwrap_or_else(|| BytesMut::with_capacity(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::metadata::Properties;
    use crate::store::{Condition, Failure, Memory};

    #[test]
    fn ahead_of_a_reader_little_is_fetched_that_it_does_not_read() {
        const SIZE: u64 = 1 << 30;
        let ahead = |reads: &[(u64, u64)]| {
            let mut stream = Stream::default();
            let windows = reads.iter().flat_map(|(at, len)| {
                let (window, ahead) = stream.follow(*at, at + len, SIZE, THREADS_MAX);
                let own = len.max(&window).next_multiple_of(UNIT);
                ahead.into_iter().map(|(from, upto)| upto - from).chain([own])
            });
            windows.sum::<u64>()
        };
        // The head of a file, and what follows it; or places of which none continues the other.
        assert_eq!(ahead(&[(0, 4096)]), WINDOW_FIRST);
        assert!(ahead(&[(0, 4096), (4096, 4096)]) <= WINDOW_FIRST + UNIT);
        let places: Vec<_> = (1..100).map(|number| (number * (300 << 10), 4096)).collect();
        assert_eq!(ahead(&places), 99 * UNIT);
        assert!(ahead(&[(5 << 20, 4096), ((5 << 20) + 4096, 4096)]) <= 4 * UNIT);
        // After 8 MiB in order, nearly the most is fetched ahead: 32 MiB.
        let mut stream = Stream::default();
        for at in (0..8 << 20).step_by(128 << 10) {
            stream.follow(at, at + UNIT, SIZE, THREADS_MAX);
        }
        assert!(stream.ahead - stream.next > 24 << 20, "{stream:?}");
        stream.follow(512 << 20, (512 << 20) + 1, SIZE, THREADS_MAX);
        assert_eq!(stream.follow((512 << 20) + 1, (512 << 20) + 2, SIZE, THREADS_MAX).1.len(), 0);
    }

    #[test]
    fn memory_of_evicted_units_is_used_again_unless_somebody_reads_it() {
        let mut inner = Inner::default();
        let units = BYTES_MAX / UNIT + 1;
        for unit in 0..units {
            let bytes = BytesMut::zeroed(UNIT as usize).freeze();
            inner.put((1, unit), Unit::Ready("e".into(), bytes, unit));
        }
        let Some(Unit::Ready(_, read, _)) = inner.units.get(&(1, 3)) else { panic!("no unit") };
        let read = read.slice(100..200);
        inner.evict();
        // A quarter, but for what is being read.
        assert_eq!(inner.free.len() as u64, units / 4);
        assert_eq!(inner.bytes + (inner.free.len() as u64 + 1) * UNIT, units * UNIT);
        let memory = inner.free.last().unwrap().as_ptr();
        assert_eq!(inner.memory_for(UNIT as usize).as_ptr(), memory);
        assert_eq!(inner.memory_for(1000).capacity(), 1000);
        assert_eq!(inner.free.len() as u64, units / 4 - 1);
        // What is not of that size takes its place.
        inner.put((2, 0), Unit::Ready("e".into(), vec![0; 10 << 20].into(), units));
        inner.evict();
        assert!(!inner.free.is_empty());
        assert!(inner.bytes + inner.free.len() as u64 * UNIT <= BYTES_MAX);
        drop(read);
    }

    #[test]
    fn what_came_of_an_answer_that_breaks_off_is_not_fetched_again() {
        let store = Arc::new(Memory::new(1));
        let content: Vec<u8> = (0..4 * UNIT + 1000).map(|at| (at / 1000) as u8).collect();
        let none = Condition::None;
        let etag = store.put("key", content.clone(), &Properties::default(), &none).unwrap();
        let size = content.len() as u64;
        let remote = Remote { etag, size, properties: None, checked: Instant::now() };
        let metered = Arc::new(Metered::new(store.clone(), None, Arc::default()));
        let mut failures = [Some(Failure::After), Some(Failure::Before)].into_iter();
        store.fail(move |_, _| failures.next().flatten());
        let fetched = Fetched::new(None);
        let read = |at: u64, len: usize| {
            let read = fetched.read(&metered, 7, "key", &remote, at..at + len as u64);
            read.map(|bytes| assert_eq!(bytes, content[at as usize..at as usize + len]))
        };
        // Of the first answer two units came, of the second nothing, and of the third the rest.
        read(0, 4096).unwrap();
        read(UNIT, UNIT as usize).unwrap();
        assert_eq!(metered.counts().now().get, 1);
        assert!(read(size - 10, 10).is_err());
        read(2 * UNIT, (size - 2 * UNIT) as usize).unwrap();
        read(0, size as usize).unwrap();
        assert_eq!(metered.counts().now().get, 3);
        // An answer of which half has come, and another.
        assert_eq!(metered.counts().now().bytes_down, size / 2 + size - 2 * UNIT);
    }

    #[test]
    fn a_request_spans_small_gaps() {
        let ranges = |units: &[u64]| -> Vec<(u64, u64)> {
            runs(units).into_iter().map(|run| (units[run.start], units[run.end - 1])).collect()
        };
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[3, 4, 5]), [(3, 5)]);
        assert_eq!(ranges(&[0, 9, 19]), [(0, 9), (19, 19)]);
    }
}
