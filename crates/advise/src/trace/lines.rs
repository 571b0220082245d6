//! What the readers of all forms have in common: what they make, and how they are called.

use crate::call::{Event, Paths, TRANSFER_MAX};

/// What a program asked for.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The paths that calls are about.
    pub paths: Paths,
    /// Calls on files, and what leaves the program, in the order in which they ended.
    pub events: Vec<Event>,
    /// Calls that the recorder stopped, whatever they were about.
    pub calls: u64,
    /// Programs that were started.
    pub starts: u64,
    /// Processes and threads.
    pub processes: u64,
    /// From the first call to the end of the last, microseconds.
    pub wall_us: u64,
    /// Calls have durations.
    pub timed: bool,
    /// There were more calls than are kept.
    pub truncated: bool,
}

/// What one form's reader does.
pub(super) trait Lines {
    /// Takes a line, without its end.
    fn line(&mut self, line: &[u8]) -> Result<(), String>;
    /// What was read.
    fn finish(self: Box<Self>) -> Trace;
    /// How many calls are kept so far.
    fn events(&self) -> usize;
    /// How many bytes their paths have.
    fn path_bytes(&self) -> u64;
}

/// Refuses what no call transfers.
pub(super) fn transferred(length: u64) -> Result<u64, String> {
    match length {
        0..=TRANSFER_MAX => Ok(length),
        _ => Err(format!("no call transfers {length} bytes")),
    }
}

/// A piece of a line for a message: its beginning, readable.
pub(super) fn shown(text: &[u8]) -> String {
    let head = &text[..text.len().min(60)];
    let dots = if head.len() < text.len() { "..." } else { "" };
    format!("'{}{dots}'", head.escape_ascii())
}
