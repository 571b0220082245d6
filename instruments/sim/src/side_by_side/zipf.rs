//! Draws by Zipf's law over a file's pages: the page of rank k is drawn in proportion to 1/k.
//!
//! Ranks are drawn by rejection-inversion (W. Hörmann and G. Derflinger, 1996), so nothing is kept
//! but a few numbers, whatever the size of the file. Popular pages do not lie together: neighbours
//! in rank are a fixed stride apart, around the file.
//!
//! Invariant: the ranks and the pages correspond one to one.

use weir_drive::Random;

/// The law over the pages of one file.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    /// The integral of 1/x where the last rank's share of it ends.
    end: f64,
    stride: u64,
    shift: u64,
}

/// The integral of 1/x where the first rank's share of it begins: its share is 1.
const BEGIN: f64 = 0.405_465_108_108_164_4 - 1.0;

impl Zipf {
    /// Over `count` pages, less than 2^32 and not none; which page is popular follows from `seed`.
    pub fn new(count: u64, seed: u64) -> Zipf {
        assert!((1..1 << 32).contains(&count), "{count} pages");
        // The golden section keeps any number of neighbours in rank apart.
        let first = (count as f64 * 0.618_034) as u64;
        let stride = (first.max(1)..).find(|stride| divisor(*stride, count) == 1);
        Zipf {
            count,
            end: (count as f64 + 0.5).ln(),
            stride: stride.expect("some number has no divisor in common with another"),
            shift: Random::of(seed, 0x7a69_7066).below(count),
        }
    }

    /// The page of draw number `draw` of the sequence of `seed`.
    pub fn page(self, seed: u64, draw: u64) -> u64 {
        (self.rank(&mut Random::of(seed, draw)) * self.stride + self.shift) % self.count
    }

    /// A rank from 0 on.
    fn rank(self, random: &mut Random) -> u64 {
        loop {
            let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
            let area = self.end + unit * (BEGIN - self.end);
            let rank = area.exp().round().clamp(1.0, self.count as f64);
            if area >= (rank + 0.5).ln() - 1.0 / rank {
                return rank as u64 - 1;
            }
        }
    }
}

/// The greatest common one.
fn divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_the_law_says() {
        let (count, draws) = (1000, 400_000);
        let zipf = Zipf::new(count, 1);
        let mut seen = vec![0u32; count as usize];
        for draw in 0..draws {
            seen[zipf.rank(&mut Random::of(7, draw)) as usize] += 1;
        }
        let sum: f64 = (1..=count).map(|rank| 1.0 / rank as f64).sum();
        for rank in [1usize, 2, 3, 10, 50] {
            let wanted = draws as f64 / rank as f64 / sum;
            let found = f64::from(seen[rank - 1]);
            assert!((found - wanted).abs() < 5.0 * wanted.sqrt(), "{rank}: {found}, {wanted}");
        }
        let tail: u32 = seen[500..].iter().sum();
        let wanted = (501..=count).map(|rank| 1.0 / rank as f64).sum::<f64>() / sum * draws as f64;
        assert!((f64::from(tail) - wanted).abs() < 5.0 * wanted.sqrt(), "{tail}, {wanted}");
    }

    #[test]
    fn every_rank_has_a_page_of_its_own() {
        for count in [1, 2, 3, 10, 1600, 16_384] {
            let zipf = Zipf::new(count, 9);
            let mut seen = vec![false; count as usize];
            for rank in 0..count {
                let page = (rank * zipf.stride + zipf.shift) % count;
                assert!(!std::mem::replace(&mut seen[page as usize], true), "{count}");
            }
        }
    }

    #[test]
    fn a_draw_follows_from_its_number_and_popular_pages_from_the_seed() {
        let draws = |zipf: Zipf, seed| (0..200).map(move |draw| zipf.page(seed, draw));
        let zipf = Zipf::new(1 << 14, 1);
        assert!(draws(zipf, 5).eq(draws(Zipf::new(1 << 14, 1), 5)));
        assert!(draws(zipf, 5).ne(draws(zipf, 6)));
        assert!(draws(zipf, 5).ne(draws(Zipf::new(1 << 14, 2), 5)));
        assert!(draws(zipf, 5).all(|page| page < 1 << 14));
    }
}
