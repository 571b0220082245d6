//! File flags that a recovery cleared, restored by the next recovery or mount: see
//! [`cleared_flags`](crate::cleared_flags), which owns the note.
//!
//! Invariants:
//! - the note is removed when all flags in it are restored, durably;
//! - flags are set only on files in SOURCE, and only these two. The inode number must be the recorded one,
//!   since the path may name another file by then.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{OFlags, fstat, fsync, ioctl_getflags, ioctl_setflags};

use crate::cleared_flags::{Line, NOTE};
use crate::notes;
use crate::recovery::{Recovered, RecoveryError};

/// Restores the flags that a recovery cleared on files of SOURCE, and removes the note. A file that is gone,
/// or whose path names another file by now, is left as it is.
///
/// # Errors
/// Those of reading the note, or of the first file whose flags cannot be restored; the note is then kept.
pub fn set_flags_again(source: BorrowedFd<'_>) -> Result<(), RecoveryError> {
    let of_note = |doing| move |error| RecoveryError::new(doing, ".weir/flags".to_owned(), error);
    let Some(directory) = notes::trusted_directory(source).map_err(of_note("find"))? else {
        return Ok(());
    };
    let Some(text) = notes::read(&directory, NOTE).map_err(of_note("read"))? else {
        return Ok(());
    };
    let mut home = Recovered::new(source, BTreeSet::new()).map_err(of_note("follow"))?;
    let mut failed = None;
    for line in String::from_utf8_lossy(&text).lines().filter_map(Line::decode) {
        if let Err(error) = set_again(&mut home, &line) {
            let name = home.name(&line.identity);
            failed.get_or_insert(RecoveryError::new("make immutable again", name, error));
        }
    }
    match failed {
        Some(error) => Err(error),
        None => notes::remove(&directory, NOTE).map_err(of_note("remove")),
    }
}

fn set_again(home: &mut Recovered, line: &Line) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let Some(file) = home.open_identity(&line.identity, flags)? else { return Ok(()) };
    if fstat(&file)?.st_ino != line.inode {
        let name = home.name_of(file.as_fd());
        tracing::warn!(
            "{name} took the place of a file that was immutable or append-only: left as it is"
        );
        return Ok(());
    }
    let now = ioctl_getflags(&file)?;
    if !now.contains(line.flags) {
        ioctl_setflags(&file, now | line.flags)?;
    }
    Ok(fsync(&file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join(".weir");
        std::fs::create_dir(&directory).unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&directory, 0o700);
        let note = directory.join(NOTE);
        std::fs::write(&note, "").unwrap();
        mode(&note, 0o666);
        let source = std::fs::File::open(place.path()).unwrap();
        let refused = set_flags_again(source.as_fd()).unwrap_err().to_string();
        assert!(refused.contains(".weir/flags: others can have written it"), "{refused}");
        mode(&note, 0o600);
        // In a directory that others can write, the note is ignored.
        mode(&directory, 0o777);
        set_flags_again(source.as_fd()).unwrap();
        assert!(note.exists());
        mode(&directory, 0o700);
        set_flags_again(source.as_fd()).unwrap();
        assert!(!note.exists());
    }
}
