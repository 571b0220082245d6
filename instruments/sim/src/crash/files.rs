//! The files at home, on a disk that forgets: for each what is durable, and what was done since.
//!
//! A failing home behaves as Linux does: it drops some of what is not durable yet, reports that once, to the
//! next sync, and forgets the error. Readers still see the dropped data until the power is cut.

use weir_log::Home;

use super::edit::{Edit, Image, Version, Versions};
use super::history::History;
use super::plan::Homes;
use crate::rng::Rng;

const SECTOR_BYTES: usize = 512;

/// One file at home.
#[derive(Clone, Default)]
pub(crate) struct HomeFile {
    durable: Image,
    /// The content as a reader sees it: all completed changes.
    seen: Image,
    /// Changes that are not durable, without dropped bytes.
    since: Vec<Change>,
    last: u64,
    /// Something was dropped, and no sync of the file has reported it.
    error: bool,
    /// As above, for a sync of the file system by the log, and by programs.
    system_error: [bool; 2],
}

/// A caller that syncs the whole file system: Linux reports an error once to each.
#[derive(Clone, Copy)]
pub(crate) enum SyncedBy {
    Log,
    Programs,
}

/// Something done to a file that is not known to be durable.
#[derive(Clone)]
struct Change {
    id: u64,
    /// A write is under way until it ended; then a sync covers it.
    ended: bool,
    /// It was dropped while it was under way.
    dropped: bool,
    edit: Edit,
    versions: Versions,
}

/// A sync of home failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncFailed;

impl HomeFile {
    pub(crate) fn new(content: &[u8]) -> HomeFile {
        let image = Image::new(content);
        HomeFile { durable: image.clone(), seen: image, ..HomeFile::default() }
    }

    /// The least that a power cut leaves of the file.
    pub(crate) fn durable(&self) -> &Image {
        &self.durable
    }

    /// Everything written to the file: the least that a kill of the daemon leaves.
    pub(crate) fn seen(&self) -> &Image {
        &self.seen
    }

    /// As a reader finds it.
    pub(crate) fn content(&self) -> &[u8] {
        self.seen.content()
    }

    fn push(&mut self, ended: bool, edit: Edit, versions: Versions) -> u64 {
        self.last += 1;
        if ended {
            self.seen.apply(&edit, &versions);
        }
        self.since.push(Change { id: self.last, ended, dropped: false, edit, versions });
        self.last
    }

    pub(crate) fn begin_write(&mut self, offset: usize, bytes: Vec<u8>, versions: Versions) -> u64 {
        self.push(false, Edit::Write { offset, bytes }, versions)
    }

    pub(crate) fn end_write(&mut self, id: u64) {
        let change = self.since.iter_mut().find(|change| change.id == id);
        let change = change.expect("a write under way is in the list");
        change.ended = true;
        self.seen.apply(&change.edit, &change.versions);
        if let (true, Edit::Write { offset, bytes }) = (change.dropped, &change.edit) {
            change.edit = Edit::Grow(offset + bytes.len());
        }
    }

    /// Whether a power cut would lose nothing of the file.
    pub(crate) fn is_durable(&self) -> bool {
        self.since.is_empty()
    }

    pub(crate) fn set_size(&mut self, size: usize, version: Version) {
        self.push(true, Edit::Size(size), Versions::All(version));
    }

    pub(crate) fn zero(&mut self, from: usize, to: usize, version: Version) {
        self.push(true, Edit::Zero { from, to }, Versions::All(version));
    }

    /// The changes that a sync starting now will make durable.
    pub(crate) fn begin_sync(&self) -> Vec<u64> {
        self.since.iter().filter(|change| change.ended).map(|change| change.id).collect()
    }

    /// A sync of the file ends.
    pub(crate) fn end_sync(&mut self, covered: &[u64]) -> Result<(), SyncFailed> {
        if std::mem::take(&mut self.error) {
            return Err(SyncFailed);
        }
        self.settle(covered);
        Ok(())
    }

    /// Whether something was dropped since the last report of that to `by`.
    pub(crate) fn take_system_error(&mut self, by: SyncedBy) -> bool {
        std::mem::take(&mut self.system_error[by as usize])
    }

