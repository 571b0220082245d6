//! The journal: what a redo log holds, what of it is still needed, and how far it is durable.
//!
//! Whoever logs changes is a *holder*: a file with data in the engine, a directory with pending names. The journal
//! serves any number of holders of one log and knows nothing of what their records mean. It answers four questions:
//! which part of the log does each holder need ([`Retention`]), what is in the group that is written next, up to which
//! position is the log durable, and where may its tail advance to.
//!
//! It is sans-I/O: it hands out what is to be written ([`weir_log::Commit`]) and is told when that ended. It reads no
//! clock and starts no thread.
//!
//! ```
//! use weir_journal::{Journal, Named, Retention};
//! use weir_log::{LOG_BYTES_MIN, Lsn, Record, Superblock, Writer};
//!
//! # let (log, mount, bytes, checkpoint) = ([1; 16], [2; 16], LOG_BYTES_MIN, Lsn(0));
//! # let (row_blocks, nodes, features) = (1, weir_log::NODE_FIRST, 0);
//! # let superblock =
//! #     Superblock { log, mount, bytes, generation: 1, checkpoint, clean: true, row_blocks, nodes, features };
//! let mut journal = Journal::new(Writer::new(superblock));
//! // One holder, number 7: what it needs of the log, and which group names it.
//! let (mut retention, mut named) = (Retention::default(), Named::default());
//! let name = Record::File { file: 7, identity: b"seven" };
//! let record = Record::Write { file: 7, offset: 0, data: b"hello" };
//!
//! let lsn = journal.append(&mut named, &name, &record);
//! let segment = journal.open_segment();
//! journal.change(7, &mut retention, |needs| needs.away.add(segment));
//! let commit = journal.commit().expect("nothing is under way");
//! // ... the blocks of `commit` are written and made durable ...
//! journal.committed();
//! assert!(journal.is_durable(lsn));
//!
//! // The change is home, and a sync of home has succeeded: the log may forget it.
//! journal.change(7, &mut retention, |needs| needs.settle(segment));
//! let covered = journal.change(7, &mut retention, Retention::begin_sync);
//! journal.change(7, &mut retention, |needs| needs.end_sync(&covered));
//! assert_eq!(journal.first_needed(), None);
//! # drop(commit);
//! ```
//!
//! Invariants:
//! - a holder stands in the journal under the first segment that it needs, and the tail never passes that;
//! - one group and one move of the tail are under way at a time; what is appended meanwhile shares the next group;
//! - once a write of the log has failed, nothing is written to it any more.

#![forbid(unsafe_code)]

mod journal;
mod queue;
mod retention;
mod segment;

pub use journal::{Journal, Named};
pub use queue::AfterLsn;
pub use retention::{Counts, Retention};
pub use segment::{Segment, Segments};
