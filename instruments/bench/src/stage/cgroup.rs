//! Memory cgroups: a contestant and its page cache within a stated size.
//!
//! A group counts, and limits, the memory of the processes in it and the page cache they brought
//! in, whichever file system it is of (memory(cgroups v1 and v2) in the kernel's documentation).
//! Swap is not allowed to stretch it. Version 1 and version 2 of the interface are known; a machine
//! may have both, with the memory controller in one.
//!
//! Owns the groups it makes: `weir-bench-PID/NAME` at the top of the hierarchy.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::ledger::{Ledger, Listed, Thing};
use super::process::{Process, wait_for_end};
use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::soon::soon;

/// How long processes are given to end once they are killed, and a group to become empty.
const PATIENCE: Duration = Duration::from_secs(20);

/// The files of one version of the interface.
struct Interface {
    /// Where the hierarchy is, if it is this version.
    root: &'static str,
    /// A file that is there if, and only if, the root is of this version.
    sign: &'static str,
    limit: &'static str,
    /// Limits swap, or memory and swap together; not everywhere there.
    swap: &'static str,
    peak: &'static str,
    /// The file, and the word in it, that counts processes killed for want of memory.
    killed: (&'static str, &'static str),
}

const V1: Interface = Interface {
    root: "/sys/fs/cgroup/memory",
    sign: "memory.limit_in_bytes",
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    killed: ("memory.oom_control", "oom_kill"),
};

const V2: Interface = Interface {
    root: "/sys/fs/cgroup",
    sign: "cgroup.controllers",
    limit: "memory.max",
    swap: "memory.swap.max",
    peak: "memory.peak",
    killed: ("memory.events", "oom_kill"),
};

/// The interface this machine has.
fn interface() -> Result<&'static Interface> {
    if Path::new(V1.root).join(V1.sign).exists() {
        return Ok(&V1);
    }
    let controllers = fs::read_to_string(Path::new(V2.root).join(V2.sign)).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        return Ok(&V2);
    }
    Err(Error::Missing {
        what: format!(
            "memory cannot be limited: the cgroup controller 'memory' is neither at {} (version 1) \
             nor at {} (version 2)",
            V1.root, V2.root
        ),
        remedy: "mount it with 'mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory', or start \
                 the container with its cgroups writable"
            .into(),
    })
}

/// Fails, saying what to do, where memory cannot be limited.
pub fn require() -> Result<()> {
    interface().map(drop)
}

/// One group. It goes, with all that still runs in it, when this does.
pub struct Group {
    interface: &'static Interface,
    path: PathBuf,
    /// `cgroup.procs`, open: a child joins between fork and exec, where little may be done.
    processes: File,
    listed: Option<[Listed; 2]>,
    undo: Option<Undo>,
}

impl Group {
    /// Makes the group `name` of this run with a limit of `bytes`.
    pub fn new(ledger: &Ledger, name: &str, bytes: u64) -> Result<Group> {
        let interface = interface()?;
        let root = Path::new(interface.root);
        let above = root.join(format!("weir-bench-{}", std::process::id()));
        let path = above.join(name);
        let listed = [
            ledger.list(Thing::Group { path: above.clone() })?,
            ledger.list(Thing::Group { path: path.clone() })?,
        ];
        let undo = {
            let path = path.clone();
            undo(move || drop(remove(&path)))
        };
        for directory in [&above, &path] {
            if interface.sign == V2.sign {
                // Its parent must hand the controller down.
                let control = directory.with_file_name("cgroup.subtree_control");
                fs::write(&control, "+memory")
                    .doing("hand the memory controller down by", &control)?;
            }
            match fs::create_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.doing("create the cgroup", directory)?,
            }
        }
        let limit = path.join(interface.limit);
        fs::write(&limit, bytes.to_string()).doing("limit memory by", &limit)?;
        let swap = path.join(interface.swap);
        if swap.exists() {
            // In version 1 it is the sum of both, in version 2 swap alone.
            let bytes = if interface.sign == V1.sign { bytes } else { 0 };
            fs::write(&swap, bytes.to_string()).doing("limit swap by", &swap)?;
        }
        let file = path.join("cgroup.procs");
        let processes = OpenOptions::new().write(true).open(&file).doing("open", &file)?;
        Ok(Group { interface, path, processes, listed: Some(listed), undo: Some(undo) })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the child that `command` starts, and therefore all its own, run in this group.
    pub fn admit(&self, command: &mut Command) -> Result<()> {
        let processes = self.processes.try_clone().doing("open again", &self.path)?;
        // SAFETY: between fork and exec the closure only makes a write(2) to an open descriptor,
        // which is async-signal-safe, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                // Zero means the process that writes it.
                rustix::io::write(processes.as_fd(), b"0")?;
                Ok(())
            });
        }
        Ok(())
    }

    /// The most memory it has held, bytes; 0 where the kernel does not tell.
    pub fn peak_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.interface.peak)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// How many processes in it were killed because it was full.
    pub fn killed(&self) -> u64 {
        let (file, word) = self.interface.killed;
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        count(&text, word)
    }

    /// A line for a person: how much of it is page cache and how much is the processes' own.
    pub fn account(&self) -> String {
        let text = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let sum = |words: [&str; 2]| words.map(|word| count(&text, word)).into_iter().max();
        let mib = |bytes: Option<u64>| bytes.unwrap_or(0) >> 20;
        format!(
            "{} MiB page cache, {} MiB of processes",
            mib(sum(["total_cache", "file"])),
            mib(sum(["total_rss", "anon"]))
        )
    }

    /// Removes it; an error if it cannot be emptied.
    pub fn remove(mut self) -> Result<()> {
        remove(&self.path)?;
        if let Some(undo) = self.undo.take() {
            undo.disarm();
        }
        self.strike()
    }

    fn strike(&mut self) -> Result<()> {
        for listed in self.listed.take().into_iter().flatten() {
            listed.strike()?;
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.undo.take());
        if !self.path.exists() {
            let _ = self.strike();
        }
    }
}

