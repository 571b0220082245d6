//! One engine behind one lock, wired to its back end.
//!
//! A [`Shard`] turns the engine's events and outputs into calls and continuations. The thread that brings an
//! event runs it to its end. The continuation of a late answer is run by the thread that completed the request.
//!
//! ```
//! use std::os::fd::AsFd;
//! use std::sync::{Arc, mpsc};
//!
//! use rustix::fs::{Mode, OFlags};
//! use weir_backend::HomeFile;
//! use weir_engine::{Config, Durability, FileId};
//! use weir_shard::Shard;
//!
//! let source = tempfile::tempdir()?;
//! let path = source.path().join("notes");
//! std::fs::write(&path, "old news")?;
//! let home = Arc::new(HomeFile::new(rustix::fs::open(&path, OFlags::PATH, Mode::empty())?));
//! home.open_data(true)?;
//!
//! let directory = std::fs::File::open(source.path())?;
//! let shard = Shard::start(Config::default(), directory.as_fd())?;
//! let file = FileId(1);
//! shard.attach(file, &home)?;
//! let (answer, answers) = mpsc::channel();
//! let done = answer.clone();
//! shard.write(file, 0, b"new", Durability::None, move |written| done.send(written).unwrap());
//! answers.recv()?.expect("written");
//! shard.sync(file, Durability::All, move |synced| answer.send(synced).unwrap());
//! answers.recv()?.expect("durable at home");
//! assert_eq!(std::fs::read(&path)?, b"new news");
//! shard.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod core;
mod lane;
mod latency;
mod names;
mod pending;
mod posted;
mod shard;
mod slow_files;
mod ticker;
mod trampoline;

#[cfg(test)]
mod tests;

pub use lane::Poster;
pub use latency::{Latencies, Percentiles};
pub use posted::Posted;
pub use shard::{Renamed, Shard, StartError};
pub use slow_files::{LateAnswers, SlowFile, WaitingNow, Waits};
