//! Files as they are before a load: content that follows from a seed, page by page (see
//! [`crate::content`]), and comparing a file with what it should hold.
//!
//! Owns no file. A prepared file of any length holds the pages of its seed, the last one cut.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::content::fill_page;
use crate::error::{Doing, Error, Result};
use crate::page::{PAGE, PAGE_BYTES};

/// Bytes of one read or write of what is prepared or compared.
const RUN_BYTES: usize = 1 << 20;

/// The prepared content of one seed; the page that was asked for last is kept, so that going
/// through a file in small steps makes each page once.
pub struct Prepared {
    seed: u64,
    page: Option<u64>,
    bytes: Box<[u8; PAGE_BYTES]>,
}

impl Prepared {
    /// The content of `seed`.
    pub fn new(seed: u64) -> Prepared {
        Prepared { seed, page: None, bytes: Box::new([0; PAGE_BYTES]) }
    }

    /// One page of it.
    pub fn page(&mut self, page: u64) -> &[u8; PAGE_BYTES] {
        if self.page != Some(page) {
            fill_page(self.seed, page, &mut self.bytes);
            self.page = Some(page);
        }
        &self.bytes
    }

    /// Whether `bytes` are what is prepared at `offset`.
    pub fn matches(&mut self, offset: u64, bytes: &[u8]) -> bool {
        pieces(offset, bytes.len()).all(|piece| {
            self.page(piece.page)[piece.in_page..][..piece.length]
                == bytes[piece.at..][..piece.length]
        })
    }

    /// Fills `bytes` with what is prepared at `offset`.
    pub fn copy(&mut self, offset: u64, bytes: &mut [u8]) {
        for piece in pieces(offset, bytes.len()) {
            bytes[piece.at..][..piece.length]
                .copy_from_slice(&self.page(piece.page)[piece.in_page..][..piece.length]);
        }
    }

    /// Writes what is prepared at `offset` and for `length` bytes from there.
    pub fn write(&mut self, file: &File, path: &Path, offset: u64, length: u64) -> Result<()> {
        let mut buffer = vec![0; RUN_BYTES.min(length as usize)];
        let mut done = 0;
        while done < length {
            let run = (length - done).min(RUN_BYTES as u64) as usize;
            self.copy(offset + done, &mut buffer[..run]);
            file.write_all_at(&buffer[..run], offset + done).doing("write", path)?;
            done += run as u64;
        }
        Ok(())
    }
}

/// The part of a range that lies in one page.
struct Piece {
    page: u64,
    in_page: usize,
    /// From the range's start.
    at: usize,
    length: usize,
}

fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let here = offset + at as u64;
        let in_page = (here % PAGE) as usize;
        let piece = Piece {
            page: here / PAGE,
            in_page,
            at,
            length: (length - at).min(PAGE_BYTES - in_page),
        };
        at += piece.length;
        (piece.length > 0).then_some(piece)
    })
}

/// Compares each page of a file with what `expect` makes of it, and its length with `length`,
/// bytes. `explain` says more about the byte that differs, by its offset.
pub fn compare(
    path: &Path,
    length: u64,
    mut expect: impl FnMut(u64, &mut [u8; PAGE_BYTES]),
    explain: impl FnOnce(u64) -> String,
) -> Result<()> {
    let file = File::open(path).doing("open", path)?;
    let there = file.metadata().doing("look at", path)?.len();
    if there != length {
        return Err(Error::Different(format!(
            "{} has {there} bytes instead of {length}",
            path.display()
        )));
    }
    let mut buffer = vec![0; RUN_BYTES.min(length as usize)];
    let mut expected = [0; PAGE_BYTES];
    let mut offset = 0;
    while offset < length {
        let run = (length - offset).min(RUN_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..run], offset).doing("read", path)?;
        for (index, found) in buffer[..run].chunks(PAGE_BYTES).enumerate() {
            let start = offset + (index * PAGE_BYTES) as u64;
            expect(start / PAGE, &mut expected);
            let wanted = &expected[..found.len()];
            if found != wanted {
                let at = first_difference(found, wanted);
                let byte = start + at as u64;
                return Err(Error::Different(format!(
                    "{} at byte {byte}: {:#04x} instead of {:#04x}; {}",
                    path.display(),
                    found[at],
                    wanted[at],
                    explain(byte)
                )));
            }
        }
        offset += run as u64;
    }
    Ok(())
}

/// Where two rows of bytes of the same length first differ.
pub fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).position(|(one, other)| one != other).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_in_any_steps() {
        let mut prepared = Prepared::new(5);
        let mut whole = vec![0; 3 * PAGE_BYTES];
        prepared.copy(0, &mut whole);
        let mut part = vec![0; 6000];
        prepared.copy(3000, &mut part);
        assert_eq!(part, whole[3000..9000]);
        assert!(prepared.matches(3000, &part));
        part[5999] ^= 1;
        assert!(!prepared.matches(3000, &part));
        assert!(!prepared.matches(3001, &whole[3000..9000]));
    }
}
