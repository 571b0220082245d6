//! Which slot each call of a thread goes to.

use super::call::{Calls, Where};
use crate::content::Random;
use crate::page::PAGE;
use crate::workload::slots::Slots;

/// Tells the order of pages from what is drawn in them.
const PAGES: u64 = 0x7061_6765;

/// The slots of a thread's calls, one after the other, without an end.
pub struct Order {
    way: Way,
    /// Threads that share a file take turns by slots: this one takes every `every`th, from `from` on.
    every: u64,
    from: u64,
}

enum Way {
    Sequential {
        next: u64,
        count: u64,
    },
    Random {
        random: Random,
        count: u64,
    },
    /// Units are pages, or slots where those are larger.
    Cold {
        units: Vec<u32>,
        next: usize,
        slots_in: u64,
        random: Random,
    },
}

impl Order {
    /// Of one of the threads that share a file.
    pub fn new(place: Where, slots: Slots, seed: u64, (every, from): (u64, u64)) -> Order {
        let count = slots.count() / every;
        let way = match place {
            Where::Sequential => Way::Sequential { next: 0, count },
            Where::Random => Way::Random { random: Random::new(seed), count },
            Where::Cold => {
                let slots_in = (PAGE / slots.io_bytes).max(1) / every;
                assert!(slots_in > 0, "a page has a slot for each thread");
                let units = (count / slots_in) as u32;
                Way::Cold {
                    units: Random::new(seed ^ PAGES).permutation(units),
                    next: 0,
                    slots_in,
                    random: Random::new(seed),
                }
            }
        };
        Order { way, every, from }
    }

    /// The next call's.
    #[inline]
    pub fn next_slot(&mut self) -> u64 {
        let own = match &mut self.way {
            Way::Sequential { next, count } => {
                let slot = *next;
                *next = if slot + 1 == *count { 0 } else { slot + 1 };
                slot
            }
            Way::Random { random, count } => random.below(*count),
            Way::Cold { units, next, slots_in, random } => {
                let unit = u64::from(units[*next]);
                *next = if *next + 1 == units.len() { 0 } else { *next + 1 };
                unit * *slots_in + random.below(*slots_in)
            }
        };
        own * self.every + self.from
    }

    /// Calls until one goes where another went, for [`Where::Cold`]; without an end for others.
    pub fn calls_max(&self) -> u64 {
        match &self.way {
            Way::Cold { units, .. } => units.len() as u64,
            _ => u64::MAX,
        }
    }
}

impl Calls {
    /// Of one of its threads.
    pub fn order(&self, thread: u32) -> Order {
        let sharing = if self.shared { u64::from(self.threads) } else { 1 };
        let lane = if self.shared { u64::from(thread) } else { 0 };
        Order::new(self.place, self.slots(), self.seed + u64::from(thread), (sharing, lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_pages_are_met_once_and_threads_apart() {
        let slots = Slots { io_bytes: 64, file_bytes: 100 * PAGE, random: true, seed: 1 };
        let mut order = Order::new(Where::Cold, slots, 1, (1, 0));
        let mut pages: Vec<u64> = (0..order.calls_max()).map(|_| order.next_slot() / 64).collect();
        pages.sort_unstable();
        assert_eq!(pages, (0..100).collect::<Vec<_>>());
        for place in [Where::Sequential, Where::Random] {
            let mut order = Order::new(place, slots, 1, (4, 3));
            assert!((0..9000).all(|_| {
                let slot = order.next_slot();
                slot % 4 == 3 && slot < slots.count()
            }));
        }
        let large = Slots { io_bytes: 2 * PAGE, ..slots };
        assert_eq!(Order::new(Where::Cold, large, 1, (1, 0)).calls_max(), 50);
    }
}
