//! What the calls of strace's lines mean for files.
//!
//! Owns the meaning of each call's arguments; `syntax` has the form, `processes` what descriptors refer to. With `-y`
//! strace tells each descriptor's path, without it the path is that of the call that opened it.
//!
//! Invariant: a call that fails changes nothing here.

use std::collections::{BTreeSet, HashMap};

use crate::call::{Event, PathId, Paths, What, absolute, flags};

use super::lines::{Lines, Trace, shown, transferred};
use super::processes::Processes;
use super::syntax::{self, Call, Line, descriptor, find, integer, string};

/// A call that has begun, and not returned.
struct Pending {
    at_us: u64,
    text: Vec<u8>,
}

/// Reads strace's lines.
pub(super) struct Strace {
    paths: Paths,
    events: Vec<Event>,
    processes: Processes,
    pending: HashMap<u32, Pending>,
    /// Those of them that make a process.
    making: BTreeSet<u32>,
    first_us: Option<u64>,
    now_us: u64,
    calls: u64,
    starts: u64,
    seen: u64,
    timed: bool,
}

/// What the call that is being read has in common with each event of it.
struct Now<'a> {
    process: u32,
    at_us: u64,
    call: &'a Call<'a>,
}

impl Now<'_> {
    fn argument(&self, at: usize) -> Result<&[u8], String> {
        let name = self.call.name.escape_ascii();
        self.call.arguments.get(at).copied().ok_or_else(|| format!("{name} has too few arguments"))
    }

    fn number(&self, at: usize) -> Result<u64, String> {
        let word = self.argument(at)?;
        let value = integer(word).ok_or_else(|| format!("{} is no number", shown(word)))?;
        u64::try_from(value).map_err(|_| format!("{value} is below zero"))
    }

    fn path(&self, at: usize) -> Result<Vec<u8>, String> {
        let word = self.argument(at)?;
        string(word).ok_or_else(|| format!("{} is no path", shown(word)))
    }

    fn event(&self, what: What) -> Event {
        let mut event = Event::new(self.at_us, self.process, what);
        event.took_us = self.call.took_us;
        event.failed = self.call.result.is_none_or(|result| result < 0);
        event
    }

    fn failed(&self) -> bool {
        self.call.result.is_none_or(|result| result < 0)
    }

    /// Bytes transferred.
    fn length(&self) -> u64 {
        self.call.result.unwrap_or(0).max(0) as u64
    }
}

impl Strace {
    pub(super) fn new(directory: &[u8]) -> Strace {
        Strace {
            paths: Paths::default(),
            events: Vec::new(),
            processes: Processes::new(directory),
            pending: HashMap::new(),
            making: BTreeSet::new(),
            first_us: None,
            now_us: 0,
            calls: 0,
            starts: 0,
            seen: 0,
            timed: false,
        }
    }

    fn call(&mut self, process: u32, at_us: u64, text: &[u8]) -> Result<(), String> {
        let call = syntax::call(text)?;
        self.calls += 1;
        self.timed |= call.took_us.is_some();
        self.now_us = self.now_us.max(at_us.saturating_add(call.took_us.unwrap_or(0)));
        let now = Now { process, at_us, call: &call };
        self.meaning(&now)
    }

    /// The descriptor of an argument, its path, and its description.
    fn file(&mut self, now: &Now<'_>, at: usize) -> Result<Option<(PathId, u32)>, String> {
        let word = now.argument(at)?;
        let (fd, told) =
            descriptor(word).ok_or_else(|| format!("{} is no descriptor", shown(word)))?;
        if fd < 0 {
            return Ok(None);
        }
        if let Some(told) = told {
            let path = self.paths.intern(&told);
            return Ok(Some((path, self.processes.find_or_make(now.process, fd, path))));
        }
        let Some(number) = self.processes.find(now.process, fd) else { return Ok(None) };
        Ok(Some((self.processes.description(number).path, number)))
    }

