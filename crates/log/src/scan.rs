//! Reading a log from its checkpoint on: groups in order, up to the end.
//!
//! The end is where no whole group stands. A group that was being written when the power went is
//! torn, and a torn group at the end is normal. But if a later group says that everything up to it
//! was durable, the broken one was whole once: that is damage, and never passed over.

use std::io;

use crate::block::BLOCK_BYTES;
use crate::group::{GroupHeader, HEADER_BYTES};
use crate::record::{Record, RecordError};
use crate::superblock::Superblock;
use crate::{GROUP_BYTES_MAX, Lsn};

/// Where a log's bytes come from.
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
        "the log is damaged at byte {place} (LSN {lsn}): a group that was written there is not \
         whole, and the one at LSN {later} was written after it"
    )]
    Damaged {
        /// Where it was to be.
        lsn: Lsn,
        /// Byte of the log.
        place: u64,
        /// A group that proves it.
        later: Lsn,
    },
    /// A whole group holds what no writer writes.
    #[error("the log is damaged at byte {place} (LSN {lsn}): {error}")]
    Record {
        /// Of the record.
        lsn: Lsn,
        /// Byte of the log.
        place: u64,
        /// What is wrong with it.
        error: RecordError,
    },
}

/// A whole group.
#[derive(Debug)]
pub struct Group {
    /// What its header says.
    pub header: GroupHeader,
    bytes: Vec<u8>,
}

impl Group {
    /// Its records, each with where it is.
    ///
    /// # Errors
    /// A record that is none, with where it is.
    pub fn records(&self) -> Result<Vec<(Lsn, Record<'_>)>, (Lsn, RecordError)> {
        let mut records = Vec::new();
        let mut at = HEADER_BYTES;
        while at < self.bytes.len() {
            let lsn = Lsn(self.header.lsn.0 + at as u64);
            let (record, len) = Record::decode(&self.bytes[at..]).map_err(|error| (lsn, error))?;
            records.push((lsn, record));
            at += len;
        }
        if records.len() != self.header.records as usize {
            return Err((self.header.lsn, RecordError::Nonsense("count in its group")));
        }
        Ok(records)
    }
}

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Where no whole group stands.
    pub lsn: Lsn,
    /// A group was begun there.
    pub torn: bool,
}

/// A pass over a log.
pub struct Scan<'a, R: ReadLog> {
    log: &'a mut R,
    superblock: Superblock,
    at: Lsn,
    /// A group's bytes, kept for the next one's.
    buffer: Vec<u8>,
}

impl<'a, R: ReadLog> Scan<'a, R> {
    /// From the checkpoint on.
    pub fn new(log: &'a mut R, superblock: Superblock) -> Scan<'a, R> {
        Scan { log, superblock, at: superblock.checkpoint, buffer: Vec::new() }
    }

    /// The next group; `Err` with how the log ended if there is none.
    ///
    /// # Errors
    /// See [`ScanError`].
    pub fn next_group(&mut self) -> Result<Result<Group, End>, ScanError> {
        let begun = self.at.0 - self.superblock.checkpoint.0;
        if begun >= self.superblock.data_bytes() {
            return Ok(Err(End { lsn: self.at, torn: false }));
        }
        let header = self.header_at(self.at)?;
        if let Some(header) = header
            && header.end().0 - self.superblock.checkpoint.0 <= self.superblock.data_bytes()
            && self.read_group(&header)?
        {
            self.at = header.end();
            return Ok(Ok(Group { header, bytes: std::mem::take(&mut self.buffer) }));
        }
        let torn = header.is_some();
        self.look_for_later()?;
        Ok(Err(End { lsn: self.at, torn }))
    }

    /// Gives a group's memory back for the next one's.
    pub fn recycle(&mut self, group: Group) {
        self.buffer = group.bytes;
    }

    /// The header at a position, if it says that it belongs there.
    fn header_at(&mut self, lsn: Lsn) -> Result<Option<GroupHeader>, ScanError> {
        let mut block = [0; BLOCK_BYTES];
        self.read(lsn, &mut block)?;
        let header = GroupHeader::decode(&block);
        Ok(header.filter(|header| header.lsn == lsn && header.log == self.superblock.log))
    }

    /// Reads a group into the buffer; says whether it is whole.
    fn read_group(&mut self, header: &GroupHeader) -> Result<bool, ScanError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(header.blocks() as usize * BLOCK_BYTES, 0);
        self.read(header.lsn, &mut buffer)?;
        buffer.truncate(header.bytes as usize);
        let whole = header.fits(&buffer);
        self.buffer = buffer;
        Ok(whole)
    }

    /// Makes sure that nothing after the end was written when what is missing here was durable.
    fn look_for_later(&mut self) -> Result<(), ScanError> {
        const CHUNK_BYTES: usize = 1 << 20;
        let end = self.superblock.checkpoint.0 + self.superblock.data_bytes();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = self.at.0 + BLOCK_BYTES as u64;
        while at < end {
            let len = CHUNK_BYTES.min((end - at) as usize);
            self.read(Lsn(at), &mut chunk[..len])?;
            for (nth, block) in chunk[..len].chunks_exact(BLOCK_BYTES).enumerate() {
                let lsn = Lsn(at + (nth * BLOCK_BYTES) as u64);
                let Some(header) = GroupHeader::decode(block) else { continue };
                let proves = header.lsn == lsn
                    && header.log == self.superblock.log
                    && header.durable > self.at
                    && header.end().0 <= end;
                if proves && self.read_group(&header)? {
                    let place = self.superblock.place(self.at);
                    return Err(ScanError::Damaged { lsn: self.at, place, later: lsn });
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Reads from the ring, around its end if need be.
    fn read(&mut self, lsn: Lsn, buffer: &mut [u8]) -> Result<(), ScanError> {
        let place = self.superblock.place(lsn);
        let to_end = (self.superblock.bytes_end() - place).min(buffer.len() as u64) as usize;
        let (first, rest) = buffer.split_at_mut(to_end);
        let start = self.superblock.place(Lsn(0));
        for (place, part) in [(place, first), (start, rest)] {
            if !part.is_empty() {
                let read = self.log.read(place, part);
                read.map_err(|source| ScanError::Read { place, source })?;
            }
        }
        Ok(())
    }
}

const _: () = assert!(GROUP_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
