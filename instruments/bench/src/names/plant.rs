//! Trees of small files that follow from a seed: directories of some files each, modes of several kinds, a symbolic
//! link here and there, and modification times of whole seconds, which every home can keep.
//!
//! Each link leads to the directory that it is in. sshfs sets times and owners of what a link leads to, so that must be
//! there whatever order programs go in, and must be what they set last. tar makes a link that leads upwards only at the
//! end, and on sshfs not always.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::error::{Doing, Result};
use crate::workload::small_content;

/// Files in a directory.
const FILES_A_DIRECTORY: u64 = 20;
/// Directories in one above them.
const DIRECTORIES_A_PART: u64 = 10;
/// How many files there are to one symbolic link.
const FILES_A_LINK: u64 = 50;
/// The first time that is set; each file is a minute younger than the one before it.
const FIRST_TIME: u64 = 1_600_000_000;
/// Times of directories.
const DIRECTORY_TIME: u64 = 1_650_000_000;

/// Makes a tree of `files` files of up to `bytes_max` bytes at `top`, which must not exist.
pub fn plant(top: &Path, seed: u64, files: u64, bytes_max: u64) -> Result<()> {
    let mut directories = vec![top.to_owned()];
    fs::create_dir(top).doing("create", top)?;
    for number in 0..files {
        let directory = place(top, number);
        if number.is_multiple_of(FILES_A_DIRECTORY) {
            for path in [directory.parent().unwrap_or(top), &directory] {
                if !path.exists() {
                    fs::create_dir(path).doing("create", path)?;
                    directories.push(path.to_owned());
                }
            }
        }
        let path = directory.join(format!("file-{number}"));
        fs::write(&path, small_content(seed, number, bytes_max)).doing("write", &path)?;
        fs::set_permissions(&path, Permissions::from_mode(mode(number))).doing("set", &path)?;
        set_time(&path, FIRST_TIME + number * 60)?;
        if number.is_multiple_of(FILES_A_LINK) {
            let link = directory.join(format!("link-{number}"));
            symlink(".", &link).doing("create", &link)?;
            set_time(&link, FIRST_TIME)?;
        }
    }
    // Last, and those further down first: what is made in a directory changes its time.
    directories.iter().rev().try_for_each(|path| set_time(path, DIRECTORY_TIME))
}

fn place(top: &Path, number: u64) -> PathBuf {
    let directory = number / FILES_A_DIRECTORY;
    top.join(format!("part-{}", directory / DIRECTORIES_A_PART)).join(format!("dir-{directory}"))
}

fn mode(number: u64) -> u32 {
    match number % 10 {
        0 => 0o755,
        1 => 0o600,
        2 => 0o444,
        _ => 0o644,
    }
}

fn set_time(path: &Path, seconds: u64) -> Result<()> {
    let time = Timespec { tv_sec: seconds as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).doing("set the times of", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::tree::{Rules, Times, compare};

    #[test]
    fn a_tree_follows_from_its_seed() {
        let directory = tempfile::tempdir().unwrap();
        let top = |name: &str| directory.path().join(name);
        plant(&top("one"), 1, 450, 500).unwrap();
        plant(&top("again"), 1, 450, 500).unwrap();
        plant(&top("other"), 2, 450, 500).unwrap();
        let rules = Rules { times: Times::All, free: &[] };
        // 450 files, 9 links, 23 directories in 3.
        assert_eq!(compare(&top("one"), &top("again"), rules).unwrap(), 450 + 9 + 23 + 3);
        compare(&top("one"), &top("other"), rules).unwrap_err();
    }
}
