//! Promises: a mark in the order of all changes of a mount, and waiting until everything before it is durable. As `library/weir.c`, for one
//! process (docs/decisions/0027).
//!
//! Owns: for each mount that a promise was taken of the number of commits begun, and how the last ones ended; these are never forgotten.
//! Keeps no descriptor, so it keeps no mount from being unmounted.
//!
//! Invariants:
//! - a promise's number is the number of commits that had begun when it was taken: a commit covers all promises with smaller numbers than
//!   its own, and no others;
//! - before an fsync the directory is asked for the mount's number, which no other mount has: another mount at the same place, or
//!   another daemon, keeps no promise.
//!
//! Lock order: [`MOUNTS`] before `Mount::commits`. No system call is made with either.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;
use weir_control::mounts::{Device, MountTable};
use weir_control::order;

use crate::{Error, file};

/// A moment in the order of all changes of a mount. It needs no release. It is good in the process that took it, not in one that was
/// forked from it.
#[derive(Clone, Debug)]
pub struct Promise {
    mount: Arc<Mount>,
    number: u64,
    /// An error stays.
    failed: OnceLock<Errno>,
}

/// Takes a promise of the mount that the open file or directory is on: it is after every change of the mount, by any program, that was done
/// when the call began. What the file's mappings have changed is included; what mappings of other files have changed is not before
/// msync(2). Does not wait for a disk.
///
/// ```no_run
/// use std::io::Write;
///
/// let mut file = std::fs::File::options().append(true).open("/mnt/data/journal").unwrap();
/// file.write_all(b"42 paid\n").unwrap();
/// match weir::promise(&file) {
///     Ok(promise) => promise.wait()?,
///     // Another file system, or another kind of mount.
///     Err(weir::Error::NotMounted { .. } | weir::Error::Unordered { .. }) => file.sync_all().unwrap(),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), weir::Error>(())
/// ```
///
/// # Errors
/// [`Error::NotMounted`], [`Error::Unordered`], [`Error::Ended`]; [`Error::Path`] if the directory at which the mount is mounted may not be read.
pub fn promise(file: impl AsFd) -> Result<Promise, Error> {
    let file = file.as_fd();
    let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    let path = std::fs::read_link(&path).unwrap_or(path);
    let (device, kind) = file::of_weir(file, &path)?;
    let of_file = |errno| Error::of_file(&path, errno);
    let number = order::mount_number(file).map_err(of_file)?;
    if kind.is_file() {
        order::give_mapped(file).map_err(of_file)?;
    }
    let mount = find(number, device, &path)?;
    let number = mount.lock().begun;
    Ok(Promise { mount, number, failed: OnceLock::new() })
}

impl Promise {
    /// Waits until all that the promise covers is durable: a crash after that loses none of it. Begins a commit if none is under way that
    /// covers it.
    ///
    /// # Errors
    /// [`Error::Ended`], also if another mount has taken its place; [`Error::Failed`] if the commit failed. An error stays: the same promise
    /// fails with it for ever, and what it covers may be durable or not. A new promise covers it, too, and begins a new commit.
    pub fn wait(&self) -> Result<(), Error> {
        if let Some(errno) = self.failed.get() {
            return Err(self.mount.failed(*errno));
        }
        self.mount.wait_for(self.number).map_err(|errno| {
            let errno = *self.failed.get_or_init(|| errno);
            self.mount.failed(errno)
        })
    }
}

/// All that promises were taken of.
static MOUNTS: Mutex<Vec<Arc<Mount>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Mount {
    number: [u8; 16],
    device: Device,
    commits: Mutex<Commits>,
    /// A commit has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Commits {
    begun: u64,
    /// Promises with smaller numbers are durable; others with smaller numbers than `failed` have failed.
    durable: u64,
    failed: u64,
    /// Why.
    error: Option<Errno>,
    is_committing: bool,
    /// Where the mount was found last.
    path: PathBuf,
}

impl Mount {
    fn lock(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, errno: Errno) -> Error {
        let path = self.lock().path.clone();
        match errno {
            Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED => {
                Error::Ended { mount_point: path }
            }
            errno => {
                let reason = std::io::Error::from(errno).to_string();
                Error::Failed { path, reason: format!("the commit failed: {reason}") }
            }
        }
    }

