//! One node's way into the bucket: what is uploaded is decided under the lock, then transferred, then noted.
//!
//! An object says in its metadata who wrote it and how many of its node's changes it has ([`WRITE_ID`]). So an upload whose
//! answer was lost, also by a crash, is told from an object of somebody else: see `doubt`.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::doubt::Makes;
use super::tree::{Doubt, Remote, Stream, Tree};
use super::{FileSystem, Result, say};
use crate::metadata::{self, Kind, Properties, WRITE_ID, identity};
use crate::ranges::RangeSet;
use crate::state_file::Change;
use crate::store::{Condition, StoreError};

/// How long a node whose upload failed is left alone, unless somebody syncs it.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// What is uploaded of a node.
#[derive(Clone)]
pub(super) struct Job {
    pub id: u64,
    /// The whole key.
    pub key: String,
    pub kind: Kind,
    pub properties: Properties,
    pub condition: Condition,
    /// The object that the content is based on: its key, ETag and size.
    pub base: Option<(String, String, u64)>,
    pub target: Option<String>,
    pub size: u64,
    /// How many bytes of the base count.
    pub base_bytes: u64,
    /// Ranges that the base lacks.
    pub dirty: RangeSet,
    /// Ranges that may be read from the spool.
    pub in_spool: RangeSet,
    pub spool: Option<Arc<File>>,
    /// The beginning of a new file, uploaded already, and what is dirty beside it.
    pub stream: Option<(Stream, RangeSet)>,
    /// What was dirty.
    pub content: bool,
    pub attributes: bool,
}

impl Job {
    /// The bucket has the bytes, and lacks attributes.
    pub fn is_attributes_only(&self) -> bool {
        !self.content && self.base.is_some()
    }
}

