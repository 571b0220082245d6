//! Somebody else changed an object that was changed here, too. Both are kept: theirs under its key, ours beside it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use super::doubt::{Makes, written_version};
use super::tree::{Node, Remote};
use super::upload::Job;
use super::{Error, FileSystem, Result, say};
use crate::metadata::{Kind, identity};
use crate::store::{Condition, Head};

impl FileSystem {
    /// An upload did not find the object that it was to replace. Whether the bucket has ours now; otherwise the upload is
    /// to be begun anew.
    pub(super) fn resolve(&self, job: &Job) -> Result<bool> {
        let head = match self.object(&job.key) {
            Ok(head) => head,
            Err(error) => {
                self.fail_upload(job);
                return Err(error);
            }
        };
        if job.kind == Kind::Directory {
            self.marker_changed(job, head)?;
            return Ok(false);
        }
        let Some(head) = head else {
            self.removed_by_others(job)?;
            return Ok(false);
        };
        if identity(&head.properties) == identity(&job.properties) {
            // It was done, and the answer lost.
            self.end_upload(job, head.etag);
            return Ok(true);
        }
        if job.condition == Condition::Etag(head.etag.clone()) {
            // The request was refused for another reason, for example because another was under way.
            self.fail_upload(job);
            return Ok(false);
        }
        let is_own = {
            let mut tree = self.tree();
            let known = self.node(&mut tree, job.id)?.remote.as_ref().and_then(Remote::written);
            written_version(&head, &self.owner, job.id, known).is_some()
        };
        if is_own {
            // An earlier upload of the same node, whose answer was lost.
            self.fail_upload(job);
            let mut tree = self.tree();
            let node = self.node(&mut tree, job.id)?;
            node.remote = Some(Remote::of(head));
            return Ok(false);
        }
        if job.is_attributes_only() && job.kind != Kind::Directory {
            // Only attributes were set here: theirs counts.
            self.end_as_theirs(job, head)?;
            return Ok(true);
        }
        let result = self.keep_both(job, head);
        if result.is_err() {
            self.fail_upload(job);
        }
        result.map(|()| true)
    }

    /// A directory's marker, which had bytes of another program, is another object now, or gone: the attributes go there.
    fn marker_changed(&self, job: &Job, head: Option<Head>) -> Result<()> {
        self.fail_upload(job);
        let mut tree = self.tree();
        if let Some((id, content)) = tree.content_of_marker(job.id)
            && !content.is_dirty()
            && !content.busy
        {
            match &head {
                None if content.opens == 0 => tree.detach(id),
                Some(head) => {
                    if let Some(content) = tree.nodes.get_mut(&id) {
                        content.content.reset(head.size);
                        content.remote = Some(Remote::of(head.clone()));
                    }
                }
                None => {}
            }
        }
        let node = self.node(&mut tree, job.id)?;
        node.entries.listed = None;
        node.remote = head.map(Remote::of);
        Ok(())
    }

    /// The object is gone: ours is made anew, with zeros where only the object had the bytes.
    fn removed_by_others(&self, job: &Job) -> Result<()> {
        self.fail_upload(job);
        let mut tree = self.tree();
        let Some(node) = tree.nodes.get_mut(&job.id) else { return Ok(()) };
        if job.is_attributes_only() && !node.removed {
            say(&format!("{} was removed by somebody else", job.key));
            self.forget_name(&mut tree, job.id)?;
            return Ok(());
        }
        if node.content.base > 0 {
            say(&format!(
                "{} was removed by somebody else while it was changed here: what was not changed is lost, and zeros now",
                job.key
            ));
            self.conflicts.fetch_add(1, Relaxed);
        }
        node.content.base = 0;
        node.remote = None;
        node.replaces = None;
        Ok(())
    }

    fn end_as_theirs(&self, job: &Job, head: Head) -> Result<()> {
        let size = head.size;
        let attributes = self.settings.defaults.read(&head.properties, false, head.modified);
        let etag = head.etag.clone();
        self.end_upload(job, etag);
        let mut tree = self.tree();
        let node = self.node(&mut tree, job.id)?;
        node.attributes = attributes;
        node.remote = Some(Remote::of(head));
        if !node.content.changed {
            node.content.reset(size);
        }
        // It may be another link now, or none.
        node.target = None;
        node.known = node.attributes.kind == Kind::File;
        self.conflicts.fetch_add(1, Relaxed);
        say(&format!("{} was changed by somebody else: attributes set here are given up", job.key));
        Ok(())
    }

    /// Stores ours beside theirs.
    fn keep_both(&self, job: &Job, head: Head) -> Result<()> {
        let name = conflict_name(&self.node(&mut self.tree(), job.id)?.segment);
        let key = match job.key.rsplit_once('/') {
            Some((directory, _)) => format!("{directory}/{name}"),
            None => name.clone(),
        };
        let beside = Job {
            key: key.clone(),
            condition: Condition::Absent,
            stream: None,
            // What was not changed here is as they have it: what it was is gone.
            base: job.base.as_ref().map(|_| (job.key.clone(), head.etag.clone(), head.size)),
            base_bytes: job.base_bytes.min(head.size),
            ..job.clone()
        };
        let written = identity(&beside.properties).unwrap_or_default();
        let etag = self.certain(&key, Makes::Object(written), || self.transfer(&beside))?;
        self.conflicts.fetch_add(1, Relaxed);
        say(&format!("{} was changed by somebody else: theirs is kept, ours is {key}", job.key));
        // Ours is the same node under another name; theirs is a new one.
        let mut tree = self.tree();
        let node = tree.nodes.get_mut(&job.id).ok_or(Error::NotFound)?;
        let (parent, former, segment) = (node.parent, node.name.clone(), node.segment.clone());
        let was_removed = node.removed;
        if !was_removed {
            tree.place(job.id, parent, &name, &name);
            let attributes = self.settings.defaults.attributes(Kind::File, head.modified);
            let mut theirs = Node::new(parent, former, segment, attributes);
            theirs.content.reset(head.size);
            theirs.remote = Some(Remote::of(head));
            tree.add(theirs);
        }
        drop(tree);
        self.end_upload(job, etag);
        Ok(())
    }
}

/// `NAME.weir-conflict-SECONDS-NUMBER`, as much of the name as fits.
fn conflict_name(name: &str) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let suffix = format!(".weir-conflict-{}-{:09}", since.as_secs(), since.subsec_nanos());
    let mut end = name.len().min(crate::key::NAME_BYTES_MAX - suffix.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &name[..end])
}
