//! One command in flight: which bytes are left to move, by which descriptor, and what a result means.
//! A write that does not begin and end on the device's alignment moves in *stages*: first the whole pages in
//! its middle, direct; then the rest at either end, through the page cache, so that the file never grows past
//! its last byte. Stages never overlap in time. Owns the command's frames until it ends. Moves no bytes by
//! itself: the ring and the workers do.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use weir_engine::{Command, Completion, FileId, Frame, IoId, PAGE_BYTES, Part, Urgency};

use crate::busy_poll;
use crate::error::{error_kind, is_cancelled, is_transient};
use crate::exclusion::Mode;
use crate::home_file::{Access, Channel, HomeFile, size_at_home};
use crate::unsynced::Begun;

/// A write with an unaligned end and less than this between its ends goes through the page cache
/// as a whole: a second trip costs more than the copy.
const DIRECT_BODY_BYTES_MIN: u64 = 64 << 10;

/// Most pieces of memory in one call (IOV_MAX); the others follow in the next call.
const PIECES_MAX: usize = 1024;

/// Consecutive calls that may fail with transient errors before that is an error.
const TRANSIENT_MAX: u8 = 100;

const PAGE: u64 = PAGE_BYTES as u64;

/// A fetch, destage or sync of one file.
#[derive(Debug)]
pub(crate) struct Transfer {
    io: IoId,
    id: FileId,
    file: Arc<HomeFile>,
    payload: Payload,
    /// Where in the file the payload begins.
    offset: u64,
    /// The stages that are left, in order. Empty for a sync.
    stages: SmallVec<[Stage; 3]>,
    channel: Channel,
    /// Transient failures since the last progress.
    transient: u8,
    /// Of a sync of a home that needs it ([`crate::Unsynced`]).
    pub(crate) begun: Option<Begun>,
}

/// The data of a transfer.
#[derive(Debug)]
pub(crate) enum Payload {
    Fetch { frames: Vec<Frame>, urgency: Urgency },
    Write { parts: Vec<Part> },
    Sync { datasync: bool },
}

/// A byte range of the file still to be moved, by the transfer's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage {
    from: u64,
    to: u64,
    mode: Mode,
}

/// What to do after a result.
#[derive(Debug)]
pub(crate) enum Next {
    /// Bytes are left in the current stage.
    Again(Transfer),
    /// The stage ended; the next one moves in another mode, or the transfer starts again.
    Stage(Transfer),
    /// The transfer ended.
    Done(IoId, Completion),
}

/// The result of starting a command.
pub(crate) enum Started {
    Transfer(Transfer),
    /// It completed, or failed, at once.
    Done(IoId, Completion),
}

impl Transfer {
    /// Plans a command. Executes a reservation, or a look-up of a file's extents, at once.
    pub(crate) fn start(command: Command, file: Arc<HomeFile>) -> Started {
        let (io, id) = (command.io(), command.file());
        let (offset, payload) = match command {
            Command::Fetch { offset, frames, urgency, .. } => {
                assert!(frames.iter().all(Frame::is_unique), "a fetch into a shared frame");
                (offset, Payload::Fetch { frames, urgency })
            }
            Command::Write { offset, parts, .. } => (offset, Payload::Write { parts }),
            Command::Sync { datasync, .. } => (0, Payload::Sync { datasync }),
            Command::Reserve { offset, len, .. } => {
                let result = file.reserve(offset, len).map_err(|error| error_kind(&error));
                return Started::Done(io, Completion::Reserved { result });
            }
            Command::Map { .. } => {
                return Started::Done(io, Completion::Mapped { extents: file.extents() });
            }
        };
        let channel = match &payload {
            Payload::Fetch { .. } => file.channel(Access::Read),
            Payload::Write { parts } => match file.known_direct_unit() {
                // Opens no direct descriptor for a file that does not need one.
                Some(unit) if stages_of_write(parts, offset, unit)[0].mode == Mode::Buffered => {
                    file.buffered_channel(Access::Write)
                }
                _ => file.channel(Access::Write),
            },
            Payload::Sync { .. } => file.sync_channel(),
        };
        match channel {
            Ok(channel) => {
                let mut transfer = Transfer {
                    io,
                    id,
                    file,
                    payload,
                    offset,
                    stages: SmallVec::new(),
                    channel,
                    transient: 0,
                    begun: None,
                };
                transfer.plan();
                Started::Transfer(transfer)
            }
            Err(error) => Started::Done(io, payload.failed(&error)),
        }
    }

