//! A bucket in memory, for tests: it keeps S3's rules for conditions and parts, and fails when it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Begun, Completed, Condition, Head, Listed, Page, Result, Store, StoreError, Take, Unfinished,
};
use crate::metadata::{Properties, Time};

/// As many bytes of an object come at a time.
const PIECE_BYTES: usize = 5000;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is not carried out.
    Before,
    /// It is carried out, and the answer is lost.
    After,
    /// It is carried out, and the answer comes after this time.
    Late(std::time::Duration),
    /// The end of an upload: it is answered as if it were carried out, and is under way for that many further requests.
    UnderWay(u32),
}

#[derive(Clone)]
struct Object {
    body: Vec<u8>,
    etag: String,
    modified: Time,
    properties: Properties,
}

#[derive(Clone)]
struct Upload {
    key: String,
    properties: Properties,
    parts: BTreeMap<i32, (String, Vec<u8>)>,
}

/// Decides whether the next request fails. It is given its kind and its key.
type Fails = Box<dyn FnMut(&str, &str) -> Option<Failure> + Send>;

struct Inner {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    /// The objects before each of the last changes, of which listings show the first.
    past: VecDeque<BTreeMap<String, Object>>,
    late: usize,
    /// Ends of uploads that are under way, and after how many requests they are done.
    under_way: Vec<(u32, String, Object, Condition)>,
    /// The request that is being carried out is to be one of them.
    delay: Option<u32>,
    number: u64,
    part_min: usize,
    page: usize,
}

/// The bucket.
pub struct Memory {
    inner: Mutex<Inner>,
    fails: Mutex<Fails>,
}

impl Memory {
    /// An empty bucket whose parts have at least `part_min` bytes.
    pub fn new(part_min: usize) -> Self {
        Memory {
            inner: Mutex::new(Inner {
                objects: BTreeMap::new(),
                uploads: BTreeMap::new(),
                past: VecDeque::new(),
                late: 0,
                under_way: Vec::new(),
                delay: None,
                number: 0,
                part_min,
                page: 7,
            }),
            fails: Mutex::new(Box::new(|_, _| None)),
        }
    }

    /// Another bucket that is as this one is now, and never fails.
    pub fn copied(&self) -> Memory {
        let inner = self.inner();
        let copy = Memory::new(inner.part_min);
        *copy.inner() = Inner {
            objects: inner.objects.clone(),
            uploads: inner.uploads.clone(),
            under_way: inner.under_way.clone(),
            past: inner.past.clone(),
            ..*inner
        };
        copy
    }

    /// Decides which requests fail from now on.
    pub fn fail(&self, fails: impl FnMut(&str, &str) -> Option<Failure> + Send + 'static) {
        *self.fails.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(fails);
    }

    /// From now on listings do not show the last `changes` changes of objects.
    pub fn list_late(&self, changes: usize) {
        let mut inner = self.inner();
        inner.past.clear();
        inner.late = changes;
    }

    /// All objects' keys and bytes.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.inner();
        let pairs = inner.objects.iter();
        pairs.map(|(key, object)| (key.clone(), object.body.clone())).collect()
    }

    /// Multipart uploads that were begun and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.inner().uploads.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a request out, unless it fails.
    fn request<T>(
        &self,
        kind: &str,
        key: &str,
        call: impl FnOnce(&mut Inner) -> Result<T>,
    ) -> Result<T> {
        let mut fails = self.fails.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = fails(kind, key);
        drop(fails);
        let mut inner = self.inner();
        inner.go_on();
        match failure {
            None => call(&mut inner),
            Some(Failure::UnderWay(requests)) => {
                inner.delay = Some(requests);
                let answer = call(&mut inner);
                inner.delay = None;
                answer
            }
            Some(Failure::Late(time)) => {
                let answer = call(&mut inner);
                drop(inner);
                std::thread::sleep(time);
                answer
            }
            Some(Failure::Before) => {
                Err(StoreError::Failed(format!("{kind}: it was told to fail")))
            }
            Some(Failure::After) => {
                call(&mut inner)?;
                Err(StoreError::Failed(format!("{kind}: the answer was lost")))
            }
        }
    }
}

