//! What home has, and when the log is not needed for it any more.
//!
//! A part that is as it should be is *settled* when a sync of home succeeds that began after that. Until then its entry stays,
//! and what was sent of a node's attributes is remembered, so that a failed sync makes them dirty again.

use weir_log::Lsn;

use crate::identity::NodeId;
use crate::tree::entry::AtHome;
use crate::tree::needed::Settling;
use crate::tree::node::{Attributes, Xattrs};
use crate::tree::part::Part;
use crate::tree::state::Tree;
use crate::way::Place;

impl Tree {
    /// A part is as it should be, and committed.
    pub(crate) fn is_home(&mut self, part: &Part) {
        self.queue.settle(part);
        self.surprised.remove(part);
        match part {
            Part::Entry(at) => {
                self.changed_by_others.remove(at);
                let (since, touched) = self.change_entry(at, |entry| {
                    (entry.since.take(), std::mem::take(&mut entry.touched))
                });
                let Some(since) = since else { return };
                self.dirty -= 1;
                if touched && self.has_log {
                    self.change_entry(at, |entry| entry.unsettled += 1);
                    self.needed.settling.push(Settling::Entry { at: at.clone(), since });
                } else {
                    // Home was not changed for it, or what it has counts.
                    self.needed.release(Some(since));
                }
                // It may be the last that was dirty in its directory.
                self.wake(at.parent());
            }
            Part::Attributes(node) => {
                let since = self.nodes.get_mut(node).and_then(|node| node.set_since.take());
                self.dirty -= usize::from(since.is_some());
                self.needed.release(since);
                self.review_need(*node);
            }
        }
    }

    /// Notes that home has a name as it should be, if that is so. It is noted otherwise only when the next command is asked for; a
    /// thread that waited for home may go on before that.
    pub(crate) fn settle_if_home(&mut self, at: &Place) {
        let is_home = self.entry(at).is_some_and(|entry| {
            entry.since.is_some() && !entry.busy && !entry.is_dirty() && entry.lsn < self.durable
        });
        if is_home {
            self.is_home(&Part::Entry(at.clone()));
        }
    }

    /// Home has the attributes that a command set, and the node if the command made it.
    pub(crate) fn attributes_at_home(&mut self, node: NodeId, since: Option<Lsn>) {
        let Some(since) = since else { return };
        if !self.has_log {
            return self.needed.release(Some(since));
        }
        let of = self.nodes.get_mut(&node).expect("a node stays while a command is on it");
        of.unsettled += 1;
        let named = of.named;
        self.needed.settling.push(Settling::Attributes { node, since, named });
    }

    /// Attributes are not at home after all; what was set since counts.
    pub(crate) fn take_back(
        &mut self,
        node: NodeId,
        mut attributes: Attributes,
        xattrs: &Xattrs,
        since: Option<Lsn>,
    ) {
        let Some(of) = self.nodes.get_mut(&node) else {
            self.needed.release(since);
            return;
        };
        attributes.overlay(&of.unset);
        of.unset = attributes;
        for (name, value) in xattrs {
            of.unset_xattrs.entry(name.clone()).or_insert_with(|| value.clone());
        }
        match (since, of.set_since) {
            (Some(since), None) => {
                of.set_since = Some(since);
                self.dirty += 1;
            }
            (Some(since), Some(later)) => {
                of.set_since = Some(since.min(later));
                self.needed.release(Some(since.max(later)));
            }
            (None, _) => {}
        }
    }

    /// Parts that home has, and that no sync of home has settled yet.
    pub fn unsettled(&self) -> usize {
        self.needed.settling.len()
    }

    /// A sync of home as a whole begins. Says whether there is anything that it makes durable.
    pub fn begin_home_sync(&mut self) -> bool {
        assert!(self.needed.syncing.is_empty(), "one sync of home is under way at a time");
        let (now, later) = std::mem::take(&mut self.needed.settling)
            .into_iter()
            .partition(|settling| settling.is_named(self.durable));
        (self.needed.syncing, self.needed.settling) = (now, later);
        !self.needed.syncing.is_empty()
    }

    /// The sync of home ended. If it failed, nothing of what it covered is known to be at home: home is looked at again, and
    /// the caller lists what is parked there ([`Tree::found_parked`]) before it takes the next command.
    pub fn home_synced(&mut self, succeeded: bool) {
        if !succeeded {
            for of in self.nodes.values_mut().filter(|of| !of.busy) {
                of.parked = false;
            }
        }
        for settling in std::mem::take(&mut self.needed.syncing) {
            match settling {
                Settling::Entry { at, since } => self.entry_synced(&at, since, succeeded),
                Settling::Attributes { node, since, .. } => {
                    self.attributes_synced(node, since, succeeded);
                }
            }
        }
    }

    /// The sync of home failed, and home has all that it had: the next one covers what this one did.
    pub fn home_kept(&mut self) {
        self.needed.settling.append(&mut self.needed.syncing);
    }

    fn entry_synced(&mut self, at: &Place, since: Lsn, succeeded: bool) {
        if succeeded {
            self.change_entry(at, |entry| entry.unsettled -= 1);
            return self.needed.release(Some(since));
        }
        let lost = self.entry(at).and_then(|entry| entry.home.node());
        if let Some(lost) = lost.and_then(|node| self.nodes.get_mut(&node)) {
            lost.sync_failed = true;
        }
        let later = self.change_entry(at, |entry| {
            let later = entry.since;
            entry.since = Some(later.map_or(since, |later| later.min(since)));
            entry.unsettled -= 1;
            later
        });
        match later {
            Some(later) => self.needed.release(Some(later.max(since))),
            None => self.dirty += 1,
        }
        if self.entry(at).is_some_and(|entry| !entry.busy) {
            self.set_home(at, AtHome::Unknown);
            self.unsettled_by_failure.insert(at.clone());
        }
        self.queue.push(Part::Entry(at.clone()));
    }

    pub(crate) fn attributes_synced(&mut self, node: NodeId, since: Lsn, succeeded: bool) {
        let Some(of) = self.nodes.get_mut(&node) else {
            return self.needed.release(Some(since));
        };
        of.unsettled -= 1;
        let (sent, xattrs) = match of.unsettled {
            0 => (std::mem::take(&mut of.sent), std::mem::take(&mut of.sent_xattrs)),
            // Newer values are on their way, or were sent.
            _ => (of.sent, of.sent_xattrs.clone()),
        };
        if succeeded {
            (of.settled, of.sync_failed) = (true, false);
            self.review_need(node);
            return self.needed.release(Some(since));
        }
        of.sync_failed = true;
        self.take_back(node, sent, &xattrs, Some(since));
        self.queue.push(Part::Attributes(node));
    }
}
