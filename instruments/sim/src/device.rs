//! The device under a simulated engine: files in memory, with delays, reordering and failures.
//!
//! Executes [`Command`]s under virtual time. Every command ends some time after it was submitted,
//! so commands overtake one another; a write takes effect when it ends, wholly, or in part when it
//! fails. Each kind of command fails with its own probability, and failures may stick for a while,
//! as they do on a full or a broken disk. Space is bounded and can be reserved.
//!
//! Owns the home files, the commands in flight and the space. Checks, as [`Breach`]es, what the
//! engine promises the back end: no two commands on one page at a time, unshared frames to fetch
//! into, parts that do not change while they are written, the transfer bounds, no transfer of a
//! file that is frozen, and no write to space that was neither there nor reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use weir_engine::{
    Command, Completion, ErrorKind, Extent, FileId, Frame, HomeAttributes, IoId, PAGE_BYTES, Part,
    Time,
};

use crate::home::{Home, pages};
use crate::rng::{Rng, checksum};

/// A promise to the back end that the engine did not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// Two commands in flight touch one page.
    #[error("commands {first:?} and {second:?} are both under way on page {page} of {file:?}")]
    Overlap {
        /// The file.
        file: FileId,
        /// The page.
        page: u64,
        /// The command that was there.
        first: IoId,
        /// The command that came.
        second: IoId,
    },
    /// A frame to fetch into is shared.
    #[error("{0:?} fetches into a frame that is shared")]
    SharedFrame(IoId),
    /// Bytes of a write changed while it was under way.
    #[error("the bytes of {0:?} changed while it was under way")]
    PartChanged(IoId),
    /// A command for a file that is not there.
    #[error("{0:?} is for {1:?}, which the device does not have")]
    UnknownFile(IoId, FileId),
    /// A command for a frozen file.
    #[error("{0:?} is for {1:?}, which is frozen")]
    Frozen(IoId, FileId),
    /// A transfer of a file that was unlinked.
    #[error("{0:?} transfers pages of {1:?}, which was discarded")]
    Doomed(IoId, FileId),
    /// A fetch from a file that cannot be read.
    #[error("{0:?} fetches from {1:?}, which cannot be read")]
    Unreadable(IoId, FileId),
    /// A write to a page that has no space and no reservation.
    #[error("{io:?} writes page {page} of {file:?}, for which no space was reserved")]
    Unreserved {
        /// The write.
        io: IoId,
        /// The file.
        file: FileId,
        /// The page.
        page: u64,
    },
    /// A bound of the configuration is exceeded.
    #[error("{0:?} exceeds {1}")]
    Bound(IoId, &'static str),
    /// A command that says nothing or nonsense.
    #[error("{0:?} is malformed: {1}")]
    Malformed(IoId, &'static str),
}

/// How long a command takes, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Latency {
    /// Constant: completions come in the order of submission.
    Fixed(u64),
    /// Anything between.
    Uniform(u64, u64),
    /// Mostly the first, one time in ten the second: a disk with hiccups.
    Bimodal(u64, u64),
    /// A rotational disk, which executes one transfer at a time: the first value is for a seek if a transfer does not
    /// begin where the last one ended, the second for each page.
    OneArm(u64, u64),
    /// A flash drive: a fetch takes the first value, any number in parallel; a write takes the second, one after the
    /// other.
    Flash(u64, u64),
}

impl Latency {
    fn draw(self, rng: &mut Rng) -> Duration {
        Duration::from_nanos(match self {
            Latency::Fixed(nanos) => nanos,
            Latency::Uniform(low, high) => rng.between(low, high),
            Latency::Bimodal(usual, _) if rng.chance(900) => usual,
            Latency::Bimodal(_, slow) => slow,
            Latency::OneArm(..) | Latency::Flash(..) => {
                panic!("what a drive does depends on what it did")
            }
        })
    }
}

/// A disk's arm.
#[derive(Default)]
struct Arm {
    at: Option<(FileId, u64)>,
    free_at: Time,
    moved: u64,
}

