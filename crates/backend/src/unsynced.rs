//! What was written to a FUSE home and not synced there. syncfs(2) does not reach the server of such a home, which may also say
//! that it has a write before it has it (sshfs): that it did not get it, it says to the next sync of the open description by which that
//! was written, and to nobody else. So those descriptions are kept until home is synced, which syncs each.
//!
//! Owns the descriptions by which files were written since they were synced with home. Does not own those files, which may be closed.
//!
//! Who syncs takes descriptions out, and numbers that. A sync that finds others at it waits for those that took out before it, of its
//! own files alone: what was written before it is synced when it ends, by whomever.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::fdatasync;
use rustix::io::Errno;
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
    /// Somebody has synced a file.
    synced: Condvar,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<FileId, Vec<Arc<OwnedFd>>>,
    /// Descriptions in `files`.
    kept: usize,
    /// How often some were taken out.
    taken: u64,
    /// By the number of that: the files that are not synced yet.
    under_way: BTreeMap<u64, HashSet<FileId>>,
    /// Files of which home did not have what it had said, and the last such loss.
    losses: HashMap<FileId, Loss>,
    /// How many losses there were.
    lost: u64,
    /// The last one of each file of which the engine does not know, and that no sync of the file has failed with.
    unheard: HashMap<FileId, u64>,
    /// Losses after this one were told to no sync of home.
    told: u64,
    /// Syncs of home that have failed and of which the engine does not know yet.
    telling: usize,
    /// Such syncs of which it knows.
    failed: u64,
    /// A worker is to sync some, or does.
    is_crowded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    number: u64,
    kind: ErrorKind,
    /// A sync of the file has failed with it.
    is_heard: bool,
}

/// A sync of home failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The files of which home has not all data that was written since they were synced, but those whose own syncs were told.
    pub files: Vec<FileId>,
    /// The number of the last loss.
    pub(crate) last: u64,
}

/// What is known when a sync of a file begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    lost: u64,
    taken: u64,
    /// Nothing was written by its description.
    is_unused: bool,
}

impl Unsynced {
    /// Of a home that needs it.
    pub fn of(source: BorrowedFd<'_>) -> Option<Arc<Unsynced>> {
        is_fuse(source).then(Arc::default)
    }

    /// A file is written by a description. To be called before, since another sync may be told what becomes of the write; and after, since
    /// it may have been synced between. Says whether [`Unsynced::sync_some`] is to be called.
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

    /// A sync of a file by a description begins.
    pub(crate) fn begin(&self, file: FileId, by: &Arc<OwnedFd>) -> Begun {
        let state = self.lock();
        let is_unused = !state.is_kept(file, by) && !state.is_out(file, u64::MAX);
        Begun { lost: state.lost, taken: state.taken, is_unused }
    }

    /// Whether nothing was written by the description of a sync, which therefore has nothing to fail with but itself.
    pub(crate) fn is_unused(&self, begun: &Begun, file: FileId, by: &Arc<OwnedFd>) -> bool {
        let state = self.lock();
        begun.is_unused && begun.taken == state.taken && !state.is_kept(file, by)
    }

    /// A sync of a file by a description failed: the file is told what home did not have.
    pub(crate) fn was_told(&self, file: FileId, by: &Arc<OwnedFd>, error: &io::Error) {
        let mut state = self.lock();
        let _ = state.take(file, |known| Arc::ptr_eq(known, by));
        state.loses(file, error_kind(error), true);
    }

    /// The engine knows that a sync of home has failed, and of the losses of some of the files.
    pub fn are_told(&self, lost: &Lost, files: &[FileId]) {
        let mut state = self.lock();
        for file in files {
            if state.unheard.get(file).is_some_and(|&number| number <= lost.last) {
                state.unheard.remove(file);
            }
        }
        state.telling -= 1;
        state.failed += 1;
    }

    /// Syncs of home that have failed, by whomever they were asked for; `None` while the engine does not know of one.
    pub(crate) fn failed(&self) -> Option<u64> {
        let state = self.lock();
        (state.telling == 0).then_some(state.failed)
    }

    /// Whether more is to be synced for a file than the description `by`, or to be asked of others.
    pub(crate) fn has_others(&self, file: FileId, by: &Arc<OwnedFd>) -> bool {
        let state = self.lock();
        let mut others = state.files.get(&file).into_iter().flatten();
        state.has_news(file) || others.any(|other| !Arc::ptr_eq(other, by))
    }

