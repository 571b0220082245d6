//! Content whose every byte follows from a seed, so that any page can be made, and checked, alone.
//!
//! It looks like an application's data file: fixed binary records (key, time, amount, flags), each
//! with some text. It is neither all zeros nor noise: about as compressible as such files are.

use crate::PAGE_BYTES;

/// A small, fast generator (splitmix64). Equal seeds give equal sequences for good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The sequence of `seed` for the thing numbered `index`, unrelated to its neighbours'.
    pub fn of(seed: u64, index: u64) -> Random {
        let mut random = Random(seed ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// One of the values, each as often as its weight says. Some weight must not be zero.
    pub fn pick<T: Copy>(&mut self, weighted: &[(u64, T)]) -> T {
        let mut draw = self.below(weighted.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in weighted {
            match draw.checked_sub(*weight) {
                Some(rest) => draw = rest,
                None => return *value,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// The numbers `0 .. count` in a random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.below(at as u64 + 1) as usize);
        }
        order
    }
}

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

    #[test]
    fn picks_by_weight() {
        let mut random = Random::new(1);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[random.pick(&[(1, 0), (0, 1), (3, 2)])] += 1;
        }
        assert!((2300..2700).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
    }

    #[test]
    fn a_permutation_has_every_number_once() {
        let mut order = Random::new(3).permutation(1000);
        assert!(order.windows(2).any(|pair| pair[0] > pair[1]));
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
    }
}
