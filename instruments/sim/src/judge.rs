//! What the engine's answers must be: every reply, image and gauge is checked here.

use weir_engine::{Durability, Error, FileId, PAGE_BYTES, ReadData, Reply, RequestId};

use crate::model::Moment;
use crate::rng::checksum;
use crate::violation::Violation;
use crate::world::{Phase, Waiting, WaitingKind, World};

impl World {
    pub(crate) fn judge_reply(
        &mut self,
        request: RequestId,
        waiting: Waiting,
        reply: Reply,
    ) -> Result<(), Violation> {
        match (waiting.kind, reply) {
            (WaitingKind::Write { .. }, Reply::Written(result)) => {
                self.judge_write(request, waiting, result)
            }
            (WaitingKind::Read { .. }, Reply::Read(result)) => {
                self.judge_read(request, waiting, result)
            }
            (WaitingKind::Sync { .. } | WaitingKind::SyncAll, Reply::Synced(result)) => {
                self.judge_sync(request, waiting, result)
            }
            (WaitingKind::Freeze { .. }, Reply::Frozen(result)) => {
                self.judge_frozen(request, waiting, result)
            }
            (kind, reply) => {
                Err(Violation::Output(format!("{reply:?} to {request:?}, which is {kind:?}")))
            }
        }
    }

    pub(crate) fn judge_write(
        &mut self,
        request: RequestId,
        waiting: Waiting,
        result: Result<(), Error>,
    ) -> Result<(), Violation> {
        let WaitingKind::Write { file, offset, len, durability } = waiting.kind else {
            unreachable!("the caller matched")
        };
        self.note(request, format_args!("write {result:?}"));
        self.last_answer = Some(result);
        let moment = self.next_moment();
        let state = self.files.get_mut(&file).expect("requests are on files that are there");
        state
            .model
            .end_write(request.0, moment, result.is_ok())
            .map_err(|shown| Violation::Size { file, shown, expected: offset + len })?;
        if let Err(error) = result {
            return self.judge_error(request, waiting, "write", error);
        }
        if durability != Durability::None {
            let durable = self.durable_range(file, offset, offset + len);
            let checked = self.files[&file].model.check_write(request.0, offset, &durable);
            let what = format!("{request:?}, synchronous: what is durable");
            checked.map_err(|mismatch| Violation::Content { what, file, mismatch })?;
        }
        Ok(())
    }

    pub(crate) fn judge_read(
        &mut self,
        request: RequestId,
        waiting: Waiting,
        result: Result<ReadData, Error>,
    ) -> Result<(), Violation> {
        let WaitingKind::Read { file, offset, len } = waiting.kind else {
            unreachable!("the caller matched")
        };
        self.last_answer = Some(result.as_ref().map(|_| ()).map_err(|&error| error));
        let data = match result {
            Ok(data) => data,
            Err(error) => {
                self.note(request, format_args!("read {error:?}"));
                return self.judge_error(request, waiting, "read", error);
            }
        };
        let bytes = data.to_vec();
        self.note(request, format_args!("read {} {:016x}", bytes.len(), checksum(&bytes)));
        if data.slices().any(<[u8]>::is_empty) {
            return Err(Violation::Output(format!("{request:?}: an empty segment")));
        }
        let state = self.files.get_mut(&file).expect("requests are on files that are there");
        let (model, got) = (&mut state.model, bytes.len() as u64);
        if !model.length_allowed(waiting.start, offset, len, got) {
            let size = model.size();
            return Err(Violation::Length {
                what: format!("{request:?}, a read"),
                file,
                got,
                size,
            });
        }
        model.observe(waiting.start, offset, &bytes).map_err(|mismatch| Violation::Content {
            what: format!("{request:?}, a read at {offset},"),
            file,
            mismatch,
        })?;
        self.hold(data)
    }

