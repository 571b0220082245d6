//! The orders in which a reader or a writer accesses a file's pages.
//!
//! Pure: which page an operation concerns follows from the order and the operation's number.

use serde::{Deserialize, Serialize};
use weir_drive::Random;

use super::zipf::Zipf;

/// The access of a workload's reader or writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// From the file's start to its end, and then again from the start.
    Sequential,
    /// Every page with the same probability.
    Random,
    /// Pages by Zipf's law.
    Zipf,
    /// Several clients that come and go, each sequential or by Zipf's law.
    Variable,
}

impl Access {
    /// Its letter in the name of a workload.
    pub fn letter(self) -> char {
        match self {
            Access::Sequential => 's',
            Access::Random => 'r',
            Access::Zipf => 'z',
            Access::Variable => 'v',
        }
    }
}

/// An access order of one file.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    way: Way,
    pages: u64,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Sequential,
    Random,
    Zipf(Zipf),
}

impl Order {
    /// The order for a file of `pages` pages. `access` must not be variable, which means several orders.
    pub fn new(access: Access, pages: u64, seed: u64) -> Order {
        let way = match access {
            Access::Sequential => Way::Sequential,
            Access::Random => Way::Random,
            Access::Zipf => Way::Zipf(Zipf::new(pages, seed)),
            Access::Variable => panic!("clients that come and go have an order each"),
        };
        Order { way, pages, seed }
    }

    /// The page of operation number `operation`.
    pub fn page(&self, operation: u64) -> u64 {
        match self.way {
            Way::Sequential => operation % self.pages,
            Way::Random => Random::of(self.seed, operation).below(self.pages),
            Way::Zipf(zipf) => zipf.page(self.seed, operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of accesses of each page, in descending order.
    fn counts(access: Access, operations: u64) -> Vec<u32> {
        let order = Order::new(access, 100, 3);
        let mut counts = vec![0; 100];
        (0..operations).for_each(|operation| counts[order.page(operation) as usize] += 1);
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }

    #[test]
    fn each_order_has_its_shape() {
        let sequential = Order::new(Access::Sequential, 100, 3);
        assert_eq!([99, 100, 201].map(|operation| sequential.page(operation)), [99, 0, 1]);
        assert!(counts(Access::Sequential, 1000).iter().all(|count| *count == 10));
        let random = counts(Access::Random, 100_000);
        assert!(random[0] < 1200 && random[99] > 800, "{random:?}");
        // Of 100 pages the first has 1/5.19 and the second half of that.
        let zipf = counts(Access::Zipf, 100_000);
        assert!((18_500..20_100).contains(&zipf[0]), "{zipf:?}");
        assert!((9_200..10_100).contains(&zipf[1]), "{zipf:?}");
    }

    #[test]
    fn orders_follow_from_the_seed() {
        for access in [Access::Random, Access::Zipf] {
            let pages = |seed| {
                let order = Order::new(access, 1000, seed);
                (0..100).map(|operation| order.page(operation)).collect::<Vec<_>>()
            };
            assert_eq!(pages(1), pages(1));
            assert_ne!(pages(1), pages(2));
        }
    }
}