    /// The file's number.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    pub(crate) fn file(&self) -> &Arc<HomeFile> {
        &self.file
    }

    pub(crate) fn payload(&self) -> &Payload {
        &self.payload
    }

    /// The descriptor the next bytes move by.
    pub(crate) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.channel.descriptor
    }

    /// The mode of the next bytes, if they are written. `None` for reads and syncs.
    pub(crate) fn write_mode(&self) -> Option<Mode> {
        match self.payload {
            Payload::Write { .. } => self.stages.first().map(|stage| stage.mode),
            Payload::Fetch { .. } | Payload::Sync { .. } => None,
        }
    }

    /// The file offset of the next bytes.
    pub(crate) fn position(&self) -> u64 {
        self.stages.first().map_or(0, |stage| stage.from)
    }

    /// The memory the next bytes move from or to, in order: address and length. It is the
    /// payload's, and stays where it is while the transfer lives.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = (*mut u8, usize)> {
        self.pieces().map(|(frame, start, len)| {
            // `pieces` keeps this within the frame.
            (frame.as_ptr().wrapping_add(start), len)
        })
    }

    /// Moves the next bytes, or syncs, in the calling thread; the result is for
    /// [`Transfer::advance`]. With `busy_poll` the device is fast, and the thread polls for completion if
    /// polling is enabled for it.
    pub(crate) fn call(&mut self, busy_poll: bool) -> io::Result<usize> {
        let position = self.position();
        let descriptor = Arc::clone(&self.channel.descriptor);
        match &mut self.payload {
            &mut Payload::Sync { datasync } => {
                let polled = || busy_poll::sync(descriptor.as_fd(), datasync);
                match busy_poll.then(polled).flatten() {
                    Some(synced) => synced?,
                    None if datasync => rustix::fs::fdatasync(&descriptor)?,
                    None => rustix::fs::fsync(&descriptor)?,
                }
                Ok(0)
            }
            Payload::Write { .. } => {
                let slices: Vec<IoSlice<'_>> = self
                    .pieces()
                    .map(|(frame, start, len)| IoSlice::new(&frame.bytes()[start..start + len]))
                    .collect();
                Ok(rustix::io::pwritev(&descriptor, &slices, position)?)
            }
            Payload::Fetch { frames, .. } => {
                let skip = (position - self.offset) as usize;
                let mut slices = Vec::with_capacity(frames.len());
                for (index, frame) in
                    frames.iter_mut().enumerate().skip(skip / PAGE_BYTES).take(PIECES_MAX)
                {
                    let start = if index == skip / PAGE_BYTES { skip % PAGE_BYTES } else { 0 };
                    let bytes = frame.bytes_mut().expect("a fetch's frames are unshared");
                    slices.push(IoSliceMut::new(&mut bytes[start..]));
                }
                // Data in the page cache needs no device.
                let busy_poll = busy_poll && self.channel.direct_unit.is_some();
                let polled = || busy_poll::read(descriptor.as_fd(), &mut slices, position);
                match busy_poll.then(polled).flatten() {
                    Some(read) => read,
                    None => Ok(rustix::io::preadv(&descriptor, &mut slices, position)?),
                }
            }
        }
    }

    /// Takes the result of moving the next bytes: how many were moved, or why none.
    pub(crate) fn advance(mut self, result: io::Result<usize>) -> Next {
        let moved = match result {
            Ok(moved) => moved,
            Err(error) if self.is_repeated(&error) => {
                self.transient += 1;
                return Next::Again(self);
            }
            Err(error)
                if self.is_direct() && Errno::from_io_error(&error) == Some(Errno::INVAL) =>
            {
                self.file.refuse_direct();
                return self.replan_buffered();
            }
            Err(error) => return self.fail(&error),
        };
        self.transient = 0;
        match self.payload {
            Payload::Sync { .. } => self.finish(0),
            Payload::Fetch { .. } => self.advance_fetch(moved),
            Payload::Write { .. } => self.advance_write(moved),
        }
    }

    fn advance_fetch(mut self, moved: usize) -> Next {
        let stage = &mut self.stages[0];
        let at = stage.from + moved as u64;
        if moved == 0 || at >= stage.to {
            return self.finish_fetch(at);
        }
        match size_at_home(&self.channel.descriptor) {
            Ok(size) if at >= size => return self.finish_fetch(at),
            Ok(_) => {}
            Err(error) => return self.fail(&error),
        }
        let unit = u64::from(self.channel.direct_unit.unwrap_or(1));
        let next = at - at % unit;
        if next <= stage.from {
            // A short read inside one unit that is not at the end of the file: the page cache finds out why.
            return self.replan_buffered();
        }
        stage.from = next;
        Next::Again(self)
    }

    fn finish_fetch(self, at: u64) -> Next {
        let read = (at - self.offset) as usize;
        self.finish(read)
    }

    fn advance_write(mut self, moved: usize) -> Next {
        if moved == 0 {
            return self.fail(&io::Error::from(Errno::IO));
        }
        let stage = &mut self.stages[0];
        stage.from += moved as u64;
        if stage.from < stage.to {
            let unit = self.channel.direct_unit.unwrap_or(1);
            if stage.mode == Mode::Direct && !stage.from.is_multiple_of(u64::from(unit)) {
                return self.replan_buffered();
            }
            return Next::Again(self);
        }
        self.stages.remove(0);
        if self.stages.is_empty() {
            return self.finish(0);
        }
        match self.file.buffered_channel(Access::Write) {
            Ok(channel) => {
                self.channel = channel;
                Next::Stage(self)
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Starts again through the page cache: moving bytes twice does no harm.
    fn replan_buffered(mut self) -> Next {
        let access = match self.payload {
            Payload::Fetch { .. } => Access::Read,
            Payload::Write { .. } | Payload::Sync { .. } => Access::Write,
        };
        match self.file.buffered_channel(access) {
            Ok(channel) => {
                self.channel = channel;
                self.plan();
                Next::Stage(self)
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Divides the payload into stages, for the current channel.
    fn plan(&mut self) {
        self.stages.clear();
        match (&self.payload, self.channel.direct_unit) {
            (Payload::Sync { .. }, _) => {}
            (Payload::Write { parts }, Some(unit)) => {
                self.stages = stages_of_write(parts, self.offset, unit);
                if self.stages[0].mode == Mode::Buffered
                    && let Ok(channel) = self.file.buffered_channel(Access::Write)
                {
                    self.channel = channel;
                }
            }
            (payload, unit) => {
                let mode = if unit.is_some() { Mode::Direct } else { Mode::Buffered };
                let (from, to) = (self.offset, self.offset + payload.len());
                self.stages.push(Stage { from, to, mode });
            }
        }
    }

    /// Whether the next bytes move by a direct descriptor.
    pub(crate) fn is_direct(&self) -> bool {
        self.channel.direct_unit.is_some()
    }

    /// Whether this is a sync that must first restore the modification time at home. fdatasync(2) promises
    /// nothing about it.
    pub(crate) fn wants_times_restored(&self) -> bool {
        matches!(self.payload, Payload::Sync { datasync: false })
            && self.file.times().is_disturbed()
    }

    /// Whether a failed sync may be done by another descriptor.
    pub(crate) fn can_be_renewed(&self) -> bool {
        self.transient == 0
    }

    /// A sync fails, whatever another descriptor says.
    pub(crate) fn has_failed(&mut self) {
        self.transient = self.transient.saturating_add(1);
    }

    /// Takes another descriptor for a sync that has failed, if there is one. May wait for home.
    pub(crate) fn renew(&mut self, error: &io::Error) -> bool {
        self.file.transfer_failed(error);
        self.has_failed();
        let former = Arc::clone(&self.channel.descriptor);
        match self.file.sync_channel() {
            Ok(channel) if !Arc::ptr_eq(&channel.descriptor, &former) => {
                self.channel = channel;
                true
            }
            _ => false,
        }
    }

    /// Whether it is tried again after this error. Linux reports a failed write-back once, and a FUSE home's is any error that its server
    /// says: after that a second sync would succeed.
    pub(crate) fn is_repeated(&self, error: &io::Error) -> bool {
        let is_passing = match self.is_sync() {
            true => is_cancelled(error) && self.begun.is_none() && self.file.is_off_fuse(),
            false => is_transient(error),
        };
        is_passing && self.transient < TRANSIENT_MAX
    }

    /// Whether it moves nothing, and syncs.
    pub(crate) fn is_sync(&self) -> bool {
        matches!(self.payload, Payload::Sync { .. })
    }

    /// Whether it writes.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.payload, Payload::Write { .. })
    }

    /// Whether no byte was moved yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.position() == self.offset && self.transient == 0
    }

    /// The frames of the current stage: frame, first byte in it, bytes.
    fn pieces(&self) -> impl Iterator<Item = (&Frame, usize, usize)> {
        let (from, to) = self.stages.first().map_or((0, 0), |stage| (stage.from, stage.to));
        let (frames, parts): (&[Frame], &[Part]) = match &self.payload {
            Payload::Fetch { frames, .. } => (frames, &[]),
            Payload::Write { parts } => (&[], parts),
            Payload::Sync { .. } => (&[], &[]),
        };
        let whole = frames.iter().map(|frame| (frame, 0, PAGE_BYTES));
        let partial =
            parts.iter().map(|part| (&part.frame, usize::from(part.start), usize::from(part.len)));
        let mut at = self.offset;
        whole
            .chain(partial)
            .filter_map(move |(frame, start, len)| {
                let (piece_from, piece_to) = (at, at + len as u64);
                at = piece_to;
                let (from, to) = (piece_from.max(from), piece_to.min(to));
                (from < to)
                    .then(|| (frame, start + (from - piece_from) as usize, (to - from) as usize))
            })
            .take(PIECES_MAX)
    }

    fn fail(self, error: &io::Error) -> Next {
        self.note_written();
        self.file.transfer_failed(error);
        Next::Done(self.io, self.payload.failed(error))
    }

    /// The modification time at home changed, or may have changed.
    fn note_written(&self) {
        if matches!(self.payload, Payload::Write { .. }) {
            self.file.times().note_disturbed();
        }
    }

    fn finish(self, read: usize) -> Next {
        self.note_written();
        let completion = match self.payload {
            Payload::Fetch { frames, .. } => Completion::Fetched { frames, result: Ok(read) },
            Payload::Write { .. } => Completion::Written { result: Ok(()) },
            Payload::Sync { .. } => Completion::Synced { result: Ok(()) },
        };
        Next::Done(self.io, completion)
    }
}

impl Payload {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Payload::Fetch { frames, .. } => frames.len() as u64 * PAGE,
            Payload::Write { parts } => parts_len(parts),
            Payload::Sync { .. } => 0,
        }
    }

    fn failed(self, error: &io::Error) -> Completion {
        let kind = error_kind(error);
        tracing::debug!(%error, bytes = self.len(), "a transfer failed at home");
        match self {
            Payload::Fetch { frames, .. } => Completion::Fetched { frames, result: Err(kind) },
            Payload::Write { .. } => Completion::Written { result: Err(kind) },
            Payload::Sync { .. } => Completion::Synced { result: Err(kind) },
        }
    }
}

fn parts_len(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.len)).sum()
}

