//! A tree as a package manager such as npm makes it: packages of small files in directories of their own, written by
//! several threads, each looking first whether the package is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Doing, Error, Result};
use crate::threads::at_once;
use crate::workload::tree::clear;
use crate::workload::{Job, Outcome, small_content, verify_small};

const SEED: u64 = 0x6e70_6d00;
const FILE_BYTES_MAX: u64 = 4 << 10;
/// Files of a package, and in one of its directories.
const FILES_A_PACKAGE: u64 = 25;
const FILES_A_DIRECTORY: u64 = 8;
/// As many as libuv, and so npm, has for files.
const THREADS: usize = 4;

/// One run.
pub struct Packages {
    /// Files in all.
    pub files: u64,
}

impl Packages {
    fn packages(&self) -> u64 {
        self.files.div_ceil(FILES_A_PACKAGE)
    }

    fn install(&self, top: &Path, package: u64) -> Result<()> {
        let directory = package_place(top, package);
        // What is there would be another version.
        match fs::symlink_metadata(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).doing("look for", &directory),
            Ok(_) => return Err(Error::Different(format!("{} is there", directory.display()))),
        }
        for number in self.numbers(package) {
            let path = place(top, number);
            if (number % FILES_A_PACKAGE).is_multiple_of(FILES_A_DIRECTORY) {
                let parent = path.parent().unwrap_or(top);
                fs::create_dir_all(parent).doing("create", parent)?;
            }
            let content = small_content(SEED, number, FILE_BYTES_MAX);
            fs::write(&path, content).doing("write", &path)?;
        }
        Ok(())
    }

    fn numbers(&self, package: u64) -> std::ops::Range<u64> {
        let first = package * FILES_A_PACKAGE;
        first..(first + FILES_A_PACKAGE).min(self.files)
    }
}

fn package_place(top: &Path, package: u64) -> PathBuf {
    top.join("node_modules").join(format!("package-{package}"))
}

fn place(top: &Path, number: u64) -> PathBuf {
    let directory = package_place(top, number / FILES_A_PACKAGE);
    let in_package = number % FILES_A_PACKAGE;
    match in_package / FILES_A_DIRECTORY {
        0 => directory.join(format!("file-{in_package}.js")),
        1 => directory.join(format!("lib/file-{in_package}.js")),
        part => directory.join(format!("dist/part-{part}/file-{in_package}.js")),
    }
}

impl Job for Packages {
    fn file_bytes(&self) -> u64 {
        self.files * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        Outcome::of_job(|| {
            let modules = directory.join("node_modules");
            fs::create_dir(&modules).doing("create", &modules)?;
            let next = AtomicU64::new(0);
            let install = || -> Result<()> {
                loop {
                    let package = next.fetch_add(1, Ordering::Relaxed);
                    if package >= self.packages() {
                        return Ok(());
                    }
                    self.install(directory, package)?;
                }
            };
            at_once([install; THREADS]).map(drop)
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        (0..self.files).try_for_each(|number| {
            verify_small(&place(home, number), &small_content(SEED, number, FILE_BYTES_MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn all_packages_are_installed_once() {
        let home = tempfile::tempdir().unwrap();
        let packages = Packages { files: 260 };
        packages.prepare(home.path()).unwrap();
        let outcome = packages.run(home.path()).unwrap();
        packages.verify(home.path(), &outcome).unwrap();
        assert_eq!(fs::read_dir(home.path().join("node_modules")).unwrap().count(), 11);
        fs::write(place(home.path(), 259), "spoilt").unwrap();
        assert_different(packages.verify(home.path(), &outcome), "is not as written");
    }
}
