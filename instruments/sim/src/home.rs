//! One file at home: its bytes, which of them are durable, and which have space.
//!
//! A sync that fails loses what was written since the last one that succeeded, as in the kernel: it stays readable, and later syncs
//! succeed without it. Sizes and holes are not lost.
//!
//! Owns content, allocation and durability of one file. Space is counted in pages, as a file
//! system counts blocks; a page that was never written or reserved, or that was punched, has none.

use std::rc::Rc;

use weir_engine::{HomeAttributes, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;

/// A file at home.
#[derive(Clone, Debug)]
pub struct Home {
    bytes: Vec<u8>,
    /// What the next sync that succeeds makes durable; as long as `bytes`.
    to_come: Vec<u8>,
    /// What is left of that if it fails instead; as long as `bytes`.
    left: Vec<u8>,
    durable: Rc<Vec<u8>>,
    /// Counts changes of `to_come`; the version that `durable` holds, and that of the last change that is not lost.
    version: u64,
    durable_version: u64,
    shape_version: u64,
    allocated: Vec<bool>,
    write_unit: u32,
    readable: bool,
}

impl Home {
    /// A durable file. Pages listed in `holes` must be zero and take no space.
    pub fn new(bytes: Vec<u8>, holes: &[u64], write_unit: u32, readable: bool) -> Home {
        let mut allocated = vec![true; bytes.len().div_ceil(PAGE_BYTES)];
        for &hole in holes {
            let from = hole as usize * PAGE_BYTES;
            let page = &bytes[from..bytes.len().min(from + PAGE_BYTES)];
            assert!(page.iter().all(|&byte| byte == 0), "a hole reads as zeros");
            allocated[hole as usize] = false;
        }
        Home {
            to_come: bytes.clone(),
            left: bytes.clone(),
            durable: Rc::new(bytes.clone()),
            bytes,
            version: 0,
            durable_version: 0,
            shape_version: 0,
            allocated,
            write_unit,
            readable,
        }
    }

    /// What the file system finds out when it attaches the file.
    pub fn attributes(&self) -> HomeAttributes {
        let pages = self.bytes.len().div_ceil(PAGE_BYTES);
        HomeAttributes {
            size: self.size(),
            dense: (0..pages as u64).all(|page| self.is_allocated(page)),
            write_unit: self.write_unit,
            readable: self.readable,
        }
    }

    /// Size, bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The content that survives a power cut.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Whether it may be read.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// The content and its version, to be made durable later.
    pub fn snapshot(&self) -> (u64, Rc<Vec<u8>>) {
        if self.durable_version == self.version {
            (self.version, Rc::clone(&self.durable))
        } else {
            (self.version, Rc::new(self.to_come.clone()))
        }
    }

    /// Makes a snapshot durable, unless something newer is.
    pub fn persist(&mut self, (version, bytes): (u64, Rc<Vec<u8>>)) {
        if version > self.durable_version {
            self.durable_version = version;
            self.left.clone_from(if version > self.shape_version { &bytes } else { &self.to_come });
            self.left.resize(self.bytes.len(), 0);
            self.durable = bytes;
        }
    }

    /// A sync failed.
    pub fn lose(&mut self) {
        self.version += 1;
        self.to_come.clone_from(&self.left);
    }

    /// Somebody else, who syncs it himself, writes.
    pub fn write_durably(&mut self, offset: u64, data: &[u8]) {
        self.write(offset, data, false);
        let (from, to) = (offset as usize, offset as usize + data.len());
        self.left[from..to].copy_from_slice(data);
        self.shape_version = self.version;
    }

    /// What was lost is to come after all.
    pub fn forget_losses(&mut self) {
        self.version += 1;
        self.to_come.clone_from(&self.bytes);
    }

    /// Writes, growing the file as needed. Space is the caller's business. What is `lost` can be read, and is not made durable.
    pub fn write(&mut self, offset: u64, data: &[u8], lost: bool) {
        self.version += 1;
        let (from, to) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < to {
            self.each(|bytes| bytes.resize(to, 0));
        }
        self.bytes[from..to].copy_from_slice(data);
        if !lost {
            self.to_come[from..to].copy_from_slice(data);
        }
    }

    fn each(&mut self, change: impl Fn(&mut Vec<u8>)) {
        [&mut self.bytes, &mut self.to_come, &mut self.left].into_iter().for_each(change);
    }

    fn reshape(&mut self, change: impl Fn(&mut Vec<u8>)) {
        self.version += 1;
        self.shape_version = self.version;
        self.each(change);
    }

    /// ftruncate(2). Gives back the number of pages that lost their space.
    pub fn truncate(&mut self, size: u64) -> u64 {
        self.reshape(|bytes| bytes.resize(size as usize, 0));
        let kept = (size.div_ceil(PAGE) as usize).min(self.allocated.len());
        let freed = self.allocated.drain(kept..).filter(|&had| had).count();
        freed as u64
    }

    /// fallocate(2), FALLOC_FL_PUNCH_HOLE. Gives back the number of pages that lost their space.
    pub fn punch(&mut self, from: u64, to: u64) -> u64 {
        let len = self.bytes.len();
        let range = (from as usize).min(len)..(to as usize).min(len);
        self.reshape(|bytes| bytes[range.clone()].fill(0));
        let mut freed = 0;
        for page in from.div_ceil(PAGE)..to / PAGE {
            if let Some(had) = self.allocated.get_mut(page as usize) {
                freed += u64::from(std::mem::take(had));
            }
        }
        freed
    }

    /// fallocate(2), FALLOC_FL_COLLAPSE_RANGE: whole pages go, and the rest moves down. Gives back
    /// the number of pages that lost their space.
    pub fn collapse(&mut self, from: u64, len: u64) -> u64 {
        assert!(from.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && from + len < self.size());
        self.reshape(|bytes| drop(bytes.drain(from as usize..(from + len) as usize)));
        let count = self.allocated.len();
        let (first, last) = ((from / PAGE) as usize, ((from + len) / PAGE) as usize);
        let freed = self.allocated.drain(first.min(count)..last.min(count)).filter(|&had| had);
        freed.count() as u64
    }

    /// Whether the page has space.
    pub fn is_allocated(&self, page: u64) -> bool {
        self.allocated.get(page as usize).copied().unwrap_or(false)
    }

    /// Gives the page space it does not have.
    pub fn allocate(&mut self, page: u64) {
        assert!(!self.is_allocated(page));
        let at = page as usize;
        if self.allocated.len() <= at {
            self.allocated.resize(at + 1, false);
        }
        self.allocated[at] = true;
    }

    /// Pages that have space.
    pub fn pages_allocated(&self) -> u64 {
        self.allocated.iter().filter(|&&had| had).count() as u64
    }
}

/// The pages that bytes `[from, to)` touch.
pub fn pages(from: u64, to: u64) -> std::ops::Range<u64> {
    if from < to { from / PAGE..to.div_ceil(PAGE) } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_synced_is_not_durable() {
        let mut home = Home::new(vec![1; 10], &[], 512, true);
        home.write(8, &[2; 4], false);
        assert_eq!(home.durable(), &[1; 10]);
        let old = home.snapshot();
        home.write(0, &[3], false);
        let new = home.snapshot();
        home.persist(new);
        home.persist(old);
        assert_eq!(home.durable(), home.bytes());
    }

    #[test]
    fn what_a_failed_sync_lost_is_not_durable_after_the_next() {
        let mut home = Home::new(vec![1; 4], &[], 512, true);
        home.write(0, &[2], false);
        let first = home.snapshot();
        home.persist(first);
        home.write(1, &[2], false);
        home.lose();
        home.write(2, &[2], true);
        home.write(3, &[2], false);
        let next = home.snapshot();
        home.persist(next);
        assert_eq!((home.bytes(), home.durable()), (&[2; 4][..], &[2, 1, 1, 2][..]));
    }

    #[test]
    fn punching_and_truncating_take_space_away() {
        let mut home = Home::new(vec![1; 3 * PAGE_BYTES], &[], 512, true);
        assert!(home.attributes().dense);
        assert_eq!(home.punch(100, 2 * PAGE), 1);
        assert!(!home.attributes().dense);
        assert_eq!(home.truncate(PAGE + 1), 1);
        assert_eq!(home.pages_allocated(), 1);
    }
}
