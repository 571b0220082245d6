//! Recorded traces become [`Trace`]s, line by line.
//!
//! Owns the bounds and the errors. The formats are `strace` (strace(1)), `mobibench` (MobiBench's traces of Android
//! applications) and `weir` (what `weir advise --save-trace` writes).
//!
//! Invariant: a line is understood, or known to be of no interest, or an error that names its number. Nothing is guessed
//! from half of a line.

mod lines;
mod mobibench;
mod processes;
pub mod strace;
mod strace_calls;
mod syntax;
mod weir;

use std::fmt;

use lines::Lines;
pub use lines::Trace;
pub use weir::write;

/// Most calls that are kept; what follows is not looked at.
pub const EVENTS_MAX: usize = 4_000_000;
/// Most bytes of their paths, each counted once; what follows is not looked at.
pub const PATH_BYTES_MAX: u64 = 128 << 20;
/// Longest line, bytes. Two paths of PATH_MAX, each byte escaped, take less.
pub const LINE_MAX: usize = 256 << 10;

/// The forms that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// strace(1).
    Strace,
    /// MobiBench.
    Mobibench,
    /// `weir advise --save-trace`.
    Weir,
}

impl Format {
    /// Which form a trace has that begins so.
    pub fn of(first_line: &[u8]) -> Option<Format> {
        if first_line.starts_with(b"{\"weir_trace\"") {
            return Some(Format::Weir);
        }
        if mobibench::begins_so(first_line) {
            return Some(Format::Mobibench);
        }
        strace::begins_so(first_line).then_some(Format::Strace)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Strace => "strace",
            Format::Mobibench => "mobibench",
            Format::Weir => "weir",
        })
    }
}

/// Why a trace cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    /// The line's number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a trace.
pub struct Reader {
    lines: Box<dyn Lines>,
    number: u64,
    truncated: bool,
}

impl Reader {
    /// A reader for a form. `directory`: where the program began, if that is known.
    pub fn new(format: Format, directory: &[u8]) -> Reader {
        let lines: Box<dyn Lines> = match format {
            Format::Strace => Box::new(strace_calls::Strace::new(directory)),
            Format::Mobibench => Box::new(mobibench::Mobibench::default()),
            Format::Weir => Box::new(weir::Weir::default()),
        };
        Reader { lines, number: 0, truncated: false }
    }

    /// Takes the next line, without its end.
    ///
    /// # Errors
    /// It is not of the form.
    pub fn line(&mut self, line: &[u8]) -> Result<(), TraceError> {
        self.number += 1;
        if self.lines.events() >= EVENTS_MAX || self.lines.path_bytes() >= PATH_BYTES_MAX {
            self.truncated = true;
            return Ok(());
        }
        let wrong = |why| TraceError { line: self.number, why };
        if line.len() > LINE_MAX {
            return Err(wrong(format!("it has {} bytes, at most {LINE_MAX} are read", line.len())));
        }
        self.lines.line(line).map_err(wrong)
    }

    /// What was read, the calls in the order in which they ended.
    ///
    /// # Errors
    /// There is no call in it.
    pub fn finish(self) -> Result<Trace, TraceError> {
        let mut trace = self.lines.finish();
        trace.truncated |= self.truncated;
        if trace.calls == 0 {
            return Err(TraceError {
                line: self.number,
                why: "the trace ends without any call".into(),
            });
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_told_by_the_first_line() {
        let cases: [(&[u8], Option<Format>); 6] = [
            (b"{\"weir_trace\":1,\"wall_us\":4}", Some(Format::Weir)),
            (b"1 0 open /data/data O_WRONLY|O_CREAT 36", Some(Format::Mobibench)),
            (b"4833  1795844638.314263 execve(\"/usr/bin/x\", [...], 0x7 /* 35 vars */) = 0 <0.000232>",
                Some(Format::Strace)),
            (b"openat(AT_FDCWD, \"/x\", O_RDONLY) = 3", Some(Format::Strace)),
            (b"hello", None),
            (b"", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(Format::of(line), wanted, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn faults_name_their_line() {
        let mut reader = Reader::new(Format::Mobibench, b"/");
        reader.line(b"1 0 close 3").unwrap();
        assert_eq!(reader.line(b"1 0 chown 3").unwrap_err().line, 2);
        assert!(reader.line(&vec![b'x'; LINE_MAX + 1]).unwrap_err().why.contains("bytes"));
        assert!(Reader::new(Format::Strace, b"/").finish().is_err());
    }
}