    fn wait_for(&self, promise: u64) -> Result<(), Errno> {
        let mut commits = self.lock();
        while promise >= commits.durable && promise >= commits.failed {
            if commits.is_committing {
                commits = self.ended.wait(commits).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            commits.is_committing = true;
            commits.begun += 1;
            let (number, path) = (commits.begun, commits.path.clone());
            drop(commits);
            let outcome = self.commit(&path);
            commits = self.lock();
            commits.is_committing = false;
            match outcome {
                Ok(path) => (commits.durable, commits.path) = (number, path),
                Err(errno) => (commits.failed, commits.error) = (number, Some(errno)),
            }
            self.ended.notify_all();
        }
        if promise < commits.durable { Ok(()) } else { Err(commits.error.unwrap_or(Errno::IO)) }
    }

    /// Returns where it is mounted.
    fn commit(&self, known: &Path) -> Result<PathBuf, Errno> {
        let (directory, path) = match open_if_of(known, self.number) {
            Ok(directory) => (directory, known.to_owned()),
            Err(_) => search(self.number, self.device)?,
        };
        // The first fsync may report names that SOURCE refused; the log has these. The second succeeds only if everything is
        // durable, because nothing becomes clean when an error is reported.
        rustix::fs::fsync(&directory).or_else(|_| rustix::fs::fsync(&directory))?;
        Ok(path)
    }
}

/// The mount with this number, which is looked for if it is not known. `path` is for the error.
fn find(number: [u8; 16], device: Device, path: &Path) -> Result<Arc<Mount>, Error> {
    let known = |mounts: &[Arc<Mount>]| mounts.iter().find(|mount| mount.number == number).cloned();
    let lock = || MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mount) = known(&lock()) {
        return Ok(mount);
    }
    let (_, mount_point) = search(number, device).map_err(|errno| match errno {
        Errno::NODEV => Error::Ended { mount_point: path.to_owned() },
        errno => Error::of_file(path, errno),
    })?;
    let mut mounts = lock();
    // Another thread may have been first.
    Ok(known(&mounts).unwrap_or_else(|| {
        let commits = Commits { path: mount_point, ..Commits::default() };
        let (commits, ended) = (Mutex::new(commits), Condvar::new());
        let mount = Arc::new(Mount { number, device, commits, ended });
        mounts.push(mount.clone());
        mount
    }))
}

/// Opens the directory at which a mount is mounted.
fn search(number: [u8; 16], device: Device) -> Result<(File, PathBuf), Errno> {
    let errno_of = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    let table = MountTable::read().map_err(|error| errno_of(&error))?;
    let mut failed = Errno::NODEV;
    for mount in table.iter().filter(|mount| mount.device == device) {
        match open_if_of(&mount.mount_point, number) {
            Ok(directory) => return Ok((directory, mount.mount_point.clone())),
            Err(errno) => failed = errno,
        }
    }
    Err(failed)
}

/// Opens a directory if it is of a mount.
fn open_if_of(path: &Path, number: [u8; 16]) -> Result<File, Errno> {
    let directory = File::options()
        .read(true)
        .custom_flags(OFlags::DIRECTORY.bits() as i32)
        .open(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    match order::mount_number(directory.as_fd()) {
        Ok(found) if found == number => Ok(directory),
        // Another file system has its place, or the number of its device.
        Ok(_) | Err(Errno::NOTTY | Errno::OPNOTSUPP) => Err(Errno::NODEV),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount() -> Mount {
        let device = Device { major: 0, minor: u32::MAX };
        let commits = Mutex::new(Commits::default());
        Mount { number: [7; 16], device, commits, ended: Condvar::new() }
    }

    #[test]
    fn a_commit_that_fails_fails_what_it_covers_and_nothing_later() {
        let mount = mount();
        assert_eq!(mount.wait_for(0), Err(Errno::NODEV));
        assert_eq!(mount.lock().begun, 1);
        // It covers this promise as well: no second commit.
        assert_eq!(mount.wait_for(0), Err(Errno::NODEV));
        assert_eq!(mount.lock().begun, 1);
        // This was taken after it began.
        assert_eq!(mount.wait_for(1), Err(Errno::NODEV));
        assert_eq!(mount.lock().begun, 2);
    }

    #[test]
    fn what_a_later_commit_made_durable_need_not_wait() {
        let mount = mount();
        mount.lock().begun = 5;
        mount.lock().durable = 5;
        assert_eq!(mount.wait_for(4), Ok(()));
        assert_eq!(mount.lock().begun, 5);
    }

    #[test]
    fn an_error_stays() {
        let promise = Promise { mount: Arc::new(mount()), number: 0, failed: OnceLock::new() };
        assert!(matches!(promise.wait(), Err(Error::Ended { .. })));
        promise.mount.lock().durable = 9;
        assert!(matches!(promise.wait(), Err(Error::Ended { .. })));
        assert!(promise.clone().wait().is_err());
    }

    #[test]
    fn a_directory_of_another_file_system_is_not_of_the_mount() {
        assert_eq!(open_if_of(Path::new("/"), [7; 16]).unwrap_err(), Errno::NODEV);
        assert_eq!(open_if_of(Path::new("/proc"), [7; 16]).unwrap_err(), Errno::NODEV);
    }

    #[test]
    fn files_of_other_file_systems_have_no_promises() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(promise(&file), Err(Error::NotMounted { .. })));
    }
}
