//! Large new files are uploaded while they are written, so that the sync at the end has little left to do. Those that are written within
//! two seconds are not: the sync would gain no more than that, and what is uploaded before is copied once more.
//!
//! When a new file has been written in order for [`PARTS_MIN`] parts, these go into a *temporary* object: the metadata of
//! an object is given when its upload begins, and a file's is not known before its end. The file's own upload then takes the
//! temporary object for its base: the bucket copies it, and only the rest is uploaded. What is written again in between is
//! a change of the base like any other. If anything of this fails, the file is uploaded from the spool as a whole.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::data::read_spool;
use super::tree::{Node, Stream};
use super::upload::Job;
use super::{FileSystem, Result, in_parallel};
use crate::metadata::{Kind, Properties};
use crate::state_file::Change;
use crate::store::Condition;

/// A file of which this much is written, in order, is uploaded while it grows.
const PARTS_MIN: u64 = 8;
/// So near to its end nothing is uploaded: it may be written again.
const PARTS_BEHIND: u64 = 1;
const PARTS_MAX: u64 = 9_000;
const TICK: Duration = Duration::from_millis(20);

/// A part to be uploaded now.
struct Due {
    id: u64,
    key: String,
    upload: Option<String>,
    part: u64,
    spool: std::sync::Arc<std::fs::File>,
}

impl FileSystem {
    /// Uploads parts of files that are being written, until the file system is stopped.
    pub fn run_streamer(&self) {
        while !self.stopping.load(Relaxed) {
            if !self.stream_some() {
                std::thread::sleep(TICK);
            }
        }
    }

    /// Uploads some parts. Whether there were any.
    pub(super) fn stream_some(&self) -> bool {
        let due = self.due_parts();
        let begun = in_parallel(&due, self.settings.parallel, |due| self.stream_part(due));
        let mut tree = self.tree();
        for (due, result) in due.iter().zip(begun) {
            let Some(stream) =
                tree.nodes.get_mut(&due.id).and_then(|node| node.content.stream.as_mut())
            else {
                continue;
            };
            stream.in_flight -= 1;
            match result {
                Ok((upload, etag)) => {
                    stream.upload = Some(upload);
                    stream.etags.insert(due.part, etag);
                }
                Err(_) => stream.failed = true,
            }
        }
        self.idle.notify_all();
        !due.is_empty()
    }

    fn due_parts(&self) -> Vec<Due> {
        if self.store.is_fenced() {
            return Vec::new();
        }
        let mut tree = self.tree();
        let ids: Vec<u64> = tree.dirty.iter().copied().collect();
        let part = self.settings.limits.part;
        let mut due = Vec::new();
        for id in ids {
            let Some(node) = tree.nodes.get_mut(&id) else { continue };
            let is_small = node.content.size < PARTS_MIN * part;
            if node.busy || node.opens == 0 || is_small {
                continue;
            }
            let written = written_in_order(node);
            if written < PARTS_MIN * part {
                continue;
            }
            let content = &mut node.content;
            let Some(spool) = &content.spool else { continue };
            let since = content.written_since.map_or(Duration::ZERO, |since| since.elapsed());
            if content.stream.is_none() && since < self.settings.stream_after {
                continue;
            }
            let stream = content.stream.get_or_insert_with(|| {
                Box::new(Stream {
                    key: self.temporary_key(),
                    upload: None,
                    next: 0,
                    in_flight: 0,
                    etags: BTreeMap::new(),
                    failed: false,
                    valid: u64::MAX,
                })
            });
            while !stream.failed
                && (stream.next + 1 + PARTS_BEHIND) * part <= written
                && stream.next < PARTS_MAX
                && due.len() < self.settings.parallel
            {
                if stream.upload.is_none() && stream.in_flight > 0 {
                    // The first part begins the upload.
                    break;
                }
                let range = stream.next * part..(stream.next + 1) * part;
                content.dirty.remove(range.clone());
                content.streamed.insert(range);
                let (key, upload) = (stream.key.clone(), stream.upload.clone());
                due.push(Due { id, key, upload, part: stream.next, spool: spool.clone() });
                stream.next += 1;
                stream.in_flight += 1;
            }
        }
        due
    }

