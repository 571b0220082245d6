//! Names in the log where handles do not last, as on sshfs and overlays: an inode that recovery finds there cannot be told
//! from another one. So the log says where home has each node that it speaks of, and what home is made to do to a name
//! before home does it. Which of the steps under way were done when the daemon died is seen from the names that are there
//! (docs/LOG_FORMAT.md).
//!
//! Owns what the log has said of places ([`weir_names::Placed`]), which is what recovery will read. Where the log is needed for
//! that is [`ByPath::kept_from`].
//!
//! Invariants:
//! - what is in the table was said in the log at or after [`ByPath::kept_from`];
//! - a node has one number as long as the log has records of it that may be replayed.

use weir_log::{Entry, FileType, Lsn, NameRecord, Record};
use weir_names::tree::{CommandId, HomeError, Step, Tree};
use weir_names::{NodeId, Place};

use crate::inodes::Inodes;
use crate::write_behind::continued::Said;
use crate::write_behind::doubts::{Before, Doubt};
use crate::write_behind::known_names::{keeps_a_name, names_at_home, other_name, sure_names};
use crate::write_behind::log::{NamesLog, Unlogged};
use crate::write_behind::moves::{Begun, ByPath, Stage};
use crate::write_behind::state::{State, WriteBehind};

impl NamesLog {
    /// Sees to it that the log says where home has a node, and the directories above it. Gives its number.
    pub(super) fn say_where(
        &mut self,
        tree: &Tree,
        inodes: &Inodes,
        node: NodeId,
    ) -> Result<u64, Unlogged> {
        if node == NodeId::ROOT {
            return Ok(node.0);
        }
        let other = other_name(tree, inodes, node);
        let is_said = |log: &NamesLog, at: &Place, number| {
            log.find_at(tree, inodes, at) == Some(NodeId(number))
        };
        if let Some(&number) = self.numbers.get(&node)
            && self.placed().places.has(NodeId(number))
            && sure_names(tree, node).all(|at| is_said(self, at, number))
            && other.as_ref().is_none_or(|at| is_said(self, at, number))
        {
            return Ok(number);
        }
        // It may have got another name. Of what is under way only one that this does not concern is sure.
        let is_moving = tree.is_busy(node) && self.has_told_of(node);
        let names = match is_moving {
            true => sure_names(tree, node).cloned().chain(other).collect(),
            false => names_at_home(tree, inodes, node),
        };
        let mut places = Vec::with_capacity(names.len());
        for at in &names {
            places.push(self.numbered(tree, inodes, at)?);
        }
        // Its data is in the log under that number.
        let logged = inodes.get(node).and_then(|inode| inode.file()?.log_node());
        let known = || places.iter().find_map(|at| self.by_path.as_ref()?.places.node_at(at));
        let number = match logged.or_else(|| known().map(|known| known.0)) {
            Some(known) => known,
            None => self.number(inodes, node).ok_or(Unlogged::Failed)?,
        };
        self.numbers.insert(node, number);
        let file_type = file_type_of(tree, inodes, node).ok_or(Unlogged::Never)?;
        for at in places {
            self.place(NodeId(number), file_type, &at)?;
        }
        match self.placed().places.has(NodeId(number)) {
            true => Ok(number),
            false => Err(Unlogged::Never),
        }
    }

    /// Whether the log has said where home has a node, or is about to: it is under way.
    fn has_told_of(&self, node: NodeId) -> bool {
        let Some((&number, by_path)) = self.numbers.get(&node).zip(self.by_path.as_ref()) else {
            return false;
        };
        let number = NodeId(number);
        by_path.places.has(number) || by_path.under_way.values().any(|step| step.node == number)
    }

    /// Sees to it that the log says what home has under a name that a change mentions.
    pub(super) fn say_what_is_at(
        &mut self,
        tree: &Tree,
        inodes: &Inodes,
        at: &Place,
    ) -> Result<(), Unlogged> {
        let Some(node) = tree.home_at(at).filter(|_| !tree.is_changing(at)) else {
            return Ok(());
        };
        let number = self.say_where(tree, inodes, node)?;
        let file_type = file_type_of(tree, inodes, node).ok_or(Unlogged::Never)?;
        let at = self.numbered(tree, inodes, at)?;
        self.place(NodeId(number), file_type, &at)
    }

