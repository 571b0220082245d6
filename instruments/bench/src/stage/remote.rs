//! A directory behind a network: sshfs on an SFTP server of this machine, with a relay between them that delays what
//! passes (`weir-bench relay`). Neither ssh nor a port takes part, so no other user can reach the server.
//!
//! Owns one directory with the server's files, which can be reached without delay, too, and the mount point. The
//! processes are started by sshfs: it runs the relay in the place of ssh, and the relay the server. Each ends when the
//! one before it does.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::file_system::take_away;
use super::ledger::{Ledger, Listed, Thing};
use super::process::{Process, wait_for_end};
use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::mount::{find_program, require_program, run};

/// The types of file systems whose servers are elsewhere.
pub const KINDS: [&str; 3] = ["fuse.sshfs", "fuse.s3fs", "fuse.rclone"];
const SSHFS: &str = "sshfs";
/// Where distributions put the SFTP server.
const SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];
/// How long the processes of a mount may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails, saying what to do, where there is no sshfs, or no SFTP server.
pub fn require() -> Result<()> {
    sshfs()?;
    server().map(drop)
}

fn sshfs() -> Result<PathBuf> {
    require_program(SSHFS, SSHFS)?;
    let path = find_program(SSHFS).unwrap_or_default();
    path.canonicalize().doing("find", &path)
}

fn server() -> Result<PathBuf> {
    let found = SERVERS.iter().find_map(|path| Path::new(path).canonicalize().ok());
    found.ok_or_else(|| Error::Missing {
        what: "there is no sftp-server".into(),
        remedy: "install the package 'openssh-sftp-server'".into(),
    })
}

/// A directory and sshfs's mount of it. The mount is taken away when this goes.
pub struct Remote {
    programs: [PathBuf; 2],
    own: PathBuf,
    directory: PathBuf,
    delay: Duration,
    listed: Option<Listed>,
    undo: Option<Undo>,
}

impl Remote {
    /// Makes it in `directory`, mounted, with `delay` in each direction.
    pub fn start(ledger: &Ledger, directory: &Path, delay: Duration) -> Result<Remote> {
        let own = std::env::current_exe().doing("find", Path::new("this program"))?;
        let programs = [sshfs()?, server()?];
        let remote = Remote {
            listed: Some(ledger.list(Thing::Remote {
                programs: programs.to_vec(),
                directory: directory.to_owned(),
            })?),
            undo: Some({
                let mountpoint = directory.join("mount");
                undo(move || {
                    take_away(&mountpoint);
                })
            }),
            programs,
            own,
            directory: directory.to_owned(),
            delay,
        };
        for path in [&remote.files(), &remote.mountpoint()] {
            fs::create_dir(path).doing("create", path)?;
        }
        remote.mount()?;
        Ok(remote)
    }

    /// The files as the server has them.
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }

    /// The files as sshfs shows them.
    pub fn mountpoint(&self) -> PathBuf {
        self.directory.join("mount")
    }

    fn mount(&self) -> Result<()> {
        let [sshfs, server] = &self.programs;
        let words = [
            self.own.as_os_str().as_bytes(),
            b"relay",
            b"--delay-us",
            self.delay.as_micros().to_string().as_bytes(),
            b"--directory",
            self.files().as_os_str().as_bytes(),
            b"--server",
            server.as_os_str().as_bytes(),
            b"--",
        ]
        .map(escaped)
        .join(" ");
        let mut source = std::ffi::OsString::from("server:");
        source.push(self.files());
        // A group of their own, or an interrupt from the terminal would end the relay before anything is unmounted.
        run(Command::new(sshfs)
            .process_group(0)
            .arg(source)
            .arg(self.mountpoint())
            .arg("-o")
            .arg(format!("ssh_command={words}")))
        .map(drop)
    }

    /// Unmounts and mounts it: sshfs has nothing in memory afterwards.
    pub fn make_cold(&self) -> Result<()> {
        let processes = self.processes();
        if !take_away(&self.mountpoint()) {
            return Err(Error::Missing {
                what: format!("{} is still mounted", self.mountpoint().display()),
                remedy: "see with 'fuser -vm' who uses it".into(),
            });
        }
        wait_for_end(&processes, PATIENCE);
        self.mount()
    }

    fn processes(&self) -> Vec<Process> {
        let programs = self.programs.iter().chain([&self.own]);
        programs.flat_map(|program| Process::of_program_in(program, &self.directory)).collect()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let processes = self.processes();
        drop(self.undo.take());
        let gone = wait_for_end(&processes, PATIENCE).is_empty();
        if gone && let Some(listed) = self.listed.take() {
            // What stays listed is looked at by the sweep at the end of the run.
            let _ = listed.strike();
        }
    }
}

/// A word of sshfs's ssh_command: it is read as a mount option, which ends at a comma, and then split at spaces.
fn escaped(word: &[u8]) -> String {
    let mut text = String::new();
    for letter in String::from_utf8_lossy(word).chars() {
        match letter {
            ' ' => text += "\\\\ ",
            ',' => text += "\\,",
            '\\' => text += "\\\\",
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_survive_both_readers() {
        assert_eq!(escaped(b"/plain/path-1"), "/plain/path-1");
        assert_eq!(escaped(b"/a b,c"), "/a\\\\ b\\,c");
    }
}