/// Whether each part has the same alignment in memory as in the file.
fn parts_are_aligned(parts: &[Part], offset: u64, unit: u32) -> bool {
    let unit = u64::from(unit);
    let mut at = offset;
    parts.iter().enumerate().all(|(index, part)| {
        let in_step = u64::from(part.start) % unit == at % unit;
        let joined = index == 0 || at.is_multiple_of(unit);
        at += u64::from(part.len);
        in_step && joined
    })
}

/// How `parts` are written at `offset` to a file that takes direct I/O in multiples of `unit`.
fn stages_of_write(parts: &[Part], offset: u64, unit: u32) -> SmallVec<[Stage; 3]> {
    let (from, to) = (offset, offset + parts_len(parts));
    assert!(from < to, "an empty write");
    if parts_are_aligned(parts, offset, unit) {
        return stages_of_range(from, to, u64::from(unit));
    }
    SmallVec::from_iter([Stage { from, to, mode: Mode::Buffered }])
}

fn stages_of_range(from: u64, to: u64, unit: u64) -> SmallVec<[Stage; 3]> {
    let mut stages = SmallVec::new();
    if from.is_multiple_of(unit) && to.is_multiple_of(unit) {
        stages.push(Stage { from, to, mode: Mode::Direct });
        return stages;
    }
    // Whole pages, not units: a page that is partly in the page cache would be written to the
    // device and read back between the two stages.
    let body_from = if from.is_multiple_of(unit) { from } else { from.next_multiple_of(PAGE) };
    let body_to = if to.is_multiple_of(unit) { to } else { to - to % PAGE };
    if body_to < body_from.saturating_add(DIRECT_BODY_BYTES_MIN) {
        stages.push(Stage { from, to, mode: Mode::Buffered });
        return stages;
    }
    stages.push(Stage { from: body_from, to: body_to, mode: Mode::Direct });
    if from < body_from {
        stages.push(Stage { from, to: body_from, mode: Mode::Buffered });
    }
    if body_to < to {
        stages.push(Stage { from: body_to, to, mode: Mode::Buffered });
    }
    stages
}

