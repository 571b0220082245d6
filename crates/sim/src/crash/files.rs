//! The files at home, on a disk that forgets: for each what is durable, and what was done since.

use weir_log::Home;

use super::edit::Edit;
use crate::rng::Rng;

const SECTOR_BYTES: usize = 512;

/// One file at home.
#[derive(Clone, Default)]
pub(super) struct HomeFile {
    durable: Vec<u8>,
    since: Vec<Change>,
    last: u64,
}

/// Something done to a file that is not known to be durable.
#[derive(Clone)]
struct Change {
    id: u64,
    /// A write is under way until it ended; then a sync covers it.
    ended: bool,
    edit: Edit,
}

impl HomeFile {
    pub(super) fn new(content: Vec<u8>) -> HomeFile {
        HomeFile { durable: content, since: Vec::new(), last: 0 }
    }

    /// As a reader finds it.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        for change in &self.since {
            change.edit.apply(&mut content);
        }
        content
    }

    fn push(&mut self, ended: bool, edit: Edit) -> u64 {
        self.last += 1;
        self.since.push(Change { id: self.last, ended, edit });
        self.last
    }

    pub(super) fn begin_write(&mut self, offset: usize, bytes: Vec<u8>) -> u64 {
        self.push(false, Edit::Write { offset, bytes })
    }

    pub(super) fn end_write(&mut self, id: u64) {
        // A sync that began later may have made it durable already.
        if let Some(change) = self.since.iter_mut().find(|change| change.id == id) {
            change.ended = true;
        }
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.push(true, Edit::Size(size));
    }

    pub(super) fn zero(&mut self, from: usize, to: usize) {
        self.push(true, Edit::Zero { from, to });
    }

    /// Edit a sync that begins now will make durable.
    pub(super) fn begin_sync(&self) -> Vec<u64> {
        self.since.iter().filter(|change| change.ended).map(|change| change.id).collect()
    }

    pub(super) fn end_sync(&mut self, covered: &[u64]) {
        // In order: what is left out was under way when the sync began, and touches nothing that
        // came after it.
        let mut durable = std::mem::take(&mut self.durable);
        self.since.retain(|change| {
            let covers = covered.contains(&change.id);
            if covers {
                change.edit.apply(&mut durable);
            }
            !covers
        });
        self.durable = durable;
    }

    /// Edit is left when the power goes. Sizes and holes are journaled in order: what comes after one
    /// that is lost is lost, too.
    pub(super) fn cut(&self, rng: &mut Rng) -> Vec<u8> {
        let mut content = self.durable.clone();
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
                other if rng.chance(700) => other.apply(&mut content),
                _ => break,
            }
        }
        content
    }
}

/// All files, as replay finds them; cut after so many of its writes.
pub(super) struct Recovering {
    pub(super) files: Vec<HomeFile>,
    pub(super) writes_left: Option<u64>,
}

/// The power went.
#[derive(Debug, thiserror::Error)]
#[error("the power is cut")]
pub(super) struct PowerCut;

impl Recovering {
    pub(super) fn new(contents: Vec<Vec<u8>>) -> Recovering {
        let files = contents.into_iter().map(HomeFile::new).collect();
        Recovering { files, writes_left: None }
    }

    fn step(&mut self) -> Result<(), PowerCut> {
        match &mut self.writes_left {
            Some(0) => Err(PowerCut),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// One file of a life, to which its records are written again.
pub(super) struct Redo<'a> {
    pub(super) file: usize,
    pub(super) home: &'a mut HomeFile,
}

impl Home for Redo<'_> {
    type File = ();
    type Error = PowerCut;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<()>, PowerCut> {
        Ok((identity(self.file) == wanted).then_some(()))
    }

    fn write(&mut self, (): &(), offset: u64, data: &[u8]) -> Result<(), PowerCut> {
        let id = self.home.begin_write(offset as usize, data.to_vec());
        self.home.end_write(id);
        Ok(())
    }

    fn truncate(&mut self, (): &(), size: u64) -> Result<(), PowerCut> {
        self.home.set_size(size as usize);
        Ok(())
    }

    fn sync(&mut self, (): &()) -> Result<(), PowerCut> {
        Ok(())
    }
}

/// How the log names a file.
pub(super) fn identity(file: usize) -> Vec<u8> {
    format!("file {file}").into_bytes()
}

impl Home for Recovering {
    type File = usize;
    type Error = PowerCut;

    fn open(&mut self, wanted: &[u8]) -> Result<Option<usize>, PowerCut> {
        Ok((0..self.files.len()).find(|&file| identity(file) == wanted))
    }

    fn write(&mut self, file: &usize, offset: u64, data: &[u8]) -> Result<(), PowerCut> {
        self.step()?;
        let id = self.files[*file].begin_write(offset as usize, data.to_vec());
        self.files[*file].end_write(id);
        Ok(())
    }

    fn truncate(&mut self, file: &usize, size: u64) -> Result<(), PowerCut> {
        self.step()?;
        self.files[*file].set_size(size as usize);
        Ok(())
    }

    fn sync(&mut self, file: &usize) -> Result<(), PowerCut> {
        self.step()?;
        let covered = self.files[*file].begin_sync();
        self.files[*file].end_sync(&covered);
        Ok(())
    }
}
