//! Numbers for what the kernel holds open: open descriptions of files, and directory streams.
//!
//! Each read and write looks up a number, on all threads at once. So there are several parts, each with its own lock,
//! and no hashing.
//!
//! Invariant: a number is used again only after it was removed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

const PART_BITS: u32 = 4;
const PARTS: usize = 1 << PART_BITS;

#[derive(Debug)]
struct Slots<T> {
    used: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

/// A set of open things and their numbers.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    parts: [RwLock<Slots<T>>; PARTS],
    next_part: AtomicUsize,
}

impl<T> Handles<T> {
    /// An empty set.
    pub(crate) fn new() -> Handles<T> {
        Handles {
            parts: std::array::from_fn(|_| {
                RwLock::new(Slots { used: Vec::new(), free: Vec::new() })
            }),
            next_part: AtomicUsize::new(0),
        }
    }

    /// Gives `value` a number.
    pub(crate) fn insert(&self, value: Arc<T>) -> u64 {
        let part = self.next_part.fetch_add(1, Ordering::Relaxed) % PARTS;
        let mut slots = self.parts[part].write().unwrap_or_else(PoisonError::into_inner);
        let index = match slots.free.pop() {
            Some(index) => {
                slots.used[index] = Some(value);
                index
            }
            None => {
                slots.used.push(Some(value));
                slots.used.len() - 1
            }
        };
        (index as u64) << PART_BITS | part as u64
    }

    /// The value with this number.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        let (part, index) = locate(handle);
        let slots = self.parts[part].read().unwrap_or_else(PoisonError::into_inner);
        slots.used.get(index)?.clone()
    }

    /// Removes and returns the value with this number.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let (part, index) = locate(handle);
        let mut slots = self.parts[part].write().unwrap_or_else(PoisonError::into_inner);
        let value = slots.used.get_mut(index)?.take()?;
        slots.free.push(index);
        Some(value)
    }
}

fn locate(handle: u64) -> (usize, usize) {
    ((handle % PARTS as u64) as usize, (handle >> PART_BITS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_value_until_removed() {
        let handles = Handles::new();
        let numbers: Vec<u64> = (0..100).map(|value| handles.insert(Arc::new(value))).collect();
        for (value, &number) in numbers.iter().enumerate() {
            assert_eq!(handles.get(number).as_deref(), Some(&value));
        }
        assert_eq!(handles.remove(numbers[7]).as_deref(), Some(&7));
        assert_eq!(handles.get(numbers[7]), None);
        assert_eq!(handles.remove(numbers[7]), None);
        assert_eq!(handles.get(u64::MAX), None);
        let reused: Vec<u64> = (0..PARTS).map(|value| handles.insert(Arc::new(value))).collect();
        assert!(reused.contains(&numbers[7]));
    }
}