#[cfg(test)]
mod tests {
    use weir_engine::ErrorKind;

    use super::*;
    use crate::unsynced::Unsynced;

    fn stages(from: u64, to: u64, unit: u64) -> Vec<(u64, u64, Mode)> {
        stages_of_range(from, to, unit).iter().map(|s| (s.from, s.to, s.mode)).collect()
    }

    fn sync_that_fails_with(errno: Errno, begun: Option<Begun>) -> Next {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let path = rustix::fs::open("/dev/null", rustix::fs::OFlags::PATH, 0.into()).unwrap();
        let home = Arc::new(HomeFile::with_created(path, file));
        let command = Command::Sync { io: IoId(1), file: FileId(1), datasync: true };
        let Started::Transfer(transfer) = Transfer::start(command, home) else { panic!() };
        Transfer { begun, ..transfer }.advance(Err(errno.into()))
    }

    #[test]
    fn a_sync_is_not_repeated_after_an_error_that_may_be_homes() {
        let failed = Err(ErrorKind::Io);
        for errno in [Errno::INTR, Errno::AGAIN] {
            let next = sync_that_fails_with(errno, None);
            let Next::Done(_, Completion::Synced { result }) = next else { panic!("{errno}") };
            assert_eq!(result, failed);
        }
        // The ring's, if no server can say it.
        assert!(matches!(sync_that_fails_with(Errno::CANCELED, None), Next::Again(_)));
        let descriptor = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let begun = Unsynced::default().begin(FileId(1), &descriptor);
        let next = sync_that_fails_with(Errno::CANCELED, Some(begun));
        assert!(matches!(next, Next::Done(_, Completion::Synced { result }) if result == failed));
    }

