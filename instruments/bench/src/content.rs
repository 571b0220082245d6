//! Content whose every byte follows from a seed, so that any page can be made, and checked, alone.
//!
//! It looks like an application's data file: fixed binary records (key, time, amount, flags), each
//! with some text. It is neither all zeros nor noise: about as compressible as such files are.

use crate::page::PAGE_BYTES;

pub use weir_drive::Random;

const RECORD_BYTES: usize = 128;
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
