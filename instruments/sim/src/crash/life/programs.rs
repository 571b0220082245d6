//! What programs do, and the answers they get.

use weir_engine::{Durability, FreezeEnd, Outcome, PAGE_BYTES, Reply, RequestId};

use super::{FILE_BYTES_MAX, FILES, Flight, FrozenAction, Life, Name, Waiting, bytes_of, file_id};
use crate::crash::Tally;
use crate::crash::broken::Broken;
use crate::crash::edit::Edit;
use crate::crash::files::HomeFile;
use crate::rng::Rng;

/// No file is removed if only this many are left.
const FILES_MIN: usize = 2;
/// Maximum number of bytes that a program writes to a file it has just truncated.
const REWRITTEN_BYTES_MAX: u64 = 600;

impl Life {
    pub(super) fn request(&mut self, waiting: Waiting) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.waiting.insert(request, waiting);
        request
    }

    pub(super) fn operate(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        self.idle = false;
        let there: Vec<usize> =
            (0..self.names.len()).filter(|&file| self.names[file] == Name::There).collect();
        let file = *rng.pick(&there);
        let size = self.histories[file].content().len() as u64;
        match rng.weighted(&self.weights) {
            Some(0) if !self.busy[file] => {
                let offset = match rng.below(4) {
                    0 => size.min(FILE_BYTES_MAX - 9000),
                    _ => rng.below(FILE_BYTES_MAX - 9000),
                };
                let len = *rng.pick(&[1, 64, 64, 200, 512, 4096, 8192]);
                let durability = match rng.below(12) {
                    0 => Durability::Data,
                    1 => Durability::All,
                    _ => Durability::None,
                };
                self.write(file, offset, len, durability, tally)?;
            }
            Some(1) => {
                let position = self.position(file);
                let durability = *rng.pick(&[Durability::Data, Durability::All]);
                let request = self.request(Waiting::Sync { file, position });
                let outcome = self.engine.sync(request, file_id(file), durability, self.now);
                self.answered(request, outcome, tally)?;
            }
            Some(2) if !self.busy[file] => {
                let action = match rng.below(4) {
                    // As a program does that opens with O_TRUNC and writes a shorter text.
                    0 => FrozenAction::Size(0, rng.between(1, REWRITTEN_BYTES_MAX)),
                    1 => FrozenAction::Size(0, 0),
                    _ => FrozenAction::Size(rng.below(FILE_BYTES_MAX) as usize, 0),
                };
                self.freeze(file, action, None, tally)?;
            }
            Some(3) if !self.busy[file] && size > 0 => {
                let from = rng.below(size) as usize;
                let to = from + rng.below(size - from as u64) as usize + 1;
                let flush = Some((from as u64, to as u64));
                self.freeze(file, FrozenAction::Zero(from, to), flush, tally)?;
            }
            Some(4) => {
                let positions = (0..self.homes.len()).map(|file| self.position(file)).collect();
                self.sync_all(positions, tally)?;
            }
            Some(5) if !self.busy[file] && size > 0 => {
                let offset = rng.below(size);
                let len = rng.between(1, 9000) as usize;
                let content = self.histories[file].content();
                let end = content.len().min(offset as usize + len);
                let expected = content[offset as usize..end].to_vec();
                let waiting = Waiting::Read { file, offset: offset as usize, expected };
                self.busy[file] = true;
                let request = self.request(waiting);
                match self.engine.read(request, file_id(file), offset, len, self.now) {
                    Outcome::Pending => {}
                    Outcome::Done(result) => {
                        self.take(request, Reply::Read(result), tally)?;
                    }
                }
            }
            Some(6) => self.rest(rng, tally)?,
            Some(7) if there.len() < FILES => self.create(),
            Some(7) if there.len() > FILES_MIN => self.remove(file, tally),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        file: usize,
        offset: u64,
        len: usize,
        durability: Durability,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        self.writes += 1;
        let data = bytes_of(self.writes, offset, len);
        self.histories[file].did(Edit::Write { offset: offset as usize, bytes: data.clone() });
        (self.busy[file], self.changing[file]) = (true, true);
        let position = self.histories[file].position();
        let position = (durability != Durability::None).then_some(position);
        let request = self.request(Waiting::Write { file, position });
        let outcome =
            self.engine.write(request, file_id(file), offset, &data, durability, self.now);
        self.answered(request, outcome, tally)
    }

    pub(super) fn freeze(
        &mut self,
        file: usize,
        action: FrozenAction,
        flush: Option<(u64, u64)>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        (self.busy[file], self.changing[file]) = (true, true);
        // Recorded before it is made: a crash may come between the two.
        let version = self.histories[file].did(match action {
            FrozenAction::Size(size, _) => Edit::Size(size),
            FrozenAction::Zero(from, to) => Edit::Zero { from, to },
        });
        let request = self.request(Waiting::Freeze { file, action, version });
        match self.engine.freeze(request, file_id(file), flush, self.now) {
            Outcome::Pending => Ok(()),
            Outcome::Done(result) => self.take(request, Reply::Frozen(result), tally),
        }
    }

    pub(super) fn answered(
        &mut self,
        request: RequestId,
        outcome: Outcome<()>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        match outcome {
            Outcome::Done(result) => self.take(request, Reply::Synced(result), tally),
            Outcome::Pending => Ok(()),
        }
    }

    /// The position that a sync of the file starting now covers: excludes a change under way.
    pub(super) fn position(&self, file: usize) -> usize {
        self.histories[file].position() - usize::from(self.changing[file])
    }

    /// A request was answered.
    pub(super) fn take(
        &mut self,
        request: RequestId,
        reply: Reply,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let waiting = self.waiting.remove(&request).expect("a request is answered once");
        let failed = |what: &str| Broken::Answer(format!("{what}: {reply:?}"));
        let fine = match &reply {
            Reply::Written(result) | Reply::Synced(result) | Reply::Frozen(result) => {
                result.is_ok()
            }
            Reply::Read(result) => result.is_ok(),
        };
        if !fine && !self.may_fail() {
            return Err(failed("nothing may fail in this life"));
        }
        match (waiting, &reply) {
            (Waiting::Write { file, position }, _) => {
                (self.busy[file], self.changing[file]) = (false, false);
                // A failed write was accepted all the same: only its sync failed.
                if let Some(position) = position.filter(|_| fine) {
                    tally.syncs += 1;
                    self.histories[file].wrote_durably(position);
                }
            }
            (Waiting::Sync { file, position }, _) if fine => {
                tally.syncs += 1;
                self.histories[file].synced(position);
            }
            (Waiting::SyncAll { positions, voids, failures }, _) if fine => {
                // A sync of the back end as a whole follows.
                let covered = self.covered();
                self.fly(Flight::SyncSystem { positions, voids, failures, covered });
            }
            (Waiting::Sync { .. } | Waiting::SyncAll { .. }, _) => tally.failed_syncs += 1,
            (Waiting::Read { file, offset, expected }, Reply::Read(Ok(data))) => {
                self.busy[file] = false;
                if data.to_vec() != expected {
                    return Err(Broken::Answer(format!("file {file} read wrongly at {offset}")));
                }
            }
            (Waiting::Freeze { file, action, version }, _) if fine => {
                self.fly(Flight::Frozen { file, action, version, at_home: false });
            }
            (Waiting::Freeze { file, .. }, _) => {
                self.histories[file].withdraw();
                (self.busy[file], self.changing[file]) = (false, false);
            }
            (Waiting::Read { .. }, _) => return Err(failed("a read needs the reply of a read")),
        }
        Ok(())
    }

    /// A program syncs everything: what was done up to `positions`.
    pub(super) fn sync_all(
        &mut self,
        positions: Vec<usize>,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let (voids, failures) = (self.engine.log_has_failed(), self.system_failures);
        let request = self.request(Waiting::SyncAll { positions, voids, failures });
        let outcome = self.engine.sync_all(request, self.now);
        self.answered(request, outcome, tally)
    }

    /// A frozen action changes home.
    pub(super) fn change_home(&mut self, file: usize, action: FrozenAction, version: u32) {
        match action {
            FrozenAction::Size(size, _) => self.homes[file].set_size(size, version),
            FrozenAction::Zero(from, to) => self.homes[file].zero(from, to, version),
        }
    }

    pub(super) fn thaw(
        &mut self,
        file: usize,
        action: FrozenAction,
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        (self.busy[file], self.changing[file]) = (false, false);
        let (end, then) = match action {
            FrozenAction::Size(size, then) => {
                (FreezeEnd { discard: None, size: Some(size as u64), written: false }, then)
            }
            FrozenAction::Zero(from, to) => {
                // A hole of whole pages has no bytes.
                let written = from % PAGE_BYTES != 0 || to % PAGE_BYTES != 0;
                let discard = Some((from as u64, to as u64));
                (FreezeEnd { discard, size: None, written }, 0)
            }
        };
        self.engine.thaw(file_id(file), end, self.now);
        if then > 0 {
            self.write(file, 0, then as usize, Durability::None, tally)?;
        }
        Ok(())
    }

    /// All changes of names are durable now.
    pub(super) fn settle_names(&mut self) {
        for name in self.names.iter_mut().filter(|name| **name == Name::Removed) {
            *name = Name::Gone;
        }
    }

    /// Removes a file that no program has open any more.
    pub(super) fn remove(&mut self, file: usize, tally: &mut Tally) {
        let in_use = self.waiting.values().any(|waiting| match waiting {
            Waiting::Write { file: of, .. }
            | Waiting::Sync { file: of, .. }
            | Waiting::Read { file: of, .. }
            | Waiting::Freeze { file: of, .. } => *of == file,
            Waiting::SyncAll { .. } => false,
        });
        if in_use || self.busy[file] {
            return;
        }
        self.names[file] = Name::Removed;
        self.engine.discard(file_id(file));
        self.engine.detach(file_id(file), self.now);
        tally.removals += 1;
    }

    /// Creates an empty file, and syncs its directory.
    pub(super) fn create(&mut self) {
        self.settle_names();
        let mut home = HomeFile::new(&[]);
        self.histories.push(home.begin_history());
        self.homes.push(home);
        self.names.push(Name::There);
        self.busy.push(false);
        self.changing.push(false);
        self.attach(self.homes.len() - 1);
    }
}
