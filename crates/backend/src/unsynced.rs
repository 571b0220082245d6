//! What was written to a FUSE home and not synced there. syncfs(2) does not reach the server of such a home, which may also say
//! that it has a write before it has it (sshfs): that it did not get it, it says to the next sync of the open description by which that
//! was written, and to nobody else. So those descriptions are kept until home is synced, which syncs each.
//!
//! Owns the descriptions by which files were written since they were synced with home. Does not own those files, which may be closed.
//!
//! Lock order: `turn`, then `state`. Home is asked under `turn` alone, so that who waits for it knows what the former has found.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::fdatasync;
use weir_engine::{ErrorKind, FileId};

use crate::error::error_kind;
use crate::home_names::is_fuse;

/// More descriptions than these are not kept: some are synced before. OpenSSH's server has some 1,000 files open at most.
const KEPT_MAX: usize = 192;

/// Files that are synced at once, so that one does not wait for the other on its way to a server.
const AT_ONCE: usize = 16;

/// Losses that are remembered for syncs that began before them.
const LOSSES_MAX: usize = 4096;

/// Descriptions by which a file was written.
type Written = (FileId, Vec<Arc<OwnedFd>>);

/// See the module.
#[derive(Debug, Default)]
pub struct Unsynced {
    state: Mutex<State>,
    /// Held while descriptions that were taken out are synced.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<FileId, Vec<Arc<OwnedFd>>>,
    /// Descriptions in `files`.
    kept: usize,
    /// Files of which home did not have what it had said, the last ones.
    losses: VecDeque<(FileId, ErrorKind)>,
    /// How many losses there were.
    lost: u64,
    /// Losses that no sync of home has been told of begin here.
    untold: u64,
    /// A worker is to sync some, or does.
    is_crowded: bool,
    /// Descriptions are out.
    is_syncing: bool,
}

/// A sync of home failed for these files, with the first one's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) files: Vec<FileId>,
    pub(crate) kind: ErrorKind,
}

impl Unsynced {
    /// Of a home that needs it.
    pub fn of(source: BorrowedFd<'_>) -> Option<Arc<Unsynced>> {
        is_fuse(source).then(Arc::default)
    }

