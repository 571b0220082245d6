//! Runs a program under strace(1), and reads recorded traces.
//!
//! The program keeps its terminal, its standard streams and its exit status. Signals sent to this process reach the program:
//! strace ignores them while it writes to a file.
//!
//! When the program has ended, processes that it started go on by themselves, as they do without a recorder: strace is killed,
//! which resumes them. So the calls are not chosen by a filter (`--seccomp-bpf`), although that delays the others less: what
//! has such a filter cannot make the chosen calls without strace.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, WaitId, WaitIdOptions};
use weir_advise::trace::strace::CALLS;
use weir_advise::trace::{Format, LINE_MAX, Reader, Trace};

use super::scratch;
use crate::cli::TraceFormat;
use crate::failure::{Failure, one_line};
use crate::run::forward;
use crate::run::outcome::cannot_run;

/// How often the program's process is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long processes that the program started may take to end after it.
const OTHERS_END: Duration = Duration::from_secs(1);

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

/// Runs a program under strace; the trace goes through `file`, which is removed. `forgets`: signals that arrive before its end
/// are the program's alone.
pub fn run(
    name: &OsStr,
    program: &Path,
    rest: &[OsString],
    file: &Path,
    forgets: bool,
) -> Result<Recorded, Failure> {
    let mut command = Command::new("strace");
    command.args(["-f", "-q", "-y", "-ttt", "-T", "-s", "0", "-e", "signal=!chld", "-e"]);
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
    let (status, user) = run_traced(&mut command, file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Refused(
            "strace is missing, which records the program's calls: install the package strace, or give a recorded trace \
             with --trace"
                .to_owned(),
        ),
        _ => cannot_run(OsStr::new("strace"), error),
    })?;
    let wall = clock.elapsed();
    if forgets {
        forward::forget();
    }
    let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let trace = read(file, Some(Format::Strace), directory.as_os_str().as_bytes(), true);
    let _ = std::fs::remove_file(file);
    let trace = trace.map_err(|error| {
        Failure::Refused(format!(
            "strace recorded nothing of {} that can be read ({error}); see its messages above",
            one_line(&name.to_string_lossy())
        ))
    })?;
    Ok(Recorded { trace, status, wall, user, begun })
}

/// Runs strace until the program has ended; the processor time of what it ran is told by the kernel only until it is waited
/// for.
fn run_traced(command: &mut Command, file: &Path) -> io::Result<(ExitStatus, Duration)> {
    let held = forward::hold()?;
    held.restore_in(command);
    let mut child = command.spawn()?;
    held.forward_to(child.id());
    let ended = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(child.id(), file, &held, &ended));
        let waited = wait_without_reaping(child.id());
        ended.store(true, Ordering::Relaxed);
        // A panic there would be one of this program.
        let status = watch.join().unwrap_or_default();
        waited.map(|()| status)
    })?;
    let user = user_of_children(child.id()).unwrap_or_default();
    held.forward_to_nobody();
    let own = child.wait()?;
    Ok((status.unwrap_or(own), user))
}

/// Follows the program: signals are forwarded to it, and strace is killed if the program has ended and others go on.
/// Returns the program's status then.
fn watch(strace: u32, file: &Path, held: &forward::Held, ended: &AtomicBool) -> Option<ExitStatus> {
    let mut program = None;
    let mut gone: Option<Instant> = None;
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_AGAIN);
        // The first processes of strace only try what the kernel can do.
        if program.is_none() {
            program = first_process(file);
            if let Some(program) = program {
                held.forward_to(program);
            }
        }
        let Some(program) = program else { continue };
        if is_child(program, strace) {
            continue;
        }
        // Its number may be another process's from now on.
        held.forward_to_nobody();
        if gone.get_or_insert_with(Instant::now).elapsed() < OTHERS_END {
            continue;
        }
        let pid = Pid::from_raw(strace as i32)?;
        // It has not been waited for: the number is still its own.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok()?;
        scratch::warn(
            "CMD has ended; what processes that it started do from now on is not recorded",
        );
        return ending(file, program);
    }
    None
}

/// The process of the first line that strace wrote: the program's.
fn first_process(file: &Path) -> Option<u32> {
    let mut line = Vec::new();
    let limit = 64;
    BufReader::new(File::open(file).ok()?.take(limit)).read_until(b' ', &mut line).ok()?;
    std::str::from_utf8(&line).ok()?.strip_suffix(' ')?.parse().ok()
}

/// Whether a process is a child that has not been waited for.
fn is_child(process: u32, parent: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    let text = stat.unwrap_or_default();
    let fields = text.rfind(')').map(|end| text[end + 1..].split_whitespace());
    fields.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(parent)
}

/// How strace saw the program end: `77 +++ exited with 3 +++` or `77 +++ killed by SIGKILL +++`.
fn ending(file: &Path, program: u32) -> Option<ExitStatus> {
    let start = format!("{program} ");
    let mut status = None;
    for line in BufReader::new(File::open(file).ok()?).split(b'\n') {
        let line = line.ok()?;
        if !line.starts_with(start.as_bytes()) {
            continue;
        }
        let Ok(text) = std::str::from_utf8(&line) else { continue };
        if let Some((_, end)) = text.split_once("+++ exited with ") {
            let code: i32 = end.split(' ').next()?.parse().ok()?;
            status = Some(ExitStatus::from_raw(code << 8));
        } else if let Some((_, end)) = text.split_once("+++ killed by SIG") {
            status = number(end.split(' ').next()?).map(ExitStatus::from_raw);
        }
    }
    status
}

/// A signal's number by its name without SIG.
fn number(name: &str) -> Option<i32> {
    let known = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ILL", libc::SIGILL),
        ("TRAP", libc::SIGTRAP),
        ("ABRT", libc::SIGABRT),
        ("BUS", libc::SIGBUS),
        ("FPE", libc::SIGFPE),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("SEGV", libc::SIGSEGV),
        ("USR2", libc::SIGUSR2),
        ("PIPE", libc::SIGPIPE),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("XCPU", libc::SIGXCPU),
        ("XFSZ", libc::SIGXFSZ),
    ];
    known.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
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

/// Reads a trace. `directory`: where its program began. `cut`: its last line may be half of one.
pub fn read(
    path: &Path,
    format: Option<Format>,
    directory: &[u8],
    cut: bool,
) -> Result<Trace, String> {
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
        if forward::noted().is_some() {
            return Err(scratch::INTERRUPTED.to_owned());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if cut {
            break;
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
