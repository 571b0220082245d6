//! The page references of readers and writers side by side.

use weir_drive::parameters::Ns;

use crate::policy::TRIP;
use crate::policy::program::Next;
use crate::policy::simulation::programs;
use crate::side_by_side::{Side, SideBySide, Unrunnable};

/// A page is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which, of all files.
    pub page: u64,
    /// Written, and not read.
    pub is_write: bool,
}

/// What a load refers to, were all in memory: its programs take turns, and one operation takes a trip.
///
/// # Errors
/// The load makes no sense.
pub fn trace(load: &SideBySide) -> Result<Vec<Reference>, Unrunnable> {
    let clients = load.clients()?;
    let pages = clients.iter().flat_map(|client| [client.pages; 2]);
    let firsts: Vec<u64> = pages
        .scan(0, |end, pages| {
            *end += pages;
            Some(*end - pages)
        })
        .collect();
    let mut programs = programs(load, &clients);
    let mut trace = Vec::new();
    let (mut now, mut over): (Ns, bool) = (0, false);
    while !programs.is_empty() {
        programs.retain_mut(|program| match program.next(now, over) {
            Next::Page(page) => {
                now += TRIP;
                let page = firsts[program.file.0 as usize] + page;
                trace.push(Reference { page, is_write: program.side == Side::Writes });
                true
            }
            Next::Wait(_) => true,
            Next::End => {
                over |= program.side == Side::Reads && load.ends_with_its_reader();
                false
            }
        });
        now += TRIP;
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::Access;

    #[test]
    fn a_trace_has_what_reader_and_writer_do_in_turn() {
        let access = Access::Sequential;
        let load = SideBySide {
            reader: Some(access),
            writer: access,
            file_bytes: 4 * 4096,
            seconds: 1.0,
            change_seconds: 0.1,
            seed: 1,
        };
        let found = trace(&load).unwrap();
        let reads: Vec<u64> =
            found.iter().filter(|one| !one.is_write).map(|one| one.page).collect();
        assert_eq!(reads, [4, 5, 6, 7], "the second file, once");
        let writes = found.iter().filter(|one| one.is_write).map(|one| one.page);
        assert!(writes.take(6).eq([0, 1, 2, 3, 0]), "the first, around, until the reader is done");
    }
}
