//! What the devices do for the engine, and how their commands end.

use std::time::Duration;

use weir_engine::{Command, Completion, ErrorKind, LogCommand, Output, PAGE_BYTES};
use weir_log::replay;

use super::{Covered, Flight, Life, Name, file_id};
use crate::crash::Tally;
use crate::crash::broken::Broken;
use crate::crash::files::{HomeFile, Redo, SyncedBy, end_sync_of_all};
use crate::rng::Rng;

impl Life {
    /// Takes the engine's outputs.
    pub(super) fn drain(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        self.engine.dispatch();
        while let Some(output) = self.engine.next_output() {
            match output {
                Output::Reply { request, reply } => self.take(request, reply, tally)?,
                Output::Command(command) => self.start(command),
                Output::Log(LogCommand::Write { io, commit }) => {
                    self.fly(Flight::Log { io, commit });
                }
                Output::Log(LogCommand::SyncHome { io }) => {
                    let covered = self.covered();
                    self.fly(Flight::SyncHome { io, covered });
                }
                Output::Log(LogCommand::Read { io, places }) => {
                    self.fly(Flight::ReadLog { io, places });
                }
                Output::Redo { file, from, until, .. } => {
                    self.fly(Flight::Redo { file: (file.0 - 100) as usize, from, until });
                }
                Output::Cleaned(_) | Output::Detached(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn fly(&mut self, flight: Flight) {
        self.next_flight += 1;
        self.flight.insert(self.next_flight, flight);
    }

    pub(super) fn start(&mut self, command: Command) {
        let file = (command.file().0 - 100) as usize;
        let (history, home) = (&self.histories[file], &mut self.homes[file]);
        let (mut change, mut covered) = (0, Vec::new());
        match &command {
            Command::Write { offset, parts, .. } => {
                let mut bytes = Vec::new();
                for part in parts {
                    let start = usize::from(part.start);
                    bytes.extend_from_slice(
                        &part.frame.bytes()[start..start + usize::from(part.len)],
                    );
                }
                let offset = *offset as usize;
                let versions = history.versions_of(offset, &bytes, home.seen());
                change = home.begin_write(offset, bytes, versions);
            }
            Command::Sync { .. } => covered = home.begin_sync(),
            Command::Fetch { .. } | Command::Reserve { .. } | Command::Map { .. } => {}
        }
        self.fly(Flight::Home { command, change, covered });
    }

    /// What a sync of the whole file system covers if it begins now.
    pub(super) fn covered(&self) -> Covered {
        let names = self.names.iter().enumerate();
        let removed = names.filter(|&(_, &name)| name == Name::Removed);
        Covered {
            changes: self.homes.iter().map(HomeFile::begin_sync).collect(),
            removed: removed.map(|(file, _)| file).collect(),
        }
    }

    /// The end of a sync of the whole file system.
    pub(super) fn sync_system(
        &mut self,
        covered: &Covered,
        by: SyncedBy,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        if self.home_fails(rng) {
            let file = rng.below(self.homes.len() as u64) as usize;
            self.homes[file].fail(self.plan.homes, rng);
        }
        let result = end_sync_of_all(&mut self.homes, &covered.changes, by);
        let result = result.map_err(|_| ErrorKind::Io);
        tally.failed_home_syncs += u64::from(result.is_err());
        if result.is_ok() {
            covered.removed.iter().for_each(|&file| self.names[file] = Name::Gone);
        }
        result
    }

    /// Completes a random command in flight.
    pub(super) fn end_one(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        if self.flight.is_empty() {
            return Ok(());
        }
        let nth = rng.below(self.flight.len() as u64) as usize;
        let key = *self.flight.keys().nth(nth).expect("`nth` is below the number of flights");
        let flight = self.flight.remove(&key).expect("the key was just found");
        self.now = self.now + Duration::from_micros(rng.below(500));
        match flight {
            Flight::Log { io, commit } if rng.chance(self.log_failing) => {
                self.log_disk.tear(&commit, rng);
                self.log_failing = 1000;
                self.engine.log_completed(io, Err(ErrorKind::Io), self.now);
            }
            Flight::Log { io, commit } => {
                self.log_disk.write(&commit);
                self.engine.log_completed(io, Ok(()), self.now);
            }
            Flight::ReadLog { io, places } => {
                // With the log's current contents: spilled patches must not be overwritten before
                // they are read.
                let blocks = places.iter().map(|&place| self.log_disk.block(place)).collect();
                self.engine.log_read(io, Ok(blocks), self.now);
            }
            Flight::Redo { file, from, until } => {
                let writes_left = self.home_fails(rng).then(|| rng.below(20));
                let (home, history) = (&mut self.homes[file], &self.histories[file]);
                let mut redo = Redo { file, home, history, writes_left };
                let result = match replay(&mut self.log_disk, from, Some(&mut redo)) {
                    Ok(report) if report.end < until => {
                        return Err(Broken::Answer("the log was not read to its end".into()));
                    }
                    Ok(_) => Ok(()),
                    Err(_) if redo.writes_left == Some(0) => Err(ErrorKind::Io),
                    Err(error) => return Err(Broken::Answer(error.to_string())),
                };
                tally.redos += 1;
                self.engine.redone(file_id(file), result, self.now);
            }
            Flight::SyncHome { io, covered } => {
                let result = self.sync_system(&covered, SyncedBy::Log, rng, tally);
                self.engine.log_completed(io, result, self.now);
            }
            Flight::SyncSystem { positions, voids, failures, covered } => {
                // Not a command of the engine: the requester of the sync tells the engine of a
                // failure.
                match self.sync_system(&covered, SyncedBy::Programs, rng, tally) {
                    Ok(()) if failures != self.system_failures => tally.failed_syncs += 1,
                    // Again, as the daemon does.
                    Ok(()) if self.engine.log_has_failed() && !voids => {
                        self.sync_all(positions, tally)?;
                    }
                    Ok(()) => {
                        tally.syncs += 1;
                        self.void |= voids;
                        for (file, position) in positions.into_iter().enumerate() {
                            // Data of a removed file that was not home is dropped.
                            if self.names[file] == Name::There {
                                self.histories[file].synced(position);
                            }
                        }
                    }
                    Err(kind) => {
                        tally.failed_syncs += 1;
                        self.system_failures += 1;
                        self.engine.home_sync_failed(kind, None, self.now);
                    }
                }
            }
            Flight::Frozen { file, action, version, at_home: false } => {
                self.change_home(file, action, version);
                self.fly(Flight::Frozen { file, action, version, at_home: true });
            }
            Flight::Frozen { file, action, .. } => self.thaw(file, action, tally)?,
            Flight::Home { command, change, covered } => {
                let fails = self.home_fails(rng);
                let home = &mut self.homes[(command.file().0 - 100) as usize];
                let (io, completion) = match command {
                    Command::Fetch { io, offset, mut frames, .. } => {
                        let content = home.content();
                        let from = content.len().min(offset as usize);
                        let read = (content.len() - from).min(frames.len() * PAGE_BYTES);
                        let bytes = content[from..from + read].chunks(PAGE_BYTES);
                        for (frame, bytes) in frames.iter_mut().zip(bytes) {
                            let frame = frame.bytes_mut().expect("a fetch's frames are unshared");
                            frame[..bytes.len()].copy_from_slice(bytes);
                        }
                        (io, Completion::Fetched { frames, result: Ok(read) })
                    }
                    Command::Write { io, .. } => {
                        home.end_write(change);
                        (io, Completion::Written { result: Ok(()) })
                    }
                    Command::Sync { io, .. } => {
                        if fails {
                            home.fail(self.plan.homes, rng);
                        }
                        let result = home.end_sync(&covered).map_err(|_| ErrorKind::Io);
                        tally.failed_home_syncs += u64::from(result.is_err());
                        (io, Completion::Synced { result })
                    }
                    Command::Reserve { io, .. } => (io, Completion::Reserved { result: Ok(()) }),
                    Command::Map { io, .. } => (io, Completion::Mapped { extents: Vec::new() }),
                };
                self.engine.complete(io, completion, self.now);
            }
        }
        self.drain(tally)
    }
}