    #[test]
    fn aligned_writes_are_direct_as_a_whole() {
        assert_eq!(stages(512, 1024, 512), [(512, 1024, Mode::Direct)]);
        assert_eq!(stages(0, 1 << 20, 4096), [(0, 1 << 20, Mode::Direct)]);
    }

    #[test]
    fn small_unaligned_writes_are_buffered_as_a_whole() {
        assert_eq!(stages(0, 100, 512), [(0, 100, Mode::Buffered)]);
        assert_eq!(stages(512, 1024, 4096), [(512, 1024, Mode::Buffered)]);
        assert_eq!(stages(0, (32 << 10) + 1, 512), [(0, (32 << 10) + 1, Mode::Buffered)]);
    }

    #[test]
    fn large_unaligned_writes_have_a_direct_body() {
        let end = (1 << 20) + 700;
        assert_eq!(
            stages(0, end, 512),
            [(0, 1 << 20, Mode::Direct), (1 << 20, end, Mode::Buffered)]
        );
        assert_eq!(
            stages(100, end, 512),
            [
                (4096, 1 << 20, Mode::Direct),
                (100, 4096, Mode::Buffered),
                (1 << 20, end, Mode::Buffered)
            ]
        );
        assert_eq!(
            stages(100, 1 << 20, 512),
            [(4096, 1 << 20, Mode::Direct), (100, 4096, Mode::Buffered)]
        );
    }
}
