//! Listings of directories in which names may be that home does not have ([`crate::write_behind`]).
//!
//! A listing is home's, by home's positions, or Weir's, by positions that follow from the names
//! ([`weir_names::tree::Positions`]). The position tells which, so that a listing goes on as it began whatever becomes known
//! or is forgotten meanwhile: a name that exists during the whole listing is seen exactly once.
//!
//! Weir lists a directory that the tree knows whole. If the tree forgets some of it meanwhile, or home refuses something that
//! the directory or its names wait for, Weir lists what home has and the tree does not know otherwise, with what the tree has
//! besides.
//!
//! Home lists a directory of which it has all names when the listing begins. Later it may lack some for a moment, or have them
//! at other positions: a directory that replaces another is renamed after that was removed, and names that are exchanged in
//! a circle are parked. So as much as possible is read at once: see [`FileSystem::read_ahead`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::FileType;
use weir_backend::home_names::Cursor;
use weir_names::tree::{Kind, Positions};

use crate::attr::Attributes;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::given::Thread;
use crate::inode::{Inode, NodeId};
use crate::listed_window::{Named, Window};
use crate::listings::{Listed, Listing, Position};
use crate::ops::directories::{SLOW, SLOW_MAX, kind_of};
use crate::write_behind::{Known, WriteBehind};

/// Positions of Weir's listings have this in their upper half. Home gives no such position to an entry: ext4 uses 63 bits,
/// but this upper half only for the end of a directory.
const OURS: u64 = 0x7fff_ffff;

/// Positions after `.` and `..`, the first ones; those of names follow.
const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

/// Entries taken from the tree for one answer, which has room for fewer.
const LISTED_MAX: usize = 4096;

/// Entries that are read at once where home lists.
const READ_AHEAD: usize = 1 << 16;

/// An answer has room for fewer entries.
const ANSWER_MAX: usize = 1 << 15;

impl From<Known> for Named {
    fn from(known: Known) -> Named {
        let Known { position, name, node, kind } = known;
        Named { position, name, node, kind: file_type(&kind) }
    }
}

/// The position in a listing of Weir's; `None` if it is home's.
fn ours(cookie: u64) -> Option<u64> {
    (cookie >> 32 == OURS).then_some(cookie & u64::from(u32::MAX))
}

fn cookie(position: u64) -> u64 {
    debug_assert!(position >> 32 == 0, "positions are below 2^32");
    OURS << 32 | position
}

impl FileSystem {
    /// Lists entries if the listing is Weir's; says whether it is. If it is home's and begins, home has all names.
    pub(crate) fn list_behind<L: Listing>(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        from: &Position,
        listing: &mut L,
    ) -> Result<bool, Errno> {
        let Some(behind) = &self.write_behind else { return Ok(false) };
        if from.cookie == 0 {
            // What an earlier listing had is too old for this one.
            drop(self.listings.window(from));
            behind.listers.used(directory.node());
            if !behind.knows_all(directory.node()) {
                self.learn_names(directory);
            }
            self.expect_listings_in(behind, directory.node());
        }
        let position = match ours(from.cookie) {
            Some(position) => position,
            None if from.cookie != 0 => return Ok(false),
            None if behind.knows_all(directory.node()) => 0,
            None => {
                let node = directory.node();
                let waited =
                    self.names_at_home(node).and_then(|()| self.wait_until_at_home(directory));
                match waited {
                    Ok(()) => return Ok(false),
                    Err(refused) => {
                        tracing::debug!("a directory is listed as it is known: {refused:?}")
                    }
                }
                0
            }
        };
        self.list_ours(behind, directory, from, position, listing)?;
        Ok(true)
    }

    /// Reads names at one moment, if a listing of home needs more. Home has all names then: no program changes any while it
    /// lists them, since the kernel holds the directory's lock during a request.
    pub(crate) fn read_ahead(
        self: &Arc<Self>,
        directory: &Inode,
        cursor: &mut Cursor,
    ) -> Result<(), Errno> {
        if self.write_behind.is_none() || cursor.has_read_ahead(ANSWER_MAX) {
            return Ok(());
        }
        if let Err(refused) = self.names_at_home(directory.node()) {
            tracing::debug!("a directory is listed as home has it: {refused:?}");
        }
        Ok(cursor.read_ahead(READ_AHEAD)?)
    }

    fn list_ours<L: Listing>(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Arc<Inode>,
        of: &Position,
        from: u64,
        listing: &mut L,
    ) -> Result<(), Errno> {
        let node = directory.node();
        let parent = behind.parent_of(node).unwrap_or(NodeId::ROOT);
        for (next, name, dot) in [(AFTER_DOT, ".", node), (AFTER_DOTS, "..", parent)] {
            let (name, kind) = (OsStr::new(name), FileType::Directory);
            let listed = Listed { node: dot, kind, next: cookie(next), name };
            let is_full = from < next
                && match L::WITH_ATTRIBUTES {
                    true => !listing.add_with(&listed, &Attributes::unknown(dot, kind)),
                    false => !listing.add(&listed),
                };
            if is_full {
                return Ok(());
            }
        }
        let mut slow = 0;
        let mut position = from.saturating_sub(AFTER_DOTS) + 1;
        let known = behind.names_if_complete(node, position, LISTED_MAX);
        if let Some(known) = known {
            for entry in known.into_iter().map(Named::from) {
                if !self.list_named(&entry, true, &mut slow, listing) {
                    break;
                }
            }
            return Ok(());
        }
        let mut kept = self.listings.window(of);
        loop {
            let window = match kept.take().filter(|window| window.from(position).is_some()) {
                Some(window) => window,
                None => self.window_from(behind, directory, of, position)?,
            };
            let names = window.from(position).expect("it has the names from there on");
            for entry in names {
                let Some((entry, is_known)) = as_it_is(behind, node, entry) else { continue };
                if !self.list_named(&entry, is_known, &mut slow, listing) {
                    return Ok(());
                }
            }
            match window.end() {
                Some(end) => position = end,
                None => return Ok(()),
            }
        }
    }

