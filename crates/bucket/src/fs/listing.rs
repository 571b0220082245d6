//! What the bucket has: listings of directories, and metadata of objects.
//!
//! A listing is believed for `listing_ttl`; what is not in it does not exist, so that nothing is asked for new names.
//! What was changed here after a listing began is truer than the listing.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::Instant;

use super::tree::{Node, Remote, Tree};
use super::{Error, FileSystem, ROOT, Result, Stat, in_parallel, now};
use crate::key;
use crate::metadata::{Attributes, Kind};
use crate::store::{Head, Page, StoreError, list_all};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Its node.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
}

/// An object up to this size may be a symbolic link.
const TARGET_BYTES_MAX: u64 = 4095;
/// A listing asks for the metadata of objects that may be links, if they are not more than these.
const ASKED_MAX: usize = 1000;

impl FileSystem {
    /// Makes a directory's entries those of the bucket, if what is known is too old.
    pub(super) fn ensure_listed(&self, directory: u64) -> Result<()> {
        let mut tree = self.tree();
        let key = loop {
            let node = self.node(&mut tree, directory)?;
            if !node.is_directory() {
                return Err(Error::NotDirectory);
            }
            if node.removed {
                return Ok(());
            }
            let ttl = self.settings.listing_ttl;
            if node.entries.listed.is_some_and(|at| at.elapsed() < ttl) {
                return Ok(());
            }
            if node.remote.is_none() && node.attributes_dirty && node.entries.listed.is_some() {
                // It was made here and is not in the bucket yet.
                return Ok(());
            }
            if !node.entries.listing {
                node.entries.listing = true;
                break self.key(&tree, directory);
            }
            tree = self.wait(tree);
        };
        let begun = (tree.sequence, Instant::now());
        drop(tree);
        let page = list_all(self.store(), &key, true);
        let mut tree = self.tree();
        if let Some(node) = tree.nodes.get_mut(&directory) {
            node.entries.listing = false;
        }
        self.idle.notify_all();
        // It may have been moved meanwhile, or is being moved.
        if tree.get(directory).is_some_and(|node| !node.removed)
            && self.key(&tree, directory) == key
            && !self.is_moving(&tree, &key)
        {
            self.merge(&mut tree, directory, &key, page?, begun);
            return Ok(());
        }
        drop(self.wait_for_move(tree, &key));
        self.ensure_listed(directory)
    }

    /// Whether a directory is being moved with what has this whole key: the bucket may have it no more, or not yet.
    fn is_moving(&self, tree: &Tree, key: &str) -> bool {
        let below = &key[self.settings.prefix.len()..];
        let mut moves = tree.moves.values().filter(|begun| !begun.failed);
        moves.any(|begun| begun.is_of_directory() && below.starts_with(&begun.from))
    }