    fn stream_part(&self, due: &Due) -> Result<(String, String)> {
        let upload = match &due.upload {
            Some(upload) => upload.clone(),
            None => self.begin_multipart(&due.key, &Properties::default())?,
        };
        let part = self.settings.limits.part;
        let etag = self.bodies.with(part, || {
            let mut bytes = vec![0; part as usize];
            read_spool(&due.spool, &mut bytes, due.part * part)?;
            Ok::<_, super::Error>(self.store().upload_part(
                &due.key,
                &upload,
                due.part as i32 + 1,
                bytes,
            )?)
        });
        if etag.is_err() && due.upload.is_none() {
            // Nobody else knows of it.
            self.give_up(&due.key, &upload);
        }
        Ok((upload, etag?))
    }

    /// Makes the temporary object of a stream that nobody adds to: how the file is uploaded with it as its base. Without
    /// one, from the spool alone.
    pub(super) fn with_stream(&self, job: &Job, stream: &Stream) -> Option<Job> {
        let upload = stream.upload.as_ref()?;
        let parts: Vec<(i32, String)> =
            stream.etags.iter().map(|(part, etag)| (*part as i32 + 1, etag.clone())).collect();
        let size = stream.next * self.settings.limits.part;
        let is_whole = !stream.failed && parts.len() as u64 == stream.next && stream.valid > 0;
        let made =
            is_whole.then(|| self.complete(&stream.key, upload, &parts, &Condition::None, None));
        match &made {
            Some(Ok(_)) => self.forget_multipart(upload),
            // It may be under way yet: the next start ends it.
            Some(Err(super::Error::InDoubt(_))) => {}
            _ => self.give_up(&stream.key, upload),
        }
        let etag = made?.ok()?;
        Some(Job {
            base: Some((stream.key.clone(), etag, size)),
            base_bytes: size.min(stream.valid).min(job.size),
            ..job.clone()
        })
    }

    /// Gives up what was uploaded of a file that is removed.
    pub(super) fn abandon_stream(&self, id: u64) {
        let mut tree = self.tree();
        let Some(stream) = tree.nodes.get_mut(&id).and_then(|node| node.content.stream.take())
        else {
            return;
        };
        drop(tree);
        if let Some(upload) = &stream.upload {
            self.give_up(&stream.key, upload);
        }
    }

    /// Ends an upload that is of no use any more. If this fails, the next start does it.
    pub(super) fn give_up(&self, key: &str, upload: &str) {
        if self.store().abort(key, upload).is_ok() {
            self.forget_multipart(upload);
        }
    }

    pub(super) fn forget_multipart(&self, upload: &str) {
        let mut tree = self.tree();
        tree.multiparts.remove(upload);
        // If this is lost, the next start gives up an upload that is not there.
        let _ = self.state.append_end(&[Change::MultipartEnded(upload.to_owned())]);
    }
}

/// Whether a file is uploaded while it grows, or will be.
pub(super) fn is_streamed(node: &Node, part: u64) -> bool {
    let stream = node.content.stream.as_ref();
    let is_of_use = stream.is_none_or(|stream| !stream.failed && stream.valid == u64::MAX);
    node.opens > 0 && is_of_use && written_in_order(node) >= PARTS_MIN * part
}

/// How many bytes of those that the bucket lacks are uploaded while the file grows.
pub(super) fn to_be_streamed(node: &Node, part: u64) -> u64 {
    if !is_streamed(node, part) {
        return 0;
    }
    let (content, written) = (&node.content, written_in_order(node));
    let next = content.stream.as_ref().map_or(0, |stream| stream.next);
    let taken = next * part..written.min(PARTS_MAX * part).max(next * part);
    content.dirty.within(taken).map(|range| range.end - range.start).sum()
}

/// How much of a new file is written from its beginning without a gap.
fn written_in_order(node: &Node) -> u64 {
    let is_new =
        node.remote.is_none() && node.attributes.kind == Kind::File && node.content.base == 0;
    if !is_new || !node.content.changed {
        return 0;
    }
    let mut written = node.content.streamed.clone();
    written.extend(&node.content.dirty);
    written.iter().next().filter(|range| range.start == 0).map_or(0, |range| range.end)
}
