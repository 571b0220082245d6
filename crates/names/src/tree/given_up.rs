//! What a recovery cannot make as the log says, since somebody else removed or moved what it is about: names that are given up,
//! and directories that get another place.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::entry::AtHome;
use crate::tree::part::Part;
use crate::tree::state::Tree;
use crate::way::Place;

impl Tree {
    /// Home does not have the node that a name is to lead to, or has it where somebody else put it: the name leads to what
    /// home has there, unless that is to get another name. The caller has just looked what it is, and introduced it.
    pub fn give_up(&mut self, at: &Place, found: AtHome) {
        let stays = found.node().filter(|there| {
            self.foreign.contains(there) || self.wanted_places(*there).all(|place| place == at)
        });
        self.set_home(at, found);
        let before = self.change_entry(at, |entry| std::mem::replace(&mut entry.wanted, stays));
        if let Some(there) = stays.and_then(|there| self.nodes.get_mut(&there)) {
            there.nameless = false;
        }
        for node in [before, stays].into_iter().flatten() {
            self.review_place(node, at);
            self.wake(node);
        }
        self.look_anew(Part::Entry(at.clone()));
    }

    /// Home does not have a directory any more, in which something is to be: it is made again under the name that it is to
    /// have, or else at `at`, by a change at `lsn`. That name is free, or leads to an empty directory.
    pub fn make_elsewhere(&mut self, directory: NodeId, at: &Place, lsn: Lsn) {
        self.make_again(directory);
        self.nodes.get_mut(&directory).expect("it was made again").made_here = true;
        self.put(directory, at, lsn);
    }

    /// A parked directory that was to be removed is not empty: it gets a name, by a change at `lsn`.
    pub fn keep_parked(&mut self, directory: NodeId, at: &Place, lsn: Lsn) {
        self.put(directory, at, lsn);
        self.look_anew(Part::Attributes(directory));
    }

    fn put(&mut self, directory: NodeId, at: &Place, lsn: Lsn) {
        let places: Vec<Place> = self.wanted_places(directory).cloned().collect();
        if places.is_empty() {
            self.want(at, Some(directory), lsn);
        }
        places.into_iter().for_each(|place| self.look_anew(Part::Entry(place)));
    }

    fn look_anew(&mut self, part: Part) {
        self.surprised.remove(&part);
        self.queue.settle(&part);
        self.queue.push(part);
    }
}
