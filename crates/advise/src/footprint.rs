//! What a program asks of the files below one directory: counts, bytes, waiting, partial overwrites, and fetches against
//! memory.
//!
//! A *partial overwrite* is a write that covers a part of a page that holds data: a page cache has to fetch the page first
//! if it is not in memory (NBW, FAST'15, figure 4). Which ones that would be in a memory of a given size is said by LRU
//! stack distances (figure 5): a page's first use misses in every size if the file was there before.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::call::{Event, Group, Paths, What, is_below};
use crate::distance::Stack;
use crate::files::{Survey, Walk};

/// The size of a page, bytes.
pub const PAGE: u64 = 4096;
/// Most references to pages that the stack distances are made of.
pub const REFERENCES_MAX: u64 = 20_000_000;

/// Calls of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Calls.
    pub calls: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Time in them, without the recorder's, microseconds.
    pub waited_us: f64,
}

/// Writes by how much of a page that holds data they overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overwrites {
    /// Writes.
    pub writes: u64,
    /// Writes that overwrite a part of some page.
    pub partial: u64,
    /// Those by the most that is overwritten of such a page: up to 1, 2, 3, and under 4 KiB.
    pub by_kib: [u64; 4],
    /// Partial ones to a page that the program had not used before, of a file that was there before.
    pub first_use: u64,
    /// Of these, those that took as long as the disk takes to read a page. `None` without durations.
    pub waited: Option<u64>,
}

/// A memory size, and what misses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Memory, bytes.
    pub memory: u64,
    /// Writes that would wait for a fetch.
    pub writes: u64,
    /// Reads that would.
    pub reads: u64,
}

/// What is asked of the files below a directory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Footprint {
    /// By group.
    pub groups: BTreeMap<Group, Tally>,
    /// Writes.
    pub overwrites: Overwrites,
    /// Reads of pages not used before, of files that were there, and those that took as long as the disk.
    pub first_reads: u64,
    /// See [`Overwrites::waited`].
    pub first_reads_waited: u64,
    /// Different pages.
    pub pages: u64,
    /// By memory size, ascending.
    pub curve: Vec<Misses>,
    /// Mappings that write files: not seen call by call.
    pub written_by_mapping: u64,
    /// Stack distances are of the first [`REFERENCES_MAX`] references alone.
    pub cut: bool,
}

/// How calls were recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorder {
    /// What it adds to a call's duration, microseconds.
    pub added_us: f64,
    /// What it adds to the time between two calls, microseconds.
    pub gap_us: f64,
    /// A call that takes longer, and longer than copying what it moves, has waited for the disk, microseconds.
    pub waits_from_us: f64,
}

/// What copying takes between the page cache and memory that the program has just got.
const COPY_US_PER_BYTE: f64 = 0.001;

impl Recorder {
    /// A call's own time.
    pub fn own_us(&self, event: &Event) -> f64 {
        event.took_us.map_or(0.0, |took| (took as f64 - self.added_us).max(0.0))
    }

    /// Whether it took as long as the disk takes. Of calls that move data.
    pub fn waited(&self, event: &Event) -> bool {
        let copying_us = event.length as f64 * COPY_US_PER_BYTE;
        event.took_us.is_some() && self.own_us(event) >= self.waits_from_us + copying_us
    }
}

/// The greatest distance of the pages that one call needs; first uses are infinite.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    distance: u64,
}

const FIRST_USE: u64 = u64::MAX;

/// Analyses the calls on files below `directory`.
pub fn analyse(
    events: &[Event],
    paths: &Paths,
    survey: &Survey,
    directory: &[u8],
    recorder: Recorder,
) -> Footprint {
    let mut found = Footprint::default();
    let timed = events.iter().any(|event| event.took_us.is_some());
    found.overwrites.waited = timed.then_some(0);
    let mut walk = Walk::new(survey);
    let mut stack = Stack::default();
    let mut references = 0;
    let (mut write_needs, mut read_needs) = (Vec::new(), Vec::new());
    for event in events {
        let seen = walk.step(event);
        let Some(path) = event.path else { continue };
        if !is_below(paths.get(path), directory) {
            continue;
        }
        let tally = found.groups.entry(event.group()).or_default();
        tally.calls += 1;
        tally.waited_us += recorder.own_us(event);
        if event.failed || event.what == What::Open {
            continue;
        }
        if matches!(event.what, What::Read | What::Write) {
            tally.bytes = tally.bytes.saturating_add(event.length);
        }
        found.written_by_mapping += u64::from(event.what == What::Map && event.flags != 0);
        let Some(seen) = seen else { continue };
        let is_write = match event.what {
            What::Write => true,
            What::Read => false,
            _ => continue,
        };
        if is_write {
            found.overwrites.writes += 1;
        }
        if event.length == 0 {
            continue;
        }
        let end = seen.offset.saturating_add(event.length);
        let pages = seen.offset / PAGE..=(end - 1) / PAGE;
        if references >= REFERENCES_MAX || pages.end() - pages.start() > REFERENCES_MAX {
            found.cut = true;
            continue;
        }
        let initial = survey.initial.get(seen.file.0 as usize).copied().unwrap_or_default();
        let mut need: Option<Need> = None;
        let mut partial_bytes = 0;
        for page in pages {
            references += 1;
            let was_there = initial.existed && page * PAGE < initial.size;
            let distance = stack.touch((seen.file, page)).or(was_there.then_some(FIRST_USE));
            let covered =
                end.min((page * PAGE).saturating_add(PAGE)) - seen.offset.max(page * PAGE);
            let holds_data = page * PAGE < seen.size_before;
            if is_write && (covered == PAGE || !holds_data) {
                continue;
            }
            if is_write {
                partial_bytes = partial_bytes.max(covered);
            }
            // A page that the program made itself is in memory at its first use.
            need = need.max_of(distance.unwrap_or(1));
        }
        let Some(need) = need else { continue };
        let first_use = need.distance == FIRST_USE;
        let waited = first_use && recorder.waited(event);
        if is_write {
            let overwrites = &mut found.overwrites;
            overwrites.partial += 1;
            overwrites.by_kib[((partial_bytes - 1) / 1024) as usize] += 1;
            overwrites.first_use += u64::from(first_use);
            if let Some(count) = &mut overwrites.waited {
                *count += u64::from(waited);
            }
            write_needs.push(need.distance);
        } else {
            found.first_reads += u64::from(first_use);
            found.first_reads_waited += u64::from(waited);
            read_needs.push(need.distance);
        }
    }
    found.pages = stack.pages() as u64;
    found.curve = curve(write_needs, read_needs, found.pages);
    found
}

