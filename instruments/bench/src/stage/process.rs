//! Processes, known in a way that a reused process number cannot deceive.
//!
//! A process is its number and its start time (proc(5), field 22 of /proc/PID/stat): the kernel
//! gives a number again, but not in the same clock tick. A signal goes through a descriptor of the
//! process that was taken before its start time was looked at, so it reaches that one or none.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::soon::soon;

/// One process, past or present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did.
    pub start: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn with_pid(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Process { pid, start: start_time(&stat)? })
    }

    /// Whether any of its threads still runs, and so keeps its locks; one that has ended and only waits for its parent to notice does
    /// not.
    pub fn runs(self) -> bool {
        let directory = format!("/proc/{}", self.pid);
        let stat = fs::read_to_string(format!("{directory}/stat")).unwrap_or_default();
        if start_time(&stat) != Some(self.start) {
            return false;
        }
        // The first thread may have ended before the others.
        let threads = fs::read_dir(format!("{directory}/task")).into_iter().flatten().flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .any(|stat| !matches!(state(&stat), Some("Z" | "X")))
    }

    /// Sends it SIGKILL; false if it no longer runs.
    pub fn kill(self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return false;
        };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        self.runs() && pidfd_send_signal(&descriptor, Signal::KILL).is_ok()
    }

    /// The name its program was started by, for messages.
    pub fn name(self) -> String {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let word = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = Path::new(OsStr::from_bytes(word)).file_name();
        name.map_or_else(|| "unknown".into(), |name| name.to_string_lossy().into_owned())
    }

    /// All that run `program` and have `directory`, or a path in it, among their arguments. This
    /// process is not among them.
    pub fn of_program_in(program: &Path, directory: &Path) -> Vec<Process> {
        let own = std::process::id();
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| *pid != own && runs_program_in(*pid, program, directory))
            .filter_map(Process::with_pid)
            .collect()
    }
}

fn runs_program_in(pid: u32, program: &Path, directory: &Path) -> bool {
    let Ok(executable) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    // A program that was built anew while it ran is shown like this.
    let replaced = PathBuf::from(format!("{} (deleted)", program.display()));
    if executable != program && executable != replaced {
        return false;
    }
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
        line.split(|byte| *byte == 0)
            .any(|word| Path::new(OsStr::from_bytes(word)).starts_with(directory))
    })
}

/// Waits until none of them runs; those that still do after `limit`.
pub fn wait_for_end(processes: &[Process], limit: Duration) -> Vec<Process> {
    let mut left = processes.to_vec();
    soon(limit, || {
        left.retain(|process| process.runs());
        left.is_empty()
    });
    left
}

/// The fields of a stat line from the third on: the name before them may contain anything.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

fn state(stat: &str) -> Option<&str> {
    fields(stat).next()
}

fn start_time(stat: &str) -> Option<u64> {
    fields(stat).nth(19)?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    /// `sleep 60`, once the kernel shows it so: a child is started a moment before it has its
    /// arguments.
    pub fn sleeper(program: &Path) -> Child {
        let child = Command::new(program).arg("60").stdin(Stdio::null()).spawn().unwrap();
        while !fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().ends_with(b"\x0060\0") {
            thread::sleep(Duration::from_millis(1));
        }
        child
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 8 9";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!(state(stat), Some("S"));
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn a_process_is_killed_and_one_with_its_number_is_not() {
        let mut child = sleeper(Path::new("sleep"));
        let process = Process::with_pid(child.id()).unwrap();
        let other = Process { start: process.start - 1, ..process };
        assert!(!other.runs() && !other.kill());
        assert!(process.runs());
        assert!(process.kill());
        child.wait().unwrap();
        assert!(!process.runs() && !process.kill());
        assert!(wait_for_end(&[process], Duration::ZERO).is_empty());
    }

    #[test]
    fn a_process_runs_while_any_of_its_threads_does() {
        let program = "import ctypes, threading, time\n\
            threading.Thread(target=time.sleep, args=(60,)).start()\n\
            print(flush=True)\n\
            ctypes.CDLL(None).pthread_exit(None)";
        let mut command = Command::new("python3");
        command.args(["-c", program]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let process = Process::with_pid(child.id()).unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let first = format!("/proc/{}/stat", child.id());
        let has_ended = soon(Duration::from_secs(10), || {
            state(&fs::read_to_string(&first).unwrap()) == Some("Z")
        });
        let runs = process.runs();
        process.kill();
        child.wait().unwrap();
        assert!(has_ended && runs && !process.runs());
    }

    #[test]
    fn processes_are_found_by_program_and_directory_only() {
        let program = crate::mount::find_program("sleep").unwrap().canonicalize().unwrap();
        let mut child = sleeper(&program);
        let finds = |program: &Path, directory: &str| {
            Process::of_program_in(program, Path::new(directory))
                .iter()
                .any(|found| found.pid == child.id())
        };
        let (by_word, elsewhere, other) =
            (finds(&program, "60"), finds(&program, "/nowhere"), finds(Path::new("/bin/x"), "60"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(by_word && !elsewhere && !other);
    }
}
