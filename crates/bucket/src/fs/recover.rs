//! The start: what the state file says is pending is so again, and what a crash cut is finished or undone.
//!
//! 1. Multipart uploads under way are given up, also those whose beginning had no answer. Temporary objects, and what moves left, are removed.
//! 2. Moves under way are finished; what is pending under the old keys is then pending under the new ones, for the copies.
//! 3. Pending nodes are put into the tree. An object that has their changes already, as it says itself, is theirs.
//! 4. Content is what the spool has durably as the state file says; otherwise the object's, or none.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use super::doubt::written_version;
use super::fetch::Fetched;
use super::moves::REMOVED_AT_ONCE;
use super::tree::{Move, Node, ROOT, Remote, Tree};
use super::{FileSystem, Result, Settings, TEMPORARY, in_parallel, now, say};
use crate::cache::Cache;
use crate::key;
use crate::metadata::{Kind, Properties, WRITE_ID, identity};
use crate::state_file::{Change, Pending, StateFile};
use crate::store::{Head, Listed, Metered, StoreError, Unfinished, list_all};

/// More nodes than one run knows.
const NUMBERS_A_RUN: u64 = 1 << 32;

/// What the changes of a state file amount to.
#[derive(Default)]
struct Found {
    pending: BTreeMap<u64, Pending>,
    moves: BTreeMap<u64, Move>,
    leftovers: BTreeMap<String, Option<String>>,
    multiparts: BTreeMap<String, String>,
    beginnings: BTreeSet<String>,
    numbers: u64,
    /// What was pending at the target of each move when that began.
    replaced: BTreeMap<u64, Vec<u64>>,
}

impl Found {
    fn of(changes: Vec<Change>) -> Found {
        let mut found = Found::default();
        for change in changes {
            match change {
                Change::Pending(pending) => {
                    found.numbers = found.numbers.max(pending.id);
                    found.pending.insert(pending.id, pending);
                }
                Change::Settled(id) => {
                    found.pending.remove(&id);
                }
                Change::Move { id, from, to, etag, replaced } => {
                    found.numbers = found.numbers.max(id);
                    let at_target = found.pending.values().filter(|pending| pending.key == to);
                    found.replaced.insert(id, at_target.map(|pending| pending.id).collect());
                    found.moves.insert(
                        id,
                        Move { from, to, etag, replaced, room: 0, failed: false, copied: None },
                    );
                }
                Change::Copied { id, etags } => {
                    if let Some(begun) = found.moves.get_mut(&id) {
                        begun.copied = Some(etags);
                    }
                }
                Change::Moved(id) => {
                    found.moves.remove(&id);
                }
                Change::Leftover(key) => {
                    found.leftovers.insert(key, None);
                }
                Change::LeftoverOf(key, etag) => {
                    found.leftovers.insert(key, Some(etag));
                }
                Change::LeftoverEnded(key) => {
                    found.leftovers.remove(&key);
                }
                Change::MultipartBegins(key) => {
                    found.beginnings.insert(key);
                }
                Change::Multipart(key, upload) => {
                    found.beginnings.remove(&key);
                    found.multiparts.insert(upload, key);
                }
                Change::MultipartEnded(upload) => {
                    found.multiparts.remove(&upload);
                }
                Change::Numbers(upto) => found.numbers = found.numbers.max(upto),
            }
        }
        found
    }
}

impl FileSystem {
    /// Opens a prefix with a state directory, which nobody else has in use, and with what was fetched before.
    pub fn open_prefix(
        store: Arc<Metered>,
        settings: Settings,
        cache: Option<Arc<Cache>>,
    ) -> std::result::Result<Arc<FileSystem>, Box<dyn std::error::Error>> {
        std::fs::create_dir_all(settings.state.join("spool"))?;
        let owner = crate::owner::owner(&settings.state)?;
        let (state, changes) = StateFile::open(&settings.state)?;
        let mut found = Found::of(changes);
        let root = settings.defaults.attributes(Kind::Directory, now());
        let mut tree = Tree::new(root);
        tree.next = found.numbers.max(ROOT) + 1;
        // Numbers of nodes that are only listed are not noted: none of them is given again.
        tree.reserved = tree.next + NUMBERS_A_RUN;
        let first_temporary = now();
        let system = FileSystem {
            store,
            owner,
            tree: Mutex::new(tree),
            idle: Condvar::new(),
            moving: RwLock::new(()),
            removing: Mutex::new(()),
            state,
            fetched: Fetched::new(cache),
            bodies: super::Bodies::new(settings.limits.part, settings.parallel),
            // Two runs never use one key: a copy of the first might still be read in the second.
            temporary: AtomicU64::new(first_temporary.seconds as u64 * 1_000_000),
            conflicts: AtomicU64::new(0),
            uploads_failed: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            settings,
        };
        system.clean_up(&found)?;
        system.finish_moves(&mut found)?;
        system.take_pending(&found)?;
        Ok(Arc::new(system))
    }

