//! Directory listings without open directories: the kernel asks for entries by node and position, and caches them.
//!
//! OPENDIR is answered with ENOSYS, after which the kernel does not open or close directories here any more. It then
//! caches every listing. It drops a listing itself when it changes the directory, and when it learns of a new
//! modification time. It can miss changes that are made directly at home. So every listing is dropped when it is as old
//! as names may be. If the directory had just been changed when it was listed, its listing is also dropped after two
//! seconds, because another change might leave the same modification time. In a mount without a timeout for names,
//! directories are opened, and no listing is cached.
//!
//! The kernel goes on filling its cache where a listing that was not finished has left it, also if the directory has changed
//! since. Once another listing has filled it up to the end, every listing that is under way continues in the cache, also one
//! that began after the change, and would miss what that made (`fuse_readdir_cached`, fs/fuse/readdir.c). So a listing that may be
//! cached in part is dropped before the directory is changed.
//!
//! Positions are home's own cookies. So telldir(3), seekdir(3) and rewinddir(3) work. A cursor ([`Cursor`]) is home's stream,
//! kept from one request to the next, also at the end, where the kernel asks once more. It remembers its last answer, of which
//! a program with a small buffer takes a part only, and everything that it has read ahead. A new one is opened for a position
//! that no cursor has.
//!
//! Where home does not have all names as they are, Weir puts the listing together ([`crate::ops`]'s `listings_behind`). Its
//! [`Window`] is kept for the same reader.
//!
//! Owns the cursors and windows, and what the kernel may have cached and when it is to drop that. Lock order: each lock is
//! taken alone.
//!
//! Invariants:
//! - a cursor continues only listings of the reader that it was made for, because the entries that it has read may be too
//!   old for another listing; of several cursors that have a position, the one used last continues;
//! - at most [`CURSORS_MAX`] are kept, each with one descriptor, with about [`ENTRIES_MAX`] entries, and none for longer than
//!   [`CURSOR_IDLE`] without use;
//! - at most [`WINDOWS_MAX`] windows are kept, not longer either, one of a reader and directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use weir_backend::home_names::Cursor;

use crate::attr::Attributes;
use crate::inode::NodeId;
use crate::listed_window::Window;

/// Most cursors kept. Each directory that is being read needs one; abandoned listings leave some too.
const CURSORS_MAX: usize = 64;
/// Most entries that all cursors together have in memory, unless one alone has more.
const ENTRIES_MAX: usize = 1 << 18;
/// Most windows kept.
const WINDOWS_MAX: usize = 4;
/// How long a cursor or window is kept without use.
const CURSOR_IDLE: Duration = Duration::from_secs(60);
/// Listings kept by the kernel before all are dropped early: a few megabytes here.
const KEPT_MAX: usize = 1 << 16;
/// Most readers of a directory of which it is known that they have begun. If these all come to the end, the kernel has all of
/// the listing, whatever others do.
const BEGUN_MAX: usize = 8;
/// If a directory was not changed for longer than this, every later change shows in its times, even on a file system
/// with a coarse clock.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// One entry of a directory, as a listing shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    /// Inode number.
    pub(crate) node: NodeId,
    /// Type.
    pub(crate) kind: FileType,
    /// Where the listing continues after it.
    pub(crate) next: u64,
    /// Name.
    pub(crate) name: &'a OsStr,
}

/// Takes the entries of a listing. Each method returns whether there was room for the entry; the listing ends when there
/// was none.
pub(crate) trait Listing {
    /// Whether attributes are wanted too, and entries counted as looked up.
    const WITH_ATTRIBUTES: bool;

    /// Takes an entry without its attributes: one whose attributes cannot be read, or any if attributes are not wanted.
    /// The kernel must not cache it.
    fn add(&mut self, entry: &Listed<'_>) -> bool;

    /// Takes an entry with its attributes, and a lookup of it unless its name is `.` or `..`.
    fn add_with(&mut self, entry: &Listed<'_>, attributes: &Attributes) -> bool;
}

/// The reader of a directory, as far as requests tell readers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    /// A thread, where the kernel opens no directories.
    Thread(u32),
    /// Whoever has this open description.
    Open(u64),
}

impl Reader {
    /// Who sent a request with this handle.
    pub(crate) fn of(handle: u64, thread: u32) -> Reader {
        match handle {
            0 => Reader::Thread(thread),
            handle => Reader::Open(handle),
        }
    }
}

/// Where a listing continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// The directory.
    pub(crate) directory: NodeId,
    /// The thread or open description that reads it.
    pub(crate) reader: Reader,
    /// Home's cookie of the last entry listed, or 0.
    pub(crate) cookie: u64,
}

