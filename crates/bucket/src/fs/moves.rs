//! Renames.
//!
//! What the bucket never had is moved here alone. An object is copied by the bucket and then removed, before the call
//! returns, and the state file has the intent meanwhile: after a crash the move is finished. So a file is under one name
//! or under both, never under neither. A directory's objects are all copied, then all removed.
//!
//! A copy whose answer was lost is told by its identity (`doubt`). If it cannot be asked for, the call fails, and the file
//! is under its old name; it may be under the new one, too. Asked for again, the call ends the same.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::MutexGuard;

use super::doubt::Makes;
use super::tree::{Asked, Away, Doubt, Move, Node, Remote, Tree, leftover};
use super::{Error, FileSystem, Result, in_parallel, now, say};
use crate::state_file::{Change, Position};
use crate::store::{Listed, StoreError, list_all};

/// A name in a directory.
pub type Place<'a> = (u64, &'a str);

/// What the state file says of an object that is left, beside its key, and of a pending node with its copy's ETag, bytes.
const LEFTOVER_BYTES: usize = 100;
const PENDING_BYTES_MAX: usize = 4096;
/// Objects that one request removes.
pub(super) const REMOVED_AT_ONCE: usize = 1000;
/// Most keys in one line that says that they are removed: their length is bounded, and so the line fits into the state file's reserve.
const NOTED_AT_ONCE: usize = 100;

impl FileSystem {
    /// Gives a node another name. `replace`: one that is there is replaced.
    pub fn rename(&self, from: Place, to: Place, replace: bool) -> Result<()> {
        self.ensure_listed(from.0)?;
        self.ensure_listed(to.0)?;
        let id = self.sure_child(from.0, from.1)?.ok_or(Error::NotFound)?;
        let directory = self.tree().get(id).is_some_and(Node::is_directory);
        let target = self.sure_child(to.0, to.1)?;
        if let Some(target) = target
            && directory
        {
            self.ensure_listed(target)?;
        }
        self.ensure_known(id)?;
        if directory {
            let _alone = self.moving.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            // Nothing is busy now.
            let doubtful: Vec<u64> = {
                let tree = self.tree();
                let below = tree.below(id).into_iter();
                below.filter(|id| tree.nodes[id].may_be_gone()).collect()
            };
            doubtful.into_iter().try_for_each(|id| self.make_sure(id))?;
            self.check_rename(&self.tree(), id, from, to, replace)?;
            self.remove_leftovers()?;
            // No listing takes it away meanwhile.
            self.node(&mut self.tree(), id)?.busy = true;
            let result = self.rename_directory(id, to);
            self.vacate(&mut self.tree(), id);
            return result;
        }
        let _stay = self.stay();
        self.remove_leftovers()?;
        let mut tree = self.occupy(self.tree(), id)?;
        if let Some(target) = target.filter(|target| *target != id) {
            // Always the lower number first would be another order for each pair: one waits without the other.
            while tree.nodes.get(&target).is_some_and(|node| node.busy) {
                self.vacate(&mut tree, id);
                tree = self.wait(tree);
                tree = self.occupy(tree, id)?;
            }
            if let Some(node) = tree.nodes.get_mut(&target) {
                node.busy = true;
            }
        }
        drop(tree);
        let is_sure =
            [Some(id), target].into_iter().flatten().try_for_each(|id| self.make_sure(id));
        let tree = self.tree();
        let checked = is_sure.and_then(|()| self.check_rename(&tree, id, from, to, replace));
        let same_target = tree.child(to.0, to.1) == target;
        let result = match checked {
            Ok(()) if same_target && target != Some(id) => {
                self.rename_file(tree, id, target, from, to)
            }
            other => {
                drop(tree);
                match other {
                    // Somebody made or removed it meanwhile.
                    Ok(()) if !same_target => Err(Error::Stale),
                    other => other,
                }
            }
        };
        let mut tree = self.tree();
        if let Some(target) = target.filter(|target| *target != id) {
            self.vacate(&mut tree, target);
        }
        self.vacate(&mut tree, id);
        result
    }