    /// Whether others sync a file, or have found a loss of it of which it does not know, or since the sync began.
    pub(crate) fn has_news(&self, file: FileId, begun: &Begun) -> bool {
        let state = self.lock();
        let is_new = |loss: &Loss| loss.number > begun.lost;
        state.has_news(file) || state.losses.get(&file).is_some_and(is_new)
    }

    /// Syncs a file by all descriptions by which it was written but `by`.
    ///
    /// # Errors
    /// Those of fdatasync(2): of what was written since the file was synced some is not at home.
    pub(crate) fn sync_others(
        &self,
        file: FileId,
        by: &Arc<OwnedFd>,
        begun: &Begun,
    ) -> io::Result<()> {
        let (number, others) = self.lock().take_out(file, |known| !Arc::ptr_eq(known, by));
        let mut failed = Ok(());
        if !others.is_empty() {
            failed = sync_all(&others);
            self.came_back(number, file, failed.as_ref().err(), true);
        }
        let found = self.find(file, begun);
        failed.and(found)
    }

    /// Waits until others have synced a file what they took out of it.
    ///
    /// # Errors
    /// EIO: since the sync began, or before without a sync of the file having failed with it, home was found to lack something.
    pub(crate) fn find(&self, file: FileId, begun: &Begun) -> io::Result<()> {
        let mut state = self.lock();
        let before = state.taken;
        while state.is_out(file, before) {
            state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Whom it was told to first may not have been a sync of this file.
        let was_unheard = state.unheard.remove(&file).is_some();
        match state.losses.get_mut(&file) {
            Some(loss) if was_unheard || loss.number > begun.lost => {
                loss.is_heard = true;
                Err(Errno::IO.into())
            }
            _ => Ok(()),
        }
    }

    /// Syncs all that was written.
    ///
    /// # Errors
    /// The files of which home does not have all that was written since it was synced, with the first one's error.
    /// [`Unsynced::are_told`] follows.
    pub(crate) fn sync(&self) -> Result<(), (Lost, ErrorKind)> {
        let (files, number, before) = {
            let mut state = self.lock();
            state.kept = 0;
            let files: Vec<Written> = std::mem::take(&mut state.files).into_iter().collect();
            let number = state.goes_out(files.iter().map(|(file, _)| *file));
            (files, number, state.told)
        };
        self.sync_out(number, &files);
        let mut state = self.lock();
        while state.under_way.first_key_value().is_some_and(|(&first, _)| first <= number) {
            state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let found = state.lost_since(before);
        state.told = state.lost;
        let Some((_, Loss { kind, .. })) = found.first() else { return Ok(()) };
        state.telling += 1;
        let unheard = found.iter().filter(|(_, loss)| !loss.is_heard).map(|(file, _)| *file);
        Err((Lost { files: unheard.collect(), last: state.lost }, *kind))
    }

    /// Syncs some, until few enough are kept. What is lost is told to the next sync of home.
    pub(crate) fn sync_some(&self) {
        loop {
            let (number, some) = {
                let mut state = self.lock();
                if state.kept <= KEPT_MAX / 2 {
                    state.is_crowded = false;
                    return;
                }
                let files: Vec<FileId> = state.files.keys().copied().take(AT_ONCE).collect();
                let number = state.goes_out(files.iter().copied());
                let some = files.into_iter().map(|file| (file, state.take(file, |_| true)));
                (number, some.collect::<Vec<_>>())
            };
            self.sync_out(number, &some);
        }
    }

    /// Home is to lose a name of a file: a description of it would keep the file there (libfuse(3) renames it), so it is synced and
    /// let go. What is lost is told to the next sync of home.
    pub fn leave_name(&self, file: FileId) {
        let (number, written) = self.lock().take_out(file, |_| true);
        if !written.is_empty() {
            self.sync_out(number, &[(file, written)]);
        }
        let mut state = self.lock();
        while state.is_out(file, number) {
            state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Syncs what was taken out under this number.
    fn sync_out(&self, number: u64, files: &[Written]) {
        let of_share = |files: &[Written]| {
            for (file, by) in files {
                let synced = sync_all(by);
                self.came_back(number, *file, synced.as_ref().err(), false);
            }
        };
        if files.len() < 2 {
            return of_share(files);
        }
        thread::scope(|scope| {
            for files in files.chunks(files.len().div_ceil(AT_ONCE)) {
                scope.spawn(move || of_share(files));
            }
        });
    }

    /// A file that was taken out is synced, unless that failed; whether the file's own sync was told that.
    fn came_back(&self, number: u64, file: FileId, failed: Option<&io::Error>, is_told: bool) {
        let mut state = self.lock();
        if let Some(error) = failed {
            state.loses(file, error_kind(error), is_told);
            if !is_told {
                let lost = state.lost;
                state.unheard.insert(file, lost);
            }
        }
        if let Some(files) = state.under_way.get_mut(&number) {
            files.remove(&file);
            if files.is_empty() {
                state.under_way.remove(&number);
            }
        }
        drop(state);
        self.synced.notify_all();
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

    /// As [`State::take`], to be synced; the number of that.
    fn take_out(
        &mut self,
        file: FileId,
        which: impl Fn(&Arc<OwnedFd>) -> bool,
    ) -> (u64, Vec<Arc<OwnedFd>>) {
        let taken = self.take(file, which);
        (self.goes_out((!taken.is_empty()).then_some(file)), taken)
    }

    /// Numbers that descriptions of files are taken out.
    fn goes_out(&mut self, files: impl IntoIterator<Item = FileId>) -> u64 {
        let files: HashSet<FileId> = files.into_iter().collect();
        if !files.is_empty() {
            self.taken += 1;
            self.under_way.insert(self.taken, files);
        }
        self.taken
    }

    /// Whether a file was taken out and is not synced, up to this number.
    fn is_out(&self, file: FileId, upto: u64) -> bool {
        self.under_way.range(..=upto).any(|(_, files)| files.contains(&file))
    }

    fn is_kept(&self, file: FileId, by: &Arc<OwnedFd>) -> bool {
        self.files.get(&file).into_iter().flatten().any(|known| Arc::ptr_eq(known, by))
    }

    fn has_news(&self, file: FileId) -> bool {
        self.is_out(file, u64::MAX) || self.unheard.contains_key(&file)
    }

    fn loses(&mut self, file: FileId, kind: ErrorKind, is_heard: bool) {
        self.lost += 1;
        self.losses.insert(file, Loss { number: self.lost, kind, is_heard });
    }

    /// The files with losses after the first `before`, in the order of the last ones.
    fn lost_since(&self, before: u64) -> Vec<(FileId, Loss)> {
        let new = self.losses.iter().filter(|(_, loss)| loss.number > before);
        let mut new: Vec<_> = new.map(|(file, loss)| (*file, *loss)).collect();
        new.sort_by_key(|(_, loss)| loss.number);
        new
    }
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
        all.sync().err().map(|(lost, _)| lost.files).unwrap_or_default()
    }

    /// Whether a sync of home fails.
    fn fails(all: &Unsynced) -> bool {
        all.sync().is_err()
    }

    /// A whole sync of a file by `by`, but for `by` itself.
    fn sync_others(all: &Unsynced, file: FileId, by: &Arc<OwnedFd>) -> io::Result<()> {
        all.sync_others(file, by, &all.begin(file, by))
    }

    #[test]
    fn what_was_written_by_a_description_that_is_not_used_any_more_is_synced_too() {
        let (all, now) = (Unsynced::default(), syncable());
        assert!(!all.has_others(ONE, &now));
        all.written(ONE, &now);
        assert!(!all.has_others(ONE, &now));
        all.written(ONE, &unsyncable());
        assert!(all.has_others(ONE, &now));
        assert!(sync_others(&all, ONE, &now).is_err());
        assert!(!all.has_others(ONE, &now) && sync_others(&all, ONE, &now).is_ok());
        // The next sync of home does not say that home has it; the file knows.
        let (lost, _) = all.sync().unwrap_err();
        assert!(lost.files.is_empty() && !fails(&all));
    }

    #[test]
    fn a_sync_of_home_says_which_files_it_failed_for() {
        let all = Unsynced::default();
        all.written(ONE, &syncable());
        all.written(OTHER, &unsyncable());
        assert_eq!((lost(&all), lost(&all)), (vec![OTHER], vec![]));
        // So does a sync of that file, once.
        assert!(all.lock().has_news(OTHER) && !all.lock().has_news(ONE));
        assert!(all.has_others(OTHER, &syncable()));
        assert!(sync_others(&all, OTHER, &syncable()).is_err());
        assert!(sync_others(&all, OTHER, &syncable()).is_ok());
    }

    #[test]
    fn a_loss_that_the_engine_knows_is_told_to_no_other_sync_of_the_file() {
        let all = Unsynced::default();
        all.written(ONE, &unsyncable());
        all.written(OTHER, &unsyncable());
        let (lost, _) = all.sync().unwrap_err();
        // It does not hold the one.
        all.are_told(&lost, &[OTHER]);
        assert!(all.lock().has_news(ONE) && !all.lock().has_news(OTHER));
        assert!(sync_others(&all, OTHER, &syncable()).is_ok());
        // Of what was lost since it does not know.
        all.written(OTHER, &unsyncable());
        let _ = all.sync();
        all.lock().telling += 1;
        all.are_told(&lost, &[ONE, OTHER]);
        assert!(!all.lock().has_news(ONE) && sync_others(&all, OTHER, &syncable()).is_err());
    }

    #[test]
    fn what_is_told_to_others_or_found_early_is_told_to_the_next_sync_of_home() {
        let (all, by) = (Unsynced::default(), unsyncable());
        all.written(ONE, &by);
        all.was_told(ONE, &by, &io::ErrorKind::Other.into());
        assert!(fails(&all) && !fails(&all));
        all.written(OTHER, &unsyncable());
        all.leave_name(OTHER);
        assert!(sync_others(&all, OTHER, &by).is_err() && !all.has_others(OTHER, &by));
        assert!(fails(&all) && !fails(&all));
        // Nobody has heard of it.
        all.written(OTHER, &unsyncable());
        all.leave_name(OTHER);
        assert_eq!((lost(&all), lost(&all)), (vec![OTHER], vec![]));
    }

    #[test]
    fn a_sync_of_home_counts_as_failed_once_the_engine_knows() {
        let all = Unsynced::default();
        assert_eq!(all.failed(), Some(0));
        all.written(ONE, &unsyncable());
        let (lost, _) = all.sync().unwrap_err();
        assert_eq!(all.failed(), None);
        all.are_told(&lost, &[ONE]);
        assert_eq!(all.failed(), Some(1));
    }

    #[test]
    fn a_sync_that_began_before_a_loss_is_told_of_it() {
        let (all, by) = (Unsynced::default(), syncable());
        let before = all.lock().lost;
        let begun = all.begin(ONE, &by);
        all.lock().loses(ONE, ErrorKind::Io, true);
        all.lock().loses(OTHER, ErrorKind::NoSpace, true);
        let since = |number| {
            let found = all.lock().lost_since(number).into_iter();
            found.map(|(file, loss)| (file, loss.kind)).collect::<Vec<_>>()
        };
        assert_eq!(since(before), [(ONE, ErrorKind::Io), (OTHER, ErrorKind::NoSpace)]);
        assert_eq!(since(before + 1), [(OTHER, ErrorKind::NoSpace)]);
        assert!(all.find(ONE, &begun).is_err() && all.find(ONE, &all.begin(ONE, &by)).is_ok());
        all.lock().loses(ONE, ErrorKind::Io, true);
        assert_eq!(since(before + 2), [(ONE, ErrorKind::Io)]);
    }

    #[test]
    fn a_description_that_others_sync_meanwhile_may_have_been_written_by() {
        let (all, by) = (Unsynced::default(), syncable());
        let begun = all.begin(ONE, &by);
        assert!(all.is_unused(&begun, ONE, &by));
        all.written(ONE, &by);
        assert!(!all.is_unused(&begun, ONE, &by));
        // Home may have told this sync what it did not tell the other one.
        assert_eq!(lost(&all), []);
        assert!(!all.is_unused(&begun, ONE, &by));
        let begun = all.begin(ONE, &by);
        assert!(all.is_unused(&begun, ONE, &by));
        all.written(ONE, &by);
        let begun = all.begin(ONE, &by);
        assert_eq!(lost(&all), []);
        assert!(!all.is_unused(&begun, ONE, &by));
    }

    #[test]
    fn a_sync_waits_for_others_of_its_own_file_alone() {
        let (all, by) = (Unsynced::default(), syncable());
        for file in [ONE, OTHER] {
            all.written(file, &by);
        }
        let (number, taken) = all.lock().take_out(OTHER, |_| true);
        assert_eq!(taken.len(), 1);
        assert!(sync_others(&all, ONE, &by).is_ok());
        thread::scope(|scope| {
            let waiting = [
                scope.spawn(|| sync_others(&all, OTHER, &by).is_err()),
                scope.spawn(|| fails(&all)),
            ];
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
            let error = Errno::NOSPC.into();
            all.came_back(number, OTHER, Some(&error), false);
            assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap()));
        });
        assert!(all.lock().under_way.is_empty() && all.lock().files.is_empty());
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
