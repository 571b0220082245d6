//! Page frames: a bounded pool of page-aligned memory, and counted handles to it.
//!
//! A [`Frame`] that is the only handle to its memory may be written; a shared one may only be read. So a write
//! home and the answer to a read can use a frame outside the engine's lock while the engine goes on: to change a
//! shared frame, it takes a new one first.
//!
//! ```
//! let pool = weir_frames::FramePool::new(2)?;
//! let mut frame = pool.take().expect("two are free");
//! frame.bytes_mut().expect("nobody shares it").fill(7);
//! let shared = frame.clone();
//! assert!(frame.bytes_mut().is_none());
//! assert_eq!(shared.bytes()[0], 7);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Owns the memory, and all system calls that make, populate and pass it on: the engine, which uses frames, makes
//! none. Does not own the board (`weir_lane`), which tells programs what is in the frames; the publisher of a
//! frame keeps its entry true.
//!
//! Invariants:
//! - a frame's reference count is the number of [`Frame`] handles to it; at zero it is on the free list exactly
//!   once, and nothing refers to its memory;
//! - memory is written only through `&mut Frame` with a reference count of one;
//! - memory of [`FramePool::shared`] may be read by programs at any time: a frame that is published on the
//!   board is changed through [`Frame::change`], which marks the change on the board;
//! - handing frames out and taking them back makes no system call, since the engine does it under its shard's
//!   lock. A thread without that lock prepares memory ahead ([`FramePool::prepare`]);
//! - the memory stays mapped until the last handle and the pool are dropped.

mod arena;
mod frame;
mod page;
mod pool;
mod preparer;

pub use frame::{Changing, Frame};
pub use page::PAGE_BYTES;
pub use pool::FramePool;
pub use preparer::Preparer;