    /// Sees to it that the log says that home has a node under a name.
    fn place(&mut self, number: NodeId, file_type: FileType, at: &Place) -> Result<(), Unlogged> {
        if self.placed().places.node_at(at) != Some(number) {
            self.end_refused(|step| step.node != number && step.names().any(|name| name == at))?;
            let lsn = self.append_place(number, file_type, at)?;
            self.placed().places.place(number, file_type, Some(at), lsn);
        }
        Ok(())
    }

    /// The number that the log has for what home has under a name.
    fn find_at(&self, tree: &Tree, inodes: &Inodes, at: &Place) -> Option<NodeId> {
        let parent = self.find(tree, inodes, at.parent())?;
        self.by_path.as_ref()?.places.node_at(&Place::new(parent, at.name())?)
    }

    pub(super) fn find(&self, tree: &Tree, inodes: &Inodes, node: NodeId) -> Option<NodeId> {
        if node == NodeId::ROOT {
            return Some(node);
        }
        match self.numbers.get(&node) {
            Some(&number) => Some(NodeId(number)),
            None => {
                let names = names_at_home(tree, inodes, node);
                names.iter().find_map(|at| self.find_at(tree, inodes, at))
            }
        }
    }

    fn numbered(&mut self, tree: &Tree, inodes: &Inodes, at: &Place) -> Result<Place, Unlogged> {
        let parent = self.say_where(tree, inodes, at.parent())?;
        Ok(Place::new(NodeId(parent), at.name()).expect("it is a name"))
    }

    fn append_place(
        &mut self,
        number: NodeId,
        file_type: FileType,
        at: &Place,
    ) -> Result<Lsn, Unlogged> {
        let record = NameRecord::Place { node: number.0, file_type, at: entry(at) };
        // It is durable as soon as what speaks of it.
        let lsn = self.append_record(&[], &Record::Name(record), Said::OfHome)?;
        self.placed().since.get_or_insert(lsn);
        Ok(lsn)
    }

    /// Whether the log is needed from long ago to know where nodes are, and has little room.
    pub(super) fn has_old_places(&self) -> bool {
        let Some(by_path) = self.by_path.as_ref().filter(|by_path| by_path.renewed.is_none())
        else {
            return false;
        };
        // A quarter of the ring, of data, too.
        let old = self.shard.group_bytes_max() as u64;
        let durable = self.shard.names_durable();
        by_path.since.is_some_and(|since| durable.0.saturating_sub(since.0) > old)
            && self.shard.log_wants_room()
    }

    /// Says once more where all nodes are of which the log may have to know that, and which steps are under way. What the log said
    /// before is not needed any more when that is durable. `false`: there was no room for it.
    pub(super) fn renew_places(&mut self, inodes: &Inodes) -> bool {
        // Said once more after places, they would be taken for what brought these there.
        if self.end_refused(|_| true).is_err() {
            return false;
        }
        let tail = self.shard.log_tail();
        let mut needed = inodes.log_numbers();
        needed.extend(self.numbers.values());
        let by_path = self.placed();
        by_path.places.forget(tail, |node| needed.contains(&node.0));
        let steps: Vec<Step> = by_path.under_way.values().cloned().collect();
        let places = by_path.places.iter();
        let mut places: Vec<Whereabouts> = places
            .map(|(node, file_type, at)| Whereabouts { node, file_type, at: at.clone() })
            .collect();
        by_path.is_alone = by_path.is_idle();
        let said = steps
            .iter()
            .map(|step| {
                let of_step = places.extract_if(.., |said| said.ends(step)).collect::<Vec<_>>();
                self.append_begun_again(step, &of_step)
            })
            .collect::<Result<Vec<Lsn>, Unlogged>>();
        let said = said.and_then(|mut said| {
            for Whereabouts { node, file_type, at } in &places {
                said.push(self.append_place(*node, *file_type, at)?);
            }
            Ok(said)
        });
        self.placed().is_alone = false;
        let Ok(said) = said else { return false };
        match (said.first(), said.last()) {
            (Some(&first), Some(&last)) => {
                self.placed().renewed = Some((first, last));
                self.appended(last);
            }
            _ => (self.placed().since, self.placed().renewed) = (None, None),
        }
        true
    }