impl FileSystem {
    /// Brings into the bucket what it lacks of a node, and waits for whoever does that already.
    pub(super) fn upload(&self, id: u64) -> Result<()> {
        let _stay = self.stay();
        let is_leftover = {
            let tree = self.tree();
            tree.nodes.contains_key(&id) && tree.leftovers.contains_key(&tree.key(id))
        };
        if is_leftover {
            self.remove_leftovers()?;
        }
        for _ in 0..8 {
            let Some(job) = self.begin_upload(id)? else { return Ok(()) };
            let written = identity(&job.properties).unwrap_or_default();
            match self.certain(&job.key, Makes::Object(written), || self.transfer(&job)) {
                Ok(etag) => {
                    self.end_upload(&job, etag);
                    return Ok(());
                }
                Err(super::Error::Store(StoreError::Changed(_) | StoreError::NotFound(_))) => {
                    if self.resolve(&job)? {
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.fail_upload(&job);
                    self.uploads_failed.fetch_add(1, Relaxed);
                    return Err(error);
                }
            }
        }
        Err(super::Error::Stale)
    }

    /// Decides what is uploaded; the node is busy then. `None` if the bucket lacks nothing.
    fn begin_upload(&self, id: u64) -> Result<Option<Job>> {
        let mut tree = self.tree();
        if !tree.nodes.contains_key(&id) {
            return Ok(None);
        }
        tree = self.occupy(tree, id)?;
        while tree.has_busy_twin(id) {
            // Both have one object.
            self.vacate(&mut tree, id);
            tree = self.wait(tree);
            tree = self.occupy(tree, id)?;
        }
        if tree.nodes[&id].may_be_gone() {
            drop(tree);
            let sure = self.make_sure(id);
            tree = self.tree();
            if let Err(error) = sure {
                self.vacate(&mut tree, id);
                return Err(error);
            }
        }
        let streams = |tree: &Tree| {
            let stream = tree.get(id).and_then(|node| node.content.stream.as_ref());
            stream.is_some_and(|stream| stream.in_flight > 0)
        };
        while streams(&tree) {
            tree = self.wait(tree);
        }
        // What has no name any more is not needed after its last close.
        if !tree.nodes[&id].is_dirty() || tree.nodes[&id].removed {
            tree.dirty.remove(&id);
            self.vacate(&mut tree, id);
            return Ok(None);
        }
        let key = tree.key(id);
        if tree.moves.values().any(|begun| begun.failed && begun.concerns(&key)) {
            // The next start would end it, over what would be uploaded now.
            self.node(&mut tree, id)?.retry_after = Some(Instant::now() + RETRY);
            self.vacate(&mut tree, id);
            let why = "the end of a rename cannot be noted";
            return Err(StoreError::Failed(format!("{key} is not uploaded: {why}")).into());
        }
        let key = self.key(&tree, id);
        // A directory's marker with bytes of another program keeps them.
        let marker = tree.content_of_marker(id).and_then(|(_, content)| content.remote.clone());
        let node = self.node(&mut tree, id)?;
        let object = marker.or_else(|| node.remote.clone());
        let known = object.as_ref().and_then(|remote| remote.properties.as_deref());
        let mut properties = known.cloned().unwrap_or_default();
        metadata::write(&node.attributes, &mut properties);
        if node.content.changed {
            metadata::forget_hashes(&mut properties);
        }
        let write_id = format!("{}-{id}-{}", self.owner, node.version);
        properties.user.insert(WRITE_ID.into(), write_id);
        let own = node.remote.as_ref().map(|remote| remote.etag.clone());
        let condition = match (node.is_directory(), own.or_else(|| node.replaces.clone())) {
            // Markers have nothing to lose.
            (true, _) => Condition::None,
            (_, Some(etag)) => Condition::Etag(etag),
            (_, None) => Condition::Absent,
        };
        let content = &mut node.content;
        let beside = content.dirty.clone();
        let streamed = std::mem::take(&mut content.streamed);
        content.dirty.extend(&streamed);
        let job = Job {
            stream: content.stream.take().map(|stream| (*stream, beside)),
            id,
            kind: node.attributes.kind,
            properties,
            condition,
            base: object.map(|remote| (key.clone(), remote.etag, remote.size)),
            key,
            target: node.target.clone(),
            size: content.size,
            base_bytes: content.base,
            in_spool: content.in_spool(),
            spool: content.spool.clone(),
            dirty: content.dirty.clone(),
            content: content.changed,
            attributes: node.attributes_dirty,
        };
        content.uploading = std::mem::take(&mut content.dirty);
        content.least = content.size;
        (content.changed, content.written_since) = (false, None);
        node.attributes_dirty = false;
        Ok(Some(job))
    }

    /// The bucket has it.
    pub(super) fn end_upload(&self, job: &Job, etag: String) {
        let mut tree = self.tree();
        tree.changed_remotely(job.id);
        if let Some(node) = tree.nodes.get_mut(&job.id) {
            node.remote = Some(Remote {
                etag,
                size: job.object_size(),
                properties: Some(Box::new(job.properties.clone())),
                checked: Instant::now(),
            });
            node.known = true;
            node.replaces = None;
            node.doubt = None;
            node.retry_after = None;
            let content = &mut node.content;
            let uploaded = std::mem::take(&mut content.uploading);
            content.same.extend(&uploaded);
            content.base = content.least.min(job.object_size());
        }
        if let Some(content) = tree.content_of_marker(job.id).map(|(content, _)| content)
            && let Some(remote) = tree.nodes[&job.id].remote.clone()
        {
            // It is the same object.
            tree.changed_remotely(content);
            if let Some(content) = tree.nodes.get_mut(&content) {
                content.remote = Some(remote);
            }
        }
        self.settle(&mut tree, job.id);
        let stale = tree.nodes.get_mut(&job.id).is_some_and(|node| {
            // Attributes set meanwhile are pending, and were noted with an object and content that are superseded.
            node.kept = None;
            node.recorded
        });
        let position =
            if stale { self.record_end(&mut tree, job.id, Vec::new()).ok() } else { None };
        self.vacate(&mut tree, job.id);
        if let Some(node) = tree.nodes.get_mut(&job.id) {
            self.drop_spool_if_clean(job.id, node);
        }
        self.compact_if_long(&mut tree);
        drop(tree);
        if let Some(position) = position
            && let Err(error) = self.state.durable(position)
        {
            say(&format!("the state file cannot be synced: {error}"));
        }
    }

    /// Notes that the bucket has a node's attributes, and forgets what was pending of it.
    pub(super) fn settle(&self, tree: &mut Tree, id: u64) {
        let Some(node) = tree.nodes.get_mut(&id) else { return };
        if !node.is_dirty() {
            tree.dirty.remove(&id);
        }
        if node.recorded && !node.attributes_dirty {
            // If this is lost, the next start finds the object and knows it by its write's identity.
            if self.state.append_end(&[Change::Settled(id)]).is_ok() {
                node.recorded = false;
            }
            node.kept = None;
        }
    }

    /// The bucket does not have it: all is as before.
    pub(super) fn fail_upload(&self, job: &Job) {
        let mut tree = self.tree();
        if let Some(node) = tree.nodes.get_mut(&job.id) {
            let content = &mut node.content;
            let back = std::mem::take(&mut content.uploading);
            content.dirty.extend(&back);
            content.changed |= job.content;
            node.attributes_dirty |= job.attributes;
            node.doubt = Some(Box::new(Doubt::of_write()));
            node.retry_after = Some(Instant::now() + RETRY);
            if node.is_dirty() && !node.removed {
                tree.dirty.insert(job.id);
            }
        }
        self.vacate(&mut tree, job.id);
    }

    /// Writes the state file anew when most of it is superseded.
    pub(super) fn compact_if_long(&self, tree: &mut Tree) {
        if self.state.is_long()
            && let Err(error) = self.state.compact(&tree.live())
        {
            say(&format!("the state file could not be written anew, and grows: {error}"));
        }
    }
}

impl Job {
    /// The size of the object that it makes.
    pub fn object_size(&self) -> u64 {
        match self.kind {
            Kind::File => self.size,
            Kind::Directory => self.base.as_ref().map_or(0, |(.., size)| *size),
            Kind::Symlink if self.base.is_some() => {
                self.base.as_ref().map_or(0, |(.., size)| *size)
            }
            Kind::Symlink => self.target.as_ref().map_or(0, |target| target.len() as u64),
        }
    }
}