impl Arm {
    /// When a command ends that is to start now, or when the arm is free.
    fn execute(&mut self, command: &Command, now: Time, move_ns: u64, page_ns: u64) -> Time {
        let start = self.free_at.max(now);
        let range = match command {
            Command::Fetch { offset, frames, .. } => {
                Some((*offset, (frames.len() * PAGE_BYTES) as u64))
            }
            Command::Write { offset, parts, .. } => Some((*offset, length(parts))),
            Command::Sync { .. } | Command::Reserve { .. } | Command::Map { .. } => None,
        };
        let Some((offset, len)) = range else { return start };
        let mut nanos = len.div_ceil(PAGE_BYTES as u64) * page_ns;
        if self.at != Some((command.file(), offset)) {
            self.moved += 1;
            nanos += move_ns;
        }
        self.at = Some((command.file(), offset + len));
        self.free_at = start + Duration::from_nanos(nanos);
        self.free_at
    }
}

/// How one kind of command fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// With what.
    pub kind: ErrorKind,
    /// How often, of a thousand.
    pub per_mille: u32,
    /// For how long every such command fails once one has.
    pub sticky: Duration,
}

/// Which kinds of command fail, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Fetches.
    pub fetch: Option<Fault>,
    /// Writes.
    pub write: Option<Fault>,
    /// Syncs.
    pub sync: Option<Fault>,
    /// Reservations.
    pub reserve: Option<Fault>,
}

/// The properties of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceConfig {
    /// How long commands take.
    pub latency: Latency,
    /// How they fail.
    pub faults: Faults,
    /// Pages of space beyond those the files have; `None` is no bound.
    pub free_pages: Option<u64>,
    /// Whether space can be reserved. If not, a write may be the first to find the disk full.
    pub can_reserve: bool,
    /// A failed sync loses what it was to make durable.
    pub loses: bool,
    /// Most pages in a transfer.
    pub transfer_pages_max: u32,
    /// Most writes in flight.
    pub writes_in_flight_max: u32,
}

struct InFlight {
    command: Command,
    due: Time,
    /// Checksums of a write's parts when it was submitted.
    checksums: Vec<u64>,
    /// The content a sync makes durable.
    snapshot: Option<(u64, Rc<Vec<u8>>)>,
    /// A sync that failed meanwhile has lost what is written.
    lost: bool,
}

/// A command that ended, for the engine and for the checks.
#[derive(Debug)]
pub struct Ended {
    /// The command.
    pub io: IoId,
    /// The file it concerned.
    pub file: FileId,
    /// What to tell the engine.
    pub completion: Completion,
    /// The error that the file's descriptions must or may report.
    pub failure: Option<Failure>,
}

/// A failed command.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// With what.
    pub kind: ErrorKind,
    /// Whether descriptions open now must get the error, because data that they wrote is not home. Otherwise the
    /// request that waited gets it, and descriptions may.
    pub owed: bool,
}

/// The device.
pub struct Device {
    config: DeviceConfig,
    rng: Rng,
    files: BTreeMap<FileId, Home>,
    frozen: BTreeSet<FileId>,
    /// Unlinked, but not let go by the engine yet.
    doomed: BTreeSet<FileId>,
    flight: BTreeMap<IoId, InFlight>,
    busy: BTreeMap<(FileId, u64), IoId>,
    writes_in_flight: u32,
    sticky_until: [Time; 4],
    arm: Arm,
}

impl Device {
    /// A device without files.
    pub fn new(config: DeviceConfig, rng: Rng) -> Device {
        Device {
            config,
            rng,
            files: BTreeMap::new(),
            frozen: BTreeSet::new(),
            doomed: BTreeSet::new(),
            flight: BTreeMap::new(),
            busy: BTreeMap::new(),
            writes_in_flight: 0,
            sticky_until: [Time::ZERO; 4],
            arm: Arm::default(),
        }
    }

    /// Puts a file there.
    pub fn add(&mut self, file: FileId, home: Home) {
        let before = self.files.insert(file, home);
        assert!(before.is_none(), "a file is created once");
    }