    /// The path that a call names by a directory's descriptor (`None`: it has none) and a string.
    fn named(
        &mut self,
        now: &Now<'_>,
        directory: Option<usize>,
        at: usize,
    ) -> Result<PathId, String> {
        let name = now.path(at)?;
        let mut base = None;
        if let Some(directory) = directory {
            let word = now.argument(directory)?;
            let (fd, told) =
                descriptor(word).ok_or_else(|| format!("{} is no descriptor", shown(word)))?;
            if let (-100, Some(told)) = (fd, &told) {
                self.processes.set_directory(now.process, told);
            }
            if fd != -100 {
                base = told.or_else(|| {
                    let number = self.processes.find(now.process, fd)?;
                    let path = self.processes.description(number).path;
                    Some(self.paths.get(path).to_vec())
                });
            }
        }
        let base = base.unwrap_or_else(|| self.processes.directory(now.process).to_vec());
        Ok(self.paths.intern(&absolute(&base, &name)))
    }

    fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    fn about(&mut self, now: &Now<'_>, what: What, path: PathId) {
        let event = Event { path: Some(path), ..now.event(what) };
        self.push(event);
    }

    fn meaning(&mut self, now: &Now<'_>) -> Result<(), String> {
        match now.call.name {
            b"read" | b"readv" => self.transfer(now, What::Read, None),
            b"write" | b"writev" => self.transfer(now, What::Write, None),
            b"pread64" | b"preadv" | b"preadv2" => self.transfer(now, What::Read, Some(3)),
            b"pwrite64" | b"pwritev" | b"pwritev2" => self.transfer(now, What::Write, Some(3)),
            b"sendfile" => {
                let at = self.told_offset(now, 2)?;
                self.moved(now, 1, What::Read, at)?;
                self.moved(now, 0, What::Write, None)
            }
            b"copy_file_range" => {
                let (from, to) = (self.told_offset(now, 1)?, self.told_offset(now, 3)?);
                self.moved(now, 0, What::Read, from)?;
                self.moved(now, 2, What::Write, to)
            }
            b"sendto" | b"sendmsg" => {
                let Some((path, _)) = self.file(now, 0)? else { return Ok(()) };
                self.about(now, What::Output, path);
                Ok(())
            }
            b"splice" | b"io_submit" | b"io_uring_enter" => {
                self.push(now.event(What::Unseen));
                Ok(())
            }
            b"open" | b"openat" | b"openat2" | b"creat" => self.open(now),
            b"close" | b"close_range" => self.close(now),
            b"dup" | b"dup2" | b"dup3" | b"fcntl" => self.duplicate(now),
            b"flock" => {
                let release = find(now.argument(1)?, b"LOCK_UN").map_or(0, |_| flags::RELEASE);
                self.on_open(now, What::Lock, release, 0)
            }
            b"lseek" => {
                let Some((_, number)) = self.file(now, 0)? else { return Ok(()) };
                if !now.failed() {
                    self.processes.description(number).position = now.length();
                }
                Ok(())
            }
            b"fsync" | b"msync" => self.on_open(now, What::Sync, 0, 0),
            b"fdatasync" => self.on_open(now, What::Sync, flags::DATA, 0),
            b"sync" => {
                self.push(now.event(What::SyncAll));
                Ok(())
            }
            b"syncfs" => self.on_open(now, What::SyncAll, 0, 0),
            b"ftruncate" => {
                let length = now.number(1)?;
                self.on_open(now, What::Truncate, 0, length)
            }
            b"truncate" => {
                let path = self.named(now, None, 0)?;
                let event =
                    Event { path: Some(path), length: now.number(1)?, ..now.event(What::Truncate) };
                self.push(event);
                Ok(())
            }
            b"fallocate" => {
                let Some((path, number)) = self.file(now, 0)? else { return Ok(()) };
                let (offset, length) = (now.number(2)?, now.number(3)?);
                let keeps_size = now.argument(1)? != b"0";
                let flags = if keeps_size { flags::DATA } else { 0 };
                let event = now.event(What::Allocate);
                self.push(Event {
                    path: Some(path),
                    description: Some(number),
                    offset,
                    length,
                    flags,
                    ..event
                });
                Ok(())
            }
            _ => self.names(now),
        }
    }