impl Inner {
    fn object(&self, key: &str) -> Result<&Object> {
        self.objects.get(key).ok_or_else(|| StoreError::NotFound(key.into()))
    }

    fn object_with(&self, key: &str, etag: &str) -> Result<&Object> {
        let object = self.object(key)?;
        if object.etag != etag {
            return Err(StoreError::Changed(key.into()));
        }
        Ok(object)
    }

    /// Ends what is under way and has its time.
    fn go_on(&mut self) {
        for (requests, key, object, condition) in std::mem::take(&mut self.under_way) {
            match requests.checked_sub(1) {
                Some(left) => self.under_way.push((left, key, object, condition)),
                // Nobody waits for its answer.
                None => drop(self.publish(&key, object, &condition)),
            }
        }
    }

    fn store(
        &mut self,
        key: &str,
        body: Vec<u8>,
        properties: &Properties,
        condition: &Condition,
    ) -> Result<String> {
        let object = self.made(body, properties);
        self.publish(key, object, condition)
    }

    /// Something is about to change.
    fn remember(&mut self) {
        if self.late > 0 {
            self.past.push_back(self.objects.clone());
            if self.past.len() > self.late {
                self.past.pop_front();
            }
        }
    }

    fn publish(&mut self, key: &str, object: Object, condition: &Condition) -> Result<String> {
        match (condition, self.objects.get(key)) {
            (Condition::None, _) | (Condition::Absent, None) => {}
            (Condition::Etag(etag), Some(object)) if object.etag == *etag => {}
            (Condition::Etag(_), None) => return Err(StoreError::NotFound(key.into())),
            _ => return Err(StoreError::Changed(key.into())),
        }
        let etag = object.etag.clone();
        self.remember();
        self.objects.insert(key.into(), object);
        Ok(etag)
    }

    fn made(&mut self, body: Vec<u8>, properties: &Properties) -> Object {
        self.number += 1;
        Object {
            body,
            etag: format!("\"{}\"", self.number),
            modified: Time { seconds: 1_700_000_000 + self.number as i64, nanoseconds: 0 },
            properties: properties.clone(),
        }
    }

    fn part(&mut self, upload: &str, number: i32, body: Vec<u8>) -> Result<String> {
        self.number += 1;
        let etag = format!("\"part-{}\"", self.number);
        let Some(upload) = self.uploads.get_mut(upload) else {
            return Err(StoreError::NotFound(upload.into()));
        };
        upload.parts.insert(number, (etag.clone(), body));
        Ok(etag)
    }
}

impl Store for Memory {
    fn list(&self, prefix: &str, shallow: bool, page: Option<&str>) -> Result<Page> {
        self.request("list", prefix, |inner| {
            let mut found = Page::default();
            let mut last = page.unwrap_or_default().to_owned();
            let objects = inner.past.front().unwrap_or(&inner.objects);
            for (key, object) in objects.range(prefix.to_owned()..) {
                let Some(rest) = key.strip_prefix(prefix) else { break };
                if *key <= last
                    || (shallow
                        && last.ends_with('/')
                        && last.len() > prefix.len()
                        && key.starts_with(&last))
                {
                    continue;
                }
                if found.objects.len() + found.prefixes.len() == inner.page {
                    found.next = Some(last);
                    break;
                }
                match rest.find('/').filter(|_| shallow) {
                    Some(slash) => {
                        last = key[..prefix.len() + slash + 1].to_owned();
                        found.prefixes.push(last.clone());
                    }
                    None => {
                        last = key.clone();
                        found.objects.push(Listed {
                            key: key.clone(),
                            size: object.body.len() as u64,
                            etag: object.etag.clone(),
                            modified: object.modified,
                        });
                    }
                }
            }
            Ok(found)
        })
    }

    fn head(&self, key: &str) -> Result<Head> {
        self.request("head", key, |inner| {
            let object = inner.object(key)?;
            Ok(Head {
                size: object.body.len() as u64,
                etag: object.etag.clone(),
                modified: object.modified,
                properties: object.properties.clone(),
            })
        })
    }

