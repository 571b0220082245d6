//! Two trees, compared: names, kinds, modes, owners, links, contents, and times where a case sets them.
//!
//! Both are read side by side, so nothing of them is kept but which names are links to one file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::content::first_difference;
use crate::error::{Doing, Error, Result};

/// Weir's own directory at the top of what it serves: no part of a tree.
pub const OWN_DIRECTORY: &str = ".weir";

/// Which modification times are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// None.
    #[default]
    None,
    /// All but those of symbolic links, which some homes cannot set.
    ButOfLinks,
    /// All.
    All,
}

/// What is compared besides what always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Modification times.
    pub times: Times,
    /// Files whose contents and sizes may differ, by their paths in the tree.
    pub free: &'static [&'static str],
}

/// Compares what is in two directories, not the directories themselves; how many names each has.
///
/// # Errors
/// [`Error::Different`] with the first path, in the order of names, where they differ, and how.
pub fn compare(one: &Path, other: &Path, rules: Rules) -> Result<u64> {
    let mut comparison = Comparison { tops: [one, other], rules, links: HashMap::new(), names: 0 };
    comparison.directory(Path::new(""))?;
    Ok(comparison.names)
}

struct Comparison<'a> {
    tops: [&'a Path; 2],
    rules: Rules,
    /// Of each file with several names: the first of them that was met, in the two trees.
    links: HashMap<(usize, u64, u64), PathBuf>,
    names: u64,
}

impl Comparison<'_> {
    fn directory(&mut self, at: &Path) -> Result<()> {
        let [one, other] = self.both(at, |path| names_in(path, at == Path::new("")))?;
        if one != other {
            let only = one.iter().find(|name| !other.contains(name));
            let only = only.map(|name| (0, name));
            let (side, name) = only
                .or_else(|| other.iter().find(|name| !one.contains(name)).map(|name| (1, name)))
                .expect("lists of unique names that differ have a name that the other has not");
            let (path, top) = (at.join(name), self.tops[side]);
            return Err(different(&path, format!("is only in {}", top.display())));
        }
        for name in one {
            self.names += 1;
            self.entry(&at.join(name))?;
        }
        Ok(())
    }

    fn entry(&mut self, at: &Path) -> Result<()> {
        let metadata = self.both(at, |path| fs::symlink_metadata(path).doing("look at", path))?;
        let [one, other] = &metadata;
        let same = |what: &str, one: String, other: String| {
            if one == other {
                return Ok(());
            }
            Err(different(at, format!("differs in its {what}: {one} and {other}")))
        };
        let each = |show: fn(&Metadata) -> String| (show(one), show(other));
        let facts: [(&str, (String, String)); 3] = [
            ("kind", each(|of| kind(of.file_type()).to_owned())),
            ("mode", each(|of| format!("{:o}", of.mode() & 0o7777))),
            ("owner", each(|of| format!("{}:{}", of.uid(), of.gid()))),
        ];
        for (what, (one, other)) in facts {
            same(what, one, other)?;
        }
        let has_time = match self.rules.times {
            Times::None => false,
            Times::ButOfLinks => !one.is_symlink(),
            Times::All => true,
        };
        if has_time {
            let (one, other) = each(|of| format!("{}.{:09}", of.mtime(), of.mtime_nsec()));
            same("modification time", one, other)?;
        }
        if one.is_dir() {
            return self.directory(at);
        }
        same("number of links", one.nlink().to_string(), other.nlink().to_string())?;
        let [one_first, other_first] = self.first_names(at, &metadata);
        if one_first != other_first {
            return Err(different(at, "is a link to different files".into()));
        }
        if one.is_symlink() {
            let [one, other] = self.both(at, |path| fs::read_link(path).doing("read", path))?;
            return same("target", one.display().to_string(), other.display().to_string());
        }
        let is_free = self.rules.free.iter().any(|free| at == Path::new(free));
        if !one.is_file() || is_free {
            return Ok(());
        }
        same("size", one.len().to_string(), other.len().to_string())?;
        self.contents(at)
    }

    fn contents(&self, at: &Path) -> Result<()> {
        let [mut one, mut other] = self.both(at, |path| File::open(path).doing("open", path))?;
        match first_difference(&mut one, &mut other).doing("read", &self.tops[1].join(at))? {
            None => Ok(()),
            Some(byte) => Err(different(at, format!("differs at byte {byte}"))),
        }
    }

    /// In each tree the first name that was met of the file that `at` names.
    fn first_names(&mut self, at: &Path, metadata: &[Metadata; 2]) -> [Option<PathBuf>; 2] {
        [0, 1].map(|side| {
            let of = &metadata[side];
            let key = (side, of.dev(), of.ino());
            (of.nlink() > 1).then(|| self.links.entry(key).or_insert_with(|| at.to_owned()).clone())
        })
    }

    fn both<T>(&self, at: &Path, ask: impl Fn(&Path) -> Result<T>) -> Result<[T; 2]> {
        Ok([ask(&self.tops[0].join(at))?, ask(&self.tops[1].join(at))?])
    }
}

fn different(at: &Path, how: String) -> Error {
    Error::Different(format!("{} {how}", at.display()))
}

