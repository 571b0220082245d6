//! A directory and its mount, for one test.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::mount::{MountFlags, UnmountFlags};
use weir_engine::{Config, Error, FetchPolicy};
use weir_fuse::{Options, Session};
use weir_shard::Shard;

use crate::transport;

/// An ordinary user who owns nothing and is in no group but their own.
pub const STRANGER: u32 = 12_345;

static MOUNTED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Why no mount can be made here, if so.
pub fn why_impossible() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not run by root".to_owned());
    }
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => None,
        Err(error) => Some(format!("/dev/fuse: {error}")),
    }
}

/// Frees whoever waits for an answer from a mount: before giving up.
pub fn abandon_all() {
    for mountpoint in MOUNTED.lock().unwrap().iter() {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(mountpoint, flags);
    }
}

/// A source directory and its mount.
pub struct Fixture {
    base: PathBuf,
    pub source: PathBuf,
    pub mount: PathBuf,
    pub shard: Arc<Shard>,
    session: Option<Session>,
}

impl Fixture {
    /// An empty directory, mounted with the defaults for everybody.
    pub fn new() -> Fixture {
        Fixture::with(|_| {}, |_| {})
    }

    /// `prepare` is called with the source before it is mounted, `adjust` with the options.
    pub fn with(prepare: impl FnOnce(&Path), adjust: impl FnOnce(&mut Options)) -> Fixture {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // On a disk, if TMPDIR is on one: direct I/O is to be tested too.
        let base = std::env::temp_dir().join(format!("weir-mount-{}-{number}", std::process::id()));
        let (source, mount) = (base.join("source"), base.join("mount"));
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(&mount).unwrap();
        prepare(&source);
        let opened = OwnedFd::from(File::open(&source).unwrap());
        let config = Config {
            memory_bytes_max: Config::MEMORY_BYTES_MIN,
            patch_bytes_max: 1 << 20,
            fetch_policy: FetchPolicy::Lazy,
            ..Config::default()
        };
        let opened_fd = std::os::fd::AsFd::as_fd(&opened);
        let shard = Shard::start_with(config, opened_fd, None, true).unwrap();
        let mut options = Options::new(opened, source.display().to_string());
        options.allow_other = true;
        options.transport = Some(transport::chosen());
        adjust(&mut options);
        let wanted = options.transport;
        let session = weir_fuse::mount(Arc::clone(&shard), &mount, options).unwrap();
        assert!(session.device_number().is_some());
        assert!(wanted.is_none_or(|wanted| wanted == session.transport()));
        MOUNTED.lock().unwrap().push(mount.clone());
        Fixture { base, source, mount, shard, session: Some(session) }
    }

    /// The mount.
    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// Waits for the end of a mount that was unmounted otherwise.
    pub fn wait(&mut self) {
        if let Some(session) = self.session.take() {
            let observer = session.observer();
            session.wait().unwrap();
            observer.stop_names();
            self.shard.stop();
        }
    }

    /// A path in the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    /// The same path underneath.
    pub fn home(&self, name: &str) -> PathBuf {
        self.source.join(name)
    }

    /// Has everything written home.
    pub fn sync(&self) {
        let (sender, receiver) = channel::<Result<(), Error>>();
        self.shard.sync_durably(move |synced| sender.send(synced).unwrap());
        receiver.recv().unwrap().unwrap();
    }

    /// Unmounts after writing everything home; the source stays until the fixture goes.
    pub fn unmount(&mut self) {
        if let Some(session) = self.session.take() {
            self.sync();
            session.unmount(false).unwrap();
            let observer = session.observer();
            session.wait().unwrap();
            self.sync();
            observer.stop_names();
            self.shard.stop();
        }
    }

    /// Runs a shell command as [`STRANGER`] in the mount; says whether it succeeded.
    pub fn stranger(&self, command: &str) -> bool {
        let status = Command::new("sh")
            .args(["-c", &format!("cd '{}' && {command}", self.mount.display())])
            .uid(STRANGER)
            .gid(STRANGER)
            .status();
        status.unwrap().success()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // The test failed: what is dirty does not matter. On a thread of its own, since the shard ends the process if a
            // thread that panics leaves it.
            let shard = Arc::clone(&self.shard);
            let end = move || {
                let _ = session.unmount(true);
                let observer = session.observer();
                let _ = session.wait();
                observer.stop_names();
                shard.stop();
            };
            let _ = thread::spawn(end).join();
        }
        MOUNTED.lock().unwrap().retain(|mount| *mount != self.mount);
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// Mounts a file system in memory on `place`.
pub fn mount_memory(place: &Path, bytes: u64) {
    let data = std::ffi::CString::new(format!("size={bytes}")).unwrap();
    rustix::mount::mount("weir-test", place, "tmpfs", MountFlags::empty(), data.as_c_str())
        .unwrap();
}

/// Unmounts it.
pub fn unmount_memory(place: &Path) {
    rustix::mount::unmount(place, UnmountFlags::DETACH).unwrap();
}

/// Opens for reading and writing, and creates.
pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// The bytes at `offset`.
pub fn read_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], offset + done as u64).unwrap() {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    bytes
}

/// The errno of what failed.
pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}

/// Bytes that are not the same everywhere.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}