    /// Calls on names and attributes, and of processes.
    fn names(&mut self, now: &Now<'_>) -> Result<(), String> {
        let (what, directory, at) = match now.call.name {
            b"stat" | b"lstat" | b"access" => (What::Stat, None, 0),
            b"newfstatat" | b"statx" | b"faccessat" | b"faccessat2" => return self.stat_at(now),
            b"fstat" => return self.stat_open(now),
            b"readlink" => (What::ReadLink, None, 0),
            b"readlinkat" => (What::ReadLink, Some(0), 1),
            b"getdents64" => return self.on_open(now, What::List, 0, now.length()),
            b"mkdir" => (What::MakeDirectory, None, 0),
            b"mkdirat" => (What::MakeDirectory, Some(0), 1),
            b"rmdir" => (What::RemoveDirectory, None, 0),
            b"unlink" => (What::Unlink, None, 0),
            b"unlinkat" => {
                let directory = find(now.argument(2)?, b"AT_REMOVEDIR").is_some();
                (if directory { What::RemoveDirectory } else { What::Unlink }, Some(0), 1)
            }
            b"rename" | b"link" => return self.two_names(now, (None, 0), (None, 1)),
            b"renameat" | b"renameat2" | b"linkat" => {
                return self.two_names(now, (Some(0), 1), (Some(2), 3));
            }
            b"symlink" => (What::SymbolicLink, None, 1),
            b"symlinkat" => (What::SymbolicLink, Some(1), 2),
            b"chmod" | b"chown" | b"lchown" | b"utimes" | b"utime" => (What::Attributes, None, 0),
            b"fchmodat" | b"fchownat" | b"futimesat" => (What::Attributes, Some(0), 1),
            b"utimensat" if now.argument(1)? == b"NULL" => {
                return self.on_open(now, What::Attributes, 0, 0);
            }
            b"utimensat" => (What::Attributes, Some(0), 1),
            b"fchmod" | b"fchown" | b"fsetxattr" | b"fremovexattr" => {
                return self.on_open(now, What::Attributes, 0, 0);
            }
            b"setxattr" | b"lsetxattr" | b"removexattr" | b"lremovexattr" => {
                (What::Attributes, None, 0)
            }
            b"getxattr" | b"lgetxattr" | b"listxattr" | b"llistxattr" => {
                (What::ReadAttribute, None, 0)
            }
            b"fgetxattr" | b"flistxattr" => return self.on_open(now, What::ReadAttribute, 0, 0),
            b"mmap" => return self.map(now),
            _ => return self.of_processes(now),
        };
        let path = self.named(now, directory, at)?;
        self.about(now, what, path);
        Ok(())
    }

