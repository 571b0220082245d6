//! What the engine wants done, and how what is under way ends.

use std::time::Duration;

use weir_engine::{Command, Completion, ErrorKind, FreezeEnd, LogCommand, Output, PAGE_BYTES};
use weir_log::{Superblock, replay};
use weir_names::NodeId;
use weir_names::tree::{HomeError, Tree};

use super::broken::Broken;
use super::home::Covered;
use super::life::{Flight, Life, Waiting, file_id};
use super::tally::Tally;
use crate::crash::files::{HomeFile, SyncedBy};
use crate::crash::history::History;
use crate::rng::Rng;

impl Life {
    /// Takes the engine's outputs.
    pub(super) fn drain(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        loop {
            self.engine.dispatch();
            let Some(output) = self.engine.next_output() else { return Ok(()) };
            match output {
                Output::Reply { request, reply } => self.take(request, reply, tally)?,
                Output::Command(command) => self.start(command),
                Output::Log(LogCommand::Write { io, commit }) => {
                    self.fly(Flight::Log { io, commit });
                }
                Output::Log(LogCommand::SyncHome { io }) => {
                    let covered = self.home.begin_sync();
                    self.fly(Flight::SyncHome { io, covered });
                }
                Output::Log(LogCommand::Read { io, places }) => {
                    self.fly(Flight::ReadLog { io, places });
                }
                Output::Redo { file, identity, from, until, refused, .. } => {
                    let node = NodeId(file.0);
                    self.fly(Flight::Redo { node, identity, from, until, refused });
                }
                Output::Cleaned(_) | Output::Detached(_) => {}
            }
        }
    }

    fn start(&mut self, command: Command) {
        let node = NodeId(command.file().0);
        let inode = self.inodes.of(node).unwrap_or(NodeId::PARKING);
        let (mut change, mut covered) = (0, (Vec::new(), 0));
        if let Some(home) = self.home.files.get_mut(&inode) {
            match &command {
                Command::Write { offset, parts, .. } => {
                    let mut bytes = Vec::new();
                    for part in parts {
                        let start = usize::from(part.start);
                        bytes.extend_from_slice(
                            &part.frame.bytes()[start..start + usize::from(part.len)],
                        );
                    }
                    let history = &self.seen.histories[&node];
                    let offset = *offset as usize;
                    let versions = history.versions_of(offset, &bytes, home.seen());
                    change = home.begin_write(offset, bytes, versions);
                }
                Command::Sync { .. } => covered = (home.begin_sync(), self.home.names_now()),
                Command::Fetch { .. } | Command::Reserve { .. } | Command::Map { .. } => {}
            }
        }
        self.fly(Flight::Data { command, inode, change, covered });
    }

    fn home_fails(&self, rng: &mut Rng) -> bool {
        rng.chance(self.failing)
    }

    /// The end of a sync of everything.
    fn sync_system(
        &mut self,
        covered: &Covered,
        by: SyncedBy,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        if self.home_fails(rng) && !self.home.files.is_empty() {
            let nth = rng.below(self.home.files.len() as u64) as usize;
            let file = self.home.files.values_mut().nth(nth).expect("it is less than their number");
            file.drop_some(rng);
        }
        let errors = self.home.files.values_mut().map(|file| file.take_system_error(by));
        if errors.fold(false, |failed, error| failed | error) {
            tally.failed_home_syncs += 1;
            return Err(ErrorKind::Io);
        }
        self.home.end_sync(covered);
        Ok(())
    }