    fn read(&self, key: &str, range: Range<u64>, etag: &str, take: Take<'_>) -> Result<()> {
        let mut found = Vec::new();
        let answer = self.request("get", key, |inner| {
            let object = inner.object_with(key, etag)?;
            let bytes = object.body.get(range.start as usize..range.end as usize);
            found.extend_from_slice(bytes.expect("a range inside the object"));
            Ok(())
        });
        // An answer that is lost has come in part.
        let came = if answer.is_ok() { found.len() } else { found.len() / 2 };
        found[..came].chunks(PIECE_BYTES).for_each(take);
        answer
    }

    fn put(
        &self,
        key: &str,
        body: Vec<u8>,
        properties: &Properties,
        condition: &Condition,
    ) -> Result<String> {
        self.request("put", key, |inner| inner.store(key, body, properties, condition))
    }

    fn copy(
        &self,
        from: &str,
        etag: &str,
        to: &str,
        properties: Option<&Properties>,
    ) -> Result<String> {
        self.request("copy", to, |inner| {
            let Object { body, properties: own, .. } = inner.object_with(from, etag)?.clone();
            inner.store(to, body, properties.unwrap_or(&own), &Condition::None)
        })
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.request("delete", key, |inner| {
            inner.remember();
            inner.objects.remove(key);
            Ok(())
        })
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.request("delete_many", keys.first().map_or("", String::as_str), |inner| {
            assert!(keys.len() <= 1000);
            inner.remember();
            inner.objects.retain(|key, _| !keys.contains(key));
            Ok(())
        })
    }

    fn begin(&self, key: &str, properties: &Properties) -> Result<Begun> {
        self.request("begin", key, |inner| {
            inner.number += 1;
            let id = format!("upload-{}", inner.number);
            let upload =
                Upload { key: key.into(), properties: properties.clone(), parts: BTreeMap::new() };
            inner.uploads.insert(id.clone(), upload);
            Ok(Begun { upload: id, is_alone: true })
        })
    }

    fn unfinished(&self, prefix: &str) -> Result<Vec<Unfinished>> {
        self.request("unfinished", prefix, |inner| {
            let uploads = inner.uploads.iter();
            let below = uploads.filter(|(_, upload)| upload.key.starts_with(prefix));
            let found = below
                .map(|(id, upload)| Unfinished { key: upload.key.clone(), upload: id.clone() });
            Ok(found.collect())
        })
    }

    fn upload_part(&self, key: &str, upload: &str, number: i32, body: Vec<u8>) -> Result<String> {
        self.request("upload_part", key, |inner| inner.part(upload, number, body))
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
        self.request("copy_part", key, |inner| {
            let object = inner.object_with(from, etag)?;
            let bytes = object.body.get(range.start as usize..range.end as usize);
            let bytes = bytes.expect("a range inside the object").to_vec();
            inner.part(upload, number, bytes)
        })
    }

    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[(i32, String)],
        condition: &Condition,
    ) -> Result<Completed> {
        self.request("complete", key, |inner| {
            let Some(begun) = inner.uploads.get(upload) else {
                return Err(StoreError::NotFound(upload.into()));
            };
            assert_eq!(begun.key, key);
            let mut body = Vec::new();
            for (index, (number, etag)) in parts.iter().enumerate() {
                let (own, bytes) = &begun.parts[number];
                assert_eq!(own, etag, "part {number}");
                assert!(
                    index + 1 == parts.len() || bytes.len() >= inner.part_min,
                    "part {number} is short"
                );
                body.extend_from_slice(bytes);
            }
            let properties = begun.properties.clone();
            let object = inner.made(body, &properties);
            let etag = object.etag.clone();
            let is_first = inner.delay.is_none();
            match inner.delay.take() {
                Some(requests) => {
                    inner.under_way.push((requests, key.into(), object, condition.clone()));
                }
                None => drop(inner.publish(key, object, condition)?),
            }
            inner.uploads.remove(upload);
            Ok(Completed { etag, is_first })
        })
    }

    fn abort(&self, key: &str, upload: &str) -> Result<()> {
        self.request("abort", key, |inner| {
            inner.uploads.remove(upload);
            Ok(())
        })
    }
}