/// The names in a directory, sorted.
fn names_in(directory: &Path, is_top: bool) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).doing("read", directory)? {
        let name = entry.doing("read", directory)?.file_name();
        if !is_top || name != OWN_DIRECTORY {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn kind(of: FileType) -> &'static str {
    match of {
        of if of.is_file() => "file",
        of if of.is_dir() => "directory",
        of if of.is_symlink() => "symbolic link",
        of if of.is_fifo() => "FIFO",
        of if of.is_socket() => "socket",
        _ => "device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    const TIMES: Rules = Rules { times: Times::All, free: &[] };

    /// A tree with one of everything, every time in it the same.
    fn plant(top: &Path) {
        fs::create_dir_all(top.join("directory/inner")).unwrap();
        fs::write(top.join("directory/file"), vec![7; 100_000]).unwrap();
        fs::hard_link(top.join("directory/file"), top.join("linked")).unwrap();
        fs::write(top.join("other"), "other").unwrap();
        fs::hard_link(top.join("other"), top.join("other-2")).unwrap();
        symlink("linked", top.join("symbolic")).unwrap();
        for at in ["directory/file", "other", "directory/inner", "directory"] {
            set_time(&top.join(at), 1_600_000_000);
        }
    }

    fn set_time(path: &Path, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    /// Compares a planted tree with another to which something was done.
    fn compared(spoil: impl FnOnce(&Path), rules: Rules) -> Result<u64> {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        plant(one.path());
        plant(other.path());
        // Set by nobody, and so not comparable to the nanosecond.
        for top in [one.path(), other.path()] {
            fs::remove_file(top.join("symbolic")).unwrap();
        }
        spoil(other.path());
        compare(one.path(), other.path(), rules)
    }

    #[test]
    fn equal_trees_are_equal_and_their_names_are_counted() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        plant(one.path());
        plant(other.path());
        fs::create_dir(other.path().join(OWN_DIRECTORY)).unwrap();
        assert_eq!(compare(one.path(), other.path(), Rules::default()).unwrap(), 7);
        assert_eq!(compared(|_| {}, TIMES).unwrap(), 6);
    }

    #[test]
    fn a_byte_is_found() {
        let spoil = |top: &Path| {
            let mut bytes = vec![7; 100_000];
            bytes[70_001] = 8;
            fs::write(top.join("linked"), bytes).unwrap();
        };
        assert_different(compared(spoil, Rules::default()), "directory/file differs at byte 70001");
        let free = Rules { times: Times::None, free: &["directory/file", "linked"] };
        compared(spoil, free).unwrap();
    }

    #[test]
    fn a_mode_is_found() {
        let spoil = |at: &'static str| {
            move |top: &Path| {
                fs::set_permissions(top.join(at), fs::Permissions::from_mode(0o700)).unwrap();
            }
        };
        assert_different(compared(spoil("other"), TIMES), "other differs in its mode");
        assert_different(compared(spoil("directory/inner"), TIMES), "directory/inner differs in");
    }

    #[test]
    fn a_name_is_found_on_either_side() {
        let missing = |top: &Path| fs::remove_dir(top.join("directory/inner")).unwrap();
        assert_different(compared(missing, Rules::default()), "directory/inner is only in");
        let more = |top: &Path| fs::write(top.join("more"), "").unwrap();
        assert_different(compared(more, Rules::default()), "more is only in");
        let own = |top: &Path| fs::create_dir(top.join("directory").join(OWN_DIRECTORY)).unwrap();
        assert_different(compared(own, Rules::default()), "directory/.weir is only in");
    }

    #[test]
    fn links_kinds_sizes_and_times_are_found() {
        let crossed = |top: &Path| {
            fs::remove_file(top.join("linked")).unwrap();
            fs::remove_file(top.join("other-2")).unwrap();
            fs::hard_link(top.join("directory/file"), top.join("other-2")).unwrap();
            fs::hard_link(top.join("other"), top.join("linked")).unwrap();
        };
        assert_different(compared(crossed, Rules::default()), "is a link to different files");
        let copied = |top: &Path| {
            fs::remove_file(top.join("linked")).unwrap();
            fs::write(top.join("linked"), vec![7; 100_000]).unwrap();
        };
        assert_different(compared(copied, Rules::default()), "number of links");
        let shorter = |top: &Path| fs::write(top.join("other"), "othe").unwrap();
        assert_different(compared(shorter, Rules::default()), "other differs in its size");
        let symbolic = |top: &Path| {
            fs::remove_dir(top.join("directory/inner")).unwrap();
            symlink("x", top.join("directory/inner")).unwrap();
        };
        assert_different(compared(symbolic, Rules::default()), "inner differs in its kind");
        let touched = |top: &Path| set_time(&top.join("other"), 1_600_000_001);
        assert_different(compared(touched, TIMES), "other differs in its modification time");
        compared(touched, Rules::default()).unwrap();
    }

    #[test]
    fn the_target_of_a_symbolic_link_is_found() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink("here", one.path().join("link")).unwrap();
        symlink("there", other.path().join("link")).unwrap();
        let found = compare(one.path(), other.path(), Rules::default());
        assert_different(found, "link differs in its target: here and there");
    }
}