fn count(text: &str, word: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
        .unwrap_or(0)
}

/// The processes in a group.
pub fn members(group: &Path) -> Vec<Process> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|pid| Process::with_pid(pid.parse().ok()?)).collect()
}

/// Kills all that run in a group, again until there is nobody; true if it is empty then.
pub fn kill_all_in(group: &Path) -> bool {
    for _ in 0..5 {
        let members = members(group);
        if members.is_empty() {
            return true;
        }
        for process in &members {
            process.kill();
        }
        wait_for_end(&members, PATIENCE / 5);
    }
    members(group).iter().all(|process| !process.runs())
}

/// Removes a group after killing all in it, and what is above it if that is empty and a run's.
///
/// The kernel may need a moment after the last process is gone.
pub fn remove(group: &Path) -> Result<()> {
    kill_all_in(group);
    let mut removed = Ok(());
    soon(Duration::from_secs(2), || {
        removed = fs::remove_dir(group);
        !matches!(&removed, Err(error) if error.kind() == io::ErrorKind::ResourceBusy)
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.doing("remove the cgroup", group)?,
    }
    if let Some(above) = group.parent()
        && above.file_name().is_some_and(|name| name.to_string_lossy().starts_with("weir-bench-"))
    {
        // Not empty if the run has another group.
        let _ = fs::remove_dir(above);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::ledger::Ledger;

    #[test]
    fn counts_are_found_by_the_whole_word() {
        let text = "cache 1\ntotal_cache 4096\ntotal_cache_more 7\noom_kill 2\n";
        assert_eq!(count(text, "total_cache"), 4096);
        assert_eq!(count(text, "oom_kill"), 2);
        assert_eq!(count(text, "rss"), 0);
    }

    /// Needs root and a memory controller; passes over itself without.
    #[test]
    fn a_child_runs_within_the_limit_and_goes_with_the_group() {
        if !rustix::process::geteuid().is_root() || require().is_err() {
            return;
        }
        let dir = std::env::temp_dir();
        let Ok(ledger) = Ledger::begin(&dir) else { return };
        let Ok(group) = Group::new(&ledger, "unit", 64 << 20) else {
            ledger.close().unwrap();
            return;
        };
        let path = group.path.clone();
        assert!(ledger.account().things.contains(&(1, Thing::Group { path: path.clone() })));
        let mut command = Command::new("sleep");
        group.admit(command.arg("60")).unwrap();
        let mut child = command.spawn().unwrap();
        assert_eq!(members(&path).iter().map(|found| found.pid).collect::<Vec<_>>(), [child.id()]);
        assert!(group.peak_bytes() > 0 && group.peak_bytes() <= 64 << 20);
        assert_eq!(group.killed(), 0);
        assert!(group.account().contains("page cache"));
        group.remove().unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!path.exists() && !path.parent().unwrap().exists());
        assert!(ledger.account().things.is_empty());
        ledger.close().unwrap();
    }
}
