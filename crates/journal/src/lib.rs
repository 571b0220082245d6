//! The journal: the contents of a redo log, how far they are durable, and which part must still be kept.
//!
//! A *holder* is what changes are logged for: a file with data in the engine, a directory with pending names.
//! The journal serves any number of holders of one log and does not know what their records mean. It answers
//! four questions: which part of the log must be kept for each holder ([`Retention`]), what is in the next
//! group, up to which position is the log durable, and how far may its tail advance.
//!
//! It is sans-I/O: it returns what is to be written ([`weir_log::Commit`]), and its caller reports the end of
//! each write. It reads no clock and starts no thread.
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
//! // One holder, number 7: its retention, and the group that names it.
//! let (mut retention, mut named) = (Retention::default(), Named::default());
//! let name = Record::File { file: 7, identity: b"seven" };
//! let record = Record::Write { file: 7, offset: 0, data: b"hello" };
//!
//! let lsn = journal.append(&mut named, &name, &record);
//! let segment = journal.open_segment();
//! journal.change(7, &mut retention, |retention| retention.away.add(segment));
//! let commit = journal.commit().expect("nothing is under way");
//! // ... the blocks of `commit` are written and made durable ...
//! journal.committed();
//! assert!(journal.is_durable(lsn));
//!
//! // The change is home, and a sync of home has succeeded: its part of the log may be freed.
//! journal.change(7, &mut retention, |retention| retention.settle(segment));
//! let covered = journal.change(7, &mut retention, Retention::begin_sync);
//! journal.change(7, &mut retention, |retention| retention.end_sync(&covered));
//! assert_eq!(journal.first_needed(), None);
//! # drop(commit);
//! ```
//!
//! Invariants:
//! - a holder is listed under the first segment that it needs, and the tail never passes that segment, nor the one of a
//!   position that is kept beside the holders ([`Journal::keep_from`]);
//! - at most one group and one advance of the tail are in flight; records appended meanwhile share the next group;
//! - after a write of the log has failed, nothing more is written to it.

#![forbid(unsafe_code)]

mod journal;
mod queue;
mod retention;
mod segment;

pub use journal::{Journal, Named};
pub use queue::AfterLsn;
pub use retention::{Counts, Retention};
pub use segment::{Segment, Segments};
