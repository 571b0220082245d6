//! MobiBench's traces of Android applications: one call a line, `thread time-in-us call arguments...`.
//!
//! A trace names an open file by its descriptor, and has no durations. Instruments replay the same format with content;
//! here only what was asked for is read.

use std::collections::HashSet;

use crate::call::{Event, Paths, What, absolute, flags};

use super::lines::{Lines, Trace, shown, transferred};
use super::processes::Processes;
use super::strace_calls::open_flags;
use super::syntax::number;

const CALLS: [&str; 12] = [
    "open",
    "close",
    "read",
    "write",
    "pread",
    "pwrite",
    "fsync",
    "fdatasync",
    "fstat64",
    "access",
    "stat64",
    "lstat64",
];

/// Reads the lines.
pub(super) struct Mobibench {
    paths: Paths,
    events: Vec<Event>,
    processes: Processes,
    threads: HashSet<u32>,
    wall_us: u64,
    calls: u64,
}

impl Default for Mobibench {
    fn default() -> Mobibench {
        Mobibench {
            paths: Paths::default(),
            events: Vec::new(),
            processes: Processes::new(b"/"),
            threads: HashSet::new(),
            wall_us: 0,
            calls: 0,
        }
    }
}

/// Whether a trace that begins so is one.
pub(super) fn begins_so(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let is_number = |word: Option<&[u8]>| word.and_then(number::<u64>).is_some();
    is_number(words.next())
        && is_number(words.next())
        && words.next().is_some_and(|word| {
            word == b"unlink" || CALLS.iter().any(|name| name.as_bytes() == word)
        })
}

impl Lines for Mobibench {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut word = || words.next().ok_or("it ends too soon");
        let unsigned = |word: &[u8]| {
            number::<u64>(word).ok_or_else(|| format!("{} is no number", shown(word)))
        };
        let signed = |word: &[u8]| {
            number::<i64>(word).ok_or_else(|| format!("{} is no number", shown(word)))
        };
        let thread = word()?;
        let thread: u32 =
            number(thread).ok_or_else(|| format!("{} is no thread", shown(thread)))?;
        let at_us = unsigned(word()?)?;
        self.calls += 1;
        self.wall_us = self.wall_us.max(at_us);
        self.threads.insert(thread);
        // Descriptors are the application's: its threads share them.
        let application = 0;
        let name = word()?;
        match name {
            b"open" => {
                let (path, bits, fd) = (word()?, open_flags(word()?), signed(word()?)?);
                let path = self.paths.intern(&absolute(b"/", unquoted(path)));
                let mut event = Event {
                    path: Some(path),
                    flags: bits,
                    ..Event::new(at_us, thread, What::Open)
                };
                event.failed = fd < 0;
                if fd >= 0 {
                    let append = event.is(flags::APPEND);
                    event.description = Some(self.processes.open(application, fd, path, append));
                }
                self.events.push(event);
            }
            b"close" => {
                let Some((number, last)) = self.processes.close(application, signed(word()?)?)
                else {
                    return Ok(());
                };
                let path = self.processes.description(number).path;
                let flags = if last { flags::LAST } else { 0 };
                let event = Event::new(at_us, thread, What::Close);
                self.events.push(Event {
                    path: Some(path),
                    description: Some(number),
                    flags,
                    ..event
                });
            }
            b"read" | b"write" | b"pread" | b"pwrite" => {
                let fd = signed(word()?)?;
                let offset = if name[0] == b'p' { Some(unsigned(word()?)?) } else { None };
                let moved = signed(word()?)?;
                let what = if name.ends_with(b"write") { What::Write } else { What::Read };
                let Some(number) = self.processes.find(application, fd) else { return Ok(()) };
                let description = self.processes.description(number);
                let length = transferred(moved.max(0) as u64)?;
                let at = offset.unwrap_or(description.position);
                let mut bits = 0;
                if offset.is_none() {
                    if description.append && what == What::Write {
                        bits = flags::APPEND;
                    }
                    description.position = at.saturating_add(length);
                }
                let path = Some(description.path);
                let mut event =
                    Event { path, description: Some(number), ..Event::new(at_us, thread, what) };
                (event.offset, event.length, event.failed, event.flags) =
                    (at, length, moved < 0, bits);
                self.events.push(event);
            }
            b"fsync" | b"fdatasync" | b"fstat64" => {
                let Some(number) = self.processes.find(application, signed(word()?)?) else {
                    return Ok(());
                };
                let what = if name == b"fstat64" { What::Stat } else { What::Sync };
                let path = Some(self.processes.description(number).path);
                let mut event =
                    Event { path, description: Some(number), ..Event::new(at_us, thread, what) };
                event.flags = if name == b"fdatasync" { flags::DATA } else { 0 };
                self.events.push(event);
            }
            b"access" | b"stat64" | b"lstat64" | b"unlink" => {
                let what = if name == b"unlink" { What::Unlink } else { What::Stat };
                let path = self.paths.intern(&absolute(b"/", unquoted(word()?)));
                let mut event = Event { path: Some(path), ..Event::new(at_us, thread, what) };
                event.failed = signed(word()?)? < 0;
                self.events.push(event);
            }
            other => return Err(format!("the call {} is not known", shown(other))),
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Trace {
        Trace {
            paths: self.paths,
            events: self.events,
            calls: self.calls,
            starts: 0,
            processes: self.threads.len() as u64,
            wall_us: self.wall_us,
            timed: false,
            truncated: false,
        }
    }

    fn events(&self) -> usize {
        self.events.len()
    }

    fn path_bytes(&self) -> u64 {
        self.paths.bytes()
    }
}

fn unquoted(word: &[u8]) -> &[u8] {
    word.strip_prefix(b"\"").and_then(|word| word.strip_suffix(b"\"")).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_instruments_replay() {
        let mut reader = Box::<Mobibench>::default();
        for line in [
            "1 0 open /data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE 36",
            "1 5 write 36 4",
            "2 9 write 36 4",
            "1 11 pread 36 4096 16",
            "1 12 fsync 36",
            "1 13 access \"/x\" -1",
            "1 14 close 36",
            "1 15 write 36 4",
        ] {
            reader.line(line.as_bytes()).unwrap();
        }
        let trace = reader.finish();
        let kinds: Vec<What> = trace.events.iter().map(|event| event.what).collect();
        assert_eq!(
            kinds,
            [What::Open, What::Write, What::Write, What::Read, What::Sync, What::Stat, What::Close]
        );
        assert_eq!((trace.events[2].offset, trace.events[3].offset), (4, 4096));
        assert!(trace.events[5].failed);
        assert_eq!((trace.calls, trace.processes, trace.wall_us, trace.timed), (8, 2, 15, false));
    }

    #[test]
    fn faults_are_named() {
        let mut reader = Mobibench::default();
        for bad in
            ["", "1 2 open", "1 2 chown 3", "x 2 close 3", "1 2 pread 3 -4 5", "1 2 read 3 x"]
        {
            assert!(reader.line(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
