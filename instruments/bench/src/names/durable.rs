//! Small files made durable one by one: as a program writes its records, as an editor saves, as a mail server delivers.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Result};
use crate::workload::tree::{clear, sync};
use crate::workload::{Class, Job, Outcome, small_content, verify_small};

const SEED: u64 = 0x6475_7261;
const RECORD_BYTES: u64 = 1 << 10;
const DOCUMENT_BYTES_MAX: u64 = 8 << 10;
const MAIL_BYTES_MAX: u64 = 8 << 10;
/// Documents that are saved in turn.
const DOCUMENTS: u64 = 10;

/// What is done with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Create, write 1 KiB, fsync, close.
    Create,
    /// Write a temporary file, fsync, rename it over the document.
    SaveByRename,
    /// As maildir(5) asks: create in tmp, write, fsync, link into new, unlink from tmp.
    Deliver,
}

/// A number of files.
pub struct Durable {
    /// How.
    pub kind: Kind,
    /// How many times.
    pub count: u64,
}

impl Durable {
    /// Does it once.
    fn step(&self, directory: &Path, number: u64) -> Result<()> {
        let content = self.content(number);
        let place = self.place(directory, number);
        match self.kind {
            Kind::Create => write_durably(&place, &content),
            Kind::SaveByRename => {
                let new = place.with_extension("new");
                write_durably(&new, &content)?;
                fs::rename(&new, &place).doing("replace", &place)
            }
            Kind::Deliver => {
                let tmp = directory.join("tmp").join(place.file_name().unwrap_or_default());
                write_durably(&tmp, &content)?;
                fs::hard_link(&tmp, &place).doing("link", &place)?;
                fs::remove_file(&tmp).doing("remove", &tmp)
            }
        }
    }

    /// What is written.
    fn content(&self, number: u64) -> Vec<u8> {
        match self.kind {
            Kind::Create => {
                let mut content = small_content(SEED, number, RECORD_BYTES);
                content.resize(RECORD_BYTES as usize, 0);
                content
            }
            Kind::SaveByRename => small_content(SEED, number, DOCUMENT_BYTES_MAX),
            Kind::Deliver => small_content(SEED, number, MAIL_BYTES_MAX),
        }
    }

    /// Where it is found afterwards.
    fn place(&self, directory: &Path, number: u64) -> PathBuf {
        match self.kind {
            Kind::Create => directory.join(format!("record-{number}")),
            Kind::SaveByRename => directory.join(format!("document-{}.txt", number % DOCUMENTS)),
            Kind::Deliver => directory.join("new").join(format!("{number}.mail")),
        }
    }
}

impl Job for Durable {
    fn file_bytes(&self) -> u64 {
        self.count * DOCUMENT_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)?;
        match self.kind {
            Kind::Create => {}
            Kind::SaveByRename => {
                for number in 0..DOCUMENTS {
                    let place = self.place(home, number);
                    fs::write(&place, "as it was before").doing("write", &place)?;
                }
            }
            Kind::Deliver => {
                for name in ["tmp", "new"] {
                    let path = home.join(name);
                    fs::create_dir(&path).doing("create", &path)?;
                }
            }
        }
        sync(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        Outcome::of_each(Class::Transaction, self.count, |number| self.step(directory, number))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        // Of a document the last version alone is left.
        let kept = if self.kind == Kind::SaveByRename { DOCUMENTS } else { self.count };
        (self.count.saturating_sub(kept)..self.count)
            .try_for_each(|number| verify_small(&self.place(home, number), &self.content(number)))
    }
}

fn write_durably(path: &Path, content: &[u8]) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).doing("create", path)?;
    file.write_all(content).doing("write", path)?;
    file.sync_all().doing("sync", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    #[test]
    fn each_kind_leaves_what_it_wrote_and_nothing_else() {
        for (kind, left) in [(Kind::Create, 25), (Kind::SaveByRename, 10), (Kind::Deliver, 2)] {
            let home = tempfile::tempdir().unwrap();
            let durable = Durable { kind, count: 25 };
            durable.prepare(home.path()).unwrap();
            let outcome = durable.run(home.path()).unwrap();
            assert_eq!(outcome.class("transaction").unwrap().ops, 25);
            durable.verify(home.path(), &outcome).unwrap();
            assert_eq!(fs::read_dir(home.path()).unwrap().count(), left, "{kind:?}");
            fs::write(durable.place(home.path(), 24), "spoilt").unwrap();
            assert_different(durable.verify(home.path(), &outcome), "is not as written");
        }
    }
}
