//! What is known of the bucket, and what differs from it.
//!
//! Owns nodes, their places and their flags. Does no I/O and decides nothing about it. All is under one lock, which is
//! not held while the bucket is asked.
//!
//! Invariants:
//! - a node is *dirty* if the bucket does not have its attributes or content; [`Tree::dirty`] has these, and those that
//!   are being uploaded;
//! - while a node is *busy*, one thread changes its object, and nobody else does;
//! - a directory's `listed` is set if its entries are all that the bucket has below, and all that was made here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use crate::key;
use crate::metadata::{self, Attributes, Kind, Properties, Time};
use crate::ranges::RangeSet;
use crate::state_file::{self, Change};
use crate::store::Head;

/// The root's number.
pub const ROOT: u64 = 1;

/// A node's object.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its ETag.
    pub etag: String,
    /// Its size, bytes.
    pub size: u64,
    /// Its metadata, if that was asked for.
    pub properties: Option<Box<Properties>>,
    /// When the bucket was asked last.
    pub checked: Instant,
}

impl Remote {
    /// An object that was just asked for.
    pub fn of(head: Head) -> Remote {
        Remote {
            etag: head.etag,
            size: head.size,
            properties: Some(Box::new(head.properties)),
            checked: Instant::now(),
        }
    }

    /// The identity of the write that made it, if that is known and it has one.
    pub fn written(&self) -> Option<&str> {
        self.properties.as_deref().and_then(metadata::identity)
    }
}

/// What a request was to do to a node's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Write it anew.
    Write,
    /// Remove it.
    Removal,
    /// Put another node's object in its place, by the write of this identity.
    Replacement(String),
}

/// Where the object of a file is that has no name any more, but is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// Its whole key.
    pub key: String,
    /// Its ETag.
    pub etag: String,
}

/// Neither the answer to a request came, nor one that says what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The request.
    pub asked: Asked,
    /// Where the object is if it was done.
    pub away: Option<Away>,
}

impl Doubt {
    /// Of a request to write the node's own object. The next upload finds out.
    pub fn of_write() -> Doubt {
        Doubt { asked: Asked::Write, away: None }
    }

    /// Whether the node may be gone.
    pub fn is_about_name(&self) -> bool {
        self.asked != Asked::Write
    }
}

/// Objects that are being moved.
#[derive(Clone, Debug)]
pub struct Move {
    /// From this key below the prefix; one that ends in a slash means all below.
    pub from: String,
    /// To this one.
    pub to: String,
    /// The ETag of the object, if a single one is moved, and of the one that it replaces.
    pub etag: Option<String>,
    /// See above.
    pub replaced: Option<String>,
    /// Bytes that its end may take in the state file.
    pub room: u64,
    /// It is over, and that could not be noted yet: the next start would end it.
    pub failed: bool,
    /// The ETags of the copies, of nodes that are pending, once all are copied.
    pub copied: Option<Vec<(u64, String)>>,
}

impl Move {
    /// What the state file says of it.
    pub fn noted(&self, id: u64) -> Change {
        let Move { from, to, etag, replaced, .. } = self.clone();
        Change::Move { id, from, to, etag, replaced }
    }

    /// Whether all below a key is moved. A single object may have a key that ends in a slash, too.
    pub fn is_of_directory(&self) -> bool {
        self.from.ends_with('/') && self.etag.is_none()
    }

    /// Whether it moves the object with this key, or puts one there.
    pub fn concerns(&self, key: &str) -> bool {
        [&self.from, &self.to].into_iter().any(|end| match self.is_of_directory() {
            true => key.starts_with(end.as_str()),
            false => key == end,
        })
    }
}

/// What the state file says of an object that is to be removed yet.
pub fn leftover(key: &str, etag: Option<&str>) -> Change {
    match etag {
        Some(etag) => Change::LeftoverOf(key.to_owned(), etag.to_owned()),
        None => Change::Leftover(key.to_owned()),
    }
}

/// A temporary object of the beginning of a new file.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its whole key.
    pub key: String,
    /// Its upload, once that is begun.
    pub upload: Option<String>,
    /// How many parts it has, or is being given.
    pub next: u64,
    /// Parts on their way.
    pub in_flight: usize,
    /// The parts that it has.
    pub etags: BTreeMap<u64, String>,
    /// A part could not be uploaded.
    pub failed: bool,
    /// How many of its bytes count: the file was shorter meanwhile.
    pub valid: u64,
}

