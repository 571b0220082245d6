//! The events of a run as lines: their hash, the last lines, and all lines if asked for.
//!
//! Two runs of one seed must have the same hash: that is what makes a failure replay.

use std::collections::VecDeque;
use std::fmt;

use crate::rng::checksum;

/// Lines kept for the report of a failure.
const RECENT_MAX: usize = 60;

/// The record of a run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    recent: VecDeque<String>,
    print: bool,
}

impl Trace {
    /// A record that also prints every line if `print`.
    pub fn new(print: bool) -> Trace {
        Trace { print, ..Trace::default() }
    }

    /// Adds a line.
    pub fn line(&mut self, line: fmt::Arguments<'_>) {
        let line = line.to_string();
        self.hash = self.hash.rotate_left(5) ^ checksum(line.as_bytes());
        if self.print {
            println!("{line}");
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
    }

    /// Stands for every line so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines.
    pub fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }
}
