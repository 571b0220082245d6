//! Who mounts the bucket, and with which settings: those that its own documentation has for speed with a cache on this machine's disk, and
//! as safe as it is by default.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Deserialize;
use strum::IntoStaticStr;

use super::network::Network;
use super::store::{
    BUCKET, REGION, SECRET, Shared, USER, free_port, has_ended, place, rclone, start_guarded,
    without_own_settings,
};
use crate::cleanup::Undo;
use crate::error::{Doing, Error, Result};
use crate::mount::{find_program, force_unmount, require_program};
use crate::mount_table::mount_at;
use crate::soon::soon;
use crate::stage::{Listed, Run, Served, Thing};
use crate::workload::tree::remove;

/// How long a mount may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long all may take to reach the bucket.
const SETTLE: Duration = Duration::from_secs(900);

/// How long the network has nothing to do before rclone is believed that it has nothing to do, either.
const QUIET: Duration = Duration::from_secs(2);

/// One side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Side {
    /// fsync is durable in the redo log on this machine.
    Weir,
    /// `use_cache`, 8 requests at once; close and fsync return when the object is in the bucket.
    S3fs,
    /// `--vfs-cache-mode full`; files are uploaded 5 s after their last close, and fsync does nothing more than write(2).
    Rclone,
    /// No bucket: a directory on this machine's disk. What the load takes by itself.
    Disk,
}

