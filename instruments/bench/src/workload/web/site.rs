//! What the files of a web server hold: pages of some files each, and the records that are posted.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Result};
use crate::workload::small_file::small_content;

const SEED: u64 = 0x7369_7465;
/// Pages.
pub const PAGES: u64 = 100;
/// Files that a page is made of.
pub const FILES_A_PAGE: u64 = 4;
/// The largest file, bytes.
pub const FILE_BYTES_MAX: u64 = 16 << 10;
/// What a record takes, bytes.
pub const RECORD_BYTES: u64 = 200;

/// Makes the files.
pub fn write_files(directory: &Path) -> Result<()> {
    for number in 0..PAGES * FILES_A_PAGE {
        let path = file(directory, number);
        fs::write(&path, content(number)).doing("write", &path)?;
    }
    let path = records(directory);
    fs::write(&path, "").doing("write", &path)
}

/// The files of a page.
pub fn files(directory: &Path, page: u64) -> impl Iterator<Item = PathBuf> {
    numbers(page).map(move |number| file(directory, number))
}

/// What a page must be.
pub fn page(page: u64) -> Vec<u8> {
    numbers(page).flat_map(content).collect()
}

/// Where records are.
pub fn records(directory: &Path) -> PathBuf {
    directory.join("records")
}

/// A record: what one client posted with one request.
pub fn record(client: u64, number: u64) -> String {
    let text = format!("{client} {number} ");
    format!("{text:.<width$}\n", width = RECORD_BYTES as usize - 1)
}

fn numbers(page: u64) -> std::ops::Range<u64> {
    page * FILES_A_PAGE..(page + 1) * FILES_A_PAGE
}

fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("file-{number}"))
}

fn content(number: u64) -> Vec<u8> {
    small_content(SEED, number, FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_lines_of_one_length() {
        for (client, number) in [(0, 0), (7, 123_456)] {
            let record = record(client, number);
            assert_eq!(record.len() as u64, RECORD_BYTES);
            assert!(record.starts_with(&format!("{client} {number} .")) && record.ends_with(".\n"));
        }
    }
}
