//! Weir's own form of a trace: lines of JSON, a header and then one call each, in the order in which the calls ended.
//!
//! `{"weir_trace":1,"calls":900,"starts":2,"processes":1,"wall_us":5120,"timed":true}`, and
//! `{"at":12,"took":3,"process":77,"call":"write","path":"/a","description":4,"offset":0,"length":100}`. `at` and `took`
//! are microseconds. A byte of a path that is no part of UTF-8, a control character, and '%' are written `%XX`.

use std::io;

use serde::{Deserialize, Serialize};

use crate::call::{Event, Paths, What, flags};

use super::lines::{Lines, Trace, transferred};

const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    weir_trace: u32,
    calls: u64,
    starts: u64,
    processes: u64,
    wall_us: u64,
    timed: bool,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallLine {
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    took: Option<u64>,
    process: u32,
    call: What,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    offset: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    length: u64,
    #[serde(default, skip_serializing_if = "is_no_flag")]
    flags: u16,
}

fn is_no_flag(value: &u16) -> bool {
    *value == 0
}

/// Writes a trace.
///
/// # Errors
/// Of the writer.
pub fn write(trace: &Trace, to: &mut dyn io::Write) -> io::Result<()> {
    let header = Header {
        weir_trace: VERSION,
        calls: trace.calls,
        starts: trace.starts,
        processes: trace.processes,
        wall_us: trace.wall_us,
        timed: trace.timed,
    };
    serde_json::to_writer(&mut *to, &header)?;
    for event in &trace.events {
        let line = CallLine {
            at: event.at_us,
            took: event.took_us,
            process: event.process,
            call: event.what,
            failed: event.failed,
            path: event.path.map(|path| escaped(trace.paths.get(path))),
            to: event.to.map(|path| escaped(trace.paths.get(path))),
            description: event.description,
            offset: event.offset,
            length: event.length,
            flags: event.flags,
        };
        to.write_all(b"\n")?;
        serde_json::to_writer(&mut *to, &line)?;
    }
    to.write_all(b"\n")
}

fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '%' || letter.is_control() {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    text.push_str(&format!("%{byte:02X}"));
                }
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(value.ok_or("a path has '%' without two hexadecimal digits")?);
        rest = &tail[2..];
    }
    Ok(bytes)
}

/// Reads the lines.
#[derive(Default)]
pub(super) struct Weir {
    header: Option<Header>,
    paths: Paths,
    events: Vec<Event>,
}

impl Lines for Weir {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        // serde_json's own place is within the line.
        let wrong =
            |error: serde_json::Error| error.to_string().replace(" at line 1 column", ", byte");
        if self.header.is_none() {
            let header: Header = serde_json::from_slice(line).map_err(wrong)?;
            if header.weir_trace != VERSION {
                return Err(format!(
                    "the form has version {}; this weir reads {VERSION}",
                    header.weir_trace
                ));
            }
            self.header = Some(header);
            return Ok(());
        }
        let line: CallLine = serde_json::from_slice(line).map_err(wrong)?;
        if line.flags & !flags::ALL != 0 {
            return Err(format!("the flags {} are not known", line.flags));
        }
        if matches!(line.call, What::Read | What::Write | What::Output) {
            transferred(line.length)?;
        }
        let mut intern = |path: Option<String>| -> Result<_, String> {
            path.map(|path| Ok(self.paths.intern(&unescaped(&path)?))).transpose()
        };
        self.events.push(Event {
            at_us: line.at,
            took_us: line.took,
            process: line.process,
            what: line.call,
            failed: line.failed,
            path: intern(line.path)?,
            to: intern(line.to)?,
            description: line.description,
            offset: line.offset,
            length: line.length,
            flags: line.flags,
        });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Trace {
        let Some(header) = self.header else { return Trace::default() };
        Trace {
            paths: self.paths,
            events: self.events,
            calls: header.calls,
            starts: header.starts,
            processes: header.processes,
            wall_us: header.wall_us,
            timed: header.timed,
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

#[cfg(test)]
mod tests {
    use super::super::{Format, Reader};
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut trace = Trace {
            calls: 3,
            starts: 1,
            processes: 1,
            wall_us: 9,
            timed: true,
            ..Trace::default()
        };
        let path = trace.paths.intern(b"/a%\n\xff/\xc3\xbc");
        let event = Event::new(4, 7, What::Rename);
        let (path, to) = (Some(path), Some(trace.paths.intern(b"/b")));
        trace.events.push(Event { path, to, took_us: Some(2), ..event });
        trace.events.push(Event {
            path,
            description: Some(1),
            offset: 5,
            length: 6,
            ..Event::new(5, 7, What::Write)
        });
        let mut written = Vec::new();
        write(&trace, &mut written).unwrap();
        let mut reader = Reader::new(Format::Weir, b"/");
        for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            reader.line(line).unwrap();
        }
        let read = reader.finish().unwrap();
        assert_eq!(read.events, trace.events);
        assert_eq!(read.paths.get(read.events[0].path.unwrap()), b"/a%\n\xff/\xc3\xbc");
        assert_eq!((read.calls, read.wall_us), (3, 9));
    }

    #[test]
    fn paths_are_made_clean() {
        let mut reader = Box::<Weir>::default();
        for line in [
            &b"{\"weir_trace\":1,\"calls\":0,\"starts\":0,\"processes\":0,\"wall_us\":0,\"timed\":true}"[..],
            b"{\"at\":1,\"process\":1,\"call\":\"rename\",\"path\":\"/d/../../e\",\"to\":\"/d//f\"}",
        ] {
            reader.line(line).unwrap();
        }
        let trace = reader.finish();
        let (path, to) = (trace.events[0].path.unwrap(), trace.events[0].to.unwrap());
        assert_eq!((trace.paths.get(path), trace.paths.get(to)), (&b"/e"[..], &b"/d/f"[..]));
    }

    #[test]
    fn faults_are_named() {
        let mut reader = Box::<Weir>::default();
        assert!(reader.line(b"{\"weir_trace\":2,\"calls\":0,\"starts\":0,\"processes\":0,\"wall_us\":0,\"timed\":true}")
            .unwrap_err().contains("version 2"));
        reader.line(b"{\"weir_trace\":1,\"calls\":0,\"starts\":0,\"processes\":0,\"wall_us\":0,\"timed\":true}").unwrap();
        for bad in [
            &b"{}"[..],
            b"x",
            b"{\"at\":1,\"process\":1,\"call\":\"fly\"}",
            b"{\"at\":1,\"process\":1,\"call\":\"read\",\"path\":\"%x\"}",
            b"{\"at\":1,\"process\":1,\"call\":\"read\",\"flags\":65535}",
            b"{\"at\":1,\"process\":1,\"call\":\"read\",\"length\":2147479553}",
            b"{\"at\":-1,\"process\":1,\"call\":\"read\"}",
            b"{\"at\":1,\"process\":1,\"call\":\"read\",\"x\":1}",
        ] {
            assert!(reader.line(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
