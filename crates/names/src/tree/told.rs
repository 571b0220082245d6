//! What the owner of a tree did at home by itself, and tells.

use crate::identity::NodeId;
use crate::tree::entry::AtHome;
use crate::tree::state::Tree;
use crate::way::Place;

impl Tree {
    /// Home was changed under a name on which nothing is to be done: it leads there now. The node was introduced.
    pub fn changed_at_home(&mut self, at: &Place, node: Option<NodeId>) {
        let is_known = node.is_none_or(|node| self.nodes.contains_key(&node));
        let is_dirty = self.entry(at).is_some_and(|entry| entry.since.is_some() || entry.busy);
        if !is_known || is_dirty || self.directory_mut(at.parent()).is_none() {
            return;
        }
        let home = node.map_or(AtHome::Nothing, AtHome::Node);
        let before = self.change_entry(at, |entry| {
            let before = [entry.wanted, entry.home.node()];
            (entry.wanted, entry.home) = (node, home);
            before
        });
        for node in before.into_iter().flatten() {
            self.review_place(node, at);
            self.wake(node);
        }
        self.wake(at.parent());
    }

    /// A node got a name at home that the tree may not know.
    pub fn got_another_name(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.has_forgotten_names = true;
        }
    }

    /// Whether all names of a node are known: it was made by a change, and no name of it was forgotten.
    pub fn knows_all_names(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.made_here && !node.has_forgotten_names)
    }

    /// Whether a command that changes a node, or its names, is under way.
    pub fn is_busy(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.busy)
    }
}

#[cfg(test)]
mod tests {
    use weir_log::Lsn;

    use super::*;
    use crate::tree::{Change, Kind};

    #[test]
    fn what_was_done_at_home_is_what_names_lead_to() {
        let mut tree = Tree::without_log();
        let place = |name: &str| Place::new(NodeId::ROOT, name.as_bytes()).unwrap();
        let directory = NodeId(7);
        tree.introduce(directory, Kind::Directory);
        tree.found(&place("old"), Some(directory));
        tree.listed(NodeId::ROOT);
        // It has an entry of its own, so that it cannot be forgotten.
        let at = Place::new(directory, b"file").unwrap();
        let attributes = Default::default();
        tree.found(&at, None);
        tree.apply(Change::Make { node: NodeId(8), at, kind: Kind::File, attributes }, Lsn(1));
        tree.changed_at_home(&place("old"), None);
        tree.changed_at_home(&place("new"), Some(directory));
        assert_eq!(tree.look_up(NodeId::ROOT, b"old"), Some(None));
        assert_eq!(tree.look_up(NodeId::ROOT, b"new"), Some(Some(directory)));
        tree.check_invariants();
        tree.changed_at_home(&place("new"), None);
        assert_eq!(tree.look_up(NodeId::ROOT, b"new"), Some(None));
    }
}
