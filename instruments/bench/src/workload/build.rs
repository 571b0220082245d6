//! Unpacking and building a C project: many small files, written once or twice and read soon after,
//! most of them in order (AWOL, paper 002, section 5.5, with zstd in the Linux kernel's place).
//!
//! The archive is one that `scripts/setup bench` fetched. It is unpacked into several trees, and a
//! program is built in each. What one tree holds when all is done is known from a tree that was built
//! when the workload was prepared: by name and checksum, all files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::mount::{find_program, run};
use crate::workload::job::Job;
use crate::workload::outcome::Outcome;
use crate::workload::tree::{remove, sync};

/// Where in the archive the project is.
const PROJECT: &str = "sources/zstd-sys/zstd";
/// How it is built, and what from: a program that packs and unpacks.
const MAKEFILE: &str = include_str!("../../../../tests/e2e/support/pack.mk");
const PACK: &str = include_str!("../../../../tests/e2e/support/pack.c");
/// Without optimizing, lest the compiler be all that is measured.
const OPTIMIZE: &str = "OPTIMIZE=-O0";
/// What the largest two compilations at once take, bytes.
pub const PROCESS_BYTES: u64 = 192 << 20;
/// What a tree takes when it is built, bytes, about.
const TREE_BYTES: u64 = 24 << 20;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Build {
    /// The archive, on this machine's own disk.
    pub archive: PathBuf,
    /// Trees.
    pub trees: u32,
}

/// Fails, saying what to do, where there is no compiler or no archive.
pub fn require(archive: &Path) -> Result<()> {
    let remedy = "run 'scripts/setup bench'";
    for program in ["tar", "make", "cc", "ar"] {
        if find_program(program).is_none() {
            let what = format!("{program} is not installed");
            return Err(Error::Missing { what, remedy: remedy.into() });
        }
    }
    if archive.is_file() {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("the sources that are built, {}, are not there", archive.display()),
        remedy: format!("{remedy}, or give another place with '--sources'"),
    })
}

impl Build {
    fn clear(&self, home: &Path) -> Result<()> {
        (0..self.trees).try_for_each(|number| remove(&tree(home, number)))
    }
}

impl Job for Build {
    fn file_bytes(&self) -> u64 {
        (u64::from(self.trees) + 2) * TREE_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        require(&self.archive)?;
        self.clear(home)?;
        let archive = archive(home);
        fs::copy(&self.archive, &archive).doing("copy the sources to", &archive)?;
        let model = home.join("model");
        build(&archive, &model)?;
        let files = serde_json::to_vec(&checksums(&model)?)
            .map_err(|error| Error::answer("the JSON writer", error))?;
        fs::write(expected(home), files).doing("write", &expected(home))?;
        remove(&model)?;
        sync(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let archive = archive(directory);
        Outcome::of_job(|| {
            (0..self.trees).try_for_each(|number| build(&archive, &tree(directory, number)))
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let path = expected(home);
        let text = fs::read(&path).doing("read", &path)?;
        let expected: BTreeMap<String, u32> =
            serde_json::from_slice(&text).map_err(|error| Error::answer("the disk", error))?;
        for number in 0..self.trees {
            let tree = tree(home, number);
            let found = checksums(&tree)?;
            let name = expected
                .keys()
                .chain(found.keys())
                .find(|name| expected.get(*name) != found.get(*name));
            if let Some(name) = name {
                return Err(Error::Different(format!(
                    "{name} in {} is not what was built before",
                    tree.display()
                )));
            }
        }
        Ok(())
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.clear(home)?;
        sync(home)
    }
}

fn archive(directory: &Path) -> PathBuf {
    directory.join("sources.tar")
}

fn expected(directory: &Path) -> PathBuf {
    directory.join("expected.json")
}

fn tree(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("tree-{number}"))
}

/// Unpacks into a new directory, and builds there.
fn build(archive: &Path, directory: &Path) -> Result<()> {
    fs::create_dir(directory).doing("create", directory)?;
    run(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(directory))?;
    let project = directory.join(PROJECT);
    for (name, text) in [("Makefile", MAKEFILE), ("pack.c", PACK)] {
        let path = project.join(name);
        fs::write(&path, text).doing("write", &path)?;
    }
    run(Command::new("make").args(["-s", "-j2", OPTIMIZE, "pack", "-C"]).arg(&project)).map(drop)
}

/// Of every file below a directory, by its name from there.
fn checksums(directory: &Path) -> Result<BTreeMap<String, u32>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).doing("read", &path)? {
            let path = entry.doing("read", &path)?.path();
            let kind = path.symlink_metadata().doing("look at", &path)?.file_type();
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                let mut checksum = flate2::Crc::new();
                checksum.update(&fs::read(&path).doing("read", &path)?);
                let name = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
                found.insert(name, checksum.sum());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn a_file_that_differs_is_named() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let build = Build { archive: "none".into(), trees: 2 };
        let outcome = Outcome::new(&[], vec![2], 0);
        for number in 0..2 {
            fs::create_dir_all(tree(home, number).join("deep")).unwrap();
            fs::write(tree(home, number).join("deep/file"), "content").unwrap();
        }
        let files = checksums(&tree(home, 0)).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["deep/file"]);
        fs::write(expected(home), serde_json::to_vec(&files).unwrap()).unwrap();
        build.verify(home, &outcome).unwrap();
        fs::write(tree(home, 1).join("deep/file"), "contents").unwrap();
        assert_different(build.verify(home, &outcome), "deep/file in");
        fs::remove_file(tree(home, 1).join("deep/file")).unwrap();
        assert_different(build.verify(home, &outcome), "tree-1");
        assert!(require(Path::new("/nonexistent")).unwrap_err().to_string().contains("--sources"));
    }
}
