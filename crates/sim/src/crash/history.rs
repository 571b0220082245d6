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

/// One change to a file.
#[derive(Clone, Debug)]
struct Done {
    edit: Edit,
    /// It was promised to be durable by itself, whatever becomes of those before it.
    promised: bool,
}

/// One file's history since the content that is known to be durable.
#[derive(Clone, Debug)]
pub(super) struct History {
    durable: Vec<u8>,
    since: Vec<Done>,
    /// Things forgotten since the beginning, for positions to stay good.
    forgotten: usize,
}

impl History {
    pub(super) fn new(content: Vec<u8>) -> History {
        History { durable: content, since: Vec::new(), forgotten: 0 }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.did(Edit::Write { offset, bytes: bytes.to_vec() });
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.did(Edit::Size(size));
    }

    pub(super) fn zero(&mut self, from: usize, to: usize) {
        self.did(Edit::Zero { from, to });
    }

    fn did(&mut self, edit: Edit) {
        self.since.push(Done { edit, promised: false });
    }

    /// As programs see it.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        for done in &self.since {
            done.edit.apply(&mut content);
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
            done.edit.apply(&mut self.durable);
        }
        self.forgotten += count;
    }

    /// The durable write that was the last change before `position` was acknowledged.
    pub(super) fn wrote_durably(&mut self, position: usize) {
        if let Some(last) = position.checked_sub(self.forgotten + 1) {
            self.since[last].promised = true;
        }
    }

    /// Whether `found` may be left after a cut.
    pub(super) fn check(&self, file: usize, found: &[u8], cut: u64) -> Result<(), Broken> {
        let mut sizes = vec![self.durable.len()];
        let mut size = self.durable.len();
        for done in &self.since {
            match &done.edit {
                Edit::Write { offset, bytes } => {
                    let end = offset + bytes.len();
                    size = size.max(end);
                    if done.promised {
                        sizes.iter_mut().for_each(|size| *size = end.max(*size));
                    }
                }
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
        if let Some(at) = self.are_allowed(found).iter().position(|&allowed| !allowed) {
            let with = |byte| {
                let mut found = found.to_vec();
                found[at] = byte;
                self.are_allowed(&found)[at]
            };
            let allowed = (0..=255).filter(|&byte| with(byte)).collect();
            return Err(Broken::Byte { file, at, found: found[at], allowed, cut });
        }
        Ok(())
    }

    /// Which of the bytes may be what is left.
    fn are_allowed(&self, found: &[u8]) -> Vec<bool> {
        let durable = self.durable.iter().chain(std::iter::repeat(&0));
        let mut allowed: Vec<bool> = found.iter().zip(durable).map(|(a, b)| a == b).collect();
        let zeros = |allowed: &mut [bool], from: usize, to: usize| {
            for at in from..to.min(found.len()) {
                allowed[at] |= found[at] == 0;
            }
        };
        for done in &self.since {
            match &done.edit {
                Edit::Write { offset, bytes } => {
                    for (at, byte) in (*offset..found.len()).zip(bytes) {
                        let equal = found[at] == *byte;
                        // What was promised replaced what was before it.
                        allowed[at] = equal || (allowed[at] && !done.promised);
                    }
                }
                Edit::Size(size) => zeros(&mut allowed, *size, found.len()),
                Edit::Zero { from, to } => zeros(&mut allowed, *from, *to),
            }
        }
        allowed
    }
}