    /// Says once more that a step is begun, together with places that would say that it has ended.
    fn append_begun_again(&mut self, step: &Step, places: &[Whereabouts]) -> Result<Lsn, Unlogged> {
        let places: Vec<Record<'_>> = places.iter().map(|of| Record::Name(of.record())).collect();
        self.append_record(&places, &Record::Name(step_record(step, Stage::Begun)), Said::OfHome)
    }

    /// Logs that home may do a step from now on; `replaced` is what home has under the new
    /// name. `None` if names are not logged so.
    fn begin(
        &mut self,
        tree: &Tree,
        inodes: &Inodes,
        step: &Step,
        replaced: Option<NodeId>,
    ) -> Result<Option<Begun>, Unlogged> {
        let Some(by_path) = &mut self.by_path else { return Ok(None) };
        by_path.is_alone = by_path.is_idle();
        let begun = self.begin_with_room(tree, inodes, step, replaced);
        self.placed().is_alone = false;
        begun.map(Some)
    }

    fn begin_with_room(
        &mut self,
        tree: &Tree,
        inodes: &Inodes,
        step: &Step,
        replaced: Option<NodeId>,
    ) -> Result<Begun, Unlogged> {
        let is_new = !tree.is_bound(step.node) && tree.kind(step.node).is_some();
        let number = match is_new {
            true => self.number(inodes, step.node).ok_or(Unlogged::Failed)?,
            false => self.say_where(tree, inodes, step.node)?,
        };
        let mut place = |at: &Option<Place>| -> Result<Option<Place>, Unlogged> {
            at.as_ref().map(|at| self.numbered(tree, inodes, at)).transpose()
        };
        let (from, to) = (place(&step.from)?, place(&step.to)?);
        if let Some(replaced) = replaced {
            self.say_where(tree, inodes, replaced)?;
        }
        let file_type = file_type_of(tree, inodes, step.node).ok_or(Unlogged::Never)?;
        let numbered = Step { node: NodeId(number), from, to };
        let lsn = self.append_step(&numbered, Stage::Begun)?;
        let lsn = self.free_position(lsn);
        self.placed().under_way.insert(lsn, numbered.clone());
        Ok(Begun { step: step.clone(), numbered, file_type, lsn })
    }

    /// A position for a step that is under way: where the log goes on after it has failed, what is of home has none of its own.
    fn free_position(&mut self, lsn: Lsn) -> Lsn {
        let last = self.placed().under_way.keys().next_back().copied();
        last.filter(|&last| self.failed && last >= lsn).map_or(lsn, |last| Lsn(last.0 + 1))
    }

    /// Home did it, or did not and will not. The record's position.
    pub(super) fn end(&mut self, begun: &Begun, stage: Stage) -> Result<Lsn, Unlogged> {
        let lsn = self.append_step(&begun.numbered, stage)?;
        let by_path = self.placed();
        by_path.under_way.remove(&begun.lsn);
        match stage {
            Stage::Done => by_path.places.stepped(&begun.numbered, begun.file_type, lsn),
            _ => by_path.places.mentioned(begun.numbered.node, lsn),
        }
        Ok(self.of_home(lsn))
    }

    fn append_step(&mut self, numbered: &Step, stage: Stage) -> Result<Lsn, Unlogged> {
        let record = Record::Name(step_record(numbered, stage));
        let lsn = self.append_record(&[], &record, Said::OfHome)?;
        self.placed().since.get_or_insert(lsn);
        if self.continued.is_none() {
            self.appended(lsn);
        }
        Ok(lsn)
    }

    pub(super) fn placed(&mut self) -> &mut ByPath {
        self.by_path.as_mut().expect("handles do not last")
    }
}

/// Where home has a node, with the log's numbers.
struct Whereabouts {
    node: NodeId,
    file_type: FileType,
    at: Place,
}

