//! The files that are written for the user: the page, the JSON, the trace.
//!
//! Invariants: what cannot be written is refused before a program is run; a file is replaced whole, by a new one beside it that
//! is renamed; nothing but a regular file is replaced, and no symbolic link is followed in its last name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, fstat, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use weir_advise::page;

use crate::failure::Failure;

/// What tells a page is at its beginning.
const HEAD_BYTES: u64 = 4096;

/// What a file may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// A page of ours, or an empty file.
    Pages,
    /// Any file.
    Files,
}

/// A file that will be written.
pub struct Output {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    replaces: Replaces,
}

impl Output {
    /// Sees whether the file can be written.
    pub fn new(path: &Path, replaces: Replaces) -> Result<Output, Failure> {
        let refused = |error: io::Error| cannot(path, &error);
        let name = path.file_name().ok_or_else(|| refused(io::ErrorKind::IsADirectory.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(|error| refused(error.into()))?;
        let output = Output { path: path.to_owned(), directory, name: name.to_owned(), replaces };
        output.check()?;
        accessat(&output.directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|error| refused(error.into()))?;
        Ok(output)
    }

    /// Whether what is there, if anything, may be replaced.
    fn check(&self) -> Result<(), Failure> {
        let refused = |error: Errno| cannot(&self.path, &error.into());
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(refused(error)),
            Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile => {
                return Err(Failure::Refused(format!(
                    "{} is there and no regular file: name another one",
                    self.path.display()
                )));
            }
            Ok(_) if self.replaces == Replaces::Files => return Ok(()),
            Ok(_) => {}
        }
        // It may be another file by now.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty()).map_err(refused)?;
        let length = fstat(&file).map_err(refused)?.st_size;
        let mut head = Vec::new();
        let read = File::from(file).take(HEAD_BYTES).read_to_end(&mut head);
        read.map_err(|error| cannot(&self.path, &error))?;
        if length == 0 || page::is_page(&head) {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "{} is there and no page of weir advise: remove it, or name another file with --out",
            self.path.display()
        )))
    }

    /// Writes it.
    pub fn write(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.check()?;
        let aside = OsString::from(format!(".weir-advise-{}.new", std::process::id()));
        let done = self
            .fill(&aside, fill)
            .and_then(|()| Ok(renameat(&self.directory, &aside, &self.directory, &self.name)?));
        if done.is_err() {
            let _ = unlinkat(&self.directory, &aside, AtFlags::empty());
        }
        done.map_err(|error| cannot(&self.path, &error))
    }

    fn fill(
        &self,
        aside: &OsStr,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, aside, flags, Mode::from_raw_mode(0o666))?;
        let mut to = BufWriter::new(File::from(file));
        fill(&mut to)?;
        to.flush()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::Refused(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_may_be_replaced_is() {
        let place = std::env::temp_dir().join(format!("weir-advise-output-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let path = place.join("page.html");
        let output = Output::new(&path, Replaces::Pages).unwrap();
        output.write(|to| to.write_all(b"mine")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert!(Output::new(&path, Replaces::Pages).is_err(), "no page");
        assert!(output.write(|to| to.write_all(b"x")).is_err(), "seen again before it is written");
        Output::new(&path, Replaces::Files).unwrap().write(|to| to.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let failed = Output::new(&path, Replaces::Files)
            .unwrap()
            .write(|_| Err(io::ErrorKind::StorageFull.into()));
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing is left");
        for target in ["page.html", "nowhere"] {
            let link = place.join("link");
            symlink(target, &link).unwrap();
            assert!(Output::new(&link, Replaces::Files).is_err(), "a link to {target}");
            fs::remove_file(&link).unwrap();
        }
        assert!(Output::new(&place, Replaces::Files).is_err(), "a directory");
        assert!(Output::new(&place.join("no/x"), Replaces::Files).is_err());
        fs::remove_dir_all(&place).unwrap();
    }
}
