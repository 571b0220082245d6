//! Performing the actions of programs and of the file system: requests, freezes, descriptions, attaching and detaching
//! files. Each method returns whether the action was possible; if not, nothing was done.

use weir_engine::{Durability, Error, FileId, FreezeEnd, Outcome, PAGE_BYTES, RequestId};

use crate::action::FrozenAction;
use crate::home::Home;
use crate::model::FileModel;
use crate::violation::Violation;
use crate::world::{Description, Phase, Waiting, WaitingKind, World};

const PAGE: u64 = PAGE_BYTES as u64;

impl World {
    pub(crate) fn usable(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|state| state.phase == Phase::Attached)
    }

    /// Whether the inode lock, if there is one, is free.
    pub(crate) fn unlocked(&self, file: FileId) -> bool {
        !self.config.inode_lock
            || self.files[&file].frozen.is_none()
                && !self
                    .waiting
                    .values()
                    .any(|other| other.is_exclusive() && other.file() == Some(file))
    }

    pub(crate) fn new_request(&mut self, kind: WaitingKind) -> (RequestId, Waiting) {
        self.next_request += 1;
        let start = self.next_moment();
        (RequestId(self.next_request), Waiting { start, kind })
    }

    pub(crate) fn write(
        &mut self,
        file: FileId,
        offset: u64,
        len: usize,
        durability: Durability,
    ) -> Result<bool, Violation> {
        if !self.usable(file) || !self.unlocked(file) || len == 0 {
            return Ok(false);
        }
        let data = self.rng.bytes(len);
        let kind = WaitingKind::Write { file, offset, len: len as u64, durability };
        let (request, waiting) = self.new_request(kind);
        self.trace.line(format_args!(
            "{} {request:?} write {file:?} {offset}+{len} {durability:?}",
            self.now.as_nanos()
        ));
        if offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
            return match self.engine.write(request, file, offset, &data, durability, self.now) {
                Outcome::Done(Err(Error::OutOfRange)) => self.settle().map(|()| true),
                other => Err(Violation::Output(format!("{other:?} to a write past any file"))),
            };
        }
        let state = self.files.get_mut(&file).expect("usable");
        state.model.begin_write(request.0, waiting.start, offset, &data);
        let outcome = self.engine.write(request, file, offset, &data, durability, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_write(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    pub(crate) fn scatter(
        &mut self,
        file: FileId,
        offset: u64,
        pages: u64,
        len: usize,
    ) -> Result<bool, Violation> {
        for page in 0..pages {
            let offset = offset + page * PAGE_BYTES as u64;
            if !self.write(file, offset, len, Durability::None)? {
                return Ok(page > 0);
            }
        }
        Ok(true)
    }

    pub(crate) fn read(
        &mut self,
        file: FileId,
        offset: u64,
        len: usize,
    ) -> Result<bool, Violation> {
        if !self.usable(file) || !self.device.file(file).is_readable() || len == 0 {
            return Ok(false);
        }
        let kind = WaitingKind::Read { file, offset, len: len as u64 };
        let (request, waiting) = self.new_request(kind);
        self.trace
            .line(format_args!("{} {request:?} read {file:?} {offset}+{len}", self.now.as_nanos()));
        let outcome = self.engine.read(request, file, offset, len, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_read(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    pub(crate) fn sync(&mut self, file: FileId, durability: Durability) -> Result<bool, Violation> {
        if !self.usable(file) {
            return Ok(false);
        }
        let (request, waiting) = self.new_request(WaitingKind::Sync { file });
        self.trace
            .line(format_args!("{} {request:?} sync {file:?} {durability:?}", self.now.as_nanos()));
        let outcome = self.engine.sync(request, file, durability, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_sync(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    pub(crate) fn sync_all(&mut self) -> Result<bool, Violation> {
        let (request, waiting) = self.new_request(WaitingKind::SyncAll);
        self.trace.line(format_args!("{} {request:?} sync all", self.now.as_nanos()));
        let outcome = self.engine.sync_all(request, self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_sync(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    pub(crate) fn freeze(&mut self, file: FileId, action: FrozenAction) -> Result<bool, Violation> {
        if !self.usable(file) || !self.unlocked(file) {
            return Ok(false);
        }
        let (request, waiting) = self.new_request(WaitingKind::Freeze { file, action });
        self.trace
            .line(format_args!("{} {request:?} begin {action:?} {file:?}", self.now.as_nanos()));
        let outcome = self.engine.freeze(request, file, action.flush(), self.now);
        self.observe_sizes()?;
        match outcome {
            Outcome::Done(result) => self.judge_frozen(request, waiting, result)?,
            Outcome::Pending => drop(self.waiting.insert(request, waiting)),
        }
        self.settle().map(|()| true)
    }

    /// Executes the frozen action at home, then thaws the file in the engine and the model.
    pub(crate) fn thaw(&mut self, file: FileId) -> Result<bool, Violation> {
        let Some(action) = self.files.get_mut(&file).and_then(|state| state.frozen.take()) else {
            return Ok(false);
        };
        let moment = self.next_moment();
        let unchanged = FreezeEnd { discard: None, size: None, written: false };
        let size = self.files[&file].model.size();
        let end = match action {
            FrozenAction::Seek => unchanged,
            FrozenAction::Truncate { size } => {
                self.device.truncate(file, size);
                self.model(file).truncate(moment, size);
                FreezeEnd { size: Some(size), ..unchanged }
            }
            FrozenAction::Punch { from, to } => {
                self.device.punch(file, from, to);
                self.model(file).zero(moment, from, to);
                let written = from % PAGE != 0 || to % PAGE != 0;
                FreezeEnd { discard: Some((from, to)), written, ..unchanged }
            }
            FrozenAction::Copy { offset, len } => {
                let data = self.rng.bytes(len);
                let to = offset + len as u64;
                if self.device.overwrite(file, offset, &data).is_err() {
                    unchanged
                } else {
                    self.model(file).replace(moment, offset, &data);
                    if to > size {
                        self.model(file).extend(moment, to);
                    }
                    let size = (to > size).then_some(to);
                    FreezeEnd { discard: Some((offset, to)), size, written: true }
                }
            }
            FrozenAction::Collapse { from, len } if from + len < size => {
                let kept = self.device.file(file).bytes()[(from + len) as usize..].to_vec();
                // What moves must be what the file holds: it was flushed.
                self.judge_image("home to be collapsed", file, moment, from + len, &kept)?;
                self.device.collapse(file, from, len);
                self.model(file).truncate(moment, size - len);
                self.model(file).replace(moment + 1, from, &kept);
                self.moment += 1;
                FreezeEnd { discard: Some((from, u64::MAX)), size: Some(size - len), written: true }
            }
            FrozenAction::Collapse { .. } => unchanged,
        };
        self.trace.line(format_args!("{} end {action:?} {file:?} {end:?}", self.now.as_nanos()));
        self.device.thaw(file);
        // The caller that changed the file has set its times.
        self.files.get_mut(&file).expect("found above").disturbed = false;
        self.engine.thaw(file, end, self.now);
        self.observe_sizes()?;
        self.settle().map(|()| true)
    }

    pub(crate) fn model(&mut self, file: FileId) -> &mut FileModel {
        &mut self.files.get_mut(&file).expect("a file that is there").model
    }

    pub(crate) fn open(&mut self, file: FileId) -> bool {
        if !self.usable(file) {
            return false;
        }
        let seen = self.next_moment();
        let cursor = self.engine.error_cursor(file);
        let state = self.files.get_mut(&file).expect("usable");
        state.descriptions.push(Description { cursor, seen });
        true
    }

    pub(crate) fn take_error(
        &mut self,
        file: FileId,
        description: usize,
        close: bool,
    ) -> Result<bool, Violation> {
        if !self.usable(file) || self.files[&file].descriptions.is_empty() {
            return Ok(false);
        }
        let moment = self.next_moment();
        let state = self.files.get_mut(&file).expect("usable");
        let at = description % state.descriptions.len();
        let asked = &mut state.descriptions[at];
        let told = self.engine.take_error(file, &mut asked.cursor);
        let judged = state.ledger.judge(asked.seen, told);
        if told.is_some() || judged.is_ok() {
            asked.seen = moment;
        }
        if close {
            state.descriptions.remove(at);
        }
        self.trace.line(format_args!("errors of {file:?}, description {at}: {told:?}"));
        match judged {
            // A page's patches go home run by run; their failure is known when the last has ended.
            Err(Some(_)) if told.is_none() && self.device.is_busy(file) => Ok(true),
            judged => judged.map(|()| true).map_err(|due| Violation::Report { file, told, due }),
        }
    }

    /// Whether something but a sync of everything waits for the file.
    pub(crate) fn is_waited_for(&self, file: FileId) -> bool {
        self.waiting.values().any(|waiting| waiting.file() == Some(file))
            || self.files[&file].frozen.is_some()
    }

    pub(crate) fn detach(&mut self, file: FileId) -> Result<bool, Violation> {
        if !self.usable(file) || self.is_waited_for(file) {
            return Ok(false);
        }
        self.trace.line(format_args!("{} detach {file:?}", self.now.as_nanos()));
        let state = self.files.get_mut(&file).expect("usable");
        state.descriptions.clear();
        state.phase = Phase::Detaching;
        self.engine.detach(file, self.now);
        self.settle().map(|()| true)
    }

    pub(crate) fn attach(&mut self, file: FileId) -> Result<bool, Violation> {
        let Some(phase) = self.files.get(&file).map(|state| state.phase) else {
            return Ok(false);
        };
        match phase {
            Phase::Attached | Phase::Discarded => return Ok(false),
            Phase::Unlinked => {
                self.create(file, Home::new(Vec::new(), &[], 512, true));
                return Ok(true);
            }
            Phase::Detached => {
                // What was reserved beyond the end was given back at the last close.
                let size = self.device.file(file).size();
                self.device.truncate(file, size);
                self.device.forget_losses(file);
            }
            Phase::Detaching => {}
        }
        let attributes = self.device.attributes(file);
        self.trace.line(format_args!("attach {file:?} ({phase:?}) {attributes:?}"));
        self.next_moment();
        self.engine.attach(file, attributes);
        let state = self.files.get_mut(&file).expect("it is there");
        state.phase = Phase::Attached;
        self.observe_sizes()?;
        self.settle().map(|()| true)
    }

    pub(crate) fn discard(&mut self, file: FileId) -> Result<bool, Violation> {
        if !self.usable(file) || self.is_waited_for(file) {
            return Ok(false);
        }
        self.trace.line(format_args!("{} discard {file:?}", self.now.as_nanos()));
        let state = self.files.get_mut(&file).expect("usable");
        state.descriptions.clear();
        state.phase = Phase::Discarded;
        self.device.doom(file);
        self.engine.discard(file);
        self.settle()?;
        self.engine.detach(file, self.now);
        self.settle().map(|()| true)
    }

    /// Changes the file at home without the engine, if it has no dirty data and is not in use, and tells the engine
    /// to check it.
    pub(crate) fn change_behind(
        &mut self,
        file: FileId,
        offset: u64,
        len: usize,
    ) -> Result<bool, Violation> {
        if !self.usable(file)
            || self.is_waited_for(file)
            || self.engine.has_dirty(file)
            || self.device.is_busy(file)
        {
            return Ok(false);
        }
        let not_dropped =
            || Err(Violation::Output(format!("{file:?} is idle and clean, but not dropped")));
        if !self.engine.drop_clean(file, self.device.attributes(file)) {
            // While others are under way the engine may hold a request back, to read ahead.
            let is_quiet = self.device.in_flight().next().is_none();
            return if is_quiet { not_dropped() } else { Ok(false) };
        }
        let data = self.rng.bytes(len);
        if self.device.change(file, offset, &data).is_err() {
            return Ok(false);
        }
        self.trace.line(format_args!("changed behind {file:?} {offset}+{len}"));
        let moment = self.next_moment();
        let model = self.model(file);
        model.replace(moment, offset, &data);
        model.extend(moment, model.size().max(offset + len as u64));
        if !self.engine.drop_clean(file, self.device.attributes(file)) {
            return not_dropped();
        }
        self.observe_sizes()?;
        self.settle().map(|()| true)
    }
}
