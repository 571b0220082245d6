//! The arguments of `weir top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::quantity;

/// Arguments of `weir top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// Show this mount alone: its mount point, a path in it, or SOURCE; all mounts if not given
    pub mountpoint: Option<PathBuf>,
    /// Print one sample, over one interval, as text and end; needs no terminal
    #[arg(long)]
    pub once: bool,
    /// With --once: print JSON, an object for one mount, an array for all of them
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Time between two samples, 1s by default
    ///
    /// A number with ms, s, m or h: from 100ms to 1h.
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "1s",
        hide_default_value = true, value_parser = quantity::parse_top_interval)]
    pub interval: Duration,
}