    fn check_rename(
        &self,
        tree: &Tree,
        id: u64,
        from: Place,
        to: Place,
        replace: bool,
    ) -> Result<()> {
        if tree.child(from.0, from.1) != Some(id) {
            return Err(Error::NotFound);
        }
        let directory = tree.nodes[&id].is_directory();
        self.check_new_name(tree, to.0, to.1, directory)?;
        let Some(target) = tree.child(to.0, to.1) else { return Ok(()) };
        let target = &tree.nodes[&target];
        match (directory, target.is_directory()) {
            _ if !replace => Err(Error::Exists),
            (false, true) => Err(Error::IsDirectory),
            (true, false) => Err(Error::NotDirectory),
            (true, true) if !target.entries.by_name.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Moves a file or a link. It and its target are busy.
    fn rename_file(
        &self,
        tree: MutexGuard<'_, Tree>,
        id: u64,
        target: Option<u64>,
        from: Place,
        to: Place,
    ) -> Result<()> {
        let remote = tree.nodes[&id].remote.clone();
        let replaced_there = tree.nodes[&id].replaces.clone();
        let from_key = tree.key(id);
        let to_key = format!("{}{}", tree.key(to.0), to.1);
        if tree.leftovers.contains_key(&to_key) {
            // It was moved away since the call began.
            return Err(Error::Stale);
        }
        // The object at the new key, whoever wrote it.
        let replaced = target.and_then(|target| {
            let node = &tree.nodes[&target];
            let own = node.remote.as_ref().map(|remote| remote.etag.clone());
            own.or_else(|| node.replaces.clone())
        });
        drop(tree);
        if replaced_there.is_some() || from.0 != to.0 && remote.is_some() {
            self.keep_directory(from.0, id)?;
        }
        match remote {
            None => {
                let replaced_there = replaced_there.map(|etag| (from_key, etag));
                self.rename_new(id, target, to, replaced_there, replaced)
            }
            Some(remote) => {
                let keys = (from_key, to_key);
                self.rename_object(id, &remote, target, replaced, keys, to)
            }
        }
    }

    /// Moves a file that the bucket does not have. `replaced_there`: the key and the ETag of an object that it was to replace and
    /// `replaced` the ETag of the one that it is to replace now.
    fn rename_new(
        &self,
        id: u64,
        target: Option<u64>,
        to: Place,
        replaced_there: Option<(String, String)>,
        replaced: Option<String>,
    ) -> Result<()> {
        if target.is_some() {
            // The content that it replaces goes with the next upload: until then this machine has the new one.
            self.keep_content(id)?;
        }
        let away = target.map_or(Ok(None), |target| self.copy_away(target))?;
        // What it was to replace there is removed, as it is here.
        let removed = match &replaced_there {
            Some((key, _)) => self.remove_certainly(&self.whole(key)),
            None => Ok(()),
        };
        let mut tree = self.tree();
        let batch = self.leave(&mut tree, removed, replaced_there.into_iter().collect());
        self.node(&mut tree, id)?.replaces = replaced;
        let position = self.place_file(&mut tree, id, target.zip(Some(away)), to, batch)?;
        drop(tree);
        Ok(self.state.durable(position)?)
    }

    /// Moves a file's object, and the file. `replaced`: the ETag of the object at the new key, if there is one.
    fn rename_object(
        &self,
        id: u64,
        remote: &Remote,
        target: Option<u64>,
        replaced: Option<String>,
        (from_key, to_key): (String, String),
        to: Place,
    ) -> Result<()> {
        if target.is_some() {
            // As for a new file. What the object has already may be little, or nothing.
            self.keep_content(id)?;
        }
        let (from_whole, to_whole) = (self.whole(&from_key), self.whole(&to_key));
        let known = match &remote.properties {
            Some(properties) => (**properties).clone(),
            None => self.store().head(&from_whole)?.properties,
        };
        let (properties, written, is_new) = self.identified(&known);
        let away = target.map_or(Ok(None), |target| self.copy_away(target))?;
        let number = self.begin_move(Move {
            from: from_key.clone(),
            to: to_key.clone(),
            etag: Some(remote.etag.clone()),
            replaced: replaced.clone(),
            room: 0,
            failed: false,
            copied: None,
        })?;
        let copied = self.certain(&to_whole, Makes::Object(&written), || {
            let sent = is_new.then_some(&properties);
            self.copy_object(&from_whole, &remote.etag, remote.size, &to_whole, sent)
        });
        let etag = match copied {
            Ok(etag) => etag,
            Err(error) => {
                // The new key had no object before: what the copy may have made there is removed as a leftover.
                let target = target.filter(|_| replaced.is_some());
                let away =
                    self.rename_failed(&error, number, (&to_key, None), target, &written, away)?;
                self.discard_away(away);
                if matches!(error, Error::Store(StoreError::Changed(_) | StoreError::NotFound(_))) {
                    let mut tree = self.tree();
                    let node = self.node(&mut tree, id)?;
                    node.known = node.is_dirty();
                }
                return Err(error);
            }
        };
        if let Err(error) = self.copied_all(number, vec![(id, etag.clone())]) {
            let target = target.filter(|_| replaced.is_some());
            let doubt = Error::InDoubt(error.to_string());
            let made = (to_key.as_str(), Some(etag.as_str()));
            self.discard_away(self.rename_failed(&doubt, number, made, target, &written, away)?);
            return Err(error);
        }
        let removed = self.remove_certainly(&from_whole);
        let mut tree = self.tree();
        if let Some(remote) = &mut self.node(&mut tree, id)?.remote {
            remote.etag = etag;
            remote.properties = Some(Box::new(properties));
        }
        let (parent, segment) = (tree.nodes[&id].parent, tree.nodes[&id].segment.clone());
        tree.removed_remotely(parent, &segment, false);
        let mut batch = self.leave(&mut tree, removed, vec![(from_key, remote.etag.clone())]);
        batch.extend(self.ended_move(&mut tree, number));
        let position = self.place_file(&mut tree, id, target.zip(Some(away)), to, batch)?;
        self.forget_move(&mut tree, number);
        tree.changed_remotely(id);
        drop(tree);
        Ok(self.state.durable(position)?)
    }

    /// Ends a rename whose object could not be copied to its new key. If the copy may have been made all the same, it is noted: at `target`,
    /// whose object it would have replaced, or else as an object to be removed, with its ETag if that is known. Returns `away` unless the
    /// note needs it.
    fn rename_failed(
        &self,
        error: &Error,
        number: u64,
        (to_key, etag): (&str, Option<&str>),
        target: Option<u64>,
        written: &str,
        away: Option<Away>,
    ) -> Result<Option<Away>> {
        let is_in_doubt = matches!(error, Error::InDoubt(_));
        let mut tree = self.tree();
        let mut batch = Vec::new();
        let mut unused = away;
        match target.filter(|_| is_in_doubt) {
            Some(target) => {
                let node = self.node(&mut tree, target)?;
                let asked = Asked::Replacement(written.to_owned());
                node.doubt = Some(Box::new(Doubt { asked, away: unused.take() }));
                if node.recorded {
                    batch.push(Change::Pending(tree.pending(target)));
                }
            }
            None if is_in_doubt => {
                batch.push(leftover(to_key, etag));
                tree.leftovers.insert(to_key.to_owned(), etag.map(str::to_owned));
            }
            None => {}
        }
        batch.extend(self.ended_move(&mut tree, number));
        let position = self.state.append_end(&batch)?;
        self.forget_move(&mut tree, number);
        drop(tree);
        self.state.durable(position)?;
        Ok(unused)
    }

    /// If objects that were moved, with these keys and ETags, could not be removed: notes that they are to be removed yet. The changes are to
    /// be appended under the same lock.
    fn leave(
        &self,
        tree: &mut Tree,
        removed: Result<()>,
        objects: Vec<(String, String)>,
    ) -> Vec<Change> {
        let Err(error) = removed else { return Vec::new() };
        say(&format!("after a rename the old objects are removed later: {error}"));
        let batch = objects.iter().map(|(key, etag)| leftover(key, Some(etag))).collect();
        tree.leftovers.extend(objects.into_iter().map(|(key, etag)| (key, Some(etag))));
        batch
    }

    /// Moves a file in the tree, and in the state file if it is there; with other changes in the same batch.
    fn place_file(
        &self,
        tree: &mut Tree,
        id: u64,
        target: Option<(u64, Option<Away>)>,
        to: Place,
        mut batch: Vec<Change>,
    ) -> Result<Position> {
        let target = match target {
            Some((target, away)) => {
                self.node(tree, target)?.go_away(away);
                Some(target)
            }
            None => None,
        };
        self.place(tree, id, target, to, &mut batch);
        tree.touch(id);
        if tree.nodes[&id].recorded {
            return self.record_end(tree, id, batch);
        }
        Ok(self.state.append_end(&batch)?)
    }

    /// Moves a node in the tree, into the place of another.
    fn place(
        &self,
        tree: &mut Tree,
        id: u64,
        target: Option<u64>,
        to: Place,
        batch: &mut Vec<Change>,
    ) {
        if let Some(target) = target {
            if tree.nodes[&target].recorded {
                batch.push(Change::Settled(target));
            }
            tree.detach(target);
        }
        let from = tree.nodes[&id].parent;
        tree.place(id, to.0, to.1, to.1);
        for directory in [from, to.0] {
            tree.modified(directory, now());
        }
    }

    /// Notes durably that objects are about to be moved.
    fn begin_move(&self, begun: Move) -> Result<u64> {
        let mut tree = self.tree();
        let id = tree.next;
        tree.next += 1;
        let position = self.state.append_begin(&[begun.noted(id)], begun.room)?;
        tree.moves.insert(id, begun);
        drop(tree);
        self.state.durable(position).inspect_err(|_| self.leave_move(id))?;
        Ok(id)
    }

    /// Notes durably that a move's objects are copied, with the copies' ETags. Those count of nodes in the state file.
    fn copied_all(&self, number: u64, mut etags: Vec<(u64, String)>) -> Result<()> {
        let mut tree = self.tree();
        etags.retain(|(id, _)| tree.get(*id).is_some_and(|node| node.recorded));
        if etags.is_empty() {
            return Ok(());
        }
        let copied = Change::Copied { id: number, etags: etags.clone() };
        let position = self.state.append_end(&[copied])?;
        if let Some(begun) = tree.moves.get_mut(&number) {
            begun.copied = Some(etags);
        }
        drop(tree);
        Ok(self.state.durable(position)?)
    }

    fn ended_move(&self, tree: &mut Tree, number: u64) -> Option<Change> {
        let ended = tree.moves.get_mut(&number)?;
        // Unless it is noted, under the same lock.
        ended.failed = true;
        self.idle.notify_all();
        Some(Change::Moved(number))
    }

    /// The end of a move is noted.
    fn forget_move(&self, tree: &mut Tree, number: u64) {
        if let Some(ended) = tree.moves.remove(&number) {
            self.state.ended(ended.room);
        }
    }

    /// A move is over, and its end cannot be noted.
    fn leave_move(&self, number: u64) {
        if let Some(begun) = self.tree().moves.get_mut(&number) {
            begun.failed = true;
        }
        self.idle.notify_all();
    }

    /// Moves a directory with all below. Nothing else changes objects meanwhile.
    fn rename_directory(&self, id: u64, to: Place) -> Result<()> {
        let (from_key, to_key, parent, target) = {
            let tree = self.tree();
            let to_key = format!("{}{}/", tree.key(to.0), to.1);
            (tree.key(id), to_key, tree.nodes[&id].parent, tree.child(to.0, to.1))
        };
        if target == Some(id) {
            return Ok(());
        }
        let from_whole = self.whole(&from_key);
        let objects = list_all(self.store(), &from_whole, false)?.objects;
        let replaced = target.filter(|target| self.tree().nodes[target].remote.is_some());
        if objects.is_empty() && replaced.is_none() {
            self.keep_directory(parent, id)?;
            let position = self.place_directory(&mut self.tree(), id, target, to, Vec::new())?;
            return Ok(self.state.durable(position)?);
        }
        self.keep_directory(parent, id)?;
        // Of objects that cannot be removed the keys, of nodes that are pending what is.
        let keys: usize = objects.iter().map(|object| object.key.len() + LEFTOVER_BYTES).sum();
        let pending = {
            let tree = self.tree();
            let below = tree.below(id).into_iter();
            below.filter(|id| tree.nodes[id].recorded).count() * PENDING_BYTES_MAX
        };
        let room = (keys + pending) as u64;
        let number = self.begin_move(Move {
            from: from_key.clone(),
            to: to_key.clone(),
            etag: None,
            replaced: None,
            room,
            failed: false,
            copied: None,
        })?;
        let has_marker = objects.iter().any(|object| object.key == from_whole);
        let copies = self.copy_all(&objects, &from_whole, &self.whole(&to_key));
        let undo = || {
            let copied = objects.iter().zip(&copies).filter_map(|(object, copy)| {
                let etag = match copy {
                    Ok((_, etag)) => Some(etag.clone()),
                    Err(Error::Store(StoreError::Failed(_)) | Error::InDoubt(_)) => None,
                    Err(_) => return None,
                };
                Some((format!("{to_key}{}", &object.key[from_whole.len()..]), etag))
            });
            self.undo_copies(number, copied.collect(), replaced)
        };
        let unmarked = match replaced.is_some() && !has_marker && copies.iter().all(Result::is_ok) {
            true => self.remove_certainly(&self.whole(&to_key)),
            false => Ok(()),
        };
        if unmarked.is_err() || copies.iter().any(Result::is_err) {
            undo()?;
            unmarked?;
            return copies.into_iter().find_map(Result::err).map_or(Ok(()), Err);
        }
        let copies: BTreeMap<&str, &(String, String)> = objects
            .iter()
            .zip(&copies)
            .filter_map(|(object, copy)| Some((object.key.as_str(), copy.as_ref().ok()?)))
            .collect();
        // An object that is another than the node knows is somebody else's, or tells that it is not.
        let copied = |tree: &Tree, id: u64| {
            let (former, etag) = copies.get(self.key(tree, id).as_str())?;
            let node = tree.get(id)?;
            let known = node.remote.as_ref().map(|remote| &remote.etag).or(node.replaces.as_ref());
            (node.elsewhere.is_none() && known == Some(former)).then(|| (id, etag.clone()))
        };
        let etags: Vec<(u64, String)> = {
            let tree = self.tree();
            tree.below(id).into_iter().filter_map(|id| copied(&tree, id)).collect()
        };
        if let Err(error) = self.copied_all(number, etags.clone()) {
            undo()?;
            return Err(error);
        }
        let keys: Vec<String> = objects.iter().map(|object| object.key.clone()).collect();
        let removed = self.remove_all(&keys);
        let mut tree = self.tree();
        for (below, etag) in etags {
            // A listing may have taken it away: then the next one brings it.
            let Some(node) = tree.nodes.get_mut(&below) else { continue };
            match &mut node.remote {
                Some(remote) => remote.etag = etag,
                None => node.replaces = Some(etag),
            }
        }
        for below in tree.below(id) {
            tree.changed_remotely(below);
        }
        let segment = tree.nodes[&id].segment.clone();
        tree.removed_remotely(parent, &segment, true);
        let left = |object: &Listed| {
            let below = object.key[self.settings.prefix.len()..].to_owned();
            (below, object.etag.clone())
        };
        let mut batch = self.leave(&mut tree, removed, objects.iter().map(left).collect());
        batch.extend(self.ended_move(&mut tree, number));
        let position = self.place_directory(&mut tree, id, target, to, batch)?;
        self.forget_move(&mut tree, number);
        drop(tree);
        Ok(self.state.durable(position)?)
    }

    /// Moves a directory in the tree, and all below that the state file has.
    fn place_directory(
        &self,
        tree: &mut Tree,
        id: u64,
        target: Option<u64>,
        to: Place,
        mut batch: Vec<Change>,
    ) -> Result<Position> {
        self.place(tree, id, target, to, &mut batch);
        tree.changed_remotely(id);
        let below = tree.below(id);
        let recorded = below.iter().filter(|id| tree.nodes[id].recorded);
        batch.extend(recorded.map(|id| Change::Pending(tree.pending(*id))));
        Ok(self.state.append_end(&batch)?)
    }

    /// Copies objects to keys that begin otherwise; the old and the new ETags, in the objects' order.
    fn copy_all(&self, objects: &[Listed], from: &str, to: &str) -> Vec<Result<(String, String)>> {
        in_parallel(objects, self.settings.parallel, |object| {
            let etag = self.copy_listed(object, &format!("{to}{}", &object.key[from.len()..]))?;
            Ok((object.etag.clone(), etag))
        })
    }

    /// Copies an object whose metadata nobody asked for. If the answer is lost, it is copied again by a request that can be
    /// told by what it made.
    fn copy_listed(&self, object: &Listed, to: &str) -> Result<String> {
        let Listed { key, etag, size, .. } = object;
        match self.copy_object(key, etag, *size, to, None) {
            Err(Error::Store(StoreError::Failed(_))) => {}
            answer => return answer,
        }
        let (properties, written, is_new) = self.identified(&self.store().head(key)?.properties);
        self.certain(to, Makes::Object(&written), || {
            self.copy_object(key, etag, *size, to, is_new.then_some(&properties))
        })
    }

    /// Removes the copies of a move that failed, with ETags as far as these are known, now or later. The marker of the directory that was to
    /// be replaced is written anew.
    fn undo_copies(
        &self,
        number: u64,
        mut made: Vec<(String, Option<String>)>,
        replaced: Option<u64>,
    ) -> Result<()> {
        if let Some(marker) = replaced.map(|id| self.tree().key(id)) {
            made.retain(|(key, _)| *key != marker);
        }
        let removed = made.chunks(REMOVED_AT_ONCE).try_for_each(|some| self.remove_left(some));
        let mut tree = self.tree();
        let mut batch: Vec<Change> = self.ended_move(&mut tree, number).into_iter().collect();
        if removed.is_err() {
            batch.extend(made.iter().map(|(key, etag)| leftover(key, etag.as_deref())));
            tree.leftovers.extend(made);
        }
        let position = match replaced {
            Some(id) => {
                let node = self.node(&mut tree, id)?;
                // Also if it cannot be noted now.
                (node.attributes_dirty, node.recorded) = (true, true);
                tree.touch(id);
                self.record_end(&mut tree, id, batch)?
            }
            None => self.state.append_end(&batch)?,
        };
        self.forget_move(&mut tree, number);
        drop(tree);
        Ok(self.state.durable(position)?)
    }

    pub(super) fn remove_all(&self, keys: &[String]) -> Result<()> {
        let chunks: Vec<&[String]> = keys.chunks(REMOVED_AT_ONCE).collect();
        let results =
            in_parallel(&chunks, self.settings.parallel, |keys| self.store().delete_many(keys));
        Ok(results.into_iter().collect::<crate::store::Result<()>>()?)
    }

    /// Removes objects below the prefix, as many as one request removes, that have these ETags still, as far as these are known.
    pub(super) fn remove_left(&self, left: &[(String, Option<String>)]) -> Result<()> {
        let mut keys = Vec::new();
        for some in left.chunks(self.settings.parallel) {
            let found = in_parallel(some, self.settings.parallel, |(key, etag)| {
                let whole = self.whole(key);
                let Some(etag) = etag else { return Ok(Some(whole)) };
                let found = self.object(&whole)?.map(|head| head.etag);
                if found.as_ref().is_some_and(|found| found != etag) {
                    say(&format!(
                        "{whole} was to be removed after a rename, and is another by now: it stays"
                    ));
                }
                Ok((found.as_ref() == Some(etag)).then_some(whole))
            });
            // Where the store is out of reach, few are asked for.
            keys.extend(found.into_iter().collect::<Result<Vec<Option<String>>>>()?);
        }
        self.remove_all(&keys.into_iter().flatten().collect::<Vec<String>>())
    }

    /// Removes some of what renames left, if the bucket lets it, and notes the ends of renames that could not be noted before.
    pub(super) fn finish_leftovers(&self) -> Result<()> {
        self.note_ended_moves()?;
        if self.store.is_fenced() {
            return Ok(());
        }
        let _stay = self.stay();
        self.remove_some_leftovers()
    }

    /// The tree has what these moves did: the state file is written anew without them.
    fn note_ended_moves(&self) -> Result<()> {
        let mut tree = self.tree();
        let ended = tree.moves.iter().filter(|(_, begun)| begun.failed).map(|(id, _)| *id);
        let ended: Vec<u64> = ended.collect();
        if !ended.is_empty() {
            self.state.compact(&tree.live())?;
            ended.into_iter().for_each(|number| self.forget_move(&mut tree, number));
        }
        Ok(())
    }

    /// Removes what renames left. The caller has `moving`. What is uploaded under these keys after it returned stays, also
    /// after a crash.
    pub(super) fn remove_leftovers(&self) -> Result<()> {
        while !self.tree().leftovers.is_empty() {
            self.remove_some_leftovers()?;
        }
        Ok(())
    }

    fn remove_some_leftovers(&self) -> Result<()> {
        // Whoever waits here must not remove what was uploaded since.
        let _alone = self.removing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let left: Vec<(String, Option<String>)> = {
            let mut tree = self.tree();
            // One that cannot be removed does not keep those after it.
            let Tree { leftovers, left_tried, .. } = &mut *tree;
            let after = (Bound::Excluded(left_tried.as_str()), Bound::Unbounded);
            let others = leftovers.iter().take_while(|(key, _)| *key <= left_tried);
            let some = leftovers.range::<str, _>(after).chain(others).take(REMOVED_AT_ONCE);
            let some: Vec<_> = some.map(|(key, etag)| (key.clone(), etag.clone())).collect();
            left_tried.clone_from(some.last().map_or(&String::new(), |(key, _)| key));
            some
        };
        self.remove_left(&left)?;
        let mut tree = self.tree();
        for (key, _) in &left {
            // If the end cannot be noted: what is there later is somebody else's.
            tree.leftovers.insert(key.clone(), Some(String::new()));
        }
        // Nothing may be uploaded there before it is noted: the next start would remove that. Under the lock, or the state file might be
        // written anew with them.
        for some in left.chunks(NOTED_AT_ONCE) {
            let ended = some.iter().map(|(key, _)| Change::LeftoverEnded(key.clone()));
            let position = self.state.append_end(&ended.collect::<Vec<Change>>())?;
            self.state.durable(position)?;
            for (key, _) in some {
                tree.leftovers.remove(key);
            }
        }
        Ok(())
    }
}
