//! The bytes of a write: they follow from a seed and the number of the write, so that a load keeps
//! numbers only and each byte can be made again to be compared.
//!
//! Invariant: the first eight bytes name the write, and the words of all writes of a seed differ, as
//! numbers of 64 bits drawn at random do. A write that is lost, misplaced, torn or older than it
//! should be therefore shows.

use crate::content::Random;

/// Bytes of one word of a stamp.
const WORD_BYTES: usize = 8;
/// Odd, so that multiples of it differ.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Writes of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    mask: u64,
}

impl Stamps {
    /// The writes of `seed`.
    pub fn new(seed: u64) -> Stamps {
        Stamps { mask: Random::of(seed, 0x57a3).next() }
    }

    /// Fills `bytes`, of any length, with what write number `write` puts there.
    pub fn fill(self, write: u64, bytes: &mut [u8]) {
        let name = write ^ self.mask;
        let base = Random::new(name).next();
        let mut word = name;
        let mut next = base;
        let mut words = bytes.chunks_exact_mut(WORD_BYTES);
        for chunk in &mut words {
            chunk.copy_from_slice(&word.to_le_bytes());
            next = next.wrapping_add(STEP);
            word = next;
        }
        let rest = words.into_remainder();
        let length = rest.len();
        rest.copy_from_slice(&word.to_le_bytes()[..length]);
    }

    /// The number of the write whose bytes begin like these; any number if none does.
    pub fn write_of(self, bytes: &[u8]) -> u64 {
        let mut word = [0; WORD_BYTES];
        let length = bytes.len().min(WORD_BYTES);
        word[..length].copy_from_slice(&bytes[..length]);
        u64::from_le_bytes(word) ^ self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_by_its_bytes_and_unlike_any_other() {
        let stamps = Stamps::new(7);
        let bytes = |write| {
            let mut bytes = [0; 100];
            stamps.fill(write, &mut bytes);
            bytes
        };
        assert_eq!(bytes(12), bytes(12));
        assert_eq!(stamps.write_of(&bytes(12)), 12);
        let mut words = std::collections::HashSet::new();
        for write in 0..100 {
            for word in bytes(write).chunks_exact(WORD_BYTES) {
                assert!(words.insert(word.to_vec()));
            }
        }
        assert_ne!(Stamps::new(8).write_of(&bytes(12)), 12);
    }
}
