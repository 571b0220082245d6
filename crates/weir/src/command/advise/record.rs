//! Runs a program under strace(1), and reads recorded traces.
//!
//! The program keeps its terminal, its standard streams and its exit status. Signals sent to this process reach the program:
//! strace ignores them while it writes to a file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, WaitId, WaitIdOptions};
use weir_advise::trace::strace::CALLS;
use weir_advise::trace::{Format, LINE_MAX, Reader, Trace};

use crate::cli::TraceFormat;
use crate::failure::{Failure, one_line};
use crate::run::forward;
use crate::run::outcome::cannot_run;

/// How often the program's process is looked for, and how long.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 50;

/// What a recorded run was.
pub struct Recorded {
    /// The calls.
    pub trace: Trace,
    /// How the program ended.
    pub status: ExitStatus,
    /// From its start to its end.
    pub wall: Duration,
    /// Processor time in user mode of the program and those it waited for.
    pub user: Duration,
    /// When it began.
    pub begun: SystemTime,
}

/// Runs a program under strace; the trace goes through `file`, which is removed.
pub fn run(
    name: &OsStr,
    program: &Path,
    rest: &[OsString],
    file: &Path,
) -> Result<Recorded, Failure> {
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "--seccomp-bpf",
        "-q",
        "-y",
        "-ttt",
        "-T",
        "-s",
        "0",
        "-e",
        "signal=none",
        "-e",
    ]);
    // '?': left out where it is not known.
    let calls: Vec<String> = CALLS.iter().map(|call| format!("?{call}")).collect();
    command
        .arg(format!("trace={}", calls.join(",")))
        .arg("-o")
        .arg(file)
        .arg("--")
        .arg(program)
        .args(rest);
    let begun = SystemTime::now();
    let clock = Instant::now();
    let (status, user) = run_traced(&mut command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Refused(
            "strace is missing, which records the program's calls: install the package strace, or give a recorded trace \
             with --trace"
                .to_owned(),
        ),
        _ => cannot_run(OsStr::new("strace"), error),
    })?;
    let wall = clock.elapsed();
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let trace = read(file, Some(Format::Strace), directory.as_os_str().as_bytes());
    let _ = std::fs::remove_file(file);
    let trace = trace.map_err(|error| {
        Failure::Refused(format!(
            "strace recorded nothing of {} that can be read ({error}); see its messages above",
            one_line(&name.to_string_lossy())
        ))
    })?;
    Ok(Recorded { trace, status, wall, user, begun })
}

/// Runs strace to its end; the processor time of what it ran is told by the kernel only until it is waited for.
fn run_traced(command: &mut Command) -> io::Result<(ExitStatus, Duration)> {
    let held = forward::hold()?;
    held.restore_in(command);
    let mut child = command.spawn()?;
    held.forward_to(child.id());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..LOOKS_MAX {
                std::thread::sleep(LOOK_AGAIN);
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // The first processes of strace only try what the kernel can do.
                if let Some(program) = only_child(child.id()) {
                    held.forward_to(program);
                }
            }
        });
        let waited = wait_without_reaping(child.id());
        ended.store(true, Ordering::Relaxed);
        waited
    })?;
    let user = user_of_children(child.id()).unwrap_or_default();
    held.forward_to_nobody();
    Ok((child.wait()?, user))
}

fn only_child(process: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn wait_without_reaping(process: u32) -> io::Result<()> {
    let pid = Pid::from_raw(process as i32).ok_or(io::ErrorKind::NotFound)?;
    loop {
        match rustix::process::waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop).map_err(io::Error::from),
        }
    }
}

/// `cutime` of /proc/PID/stat, proc(5).
fn user_of_children(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let ticks: u64 = text[text.rfind(')')? + 1..].split_whitespace().nth(13)?.parse().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The form of an argument.
pub fn form(format: TraceFormat) -> Format {
    match format {
        TraceFormat::Strace => Format::Strace,
        TraceFormat::Mobibench => Format::Mobibench,
        TraceFormat::Weir => Format::Weir,
    }
}

/// Reads a trace. `directory`: where its program began.
pub fn read(path: &Path, format: Option<Format>, directory: &[u8]) -> Result<Trace, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut lines = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    let mut reader = None;
    loop {
        line.clear();
        // One more than is read, so that the reader refuses it.
        let limit = LINE_MAX as u64 + 2;
        let count = lines
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut line)
            .map_err(|error| error.to_string())?;
        if count == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if reader.is_none() {
            if line.starts_with(&[0x1f, 0x8b]) {
                return Err("line 1: it is packed; unpack it first, with gunzip".to_owned());
            }
            let told = format.or_else(|| Format::of(&line)).ok_or(
                "line 1: it is neither strace's, nor MobiBench's, nor Weir's form; name it with --format if it is",
            )?;
            reader = Some(Reader::new(told, directory));
        }
        let reader = reader.as_mut().expect("made for the first line");
        reader.line(&line).map_err(|error| error.to_string())?;
    }
    let reader = reader.ok_or("it is empty")?;
    reader.finish().map_err(|error| error.to_string())
}
