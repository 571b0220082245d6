//! `weir-bench clean`: removes what dead runs left, and nothing else.
//!
//! What a run made is in its ledger. A thing is removed only if it is listed there and still is
//! what it is said to be: a process by its start time, or by its program and its arguments; a mount
//! by its type and source; a loop device by its backing file; a directory by its marker.
//!
//! Order: all processes first, the disk's server too. With the server gone each request to the
//! disk fails at once, so that unmounting does not write the page cache to a slow disk that nobody
//! will read again. Then mounts, loop devices, the disk's own mount, groups, directories.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ledger::{self, Account, Found, Ledger, Thing};
use super::process::{Process, wait_for_end};
use super::{cgroup, file_system, remote};
use crate::disk::attach;
use crate::error::{Doing, Error, Result};
use crate::mount::force_unmount;
use crate::mount_table::{Mounted, loop_devices_in, mount_at, mounts_at_or_below};
use crate::soon::soon;
use crate::workspace;

/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a loop device may take to be detached.
const DETACH_TIME: Duration = Duration::from_secs(2);

/// What was done, line by line, and what could not be.
#[derive(Default)]
struct Report {
    removed: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    fn removed(&mut self, what: String) {
        self.removed.push(what);
    }

    fn done(&mut self, done: bool, what: String) {
        if done {
            self.removed.push(what);
        } else {
            self.failed.push(what);
        }
    }
}

/// Removes what this user's dead runs left, all of them or those that worked in `dir`, and says what it does.
pub fn run(dir: Option<&Path>) -> Result<()> {
    let dir = dir.map(|dir| dir.canonicalize().doing("find", dir)).transpose()?;
    let mut nothing = true;
    let mut failed = Vec::new();
    for found in ledger::find()? {
        match found {
            Found::Alive(account) if is_in(&account, dir.as_deref()) => println!(
                "left alone: the run of process {} in {} is going on",
                account.owner.process.pid,
                account.owner.dir.display()
            ),
            Found::Dead(ledger) if is_in(&ledger.account(), dir.as_deref()) => {
                let report = sweep(&ledger);
                ledger.close()?;
                nothing &= report.removed.is_empty() && report.failed.is_empty();
                tell(&ledger.account(), &report);
                failed.extend(report.failed);
            }
            Found::Alive(_) | Found::Dead(_) => {}
        }
    }
    if let Some(dir) = &dir {
        // A run that was killed before it had a ledger, or whose ledger a restart took away.
        let left = workspace::place(dir);
        if workspace::is_left_over(&left) {
            workspace::clear(&left)?;
            println!("removed directory {}", left.display());
            nothing = false;
        }
    }
    if nothing {
        println!("nothing to clean");
    }
    if failed.is_empty() { Ok(()) } else { Err(cannot(&failed)) }
}

/// Removes what dead runs in `dir` left, before a new run there; silent if there is nothing.
pub fn before_run(dir: &Path) -> Result<()> {
    for found in ledger::find()? {
        if let Found::Dead(ledger) = found
            && is_in(&ledger.account(), Some(dir))
        {
            let report = sweep(&ledger);
            ledger.close()?;
            tell(&ledger.account(), &report);
            if !report.failed.is_empty() {
                return Err(cannot(&report.failed));
            }
        }
    }
    Ok(())
}

/// Removes what this process's own ledger still lists: normally nothing.
pub fn at_end(ledger: &Ledger) {
    let report = sweep(ledger);
    for what in &report.failed {
        eprintln!("weir-bench: could not remove {what}; 'weir-bench clean' tries again");
    }
    // A ledger that cannot be removed is found, and found empty, by the next clean.
    let _ = ledger.close();
}

fn is_in(account: &Account, dir: Option<&Path>) -> bool {
    dir.is_none_or(|dir| account.owner.dir == dir)
}

fn tell(account: &Account, report: &Report) {
    if report.removed.is_empty() && report.failed.is_empty() {
        return;
    }
    let owner = &account.owner;
    println!("left by the run of process {} in {}:", owner.process.pid, owner.dir.display());
    for what in &report.removed {
        println!("  removed {what}");
    }
    for what in &report.failed {
        println!("  could not remove {what}");
    }
}

fn cannot(failed: &[String]) -> Error {
    Error::Missing {
        what: format!("could not remove {}", failed.join(", ")),
        remedy: "see with 'fuser -vm' who uses it, end that, and run 'weir-bench clean' again"
            .into(),
    }
}