    /// A file was written by a description. Says whether [`Unsynced::sync_some`] is to be called.
    pub(crate) fn written(&self, file: FileId, by: &Arc<OwnedFd>) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let known = state.files.entry(file).or_default();
        if !known.iter().any(|known| Arc::ptr_eq(known, by)) {
            known.push(Arc::clone(by));
            state.kept += 1;
        }
        let is_crowded = state.kept > KEPT_MAX && !state.is_crowded;
        state.is_crowded |= is_crowded;
        is_crowded
    }

    /// A sync of a file by a description failed: the file is told what home did not have.
    pub(crate) fn was_told(&self, file: FileId, by: &Arc<OwnedFd>, error: &io::Error) {
        let mut state = self.lock();
        let _ = state.take(file, |known| Arc::ptr_eq(known, by));
        state.loses(file, error_kind(error));
    }

    /// Whether a file was written by a description since it was synced with home.
    pub(crate) fn is_kept(&self, file: FileId, by: &Arc<OwnedFd>) -> bool {
        let state = self.lock();
        let mut kept = state.files.get(&file).into_iter().flatten();
        kept.any(|known| Arc::ptr_eq(known, by))
    }

    /// Whether more is to be synced for a file than the description `by`.
    pub(crate) fn has_others(&self, file: FileId, by: &Arc<OwnedFd>) -> bool {
        let state = self.lock();
        let mut others = state.files.get(&file).into_iter().flatten();
        state.is_syncing || others.any(|other| !Arc::ptr_eq(other, by))
    }

    /// Syncs a file by all descriptions by which it was written but `by`.
    ///
    /// # Errors
    /// Those of fdatasync(2): of what was written since the file was synced some is not at home.
    pub(crate) fn sync_others(&self, file: FileId, by: &Arc<OwnedFd>) -> io::Result<()> {
        let before = self.lock().lost;
        let _turn = self.turn();
        let others = self.lock().take(file, |known| !Arc::ptr_eq(known, by));
        let synced = sync_all(&others);
        let mut state = self.lock();
        if let Err(error) = &synced {
            state.loses(file, error_kind(error));
        }
        // Whom it was told to first may not have been this file's sync.
        match state.lost_since(before).into_iter().find(|(lost, _)| *lost == file) {
            Some(_) => synced.and(Err(rustix::io::Errno::IO.into())),
            None => Ok(()),
        }
    }

    /// Syncs all that was written.
    ///
    /// # Errors
    /// The files of which home does not have all that was written since it was synced.
    pub(crate) fn sync(&self) -> Result<(), Lost> {
        let asked = self.lock().lost;
        let _turn = self.turn();
        let (files, before) = {
            let mut state = self.lock();
            (state.kept, state.is_syncing) = (0, true);
            (std::mem::take(&mut state.files), asked.min(state.untold))
        };
        let lost = lost_of(&files.into_iter().collect::<Vec<_>>());
        let mut state = self.lock();
        state.note(lost);
        let found = state.lost_since(before);
        state.untold = state.lost;
        match found.first() {
            None => Ok(()),
            Some(&(_, kind)) => {
                Err(Lost { files: found.into_iter().map(|(file, _)| file).collect(), kind })
            }
        }
    }

    /// Syncs some, until few enough are kept. What is lost is told to the next sync of home.
    pub(crate) fn sync_some(&self) {
        loop {
            let _turn = self.turn();
            let some: Vec<Written> = {
                let mut state = self.lock();
                if state.kept <= KEPT_MAX / 2 {
                    state.is_crowded = false;
                    return;
                }
                let files: Vec<FileId> = state.files.keys().copied().take(AT_ONCE).collect();
                state.is_syncing = true;
                files.into_iter().map(|file| (file, state.take(file, |_| true))).collect()
            };
            let lost = lost_of(&some);
            self.lock().note(lost);
        }
    }

    /// Home is to lose a name of a file: a description of it would keep the file there (libfuse(3) renames it), so it is synced and
    /// let go. What is lost is told to the next sync of home.
    pub fn leave_name(&self, file: FileId) {
        if !self.lock().files.contains_key(&file) {
            return;
        }
        let _turn = self.turn();
        let written = {
            let mut state = self.lock();
            state.is_syncing = true;
            state.take(file, |_| true)
        };
        let lost = lost_of(&[(file, written)]);
        self.lock().note(lost);
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out descriptions of a file.
    fn take(&mut self, file: FileId, which: impl Fn(&Arc<OwnedFd>) -> bool) -> Vec<Arc<OwnedFd>> {
        let Some(known) = self.files.get_mut(&file) else { return Vec::new() };
        let taken: Vec<_> = known.extract_if(.., |known| which(known)).collect();
        if known.is_empty() {
            self.files.remove(&file);
        }
        self.kept -= taken.len();
        taken
    }

    fn loses(&mut self, file: FileId, kind: ErrorKind) {
        self.losses.push_back((file, kind));
        self.lost += 1;
        if self.losses.len() > LOSSES_MAX {
            self.losses.pop_front();
        }
    }

    /// What was out was synced, but for these.
    fn note(&mut self, lost: Vec<(FileId, io::Error)>) {
        self.is_syncing = false;
        for (file, error) in lost {
            self.loses(file, error_kind(&error));
        }
    }

    /// The losses after the first `before`, as far as they are remembered.
    fn lost_since(&self, before: u64) -> Vec<(FileId, ErrorKind)> {
        let new = usize::try_from(self.lost - before).unwrap_or(usize::MAX);
        self.losses.iter().skip(self.losses.len().saturating_sub(new)).copied().collect()
    }
}

/// Those of the files that cannot be synced.
fn lost_of(files: &[Written]) -> Vec<(FileId, io::Error)> {
    let of_share = |files: &[Written]| {
        let lost = |(file, by): &Written| Some((*file, sync_all(by).err()?));
        files.iter().filter_map(lost).collect::<Vec<_>>()
    };
    if files.len() < 2 {
        return of_share(files);
    }
    thread::scope(|scope| {
        let shares = files.chunks(files.len().div_ceil(AT_ONCE));
        let running: Vec<_> = shares.map(|files| scope.spawn(move || of_share(files))).collect();
        running.into_iter().flat_map(|share| share.join().expect("it does not panic")).collect()
    })
}