/// A file's bytes: the object's first `base` bytes, over them what the spool has, zeros elsewhere.
#[derive(Debug, Default)]
pub struct Content {
    /// Bytes.
    pub size: u64,
    /// How many bytes of the object count.
    pub base: u64,
    /// Ranges in the spool that the object lacks.
    pub dirty: RangeSet,
    /// Ranges in the spool that are on their way.
    pub uploading: RangeSet,
    /// Ranges in the spool that the object has, too.
    pub same: RangeSet,
    /// Ranges in the spool that a temporary object has, or is being given.
    pub streamed: RangeSet,
    /// That object.
    pub stream: Option<Box<Stream>>,
    /// The least size since the upload under way began.
    pub least: u64,
    /// The spool.
    pub spool: Option<Arc<File>>,
    /// Bytes, or the size, differ from the object.
    pub changed: bool,
    /// When the first bytes that differ were written.
    pub written_since: Option<Instant>,
}

impl Content {
    /// Ranges that are read from the spool.
    pub fn in_spool(&self) -> RangeSet {
        let mut all = self.dirty.clone();
        for other in [&self.uploading, &self.same, &self.streamed] {
            all.extend(other);
        }
        all
    }

    /// Makes the content that of an object.
    pub fn reset(&mut self, size: u64) {
        *self = Content { size, base: size, ..Content::default() };
    }

    /// Sets the size; bytes that are cut off read as zeros later.
    pub fn truncate(&mut self, size: u64) {
        for set in [&mut self.dirty, &mut self.same, &mut self.streamed] {
            set.remove(size..u64::MAX);
        }
        if size < self.size {
            if let Some(stream) = &mut self.stream {
                stream.valid = stream.valid.min(size);
            }
            // What is on its way beyond the end must not be seen if the file grows again.
            let cut: Vec<_> = self.uploading.within(size..u64::MAX).collect();
            for range in cut {
                self.uploading.remove(range);
            }
        }
        self.base = self.base.min(size);
        self.least = self.least.min(size);
        self.size = size;
        self.changed = true;
    }
}

/// Somebody asks for one name of a directory after the other: names that follow are asked for with them, twice as many each time.
#[derive(Debug, Default)]
pub struct InOrder {
    /// The names that were asked for at once last: the first, the last, and how many.
    first: String,
    last: String,
    count: usize,
}

impl InOrder {
    /// A name of a directory is asked for: the nodes to ask for at once, this one first, `most` at most. Some names may be left out between two that
    /// count as in order, so that few are asked for in vain: a quarter of those asked for last.
    fn follow(
        &mut self,
        names: &BTreeMap<String, u64>,
        name: &str,
        id: u64,
        most: usize,
    ) -> Vec<u64> {
        let InOrder { first, last, count } = self;
        if *count > 0 && (first.as_str()..=last.as_str()).contains(&name) {
            // Another thread has them asked for, or this one was not known.
            return vec![id];
        }
        let after = names.range::<str, _>((Bound::Excluded(last.as_str()), Bound::Unbounded));
        let follows = after.take((*count / 4).max(1)).any(|(next, _)| next == name);
        *count = if *count > 0 && follows { (2 * *count).min(most) } else { 1 };
        let window = names.range::<str, _>((Bound::Included(name), Bound::Unbounded));
        let (window, ids): (Vec<_>, Vec<_>) = window.take(*count).unzip();
        name.clone_into(first);
        window.last().map_or(name, |last| last.as_str()).clone_into(last);
        ids.into_iter().copied().collect()
    }
}

/// A directory's entries.
#[derive(Debug, Default)]
pub struct Entries {
    /// Nodes by name.
    pub by_name: BTreeMap<String, u64>,
    /// When the bucket said that these are all.
    pub listed: Option<Instant>,
    /// It is being listed.
    pub listing: bool,
    /// What was asked for last of names in it.
    pub asked: InOrder,
    /// Keys' last segments whose objects were removed here, with the sequence of it, for listings that began before.
    pub removed: HashMap<(String, bool), u64>,
}