    /// A sync of the whole file system covered these changes.
    pub(crate) fn settle_quietly(&mut self, covered: &[u64]) {
        self.settle(covered);
    }

    /// The kernel wrote the file back by itself, and it is durable.
    pub(crate) fn written_back(&mut self) {
        self.settle(&self.begin_sync());
    }

    fn settle(&mut self, covered: &[u64]) {
        // In order: what is left out was under way when the sync began, and touches nothing that
        // came after it.
        let durable = &mut self.durable;
        self.since.retain(|change| {
            let covers = covered.contains(&change.id);
            if covers {
                durable.apply(&change.edit, &change.versions);
            }
            !covers
        });
    }

    /// A sync fails.
    pub(crate) fn fail(&mut self, homes: Homes, rng: &mut Rng) {
        match homes {
            Homes::Keep => (self.error, self.system_error) = (true, [true; 2]),
            Homes::Work | Homes::Drop => self.drop_some(rng),
        }
    }

    /// Drops some of the written sectors that are not durable: readers see them, but they never become
    /// durable.
    pub(crate) fn drop_some(&mut self, rng: &mut Rng) {
        (self.error, self.system_error) = (true, [true; 2]);
        let likely = *rng.pick(&[200, 500, 1000]);
        for mut change in std::mem::take(&mut self.since) {
            let Edit::Write { offset, bytes } = &change.edit else {
                self.since.push(change);
                continue;
            };
            if !change.ended {
                // The kernel has its bytes before the call returns.
                change.dropped |= change.id.is_multiple_of(2);
                self.since.push(change);
                continue;
            }
            if !rng.chance(700) {
                self.since.push(change);
                continue;
            }
            for (nth, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                let (from, to) = (nth * SECTOR_BYTES, nth * SECTOR_BYTES + sector.len());
                if !rng.chance(likely) {
                    let edit = Edit::Write { offset: offset + from, bytes: sector.to_vec() };
                    let versions = change.versions.part(from, to);
                    self.since.push(Change { edit, versions, ..change });
                }
            }
            // The file's size is in the journal and is not lost.
            change.edit = Edit::Grow(offset + bytes.len());
            self.since.push(change);
        }
    }

    /// What is left when the power goes. Sizes and holes are journaled in order: what comes after one
    /// that is lost is lost, too.
    pub(crate) fn cut(&self, rng: &mut Rng) -> HomeFile {
        let mut content = self.durable.content().to_vec();
        let likely = *rng.pick(&[0, 500, 1000]);
        for change in &self.since {
            match &change.edit {
                Edit::Write { offset, bytes } => {
                    let grows = rng.chance(500);
                    for (nth, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        let at = offset + nth * SECTOR_BYTES;
                        let end = at + sector.len();
                        if rng.chance(likely) && (grows || end <= content.len()) {
                            content.resize(content.len().max(end), 0);
                            content[at..end].copy_from_slice(sector);
                        }
                    }
                }
                Edit::Size(size) if rng.chance(700) => content.resize(*size, 0),
                Edit::Zero { from, to } if rng.chance(700) => {
                    let to = (*to).min(content.len());
                    content[(*from).min(to)..to].fill(0);
                }
                Edit::Grow(size) if rng.chance(700) => content.resize(content.len().max(*size), 0),
                _ => break,
            }
        }
        HomeFile::new(&content)
    }

    /// The file after a kill of the daemon: all completed writes, and any sectors of those under way.
    pub(crate) fn kill(&self, rng: &mut Rng) -> HomeFile {
        let mut left = self.clone();
        for change in left.since.iter_mut().filter(|change| !change.ended) {
            let Edit::Write { bytes, .. } = &mut change.edit else {
                unreachable!("only writes take time")
            };
            let sectors = bytes.len().div_ceil(SECTOR_BYTES) as u64;
            let some = rng.below(sectors + 1);
            let kept = *rng.pick(&[0, some, sectors]) as usize;
            bytes.truncate(kept * SECTOR_BYTES);
            change.ended = true;
            if bytes.is_empty() {
                change.edit = Edit::Grow(0);
            } else {
                change.versions = change.versions.part(0, bytes.len());
            }
            left.seen.apply(&change.edit, &change.versions);
        }
        left
    }