/// Removes everything listed, and strikes what is gone.
fn sweep(ledger: &Ledger) -> Report {
    let account = ledger.account();
    let mut report = Report::default();
    if account.owner.boot == ledger::boot() {
        end_processes(&account, &mut report);
        let steps: [fn(&Account, &Thing, &mut Report); 4] =
            [unmount, detach, stop_disk, remove_group];
        for step in steps {
            for (_, thing) in account.things.iter().rev() {
                step(&account, thing, &mut report);
            }
        }
    }
    for (_, thing) in account.things.iter().rev() {
        remove_directory(thing, &mut report);
    }
    for (number, thing) in &account.things {
        if is_gone(&account, thing) && ledger.strike(*number).is_err() {
            report.failed.push("a line of the ledger".into());
        }
    }
    report
}

/// What of the account still runs, by whatever it is known.
fn processes(account: &Account, thing: &Thing) -> Vec<Process> {
    match thing {
        Thing::Process { process } => vec![*process],
        Thing::Disk { directory } => Process::of_program_in(&account.owner.program, directory),
        Thing::Weir { program, mountpoint, .. } => Process::of_program_in(program, mountpoint),
        Thing::Group { path } => cgroup::members(path),
        Thing::Remote { programs, directory } => programs
            .iter()
            .chain([&account.owner.program])
            .flat_map(|program| Process::of_program_in(program, directory))
            .collect(),
        Thing::Directory { .. } | Thing::FileSystem { .. } => Vec::new(),
    }
}

fn end_processes(account: &Account, report: &mut Report) {
    // Again until there is nobody: one that is just being started is not seen the first time.
    for _ in 0..5 {
        let mut running: Vec<Process> = Vec::new();
        for (_, thing) in account.things.iter().rev() {
            for process in processes(account, thing) {
                if process.runs() && !running.contains(&process) {
                    running.push(process);
                }
            }
        }
        if running.is_empty() {
            return;
        }
        let named: Vec<_> = running.iter().map(|process| (*process, process.name())).collect();
        for process in &running {
            process.kill();
        }
        let left = wait_for_end(&running, PATIENCE / 5);
        for (process, name) in named {
            let text = format!("process {} ({name})", process.pid);
            report.done(!left.contains(&process), text);
        }
    }
}

fn unmount(account: &Account, thing: &Thing, report: &mut Report) {
    match thing {
        Thing::Weir { source, mountpoint, .. } => {
            // Once for each: a mount point may be covered twice.
            while let Some(mounted) = mount_at(mountpoint) {
                if mounted.kind != "fuse.weir" || mounted.source != *source {
                    return;
                }
                force_unmount(mountpoint);
                let gone = mount_at(mountpoint).is_none();
                report.done(gone, format!("mount {} ({})", mountpoint.display(), mounted.kind));
                if !gone {
                    return;
                }
            }
        }
        Thing::FileSystem { kind, mountpoint } => {
            let Some(mounted) = mount_at(mountpoint) else { return };
            if mounted.kind == *kind && loop_devices(account).contains(&mounted.source) {
                let gone = file_system::take_away(mountpoint);
                report.done(gone, format!("mount {} ({kind})", mountpoint.display()));
            }
        }
        Thing::Remote { directory, .. } => unmount_all(remote_mounts(directory), report),
        _ => {}
    }
}

/// The mounts of a [`Thing::Remote`].
fn remote_mounts(directory: &Path) -> Vec<Mounted> {
    let mut mounts = mounts_at_or_below(directory);
    mounts.retain(|mounted| remote::KINDS.contains(&mounted.kind.as_str()));
    mounts
}

/// The mounts of a [`Thing::Disk`].
fn disk_mounts(directory: &Path) -> Vec<Mounted> {
    let mut mounts = mounts_at_or_below(directory);
    mounts.retain(|mounted| mounted.kind.starts_with("fuse"));
    mounts
}

fn unmount_all(mounts: Vec<Mounted>, report: &mut Report) {
    for Mounted { mountpoint, kind, .. } in mounts {
        force_unmount(&mountpoint);
        let gone = mount_at(&mountpoint).is_none();
        report.done(gone, format!("mount {} ({kind})", mountpoint.display()));
    }
}