impl Whereabouts {
    fn record(&self) -> NameRecord<'_> {
        let Whereabouts { node, file_type, at } = self;
        NameRecord::Place { node: node.0, file_type: *file_type, at: entry(at) }
    }

    /// Whether recovery takes a step for ended that was begun before this was said.
    fn ends(&self, step: &Step) -> bool {
        let is_directory = self.file_type == FileType::Directory;
        self.node == step.node && is_directory || step.names().any(|at| *at == self.at)
    }
}

fn step_record(step: &Step, stage: Stage) -> NameRecord<'_> {
    let (from, to) = (step.from.as_ref().map(entry), step.to.as_ref().map(entry));
    NameRecord::Step { node: step.node.0, stage, from, to }
}

fn entry(at: &Place) -> Entry<'_> {
    Entry { directory: at.parent().0, name: at.name() }
}

fn file_type_of(tree: &Tree, inodes: &Inodes, node: NodeId) -> Option<FileType> {
    if let Some(kind) = tree.kind(node) {
        return weir_names::tree::file_type(kind);
    }
    match inodes.get(node)?.kind() {
        rustix::fs::FileType::RegularFile => Some(FileType::File),
        rustix::fs::FileType::Directory => Some(FileType::Directory),
        rustix::fs::FileType::Symlink => Some(FileType::Symlink),
        rustix::fs::FileType::Fifo => Some(FileType::Fifo),
        rustix::fs::FileType::Socket => Some(FileType::Socket),
        rustix::fs::FileType::CharacterDevice => Some(FileType::CharacterDevice),
        rustix::fs::FileType::BlockDevice => Some(FileType::BlockDevice),
        rustix::fs::FileType::Unknown => None,
    }
}

impl WriteBehind {
    /// Logs that home may do a step, for a command or at once; `replaced` is what home has under the new name. Home may when
    /// that is durable. `None` if names are not logged so.
    ///
    /// # Errors
    /// [`Refusal`]: home must not do it now.
    pub(crate) fn begin_step(
        &self,
        inodes: &Inodes,
        step: &Step,
        replaced: Option<NodeId>,
    ) -> Result<Option<Begun>, Refusal> {
        let mut state = self.lock();
        loop {
            let State { tree, log, doubts, .. } = &mut *state;
            let Some(log) = log.as_mut().filter(|log| log.by_path.is_some()) else {
                return Ok(None);
            };
            match doubts.before(step) {
                Some(Before::Ask(doubt)) => return Err(Refusal::Doubt(doubt)),
                Some(Before::Wait) => {
                    self.call_workers(&mut state);
                    return Err(Refusal::InDoubt);
                }
                None => {}
            }
            let again = log.begin_again(tree, inodes, step);
            let begun = again.and_then(|again| match again {
                Some(begun) => Ok(Some(begun)),
                None => log.begin(tree, inodes, step, replaced),
            });
            match begun {
                Ok(begun) => return Ok(begun),
                // Nothing of it is replayed any more.
                Err(_) if !log.is_recorded() => return Ok(None),
                Err(Unlogged::Full) => return Err(Refusal::Full),
                Err(Unlogged::Never) => return Err(Refusal::NotLogged),
                Err(Unlogged::Failed) if log.failed => return Err(Refusal::NotLogged),
                // The log goes on.
                Err(Unlogged::Failed) => state.log_failed(),
            }
        }
    }

    /// Logs what became of a step. The record's position. Blocks while the log is full.
    pub(crate) fn end_step(&self, begun: &Begun, stage: Stage) -> Option<Lsn> {
        let lsn = self.append_now(|state| Some(state.log.as_mut()?.end(begun, stage)));
        self.lock().doubts.settle(begun);
        lsn
    }

    /// It is not known whether home did a step: it failed with this error, or could not be found out. Gives back what
    /// [`WriteBehind::ended`] does.
    #[must_use]
    pub(crate) fn answer_lost(&self, doubt: Doubt, error: HomeError) -> Option<HomeError> {
        self.answered(Err(error), |state| {
            if let Some((id, _)) = &doubt.of {
                state.tree.answer_lost(*id, error);
            }
            state.doubts.keep(doubt);
            for id in state.doubts.give_up_held() {
                state.tree.answer_lost(id, error);
            }
        })
    }