    pub(crate) fn judge_sync(
        &mut self,
        request: RequestId,
        waiting: Waiting,
        result: Result<(), Error>,
    ) -> Result<(), Violation> {
        self.note(request, format_args!("sync {result:?}"));
        self.last_answer = Some(result);
        if let Err(error) = result {
            return self.judge_error(request, waiting, "sync", error);
        }
        let files: Vec<FileId> = match waiting.file() {
            Some(file) => vec![file],
            None => self.files.keys().copied().collect(),
        };
        for file in files {
            let state = &self.files[&file];
            let gone = matches!(state.phase, Phase::Discarded | Phase::Unlinked);
            if gone || state.born > waiting.start {
                continue;
            }
            // A sync of everything brings home; that the back end as a whole is then synced is the
            // caller's business.
            let home = self.device.file(file);
            let (image, what) = match waiting.kind {
                WaitingKind::SyncAll => (home.bytes(), format!("{request:?}: home")),
                _ => (home.durable(), format!("{request:?}: what is durable")),
            };
            let (low, high) = state.model.size_range(waiting.start);
            let got = image.len() as u64;
            if got < low || got > high {
                return Err(Violation::Length { what, file, got, size: low });
            }
            let mut padded = image.to_vec();
            padded.resize(high as usize, 0);
            self.judge_image(&what, file, waiting.start, 0, &padded)?;
        }
        Ok(())
    }

    pub(crate) fn judge_frozen(
        &mut self,
        request: RequestId,
        waiting: Waiting,
        result: Result<(), Error>,
    ) -> Result<(), Violation> {
        let WaitingKind::Freeze { file, action } = waiting.kind else {
            unreachable!("the caller matched")
        };
        self.note(request, format_args!("freeze {result:?}"));
        self.last_answer = Some(result);
        if let Err(error) = result {
            return self.judge_error(request, waiting, "freeze", error);
        }
        self.device.freeze(file)?;
        let start = waiting.start;
        if let Some((from, to)) = action.flush() {
            let home = self.device.file(file).bytes();
            let to = to.min(self.files[&file].model.size());
            let mut flushed = vec![0; to.saturating_sub(from) as usize];
            copy_overlap(&mut flushed, home, from);
            self.judge_image("home after a flush", file, start, from, &flushed)?;
        }
        let state = self.files.get_mut(&file).expect("requests are on files that are there");
        if state.frozen.replace(action).is_some() {
            return Err(Violation::Output(format!("{request:?}: two freezes of {file:?}")));
        }
        Ok(())
    }

    fn judge_error(
        &self,
        request: RequestId,
        waiting: Waiting,
        what: &'static str,
        error: Error,
    ) -> Result<(), Violation> {
        // A writer may also be refused because memory is full of what failed before it came, of
        // whatever file.
        let (since, of_file) = match waiting.kind {
            WaitingKind::Write { .. } => (0, None),
            _ => (waiting.start, waiting.file()),
        };
        let explained = match error {
            Error::Home(kind) => self
                .files
                .iter()
                .filter(|(file, _)| of_file.is_none_or(|other| other == **file))
                .any(|(_, state)| {
                    let gone = what == "sync" && state.sync_failed == Some(kind);
                    gone || state.ledger.explains(since, kind)
                }),
            Error::NotAttached | Error::OutOfRange => false,
        };
        if explained { Ok(()) } else { Err(Violation::UnexplainedError { request, what, error }) }
    }

    /// The file has nothing dirty: home is what programs see.
    pub(crate) fn judge_cleaned(&mut self, file: FileId) -> Result<(), Violation> {
        self.trace_mut().line(format_args!("  cleaned {file:?}"));
        if let Some(state) = self.files.get_mut(&file) {
            state.disturbed = false;
        }
        if self.engine.has_dirty(file) {
            // Dirtied again by what the same call let go on.
            return Ok(());
        }
        self.judge_home(file)
    }

