//! Reading a log from its checkpoint on: groups in order, up to the end.
//! The log ends where no whole group stands. A group that was being written during a power cut is torn; a torn
//! group at the end is normal. But if a later group says that everything before it was durable, the broken
//! group was once whole: that is damage, and an error.

use std::{io, iter};

use crate::block::BLOCK_BYTES;
use crate::group::{GroupHeader, HEADER_BYTES};
use crate::record::{ALIGN, Record};
use crate::record_error::RecordError;
use crate::rows::Row;
use crate::superblock::{CHECKPOINT_MAX, DATA_START, Superblock};
use crate::{GROUP_BYTES_MAX, Lsn};

/// Reads a log's bytes.
pub trait ReadLog {
    /// Fills `buffer` from `offset` on; both are multiples of the block size.
    ///
    /// # Errors
    /// The device's; the end of the log too.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The device failed.
    #[error("cannot read the log at byte {place}: {source}")]
    Read {
        /// Byte of the log.
        place: u64,
        /// The device's error.
        source: io::Error,
    },
    /// A group that was durable is not whole.
    #[error(
        "the log is damaged at byte {place} or later in that row (LSN {lsn}): a group that was \
         written there is not whole, and the one at LSN {later} was written after it"
    )]
    Damaged {
        /// Position of the group.
        lsn: Lsn,
        /// Start of the row that it should be in, byte of the log.
        place: u64,
        /// A later group, which proves the damage.
        later: Lsn,
    },
    /// A whole group holds bytes that no writer writes.
    #[error("the log is damaged at byte {place} (LSN {lsn}): {error}")]
    Record {
        /// Of the record.
        lsn: Lsn,
        /// Byte of the log.
        place: u64,
        /// What is wrong with it.
        error: RecordError,
    },
    /// A whole group holds a record of a kind that is not known.
    #[error(
        "the log holds records of kind {kind} (byte {place}, LSN {lsn}), which this Weir does not know: a \
         newer Weir wrote it; recover with that one"
    )]
    NewerKind {
        /// Of the record.
        lsn: Lsn,
        /// Byte of the log.
        place: u64,
        /// Its kind.
        kind: u8,
    },
}

/// A whole group.
#[derive(Debug)]
pub struct Group {
    /// Its header.
    pub header: GroupHeader,
    bytes: Vec<u8>,
    superblock: Superblock,
}

impl Group {
    /// Its records with their positions.
    ///
    /// # Errors
    /// The first item that is no record, or a record of an unknown kind.
    pub fn records(&self) -> Result<Vec<(Lsn, Record<'_>)>, ScanError> {
        let failed = |lsn, error| {
            let place = self.place(lsn);
            match error {
                RecordError::Kind { kind, .. } => ScanError::NewerKind { lsn, place, kind },
                error => ScanError::Record { lsn, place, error },
            }
        };
        let records = self.contents().map(|(lsn, record)| {
            record.map(|record| (lsn, record)).map_err(|error| failed(lsn, error))
        });
        let records: Vec<_> = records.collect::<Result<_, _>>()?;
        if records.len() != self.header.records as usize {
            return Err(failed(self.header.lsn, RecordError::Nonsense("count in its group")));
        }
        Ok(records)
    }

    /// Its records with their positions. Records of unknown kinds are errors; if the rest is no record, the
    /// last item is an error.
    pub fn contents(&self) -> impl Iterator<Item = (Lsn, Result<Record<'_>, RecordError>)> {
        let mut at = HEADER_BYTES;
        iter::from_fn(move || {
            let bytes = self.bytes.get(at..).filter(|bytes| !bytes.is_empty())?;
            let lsn = Lsn(self.header.lsn.0 + at as u64);
            let (record, len) = match Record::decode(bytes) {
                Ok((record, len)) => (Ok(record), len),
                Err(error @ RecordError::Kind { bytes, .. }) => {
                    (Err(error), (bytes as usize).next_multiple_of(ALIGN))
                }
                Err(error) => (Err(error), bytes.len()),
            };
            at += len;
            Some((lsn, record))
        })
    }

    /// Where in the log one of its positions is, bytes.
    pub fn place(&self, lsn: Lsn) -> u64 {
        self.superblock.ahead_of(self.header.place, lsn.0 - self.header.lsn.0)
    }
}

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Where no whole group stands.
    pub lsn: Lsn,
    /// An incomplete group begins there.
    pub torn: bool,
}

/// A scan of a log.
pub struct Scan<'a, R: ReadLog> {
    log: &'a mut R,
    superblock: Superblock,
    at: Lsn,
    /// The scan ends here: one lap of the ring.
    limit: Lsn,
    /// The row that was read last, and its bytes.
    row: Option<(Row, Vec<GroupHeader>)>,
    /// A group's memory, reused for the next group.
    buffer: Vec<u8>,
}

