//! What was written to a FUSE home and not synced there. syncfs(2) does not reach the server of such a home, which may also say
//! that it has a write before it has it (sshfs): that it did not get it, it says to the next sync of the open description by which that
//! was written, and to nobody else. So those descriptions are kept until home is synced, which syncs each.
//!
//! Owns the descriptions by which files were written since they were synced with home. Does not own those files, which may be closed.
//!
//! Lock order: `turn`, then `state`. Files are synced with `turn` held and `state` not: a thread that waited for `turn` then sees in
//! `state` what the thread before it found.

use std::collections::HashMap;
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
    /// Files of which home did not have what it had said: the number of the last such loss, and why.
    losses: HashMap<FileId, (u64, ErrorKind)>,
    /// How many losses there were.
    lost: u64,
    /// Those of them that no sync of the file has failed with, and that the engine does not know.
    unheard: HashMap<FileId, ErrorKind>,
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
        state.has_news(file) || kept.any(|known| Arc::ptr_eq(known, by))
    }

    /// Whether others sync files, or have found a loss of this one of which it does not know.
    pub(crate) fn has_news(&self, file: FileId) -> bool {
        self.lock().has_news(file)
    }

    /// The engine knows of these losses.
    pub(crate) fn are_told(&self, lost: &[FileId]) {
        let mut state = self.lock();
        for file in lost {
            state.unheard.remove(file);
        }
    }

    /// Whether more is to be synced for a file than the description `by`.
    pub(crate) fn has_others(&self, file: FileId, by: &Arc<OwnedFd>) -> bool {
        let state = self.lock();
        let mut others = state.files.get(&file).into_iter().flatten();
        state.has_news(file) || others.any(|other| !Arc::ptr_eq(other, by))
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
        // Whom it was told to first may not have been a sync of this file.
        let was_unheard = state.unheard.remove(&file).is_some();
        let is_lost = state.losses.get(&file).is_some_and(|&(number, _)| number > before);
        match was_unheard || is_lost {
            true => synced.and(Err(rustix::io::Errno::IO.into())),
            false => Ok(()),
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

    fn has_news(&self, file: FileId) -> bool {
        self.is_syncing || self.unheard.contains_key(&file)
    }

    fn loses(&mut self, file: FileId, kind: ErrorKind) {
        self.lost += 1;
        self.losses.insert(file, (self.lost, kind));
    }

    /// What was out was synced, but for these.
    fn note(&mut self, lost: Vec<(FileId, io::Error)>) {
        self.is_syncing = false;
        for (file, error) in lost {
            let kind = error_kind(&error);
            self.loses(file, kind);
            self.unheard.insert(file, kind);
        }
    }

    /// The files with losses after the first `before`, in the order of the last ones.
    fn lost_since(&self, before: u64) -> Vec<(FileId, ErrorKind)> {
        let new = self.losses.iter().filter(|(_, (number, _))| *number > before);
        let mut new: Vec<_> = new.map(|(file, (number, kind))| (*number, *file, *kind)).collect();
        new.sort_by_key(|(number, ..)| *number);
        new.into_iter().map(|(_, file, kind)| (file, kind)).collect()
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
        // So does a sync of that file, unless the engine knows already.
        assert!(all.has_news(OTHER) && !all.has_news(ONE));
        assert!(all.has_others(OTHER, &syncable()) && all.is_kept(OTHER, &syncable()));
        assert!(all.sync_others(OTHER, &syncable()).is_err());
        assert!(all.sync_others(OTHER, &syncable()).is_ok());
        all.written(OTHER, &unsyncable());
        assert_eq!(lost(&all), [OTHER]);
        all.are_told(&[OTHER]);
        assert!(all.sync_others(OTHER, &syncable()).is_ok() && !all.has_news(OTHER));
    }

    #[test]
    fn what_is_told_to_others_or_found_early_is_told_to_the_next_sync_of_home() {
        let (all, by) = (Unsynced::default(), unsyncable());
        all.written(ONE, &by);
        all.was_told(ONE, &by, &io::ErrorKind::Other.into());
        assert_eq!((lost(&all), lost(&all)), (vec![ONE], vec![]));
        all.written(OTHER, &unsyncable());
        all.leave_name(OTHER);
        assert!(all.sync_others(OTHER, &by).is_err() && !all.has_others(OTHER, &by));
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
        all.lock().loses(ONE, ErrorKind::Io);
        assert_eq!(all.lock().lost_since(before + 2), [(ONE, ErrorKind::Io)]);
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
