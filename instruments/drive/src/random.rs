//! The source of chance in models and loads: a small generator with a fixed algorithm, so that what is drawn
//! is the same on every machine and in every version.

/// A small, fast generator (splitmix64, Steele, Lea and Flood 2014). Equal seeds give equal sequences in every version.
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
    #[expect(clippy::should_implement_trait, reason = "a sequence without an end is no iterator")]
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

#[cfg(test)]
mod tests {
    use super::*;

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