    fn of_processes(&mut self, now: &Now<'_>) -> Result<(), String> {
        match now.call.name {
            b"execve" if !now.failed() => {
                self.starts += 1;
                self.push(now.event(What::Start));
            }
            b"chdir" if !now.failed() => {
                let directory = now.path(0)?;
                let directory = absolute(self.processes.directory(now.process), &directory);
                self.processes.set_directory(now.process, &directory);
            }
            b"fchdir" if !now.failed() => {
                if let Some((path, _)) = self.file(now, 0)? {
                    let directory = self.paths.get(path).to_vec();
                    self.processes.set_directory(now.process, &directory);
                }
            }
            b"clone" | b"clone3" | b"fork" | b"vfork" if !now.failed() => {
                let child =
                    u32::try_from(now.length()).map_err(|_| "the child's number is too large")?;
                let shares = now
                    .call
                    .arguments
                    .iter()
                    .any(|argument| find(argument, b"CLONE_FILES").is_some());
                self.begin(child, Some(now.process), shares);
            }
            // Of no interest for files.
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, process: u32, parent: Option<u32>, shares: bool) {
        if !self.processes.is_known(process) {
            self.seen += 1;
            self.processes.begin(process, parent, shares);
        }
    }

    /// Reads and writes with one descriptor; the offset is the argument with that number, or the position.
    fn transfer(&mut self, now: &Now<'_>, what: What, offset: Option<usize>) -> Result<(), String> {
        let at = match offset {
            // preadv2(2): -1 is the position.
            Some(at) if now.argument(at)? == b"-1" => None,
            Some(at) => Some(now.number(at)?),
            None => None,
        };
        self.moved(now, 0, what, at)
    }

    /// A transfer of the descriptor of an argument.
    fn moved(
        &mut self,
        now: &Now<'_>,
        fd: usize,
        what: What,
        offset: Option<u64>,
    ) -> Result<(), String> {
        let Some((path, number)) = self.file(now, fd)? else { return Ok(()) };
        let length = transferred(now.length())?;
        let name = self.paths.get(path);
        let is_file = name.starts_with(b"/")
            && !name.starts_with(b"/dev/pts/")
            && !name.starts_with(b"/dev/tty");
        if !is_file {
            if what == What::Write {
                self.push(Event { path: Some(path), length, ..now.event(What::Output) });
            }
            return Ok(());
        }
        let description = self.processes.description(number);
        let mut bits = 0;
        let at = match offset {
            Some(at) => at,
            None => {
                if description.append && what == What::Write {
                    bits = flags::APPEND;
                }
                let at = description.position;
                description.position = at.saturating_add(length);
                at
            }
        };
        let event = now.event(what);
        self.push(Event {
            path: Some(path),
            description: Some(number),
            offset: at,
            length,
            flags: bits,
            ..event
        });
        Ok(())
    }

    /// `[5] => [6]`, or NULL.
    fn told_offset(&self, now: &Now<'_>, at: usize) -> Result<Option<u64>, String> {
        let word = now.argument(at)?;
        if word == b"NULL" || word == b"0" {
            return Ok(None);
        }
        let inner =
            word.strip_prefix(b"[").ok_or_else(|| format!("{} is no offset", shown(word)))?;
        let end = inner.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(inner.len());
        syntax::number(&inner[..end])
            .map(Some)
            .ok_or_else(|| format!("{} is no offset", shown(word)))
    }

    fn open(&mut self, now: &Now<'_>) -> Result<(), String> {
        let (path, words) = match now.call.name {
            b"open" => (self.named(now, None, 0)?, now.argument(1)?),
            b"creat" => (self.named(now, None, 0)?, &b"O_WRONLY|O_CREAT|O_TRUNC"[..]),
            _ => (self.named(now, Some(0), 1)?, now.argument(2)?),
        };
        let mut event = Event { flags: open_flags(words), ..now.event(What::Open) };
        // What was opened may have another name than what was asked for, by a symbolic link.
        let told = now.call.result_path.as_ref().filter(|told| told.starts_with(b"/"));
        let path = told.map_or(path, |told| self.paths.intern(told));
        event.path = Some(path);
        if let Some(fd) = now.call.result.filter(|fd| *fd >= 0) {
            let append = event.is(flags::APPEND);
            event.description = Some(self.processes.open(now.process, fd, path, append));
        }
        self.push(event);
        Ok(())
    }

    fn close(&mut self, now: &Now<'_>) -> Result<(), String> {
        let closed = if now.call.name == b"close" {
            let word = now.argument(0)?;
            vec![descriptor(word).ok_or_else(|| format!("{} is no descriptor", shown(word)))?.0]
        } else if now.call.arguments.get(2).is_some_and(|flags| find(flags, b"CLOEXEC").is_some()) {
            Vec::new()
        } else {
            let last = i64::try_from(now.number(1)?).unwrap_or(i64::MAX);
            self.processes.in_range(now.process, now.number(0)? as i64, last)
        };
        for fd in closed {
            let Some((number, last)) = self.processes.close(now.process, fd) else { continue };
            let path = self.processes.description(number).path;
            let flags = if last { flags::LAST } else { 0 };
            let event = now.event(What::Close);
            self.push(Event { path: Some(path), description: Some(number), flags, ..event });
        }
        Ok(())
    }

    fn duplicate(&mut self, now: &Now<'_>) -> Result<(), String> {
        if now.call.name == b"fcntl" {
            let command = now.argument(1)?;
            if find(command, b"_SETLK").is_some() || find(command, b"_GETLK").is_some() {
                let release = find(now.argument(2)?, b"F_UNLCK").map_or(0, |_| flags::RELEASE);
                return self.on_open(now, What::Lock, release, 0);
            }
            if !command.starts_with(b"F_DUPFD") {
                return Ok(());
            }
        }
        let Some(fd) = now.call.result.filter(|fd| *fd >= 0) else { return Ok(()) };
        let Some((_, number)) = self.file(now, 0)? else { return Ok(()) };
        self.processes.refer(now.process, fd, number);
        Ok(())
    }

    /// A call on the descriptor that is its first argument.
    fn on_open(
        &mut self,
        now: &Now<'_>,
        what: What,
        flags: u16,
        length: u64,
    ) -> Result<(), String> {
        // msync(2) has an address.
        let is_descriptor = descriptor(now.argument(0)?).is_some();
        let found = if is_descriptor { self.file(now, 0)? } else { None };
        let Some((path, number)) = found else { return Ok(()) };
        let event = now.event(what);
        self.push(Event { path: Some(path), description: Some(number), flags, length, ..event });
        Ok(())
    }

    fn stat_open(&mut self, now: &Now<'_>) -> Result<(), String> {
        let length = now.call.arguments.get(1).and_then(|text| told_size(text)).unwrap_or(0);
        self.on_open(now, What::Stat, 0, length)
    }

    fn stat_at(&mut self, now: &Now<'_>) -> Result<(), String> {
        let length = now.call.arguments.iter().find_map(|text| told_size(text)).unwrap_or(0);
        // AT_EMPTY_PATH, or NULL: the descriptor itself.
        if matches!(now.argument(1)?, b"\"\"" | b"NULL") {
            return self.on_open(now, What::Stat, 0, length);
        }
        let path = self.named(now, Some(0), 1)?;
        self.push(Event { path: Some(path), length, ..now.event(What::Stat) });
        Ok(())
    }

    fn two_names(
        &mut self,
        now: &Now<'_>,
        from: (Option<usize>, usize),
        to: (Option<usize>, usize),
    ) -> Result<(), String> {
        let what = if now.call.name.starts_with(b"link") { What::Link } else { What::Rename };
        // linkat(2) with AT_EMPTY_PATH links a descriptor's file.
        let old = now.path(from.1)?;
        let from = if old.is_empty() && from.0.is_some() {
            self.file(now, 0)?.map(|(path, _)| path)
        } else {
            Some(self.named(now, from.0, from.1)?)
        };
        let to = self.named(now, to.0, to.1)?;
        self.push(Event { path: from, to: Some(to), ..now.event(what) });
        Ok(())
    }

    fn map(&mut self, now: &Now<'_>) -> Result<(), String> {
        let Ok(fd) = now.argument(4) else { return Ok(()) };
        if fd == b"-1" || descriptor(fd).is_none() || now.failed() {
            return Ok(());
        }
        let Some((path, number)) = self.file(now, 4)? else { return Ok(()) };
        let writes = find(now.argument(2)?, b"PROT_WRITE").is_some()
            && find(now.argument(3)?, b"MAP_SHARED").is_some();
        let flags = if writes { flags::WRITE } else { 0 };
        let event = now.event(What::Map);
        self.push(Event { path: Some(path), description: Some(number), flags, ..event });
        Ok(())
    }
}

impl Lines for Strace {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let (head, rest) = syntax::head(line)?;
        let process = head.process.unwrap_or(0);
        let told = head.at_us.unwrap_or(self.now_us);
        let first = *self.first_us.get_or_insert(told);
        let at_us = told.saturating_sub(first);
        let body = syntax::body(rest)?;
        if !self.processes.is_known(process) && !matches!(body, Line::Other | Line::Ended) {
            // Its parent's call may return later than its own first one.
            let parent = self.making.first().and_then(|number| {
                let pending = self.pending.get(number)?;
                Some((*number, find(&pending.text, b"CLONE_FILES").is_some()))
            });
            self.begin(
                process,
                parent.map(|(number, _)| number),
                parent.is_some_and(|(_, shares)| shares),
            );
        }
        self.now_us = self.now_us.max(at_us);
        match body {
            Line::Call(_) => self.call(process, at_us, rest),
            Line::Unfinished { text } => {
                match makes_process(text) {
                    true => self.making.insert(process),
                    false => self.making.remove(&process),
                };
                self.pending.insert(process, Pending { at_us, text: text.to_vec() });
                Ok(())
            }
            Line::Resumed { name, text } => {
                self.making.remove(&process);
                let Some(mut pending) = self.pending.remove(&process) else {
                    return Err(format!("{} goes on that has not begun", shown(name)));
                };
                if !(pending.text.starts_with(name) && pending.text.get(name.len()) == Some(&b'('))
                {
                    return Err(format!(
                        "{} goes on where {} has begun",
                        shown(name),
                        shown(&pending.text)
                    ));
                }
                pending.text.extend_from_slice(text);
                self.call(process, pending.at_us, &pending.text)
            }
            Line::Ended => {
                self.making.remove(&process);
                self.pending.remove(&process);
                self.processes.end(process);
                Ok(())
            }
            Line::Other => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Trace {
        Trace {
            paths: self.paths,
            events: self.events,
            calls: self.calls,
            starts: self.starts,
            processes: self.seen,
            wall_us: self.now_us,
            timed: self.timed,
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

fn makes_process(text: &[u8]) -> bool {
    [&b"clone("[..], b"clone3(", b"fork(", b"vfork("].iter().any(|name| text.starts_with(name))
}

/// `st_size=5000` or `stx_size=5000`.
fn told_size(text: &[u8]) -> Option<u64> {
    let at = find(text, b"st_size=")
        .map(|at| at + 8)
        .or_else(|| find(text, b"stx_size=").map(|at| at + 9))?;
    let rest = &text[at..];
    let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    syntax::number(&rest[..end])
}

pub(super) fn open_flags(words: &[u8]) -> u16 {
    // openat2(2): {flags=O_RDWR|O_CREAT, mode=0644, ...}
    let words = words.strip_prefix(b"{flags=").unwrap_or(words);
    let mut bits = 0;
    for word in words.split(|byte| matches!(byte, b'|' | b',' | b' ' | b'}')) {
        bits |= match word {
            b"O_WRONLY" | b"O_RDWR" => flags::WRITE,
            b"O_CREAT" => flags::CREATE,
            b"O_EXCL" => flags::EXCLUSIVE,
            b"O_TRUNC" => flags::TRUNCATE,
            b"O_APPEND" => flags::APPEND,
            b"O_DIRECT" => flags::DIRECT,
            b"O_DIRECTORY" => flags::DIRECTORY,
            b"O_SYNC" | b"O_DSYNC" => flags::SYNCHRONOUS,
            _ => 0,
        };
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Reader};
    use super::*;

    fn read(lines: &[&str]) -> Trace {
        let mut reader = Reader::new(Format::Strace, b"/here");
        for line in lines {
            reader.line(line.as_bytes()).unwrap();
        }
        reader.finish().unwrap()
    }

    fn told(trace: &Trace) -> Vec<(What, String, u64, u64)> {
        let path = |event: &Event| {
            event
                .path
                .map_or(String::new(), |path| String::from_utf8_lossy(trace.paths.get(path)).into())
        };
        trace
            .events
            .iter()
            .map(|event| (event.what, path(event), event.offset, event.length))
            .collect()
    }

    #[test]
    fn positions_follow_reads_writes_seeks_and_duplicates() {
        let trace = read(&[
            "1 1.000000 openat(AT_FDCWD</here>, \"a\", O_RDWR|O_CREAT, 0777) = 3</here/a> <0.000010>",
            "1 1.000020 write(3</here/a>, \"\"..., 100) = 100 <0.000010>",
            "1 1.000040 dup(3</here/a>) = 4</here/a> <0.000001>",
            "1 1.000050 write(4</here/a>, \"\"..., 50) = 50 <0.000010>",
            "1 1.000070 lseek(3</here/a>, 20, SEEK_SET) = 20 <0.000001>",
            "1 1.000080 read(4</here/a>, \"\"..., 10) = 10 <0.000001>",
            "1 1.000090 pwrite64(4</here/a>, \"\"..., 7, 9000) = 7 <0.000001>",
            "1 1.000100 read(4</here/a>, 0x1, 10) = -1 EIO (Input/output error) <0.000001>",
            "1 1.000110 close(3</here/a>) = 0 <0.000001>",
            "1 1.000120 close(4</here/a>) = 0 <0.000002>",
        ]);
        let a = || "/here/a".to_owned();
        let told = told(&trace);
        assert_eq!(told[1], (What::Write, a(), 0, 100));
        assert_eq!(told[2], (What::Write, a(), 100, 50));
        assert_eq!(told[3], (What::Read, a(), 20, 10));
        assert_eq!(told[4], (What::Write, a(), 9000, 7));
        assert!(trace.events[5].failed);
        assert!(!trace.events[6].is(flags::LAST) && trace.events[7].is(flags::LAST));
        assert_eq!((trace.calls, trace.wall_us), (10, 122));
    }

    #[test]
    fn names_are_found_by_the_directory_of_their_process() {
        let trace = read(&[
            "1 1.000000 chdir(\"/x\") = 0 <0.000001>",
            "1 1.000010 vfork( <unfinished ...>",
            "2 1.000020 rename(\"a\", \"../b\") = 0 <0.000001>",
            "1 1.000030 <... vfork resumed>) = 2 <0.000020>",
            "2 1.000035 +++ exited with 0 +++",
            "1 1.000040 unlinkat(5</y>, \"z\", 0) = 0 <0.000001>",
            "1 1.000050 unlinkat(5</y>, \"w\", AT_REMOVEDIR) = 0 <0.000001>",
            "1 1.000060 mkdir(\"m\", 0777) = 0 <0.000001>",
        ]);
        let names: Vec<_> = told(&trace).into_iter().map(|(what, path, ..)| (what, path)).collect();
        assert_eq!(names[0], (What::Rename, "/x/a".to_owned()));
        assert_eq!(trace.paths.get(trace.events[0].to.unwrap()), b"/b");
        assert_eq!(names[1], (What::Unlink, "/y/z".to_owned()));
        assert_eq!(names[2], (What::RemoveDirectory, "/y/w".to_owned()));
        assert_eq!(names[3], (What::MakeDirectory, "/x/m".to_owned()));
        assert_eq!(trace.processes, 2);
    }

    #[test]
    fn what_leaves_is_told_from_files() {
        let trace = read(&[
            "1 1.000000 write(1<pipe:[7231962]>, \"\"..., 3) = 3 <0.000009>",
            "1 1.000000 write(2</dev/pts/0>, \"\"..., 3) = 3 <0.000009>",
            "1 1.000000 newfstatat(3</here/a>, \"\", {st_mode=S_IFREG|0644, st_size=47, ...}, AT_EMPTY_PATH) = 0 <0.000016>",
            "1 1.000000 fcntl(3</here/a>, F_SETLKW, {l_type=F_WRLCK, l_whence=SEEK_SET, l_start=0, l_len=0}) = 0 <0.000011>",
            "1 1.000000 fdatasync(3</here/a>) = 0 <0.000300>",
        ]);
        let kinds: Vec<What> = trace.events.iter().map(|event| event.what).collect();
        assert_eq!(kinds, [What::Output, What::Output, What::Stat, What::Lock, What::Sync]);
        assert_eq!(trace.events[2].length, 47);
        assert!(trace.events[4].is(flags::DATA));
    }

    #[test]
    fn a_call_that_goes_on_must_have_begun() {
        let mut reader = Reader::new(Format::Strace, b"/");
        assert!(reader.line(b"1 1.000000 <... read resumed>\"\", 3) = 0 <0.000001>").is_err());
        reader.line(b"1 1.000000 read(0</x>,  <unfinished ...>").unwrap();
        let wrong =
            reader.line(b"1 1.000000 <... write resumed>\"\", 3) = 0 <0.000001>").unwrap_err();
        assert_eq!(wrong.line, 3);
    }
}
