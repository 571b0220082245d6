//! What became of a request whose answer was lost.
//!
//! What is written or copied here has in its metadata the identity of the write that made it ([`WRITE_ID`]). So after a
//! lost answer the object itself tells whether the request was done: it has the identity, or after a removal is not
//! there. An object of somebody else has another identity or none.
//!
//! If that cannot be asked either, the request is in doubt. The node says so ([`Doubt`]), and it is asked again before the
//! node is looked up, uploaded, moved or removed. An upload in doubt needs no such question: its next one is conditional.

use super::tree::{Asked, Doubt, Node, Remote, Tree};
use super::{Error, FileSystem, Result};
use crate::metadata::{Properties, WRITE_ID, identity};
use crate::store::{Head, StoreError};

/// What a request makes of the object under a key.
#[derive(Clone, Copy)]
pub(super) enum Makes<'a> {
    /// An object with this identity.
    Object(&'a str),
    /// None.
    Nothing,
}

/// Whether an object was written by a node of this state directory, and has more of its changes than the object that was made by the write
/// `known`: the changes that it has. As many are no sign: some programs keep the identity when they write other content (s3fs does).
pub(super) fn written_version(
    head: &Head,
    owner: &str,
    id: u64,
    known: Option<&str>,
) -> Option<u64> {
    let own = format!("{owner}-{id}-");
    let version = |identity: &str| identity.strip_prefix(&own)?.parse::<u64>().ok();
    let written = version(identity(&head.properties)?)?;
    known.and_then(version).is_none_or(|known| written > known).then_some(written)
}

impl FileSystem {
    /// The object with a key, if there is one.
    pub(super) fn object(&self, key: &str) -> Result<Option<Head>> {
        match self.store().head(key) {
            Ok(head) => Ok(Some(head)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a request that changes the object with a key. It fails only if it was not done; with [`Error::InDoubt`] if
    /// that cannot be found out.
    pub(super) fn certain(
        &self,
        key: &str,
        makes: Makes,
        request: impl FnOnce() -> Result<String>,
    ) -> Result<String> {
        let lost = match request() {
            Err(Error::Store(StoreError::Failed(words))) => words,
            answer => return answer,
        };
        let found = self.object(key).map_err(|_| Error::InDoubt(lost.clone()))?;
        match (makes, found) {
            (Makes::Object(wanted), Some(head)) if identity(&head.properties) == Some(wanted) => {
                Ok(head.etag)
            }
            (Makes::Nothing, None) => Ok(String::new()),
            _ => Err(StoreError::Failed(lost).into()),
        }
    }

    /// Removes the object with a key, as [`FileSystem::certain`] has it.
    pub(super) fn remove_certainly(&self, key: &str) -> Result<()> {
        let remove = || {
            self.store().delete(key)?;
            Ok(String::new())
        };
        self.certain(key, Makes::Nothing, remove).map(|_| ())
    }

    /// An object's metadata with an identity, and whether it had none before.
    pub(super) fn identified(&self, properties: &Properties) -> (Properties, String, bool) {
        let mut properties = properties.clone();
        if let Some(identity) = identity(&properties).map(str::to_owned) {
            return (properties, identity, false);
        }
        let number = self.temporary.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let identity = format!("{}-copy-{number}", self.owner);
        properties.user.insert(WRITE_ID.into(), identity.clone());
        (properties, identity, true)
    }

    /// Finds out what became of what is in doubt about a node. If it is gone, its name is taken away. The caller has made
    /// it busy.
    pub(super) fn make_sure(&self, id: u64) -> Result<()> {
        let (key, doubt) = {
            let mut tree = self.tree();
            let Some(doubt) = self.node(&mut tree, id)?.doubt.clone() else { return Ok(()) };
            (self.key(&tree, id), doubt)
        };
        let head = self.object(&key)?;
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        node.doubt = None;
        let mut unused = doubt.away.clone();
        let position = match (&doubt.asked, head) {
            (Asked::Removal, None) if node.entries.by_name.is_empty() => {
                node.go_away(unused.take());
                Some(self.forget_name(&mut tree, id)?)
            }
            (Asked::Removal, None) => {
                // A directory in which something was made: it stays, and is to have a marker again.
                node.remote = None;
                node.attributes_dirty = true;
                tree.touch(id);
                Some(self.record_end(&mut tree, id, Vec::new())?)
            }
            (Asked::Replacement(wanted), Some(head))
                if identity(&head.properties) == Some(wanted) =>
            {
                node.go_away(unused.take());
                Some(self.take_replacement(&mut tree, id, head)?)
            }
            (_, Some(head)) => {
                let known = node.remote.as_ref().and_then(Remote::written);
                if written_version(&head, &self.owner, id, known).is_some() {
                    node.remote = Some(Remote::of(head));
                }
                None
            }
            _ => None,
        };
        drop(tree);
        self.discard_away(unused);
        match position {
            Some(position) => Ok(self.state.durable(position)?),
            None => Ok(()),
        }
    }

    /// A node whose object was replaced gives its name to one for the object that is there now.
    fn take_replacement(
        &self,
        tree: &mut Tree,
        id: u64,
        head: Head,
    ) -> Result<crate::state_file::Position> {
        let node = self.node(tree, id)?;
        let (parent, name, segment) = (node.parent, node.name.clone(), node.segment.clone());
        let attributes = self.settings.defaults.attributes(node.attributes.kind, head.modified);
        let position = self.forget_name(tree, id)?;
        let mut theirs = Node::new(parent, name, segment, attributes);
        theirs.content.reset(head.size);
        theirs.remote = Some(Remote::of(head));
        let new = tree.add(theirs);
        tree.changed_remotely(new);
        Ok(position)
    }

    /// The node of a name, once it is sure that it has the name.
    pub(super) fn sure_child(&self, parent: u64, name: &str) -> Result<Option<u64>> {
        loop {
            let tree = self.tree();
            let Some(id) = tree.child(parent, name) else { return Ok(None) };
            if !tree.nodes[&id].may_be_gone() {
                return Ok(Some(id));
            }
            drop(tree);
            self.settle_doubt(id)?;
        }
    }

    /// Finds out whether a node is gone, if that is in doubt. The caller has not `moving`.
    pub(super) fn settle_doubt(&self, id: u64) -> Result<()> {
        let _stay = self.stay();
        let Ok(tree) = self.occupy(self.tree(), id) else { return Ok(()) };
        drop(tree);
        let result = self.make_sure(id);
        self.vacate(&mut self.tree(), id);
        result
    }

    /// Notes what is in doubt about a node, durably if the state file has the node.
    pub(super) fn doubt(&self, id: u64, doubt: Doubt) -> Result<()> {
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        node.doubt = Some(Box::new(doubt));
        if !node.recorded {
            return Ok(());
        }
        let position = self.record_end(&mut tree, id, Vec::new())?;
        drop(tree);
        Ok(self.state.durable(position)?)
    }
}