    /// Ends something that is under way, or a part of it.
    pub(super) fn end_one(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        if self.flight.is_empty() {
            return Ok(());
        }
        let nth = rng.below(self.flight.len() as u64) as usize;
        let key = *self.flight.keys().nth(nth).expect("`nth` is below the number of flights");
        let flight = self.flight.remove(&key).expect("the key was just found");
        self.now = self.now + Duration::from_micros(rng.below(500));
        match flight {
            Flight::Log { io, commit } => {
                self.log_disk.write(&commit);
                let (tail, durable) =
                    (self.log_disk.superblock().checkpoint, self.engine.names_durable());
                self.tell(|| {
                    format!("the log is written: tail {tail}, it was durable up to {durable}")
                });
                self.check_tail()?;
                self.engine.log_completed(io, Ok(()), self.now);
                self.drain(tally)?;
                self.finish_named();
            }
            Flight::ReadLog { io, places } => {
                let blocks = places.iter().map(|&place| self.log_disk.block(place)).collect();
                self.engine.log_read(io, Ok(blocks), self.now);
            }
            Flight::SyncHome { io, covered } => {
                let result = self.sync_system(&covered, SyncedBy::Log, rng, tally);
                self.tell(|| format!("home is synced to free the log: {result:?}"));
                self.engine.log_completed(io, result, self.now);
            }
            Flight::Settle { covered } => {
                let result = self.sync_system(&covered, SyncedBy::Programs, rng, tally);
                self.settled(result);
            }
            Flight::Redo { node, identity, from, until, refused } => {
                self.redo(node, &identity, from, (until, &refused), tally)?;
            }
            Flight::Sized { node, size, version, at_home: false } => {
                let inode = self.inodes.of(node).filter(|_| !self.unbound.contains(&node));
                match inode.and_then(|inode| self.home.files.get_mut(&inode)) {
                    Some(file) => file.set_size(size, version),
                    None => drop(self.sizes.insert(node, (size, version))),
                }
                self.fly(Flight::Sized { node, size, version, at_home: true });
            }
            Flight::Sized { node, size, .. } => {
                self.busy.remove(&node);
                self.timeline.edited(node, false);
                let end = FreezeEnd { discard: None, size: Some(size as u64), written: false };
                self.engine.thaw(file_id(node), end, self.now);
            }
            Flight::Names { id, command, answer: None } => {
                let answer = Some(self.execute(&command));
                let is_refused = matches!(answer, Some(Err(HomeError::Refused(_))));
                tally.refused += u64::from(is_refused);
                self.fly(Flight::Names { id, command, answer });
            }
            Flight::Names { id, command, answer: Some(answer) } => {
                self.tell(|| format!("home: {command:?}: {answer:?}"));
                if !self.end_command(id, &command, answer) {
                    // The log has no room for what is to be said of it.
                    self.fly(Flight::Names { id, command, answer: Some(answer) });
                    self.begin_settling();
                    self.commit(tally)?;
                }
            }
            Flight::Data { command, inode, change, covered } => {
                self.end_data(command, inode, change, &covered, rng, tally);
            }
        }
        self.drain(tally)
    }

    fn settled(&mut self, result: Result<(), ErrorKind>) {
        self.settling = false;
        let succeeded = result.is_ok() || self.breaks(super::undo::Undo::HomeSync);
        if let Err(kind) = result {
            self.engine.home_sync_failed(kind, None, self.now);
        }
        self.tree.home_synced(succeeded);
        if !succeeded {
            let parked = self.home.seen.list(NodeId::PARKING);
            let parked: Vec<NodeId> =
                parked.filter_map(|(at, _)| Tree::node_parked_as(at.name())).collect();
            parked.into_iter().for_each(|node| self.tree.found_parked(node));
        }
        self.tell(|| format!("home is synced: {result:?}"));
        self.need(self.tree.needed_from());
    }

