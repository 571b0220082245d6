//! Content whose every byte follows from a seed, so that any page can be made, and checked, alone.
//!
//! It looks like an application's data file: fixed binary records (key, time, amount, flags), each
//! with some text. It is neither all zeros nor noise: about as compressible as such files are.

use std::io::{self, Read};

use crate::page::PAGE_BYTES;

pub use weir_drive::Random;

const RECORD_BYTES: usize = 128;
const BLOCK_BYTES: usize = 64 << 10;
const WORDS: [&[u8; 8]; 16] = [
    b"account ",
    b"balance ",
    b"credit  ",
    b"debit   ",
    b"delta   ",
    b"enabled ",
    b"invoice ",
    b"ledger  ",
    b"london  ",
    b"order   ",
    b"paid    ",
    b"pending ",
    b"refund  ",
    b"shipped ",
    b"updated ",
    b"warning ",
];

/// Fills one page of the file of `seed`.
pub fn fill_page(seed: u64, page: u64, bytes: &mut [u8; PAGE_BYTES]) {
    let mut random = Random::of(seed, page);
    for (index, record) in bytes.chunks_exact_mut(RECORD_BYTES).enumerate() {
        let key = page * (PAGE_BYTES / RECORD_BYTES) as u64 + index as u64;
        let bits = random.next();
        record[..8].copy_from_slice(&key.to_be_bytes());
        record[8..16].copy_from_slice(&(1_700_000_000_000 + key * 17).to_be_bytes());
        record[16..24].copy_from_slice(&(bits >> 40).to_be_bytes());
        record[24..32].copy_from_slice(&random.next().to_be_bytes());
        let mut choice = bits.rotate_left(17) ^ random.next();
        for word in record[32..].chunks_exact_mut(8) {
            word.copy_from_slice(WORDS[(choice & 15) as usize]);
            choice >>= 4;
        }
    }
}

/// Where two streams first differ, and be it that one ends there; `None` if they do not.
pub fn first_difference(one: &mut impl Read, other: &mut impl Read) -> io::Result<Option<usize>> {
    let (mut blocks, mut offset) = ([vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]], 0);
    loop {
        let counts = [fill(one, &mut blocks[0])?, fill(other, &mut blocks[1])?];
        let [one, other] = [&blocks[0][..counts[0]], &blocks[1][..counts[1]]];
        if one != other {
            let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            return Ok(Some(offset + same));
        }
        if one.is_empty() {
            return Ok(None);
        }
        offset += one.len();
    }
}

/// Fills the block as far as the stream reaches.
fn fill(from: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match from.read(&mut block[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_follows_from_its_seed_and_number_alone() {
        let page = |seed, number| {
            let mut bytes = [0; PAGE_BYTES];
            fill_page(seed, number, &mut bytes);
            bytes
        };
        assert_eq!(page(1, 7), page(1, 7));
        assert_ne!(page(1, 7), page(1, 8));
        assert_ne!(page(1, 7), page(2, 7));
    }
}