    /// Home did not do a step whose answer was lost, and the log says so. Its command ends.
    pub(crate) fn was_not_done(&self, id: CommandId) {
        self.tell(|state| state.tree.was_not_done(id));
    }

    /// The number by which recovery finds a file that home has, where handles do not last. `None` where they do, or if the
    /// file cannot be logged now.
    pub(crate) fn number_file(&self, inodes: &Inodes, node: NodeId) -> Option<u64> {
        let mut state = self.lock();
        let State { tree, log, .. } = &mut *state;
        let log = log.as_mut().filter(|log| !log.failed && log.by_path.is_some())?;
        if !keeps_a_name(tree, inodes, node) {
            return None;
        }
        log.say_where(tree, inodes, node).ok()
    }

    /// Home removed the last name of a node. Where inodes are told apart by nothing but home's inode number, the next one that
    /// home gives this number to is the same node: it must not get the number in the log of the removed one, whose data is
    /// there. A file that is still open keeps its number ([`weir_backend::HomeFile::log_node`]). To be called while the inode
    /// is held.
    pub(crate) fn forget_number(&self, node: NodeId) {
        let mut state = self.lock();
        let State { tree, log, .. } = &mut *state;
        if let Some(log) = log.as_mut().filter(|log| log.by_path.is_some())
            && tree.kind(node).is_none()
        {
            log.let_go(node);
        }
    }

    /// Whether recovery finds files by what the log says of their places.
    pub(crate) fn logs_places(&self) -> bool {
        let state = self.lock();
        state.log.as_ref().is_some_and(|log| !log.failed && log.by_path.is_some())
    }

    /// Whether a name is known that a node is to keep, by which recovery finds it.
    pub(crate) fn keeps_a_name(&self, inodes: &Inodes, node: NodeId) -> bool {
        keeps_a_name(&self.lock().tree, inodes, node)
    }

    /// The node that the log says home has under a name; `None` if it says nothing of it.
    pub(crate) fn node_placed_at(&self, inodes: &Inodes, at: &Place) -> Option<NodeId> {
        let state = self.lock();
        let log = state.log.as_ref()?;
        let number = log.find_at(&state.tree, inodes, at)?;
        log.numbers.iter().find(|&(_, &known)| known == number.0).map(|(&node, _)| node)
    }

    /// Whether the log has said something of the node or a name of a step, so that it must say this, too.
    pub(crate) fn knows_place_of(&self, inodes: &Inodes, step: &Step) -> bool {
        let state = self.lock();
        let State { tree, log: Some(log), .. } = &*state else { return false };
        let is_placed = |node| log.by_path.as_ref().is_some_and(|by_path| by_path.places.has(node));
        log.find(tree, inodes, step.node).is_some_and(is_placed)
            || step.names().any(|at| log.find_at(tree, inodes, at).is_some())
    }

    /// The log says once more where nodes are, so that it need not be kept for that from before. Blocks while it is full.
    ///
    /// # Errors
    /// Home's, if it refuses everything.
    pub(crate) fn renew_places(&self, inodes: &Inodes) -> Result<(), HomeError> {
        while !self.try_renewing(inodes) {
            self.wait_for_log_of_home()?;
        }
        Ok(())
    }

    fn try_renewing(&self, inodes: &Inodes) -> bool {
        let mut state = self.lock();
        match state.log.as_mut().filter(|log| !log.failed && log.by_path.is_some()) {
            Some(log) => log.renew_places(inodes),
            None => true,
        }
    }
}

/// Why home must not do something to a name yet.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It may have done this before, which is to be found out and told first ([`WriteBehind::end_step`]).
    Doubt(Box<Doubt>),
    /// It may have done something else to its names, which is found out when home is tried again.
    InDoubt,
    /// The log has no room for it: to be tried again ([`WriteBehind::wait_for_log`]).
    Full,
    /// It cannot be logged.
    NotLogged,
}