/// A listing that the kernel keeps.
#[derive(Debug)]
struct Kept {
    /// When it is to be dropped.
    due: Instant,
    /// When entries were listed last.
    last: Instant,
    /// It was dropped while it was being listed, and is dropped again unless a new listing has begun.
    again: bool,
    /// Readers that have begun a listing and did not come to its end. While there are any, the kernel may have a part of it.
    begun: Vec<Reader>,
}

#[derive(Debug, Default)]
struct State {
    /// By directory and reader; those used last at the end.
    cursors: HashMap<(NodeId, Reader), Vec<(Cursor, Instant)>>,
    /// Of directories and readers; those used last at the end.
    windows: Vec<((NodeId, Reader), Arc<Window>, Instant)>,
    kept: HashMap<NodeId, Kept>,
    /// The reclaimer looks at them.
    watched: bool,
}

impl State {
    fn has_room_for(&self, cursor: &Cursor) -> bool {
        let kept = || self.cursors.values().flatten().map(|(cursor, _)| cursor);
        let entries = kept().map(Cursor::entries).sum::<usize>() + cursor.entries();
        kept().next().is_none() || kept().count() < CURSORS_MAX && entries <= ENTRIES_MAX
    }

    /// Closes the cursor that was used least recently.
    fn remove_oldest(&mut self) {
        let oldest =
            self.cursors.iter().min_by_key(|(_, here)| here.first().map(|(_, used)| *used));
        let Some(key) = oldest.map(|(key, _)| *key) else { return };
        let Some(here) = self.cursors.get_mut(&key) else { return };
        here.remove(0);
        if here.is_empty() {
            self.cursors.remove(&key);
        }
    }
}

/// The listings of one mount.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    state: Mutex<State>,
    stateless: AtomicBool,
    /// Directories opened.
    opened: AtomicU64,
}

impl Listings {
    /// Whether the kernel can do without opening directories.
    pub(crate) fn set_stateless(&self, stateless: bool) {
        self.stateless.store(stateless, Ordering::Relaxed);
    }

    /// Whether the kernel lists directories without opening them, once OPENDIR has been answered with ENOSYS.
    pub(crate) fn are_stateless(&self) -> bool {
        self.stateless.load(Ordering::Relaxed)
    }