impl<'a, R: ReadLog> Scan<'a, R> {
    /// From the checkpoint on.
    pub fn new(log: &'a mut R, superblock: Superblock) -> Scan<'a, R> {
        let at = superblock.checkpoint;
        let limit = superblock.limit(at);
        Scan { log, superblock, at, limit, row: None, buffer: Vec::new() }
    }

    /// Where the next group begins.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// The next group; `Err` with how the log ended if there is none.
    ///
    /// # Errors
    /// See [`ScanError`].
    pub fn next_group(&mut self) -> Result<Result<Group, End>, ScanError> {
        let mut torn = false;
        if self.at >= self.limit {
            return Ok(Err(End { lsn: self.at, torn }));
        }
        let row = self.superblock.row_of(self.at);
        let next = self.superblock.row_of(row.end());
        let limit = self.limit;
        for row in [row, next].into_iter().filter(|row| row.start < limit) {
            for header in self.headers_at(row, self.at)? {
                if let Some(after) = self.read_group(&header)? {
                    self.at = after;
                    let bytes = std::mem::take(&mut self.buffer);
                    return Ok(Ok(Group { header, bytes, superblock: self.superblock }));
                }
                torn = true;
            }
        }
        self.look_for_later()?;
        Ok(Err(End { lsn: self.at, torn }))
    }

    /// Returns a group's memory for the next group.
    pub fn recycle(&mut self, group: Group) {
        self.buffer = group.bytes;
    }

    /// The headers in a row that belong there and have this position.
    fn headers_at(&mut self, row: Row, lsn: Lsn) -> Result<Vec<GroupHeader>, ScanError> {
        if self.row.as_ref().is_none_or(|(known, _)| *known != row) {
            let mut headers = Vec::new();
            self.each_header(row.start, row.end(), |_, header| {
                headers.push(header);
                Ok(())
            })?;
            self.row = Some((row, headers));
        }
        let headers = self.row.iter().flat_map(|(_, headers)| headers);
        Ok(headers.filter(|header| header.lsn == lsn).copied().collect())
    }

    /// Calls `each` with the headers in whole rows, from one position to another, that stand at their own place and belong
    /// to this lap of the log, or to a later one.
    fn each_header(
        &mut self,
        from: Lsn,
        to: Lsn,
        mut each: impl FnMut(&mut Self, GroupHeader) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        const CHUNK_BYTES: u64 = 1 << 20;
        let last = self.limit.0.max(CHECKPOINT_MAX);
        let mut chunk = vec![0; CHUNK_BYTES.min(to.0 - from.0) as usize];
        let mut at = from.0;
        while at < to.0 {
            let len = CHUNK_BYTES.min(to.0 - at) as usize;
            let place = self.superblock.place(Lsn(at));
            self.read(place, &mut chunk[..len])?;
            for (nth, block) in chunk[..len].chunks_exact(BLOCK_BYTES).enumerate() {
                let Some(header) = GroupHeader::decode(block) else { continue };
                let here = self.superblock.ahead_of(place, (nth * BLOCK_BYTES) as u64);
                if header.log == self.superblock.log
                    && header.place == here
                    && (self.at.0..=last).contains(&header.lsn.0)
                {
                    each(self, header)?;
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Reads a group into the buffer, if it stands at an allowed place. Returns the position after it if it is whole.
    fn read_group(&mut self, header: &GroupHeader) -> Result<Option<Lsn>, ScanError> {
        let after = self.superblock.after(header);
        // No group of this lap leads beyond it.
        let after = after.filter(|&after| after <= self.limit || header.lsn >= self.limit);
        let Some(after) = after else { return Ok(None) };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(header.blocks() as usize * BLOCK_BYTES, 0);
        self.read(header.place, &mut buffer)?;
        buffer.truncate(header.bytes as usize);
        let whole = header.fits(&buffer);
        self.buffer = buffer;
        Ok(whole.then_some(after))
    }

    /// Checks that no group after the end was written when the missing group here was durable. So was every group of a
    /// later lap: the superblock that allowed it is lost.
    fn look_for_later(&mut self) -> Result<(), ScanError> {
        let row = self.superblock.row_of(self.at);
        self.each_header(row.start, self.limit, |scan, header| {
            let is_of_later_lap = header.lsn >= scan.limit;
            let proves = is_of_later_lap || header.lsn > scan.at && header.durable > scan.at;
            if proves && scan.read_group(&header)?.is_some() {
                let (lsn, later) = (scan.at, header.lsn);
                return Err(ScanError::Damaged { lsn, place: row.place, later });
            }
            Ok(())
        })
    }

    /// Reads from the ring, around its end if need be.
    fn read(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ScanError> {
        let to_end = (self.superblock.bytes_end() - place).min(buffer.len() as u64) as usize;
        let (first, rest) = buffer.split_at_mut(to_end);
        for (place, part) in [(place, first), (DATA_START, rest)] {
            if !part.is_empty() {
                let read = self.log.read(place, part);
                read.map_err(|source| ScanError::Read { place, source })?;
            }
        }
        Ok(())
    }
}

const _: () = assert!(GROUP_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
