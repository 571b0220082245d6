//! Readers and writers side by side, each with files of its own: the IOzone workloads of AWOL's
//! evaluation (paper 002, section 5), in operations of one page. This module defines the operations; the bench
//! executes them on files, [`crate::policy`] in virtual time.
//!
//! `order` has the access orders in a file, `zipf` is one of them, `schedule` says which clients run when.
//!
//! | the paper's | reader | writer |
//! |---|---|---|
//! | NRSW, NRZW | none | sequential, Zipf |
//! | SRSW, RRRW, ZRZW | sequential, random, Zipf | the same, on another file |
//! | NRVW | none | five to eight clients at any time, each sequential or Zipf |
//! | VRVW | one for each writer, with the same kind of access | the same |
//!
//! The paper's processes end when their gigabyte is done; here a load has a fixed time, in which a
//! writer wraps around. It is over early if a single sequential reader has read its file once: nothing
//! that it reads was in memory before. Each of the clients that come and go reads at most its file's
//! length in a session, so that not only memory is measured.
//!
//! Invariant: no two clients have a file in common, and no file that is read is written.

mod order;
mod schedule;
mod zipf;

use serde::{Deserialize, Serialize};
use weir_drive::Random;
use weir_engine::PAGE_BYTES;

pub use order::{Access, Order};
pub use schedule::{CLIENTS, Session};

const PAGE: u64 = PAGE_BYTES as u64;
/// The size of the smallest of several clients' files, as a share of the largest: the paper's have 100 to 512 MB.
const LEAST: (u64, u64) = (100, 512);
/// The seed of the sizes of several clients' files: the same for all loads, so that they can
/// share files.
const SIZE_SEED: u64 = 0x7369_7a65;
/// Distinguishes the orders of reads from those of writes.
const READS: u64 = 0x7265_6164;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideBySide {
    /// The reader's access, if there is a reader. It is variable exactly if the writer's is.
    pub reader: Option<Access>,
    /// The writer's access.
    pub writer: Access,
    /// Bytes of each file: whole pages. With several clients, the size of the largest file.
    pub file_bytes: u64,
    /// How long operations are started; the last ones are awaited and counted.
    pub seconds: f64,
    /// The mean time between changes where clients come and go.
    pub change_seconds: f64,
    /// The seed of orders, sessions and written bytes. The prepared content does not depend on it.
    pub seed: u64,
}

/// Reader and writer of the paper's seven workloads; those in a group share files.
pub const WORKLOADS: [(Option<Access>, Access); 7] = [
    (None, Access::Sequential),
    (Some(Access::Sequential), Access::Sequential),
    (None, Access::Zipf),
    (Some(Access::Random), Access::Random),
    (Some(Access::Zipf), Access::Zipf),
    (None, Access::Variable),
    (Some(Access::Variable), Access::Variable),
];

/// The kind of a client's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Reads its one file.
    Reads,
    /// Writes the other.
    Writes,
}

/// A writer, the reader beside it, if there is one, and their files.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its number.
    pub number: usize,
    /// Pages of each of its files.
    pub pages: u64,
    /// When it runs, and how.
    pub sessions: Vec<Session>,
    /// The seed of its orders.
    pub seed: u64,
}

impl Client {
    /// The orders of its sessions, of writes or of reads.
    pub fn orders(&self, side: Side) -> impl Iterator<Item = (Session, Order)> {
        let side = match side {
            Side::Reads => READS,
            Side::Writes => 0,
        };
        self.sessions.iter().zip(0..).map(move |(session, nth)| {
            let seed = Random::of(self.seed ^ side, nth).next();
            (*session, Order::new(session.access, self.pages, seed))
        })
    }
}

/// An invalid load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} on files of {file_bytes} bytes cannot be run")]
pub struct Unrunnable {
    name: String,
    file_bytes: u64,
}

impl SideBySide {
    /// The paper's name: `nrsw`, `zrzw` and so on.
    pub fn name(&self) -> String {
        let reader = self.reader.map_or('n', Access::letter);
        format!("{reader}r{}w", self.writer.letter())
    }

