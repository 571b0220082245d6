//! Where each file is on the drive, and the content of its pages: a number in the first eight bytes.
//!
//! The numbers identify each page and each write of a page. So every lost or mixed-up write is found, though no
//! other content is kept.

use weir_engine::{Extent, FileId, HomeAttributes, PAGE_BYTES};

const PAGE: u64 = PAGE_BYTES as u64;

/// A file: one contiguous piece of the drive.
struct File {
    first_byte: u64,
    /// The numbers of each page: at home, and as programs see it.
    home: Vec<u64>,
    seen: Vec<u64>,
}

/// All files, known by their place in the list.
pub struct Files {
    files: Vec<File>,
    bytes: u64,
    writes: u64,
}

impl Files {
    /// One file behind the other, each of `pages` pages.
    pub fn new(pages: impl Iterator<Item = u64>) -> Files {
        let mut bytes = 0;
        let file = |pages: u64| {
            let first_byte = bytes;
            bytes += pages * PAGE;
            // A page that was never written has its place on the drive as its number.
            let home: Vec<u64> = (0..pages).map(|page| first_byte + page * PAGE).collect();
            File { first_byte, seen: home.clone(), home }
        };
        let files = pages.map(file).collect();
        Files { files, bytes, writes: 0 }
    }

    /// The files' identifiers.
    pub fn ids(&self) -> impl Iterator<Item = FileId> {
        (0..self.files.len() as u64).map(FileId)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The attributes of a file for the engine.
    pub fn attributes(&self, file: FileId) -> HomeAttributes {
        let size = self.file(file).home.len() as u64 * PAGE;
        HomeAttributes { size, dense: true, write_unit: 512, readable: true }
    }

    /// The file's extent.
    pub fn extent(&self, file: FileId) -> Extent {
        let of_file = self.file(file);
        let len = of_file.home.len() as u64 * PAGE;
        Extent { offset: 0, len, place: of_file.first_byte }
    }

    /// Where a byte of a file is on the drive.
    pub fn place(&self, file: FileId, offset: u64) -> u64 {
        self.file(file).first_byte + offset
    }

    /// The numbers that a fetch from `offset` on finds, up to the file's end.
    pub fn fetched(&self, file: FileId, offset: u64, pages: usize) -> &[u64] {
        let home = &self.file(file).home;
        let first = home.len().min((offset / PAGE) as usize);
        &home[first..home.len().min(first + pages)]
    }

    /// The number of a program's next write to a page. Reads must find it from now on.
    pub fn write(&mut self, file: FileId, page: u64) -> u64 {
        self.writes += 1;
        // Odd: never the place of a page.
        let number = 2 * self.writes + 1;
        self.file_mut(file).seen[page as usize] = number;
        number
    }

    /// The number that a program that reads a page must find.
    pub fn seen(&self, file: FileId, page: u64) -> u64 {
        self.file(file).seen[page as usize]
    }

    /// A page went home.
    pub fn came_home(&mut self, file: FileId, page: u64, number: u64) {
        self.file_mut(file).home[page as usize] = number;
    }

    /// Pages whose last write is not home.
    pub fn pages_not_home(&self) -> usize {
        let differ = |file: &File| file.home.iter().zip(&file.seen).filter(|(a, b)| a != b).count();
        self.files.iter().map(differ).sum()
    }

    fn file(&self, file: FileId) -> &File {
        &self.files[file.0 as usize]
    }

    fn file_mut(&mut self, file: FileId) -> &mut File {
        &mut self.files[file.0 as usize]
    }
}

/// The number in a page.
pub fn number_in(page: &[u8]) -> u64 {
    let (first, _) = page.split_first_chunk().expect("a page has more than eight bytes");
    u64::from_le_bytes(*first)
}

/// Puts a number into a page.
pub fn put_number(page: &mut [u8], number: u64) {
    page[..8].copy_from_slice(&number.to_le_bytes());
}
