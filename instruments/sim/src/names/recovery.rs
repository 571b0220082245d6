//! Recovery of home by a log: the real replay and the real tree, over the home of the simulation. It does what the back end's
//! recovery does with a directory: it finds nodes, executes what the tree plans, and notes which inodes it made before
//! anything goes into them. It may be stopped at any request, and is done again then with the same note.

use std::collections::BTreeMap;

use weir_log::{Lsn, NameRecord};
use weir_names::tree::{
    Adoption, Answer, AtHome, Command, HomeError, Kind, LoggedNames, Tree, node_record,
};
use weir_names::{NodeId, Place};

use super::home::Home;
use super::inodes::{Inodes, change_of, identity, inode_of};
use super::undo::Undo;
use crate::crash::edit::Versions;
use crate::rng::Rng;

/// First number for what the log does not know.
const OWN_FIRST: u64 = 1 << 62;

/// Commands of one recovery. More means that it does not end.
const COMMANDS_MAX: u32 = 5000;

/// A line of the note: a node is this inode.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    node: NodeId,
    kind: Kind,
    inode: NodeId,
}

/// Why a recovery ended before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// It was cut.
    #[error("recovery is cut")]
    Cut,
    /// What must not be.
    #[error("{0}")]
    Wrong(String),
}

/// A recovery.
pub(super) struct Recovery<'a> {
    pub(super) home: Home,
    pub(super) note: Vec<Noted>,
    pub(super) inodes: Inodes,
    /// Requests to home until it is cut.
    pub(super) requests_left: Option<u64>,
    pub(super) undone: &'a [Undo],
    names: LoggedNames,
    /// The node of each inode that the log or the note names.
    nodes: BTreeMap<NodeId, NodeId>,
    unnoted: Vec<Noted>,
    end: u64,
    next_own: u64,
    left: Vec<String>,
    rng: Rng,
    pub(super) commands: u64,
}