/// A file, directory or symbolic link.
#[derive(Debug)]
pub struct Node {
    /// The directory that has it.
    pub parent: u64,
    /// Its name there.
    pub name: String,
    /// Its key's last segment, without a slash.
    pub segment: String,
    /// Its attributes.
    pub attributes: Attributes,
    /// The attributes are those that the bucket has; otherwise it was not asked yet.
    pub known: bool,
    /// Its object; for a directory the marker.
    pub remote: Option<Remote>,
    /// The ETag of an object at its key that is not its own: the first upload replaces it.
    pub replaces: Option<String>,
    /// Something that was asked for may have been done.
    pub doubt: Option<Box<Doubt>>,
    /// Attributes, or the existence, differ from the bucket.
    pub attributes_dirty: bool,
    /// The state file has it as pending.
    pub recorded: bool,
    /// What the state file says of its content: the spool has that durably.
    pub kept: Option<Box<state_file::Content>>,
    /// Counts changes. An object tells by it which of them it has.
    pub version: u64,
    /// When it was changed last.
    pub changed_at: Option<Instant>,
    /// A failed upload is tried again after this.
    pub retry_after: Option<Instant>,
    /// One thread changes its object.
    pub busy: bool,
    /// When its object was changed last, in the tree's sequence.
    pub sequence: u64,
    /// Open descriptions.
    pub opens: u32,
    /// Times that the kernel was told its number, less those that it forgot.
    pub lookups: u64,
    /// It has no name any more.
    pub removed: bool,
    /// The whole key of its object, if that is not at its name.
    pub elsewhere: Option<String>,
    /// A symbolic link's target.
    pub target: Option<String>,
    /// A file's bytes.
    pub content: Content,
    /// A directory's entries.
    pub entries: Entries,
}

impl Node {
    /// A node of which nothing is known but its place.
    pub fn new(parent: u64, name: String, segment: String, attributes: Attributes) -> Self {
        Node {
            parent,
            name,
            segment,
            attributes,
            known: false,
            remote: None,
            replaces: None,
            doubt: None,
            attributes_dirty: false,
            recorded: false,
            kept: None,
            version: 0,
            changed_at: None,
            retry_after: None,
            busy: false,
            sequence: 0,
            opens: 0,
            lookups: 0,
            removed: false,
            elsewhere: None,
            target: None,
            content: Content::default(),
            entries: Entries::default(),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == Kind::Directory
    }

    /// Whether the bucket lacks something of it.
    pub fn is_dirty(&self) -> bool {
        self.attributes_dirty || self.content.changed
    }

    /// Whether it may be gone: see [`Doubt`].
    pub fn may_be_gone(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.is_about_name())
    }

    /// Its object is not under its name any more.
    pub fn go_away(&mut self, away: Option<Away>) {
        let Some(away) = away else { return };
        self.elsewhere = Some(away.key);
        if let Some(remote) = &mut self.remote {
            remote.etag = away.etag;
        }
    }
}

/// All nodes.
pub struct Tree {
    /// By number.
    pub nodes: HashMap<u64, Box<Node>>,
    /// Those that are dirty, or on their way.
    pub dirty: BTreeSet<u64>,
    /// The next number.
    pub next: u64,
    /// Numbers up to this one may be given.
    pub reserved: u64,
    /// Counts changes of the bucket made here.
    pub sequence: u64,
    /// Moves in the bucket that are under way, by their numbers.
    pub moves: BTreeMap<u64, Move>,
    /// Keys, below the prefix, of objects that were moved and are to be removed yet: they are not listed, and nothing is
    /// uploaded there. With their ETags, if these are known: another object there is somebody else's.
    pub leftovers: BTreeMap<String, Option<String>>,
    /// The last of them that was tried.
    pub left_tried: String,
    /// Multipart uploads under way: identities, and keys.
    pub multiparts: BTreeMap<String, String>,
    /// Keys of which there may be multipart uploads whose identities nobody knows.
    pub beginnings: BTreeSet<String>,
}

impl Tree {
    /// A tree with nothing but the root.
    pub fn new(root: Attributes) -> Self {
        let mut nodes = HashMap::new();
        let mut node = Node::new(ROOT, String::new(), String::new(), root);
        node.lookups = 1;
        nodes.insert(ROOT, Box::new(node));
        Tree {
            nodes,
            dirty: BTreeSet::new(),
            next: ROOT + 1,
            reserved: ROOT,
            sequence: 0,
            moves: BTreeMap::new(),
            leftovers: BTreeMap::new(),
            left_tried: String::new(),
            multiparts: BTreeMap::new(),
            beginnings: BTreeSet::new(),
        }
    }