/// The loop devices over the run's disks.
fn loop_devices(account: &Account) -> Vec<PathBuf> {
    let disks = account.things.iter().filter_map(|(_, thing)| match thing {
        Thing::Disk { directory } => Some(directory),
        _ => None,
    });
    disks.flat_map(|directory| loop_devices_in(directory)).collect()
}

fn detach(_: &Account, thing: &Thing, report: &mut Report) {
    let Thing::Disk { directory } = thing else { return };
    for device in loop_devices_in(directory) {
        attach::detach(&device);
        // The kernel lets go when the last one who looks at the device does.
        let gone = soon(DETACH_TIME, || !loop_devices_in(directory).contains(&device));
        report.done(gone, format!("loop device {}", device.display()));
    }
}

fn stop_disk(_: &Account, thing: &Thing, report: &mut Report) {
    let Thing::Disk { directory } = thing else { return };
    // A loop device that could not be detached is known by its file's name in this mount.
    if !loop_devices_in(directory).is_empty() {
        return;
    }
    unmount_all(disk_mounts(directory), report);
}

fn remove_group(_: &Account, thing: &Thing, report: &mut Report) {
    let Thing::Group { path } = thing else { return };
    if path.exists() {
        let removed = cgroup::remove(path);
        report.done(removed.is_ok(), format!("cgroup {}", path.display()));
    }
}

fn remove_directory(thing: &Thing, report: &mut Report) {
    let Thing::Directory { path } = thing else { return };
    if workspace::is_left_over(path) {
        match workspace::clear(path) {
            Ok(()) => report.removed(format!("directory {}", path.display())),
            Err(error) => report.failed.push(format!("directory {} ({error})", path.display())),
        }
    }
}

/// Whether nothing of it is left, or what is in its place is not what was listed.
fn is_gone(account: &Account, thing: &Thing) -> bool {
    if account.owner.boot == ledger::boot()
        && processes(account, thing).iter().any(|process| process.runs())
    {
        return false;
    }
    match thing {
        Thing::Directory { path } => !workspace::is_left_over(path),
        Thing::Disk { directory } => {
            loop_devices_in(directory).is_empty() && disk_mounts(directory).is_empty()
        }
        Thing::Process { .. } => true,
        Thing::FileSystem { kind, mountpoint } => {
            mount_at(mountpoint).is_none_or(|mounted| mounted.kind != *kind)
        }
        Thing::Weir { source, mountpoint, .. } => mount_at(mountpoint)
            .is_none_or(|mounted| mounted.kind != "fuse.weir" || mounted.source != *source),
        Thing::Remote { directory, .. } => remote_mounts(directory).is_empty(),
        Thing::Group { path } => !path.exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::process::tests::sleeper;

    fn account(things: Vec<Thing>) -> Account {
        let owner = ledger::Owner {
            process: Process { pid: 1, start: 0 },
            boot: ledger::boot(),
            program: "/nonexistent/weir-bench".into(),
            dir: "/nonexistent".into(),
        };
        Account { owner, things: (0..).zip(things).collect() }
    }

    #[test]
    fn a_process_whose_number_was_given_again_is_not_killed() {
        let mut child = sleeper(Path::new("sleep"));
        let process = Process::with_pid(child.id()).unwrap();
        let earlier = Process { start: process.start - 1, ..process };
        let mut report = Report::default();
        end_processes(&account(vec![Thing::Process { process: earlier }]), &mut report);
        assert!(report.removed.is_empty() && report.failed.is_empty());
        assert!(process.runs());
        end_processes(&account(vec![Thing::Process { process }]), &mut report);
        assert_eq!(report.removed, [format!("process {} (sleep)", process.pid)]);
        child.wait().unwrap();
    }

    #[test]
    fn mounts_that_are_not_as_listed_stay() {
        let things = vec![
            Thing::Weir {
                program: "/nonexistent".into(),
                source: "/source".into(),
                mountpoint: "/proc".into(),
            },
            Thing::FileSystem { kind: "proc".into(), mountpoint: "/proc".into() },
            Thing::Disk { directory: "/proc".into() },
            Thing::Remote { programs: Vec::new(), directory: "/proc".into() },
        ];
        let account = account(things);
        let mut report = Report::default();
        for (_, thing) in &account.things {
            unmount(&account, thing, &mut report);
            stop_disk(&account, thing, &mut report);
            detach(&account, thing, &mut report);
        }
        assert!(report.removed.is_empty() && report.failed.is_empty());
        assert!(mount_at(Path::new("/proc")).is_some());
    }
}