    /// The last name and description of a file are gone: nothing needs to be read or written
    /// any more.
    pub fn doom(&mut self, file: FileId) {
        self.doomed.insert(file);
    }

    /// Removes a file that is not in use.
    pub fn remove(&mut self, file: FileId) {
        assert!(!self.is_busy(file));
        self.doomed.remove(&file);
        let home = self.files.remove(&file).expect("only a file that is there is removed");
        self.give_back(home.pages_allocated());
    }

    /// A file.
    pub fn file(&self, file: FileId) -> &Home {
        &self.files[&file]
    }

    /// What the file system finds out when it attaches the file.
    pub fn attributes(&self, file: FileId) -> HomeAttributes {
        self.files[&file].attributes()
    }

    /// From now on nothing fails, and there is space for everything.
    pub fn heal(&mut self) {
        self.config.faults = Faults::default();
        self.config.free_pages = None;
        self.sticky_until = [Time::ZERO; 4];
    }

    /// Changes how commands fail from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.config.faults = faults;
        self.sticky_until = [Time::ZERO; 4];
    }

    /// Changes how long commands take that are submitted from now on.
    pub fn set_latency(&mut self, latency: Latency) {
        self.config.latency = latency;
    }

    /// Changes the space left; `None` is no bound.
    pub fn set_free_pages(&mut self, free_pages: Option<u64>) {
        self.config.free_pages = free_pages;
    }

    /// No command for the file may come, and none may be in flight.
    pub fn freeze(&mut self, file: FileId) -> Result<(), Breach> {
        if let Some((&io, _)) = self.flight.iter().find(|(_, flying)| flying.command.file() == file)
        {
            return Err(Breach::Frozen(io, file));
        }
        self.frozen.insert(file);
        Ok(())
    }

    /// Commands for the file may come again.
    pub fn thaw(&mut self, file: FileId) {
        self.frozen.remove(&file);
    }

    /// Whether a command of the file is in flight.
    pub fn is_busy(&self, file: FileId) -> bool {
        self.flight.values().any(|flying| flying.command.file() == file)
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &Command> {
        self.flight.values().map(|flying| &flying.command)
    }

    /// How often the arm moved to where the last transfer did not end.
    pub fn arm_moved(&self) -> u64 {
        self.arm.moved
    }

    /// When the next command ends.
    pub fn next_due(&self) -> Option<Time> {
        self.flight.values().map(|flying| flying.due).min()
    }

    /// ftruncate(2) by the file system, while the file is frozen.
    pub fn truncate(&mut self, file: FileId, size: u64) {
        let freed = self.home_mut(file).truncate(size);
        self.give_back(freed);
    }

    /// fallocate(2), FALLOC_FL_PUNCH_HOLE, by the file system, while the file is frozen.
    pub fn punch(&mut self, file: FileId, from: u64, to: u64) {
        let freed = self.home_mut(file).punch(from, to);
        self.give_back(freed);
    }

    /// fallocate(2), FALLOC_FL_COLLAPSE_RANGE, by the file system, while the file is frozen.
    pub fn collapse(&mut self, file: FileId, from: u64, len: u64) {
        let freed = self.home_mut(file).collapse(from, len);
        self.give_back(freed);
    }

    /// pwrite(2) or copy_file_range(2) by the file system, while the file is frozen.
    ///
    /// # Errors
    /// No space: nothing changed.
    pub fn overwrite(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), ErrorKind> {
        self.allocate(file, offset, offset + data.len() as u64)?;
        self.home_mut(file).write(offset, data, false);
        Ok(())
    }

    /// As [`Device::overwrite`], by somebody else, who syncs it himself.
    pub fn change(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), ErrorKind> {
        self.allocate(file, offset, offset + data.len() as u64)?;
        self.home_mut(file).write_durably(offset, data);
        Ok(())
    }

    /// Takes a command on.
    ///
    /// # Errors
    /// The promise of the engine that was broken.
    pub fn submit(&mut self, mut command: Command, now: Time) -> Result<(), Breach> {
        let (io, file) = (command.io(), command.file());
        let home = self.files.get(&file).ok_or(Breach::UnknownFile(io, file))?;
        let transfers = matches!(command, Command::Fetch { .. } | Command::Write { .. });
        // A sync moves nothing: it may come at any time.
        let syncs = matches!(command, Command::Sync { .. });
        if !syncs && self.frozen.contains(&file) {
            return Err(Breach::Frozen(io, file));
        }
        if transfers && self.doomed.contains(&file) {
            return Err(Breach::Doomed(io, file));
        }
        let mut checksums = Vec::new();
        let mut snapshot = None;
        match &mut command {
            Command::Fetch { offset, frames, .. } => {
                check_fetch(io, file, home, *offset, frames)?;
                let (from, to) = (*offset, *offset + (frames.len() * PAGE_BYTES) as u64);
                self.occupy(io, file, from, to)?;
            }
            Command::Write { offset, parts, .. } => {
                checksums = check_parts(io, parts)?;
                let to = *offset + length(parts);
                self.occupy(io, file, *offset, to)?;
                self.writes_in_flight += 1;
                if self.writes_in_flight > self.config.writes_in_flight_max {
                    return Err(Breach::Bound(io, "destages_in_flight_max"));
                }
            }
            Command::Sync { .. } => snapshot = Some(home.snapshot()),
            Command::Reserve { len: 0, .. } => return Err(Breach::Malformed(io, "no bytes")),
            Command::Reserve { .. } | Command::Map { .. } => {}
        }
        let due = match self.config.latency {
            Latency::OneArm(move_ns, page_ns) => self.arm.execute(&command, now, move_ns, page_ns),
            Latency::Flash(fetch_ns, write_ns) => match command {
                Command::Fetch { .. } => now + Duration::from_nanos(fetch_ns),
                Command::Write { .. } => self.arm.execute(&command, now, write_ns, 0),
                Command::Sync { .. } | Command::Reserve { .. } | Command::Map { .. } => now,
            },
            latency => now + latency.draw(&mut self.rng),
        };
        let flying = InFlight { command, due, checksums, snapshot, lost: false };
        if self.flight.insert(io, flying).is_some() {
            return Err(Breach::Malformed(io, "the identifier is in use"));
        }
        Ok(())
    }

    /// Ends the command that is due first, if one is due by `now`.
    ///
    /// # Errors
    /// What the engine promised and did not keep while the command was in flight.
    pub fn end_next(&mut self, now: Time) -> Result<Option<Ended>, Breach> {
        let first = self.flight.iter().min_by_key(|(io, flying)| (flying.due, **io));
        match first {
            Some((&io, flying)) if flying.due <= now => self.end(io, now).map(Some),
            _ => Ok(None),
        }
    }

    /// Ends one command now.
    ///
    /// # Errors
    /// As for [`Device::end_next`].
    pub fn end(&mut self, io: IoId, now: Time) -> Result<Ended, Breach> {
        let flying = self.flight.remove(&io).expect("only a command under way ends");
        self.busy.retain(|_, holder| *holder != io);
        let file = flying.command.file();
        match flying.command {
            Command::Fetch { offset, frames, .. } => self.end_fetch(io, file, offset, frames, now),
            Command::Write { offset, parts, .. } => {
                self.writes_in_flight -= 1;
                if check_parts(io, &parts)? != flying.checksums {
                    return Err(Breach::PartChanged(io));
                }
                self.end_write(io, file, offset, &parts, flying.lost, now)
            }
            Command::Sync { .. } => Ok(self.end_sync(io, file, flying.snapshot, now)),
            Command::Reserve { offset, len, .. } => {
                Ok(self.end_reserve(io, file, offset, len, now))
            }
            Command::Map { .. } => Ok(self.end_map(io, file)),
        }
    }

    fn end_fetch(
        &mut self,
        io: IoId,
        file: FileId,
        offset: u64,
        mut frames: Vec<Frame>,
        now: Time,
    ) -> Result<Ended, Breach> {
        let fault = self.strike(0, self.config.faults.fetch, now);
        let stored = self.files[&file].bytes().get(offset as usize..).unwrap_or_default();
        let mut read = 0;
        for frame in &mut frames {
            let page = frame.bytes_mut().ok_or(Breach::SharedFrame(io))?;
            // Bytes that were not read are left as they were; on failure all are.
            page.fill(0xa5);
            if fault.is_none() {
                let chunk = &stored[read.min(stored.len())..stored.len().min(read + PAGE_BYTES)];
                page[..chunk.len()].copy_from_slice(chunk);
                read += chunk.len();
            }
        }
        let failure = fault.map(|kind| Failure { kind, owed: false });
        let completion = Completion::Fetched { frames, result: fault.map_or(Ok(read), Err) };
        Ok(Ended { io, file, completion, failure })
    }

    fn end_write(
        &mut self,
        io: IoId,
        file: FileId,
        offset: u64,
        parts: &[Part],
        lost: bool,
        now: Time,
    ) -> Result<Ended, Breach> {
        let mut data = Vec::new();
        for part in parts {
            data.extend_from_slice(part_bytes(part));
        }
        let end = offset + data.len() as u64;
        let mut fault = self.strike(1, self.config.faults.write, now);
        let missing = pages(offset, end).find(|&page| !self.files[&file].is_allocated(page));
        if let (Some(page), true) = (missing, self.config.can_reserve) {
            return Err(Breach::Unreserved { io, file, page });
        }
        if fault.is_some() {
            // Some of it was written: a piece, or nothing.
            let written = self.rng.below(data.len() as u64 + 1) as usize;
            let skipped = self.rng.below(written as u64 + 1) as usize;
            let (from, to) = (offset + skipped as u64, offset + written as u64);
            if from < to && self.allocate(file, from, to).is_ok() {
                self.home_mut(file).write(from, &data[skipped..written], lost);
            }
        } else if let Err(kind) = self.allocate(file, offset, end) {
            fault = Some(kind);
        } else {
            self.home_mut(file).write(offset, &data, lost);
        }
        let owed = !self.doomed.contains(&file);
        let failure = fault.map(|kind| Failure { kind, owed });
        let completion = Completion::Written { result: fault.map_or(Ok(()), Err) };
        Ok(Ended { io, file, completion, failure })
    }

    fn end_sync(
        &mut self,
        io: IoId,
        file: FileId,
        snapshot: Option<(u64, Rc<Vec<u8>>)>,
        now: Time,
    ) -> Ended {
        let fault = self.strike(2, self.config.faults.sync, now);
        match (fault, snapshot) {
            (Some(_), _) if self.config.loses => self.lose(file),
            (None, Some(snapshot)) => self.home_mut(file).persist(snapshot),
            _ => {}
        }
        let failure = fault.map(|kind| Failure { kind, owed: false });
        let completion = Completion::Synced { result: fault.map_or(Ok(()), Err) };
        Ended { io, file, completion, failure }
    }

    /// What was lost until now is as it should be: syncs tell of it only while somebody has the file open.
    pub fn forget_losses(&mut self, file: FileId) {
        self.home_mut(file).forget_losses();
    }

    /// A failed sync loses what was written before, also by some writes that are under way, and other syncs do nothing for it.
    fn lose(&mut self, file: FileId) {
        self.home_mut(file).lose();
        let flying = self.flight.iter_mut().filter(|(_, flying)| flying.command.file() == file);
        for (io, flying) in flying {
            flying.snapshot = None;
            // No draw of its own: seeds that found something once go on as they did.
            flying.lost |= io.0 % 2 == 0;
        }
    }

    fn end_reserve(&mut self, io: IoId, file: FileId, offset: u64, len: u64, now: Time) -> Ended {
        let mut fault = self.strike(3, self.config.faults.reserve, now);
        if !self.config.can_reserve {
            fault = Some(ErrorKind::Unsupported);
        } else if fault.is_none() {
            fault = self.allocate(file, offset, offset + len).err();
        }
        let failure = fault
            .filter(|&kind| kind != ErrorKind::Unsupported)
            .map(|kind| Failure { kind, owed: false });
        let completion = Completion::Reserved { result: fault.map_or(Ok(()), Err) };
        Ended { io, file, completion, failure }
    }

    /// Extents of a few pages, anywhere and not all of them known; what it says now need not be what it
    /// says next.
    fn end_map(&mut self, io: IoId, file: FileId) -> Ended {
        let pages = self.files[&file].bytes().len() as u64 / PAGE_BYTES as u64;
        let mut extents = Vec::new();
        let mut first = 0;
        while first < pages {
            let len = 1 + self.rng.below(8);
            if !self.rng.chance(100) {
                let [offset, len, place] =
                    [first, len, self.rng.below(4096)].map(|pages| pages * PAGE_BYTES as u64);
                extents.push(Extent { offset, len, place });
            }
            first += len;
        }
        Ended { io, file, completion: Completion::Mapped { extents }, failure: None }
    }

    /// Whether a command ending now fails, by the fault of its kind.
    fn strike(&mut self, slot: usize, fault: Option<Fault>, now: Time) -> Option<ErrorKind> {
        let fault = fault?;
        if now < self.sticky_until[slot] {
            return Some(fault.kind);
        }
        if !self.rng.chance(fault.per_mille) {
            return None;
        }
        self.sticky_until[slot] = now + fault.sticky;
        Some(fault.kind)
    }

    /// Gives every page of the range space, or none.
    fn allocate(&mut self, file: FileId, from: u64, to: u64) -> Result<(), ErrorKind> {
        let home = self.files.get_mut(&file).expect("the caller looked");
        let missing: Vec<u64> = pages(from, to).filter(|&page| !home.is_allocated(page)).collect();
        if let Some(free) = &mut self.config.free_pages {
            *free = free.checked_sub(missing.len() as u64).ok_or(ErrorKind::NoSpace)?;
        }
        for page in missing {
            home.allocate(page);
        }
        Ok(())
    }

    fn give_back(&mut self, pages: u64) {
        if let Some(free) = &mut self.config.free_pages {
            *free += pages;
        }
    }

    fn home_mut(&mut self, file: FileId) -> &mut Home {
        self.files.get_mut(&file).expect("the caller looked")
    }

    fn occupy(&mut self, io: IoId, file: FileId, from: u64, to: u64) -> Result<(), Breach> {
        if pages(from, to).count() > self.config.transfer_pages_max as usize {
            return Err(Breach::Bound(io, "transfer_pages_max"));
        }
        for page in pages(from, to) {
            if let Some(first) = self.busy.insert((file, page), io) {
                return Err(Breach::Overlap { file, page, first, second: io });
            }
        }
        Ok(())
    }
}