/// By each of them, also after one has failed.
fn sync_all(by: &[Arc<OwnedFd>]) -> io::Result<()> {
    let synced = by.iter().map(fdatasync).collect::<Vec<_>>();
    synced.into_iter().collect::<Result<(), _>>().map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FileId = FileId(1);
    const OTHER: FileId = FileId(2);

    /// A description that cannot be synced (fsync(2) of a pipe: EINVAL).
    fn unsyncable() -> Arc<OwnedFd> {
        Arc::new(std::io::pipe().unwrap().1.into())
    }

    fn syncable() -> Arc<OwnedFd> {
        Arc::new(tempfile::tempfile().unwrap().into())
    }

    fn lost(all: &Unsynced) -> Vec<FileId> {
        all.sync().err().map(|lost| lost.files).unwrap_or_default()
    }

    #[test]
    fn what_was_written_by_a_description_that_is_not_used_any_more_is_synced_too() {
        let (all, now) = (Unsynced::default(), syncable());
        assert!(!all.has_others(ONE, &now));
        all.written(ONE, &now);
        assert!(!all.has_others(ONE, &now));
        all.written(ONE, &unsyncable());
        assert!(all.has_others(ONE, &now));
        assert!(all.sync_others(ONE, &now).is_err());
        assert!(!all.has_others(ONE, &now) && all.sync_others(ONE, &now).is_ok());
        // The next sync of home does not say that home has it.
        assert_eq!((lost(&all), lost(&all)), (vec![ONE], vec![]));
    }

    #[test]
    fn a_sync_of_home_says_which_files_it_failed_for() {
        let all = Unsynced::default();
        all.written(ONE, &syncable());
        all.written(OTHER, &unsyncable());
        assert_eq!((lost(&all), lost(&all)), (vec![OTHER], vec![]));
        assert!(all.sync_others(OTHER, &syncable()).is_ok());
    }

    #[test]
    fn what_is_told_to_others_or_found_early_is_told_to_the_next_sync_of_home() {
        let (all, by) = (Unsynced::default(), unsyncable());
        all.written(ONE, &by);
        all.was_told(ONE, &by, &io::ErrorKind::Other.into());
        assert_eq!((lost(&all), lost(&all)), (vec![ONE], vec![]));
        all.written(OTHER, &unsyncable());
        all.leave_name(OTHER);
        assert!(!all.has_others(OTHER, &by));
        assert_eq!((lost(&all), lost(&all)), (vec![OTHER], vec![]));
    }

    #[test]
    fn a_sync_that_began_before_a_loss_is_told_of_it() {
        let all = Unsynced::default();
        let before = all.lock().lost;
        all.lock().loses(ONE, ErrorKind::Io);
        all.lock().loses(OTHER, ErrorKind::NoSpace);
        assert_eq!(all.lock().lost_since(before).len(), 2);
        assert_eq!(all.lock().lost_since(before + 1), [(OTHER, ErrorKind::NoSpace)]);
        for _ in 0..2 * LOSSES_MAX {
            all.lock().loses(ONE, ErrorKind::Io);
        }
        assert_eq!(all.lock().lost_since(before).len(), LOSSES_MAX);
    }

    #[test]
    fn more_than_so_many_descriptions_are_not_kept() {
        let all = Unsynced::default();
        let crowded: Vec<bool> =
            (0..=KEPT_MAX + 1).map(|file| all.written(FileId(file as u64), &syncable())).collect();
        let first = crowded.iter().position(|&is| is);
        assert_eq!((first, crowded.iter().filter(|&&is| is).count()), (Some(KEPT_MAX), 1));
        all.sync_some();
        assert!(all.lock().kept <= KEPT_MAX / 2 && !all.lock().is_crowded);
        assert_eq!(lost(&all), []);
    }
}