    /// A node that is there.
    pub fn get(&self, id: u64) -> Option<&Node> {
        self.nodes.get(&id).map(Box::as_ref)
    }

    /// The node of a name.
    pub fn child(&self, parent: u64, name: &str) -> Option<u64> {
        self.nodes.get(&parent)?.entries.by_name.get(name).copied()
    }

    /// The node of what a directory's marker holds, if that is not empty.
    pub fn content_of_marker(&self, directory: u64) -> Option<(u64, &Node)> {
        let content = self.child(directory, &key::name_of("", true))?;
        self.get(content).filter(|node| node.segment.is_empty()).map(|node| (content, node))
    }

    /// Whether a directory's marker is being changed by the node of its content, or the other way round.
    pub fn has_busy_twin(&self, id: u64) -> bool {
        let of = |node: &Node| match node.is_directory() {
            true => self.content_of_marker(id).is_some_and(|(_, content)| content.busy),
            false => node.segment.is_empty() && self.get(node.parent).is_some_and(|at| at.busy),
        };
        self.get(id).is_some_and(of)
    }

    /// The nodes in a directory whose metadata is to be asked for with that of `id`, which is one of them: see [`InOrder`].
    pub fn asked_with(&mut self, directory: u64, id: u64, most: usize) -> Vec<u64> {
        let Some(name) = self.nodes.get(&id).map(|node| node.name.clone()) else { return vec![id] };
        let Some(of) = self.nodes.get_mut(&directory) else { return vec![id] };
        let Entries { by_name, asked, .. } = &mut of.entries;
        let mut ids = asked.follow(by_name, &name, id, most);
        let is_wanted =
            |other: &u64| *other == id || self.get(*other).is_some_and(|node| !node.known);
        ids.retain(is_wanted);
        ids
    }

    /// The key below the prefix; a directory's ends in a slash, the root's is empty.
    pub fn key(&self, id: u64) -> String {
        let mut segments = Vec::new();
        let mut at = id;
        while at != ROOT {
            // A file without a name may outlive its directory.
            let Some(node) = self.nodes.get(&at) else { break };
            segments.push(node.segment.as_str());
            at = node.parent;
        }
        segments.reverse();
        let mut key = segments.join("/");
        if id != ROOT && self.get(id).is_some_and(Node::is_directory) {
            key.push('/');
        }
        key
    }

    /// Adds a node under its name; its number.
    pub fn add(&mut self, node: Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.add_as(id, node);
        id
    }

    /// Adds a node that has a number.
    pub fn add_as(&mut self, id: u64, node: Node) {
        self.next = self.next.max(id + 1);
        let parent = self.nodes.get_mut(&node.parent).expect("the parent is there");
        parent.entries.by_name.insert(node.name.clone(), id);
        self.nodes.insert(id, Box::new(node));
    }

    /// Takes a node's name away. It is forgotten, unless somebody has it open or the kernel knows it.
    pub fn detach(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.removed = true;
        node.attributes_dirty = false;
        node.content.changed = false;
        node.recorded = false;
        let (parent, name) = (node.parent, node.name.clone());
        self.dirty.remove(&id);
        if let Some(parent) = self.nodes.get_mut(&parent)
            && parent.entries.by_name.get(&name) == Some(&id)
        {
            parent.entries.by_name.remove(&name);
        }
        self.forget_if_unused(id);
    }

    /// Forgets a removed node that nobody can name any more. Whether it did.
    pub fn forget_if_unused(&mut self, id: u64) -> bool {
        let unused =
            |node: &Node| node.removed && node.opens == 0 && node.lookups == 0 && !node.busy;
        if self.get(id).is_some_and(unused) {
            self.nodes.remove(&id);
            return true;
        }
        false
    }

    /// Gives a node another place.
    pub fn place(&mut self, id: u64, parent: u64, name: &str, segment: &str) {
        let node = self.nodes.get_mut(&id).expect("the node is there");
        let former = (node.parent, std::mem::replace(&mut node.name, name.to_owned()));
        node.parent = parent;
        node.segment = segment.to_owned();
        if let Some(directory) = self.nodes.get_mut(&former.0) {
            directory.entries.by_name.remove(&former.1);
        }
        let directory = self.nodes.get_mut(&parent).expect("the parent is there");
        directory.entries.by_name.insert(name.to_owned(), id);
    }

