//! Reference model, faulty device and deterministic scheduler for Weir's engine.
//!
//! One seed makes one run: the real engine under virtual time, a device that delays, reorders and
//! fails, and programs that do random operations on a few files. After every step the answers are compared
//! with a model that consists of arrays of bytes. At the end the device works again, and all data must be home
//! and equal to the model. A failing seed replays exactly.
//!
//! Not linked into `weir`.

#![forbid(unsafe_code)]

mod action;
pub mod crash;
mod device;
mod finish;
mod home;
mod judge;
mod lane;
mod load;
mod model;
pub mod names;
mod perform;
pub mod policy;
pub mod replacement;
mod rng;
mod run;
mod scheduler;
mod sharing;
pub mod side_by_side;
mod trace;
mod violation;
mod world;

pub use action::{Action, FrozenAction};
pub use device::Latency;
pub use device::{Breach, Device, DeviceConfig, Ended, Failure as DeviceFailure, Fault, Faults};
pub use home::Home;
pub use load::{FILE, Load};
pub use model::{ErrorLedger, FileModel, Mismatch, Moment};
pub use rng::{Rng, checksum};
pub use run::{Failure, Options, Summary, run};
pub use scheduler::{Profile, Scheduler};
pub use trace::Trace;
pub use violation::Violation;
pub use world::{World, WorldConfig};