    /// Begins a new history from the durable content and the changes since.
    pub(crate) fn begin_history(&mut self) -> History {
        let mut history = History::new(self.durable.content());
        self.durable.forget_versions();
        // Dropped data is no longer in the page cache.
        self.seen = self.durable.clone();
        (self.error, self.system_error) = (false, [false; 2]);
        for change in &mut self.since {
            change.versions = Versions::All(history.did(change.edit.clone()));
            self.seen.apply(&change.edit, &change.versions);
        }
        history
    }
}

/// Ends a sync of the file system, or reports that something was dropped since the last report to `by`. `covered`
/// has the changes that the sync covers, for each file.
pub(crate) fn end_sync_of_all(
    homes: &mut [HomeFile],
    covered: &[Vec<u64>],
    by: SyncedBy,
) -> Result<(), SyncFailed> {
    let errors = homes.iter_mut().map(|home| std::mem::take(&mut home.system_error[by as usize]));
    let failed = errors.fold(false, |failed, error| failed | error);
    if failed {
        return Err(SyncFailed);
    }
    for (home, covered) in homes.iter_mut().zip(covered) {
        home.settle(covered);
    }
    Ok(())
}

/// All files, as replay finds them; can be stopped after a number of writes.
pub(crate) struct Recovering {
    pub(crate) files: Vec<HomeFile>,
    /// Which files have no name any more.
    gone: Vec<bool>,
    pub(crate) writes_left: Option<u64>,
}

/// Recovery was interrupted by a power cut or a kill.
#[derive(Debug, thiserror::Error)]
#[error("recovery is stopped")]
pub(crate) struct Stopped;

impl Recovering {
    pub(crate) fn new(files: Vec<HomeFile>, gone: Vec<bool>) -> Recovering {
        Recovering { files, gone, writes_left: None }
    }

    fn step(&mut self) -> Result<(), Stopped> {
        step(&mut self.writes_left)
    }
}

fn step(writes_left: &mut Option<u64>) -> Result<(), Stopped> {
    match writes_left {
        Some(0) => Err(Stopped),
        Some(left) => {
            *left -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

/// The home of one file, for a redo of its records.
pub(crate) struct Redo<'a> {
    pub(crate) file: usize,
    pub(crate) home: &'a mut HomeFile,
    pub(crate) history: &'a History,
    /// The redo fails after this many writes.
    pub(crate) writes_left: Option<u64>,
}

impl Home for Redo<'_> {
    type File = ();
    type Error = Stopped;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<()>, Stopped> {
        Ok((identity(self.file) == wanted).then_some(()))
    }

    fn write(&mut self, (): &(), offset: u64, data: &[u8]) -> Result<(), Stopped> {
        step(&mut self.writes_left)?;
        let offset = offset as usize;
        let versions = self.history.versions_of(offset, data, self.home.seen());
        let id = self.home.begin_write(offset, data.to_vec(), versions);
        self.home.end_write(id);
        Ok(())
    }

    fn truncate(&mut self, (): &(), _: u64) -> Result<(), Stopped> {
        unreachable!("the log has no records of truncations")
    }

    fn sync(&mut self, (): &()) -> Result<(), Stopped> {
        Ok(())
    }
}

/// How the log names a file.
pub(crate) fn identity(file: usize) -> Vec<u8> {
    format!("file {file}").into_bytes()
}

impl Home for Recovering {
    type File = usize;
    type Error = Stopped;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<usize>, Stopped> {
        Ok((0..self.files.len()).find(|&file| !self.gone[file] && identity(file) == wanted))
    }

    fn write(&mut self, file: &usize, offset: u64, data: &[u8]) -> Result<(), Stopped> {
        self.step()?;
        let home = &mut self.files[*file];
        let id = home.begin_write(offset as usize, data.to_vec(), Versions::All(0));
        home.end_write(id);
        Ok(())
    }

    fn truncate(&mut self, file: &usize, size: u64) -> Result<(), Stopped> {
        self.step()?;
        self.files[*file].set_size(size as usize, 0);
        Ok(())
    }

    fn sync(&mut self, file: &usize) -> Result<(), Stopped> {
        self.step()?;
        let covered = self.files[*file].begin_sync();
        // An error that was reported to the killed daemon is reported again to its successor, which syncs
        // again.
        self.files[*file].settle(&covered);
        Ok(())
    }
}
