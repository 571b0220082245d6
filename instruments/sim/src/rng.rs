//! The only source of randomness in a simulation: a small generator with a fixed algorithm.
//!
//! A seed must mean the same run on every machine and after every dependency update.

use weir_drive::Random;

/// A deterministic generator.
#[derive(Clone, Debug)]
pub struct Rng(Random);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(Random::new(seed))
    }

    /// A generator for another purpose, so that drawing more for one does not disturb the other.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.word())
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        // The bias of a remainder is below 2^-40 for the bounds used here.
        self.word() % bound
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// One of the choices, each as likely.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// An index, as likely as its weight; `None` if every weight is zero.
    pub fn weighted(&mut self, weights: &[u32]) -> Option<usize> {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        if total == 0 {
            return None;
        }
        let mut left = self.below(total);
        for (index, &weight) in weights.iter().enumerate() {
            if left < u64::from(weight) {
                return Some(index);
            }
            left -= u64::from(weight);
        }
        unreachable!("the remainder is below the sum of the weights")
    }

    /// `len` bytes that no other call is likely to give.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.word().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// A checksum to compare contents, not to resist attacks (FNV-1a over 8-byte words).
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |word: u64| hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        mix(u64::from_le_bytes(*word));
    }
    for &byte in rest {
        mix(u64::from(byte));
    }
    mix(bytes.len() as u64);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_sequence_for_ever() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.word(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.word(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert_eq!(rng.weighted(&[0, 3, 0]), Some(1));
        }
        assert_eq!(rng.weighted(&[0, 0]), None);
    }
}