    /// Whether both loads start from the same files.
    pub fn shares_files_with(&self, other: &SideBySide) -> bool {
        (self.file_count(), self.file_bytes) == (other.file_count(), other.file_bytes)
    }

    /// Bytes of all files together, at most.
    pub fn files_bytes(&self) -> u64 {
        self.file_count() as u64 * self.file_bytes
    }

    /// Bytes of the smallest and of the largest of its files.
    pub fn least_and_greatest(&self) -> [u64; 2] {
        let pages = (0..self.file_count() / 2).map(|client| self.pages_of(client));
        let [least, most] = [pages.clone().min(), pages.max()];
        [least, most].map(|pages| pages.unwrap_or(0) * PAGE)
    }

    /// Files that are read exist without a reader too, so that loads with and without one share files.
    fn file_count(&self) -> usize {
        2 * if self.writer == Access::Variable { CLIENTS } else { 1 }
    }

    fn pages_of(&self, client: usize) -> u64 {
        let most = self.file_bytes / PAGE;
        if self.writer != Access::Variable {
            return most;
        }
        let least = (most * LEAST.0 / LEAST.1).max(1);
        least + Random::of(SIZE_SEED, client as u64).below(most - least + 1)
    }

    /// Whether the load is over when the reader has read its file once.
    pub fn ends_with_its_reader(&self) -> bool {
        self.reader == Some(Access::Sequential)
    }

    /// The most operations that a thread does in one session.
    pub fn most(&self, client: &Client, side: Side) -> u64 {
        let once = self.writer == Access::Variable || self.ends_with_its_reader();
        if side == Side::Reads && once { client.pages } else { u64::MAX }
    }

    /// The clients, their files and their sessions.
    ///
    /// # Errors
    /// Files that are not of whole pages, or a variable reader without a variable writer or the reverse.
    pub fn clients(&self) -> Result<Vec<Client>, Unrunnable> {
        let variable = self.writer == Access::Variable;
        let together = self.reader.is_none_or(|reader| (reader == Access::Variable) == variable);
        let pages = self.file_bytes.is_multiple_of(PAGE) && self.file_bytes > 0;
        if !together || !pages || u32::try_from(self.file_bytes / PAGE).is_err() {
            return Err(Unrunnable { name: self.name(), file_bytes: self.file_bytes });
        }
        let sessions = match variable {
            true => schedule::variable(self.seed, self.seconds, self.change_seconds),
            false => schedule::steady(self.writer, self.seconds),
        };
        let client = |(number, sessions)| Client {
            number,
            pages: self.pages_of(number),
            sessions,
            seed: Random::of(self.seed, number as u64).next(),
        };
        Ok(sessions.into_iter().enumerate().map(client).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(reader: Option<Access>, writer: Access) -> SideBySide {
        let file_bytes = 64 * PAGE;
        SideBySide { reader, writer, file_bytes, seconds: 0.1, change_seconds: 0.02, seed: 5 }
    }

    #[test]
    fn they_have_the_papers_names() {
        let names = WORKLOADS.map(|(reader, writer)| load(reader, writer).name());
        assert_eq!(names, ["nrsw", "srsw", "nrzw", "rrrw", "zrzw", "nrvw", "vrvw"]);
    }

    #[test]
    fn several_clients_have_files_from_a_fifth_of_the_greatest_on() {
        let one = SideBySide { file_bytes: 32 << 20, ..load(None, Access::Variable) };
        let clients = one.clients().unwrap();
        assert_eq!(clients.len(), CLIENTS);
        let range = (32 << 20) * 100 / 512 / PAGE..=(32 << 20) / PAGE;
        assert!(clients.iter().all(|client| range.contains(&client.pages)));
        let [least, most] = one.least_and_greatest();
        assert!(least < most && most <= 32 << 20);
        let other = SideBySide { seed: 6, ..load(Some(Access::Variable), Access::Variable) };
        assert!(!one.shares_files_with(&other));
        assert!(one.shares_files_with(&SideBySide { file_bytes: one.file_bytes, ..other }));
        assert!(load(Some(Access::Zipf), Access::Variable).clients().is_err());
    }
}
