//! The store: an S3 server of this machine, and a client of it that no network delays.
//!
//! Owns the server's process and its files. The client is rclone, for what is there before a turn and for what is found after it: neither is
//! part of a figure, and no side under test reads its own writes.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use strum::Display;

use crate::cleanup::{Undo, undo};
use crate::error::{Doing, Error, Result};
use crate::mount::{find_program, require_program, run};
use crate::soon::soon;
use crate::stage::{Listed, Run, Thing};
use crate::workload::tree::clear;

/// Whoever knows these may do everything, and only this machine reaches the server.
pub const USER: &str = "weir";
/// As above.
pub const SECRET: &str = "weir-secret";
/// What requests are signed for.
pub const REGION: &str = "us-east-1";
/// The one bucket.
pub const BUCKET: &str = "bench";
/// What rclone calls the store.
pub const REMOTE: &str = "store";
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// MinIO, which syncs what it is given.
    Minio,
    /// Versity's gateway to plain files, which does not.
    Versitygw,
}

impl Kind {
    /// The one that was asked for, or else the first that is installed.
    pub fn here(asked: Option<Kind>) -> Result<Kind> {
        require_program("rclone", "rclone")?;
        let wanted = asked.map_or_else(|| Kind::value_variants().to_vec(), |kind| vec![kind]);
        let found = wanted.iter().find(|kind| kind.program().is_some());
        found.copied().ok_or_else(|| Error::Missing {
            what: "no S3 server is installed".into(),
            remedy: "run 'scripts/setup test', or install 'versitygw' or 'minio'".into(),
        })
    }

    /// On PATH, or where scripts/setup puts it.
    fn program(self) -> Option<PathBuf> {
        let name = self.to_string();
        let own = std::env::current_exe().ok()?;
        let tool = own.parent()?.parent()?.join("tools/bin").join(&name);
        find_program(&name).or_else(|| tool.is_file().then_some(tool))
    }
}

/// A server with one bucket.
pub struct Store {
    kind: Kind,
    program: PathBuf,
    directory: PathBuf,
    port: u16,
    listed: Option<Listed>,
    undo: Option<Undo>,
}

impl Store {
    /// Starts it.
    pub fn start(of: &Run, kind: Kind) -> Result<Store> {
        let directory = of.directory("store")?;
        let program = kind.program().unwrap_or_default();
        let program = program.canonicalize().doing("find", &program)?;
        let listed = of.ledger().list(Thing::Remote {
            programs: vec![program.clone()],
            directory: directory.clone(),
        })?;
        let port = free_port()?;
        let listed = Some(listed);
        let mut store = Store { kind, program, directory, port, listed, undo: None };
        store.serve()?;
        Ok(store)
    }

    /// Starts the server, on what is in its directory.
    fn serve(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        let address = format!("127.0.0.1:{}", self.port);
        match self.kind {
            Kind::Minio => command
                .env("MINIO_ROOT_USER", USER)
                .env("MINIO_ROOT_PASSWORD", SECRET)
                .args(["server", "--quiet", "--address", &address])
                .arg(&self.directory),
            Kind::Versitygw => command
                .args(["--access", USER, "--secret", SECRET, "--quiet"])
                .args(["--port", &address, "posix"])
                .arg(&self.directory),
        };
        let (child, guard) = start_guarded(&mut command)?;
        self.undo = Some(guard);
        let answers =
            || has_ended(&child) || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        if !soon(PATIENCE, answers) || has_ended(&child) {
            self.undo = None;
            return Err(Error::Command {
                command: self.program.display().to_string(),
                status: "it does not answer".into(),
                said: "see what it says when it is started by hand".into(),
            });
        }
        Ok(())
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes the bucket anew, with what is in a directory. The server begins with nothing: not every client that empties a bucket
    /// takes away objects that stand for directories.
    pub fn fill(&mut self, from: &Path) -> Result<()> {
        self.undo = None;
        clear(&self.directory)?;
        self.serve()?;
        run(rclone(self.port).args(["mkdir", &place()]))?;
        run(rclone(self.port).arg("copy").arg(from).arg(place())).map(drop)
    }

    /// Copies what is in the bucket to a directory. Objects whose keys end in slashes are left out.
    pub fn fetch(&self, to: &Path) -> Result<()> {
        // s3fs keeps the hash that rclone notes of a large object when its bytes change.
        run(rclone(self.port).args(["copy", "--ignore-checksum"]).arg(place()).arg(to)).map(drop)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.undo.take());
        if let Some(listed) = self.listed.take() {
            let _ = listed.strike();
        }
    }
}

/// The bucket, as rclone calls it.
pub fn place() -> String {
    format!("{REMOTE}:{BUCKET}")
}

/// Takes out of a command's environment what the user has set for other stores.
pub fn without_own_settings(command: &mut Command) -> &mut Command {
    for name in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"] {
        command.env_remove(name);
    }
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1")
}

/// rclone with the store at a port, and no settings of the user's.
pub fn rclone(port: u16) -> Command {
    let mut command = Command::new("rclone");
    let settings = [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ACCESS_KEY_ID", USER),
        ("SECRET_ACCESS_KEY", SECRET),
        ("REGION", REGION),
        ("ENDPOINT", &format!("http://127.0.0.1:{port}")),
    ];
    for (name, value) in settings {
        command.env(format!("RCLONE_CONFIG_{}_{name}", REMOTE.to_uppercase()), value);
    }
    without_own_settings(&mut command);
    command.env("RCLONE_CONFIG", "/dev/null").args(["--log-level", "ERROR"]);
    command
}

/// A port that was free just now.
pub fn free_port() -> Result<u16> {
    let here = Path::new("127.0.0.1");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("listen on", here)?;
    Ok(listener.local_addr().doing("listen on", here)?.port())
}

/// A process that others of this program may look at.
pub type Shared = Arc<Mutex<Child>>;

/// Starts a server in a group of its own; it is killed when the guard goes.
pub fn start_guarded(command: &mut Command) -> Result<(Shared, Undo)> {
    let program = PathBuf::from(command.get_program());
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .doing("run", &program)?;
    let child = Arc::new(Mutex::new(child));
    let ended = Arc::clone(&child);
    let guard = undo(move || {
        let mut child = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    });
    Ok((child, guard))
}

/// Whether a process has ended by itself.
pub fn has_ended(child: &Shared) -> bool {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    !matches!(child.try_wait(), Ok(None))
}
