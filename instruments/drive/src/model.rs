//! Which storage a drive behaves like.

use strum::Display;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Which storage a disk behaves like. Its numbers, and where they come from, are in [`crate::parameters`].
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    ValueEnum,
    Serialize,
    Deserialize,
    Display,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// A 7200 rpm SATA hard disk.
    Hdd,
    /// A SATA flash drive.
    Ssd,
    /// Block storage across a network.
    Remote,
    /// Whatever this machine has: no delays, for preparing and for tests of correctness.
    None,
}
