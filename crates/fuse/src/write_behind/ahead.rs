//! Which directories are listed before a program asks for them, where home is far away.
//!
//! A directory costs several round trips, and programs that walk a tree (rm, find, git) ask for one after the other. So the
//! directories that were found in one that a program used are listed ahead, those first that the program is likely to come
//! to first; the directories found in these follow.
//!
//! How many is decided by use, as for the pages of a file that are read ahead: at first [`WINDOW_MIN`] directories may be listed
//! that no program has used. Each that a program uses allows [`GROWTH`] more, up to [`WINDOW_MAX`]; one that nobody used while
//! what was read of it counts sets that back. It is not doubled: git looks into a few of the many directories of `.git`.
//!
//! Owns what is to be listed, is being listed, and was listed ahead and not used. Does not own what was found (the tree), nor
//! the threads ([`super::listers`]). Knows no clock.
//!
//! Invariants:
//! - at most [`WINDOW_MAX`] directories, with [`ENTRIES_MAX`] entries and those being listed, are known for no program's use;
//! - at most [`QUEUE_MAX`] wait;
//! - a directory waits, is being listed, or is listed and unused: one of the three.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use weir_names::NodeId;

/// Directories listed for no program's use: at first, and at most.
const WINDOW_MIN: usize = 16;
const WINDOW_MAX: usize = 256;

/// Directories more for each that is used.
const GROWTH: usize = 4;

/// Their entries at most, those excepted that are being listed.
const ENTRIES_MAX: usize = 16_384;

/// Directories that wait at most.
const QUEUE_MAX: usize = 4096;

/// A directory that was listed ahead and that no program has used.
#[derive(Debug)]
struct Unused {
    entries: usize,
    directories: Vec<NodeId>,
    listed: Instant,
}

/// The directories.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Those that are to be listed, the next one first, and when each was found.
    queue: VecDeque<(NodeId, Instant)>,
    queued: HashSet<NodeId>,
    under_way: HashSet<NodeId>,
    unused: HashMap<NodeId, Unused>,
    /// All of theirs.
    entries: usize,
    window: usize,
    /// How long what was found counts.
    age_max: Duration,
    /// When it was looked last for what does not count any more.
    expired: Option<Instant>,
}

impl Ahead {
    /// Of a home whose answers count for `age_max`.
    pub(super) fn new(age_max: Duration) -> Ahead {
        Ahead {
            queue: VecDeque::new(),
            queued: HashSet::new(),
            under_way: HashSet::new(),
            unused: HashMap::new(),
            entries: 0,
            window: WINDOW_MIN,
            age_max,
            expired: None,
        }
    }

    /// A program uses what is known of a directory, or is about to list it: it does not wait any more. What was found in it is
    /// next if it was listed ahead.
    pub(super) fn used(&mut self, directory: NodeId, now: Instant) {
        if let Some(unused) = self.unused.remove(&directory) {
            self.entries -= unused.entries;
            self.window = (self.window + GROWTH).min(WINDOW_MAX);
            self.next_are(&unused.directories, now);
        }
        self.unqueue(&[directory]);
    }

    /// A program listed a directory, or is about to use its names: these directories are listed next.
    pub(super) fn next_are(&mut self, directories: &[NodeId], now: Instant) {
        self.unqueue(directories);
        for &directory in directories.iter().take(QUEUE_MAX).rev() {
            if self.is_new(directory) {
                self.queue.push_front((directory, now));
                self.queued.insert(directory);
            }
        }
        for (left_out, _) in self.queue.drain(self.queue.len().min(QUEUE_MAX)..) {
            self.queued.remove(&left_out);
        }
    }

    /// The next directory to list, which is under way from now on.
    pub(super) fn begin(&mut self, now: Instant) -> Option<NodeId> {
        self.expire(now);
        while self.has_room() {
            let (directory, found) = self.queue.pop_front()?;
            self.queued.remove(&directory);
            if now.saturating_duration_since(found) < self.age_max {
                self.under_way.insert(directory);
                return Some(directory);
            }
        }
        None
    }