trait MaxOf {
    fn max_of(self, distance: u64) -> Self;
}

impl MaxOf for Option<Need> {
    fn max_of(self, distance: u64) -> Option<Need> {
        Some(Need { distance: self.map_or(distance, |need| need.distance.max(distance)) })
    }
}

/// Memory sizes from 16 pages to more than all pages take, doubling.
fn curve(mut writes: Vec<u64>, mut reads: Vec<u64>, pages: u64) -> Vec<Misses> {
    writes.sort_unstable();
    reads.sort_unstable();
    // What needs more pages than fit misses.
    let missing = |needs: &[u64], room: u64| {
        (needs.len() - needs.partition_point(|need| *need <= room)) as u64
    };
    let mut curve = Vec::new();
    let mut room = 16;
    loop {
        let (writes, reads) = (missing(&writes, room), missing(&reads, room));
        curve.push(Misses { memory: room * PAGE, writes, reads });
        if room >= pages || room > 1 << 40 {
            return curve;
        }
        room *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::flags;
    use crate::files::Before;

    fn analysed(events: &[Event], paths: &Paths) -> Footprint {
        let survey = Survey::new(events, paths, &|_| Before::There(1 << 20));
        let recorder = Recorder { added_us: 10.0, waits_from_us: 50.0, ..Recorder::default() };
        analyse(events, paths, &survey, b"/d", recorder)
    }

    #[test]
    fn copying_is_not_waiting() {
        let recorder = Recorder { added_us: 30.0, waits_from_us: 40.0, ..Recorder::default() };
        let read =
            |length, took| Event { length, took_us: Some(took), ..Event::new(0, 1, What::Read) };
        assert!(recorder.waited(&read(4096, 80)) && !recorder.waited(&read(4096, 70)));
        // 1 MiB that is in memory, and from a disk of 600 MB/s.
        assert!(!recorder.waited(&read(1 << 20, 1000)) && recorder.waited(&read(1 << 20, 1700)));
    }

    fn on(what: What, path: crate::call::PathId, offset: u64, length: u64) -> Event {
        let flags = if what == What::Open { flags::WRITE } else { 0 };
        Event {
            path: Some(path),
            offset,
            length,
            flags,
            took_us: Some(100),
            ..Event::new(0, 1, what)
        }
    }

    #[test]
    fn partial_overwrites_are_told_from_whole_ones_and_new_pages() {
        let mut paths = Paths::default();
        let file = paths.intern(b"/d/f");
        let out = paths.intern(b"/elsewhere");
        let events = [
            on(What::Open, file, 0, 0),
            on(What::Stat, file, 0, 4 * PAGE),
            on(What::Write, file, 0, PAGE),         // a whole page
            on(What::Write, file, PAGE + 5, 100),   // a part, first use
            on(What::Write, file, PAGE + 5, 2000),  // the same page again
            on(What::Write, file, 3 * PAGE - 1, 2), // the ends of two pages
            on(What::Write, file, 9 * PAGE, 10),    // beyond the end
            on(What::Write, out, 5, 5),
            on(What::Read, file, 0, 10),
        ];
        let found = analysed(&events, &paths);
        let wanted = Overwrites {
            writes: 5,
            partial: 3,
            by_kib: [2, 1, 0, 0],
            first_use: 2,
            waited: Some(2),
        };
        assert_eq!(found.overwrites, wanted);
        assert_eq!(found.groups[&Group::Writes].calls, 5);
        assert_eq!(found.groups[&Group::Writes].waited_us, 450.0);
        assert_eq!(found.first_reads, 0, "the page was written before");
        assert_eq!(found.curve[0].writes, 2);
    }

    #[test]
    fn fetches_fall_with_memory() {
        let mut paths = Paths::default();
        let file = paths.intern(b"/d/f");
        let mut events = vec![on(What::Open, file, 0, 0), on(What::Stat, file, 0, 64 * PAGE)];
        for _ in 0..3 {
            events.extend((0..40).map(|page| on(What::Write, file, page * PAGE, 10)));
        }
        let found = analysed(&events, &paths);
        let misses: Vec<_> =
            found.curve.iter().map(|misses| (misses.memory / PAGE, misses.writes)).collect();
        assert_eq!(misses, [(16, 120), (32, 120), (64, 40)]);
    }
}
