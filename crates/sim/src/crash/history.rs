//! What programs did to a file and were promised of it, and what may therefore be found after a cut.

use super::edit::Edit;

/// A promise that was not kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Broken {
    /// A byte that is neither what was synced nor anything written later.
    #[error("byte {at} of file {file} is {found:#x}; synced and later: {allowed:x?} (cut {cut})")]
    Byte {
        /// The file.
        file: usize,
        /// The byte.
        at: usize,
        /// What it is.
        found: u8,
        /// What it may be.
        allowed: Vec<u8>,
        /// Which cut.
        cut: u64,
    },
    /// The file is shorter or longer than it ever was since it was synced.
    #[error("file {file} has {found} bytes, and had between {least} and {most} (cut {cut})")]
    Size {
        /// The file.
        file: usize,
        /// Its size.
        found: usize,
        /// The smallest it may have.
        least: usize,
        /// The largest.
        most: usize,
        /// Which cut.
        cut: u64,
    },
    /// The log could not be replayed.
    #[error("the log cannot be replayed: {error} (cut {cut})")]
    Log {
        /// Why.
        error: String,
        /// Which cut.
        cut: u64,
    },
    /// A read or a sync answered wrongly, or never.
    #[error("{0}")]
    Answer(String),
}

/// One file's history since the content that is known to be durable.
#[derive(Clone, Debug)]
pub(super) struct History {
    durable: Vec<u8>,
    since: Vec<Edit>,
    /// Things forgotten since the beginning, for positions to stay good.
    forgotten: usize,
}

impl History {
    pub(super) fn new(content: Vec<u8>) -> History {
        History { durable: content, since: Vec::new(), forgotten: 0 }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.since.push(Edit::Write { offset, bytes: bytes.to_vec() });
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.since.push(Edit::Size(size));
    }

    pub(super) fn zero(&mut self, from: usize, to: usize) {
        self.since.push(Edit::Zero { from, to });
    }

    /// As programs see it.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        for done in &self.since {
            done.apply(&mut content);
        }
        content
    }

    /// Where a sync that begins now stands.
    pub(super) fn position(&self) -> usize {
        self.forgotten + self.since.len()
    }

    /// A sync that began at `position` was acknowledged.
    pub(super) fn synced(&mut self, position: usize) {
        let count = position.saturating_sub(self.forgotten);
        for done in self.since.drain(..count) {
            done.apply(&mut self.durable);
        }
        self.forgotten += count;
    }

    /// Whether `found` may be left after a cut.
    pub(super) fn check(&self, file: usize, found: &[u8], cut: u64) -> Result<(), Broken> {
        let mut sizes = vec![self.durable.len()];
        let mut size = self.durable.len();
        for done in &self.since {
            match done {
                Edit::Write { offset, bytes } => size = size.max(offset + bytes.len()),
                Edit::Size(to) => size = *to,
                Edit::Zero { .. } => {}
            }
            sizes.push(size);
        }
        let least = *sizes.iter().min().expect("there is one");
        let most = *sizes.iter().max().expect("there is one");
        if !(least..=most).contains(&found.len()) {
            return Err(Broken::Size { file, found: found.len(), least, most, cut });
        }
        for (at, &byte) in found.iter().enumerate() {
            if !self.allows(at, byte) {
                let allowed = (0..=255).filter(|&byte| self.allows(at, byte)).collect();
                return Err(Broken::Byte { file, at, found: byte, allowed, cut });
            }
        }
        Ok(())
    }

    fn allows(&self, at: usize, byte: u8) -> bool {
        if self.durable.get(at).copied().unwrap_or(0) == byte {
            return true;
        }
        self.since.iter().any(|done| match done {
            Edit::Write { offset, bytes } => {
                at.checked_sub(*offset).and_then(|at| bytes.get(at)) == Some(&byte)
            }
            Edit::Size(size) => byte == 0 && at >= *size,
            Edit::Zero { from, to } => byte == 0 && (*from..*to).contains(&at),
        })
    }
}
