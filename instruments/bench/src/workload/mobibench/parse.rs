//! Reading a MobiBench trace: one call a line, `thread time-in-us call arguments...`.
//!
//! Owns the format. What the calls mean for files is `plan`'s.

use std::io::Read;

use flate2::read::GzDecoder;

use crate::error::{Error, Result};

/// One call of a traced program.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The program's thread.
    pub thread: u32,
    /// Since the trace began, microseconds.
    pub time_us: u64,
    /// The call.
    pub call: Call,
}

/// A call. Descriptors are the traced program's; a length is what the call moved.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Open {
        path: String,
        flags: OpenFlags,
        fd: i64,
    },
    Close {
        fd: i64,
    },
    /// At the descriptor's position, if there is no offset.
    Transfer {
        fd: i64,
        offset: Option<u64>,
        length: i64,
        is_write: bool,
    },
    Sync {
        fd: i64,
    },
    Stat {
        fd: i64,
    },
    Named {
        what: NameCall,
        path: String,
        result: i64,
    },
}

/// Calls on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCall {
    Access,
    Stat,
    LinkStat,
    Unlink,
}

/// The flags that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    pub read_only: bool,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub directory: bool,
}

/// Unpacks and reads a trace.
pub fn parse(packed: &[u8]) -> Result<Vec<Line>> {
    let mut text = String::new();
    GzDecoder::new(packed)
        .read_to_string(&mut text)
        .map_err(|error| wrong(0, &format!("it cannot be unpacked ({error})")))?;
    text.lines().enumerate().map(|(at, line)| parse_line(at + 1, line)).collect()
}

fn wrong(line: usize, why: &str) -> Error {
    Error::answer("the trace", format!("line {line}: {why}"))
}

fn parse_line(at: usize, line: &str) -> Result<Line> {
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or_else(|| wrong(at, "it ends too soon"));
    let number = |word: &str| -> Result<i64> {
        word.parse().map_err(|_| wrong(at, &format!("'{word}' is no number")))
    };
    let thread = number(word()?)?;
    let time = number(word()?)?;
    let unsigned = |number: i64| -> Result<u64> {
        u64::try_from(number).map_err(|_| wrong(at, &format!("{number} is below zero")))
    };
    let call = match word()? {
        "open" => {
            let path = word()?.to_owned();
            let flags = parse_flags(word()?);
            Call::Open { path, flags, fd: number(word()?)? }
        }
        "close" => Call::Close { fd: number(word()?)? },
        name @ ("read" | "write" | "pread" | "pwrite") => {
            let fd = number(word()?)?;
            let at = name.starts_with('p').then(|| unsigned(number(word()?)?)).transpose()?;
            let (length, is_write) = (number(word()?)?, name.ends_with("write"));
            Call::Transfer { fd, offset: at, length, is_write }
        }
        "fsync" | "fdatasync" => Call::Sync { fd: number(word()?)? },
        "fstat64" => Call::Stat { fd: number(word()?)? },
        name @ ("access" | "stat64" | "lstat64" | "unlink") => {
            let what = match name {
                "access" => NameCall::Access,
                "stat64" => NameCall::Stat,
                "lstat64" => NameCall::LinkStat,
                _ => NameCall::Unlink,
            };
            let path = word()?.to_owned();
            Call::Named { what, path, result: number(word()?)? }
        }
        other => return Err(wrong(at, &format!("the call '{other}' is not known"))),
    };
    let thread = u32::try_from(thread).map_err(|_| wrong(at, "its thread is below zero"))?;
    Ok(Line { thread, time_us: unsigned(time)?, call })
}

fn parse_flags(text: &str) -> OpenFlags {
    let has = |flag| text.split('|').any(|one| one == flag);
    OpenFlags {
        read_only: has("O_RDONLY"),
        create: has("O_CREAT"),
        exclusive: has("O_EXCL"),
        truncate: has("O_TRUNC"),
        directory: has("O_DIRECTORY"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_faults_in_them_named() {
        let line = parse_line(1, "7 121 open \"/a/b\" O_RDWR|O_CREAT|O_LARGEFILE 9").unwrap();
        let flags = OpenFlags { create: true, ..OpenFlags::default() };
        let call = Call::Open { path: "\"/a/b\"".into(), flags, fd: 9 };
        assert_eq!(line, Line { thread: 7, time_us: 121, call });
        let line = parse_line(1, "0 5 pread 55 4096 16").unwrap();
        assert_eq!(
            line.call,
            Call::Transfer { fd: 55, offset: Some(4096), length: 16, is_write: false }
        );
        let line = parse_line(1, "0 5 access \"/x\" -1").unwrap();
        let call = Call::Named { what: NameCall::Access, path: "\"/x\"".into(), result: -1 };
        assert_eq!(line.call, call);
        for bad in ["", "1 2 open", "1 2 chown 3", "x 2 close 3", "1 2 pread 3 -4 5"] {
            let said = parse_line(12, bad).unwrap_err().to_string();
            assert!(said.contains("line 12"), "{said}");
        }
        assert!(parse(b"not packed").is_err());
    }
}