impl Side {
    /// As it is called in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Those that were asked for and are installed, Weir first.
pub fn those_here(asked: &[Side], left_out: &mut Vec<String>) -> Vec<Side> {
    let is_asked = |side: &Side| asked.is_empty() || asked.contains(side);
    let mut sides = vec![Side::Weir];
    for side in [Side::S3fs, Side::Rclone].into_iter().filter(is_asked) {
        match require_program(side.name(), side.name()) {
            Ok(()) => sides.push(side),
            Err(why) => left_out.push(format!("{}: {why}", side.name())),
        }
    }
    if is_asked(&Side::Disk) {
        sides.push(Side::Disk);
    }
    sides
}

/// A mount of the bucket, until this goes.
pub struct Mounted {
    way: Way,
    work: PathBuf,
    mountpoint: PathBuf,
}

enum Way {
    Weir(Served),
    Peer {
        process: Shared,
        /// Where rclone says what it has not uploaded.
        control: Option<u16>,
        guards: Option<(Undo, Undo)>,
        listed: Listed,
    },
}

impl Mounted {
    /// For a case, with nothing in a cache, by a store at this port.
    pub fn start(of: &Run, case: &str, side: Side, weir: &Path, port: u16) -> Result<Mounted> {
        let work = of.directory(&format!("{case}-{}", side.name()))?;
        let mountpoint = work.join("mount");
        fs::create_dir(&mountpoint).doing("create", &mountpoint)?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let way = match side {
            Side::Weir => mount_weir(of, weir, &work, &mountpoint, &endpoint)?,
            Side::S3fs => {
                let mut command = s3fs(&work, &mountpoint, &endpoint)?;
                mount_peer(of, side, &work, &mountpoint, &mut command, None)?
            }
            Side::Disk => unreachable!("nothing is mounted for it"),
            Side::Rclone => {
                let control = free_port()?;
                let mut command = rclone(port);
                command
                    .args(["mount", &place()])
                    .arg(&mountpoint)
                    .args(["--vfs-cache-mode", "full", "--cache-dir"])
                    .arg(work.join("cache"))
                    .args(["--rc", "--rc-no-auth", "--rc-addr", &format!("127.0.0.1:{control}")]);
                mount_peer(of, side, &work, &mountpoint, &mut command, Some(control))?
            }
        };
        Ok(Mounted { way, work, mountpoint })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Waits until all that was closed is in the bucket; since when it is.
    pub fn settle(&self, network: &Network) -> Result<Instant> {
        match &self.way {
            Way::Weir(served) => served.mount().sync()?,
            Way::Peer { control: Some(control), .. } => return settle_rclone(*control, network),
            Way::Peer { control: None, .. } => {}
        }
        Ok(Instant::now())
    }

    /// Unmounts it, and forgets its cache.
    pub fn unmount(self) -> Result<()> {
        match self.way {
            Way::Weir(served) => served.unmount()?,
            Way::Peer { process, mut guards, listed, .. } => {
                let unmounted =
                    rustix::mount::unmount(&self.mountpoint, rustix::mount::UnmountFlags::empty());
                unmounted.doing("unmount", &self.mountpoint)?;
                soon(PATIENCE, || has_ended(&process));
                drop(guards.take());
                listed.strike()?;
            }
        }
        remove(&self.work)
    }
}

fn mount_weir(
    of: &Run,
    weir: &Path,
    work: &Path,
    mountpoint: &Path,
    endpoint: &str,
) -> Result<Way> {
    let (log, messages) = (work.join("redo.log"), work.join("weir.log"));
    let (log, messages) =
        (format!("--log={}", log.display()), format!("--log-file={}", messages.display()));
    let state = work.join("state");
    let source = PathBuf::from(format!("s3://{BUCKET}"));
    let options = ["--endpoint", endpoint, &log, &messages];
    let served = Served::start(of.ledger(), weir, &source, mountpoint, &options, |command| {
        without_own_settings(command)
            .env("AWS_ACCESS_KEY_ID", USER)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", REGION)
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("STATE_DIRECTORY", &state);
        Ok(())
    });
    served.map(Way::Weir)
}

fn s3fs(work: &Path, mountpoint: &Path, endpoint: &str) -> Result<Command> {
    let passwords = work.join("passwords");
    fs::write(&passwords, format!("{USER}:{SECRET}\n")).doing("write", &passwords)?;
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&passwords, private).doing("set", &passwords)?;
    let options = format!(
        "url={endpoint},endpoint={REGION},use_path_request_style,passwd_file={},use_cache={},parallel_count=8,\
         enable_noobj_cache",
        passwords.display(),
        work.join("cache").display(),
    );
    let mut command = Command::new("s3fs");
    without_own_settings(&mut command).arg(BUCKET).arg(mountpoint).args(["-f", "-o", &options]);
    Ok(command)
}

/// Starts a mount in the foreground, and waits for it.
fn mount_peer(
    of: &Run,
    side: Side,
    work: &Path,
    mountpoint: &Path,
    command: &mut Command,
    control: Option<u16>,
) -> Result<Way> {
    let program = find_program(side.name()).unwrap_or_default();
    let listed = of.ledger().list(Thing::Remote {
        programs: vec![program.canonicalize().doing("find", &program)?],
        directory: work.to_owned(),
    })?;
    let (process, kill) = start_guarded(command)?;
    let unmount = {
        let mountpoint = mountpoint.to_owned();
        crate::cleanup::undo(move || force_unmount(&mountpoint))
    };
    let guards = Some((unmount, kill));
    let is_ready = || mount_at(mountpoint).is_some() || has_ended(&process);
    if !soon(PATIENCE, is_ready) || has_ended(&process) {
        return Err(Error::Command {
            command: side.name().into(),
            status: "it does not mount".into(),
            said: "see what it says when it is started by hand".into(),
        });
    }
    Ok(Way::Peer { process, control, guards, listed })
}

/// Waits until rclone has nothing to upload and the network is quiet: it hears of a close after close(2) has returned, and fetches what it
/// lacks of a file before it says that there is something to upload.
fn settle_rclone(control: u16, network: &Network) -> Result<Instant> {
    let mut at_rest = (network.counts(), Instant::now());
    let mut failed = None;
    let has_settled = soon(SETTLE, || match is_uploaded(control) {
        Ok(true) if network.counts() == at_rest.0 => at_rest.1.elapsed() >= QUIET,
        Ok(_) => {
            at_rest = (network.counts(), Instant::now());
            false
        }
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    match (failed, has_settled) {
        (Some(error), _) => Err(error),
        (None, true) => Ok(at_rest.1),
        (None, false) => {
            Err(Error::answer("rclone", "it has not uploaded everything in 15 minutes"))
        }
    }
}

/// What rclone says of its cache.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cache {
    uploads_in_progress: u64,
    uploads_queued: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    disk_cache: Cache,
}

/// Whether rclone has uploaded everything (its remote control's `vfs/stats`).
fn is_uploaded(port: u16) -> Result<bool> {
    let here = Path::new("127.0.0.1");
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).doing("ask", here)?;
    connection
        .write_all(b"POST /vfs/stats HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        .doing("ask", here)?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).doing("ask", here)?;
    let text = String::from_utf8_lossy(&answer);
    let (_, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let stats: Stats =
        serde_json::from_str(body).map_err(|error| Error::answer("rclone", error))?;
    Ok(stats.disk_cache.uploads_in_progress + stats.disk_cache.uploads_queued == 0)
}
