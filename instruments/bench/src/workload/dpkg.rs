//! dpkg unpacking packages below another root, one after the other, with its syncs as they are by default.
//!
//! The packages are made once, by dpkg-deb, of small files that follow from a seed. They have no scripts, so nothing is run below the root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::workload::job::Job;
use crate::workload::outcome::Outcome;
use crate::workload::small_file::{small_content, verify_small};
use crate::workload::tree::{remove, sync};

const SEED: u64 = 0x6470_6b67;
const FILE_BYTES_MAX: u64 = 8 << 10;
/// A package has 30 files and up to this many more.
const MORE_FILES: u64 = 31;
const FILES_A_DIRECTORY: u64 = 12;
/// What dpkg says of a package that is unpacked and not configured.
const UNPACKED: &str = "install ok unpacked";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dpkg {
    /// Packages.
    pub packages: u64,
}

/// Fails, saying what to do, where there is no dpkg.
pub fn require() -> Result<()> {
    ["dpkg", "dpkg-deb", "dpkg-query"]
        .into_iter()
        .try_for_each(|program| require_program(program, "dpkg"))
}

impl Dpkg {
    /// Builds one package.
    fn build(&self, home: &Path, package: u64) -> Result<()> {
        let tree = place(home).join("tree");
        remove(&tree)?;
        for number in 0..files_of(package) {
            let path = file(&tree, package, number);
            let parent = path.parent().unwrap_or(&tree);
            fs::create_dir_all(parent).doing("create", parent)?;
            fs::write(&path, content(package, number)).doing("write", &path)?;
        }
        let control = tree.join("DEBIAN/control");
        fs::create_dir(tree.join("DEBIAN")).doing("create", &tree)?;
        let text = format!(
            "Package: {}\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@localhost>\nDescription: small files\n",
            name(package)
        );
        fs::write(&control, text).doing("write", &control)?;
        run(Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zgzip", "--build"])
            .args([&tree, &archive(home, package)]))?;
        remove(&tree)
    }
}

impl Job for Dpkg {
    fn file_bytes(&self) -> u64 {
        2 * self.packages * (30 + MORE_FILES) * FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let directory = place(home);
        remove(&directory)?;
        fs::create_dir(&directory).doing("create", &directory)?;
        (0..self.packages).try_for_each(|package| self.build(home, package))?;
        make_root(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(root(directory)).arg("--unpack");
        dpkg.args((0..self.packages).map(|package| archive(directory, package)));
        Outcome::of_job(|| run(&mut dpkg).map(drop))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let root = root(home);
        let said = run(Command::new("dpkg-query")
            .arg("--admindir")
            .arg(root.join("var/lib/dpkg"))
            .args(["--show", "--showformat=${Status}\n"]))?;
        let said = String::from_utf8_lossy(&said.stdout);
        let unpacked = said.lines().filter(|line| *line == UNPACKED).count() as u64;
        if unpacked != self.packages {
            return Err(Error::Different(format!(
                "{} has {unpacked} unpacked packages instead of {}",
                root.display(),
                self.packages
            )));
        }
        for package in 0..self.packages {
            for number in 0..files_of(package) {
                verify_small(&file(&root, package, number), &content(package, number))?;
            }
        }
        Ok(())
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        make_root(home)
    }
}

/// A root with nothing in it but dpkg's own empty files, durable.
fn make_root(home: &Path) -> Result<()> {
    let root = root(home);
    remove(&root)?;
    let admin = root.join("var/lib/dpkg");
    for name in ["info", "updates", "triggers"] {
        let path = admin.join(name);
        fs::create_dir_all(&path).doing("create", &path)?;
    }
    let status = admin.join("status");
    fs::write(&status, "").doing("write", &status)?;
    sync(home)
}

fn place(directory: &Path) -> PathBuf {
    directory.join("dpkg")
}

fn root(directory: &Path) -> PathBuf {
    place(directory).join("root")
}

fn name(package: u64) -> String {
    format!("weir-bench-{package}")
}

fn archive(directory: &Path, package: u64) -> PathBuf {
    place(directory).join(format!("{}.deb", name(package)))
}

fn files_of(package: u64) -> u64 {
    30 + package * 7 % MORE_FILES
}

fn file(root: &Path, package: u64, number: u64) -> PathBuf {
    let part = number / FILES_A_DIRECTORY;
    root.join(format!("usr/share/{}/part-{part}/file-{number}", name(package)))
}

fn content(package: u64, number: u64) -> Vec<u8> {
    small_content(SEED + package, number, FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    /// Passes over itself where there is no dpkg, and without root, which dpkg asks for.
    #[test]
    fn packages_are_unpacked_and_what_differs_is_found() {
        if require().is_err() || !rustix::process::geteuid().is_root() {
            return;
        }
        let workload = Workload::Dpkg(Dpkg { packages: 3 });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        workload.verify(&home, &outcome).unwrap();
        fs::write(file(&root(&home), 2, 43), "spoilt").unwrap();
        assert_different(workload.verify(&home, &outcome), "is not as written");
        workload.reset(&home, &outcome).unwrap();
        assert_different(workload.verify(&home, &outcome), "has 0 unpacked packages instead of 3");
    }
}