    fn clean_up(&self, found: &Found) -> Result<()> {
        for (upload, key) in &found.multiparts {
            self.store().abort(&self.whole(key), upload)?;
        }
        for Unfinished { key, upload } in self.unknown_uploads(found)? {
            self.store().abort(&key, &upload)?;
        }
        let objects = list_all(self.store(), &self.whole(TEMPORARY), false)?.objects;
        self.remove_all(&objects.into_iter().map(|object| object.key).collect::<Vec<String>>())?;
        let leftovers: Vec<_> = found.leftovers.clone().into_iter().collect();
        leftovers.chunks(REMOVED_AT_ONCE).try_for_each(|some| self.remove_left(some))
    }

    /// Uploads of temporary keys, and of keys whose uploads were begun without an answer.
    fn unknown_uploads(&self, found: &Found) -> Result<Vec<Unfinished>> {
        let mut unknown = Vec::new();
        for below in std::iter::once(TEMPORARY).chain(found.beginnings.iter().map(String::as_str)) {
            let key = self.whole(below);
            match self.store().unfinished(&key) {
                Ok(uploads) if below == TEMPORARY => unknown.extend(uploads),
                Ok(uploads) => unknown.extend(uploads.into_iter().filter(|one| one.key == key)),
                // Then the bucket's lifecycle rules end them.
                Err(error @ (StoreError::Refused(_) | StoreError::NotFound(_))) => {
                    say(&format!("unfinished uploads are not looked for: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(unknown)
    }

    fn finish_moves(&self, found: &mut Found) -> Result<()> {
        for (number, begun) in &found.moves {
            if self.is_undone_by_others(begun)? {
                continue;
            }
            let objects = self.objects_to_move(begun)?;
            let copies = in_parallel(&objects, self.settings.parallel, |object| {
                let key = format!("{}{}", begun.to, &self.below(&object.key)[begun.from.len()..]);
                let key = self.whole(&key);
                let copy =
                    |sent| self.copy_object(&object.key, &object.etag, object.size, &key, sent);
                if begun.etag.is_none() {
                    return copy(None);
                }
                // The next start would tell a copy from somebody else's object by it.
                let (properties, _, is_new) =
                    self.identified(&self.store().head(&object.key)?.properties);
                copy(is_new.then_some(&properties))
            });
            let copies = copies.into_iter().collect::<Result<Vec<String>>>()?;
            // What is copied has another ETag, now or since the crash. If it is the last that is known of a node's object,
            // the node goes on with it.
            let mut etags: BTreeMap<u64, String> =
                begun.copied.clone().unwrap_or_default().into_iter().collect();
            for (object, copy) in objects.iter().zip(copies) {
                let moved = found.pending.values().filter(|pending| {
                    self.whole(&pending.key) == object.key
                        && pending.etag.as_ref() == Some(&object.etag)
                });
                etags.extend(moved.map(|pending| (pending.id, copy.clone())));
            }
            if !objects.is_empty() {
                let etags = etags.clone().into_iter().collect();
                let position = self.state.append(&[Change::Copied { id: *number, etags }])?;
                self.state.durable(position)?;
            }
            self.remove_all(&objects.into_iter().map(|object| object.key).collect::<Vec<_>>())?;
            let replaced = &found.replaced[number];
            found.pending.retain(|id, pending| pending.key != begun.to || !replaced.contains(id));
            for pending in found.pending.values_mut() {
                let is_directory = pending.attributes.kind == Kind::Directory;
                let rest = match begun.is_of_directory() {
                    true => pending.key.strip_prefix(begun.from.as_str()),
                    // A directory whose marker has content has the same key.
                    false if pending.key == begun.from && !is_directory => Some(""),
                    false => None,
                };
                if let Some(rest) = rest {
                    pending.key = format!("{}{rest}", begun.to);
                    let etag = etags.get(&pending.id).cloned();
                    pending.etag = etag.or(pending.etag.take());
                    // A copy has the same identity.
                    pending.written = None;
                }
            }
        }
        Ok(())
    }

    /// Whether somebody else wrote the object that was to be moved, or another under its new key, since the move of a single one
    /// began. Both stay then.
    fn is_undone_by_others(&self, begun: &Move) -> Result<bool> {
        let Some(etag) = &begun.etag else { return Ok(false) };
        let Some(from) = self.object(&self.whole(&begun.from))? else { return Ok(false) };
        let to = self.object(&self.whole(&begun.to))?;
        let is_ours = |to: &Head| {
            let written = identity(&to.properties);
            let copied = written.is_some_and(|of| of.starts_with(&format!("{}-copy-", self.owner)));
            Some(&to.etag) == begun.replaced.as_ref()
                || to.etag == from.etag
                || copied
                || written.is_some() && written == identity(&from.properties)
        };
        let by_others = from.etag != *etag || to.as_ref().is_some_and(|to| !is_ours(to));
        if by_others {
            say(&format!(
                "a rename of {} to {} was under way when it ended last, and somebody else wrote there since: both stay",
                begun.from, begun.to
            ));
        }
        Ok(by_others)
    }

    /// A key without the prefix.
    fn below<'a>(&self, key: &'a str) -> &'a str {
        &key[self.settings.prefix.len()..]
    }

    /// What a move that a crash cut has not removed yet.
    fn objects_to_move(&self, begun: &Move) -> Result<Vec<Listed>> {
        let key = self.whole(&begun.from);
        if begun.is_of_directory() {
            return Ok(list_all(self.store(), &key, false)?.objects);
        }
        let head = self.object(&key)?;
        let listed = head.map(|head| Listed {
            key,
            size: head.size,
            etag: head.etag,
            modified: head.modified,
        });
        Ok(listed.into_iter().collect())
    }

    /// Puts pending nodes into the tree, and writes the state file anew with what still is pending.
    fn take_pending(&self, found: &Found) -> Result<()> {
        let mut pending: Vec<&Pending> = found.pending.values().collect();
        pending.sort_by(|a, b| a.key.cmp(&b.key));
        let heads = in_parallel(&pending, self.settings.parallel, |pending| {
            self.object(&self.whole(&pending.key))
        });
        let mut needed = HashSet::new();
        let mut tree = self.tree();
        for (pending, head) in pending.iter().zip(heads) {
            let head = head?;
            let has = head.as_ref().and_then(|head| identity(&head.properties));
            if pending.replaced_by.is_some() && has == pending.replaced_by.as_deref() {
                // A rename of another file, whose answer was lost, was done.
                continue;
            }
            let known = pending.written.as_deref();
            let written = head
                .as_ref()
                .and_then(|head| written_version(head, &self.owner, pending.id, known));
            if written.is_some_and(|version| version >= pending.version) {
                continue;
            }
            let is_directory = pending.attributes.kind == Kind::Directory;
            // An upload may have overtaken what was kept here.
            let content = pending.content.as_ref();
            let content = content.filter(|of| written.is_none_or(|written| written < of.version));
            if head.is_none() && pending.based && content.is_none() && !is_directory {
                say(&format!("{} was removed: attributes set here are given up", pending.key));
                continue;
            }
            let is_theirs = head
                .as_ref()
                .is_some_and(|head| written.is_none() && pending.etag.as_ref() != Some(&head.etag));
            if is_theirs && pending.based && content.is_none() && !is_directory {
                say(&format!(
                    "{} was changed by somebody else: attributes set here are given up",
                    pending.key
                ));
                continue;
            }
            // The content of a directory's marker.
            let is_marker = !is_directory && (pending.key.is_empty() || pending.key.ends_with('/'));
            if pending.key.is_empty() && is_directory {
                let root = self.node(&mut tree, ROOT)?;
                root.attributes = pending.attributes;
                (root.known, root.attributes_dirty, root.recorded) = (true, true, true);
                root.version = pending.version;
                root.remote = head.map(Remote::of);
                tree.touch(ROOT);
                continue;
            }
            let at = if is_marker { format!("{}.", pending.key) } else { pending.key.clone() };
            let Some(parent) = make_parents(&mut tree, &self.settings, &at) else {
                say(&format!("{} is given up: a file is where its directory was", pending.key));
                continue;
            };
            let path = pending.key.strip_suffix('/').filter(|_| is_directory);
            let segment = path.unwrap_or(&pending.key).rsplit('/').next().unwrap_or_default();
            let segment = segment.to_owned();
            let name = key::name_of(&segment, is_marker);
            let existing = tree.child(parent, &name).filter(|_| is_directory);
            let mut node = Node::new(parent, name, segment, pending.attributes);
            node.known = true;
            node.attributes_dirty = true;
            node.recorded = true;
            node.version = pending.version;
            node.target = pending.target.clone();
            node.kept = content.cloned().map(Box::new);
            if let Some(kept) = &mut node.kept {
                // What was kept before contents had versions.
                kept.version = kept.version.min(pending.version);
            }
            let ours = written.is_some();
            let etag = head
                .as_ref()
                .filter(|_| ours)
                .map(|head| head.etag.clone())
                .or(pending.etag.clone());
            match (pending.based || ours, etag) {
                (true, Some(etag)) => {
                    let same = head.as_ref().filter(|head| head.etag == etag);
                    // If somebody else wrote it since, what was not changed here is as theirs.
                    let size = head.as_ref().map_or(0, |head| head.size);
                    node.content.reset(size);
                    let properties = match (same, &pending.written) {
                        (Some(head), _) => Some(head.properties.clone()),
                        // All that is known of the object that it was.
                        (None, Some(written)) if !ours => Some(Properties {
                            user: [(WRITE_ID.to_owned(), written.clone())].into(),
                            ..Properties::default()
                        }),
                        (None, _) => None,
                    };
                    let properties = properties.map(Box::new);
                    node.remote =
                        Some(Remote { etag, size, properties, checked: std::time::Instant::now() });
                }
                (_, etag) => node.replaces = etag,
            }
            if is_directory {
                // Other tools may have given it a marker, also with content.
                node.remote = head.clone().map(Remote::of);
                node.replaces = None;
            }
            if let Some(content) = content {
                let base = node.remote.as_ref().map_or(0, |remote| remote.size.min(content.base));
                node.content.reset(content.size);
                node.content.base = base;
                for (start, end) in &content.dirty {
                    node.content.dirty.insert(*start..*end);
                }
                node.content.changed = true;
                needed.insert(pending.id.to_string());
            }
            if let Some(placeholder) = existing {
                // It was made for what is below it.
                let entries = std::mem::take(
                    &mut tree.nodes.get_mut(&placeholder).expect("it is there").entries,
                );
                tree.nodes.remove(&placeholder);
                for child in entries.by_name.values() {
                    if let Some(child) = tree.nodes.get_mut(child) {
                        child.parent = pending.id;
                    }
                }
                node.entries = entries;
            }
            tree.add_as(pending.id, node);
            tree.touch(pending.id);
            if needed.contains(&pending.id.to_string()) {
                self.spool(&mut tree, pending.id)?;
            }
        }
        // Versions count on from those that objects may have.
        self.state.compact(&tree.live())?;
        drop(tree);
        for file in std::fs::read_dir(self.settings.state.join("spool"))? {
            let file = file?;
            if !needed.contains(file.file_name().to_string_lossy().as_ref()) {
                std::fs::remove_file(file.path())?;
            }
        }
        if !found.pending.is_empty() {
            say(&format!(
                "{} names or attributes were pending when it ended last",
                found.pending.len()
            ));
        }
        Ok(())
    }
}

/// The directory of a key, made in the tree with all above it where they are not there; the bucket tells more of them later.
fn make_parents(tree: &mut Tree, settings: &Settings, key: &str) -> Option<u64> {
    let mut at = ROOT;
    let path = key.strip_suffix('/').unwrap_or(key);
    let Some((directories, _)) = path.rsplit_once('/') else { return Some(ROOT) };
    for segment in directories.split('/') {
        let name = key::name_of(segment, false);
        at = match tree.child(at, &name) {
            Some(id) if tree.nodes[&id].is_directory() => id,
            Some(_) => return None,
            None => {
                let attributes = settings.defaults.attributes(Kind::Directory, now());
                tree.add(Node::new(at, name, segment.to_owned(), attributes))
            }
        };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_settled_is_not_pending() {
        let attributes = crate::metadata::Defaults { uid: 0, gid: 0 }.attributes(Kind::File, now());
        let pending = Pending {
            id: 5,
            version: 1,
            key: "a".into(),
            attributes,
            target: None,
            etag: None,
            based: false,
            content: None,
            replaced_by: None,
            written: None,
        };
        let found = Found::of(vec![
            Change::Pending(pending.clone()),
            Change::Pending(Pending { id: 6, ..pending }),
            Change::Settled(5),
            Change::Move { id: 7, from: "a".into(), to: "b".into(), etag: None, replaced: None },
        ]);
        assert_eq!(found.pending.keys().copied().collect::<Vec<_>>(), [6]);
        assert_eq!((found.moves.len(), found.numbers), (1, 7));
    }
}