    /// Notes that the bucket lacks something of a node.
    pub fn touch(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.version += 1;
            node.changed_at = Some(Instant::now());
            if node.is_dirty() && !node.removed {
                self.dirty.insert(id);
            }
        }
    }

    /// Notes that a node's object was changed here.
    pub fn changed_remotely(&mut self, id: u64) {
        self.sequence += 1;
        let sequence = self.sequence;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.sequence = sequence;
        }
    }

    /// Notes that an object of a directory was removed here.
    pub fn removed_remotely(&mut self, parent: u64, segment: &str, directory: bool) {
        self.sequence += 1;
        let sequence = self.sequence;
        if let Some(parent) = self.nodes.get_mut(&parent) {
            let key = (segment.to_owned(), directory);
            parent.entries.removed.insert(key, sequence);
        }
    }

    /// A node and all below it that is in memory, parents first.
    pub fn below(&self, id: u64) -> Vec<u64> {
        let mut found = vec![id];
        let mut at = 0;
        while at < found.len() {
            if let Some(node) = self.nodes.get(&found[at]) {
                found.extend(node.entries.by_name.values());
            }
            at += 1;
        }
        found
    }

    /// Whether a node, or one below, is dirty or in the state file.
    pub fn is_needed(&self, id: u64) -> bool {
        self.below(id).iter().any(|id| {
            let node = &self.nodes[id];
            node.is_dirty() || node.recorded || node.busy
        })
    }

    /// What the state file says of a node.
    pub fn pending(&self, id: u64) -> state_file::Pending {
        let node = &self.nodes[&id];
        let base = node.remote.as_ref().map(|remote| remote.etag.clone());
        state_file::Pending {
            id,
            version: node.version,
            key: self.key(id),
            attributes: node.attributes,
            target: node.target.clone(),
            based: base.is_some(),
            etag: base.or_else(|| node.replaces.clone()),
            content: node.kept.as_deref().cloned(),
            written: node.remote.as_ref().and_then(Remote::written).map(str::to_owned),
            replaced_by: match node.doubt.as_ref().map(|doubt| &doubt.asked) {
                Some(Asked::Replacement(identity)) => Some(identity.clone()),
                _ => None,
            },
        }
    }

    /// All that the state file must say.
    pub fn live(&self) -> Vec<Change> {
        let mut live = vec![Change::Numbers(self.reserved.max(self.next))];
        let recorded = self.nodes.iter().filter(|(_, node)| node.recorded);
        live.extend(recorded.map(|(id, _)| Change::Pending(self.pending(*id))));
        // Those that are over are as the nodes are.
        for (id, begun) in self.moves.iter().filter(|(_, begun)| !begun.failed) {
            live.push(begun.noted(*id));
            live.extend(begun.copied.clone().map(|etags| Change::Copied { id: *id, etags }));
        }
        live.extend(self.leftovers.iter().map(|(key, etag)| leftover(key, etag.as_deref())));
        let multiparts = self.multiparts.iter();
        live.extend(multiparts.map(|(upload, key)| Change::Multipart(key.clone(), upload.clone())));
        live.extend(self.beginnings.iter().map(|key| Change::MultipartBegins(key.clone())));
        live
    }

    /// Sets a node's time of modification.
    pub fn modified(&mut self, id: u64, now: Time) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.attributes.mtime = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_asked_for_in_order_are_asked_for_ahead() {
        let names: BTreeMap<String, u64> = (0..100).map(|id| (format!("{id:03}"), id)).collect();
        let mut asked = InOrder::default();
        let mut ask = |id: u64| asked.follow(&names, &format!("{id:03}"), id, 16);
        let mut sizes = Vec::new();
        let mut next = 0;
        while next < 100 {
            let ids = ask(next);
            assert_eq!(ids[0], next);
            sizes.push(ids.len());
            next += ids.len() as u64;
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 16, 16, 16, 16, 5]);
        assert_eq!(ask(20), [20], "elsewhere");
        assert_eq!(ask(19), [19], "backwards");
        assert_eq!(ask(20), [20, 21]);
        assert_eq!(ask(21), [21], "another thread");
        assert_eq!(ask(23), [23], "one of two");
        for id in [24, 26, 30] {
            assert_eq!(ask(id)[0], id);
        }
        assert_eq!(ask(39), (39..55).collect::<Vec<_>>(), "one is left out");
        assert_eq!(ask(99), [99]);
        assert_eq!(ask(99), [99], "the same again");
    }
}