    fn end_data(
        &mut self,
        command: Command,
        inode: NodeId,
        change: u64,
        covered: &(Vec<u64>, u64),
        rng: &mut Rng,
        tally: &mut Tally,
    ) {
        let (file, told) = (command.file(), kind_of(&command));
        self.tell(|| format!("home: {told} of {file:?} ends"));
        let fails = self.home_fails(rng);
        let is_full = self.home.is_full() && rng.chance(300) && !self.writes_durably(file);
        let mut settles = None;
        let home = self.home.files.get_mut(&inode);
        let (io, completion) = match command {
            Command::Fetch { io, offset, mut frames, .. } => {
                let content = home.map_or(&[][..], |home| home.content());
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
                if let Some(home) = home {
                    home.end_write(change);
                }
                (io, Completion::Written { result: Ok(()) })
            }
            Command::Sync { io, .. } => {
                let result = match home {
                    None => Ok(()),
                    Some(home) => {
                        if fails {
                            home.drop_some(rng);
                        }
                        home.end_sync(&covered.0).map_err(|_| ErrorKind::Io)
                    }
                };
                tally.failed_home_syncs += u64::from(result.is_err());
                settles = result.is_ok().then_some(covered.1);
                (io, Completion::Synced { result })
            }
            Command::Reserve { io, .. } => {
                let result = if is_full { Err(ErrorKind::NoSpace) } else { Ok(()) };
                (io, Completion::Reserved { result })
            }
            Command::Map { io, .. } => (io, Completion::Mapped { extents: Vec::new() }),
        };
        if let Some(upto) = settles {
            self.home.settle_names(upto);
        }
        self.engine.complete(io, completion, self.now);
    }

    /// Whether a synchronous write to a file is under way: its error would not say what failed.
    fn writes_durably(&self, file: weir_engine::FileId) -> bool {
        self.waiting.values().any(|waiting| {
            matches!(waiting, Waiting::Write { node, position: Some(_) } if file_id(*node) == file)
        })
    }

    fn redo(
        &mut self,
        node: NodeId,
        identity: &[u8],
        from: Superblock,
        (until, refused): (weir_log::Lsn, &[weir_log::Lsn]),
        tally: &mut Tally,
    ) -> Result<(), Broken> {
        let inode = self.inodes.of(node).unwrap_or(NodeId::PARKING);
        let Some(home) = self.home.files.get_mut(&inode) else {
            self.engine.redone(file_id(node), Ok(()), self.now);
            return Ok(());
        };
        let history = &self.seen.histories[&node];
        let mut redo = Redo { node: node.0, identity, refused, home, history };
        let told = |what: String| Broken::Answer { what, told: String::new() };
        match replay(&mut self.log_disk, from, Some(&mut redo)) {
            Ok(report) if report.end < until => {
                return Err(told("the log was not read to its end".to_owned()));
            }
            Ok(_) => {}
            Err(error) => return Err(told(error.to_string())),
        }
        tally.redos += 1;
        self.engine.redone(file_id(node), Ok(()), self.now);
        Ok(())
    }
}

/// What the engine wants, for messages.
fn kind_of(command: &Command) -> &'static str {
    match command {
        Command::Fetch { .. } => "a fetch",
        Command::Write { .. } => "a write",
        Command::Sync { .. } => "a sync",
        Command::Reserve { .. } => "a reservation",
        Command::Map { .. } => "a map",
    }
}

/// The home of one file, for a redo of its records.
struct Redo<'a> {
    node: u64,
    identity: &'a [u8],
    refused: &'a [weir_log::Lsn],
    home: &'a mut HomeFile,
    history: &'a History,
}

impl weir_log::Home for Redo<'_> {
    type File = ();
    type Error = std::io::Error;

    const TAKES_NAMES: bool = true;

    fn identity_of(&self, node: u64) -> Option<Vec<u8>> {
        (node == self.node).then(|| self.identity.to_vec())
    }

    fn is_refused(&self, lsn: weir_log::Lsn) -> bool {
        self.refused.contains(&lsn)
    }

    fn open(&mut self, wanted: &[u8]) -> std::io::Result<Option<()>> {
        Ok((self.identity == wanted).then_some(()))
    }

    fn write(&mut self, (): &(), offset: u64, data: &[u8]) -> std::io::Result<()> {
        let offset = offset as usize;
        let versions = self.history.versions_of(offset, data, self.home.seen());
        let id = self.home.begin_write(offset, data.to_vec(), versions);
        self.home.end_write(id);
        Ok(())
    }

    fn truncate(&mut self, (): &(), size: u64) -> std::io::Result<()> {
        self.home.set_size(size as usize, 0);
        Ok(())
    }

    fn sync(&mut self, (): &()) -> std::io::Result<()> {
        Ok(())
    }
}
