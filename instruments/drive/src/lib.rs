//! Drives as models: what a hard disk, a flash drive or storage across a network does with requests, and when
//! it is done with them. No threads, no clocks, no system calls: the caller tells the time.
//!
//! | module | does |
//! |---|---|
//! | [`Drive`] | what a request means and when it is complete |
//! | `hdd` over `arm`, `ssd`, `remote` | the times of a model, from [`parameters`] |
//! | `backlog` | what waits for the volatile cache |
//! | `cache` | the volatile cache over an [`Image`], which keeps what is durable |
//! | [`simulate`], [`pass`] | what the parameters predict of a load |
//!
//! `weir-bench disk` serves one as a block device; `weir-sim` runs the engine above one in virtual time.
//!
//! ```
//! use weir_drive::Model;
//! use weir_drive::parameters::SECOND;
//! use weir_drive::simulate::{Load, requests_a_second};
//!
//! // One random read at a time: a disk with one arm does some 140 a second.
//! let load = Load { writes: false, depth: 1, ramp: SECOND, span: 2 * SECOND };
//! let rate = requests_a_second(Model::Hdd, 1 << 30, load);
//! assert!((50.0..300.0).contains(&rate), "{rate}");
//! ```

#![forbid(unsafe_code)]

pub mod arm;
mod backlog;
mod cache;
mod counts;
mod drive;
mod hdd;
mod model;
pub mod parameters;
pub mod pass;
mod random;
mod remote;
pub mod simulate;
mod ssd;

pub use cache::{Image, Lost, NoContent, PAGE_BYTES};
pub use counts::Counts;
pub use drive::{Drive, Ways};
pub use model::Model;
pub use random::Random;