    fn wait_for_move<'a>(
        &'a self,
        mut tree: MutexGuard<'a, Tree>,
        key: &str,
    ) -> MutexGuard<'a, Tree> {
        while self.is_moving(&tree, key) {
            tree = self.wait(tree);
        }
        tree
    }

    /// Takes a listing over.
    fn merge(&self, tree: &mut Tree, directory: u64, key: &str, page: Page, begun: (u64, Instant)) {
        let (sequence, at) = begun;
        let mut seen = BTreeSet::new();
        let directories: BTreeSet<&str> = page
            .prefixes
            .iter()
            .filter_map(|prefix| prefix.strip_prefix(key)?.strip_suffix('/'))
            .collect();
        let is_root = directory == ROOT;
        let is_hidden = |segment: &str| is_root && segment.starts_with(key::OWN);
        for segment in directories.iter().filter(|segment| !is_hidden(segment)) {
            let below = format!("{}{segment}/", &key[self.settings.prefix.len()..]);
            let first = tree.leftovers.range(below.clone()..).next();
            if first.is_some_and(|(key, _)| key.starts_with(&below))
                && tree.child(directory, &key::name_of(segment, false)).is_none()
            {
                // What was moved away from here is removed yet.
                continue;
            }
            if let Some(id) =
                self.merge_entry(tree, directory, segment, None, sequence, at, &directories)
            {
                seen.insert(id);
            }
        }
        let mut marker = None;
        for object in &page.objects {
            let Some(segment) = object.key.strip_prefix(key) else { continue };
            let left = tree.leftovers.get(&object.key[self.settings.prefix.len()..]);
            let is_left =
                left.is_some_and(|of| of.as_ref().is_none_or(|etag| *etag == object.etag));
            if is_hidden(segment) || is_left {
                continue;
            }
            let remote = Remote {
                etag: object.etag.clone(),
                size: object.size,
                properties: None,
                checked: at,
            };
            if segment.is_empty() && object.size == 0 {
                marker = Some(remote);
                continue;
            }
            let found = Some((remote, object.modified));
            if let Some(id) =
                self.merge_entry(tree, directory, segment, found, sequence, at, &directories)
            {
                seen.insert(id);
            }
        }
        self.merge_marker(tree, directory, marker, sequence);
        let gone: Vec<u64> = tree.nodes[&directory]
            .entries
            .by_name
            .values()
            .copied()
            .filter(|id| {
                !seen.contains(id) && tree.nodes[id].sequence <= sequence && !tree.is_needed(*id)
            })
            .collect();
        for id in gone {
            tree.detach(id);
        }
        let entries = &mut tree.nodes.get_mut(&directory).expect("it is there").entries;
        entries.listed = Some(at);
        entries.removed.retain(|_, removed| *removed > sequence);
    }

    /// One object, or directory, of a listing; its node, if it has one.
    #[allow(clippy::too_many_arguments)] // What a listing says of one object.
    fn merge_entry(
        &self,
        tree: &mut Tree,
        directory: u64,
        segment: &str,
        object: Option<(Remote, crate::metadata::Time)>,
        sequence: u64,
        at: Instant,
        directories: &BTreeSet<&str>,
    ) -> Option<u64> {
        let is_directory = object.is_none();
        let shadowed = !is_directory && (segment.is_empty() || directories.contains(segment));
        let same = |node: &Node| node.segment == segment && node.is_directory() == is_directory;
        let entries = &tree.nodes[&directory].entries;
        let of_key = [key::name_of(segment, false), key::name_of(segment, true)]
            .into_iter()
            .filter_map(|name| entries.by_name.get(&name).copied())
            .find(|id| same(&tree.nodes[id]));
        if let Some(id) = of_key {
            if let Some((remote, _)) = object {
                self.merge_object(tree, id, remote, sequence);
            }
            return Some(id);
        }
        let removed = entries.removed.get(&(segment.to_owned(), is_directory));
        if removed.is_some_and(|removed| *removed > sequence) {
            return None;
        }
        let mut name = key::name_of(segment, shadowed);
        if entries.by_name.contains_key(&name) {
            // A node made here has the name. A directory's other name is that of an object that is empty.
            name = key::name_of(segment, true);
        }
        let (kind, time) = match &object {
            Some((_, modified)) => (Kind::File, *modified),
            None => (Kind::Directory, now()),
        };
        let attributes = self.settings.defaults.attributes(kind, time);
        let mut node = Node::new(directory, name, segment.to_owned(), attributes);
        if let Some((remote, _)) = object {
            node.content.reset(remote.size);
            node.remote = Some(Remote { checked: at, ..remote });
        }
        Some(tree.add(node))
    }

    /// An object that a node had already.
    fn merge_object(&self, tree: &mut Tree, id: u64, remote: Remote, sequence: u64) {
        let Some(node) = tree.nodes.get_mut(&id) else { return };
        if node.busy || node.is_dirty() || node.sequence > sequence {
            return;
        }
        match &mut node.remote {
            Some(own) if own.etag == remote.etag => own.checked = remote.checked,
            _ => {
                node.content.reset(remote.size);
                node.remote = Some(remote);
                node.known = false;
                node.target = None;
            }
        }
    }

    /// Whether the directory has a marker, which only its own listing tells for nothing.
    fn merge_marker(&self, tree: &mut Tree, directory: u64, marker: Option<Remote>, sequence: u64) {
        let Some(node) = tree.nodes.get_mut(&directory) else { return };
        if node.busy || node.is_dirty() || node.sequence > sequence {
            return;
        }
        match (&node.remote, marker) {
            (Some(own), Some(new)) if own.etag == new.etag => {}
            (_, Some(new)) => {
                node.remote = Some(new);
                node.known = false;
            }
            (_, None) => {
                node.remote = None;
                node.known = true;
            }
        }
    }

    /// Asks for a node's metadata, if it is not known.
    pub(super) fn ensure_known(&self, id: u64) -> Result<()> {
        for _ in 0..8 {
            let mut tree = self.tree();
            let node = self.node(&mut tree, id)?;
            if node.may_be_gone() {
                drop(tree);
                self.settle_doubt(id)?;
                continue;
            }
            // A directory of which the bucket has no marker in memory may have one.
            if node.known
                || node.removed
                || node.attributes_dirty
                || (id == ROOT && self.settings.prefix.is_empty())
            {
                return Ok(());
            }
            let sequence = node.sequence;
            let key = self.key(&tree, id);
            drop(tree);
            let head = self.store().head(&key);
            let mut tree = self.wait_for_move(self.tree(), &key);
            let moved = self.node(&mut tree, id).is_ok() && self.key(&tree, id) != key;
            let node = self.node(&mut tree, id)?;
            if moved || node.known || node.busy || node.attributes_dirty {
                continue;
            }
            if node.sequence != sequence {
                // The answer may be about the object before it was changed here.
                continue;
            }
            match head {
                Ok(head) => {
                    self.take_head(node, head);
                    if node.attributes.kind == Kind::Symlink {
                        drop(tree);
                        if let Err(error) = self.ensure_target(id, &key) {
                            self.node(&mut self.tree(), id)?.known = false;
                            return Err(error);
                        }
                    }
                }
                Err(StoreError::NotFound(_)) if node.is_directory() => {
                    node.remote = None;
                    node.known = true;
                }
                Err(StoreError::NotFound(_)) => {
                    if !node.is_dirty() {
                        tree.detach(id);
                        return Err(Error::NotFound);
                    }
                    node.known = true;
                }
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
        Err(Error::Stale)
    }

    /// Asks for the metadata of a name in a directory, if it is not known. For those that follow, too, if somebody asks for one after the other, as
    /// `ls -l` does: it would wait for a round trip each time.
    fn ask_in_order(&self, directory: u64, id: u64) -> Result<()> {
        let ids = {
            let mut tree = self.tree();
            match tree.get(id) {
                Some(node) if !node.known => tree.asked_with(directory, id, self.settings.parallel),
                _ => vec![id],
            }
        };
        // What fails of the others is asked for again when somebody wants it, which says why.
        in_parallel(&ids, self.settings.parallel, |id| self.ensure_known(*id)).swap_remove(0)
    }

    /// Takes over what the bucket says of an object.
    pub(super) fn take_head(&self, node: &mut Node, head: Head) {
        let directory = node.is_directory();
        let attributes = self.settings.defaults.read(&head.properties, directory, head.modified);
        node.attributes = attributes;
        if node.remote.as_ref().is_none_or(|own| own.etag != head.etag) && !node.content.changed {
            node.content.reset(head.size);
            node.target = None;
        }
        if !node.content.changed {
            node.remote = Some(Remote::of(head));
        }
        node.known = true;
    }

    /// Reads a symbolic link's target.
    fn ensure_target(&self, id: u64, key: &str) -> Result<()> {
        let tree = self.tree();
        let remote = tree.get(id).and_then(|node| node.remote.clone());
        drop(tree);
        let Some(remote) = remote else { return Ok(()) };
        let bytes = match remote.size {
            0 => Vec::new(),
            size => self.store().get(key, 0..size.min(TARGET_BYTES_MAX), &remote.etag)?,
        };
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        node.target = Some(String::from_utf8_lossy(&bytes).into_owned());
        Ok(())
    }

    /// Asks again whether a file's object is still the same, if that was not asked lately. A node that is dirty here
    /// learns it when it is uploaded.
    pub(super) fn check_again(&self, id: u64) -> Result<()> {
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        let ttl = self.settings.listing_ttl;
        let old = node.remote.as_ref().is_some_and(|remote| remote.checked.elapsed() >= ttl);
        if old && !node.is_dirty() && !node.busy && !node.removed {
            node.known = false;
        }
        drop(tree);
        self.ensure_known(id)
    }

    /// The node of a name, with its metadata. The kernel is told its number: see [`FileSystem::forget`].
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Stat> {
        self.ensure_listed(parent)?;
        let id = self.sure_child(parent, name)?.ok_or(Error::NotFound)?;
        self.ask_in_order(parent, id)?;
        let mut tree = self.tree();
        let stat = self.stat(&tree, id)?;
        self.node(&mut tree, id)?.lookups += 1;
        Ok(stat)
    }

    /// The kernel forgets a node's number.
    pub fn forget(&self, id: u64, times: u64) {
        let mut tree = self.tree();
        let Some(node) = tree.nodes.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(times);
        if id != ROOT {
            tree.forget_if_unused(id);
        }
    }

    /// A node's attributes.
    pub fn attributes(&self, id: u64) -> Result<Stat> {
        self.ensure_known(id)?;
        self.stat(&self.tree(), id)
    }

    /// What is shown of a node that is known.
    pub(super) fn stat(&self, tree: &MutexGuard<'_, Tree>, id: u64) -> Result<Stat> {
        let node = tree.get(id).ok_or(Error::NotFound)?;
        let size = match node.attributes.kind {
            Kind::Directory => 0,
            Kind::File => node.content.size,
            Kind::Symlink => {
                node.target.as_ref().map_or(node.content.size, |target| target.len() as u64)
            }
        };
        let links = match (node.removed, node.is_directory()) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        let attributes = Attributes { ..node.attributes };
        Ok(Stat { id, attributes, size, links })
    }

    /// All names in a directory, in the order of their nodes' numbers. Objects so small that they may be links are asked what they are.
    pub fn entries(&self, directory: u64) -> Result<Vec<Entry>> {
        self.ensure_listed(directory)?;
        let unknown: Vec<u64> = {
            let tree = self.tree();
            let node = tree.get(directory).ok_or(Error::NotFound)?;
            let may_be_link = |id: &u64| {
                let node = &tree.nodes[id];
                !node.known
                    && !node.is_directory()
                    && (1..=TARGET_BYTES_MAX).contains(&node.content.size)
            };
            node.entries.by_name.values().copied().filter(may_be_link).collect()
        };
        if unknown.len() <= ASKED_MAX {
            // What fails is told as a regular file, and its lookup says why.
            in_parallel(&unknown, self.settings.parallel, |id| self.ensure_known(*id).is_ok());
        }
        let tree = self.tree();
        let node = tree.get(directory).ok_or(Error::NotFound)?;
        let entries = node.entries.by_name.iter().map(|(name, id)| Entry {
            name: name.clone(),
            id: *id,
            kind: tree.nodes[id].attributes.kind,
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        Ok(entries)
    }

    /// A symbolic link's target.
    pub fn target(&self, id: u64) -> Result<String> {
        self.ensure_known(id)?;
        let tree = self.tree();
        let node = tree.get(id).ok_or(Error::NotFound)?;
        let is_unread = node.attributes.kind == Kind::Symlink && node.target.is_none();
        let key = self.key(&tree, id);
        drop(tree);
        if is_unread {
            // Somebody else reads it just now, or it was known before a crash.
            self.ensure_target(id, &key)?;
        }
        let tree = self.tree();
        let node = tree.get(id).ok_or(Error::NotFound)?;
        node.target.clone().ok_or(Error::Invalid)
    }

    /// The directory above.
    pub fn parent(&self, id: u64) -> u64 {
        self.tree().get(id).map_or(ROOT, |node| node.parent)
    }
}