    /// The engine reports when a destaged file has become clean, so that its times can be restored at home.
    pub(crate) fn judge_disturbed(&self) -> Result<(), Violation> {
        let untold = self.files.iter().find(|(file, state)| {
            state.disturbed && state.phase == Phase::Attached && !self.engine.has_dirty(**file)
        });
        match untold {
            Some((file, _)) => {
                Err(Violation::Output(format!("{file:?} is clean and nobody was told")))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn judge_detached(&mut self, file: FileId) -> Result<(), Violation> {
        self.trace_mut().line(format_args!("  detached {file:?}"));
        let phase = self.files.get(&file).map(|state| state.phase);
        if self.engine.is_attached(file) || self.device.is_busy(file) {
            return Err(Violation::Output(format!("{file:?} is not detached or not idle")));
        }
        let phase_now = match phase {
            Some(Phase::Detaching) => {
                self.judge_home(file)?;
                Phase::Detached
            }
            Some(Phase::Discarded) => {
                self.device.remove(file);
                Phase::Unlinked
            }
            other => {
                return Err(Violation::Output(format!("{file:?} is detached, but was {other:?}")));
            }
        };
        let state = self.files.get_mut(&file).expect("found above");
        state.phase = phase_now;
        if let Some(slot) = state.slot.take() {
            self.lane.free(slot);
        }
        Ok(())
    }

    /// Home is what programs see, to the byte, unless a write is being taken right now.
    pub(crate) fn judge_home(&mut self, file: FileId) -> Result<(), Violation> {
        let state = &self.files[&file];
        if state.phase == Phase::Discarded || state.phase == Phase::Unlinked {
            return Ok(());
        }
        let earliest = self
            .waiting
            .values()
            .filter(|waiting| waiting.file() == Some(file))
            .map(|waiting| waiting.start)
            .min();
        let start = earliest.unwrap_or(self.moment + 1);
        let home = self.device.file(file);
        let (size, got) = (state.model.size(), home.size());
        let what = "home of a clean file".to_owned();
        if got != size {
            return Err(Violation::Length { what, file, got, size });
        }
        state.model.check(start, 0, home.bytes()).map_err(|mismatch| Violation::Content {
            what,
            file,
            mismatch,
        })
    }

    pub(crate) fn judge_image(
        &self,
        what: &str,
        file: FileId,
        start: Moment,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        self.files[&file].model.check(start, offset, bytes).map_err(|mismatch| Violation::Content {
            what: what.to_owned(),
            file,
            mismatch,
        })
    }

    /// Durable bytes of a range, zeros past their end.
    fn durable_range(&self, file: FileId, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = vec![0; (to - from) as usize];
        copy_overlap(&mut bytes, self.device.file(file).durable(), from);
        bytes
    }

    /// Gauges are within their bounds.
    pub(crate) fn judge_bounds(&mut self) -> Result<(), Violation> {
        let stats = self.engine.stats(self.now);
        let writers = self.waiting.values().filter(|waiting| waiting.is_write()).count() as u64;
        // Blocked writers' own bytes come on top: a first and a last page each. They stay if the
        // fetch fails.
        self.writers_most = self.writers_most.max(writers + 1);
        let own_bytes = self.writers_most * 2 * (PAGE_BYTES as u64 + 512);
        let check = |what, value, bound| {
            if value > bound { Err(Violation::Bound { what, value, bound }) } else { Ok(()) }
        };
        let config = &self.config.engine;
        check("memory", stats.memory_bytes, config.memory_bytes_max + own_bytes)?;
        check("the low watermark", stats.watermark_low_pages, stats.watermark_high_pages)?;
        check("the high watermark", stats.watermark_high_pages, stats.watermark_max_pages)?;
        check("the ceiling of watermarks", stats.watermark_max_pages, stats.dirty_bound_pages)?;
        check("patch memory", stats.patch_bytes, config.patch_bytes_max + own_bytes)?;
        check("writers waiting", stats.writers_waiting, writers)
    }

    fn note(&mut self, request: RequestId, line: std::fmt::Arguments<'_>) {
        self.trace_mut().line(format_args!("  {request:?} answered: {line}"));
    }
}

/// Copies what `source` has from `from` on; the rest of `target` stays.
fn copy_overlap(target: &mut [u8], source: &[u8], from: u64) {
    let available = source.get(from as usize..).unwrap_or_default();
    let len = available.len().min(target.len());
    target[..len].copy_from_slice(&available[..len]);
}