fn check_fetch(
    io: IoId,
    file: FileId,
    home: &Home,
    offset: u64,
    frames: &mut [Frame],
) -> Result<(), Breach> {
    if !home.is_readable() {
        return Err(Breach::Unreadable(io, file));
    }
    if frames.is_empty() || !offset.is_multiple_of(PAGE_BYTES as u64) {
        return Err(Breach::Malformed(io, "a fetch reads whole pages"));
    }
    if !frames.iter().all(Frame::is_unique) {
        return Err(Breach::SharedFrame(io));
    }
    Ok(())
}

/// Checks the parts' shape and gives their checksums.
fn check_parts(io: IoId, parts: &[Part]) -> Result<Vec<u64>, Breach> {
    if parts.is_empty() {
        return Err(Breach::Malformed(io, "a write without parts"));
    }
    let fits =
        |part: &Part| part.len > 0 && usize::from(part.start) + usize::from(part.len) <= PAGE_BYTES;
    if !parts.iter().all(fits) {
        return Err(Breach::Malformed(io, "a part outside its frame"));
    }
    Ok(parts.iter().map(|part| checksum(part_bytes(part))).collect())
}

fn part_bytes(part: &Part) -> &[u8] {
    &part.frame.bytes()[usize::from(part.start)..usize::from(part.start) + usize::from(part.len)]
}

fn length(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.len)).sum()
}
