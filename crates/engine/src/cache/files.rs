//! The table of attached files, by slot and by identifier.

use crate::cache::file::File;
use crate::command::FileId;
use crate::place::FileIx;

/// Attached files, by slot.
#[derive(Default)]
pub(crate) struct Files {
    slots: Vec<Option<Box<File>>>,
    free: Vec<u32>,
    by_id: hashbrown::HashMap<FileId, FileIx, IdHash>,
}

/// File identifiers are inode numbers: dense, and not chosen by programs.
#[derive(Clone, Copy, Default)]
pub(crate) struct IdHash;

pub(crate) struct IdHasher(u64);

impl std::hash::BuildHasher for IdHash {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

impl Files {
    pub(crate) fn find(&self, id: FileId) -> Option<FileIx> {
        self.by_id.get(&id).copied()
    }

    /// Whether there still is a file that was there when the event began: files are added by events of their own.
    pub(crate) fn has(&self, ix: FileIx) -> bool {
        self.slots[ix.0 as usize].is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn add(&mut self, file: File) -> FileIx {
        let id = file.id;
        let ix = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(Box::new(file));
                FileIx(slot)
            }
            None => {
                self.slots.push(Some(Box::new(file)));
                FileIx(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 open files"))
            }
        };
        let before = self.by_id.insert(id, ix);
        assert!(before.is_none(), "a file is attached once");
        ix
    }

    pub(crate) fn remove(&mut self, ix: FileIx) {
        let file = self.slots[ix.0 as usize].take().expect("an attached file");
        assert!(file.pages.is_empty() && !file.is_unclean() && file.is_idle());
        self.by_id.remove(&file.id);
        self.free.push(ix.0);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileIx, &File)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, file)| Some((FileIx(slot as u32), file.as_deref()?)))
    }
}

impl std::ops::Index<FileIx> for Files {
    type Output = File;

    fn index(&self, ix: FileIx) -> &File {
        self.slots[ix.0 as usize].as_deref().expect("an attached file")
    }
}

impl std::ops::IndexMut<FileIx> for Files {
    fn index_mut(&mut self, ix: FileIx) -> &mut File {
        self.slots[ix.0 as usize].as_deref_mut().expect("an attached file")
    }
}
