//! Carries out what [`crate::plan`] decided: PUTs, multipart uploads and server-side copies.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::data::read_spool;
use super::upload::Job;
use super::{Error, FileSystem, Result, TEMPORARY, in_parallel};
use crate::metadata::{Kind, Properties, identity};
use crate::plan::{Composed, Part, Plan, Segment, Source, bytes_of, pieces, plan};
use crate::ranges::RangeSet;
use crate::state_file::Change;
use crate::store::{Begun, Condition, Head, StoreError};

/// The largest object that one request copies.
const COPY_BYTES_MAX: u64 = 5 << 30;

/// How long to wait before an object is asked for again that is not there yet.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// An object that exists for a moment.
struct Temporary {
    key: String,
    etag: String,
    size: u64,
}

impl FileSystem {
    /// Brings a node into the bucket; the ETag.
    pub(super) fn transfer(&self, job: &Job) -> Result<String> {
        if let Some((stream, beside)) = &job.stream
            && let Some(based) = self.with_stream(job, stream)
        {
            let etag = self.transfer_once(&Job { dirty: beside.clone(), stream: None, ..based });
            // What stays is removed at the next start.
            let _ = self.store().delete(&stream.key);
            return etag;
        }
        self.transfer_once(job)
    }

    fn transfer_once(&self, job: &Job) -> Result<String> {
        match job.kind {
            Kind::Directory => match &job.base {
                Some((key, etag, size)) if *size > 0 => {
                    self.copy_object(key, etag, *size, &job.key, Some(&job.properties))
                }
                _ => self.put(job, Vec::new()),
            },
            Kind::Symlink if job.base.is_none() => {
                let target = job.target.clone().ok_or(Error::Invalid)?;
                self.put(job, target.into_bytes())
            }
            Kind::File | Kind::Symlink => match &job.base {
                Some((key, etag, size)) if job.is_attributes_only() => {
                    self.copy_object(key, etag, *size, &job.key, Some(&job.properties))
                }
                _ => match plan(job.size, job.base_bytes, &job.dirty, &self.settings.limits) {
                    Plan::Whole => {
                        self.bodies.with(job.size, || self.put(job, self.bytes(job, 0..job.size)?))
                    }
                    Plan::Parts(parts) => self.put_parts(job, &parts),
                },
            },
        }
    }

    fn put(&self, job: &Job, body: Vec<u8>) -> Result<String> {
        Ok(self.store().put(&job.key, body, &job.properties, &job.condition)?)
    }

    /// Bytes of the file, from the spool and from its object.
    fn bytes(&self, job: &Job, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        for (part, source) in pieces(range.clone(), job.base_bytes, &job.in_spool) {
            let mut into =
                &mut bytes[(part.start - range.start) as usize..(part.end - range.start) as usize];
            match (source, &job.spool, &job.base) {
                (Source::Spool, Some(spool), _) => read_spool(spool, into, part.start)?,
                (Source::Base, _, Some((key, etag, _))) => {
                    self.store().read(key, part, etag, &mut |bytes| {
                        let (now, rest) = std::mem::take(&mut into).split_at_mut(bytes.len());
                        now.copy_from_slice(bytes);
                        into = rest;
                    })?;
                }
                _ => {}
            }
        }
        Ok(bytes)
    }

    /// A multipart upload.
    fn put_parts(&self, job: &Job, parts: &[Part]) -> Result<String> {
        let condition = job.condition.clone();
        self.multipart(&job.key, &job.properties, &condition, parts.len(), |upload, index| {
            let number = index as i32 + 1;
            match &parts[index] {
                Part::Plain(segment) => self.put_segment(job, &job.key, upload, number, segment),
                Part::Composed(composed) => {
                    let temporary = self.compose(job, composed)?;
                    let Temporary { key, etag, size } = &temporary;
                    let range = size - bytes_of(&composed.segments)..*size;
                    let copied = self.store().copy_part(&job.key, upload, number, key, etag, range);
                    self.discard(&temporary);
                    Ok(copied?)
                }
            }
        })
    }

    /// Makes an object of parts that are numbered from 0 and put by `put`. It is made, or in doubt, or nothing is left of it.
    fn multipart(
        &self,
        key: &str,
        properties: &Properties,
        condition: &Condition,
        parts: usize,
        put: impl Fn(&str, usize) -> Result<String> + Sync,
    ) -> Result<String> {
        let upload = self.begin_multipart(key, properties)?;
        let numbers: Vec<usize> = (0..parts).collect();
        let put = in_parallel(&numbers, self.settings.parallel, |index| put(&upload, *index));
        let put = put.into_iter().collect::<Result<Vec<String>>>();
        let etags = put.inspect_err(|_| self.give_up(key, &upload))?;
        let result = {
            let parts: Vec<(i32, String)> = (1..).zip(etags).collect();
            self.complete(key, &upload, &parts, condition, identity(properties))
        };
        match result {
            Ok(_) => self.forget_multipart(&upload),
            // It may be under way yet. What stays is ended by the next start.
            Err(Error::InDoubt(_)) => {}
            Err(_) => self.give_up(key, &upload),
        }
        result
    }

