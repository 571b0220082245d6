//! Kills a tree of processes.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Rounds in which processes that were made meanwhile are found.
const ROUNDS_MAX: usize = 500;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);

/// Kills all descendants of this process. Whoever reaps them is another thread; it must be the reaper of orphans
/// (PR_SET_CHILD_SUBREAPER), or those are missed. Where /proc is of another PID namespace nothing is killed.
pub fn kill_descendants() {
    if !sees_itself() {
        return;
    }
    for _ in 0..ROUNDS_MAX {
        let living = descendants(&[std::process::id()]);
        if living.is_empty() {
            return;
        }
        for pid in living {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(BETWEEN_ROUNDS);
    }
}

/// Whether /proc is of this process's PID namespace, so that the numbers there are those which it knows.
pub fn sees_itself() -> bool {
    let own = std::process::id().to_string();
    fs::read_link("/proc/self").is_ok_and(|found| found.as_os_str() == own.as_str())
}

/// Descendants of these processes that have not ended.
pub(crate) fn descendants(roots: &[u32]) -> Vec<Pid> {
    let mut children = HashMap::<u32, Vec<(u32, bool)>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read(format!("/proc/{process}/stat")) else { continue };
        // The name in parentheses may have any bytes (proc_pid_stat(5)).
        let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { continue };
        let rest = String::from_utf8_lossy(&stat[end + 1..]);
        let mut fields = rest.split_whitespace();
        let has_ended = matches!(fields.next(), Some("Z" | "X"));
        if let Some(parent) = fields.next().and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push((process, has_ended));
        }
    }
    let mut found = Vec::new();
    let mut left = roots.to_vec();
    while let Some(parent) = left.pop() {
        for (process, has_ended) in children.remove(&parent).unwrap_or_default() {
            left.push(process);
            if !has_ended {
                found.extend(Pid::from_raw(process as i32));
            }
        }
    }
    found
}
