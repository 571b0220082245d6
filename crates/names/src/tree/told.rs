//! What the owner of a tree did at home by itself, and tells.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::entry::AtHome;
use crate::tree::node::{Attributes, Binding, Kind, Node};
use crate::tree::part::Part;
use crate::tree::state::Tree;
use crate::way::Place;

impl Tree {
    /// Home was changed under a name on which nothing is to be done: it leads there now. The node was introduced.
    pub fn changed_at_home(&mut self, at: &Place, node: Option<NodeId>) {
        self.settle_if_home(at);
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

    /// A program opened a node that has no name any more, or it had it open when that lost its name: what is set of the
    /// node is seen, and if home does not have it, it is made there without a name. A node that is not known is introduced:
    /// `made` are the attributes of one that home does not have. Not for directories.
    pub fn hold_nameless(&mut self, node: NodeId, kind: Kind, made: Option<Attributes>, lsn: Lsn) {
        let binding = if made.is_some() { Binding::Unbound } else { Binding::Bound };
        let is_new = !self.nodes.contains_key(&node);
        let held = self.nodes.entry(node).or_insert_with(|| Node::new(kind, binding));
        if is_new {
            (held.unset, held.made_here) = (made.unwrap_or_default(), made.is_some());
            held.nameless = true;
        }
        held.held = true;
        if held.nameless && held.binding == Binding::Unbound {
            self.attributes_changed(node, lsn);
        }
        self.review_need(node);
    }

    /// What comes next in the log waits for a file's data, and the file may have no other name than one that comes later: home makes
    /// it without its name, so that the data has a place. The change that made the file is durable.
    pub fn make_ahead(&mut self, node: NodeId) {
        let Some(of) = self.nodes.get_mut(&node).filter(|of| !of.is_bound()) else { return };
        of.is_ahead = true;
        self.queue.push(Part::Attributes(node));
    }

    /// No program has the node open any more. If it has no name, what home does not have of it is of no use. Says whether the
    /// tree knew that it was open.
    pub fn release_nameless(&mut self, node: NodeId) -> bool {
        let Some(of) = self.nodes.get_mut(&node).filter(|of| of.held) else { return false };
        of.held = false;
        self.queue.ask_again(&Part::Attributes(node));
        self.queue.push(Part::Attributes(node));
        self.review_need(node);
        true
    }

    /// A node is known that has no name any more, and that home has.
    pub fn introduce_nameless(&mut self, node: NodeId, kind: Kind) {
        let binding = Binding::Bound;
        self.nodes
            .entry(node)
            .or_insert_with(|| Node { nameless: true, ..Node::new(kind, binding) });
    }

    /// Whether the last name of a node was removed here.
    pub fn is_nameless(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|of| of.nameless)
    }

    /// Whether all names of a node are known: it was made by a change, and no name of it was forgotten.
    pub fn knows_all_names(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.made_here && !node.has_forgotten_names)
    }

    /// Whether a command that changes a node, or its names, is under way.
    pub fn is_busy(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.busy)
    }

    /// Whether a command is under way that may change how many links home counts of a node: its names, the first one included,
    /// or of a directory its subdirectories.
    pub fn are_links_changing(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|of| match &of.directory {
            Some(directory) => directory.subdirectories.busy > 0,
            None => of.busy && (of.setting.is_none() || of.binding == Binding::Making),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Answer, Change, Standing};

    #[test]
    fn what_was_done_at_home_counts_before_it_is_noted_that_home_has_what_was_there() {
        let mut tree = Tree::without_log();
        let at = Place::new(NodeId::ROOT, b"directory").unwrap();
        tree.listed(NodeId::ROOT);
        let (node, kind) = (NodeId(7), Kind::Directory);
        let attributes = Default::default();
        tree.apply(Change::Make { node, at: at.clone(), kind, attributes }, Lsn(1));
        let (id, _) = tree.next_command().unwrap();
        // A thread that waits for home goes on now, although no further command was asked for yet.
        tree.ended(id, Ok(Answer::Made(Lsn(0))));
        assert_eq!(tree.standing_of(&at), Standing::Home);
        tree.changed_at_home(&at, None);
        assert_eq!(tree.look_up(NodeId::ROOT, at.name()).flatten(), None);
        tree.check_invariants();
        assert!(tree.next_command().is_none());
        assert_eq!(tree.dirty(), 0);
    }

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