    /// Whether [`Ahead::begin`] would find one.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty() && self.has_room()
    }

    /// A directory is listed, with as many entries and these directories; `None` if it is not known now.
    pub(super) fn end(
        &mut self,
        directory: NodeId,
        found: Option<(usize, Vec<NodeId>)>,
        now: Instant,
    ) {
        self.under_way.remove(&directory);
        let Some((entries, directories)) = found else { return };
        for &directory in &directories {
            if self.queue.len() < QUEUE_MAX && self.is_new(directory) {
                self.queue.push_back((directory, now));
                self.queued.insert(directory);
            }
        }
        self.entries += entries;
        self.unused.insert(directory, Unused { entries, directories, listed: now });
    }

    /// Whether a directory is being listed.
    pub(super) fn is_under_way(&self, directory: NodeId) -> bool {
        self.under_way.contains(&directory)
    }

    /// Whether a directory was listed ahead, and no program has used it.
    pub(super) fn is_unused(&self, directory: NodeId) -> bool {
        self.unused.contains_key(&directory)
    }

    fn is_new(&self, directory: NodeId) -> bool {
        !self.queued.contains(&directory)
            && !self.under_way.contains(&directory)
            && !self.unused.contains_key(&directory)
    }

    fn has_room(&self) -> bool {
        self.under_way.len() + self.unused.len() < self.window && self.entries < ENTRIES_MAX
    }

    fn unqueue(&mut self, directories: &[NodeId]) {
        let mut found = false;
        for directory in directories {
            found |= self.queued.remove(directory);
        }
        if found {
            self.queue.retain(|(directory, _)| self.queued.contains(directory));
        }
    }

    /// Forgets what no program used while it counted.
    fn expire(&mut self, now: Instant) {
        let age = |since: Instant| now.saturating_duration_since(since);
        if self.expired.is_some_and(|expired| age(expired) < self.age_max / 8) {
            return;
        }
        self.expired = Some(now);
        let before = self.unused.len();
        self.unused.retain(|_, unused| age(unused.listed) < self.age_max);
        if self.unused.len() < before {
            self.window = WINDOW_MIN;
            self.entries = self.unused.values().map(|unused| unused.entries).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(10);

    fn nodes(numbers: std::ops::Range<u64>) -> Vec<NodeId> {
        numbers.map(NodeId).collect()
    }

    /// Lists all that may be listed, each with `entries` entries and no directory.
    fn list_all(ahead: &mut Ahead, entries: usize, now: Instant) -> Vec<NodeId> {
        let mut listed = Vec::new();
        while let Some(next) = ahead.begin(now) {
            ahead.end(next, Some((entries, Vec::new())), now);
            listed.push(next);
        }
        listed
    }

    #[test]
    fn each_that_is_used_lets_more_be_listed() {
        let (mut ahead, now) = (Ahead::new(AGE), Instant::now());
        ahead.next_are(&nodes(0..1000), now);
        assert_eq!(list_all(&mut ahead, 1, now), nodes(0..16));
        assert!(!ahead.has_work());
        ahead.used(NodeId(0), now);
        assert_eq!(list_all(&mut ahead, 1, now), nodes(16..21));
        for used in 1..20 {
            ahead.used(NodeId(used), now);
        }
        assert_eq!(list_all(&mut ahead, 1, now), nodes(21..20 + 16 + 20 * 4));
        for used in 20..100 {
            ahead.used(NodeId(used), now);
        }
        assert_eq!(list_all(&mut ahead, 1, now).last(), Some(&NodeId(99 + WINDOW_MAX as u64)));
        ahead.used(NodeId(900), now);
        assert!(!ahead.queue.iter().any(|(queued, _)| *queued == NodeId(900)), "it is listed");
    }

    #[test]
    fn what_was_found_in_a_directory_that_is_used_is_next() {
        let (mut ahead, now) = (Ahead::new(AGE), Instant::now());
        ahead.next_are(&nodes(0..3), now);
        assert_eq!(ahead.begin(now), Some(NodeId(0)));
        assert!(ahead.is_under_way(NodeId(0)));
        ahead.end(NodeId(0), Some((2, nodes(10..12))), now);
        // Those that a program has found are before those that were found ahead of it.
        assert_eq!(ahead.begin(now), Some(NodeId(1)));
        ahead.used(NodeId(0), now);
        assert_eq!(ahead.begin(now), Some(NodeId(10)));
        ahead.end(NodeId(10), None, now);
        ahead.end(NodeId(1), Some((0, Vec::new())), now);
        assert_eq!(list_all(&mut ahead, 0, now), [NodeId(11), NodeId(2)]);
    }

    #[test]
    fn entries_are_bounded_and_so_is_what_waits() {
        let (mut ahead, now) = (Ahead::new(AGE), Instant::now());
        ahead.next_are(&nodes(0..2 * QUEUE_MAX as u64), now);
        assert_eq!((ahead.queue.len(), ahead.queued.len()), (QUEUE_MAX, QUEUE_MAX));
        assert_eq!(list_all(&mut ahead, ENTRIES_MAX / 2, now).len(), 2);
        ahead.used(NodeId(0), now);
        assert_eq!(list_all(&mut ahead, ENTRIES_MAX / 2, now).len(), 1);
        ahead.next_are(&nodes(QUEUE_MAX as u64..3 * QUEUE_MAX as u64), now);
        assert_eq!((ahead.queue.len(), ahead.queued.len()), (QUEUE_MAX, QUEUE_MAX));
    }

    #[test]
    fn what_nobody_uses_is_forgotten_and_less_is_listed() {
        let (mut ahead, now) = (Ahead::new(AGE), Instant::now());
        ahead.next_are(&nodes(0..10), now);
        list_all(&mut ahead, 1, now);
        ahead.used(NodeId(0), now);
        assert_eq!((ahead.window, ahead.entries), (20, 9));
        ahead.next_are(&nodes(20..21), now);
        let later = now + AGE;
        // What was found so long ago may not be there any more.
        assert_eq!(ahead.begin(later), None);
        assert_eq!((ahead.window, ahead.entries, ahead.unused.len()), (WINDOW_MIN, 0, 0));
    }
}