    /// A directory is opened: its handle.
    pub(crate) fn open(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An open directory is closed.
    pub(crate) fn closed(&self, directory: NodeId, handle: u64) {
        if handle != 0 {
            let of = (directory, Reader::Open(handle));
            let mut state = self.state();
            state.cursors.remove(&of);
            state.windows.retain(|(key, ..)| *key != of);
        }
    }

    /// Removes and returns a cursor that goes on at `from`. A listing that begins gets none.
    pub(crate) fn take(&self, from: &Position) -> Option<Cursor> {
        if from.cookie == 0 {
            return None;
        }
        let mut state = self.state();
        let key = (from.directory, from.reader);
        let here = state.cursors.get_mut(&key)?;
        let goes_on = |(cursor, used): &mut (Cursor, Instant)| {
            used.elapsed() < CURSOR_IDLE && cursor.go_to(from.cookie)
        };
        let at = here.iter_mut().rposition(goes_on)?;
        let (taken, _) = here.remove(at);
        if here.is_empty() {
            state.cursors.remove(&key);
        }
        Some(taken)
    }

    /// Keeps a cursor for the request that continues where it was or is. Returns whether the reclaimer must start to call
    /// [`Listings::expire`].
    #[must_use]
    pub(crate) fn put(&self, of: &Position, cursor: Cursor) -> bool {
        let mut state = self.state();
        while !state.has_room_for(&cursor) {
            state.remove_oldest();
        }
        state.cursors.entry((of.directory, of.reader)).or_default().push((cursor, Instant::now()));
        !std::mem::replace(&mut state.watched, true)
    }

    /// The window of the listing that continues at `from`. A listing that begins has none.
    pub(crate) fn window(&self, from: &Position) -> Option<Arc<Window>> {
        let mut state = self.state();
        let of = (from.directory, from.reader);
        let found = state.windows.iter().position(|(key, ..)| *key == of)?;
        let (_, window, used) = state.windows.remove(found);
        if from.cookie == 0 || used.elapsed() >= CURSOR_IDLE {
            return None;
        }
        state.windows.push((of, Arc::clone(&window), Instant::now()));
        Some(window)
    }

    /// Keeps a window for the requests that continue this listing. Returns the same as [`Listings::put`].
    #[must_use]
    pub(crate) fn put_window(&self, of: &Position, window: Arc<Window>) -> bool {
        let mut state = self.state();
        let of = (of.directory, of.reader);
        state.windows.retain(|(key, ..)| *key != of);
        if state.windows.len() >= WINDOWS_MAX {
            state.windows.remove(0);
        }
        state.windows.push((of, window, Instant::now()));
        !std::mem::replace(&mut state.watched, true)
    }

    /// Notes that entries of a directory are about to be listed, and that the kernel may cache them for `time`. Returns the same
    /// as [`Listings::put`].
    #[must_use]
    pub(crate) fn keep(&self, from: &Position, time: Duration) -> bool {
        let now = Instant::now();
        let due = now + time;
        let begins = from.cookie == 0;
        let mut state = self.state();
        let new = || Kept { due, last: now, again: false, begun: Vec::new() };
        let kept = state.kept.entry(from.directory).or_insert_with(new);
        kept.last = now;
        if kept.again && begins {
            (kept.due, kept.again) = (due, false);
        }
        kept.due = kept.due.min(due);
        if begins && kept.begun.len() < BEGUN_MAX && !kept.begun.contains(&from.reader) {
            kept.begun.push(from.reader);
        }
        !std::mem::replace(&mut state.watched, true)
    }

    /// A reader is told that the directory ends here.
    pub(crate) fn ended(&self, at: &Position) {
        if let Some(kept) = self.state().kept.get_mut(&at.directory) {
            kept.begun.retain(|reader| *reader != at.reader);
        }
    }

    /// A directory is about to change. Says whether the kernel must drop its listing before, because it may have a part of it.
    pub(crate) fn will_change(&self, directory: NodeId) -> bool {
        let mut state = self.state();
        let kept = state.kept.get_mut(&directory);
        kept.is_some_and(|kept| !std::mem::take(&mut kept.begun).is_empty())
    }

    /// Closes idle cursors, forgets idle windows, and returns the directories whose listings the kernel must drop now: then
    /// [`Listings::dropped`] is to be called.
    pub(crate) fn due(&self, now: Instant) -> Vec<NodeId> {
        let mut state = self.state();
        let State { cursors, windows, kept, .. } = &mut *state;
        windows.retain(|(.., used)| now.saturating_duration_since(*used) < CURSOR_IDLE);
        cursors.retain(|_, here| {
            here.retain(|(_, used)| now.saturating_duration_since(*used) < CURSOR_IDLE);
            !here.is_empty()
        });
        let too_many = kept.len() > KEPT_MAX;
        let is_due = |kept: &Kept| too_many || kept.due <= now;
        kept.iter().filter(|(_, kept)| is_due(kept)).map(|(directory, _)| *directory).collect()
    }

    /// The kernel has dropped the listings that were due at `now`. False if no cursor, window or listing is left:
    /// [`Listings::keep`] or [`Listings::put`] says when to ask again.
    pub(crate) fn dropped(&self, now: Instant, dropped: &[NodeId]) -> bool {
        let mut state = self.state();
        let State { cursors, windows, kept, watched } = &mut *state;
        let too_many = kept.len() > KEPT_MAX;
        for directory in dropped {
            let Some(listing) = kept.get_mut(directory) else { continue };
            // The kernel may have been adding entries to its cache just then: the listing is dropped once more later.
            let since = now.checked_duration_since(listing.last);
            match since.is_none_or(|since| since < SETTLED && !too_many) {
                true => (listing.due, listing.again) = (now + SETTLED, true),
                false => drop(kept.remove(directory)),
            }
        }
        *watched = !cursors.is_empty() || !windows.is_empty() || !kept.is_empty();
        *watched
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::fd::OwnedFd;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn open(path: &std::path::Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    /// A directory with `files` files, removed in the end.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str, files: usize) -> Scratch {
            let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            for number in 0..files {
                std::fs::write(path.join(format!("file-{number}")), b"").unwrap();
            }
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn position(thread: u32, cookie: u64) -> Position {
        Position { directory: NodeId(7), reader: Reader::Thread(thread), cookie }
    }

    fn at(directory: u64, cookie: u64) -> Position {
        Position { directory: NodeId(directory), ..position(1, cookie) }
    }

    fn expire(listings: &Listings, now: Instant) -> (Vec<NodeId>, bool) {
        let due = listings.due(now);
        let is_watched = listings.dropped(now, &due);
        (due, is_watched)
    }

    #[test]
    fn a_listing_that_nobody_has_finished_is_dropped_before_a_change() {
        let listings = Listings::default();
        let begins = |reader| {
            let _ = listings.keep(&position(reader, 0), SECOND);
        };
        assert!(!listings.will_change(NodeId(7)), "nobody has listed it");
        begins(1);
        begins(2);
        assert!(!listings.will_change(NodeId(8)), "another directory");
        listings.ended(&position(2, 55));
        assert!(listings.will_change(NodeId(7)), "one has not come to the end");
        assert!(!listings.will_change(NodeId(7)), "the kernel has dropped it");
        let _ = listings.keep(&position(1, 55), SECOND);
        assert!(
            !listings.will_change(NodeId(7)),
            "what begins later than at the beginning is not cached"
        );
        begins(1);
        begins(1);
        listings.ended(&position(1, 55));
        assert!(!listings.will_change(NodeId(7)), "the kernel has all of it");
    }

    #[test]
    fn a_listing_that_begins_while_the_kernel_drops_an_old_one_is_known() {
        let listings = Listings::default();
        let _ = listings.keep(&position(1, 0), SECOND);
        let now = Instant::now() + 9 * SECOND;
        let due = listings.due(now);
        assert_eq!(due, [NodeId(7)]);
        assert!(listings.will_change(NodeId(7)), "it is not known to be dropped yet");
        listings.state().kept.get_mut(&NodeId(7)).unwrap().last = now + SECOND;
        assert!(listings.dropped(now, &due));
        assert_eq!(listings.due(now + SETTLED), [NodeId(7)]);
    }

    #[test]
    fn a_listing_continues_with_its_cursor_or_with_a_new_one() {
        let directory = Scratch::new("cursor", 100);
        let all = {
            let mut cursor = Cursor::new(open(&directory.0), 0).unwrap();
            let mut all = Vec::new();
            while let Some(entry) = cursor.peek().unwrap() {
                all.push(cursor.name(&entry).to_owned());
                cursor.advance();
            }
            all
        };
        assert_eq!(all.len(), 102);
        for kept in [true, false] {
            let listings = Listings::default();
            let (mut seen, mut cookie) = (Vec::new(), 0);
            loop {
                let from = position(1, cookie);
                let taken = listings.take(&from);
                assert_eq!(taken.is_some(), kept && cookie != 0);
                let mut cursor =
                    taken.unwrap_or_else(|| Cursor::new(open(&directory.0), cookie).unwrap());
                // A part of the answer is taken.
                for listed in 0..11 {
                    let Some(entry) = cursor.peek().unwrap() else { break };
                    if listed < 7 {
                        seen.push(cursor.name(&entry).to_owned());
                        cookie = entry.cookie;
                    }
                    cursor.advance();
                }
                if cookie == from.cookie {
                    break;
                }
                if kept {
                    let _ = listings.put(&from, cursor);
                }
            }
            assert_eq!(seen, all);
        }
    }

    #[test]
    fn a_cursor_is_of_one_thread_and_of_one_listing() {
        let directory = Scratch::new("threads", 1);
        let listings = Listings::default();
        let at = |cookie| Cursor::new(open(&directory.0), cookie).unwrap();
        assert!(listings.put(&position(3, 0), at(0)));
        assert!(!listings.put(&position(3, 0), at(0)), "it is watched already");
        let mut cursor = at(0);
        let cookie = cursor.peek().unwrap().unwrap().cookie;
        cursor.advance();
        let _ = listings.put(&position(1, 0), cursor);
        assert!(listings.take(&position(2, cookie)).is_none(), "another reader's");
        assert!(listings.take(&position(1, 0)).is_none(), "it begins again");
        let mut second = at(0);
        second.peek().unwrap();
        second.advance();
        let _ = listings.put(&position(1, 0), second);
        assert!(listings.take(&position(1, cookie)).is_some(), "two listings stand in one place");
        assert!(listings.take(&position(1, cookie)).is_some());
        assert!(listings.take(&position(1, cookie)).is_none());

        let of = |handle| Position { reader: Reader::of(handle, 1), ..position(1, cookie) };
        let handles = [listings.open(), listings.open()];
        for handle in handles {
            let _ = listings.put(&of(handle), at(cookie));
        }
        assert!(listings.take(&position(1, cookie)).is_none(), "it is of an open description");
        listings.closed(NodeId(7), handles[0]);
        assert!(listings.take(&of(handles[0])).is_none());
        assert!(listings.take(&of(handles[1])).is_some());
    }

    #[test]
    fn cursors_are_bounded_and_closed_when_idle() {
        let directory = Scratch::new("bounded", 0);
        let listings = Listings::default();
        for reader in 0..CURSORS_MAX as u32 + 10 {
            let cursor = Cursor::new(open(&directory.0), 0).unwrap();
            let _ = listings.put(&position(reader, 0), cursor);
        }
        assert_eq!(listings.state().cursors.values().map(Vec::len).sum::<usize>(), CURSORS_MAX);
        let (dropped, watched) = expire(&listings, Instant::now() + CURSOR_IDLE);
        assert!(dropped.is_empty() && !watched);
        assert!(listings.state().cursors.is_empty());
    }

    #[test]
    fn windows_are_of_one_reader_and_bounded_and_forgotten_when_idle() {
        let listings = Listings::default();
        let window = || Arc::new(Window::new(0, std::iter::empty()));
        assert!(listings.put_window(&position(1, 0), window()));
        assert!(listings.window(&position(1, 5)).is_some());
        assert!(listings.window(&position(2, 5)).is_none(), "another reader's");
        assert!(listings.window(&position(1, 5)).is_some());
        assert!(listings.window(&position(1, 0)).is_none(), "it begins again");
        assert!(listings.window(&position(1, 5)).is_none());
        for reader in 0..WINDOWS_MAX as u32 + 1 {
            let _ = listings.put_window(&position(reader, 0), window());
        }
        assert!(listings.window(&position(0, 5)).is_none() && listings.state().windows.len() == 4);
        assert_eq!(expire(&listings, Instant::now() + CURSOR_IDLE), (vec![], false));
        assert!(listings.state().windows.is_empty());
    }

    #[test]
    fn kept_listings_are_dropped_when_they_are_due() {
        let listings = Listings::default();
        assert!(listings.keep(&at(7, 0), 10 * SECOND));
        assert!(!listings.keep(&at(8, 0), SETTLED));
        let now = Instant::now();
        assert_eq!(expire(&listings, now), (vec![], true));
        assert_eq!(expire(&listings, now + 3 * SECOND), (vec![NodeId(8)], true));
        assert_eq!(expire(&listings, now + 11 * SECOND), (vec![NodeId(7)], false));
        assert!(listings.keep(&at(7, 0), SECOND), "it is to be watched again");
    }

    #[test]
    fn a_listing_dropped_while_it_is_sent_is_dropped_again() {
        let listings = Listings::default();
        let _ = listings.keep(&at(7, 0), Duration::ZERO);
        let now = Instant::now();
        assert_eq!(expire(&listings, now), (vec![NodeId(7)], true));
        assert_eq!(expire(&listings, now + SETTLED), (vec![NodeId(7)], false));
        // Unless a new one has begun, which takes its place.
        let _ = listings.keep(&at(7, 0), Duration::ZERO);
        let now = Instant::now();
        assert_eq!(expire(&listings, now), (vec![NodeId(7)], true));
        let _ = listings.keep(&at(7, 55), 10 * SECOND);
        let _ = listings.keep(&at(7, 0), 10 * SECOND);
        assert_eq!(expire(&listings, now + SETTLED), (vec![], true));
    }

    #[test]
    fn too_many_kept_listings_are_dropped_early() {
        let listings = Listings::default();
        for node in 0..=KEPT_MAX as u64 {
            let _ = listings.keep(&at(node, 0), 3600 * SECOND);
        }
        let (dropped, watched) = expire(&listings, Instant::now());
        let dropped: BTreeSet<u64> = dropped.iter().map(|node| node.0).collect();
        assert_eq!((dropped.len(), watched), (KEPT_MAX + 1, false));
    }
}
