//! Joining adjacent commands while they wait, and splitting the completion of the joined command.

use weir_frames::PAGE_BYTES;

use crate::command::{Command, Completion, IoId, Part, Urgency};
use crate::device::schedule::{Join, Members};

const PAGE: u64 = PAGE_BYTES as u64;

impl Join for Command {
    fn goes_on_with(&self, next: &Command) -> bool {
        match (self, next) {
            // A fetch that a request waits for is not joined: joining would not speed it up, and would add others' errors.
            (
                Command::Fetch { file, offset, frames, urgency: Urgency::Background, .. },
                Command::Fetch {
                    file: next_file, offset: next, urgency: Urgency::Background, ..
                },
            ) => file == next_file && offset + frames.len() as u64 * PAGE == *next,
            (
                Command::Write { file, offset, parts, .. },
                Command::Write { file: next_file, offset: next, .. },
            ) => file == next_file && offset + bytes(parts) == *next,
            _ => false,
        }
    }

    fn join(&mut self, next: Command) {
        match (self, next) {
            (Command::Fetch { frames, .. }, Command::Fetch { frames: next, .. }) => {
                frames.extend(next);
            }
            (Command::Write { parts, .. }, Command::Write { parts: next, .. }) => {
                parts.extend(next);
            }
            (one, next) => panic!("{next:?} does not go on where {one:?} ends"),
        }
    }
}

/// The completions of the members of a joined command.
pub(crate) fn split(members: Members, completion: Completion) -> Vec<(IoId, Completion)> {
    let each = members.into_iter();
    match completion {
        Completion::Fetched { frames, result } => {
            let (mut frames, mut before) = (frames.into_iter(), 0);
            each.map(|(io, pages)| {
                let frames = frames.by_ref().take(pages).collect();
                let result = result.map(|read| read.saturating_sub(before).min(pages * PAGE_BYTES));
                before += pages * PAGE_BYTES;
                (io, Completion::Fetched { frames, result })
            })
            .collect()
        }
        Completion::Written { result } => {
            each.map(|(io, _)| (io, Completion::Written { result })).collect()
        }
        other => panic!("{other:?} ends no transfer"),
    }
}

pub(crate) fn bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.len)).sum()
}