    /// Makes an object of the parts of an upload; its ETag. If the object has an identity, or if this was not the answer to the first
    /// attempt, it is looked for before that counts. [`Error::InDoubt`]: the store says that it is made, and it is not there or cannot be
    /// asked for.
    pub(super) fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[(i32, String)],
        condition: &Condition,
        written: Option<&str>,
    ) -> Result<String> {
        let made = match self.store().complete(key, upload, parts, condition) {
            Ok(made) if made.is_first && written.is_none() => return Ok(made.etag),
            Ok(made) => Some(made.etag),
            // An answer that said that it was made may have been lost.
            Err(StoreError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let begun = Instant::now();
        let mut pause = PAUSE_FIRST;
        loop {
            let found = self.object(key).map_err(|error| Error::InDoubt(error.to_string()))?;
            let is_it = |head: &Head| match (identity(&head.properties), written) {
                (Some(found), Some(written)) => found == written,
                _ => made.as_ref() == Some(&head.etag),
            };
            let is_as_before = match (found, condition) {
                (Some(head), _) if is_it(&head) => return Ok(head.etag),
                (None, _) | (_, Condition::None) => true,
                (Some(head), Condition::Etag(before)) => head.etag == *before,
                (Some(_), Condition::Absent) => false,
            };
            if !is_as_before || made.is_none() {
                return Err(StoreError::Changed(key.into()).into());
            }
            if begun.elapsed() >= self.settings.seen_within {
                return Err(Error::InDoubt(format!("{key} is not there after it was made")));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_LAST);
        }
    }

    /// Begins a multipart upload; its identity. It is noted, and so is that there may be another of the key whose answer was lost:
    /// the next start ends these. That need not be durable before the parts, nor noted at all: what is forgotten is left to the
    /// bucket's lifecycle rules.
    pub(super) fn begin_multipart(&self, key: &str, properties: &Properties) -> Result<String> {
        let below = key[self.settings.prefix.len()..].to_owned();
        // The next start looks for all uploads of temporary keys.
        let mut stays_noted = false;
        if !below.starts_with(TEMPORARY) {
            let mut tree = self.tree();
            // One of an earlier upload of the key, whose answer was lost.
            stays_noted = tree.beginnings.contains(&below);
            let begins = [Change::MultipartBegins(below.clone())];
            // On a full disk an upload may be what makes room.
            if !stays_noted && self.state.append(&begins).is_ok() {
                tree.beginnings.insert(below.clone());
            }
        }
        let Begun { upload, is_alone } = self.store().begin(key, properties)?;
        stays_noted |= !is_alone && !below.starts_with(TEMPORARY);
        let mut batch = vec![Change::Multipart(below.clone(), upload.clone())];
        if stays_noted {
            batch.push(Change::MultipartBegins(below.clone()));
        }
        let mut tree = self.tree();
        let _ = self.state.append_end(&batch);
        if !stays_noted {
            tree.beginnings.remove(&below);
        }
        tree.multiparts.insert(upload.clone(), below);
        Ok(upload)
    }

    fn put_segment(
        &self,
        job: &Job,
        key: &str,
        upload: &str,
        number: i32,
        segment: &Segment,
    ) -> Result<String> {
        let range = segment.range.clone();
        match &job.base {
            Some((base, etag, _)) if segment.copy => {
                Ok(self.store().copy_part(key, upload, number, base, etag, range)?)
            }
            _ => self.bodies.with(segment.bytes(), || {
                let bytes = self.bytes(job, range)?;
                Ok(self.store().upload_part(key, upload, number, bytes)?)
            }),
        }
    }

    /// Makes a temporary object, the first piece of which is long enough for a part.
    fn compose(&self, job: &Job, composed: &Composed) -> Result<Temporary> {
        let pieces = composed.pieces();
        let (first, pieces) = pieces.split_first().ok_or(Error::Invalid)?;
        let mut made: Option<Temporary> = None;
        for segment in pieces {
            let key = self.temporary_key();
            let etag = self.multipart(
                &key,
                &Properties::default(),
                &Condition::None,
                2,
                |upload, index| match (index, &made) {
                    (0, None) => self.put_segment(job, &key, upload, 1, first),
                    (0, Some(former)) => {
                        let Temporary { key: from, etag, size } = former;
                        Ok(self.store().copy_part(&key, upload, 1, from, etag, 0..*size)?)
                    }
                    _ => self.put_segment(job, &key, upload, 2, segment),
                },
            );
            let former = made.take();
            if let Some(former) = &former {
                self.discard(former);
            }
            let size = former.map_or(first.bytes(), |former| former.size) + segment.bytes();
            made = Some(Temporary { key, etag: etag?, size });
        }
        made.ok_or(Error::Invalid)
    }

    fn discard(&self, temporary: &Temporary) {
        // What stays is removed at the next start.
        let _ = self.store().delete(&temporary.key);
    }

    /// Copies an object of any size, with its metadata or other.
    pub(super) fn copy_object(
        &self,
        from: &str,
        etag: &str,
        size: u64,
        to: &str,
        properties: Option<&Properties>,
    ) -> Result<String> {
        if size == 0 && from.ends_with('/') {
            // Some stores refuse to copy a directory's marker.
            let head = self.store().head(from)?;
            if head.etag != etag {
                return Err(StoreError::Changed(from.into()).into());
            }
            let properties = properties.unwrap_or(&head.properties);
            return Ok(self.store().put(to, Vec::new(), properties, &Condition::None)?);
        }
        if size <= COPY_BYTES_MAX {
            return Ok(self.store().copy(from, etag, to, properties)?);
        }
        let properties = match properties {
            Some(properties) => properties.clone(),
            None => self.store().head(from)?.properties,
        };
        let limits = &self.settings.limits;
        let Plan::Parts(parts) = plan(size, size, &RangeSet::default(), limits) else {
            return Err(Error::Invalid);
        };
        self.multipart(to, &properties, &Condition::None, parts.len(), |upload, index| {
            let number = index as i32 + 1;
            Ok(self.store().copy_part(to, upload, number, from, etag, parts[index].range())?)
        })
    }
}