impl<'a> Recovery<'a> {
    pub(super) fn new(
        home: Home,
        note: Vec<Noted>,
        undone: &'a [Undo],
        rng: &mut Rng,
    ) -> Recovery<'a> {
        Recovery {
            home,
            note,
            inodes: Inodes::default(),
            requests_left: None,
            undone,
            names: LoggedNames::default(),
            nodes: BTreeMap::new(),
            unnoted: Vec::new(),
            end: 0,
            next_own: OWN_FIRST,
            left: Vec::new(),
            rng: rng.fork(),
            commands: 0,
        }
    }

    fn request(&mut self) -> Result<(), Stopped> {
        match &mut self.requests_left {
            Some(0) => Err(Stopped::Cut),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn next_lsn(&mut self) -> Lsn {
        let lsn = Lsn(self.end);
        self.end += 8;
        lsn
    }

    /// A node is this inode; the position of the note that will say so.
    fn name(&mut self, node: NodeId, kind: Kind, inode: NodeId) -> Lsn {
        self.inodes.put(node, inode);
        self.nodes.insert(inode, node);
        self.unnoted.push(Noted { node, kind, inode });
        self.next_lsn()
    }

    /// Makes the note durable. If it is cut there, some of it may be.
    fn write_note(&mut self) -> Result<(), Stopped> {
        let lines = std::mem::take(&mut self.unnoted);
        if lines.is_empty() || self.undone.contains(&Undo::Note) {
            return Ok(());
        }
        let asked = self.request();
        let kept = match &asked {
            Ok(()) => lines.len(),
            Err(_) => self.rng.below(lines.len() as u64 + 1) as usize,
        };
        self.note.extend(lines.into_iter().take(kept));
        asked
    }

    fn recover_names(&mut self, end: Lsn) -> Result<(), Stopped> {
        let wrong = |error: &dyn std::fmt::Display| Stopped::Wrong(error.to_string());
        self.end = end.0;
        let mut tree = Tree::recovering(end);
        for Noted { node, kind, inode } in &self.note {
            let identity = identity(*inode);
            let record = node_record(*node, kind, &identity).map_err(|error| wrong(&error))?;
            self.names.add(end, &record).map_err(|error| wrong(&error))?;
        }
        let names = std::mem::take(&mut self.names);
        for (node, identity) in names.inodes() {
            let inode = inode_of(identity).expect("the simulation names inodes so");
            self.nodes.insert(inode, node);
            if !names.makes(node) || self.home.is_there(inode) {
                self.inodes.put(node, inode);
            }
        }
        let home = &self.home;
        let has = |identity: &[u8]| inode_of(identity).is_some_and(|inode| home.is_there(inode));
        names.replay(&mut tree, has).map_err(|error| wrong(&error))?;
        self.find_parked(&mut tree)?;
        self.bring_home(&mut tree)?;
        tree.check_invariants();
        let refused = tree.refused().map(|(part, error)| format!("{part:?}: {error}"));
        self.left = refused.collect();
        let waiting = tree.unfinished().map(|part| format!("{part:?}"));
        self.left.extend(waiting);
        // A record that was settled is replayed with others of its group, although the log may not name its inode any more: what is
        // there stays, which is right, and is reported as somebody else's, which is not.
        let mut conflicts = tree.take_conflicts();
        conflicts.retain(|conflict| conflict.kept.is_some());
        if !conflicts.is_empty() {
            return Err(Stopped::Wrong(format!("found what nobody made: {conflicts:?}")));
        }
        self.request()?;
        self.home.sync();
        Ok(())
    }

    fn is_empty(&self, inode: NodeId) -> bool {
        let is_written = self.home.files.get(&inode).is_some_and(|file| !file.content().is_empty());
        !is_written && self.home.seen.list(inode).next().is_none()
    }

    fn find_parked(&mut self, tree: &mut Tree) -> Result<(), Stopped> {
        let parked = self.home.seen.list(NodeId::PARKING);
        let parked: Vec<(Place, NodeId)> = parked.map(|(at, inode)| (at.clone(), inode)).collect();
        for (at, inode) in parked {
            let node = Tree::node_parked_as(at.name()).filter(|&node| tree.kind(node).is_some());
            if let Some(node) = node {
                let is_it = tree.is_bound(node) && self.inodes.of(node) == Some(inode);
                let kind = self.home.seen.inode(inode).expect("it was listed").kind.clone();
                let may =
                    !tree.is_bound(node) && tree.kind(node) == Some(&kind) && self.is_empty(inode);
                if may {
                    let named = self.name(node, kind, inode);
                    tree.adopt(node, named);
                }
                if is_it || may {
                    tree.found_parked(node);
                    continue;
                }
            }
            self.request()?;
            let removed = weir_names::tree::Change::Remove { node: inode, at };
            let _ = self.home.execute(removed, 0);
        }
        Ok(())
    }

    fn bring_home(&mut self, tree: &mut Tree) -> Result<(), Stopped> {
        let mut committed = Lsn(self.end);
        let mut is_retried = false;
        for _ in 0..COMMANDS_MAX {
            if let Some((id, command)) = tree.next_command() {
                self.request()?;
                self.commands += 1;
                let result = self.execute(tree, &command);
                tree.ended(id, result);
                continue;
            }
            self.write_note()?;
            if committed < Lsn(self.end) {
                committed = Lsn(self.end);
                tree.committed(committed);
            } else if !is_retried && tree.refused().next().is_some() {
                is_retried = true;
                tree.retry();
            } else {
                return Ok(());
            }
        }
        Err(Stopped::Wrong("recovery of names does not end".to_owned()))
    }

    fn execute(&mut self, tree: &mut Tree, command: &Command) -> Result<Answer, HomeError> {
        if let Command::Look { at } = command {
            let parent = self.inodes.of(at.parent());
            let there = parent.and_then(|parent| {
                self.home.seen.get(&Place::new(parent, at.name()).expect("it is a name"))
            });
            return Ok(Answer::Found(match there {
                None => AtHome::Nothing,
                Some(inode) => AtHome::Node(self.recognize(tree, at, inode)),
            }));
        }
        let change = change_of(command).expect("only a look changes nothing");
        if let Command::Make { node, kind, .. } = command {
            let inode = self.home.new_inode();
            let before = self.inodes.clone();
            self.inodes.put(*node, inode);
            let at_home = self.inodes.at_home(&change).ok_or(HomeError::Changed);
            if let Err(error) = at_home.and_then(|change| self.home.execute(change, 0)) {
                self.inodes = before;
                return Err(error);
            }
            return Ok(Answer::Made(self.name(*node, kind.clone(), inode)));
        }
        let is_set = matches!(command, Command::Set { .. });
        let missing = if is_set { HomeError::Gone } else { HomeError::Changed };
        let at_home = self.inodes.at_home(&change).ok_or(missing)?;
        self.home.execute(at_home, 0).map(|()| Answer::Done)
    }

    /// Which node an inode is that was found at a place.
    fn recognize(&mut self, tree: &mut Tree, at: &Place, inode: NodeId) -> NodeId {
        if let Some(node) = self.inodes.node(inode).filter(|&node| tree.kind(node).is_some()) {
            return node;
        }
        let kind = self.home.seen.inode(inode).expect("it was found").kind.clone();
        let adoption = match self.is_empty(inode) {
            true => tree.adoptable(at, &kind),
            false => Adoption::Foreign,
        };
        if let Adoption::Node(node) = adoption {
            let named = self.name(node, kind, inode);
            tree.adopt(node, named);
            return node;
        }
        let node = NodeId(self.next_own);
        self.next_own += 1;
        match adoption {
            Adoption::Surplus => tree.introduce_surplus(node, kind),
            _ => tree.introduce_foreign(node, kind),
        }
        self.inodes.put(node, inode);
        node
    }
}

impl weir_log::Home for Recovery<'_> {
    type File = NodeId;
    type Error = Stopped;

    const TAKES_NAMES: bool = true;

    fn name(&mut self, lsn: Lsn, record: &NameRecord<'_>) -> Result<(), Stopped> {
        self.names.add(lsn, record).map_err(|error| Stopped::Wrong(error.to_string()))
    }

    fn names_end(&mut self, end: Lsn) -> Result<(), Stopped> {
        self.recover_names(end)
    }

    fn names_left(&self) -> Vec<String> {
        self.left.clone()
    }

    fn identity_of(&self, node: u64) -> Option<Vec<u8>> {
        let inode = self.inodes.of(NodeId(node))?;
        self.home.is_there(inode).then(|| identity(inode).to_vec())
    }

    fn made_again_as(&self, known: &[u8]) -> Option<Vec<u8>> {
        let node = self.nodes.get(&inode_of(known)?)?;
        let now = identity(self.inodes.of(*node)?);
        (now != known).then(|| now.to_vec())
    }

    fn open(&mut self, wanted: &[u8]) -> Result<Option<NodeId>, Stopped> {
        let inode = inode_of(wanted).filter(|&inode| self.home.is_there(inode));
        Ok(inode.filter(|inode| self.home.files.contains_key(inode)))
    }

    fn write(&mut self, inode: &NodeId, offset: u64, data: &[u8]) -> Result<(), Stopped> {
        self.request()?;
        let file = self.home.files.get_mut(inode).expect("it was opened");
        let id = file.begin_write(offset as usize, data.to_vec(), Versions::All(0));
        file.end_write(id);
        Ok(())
    }

    fn truncate(&mut self, inode: &NodeId, size: u64) -> Result<(), Stopped> {
        self.request()?;
        self.home.files.get_mut(inode).expect("it was opened").set_size(size as usize, 0);
        Ok(())
    }

    fn sync(&mut self, inode: &NodeId) -> Result<(), Stopped> {
        self.request()?;
        self.home.settle_names(self.home.names_now());
        let file = self.home.files.get_mut(inode).expect("it was opened");
        let covered = file.begin_sync();
        file.settle_quietly(&covered);
        Ok(())
    }
}