    /// Lists one entry, with attributes if it `is_known` to be there now. Says whether the listing had room for it.
    fn list_named<L: Listing>(
        self: &Arc<Self>,
        entry: &Named,
        is_known: bool,
        slow: &mut u32,
        listing: &mut L,
    ) -> bool {
        let (node, name) = (entry.node, OsStr::from_bytes(&entry.name));
        let next = cookie(AFTER_DOTS + entry.position);
        let listed = Listed { node, kind: entry.kind, next, name };
        // Others have to be found at home: where home is far away, so that they are not looked up one by one.
        let finds = self.options.is_elsewhere && *slow < SLOW_MAX;
        let is_held = || finds || self.inodes.get(node).is_some();
        if !L::WITH_ATTRIBUTES || !is_known || !is_held() {
            return listing.add(&listed);
        }
        let began = Instant::now();
        let held = self.inodes.get(node).or_else(|| self.inode(node).ok());
        let held = held.filter(|_| self.inodes.count_again(node));
        *slow += u32::from(began.elapsed() > SLOW);
        let Some(inode) = held else {
            return listing.add(&listed);
        };
        self.give_attributes(node, inode.kind(), Thread::ANY);
        let Ok(attributes) = self.attributes(&inode) else {
            self.uncount(node);
            return listing.add(&listed);
        };
        let added = listing.add_with(&listed, &attributes);
        if !added {
            self.uncount(node);
        }
        added
    }

    /// The names of a directory from a position on, as many as a window has: what home has and what the tree knows. They are
    /// kept for the requests that follow.
    fn window_from(
        self: &Arc<Self>,
        behind: &WriteBehind,
        directory: &Arc<Inode>,
        of: &Position,
        position: u64,
    ) -> Result<Arc<Window>, Errno> {
        let node = directory.node();
        let before: Vec<Known> = behind.lock().list(node, 0).collect();
        // What the tree has here is forgotten only after home has it. So a name is known before home is asked, or home has
        // it, or it came since.
        let at_home = self.names_that_home_has(directory)?;
        let mut names = BTreeMap::new();
        names.extend(before.into_iter().map(|known| (known.name.clone(), Named::from(known))));
        names.extend(at_home.into_iter().map(|named| (named.name.clone(), named)));
        {
            let state = behind.lock();
            names.retain(|name, _| state.tree.look_up(node, name) != Some(None));
            names.extend(state.list(node, 0).map(|known| (known.name.clone(), Named::from(known))));
        }
        let mut positions = Positions::default();
        names.keys().for_each(|name| {
            positions.add(name);
        });
        let listed = positions.from(position).filter_map(|(position, name)| {
            let named = names.remove(name)?;
            Some(Named { position, ..named })
        });
        let window = Arc::new(Window::new(position, listed));
        if self.listings.put_window(of, Arc::clone(&window)) {
            self.reclaimer.watch_listings();
        }
        Ok(window)
    }

    /// All names that home has in a directory, but not its own, and in no order.
    fn names_that_home_has(self: &Arc<Self>, directory: &Arc<Inode>) -> Result<Vec<Named>, Errno> {
        let mut names = Vec::new();
        if !directory.is_at_home() {
            return Ok(names);
        }
        let mut cursor = self.home.list(directory.path_fd()?, directory.device(), 0)?;
        while let Some(entry) = cursor.peek()? {
            let name = cursor.name(&entry);
            let is_dot = matches!(name.as_bytes(), b"." | b"..");
            if !is_dot && !self.is_reserved(directory.node(), name) {
                let kind = match entry.kind {
                    FileType::Unknown => kind_of(directory, name),
                    kind => kind,
                };
                let node = self.inodes.number(directory.device(), entry.inode);
                names.push(Named { position: 0, name: name.as_bytes().into(), node, kind });
            }
            cursor.advance();
        }
        Ok(names)
    }
}

/// What the tree knows by now of a name that was there when its window was put together, and whether it knows it. `None` if the
/// name is not there any more.
fn as_it_is(behind: &WriteBehind, directory: NodeId, named: &Named) -> Option<(Named, bool)> {
    let state = behind.lock();
    let Some(node) = state.tree.look_up(directory, &named.name) else {
        // The kernel may know better whether it is there, so that it must not learn of it from here.
        return Some((named.clone(), false));
    };
    let kind = file_type(state.tree.kind(node?)?);
    Some((Named { node: node?, kind, ..named.clone() }, true))
}

fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::Special { file_type, .. } => FileType::from_raw_mode(*file_type),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_tell_whose_listing_it_is() {
        for position in [0, 1, 77, u64::from(u32::MAX)] {
            assert_eq!(ours(cookie(position)), Some(position));
            assert!(cookie(position).cast_signed() > 0, "programs seek to it");
        }
        // ext4's last hash, XFS's and btrfs's ends.
        for homes in [0, 1, 0x7fff_fffe_ffff_ffff, 0x7fff_ffff, 0xffff_ffff, i32::MAX as u64] {
            assert_eq!(ours(homes), None, "{homes:x}");
        }
    }
}
