//! A scratch SOURCE and MOUNTPOINT, and the command to run on them.
//!
//! Owns everything below its directory and all mounts there: when a scene is dropped, nothing of it is
//! left.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

/// An ordinary user with an account, which fusermount3 insists on: nobody.
pub const ORDINARY: u32 = 65_534;

/// Whether FUSE can be used; if not, reports that the test is skipped.
pub fn fuse() -> bool {
    let missing = if !Path::new("/dev/fuse").exists() {
        "/dev/fuse is missing"
    } else if !root() && !has("fusermount3") {
        "fusermount3 is missing, and this is not root"
    } else {
        return true;
    };
    skip(missing)
}

/// Reports why a test is skipped. With `CI=true` the test fails instead.
fn skip(why: &str) -> bool {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run, and must under CI: {why}");
    eprintln!("skipped: {why}");
    false
}

/// Whether this is root; if not, says that the test is skipped.
pub fn needs_root() -> bool {
    root() || skip("only root can set this up")
}

/// Whether a program is there; if not, says that the test is skipped.
pub fn needs(program: &str) -> bool {
    has(program) || skip(&format!("{program} is missing"))
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// See the module.
pub struct Scene {
    /// Everything is below this.
    pub directory: PathBuf,
    /// SOURCE, with the file `file` in it that says `home\n`.
    pub source: PathBuf,
    /// MOUNTPOINT, empty.
    pub mountpoint: PathBuf,
    weir: PathBuf,
    user: Option<u32>,
}

impl Scene {
    /// A new scene of this name.
    pub fn new(name: &str) -> Scene {
        let name = format!("weir-cli-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().canonicalize().unwrap().join(name);
        let _ = fs::remove_dir_all(&directory);
        let scene = Scene {
            source: directory.join("source"),
            mountpoint: directory.join("mount"),
            weir: PathBuf::from(env!("CARGO_BIN_EXE_weir")),
            directory,
            user: None,
        };
        for path in [&scene.directory, &scene.source, &scene.mountpoint] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(scene.source.join("file"), "home\n").unwrap();
        fs::create_dir_all(scene.configuration().parent().unwrap()).unwrap();
        let text = format!("log-file = \"{}\"\n", scene.log().display());
        fs::write(scene.configuration(), text).unwrap();
        scene
    }

    /// A scene that belongs to an ordinary user. Only root can set it up.
    pub fn ordinary(name: &str) -> Scene {
        let mut scene = Scene::new(name);
        // Other users may not have access to the built command. Not fs::copy: a child forked by another
        // test would hold the copy open for writing, and it could not be executed.
        let weir = scene.directory.join("weir");
        assert!(Command::new("cp").args([&scene.weir, &weir]).status().unwrap().success());
        fs::set_permissions(&weir, fs::Permissions::from_mode(0o755)).unwrap();
        scene.weir = weir;
        scene.user = Some(ORDINARY);
        let paths = [&scene.directory, &scene.source, &scene.mountpoint];
        // As udev sets it.
        let device = fs::Permissions::from_mode(0o666);
        fs::set_permissions("/dev/fuse", device).unwrap();
        for path in paths.into_iter().chain([&scene.source.join("file")]) {
            std::os::unix::fs::chown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        scene
    }

    /// The command, with an environment of its own.
    pub fn command(&self) -> Command {
        self.command_as(self.user)
    }

    /// The command as that user, or as this process's.
    pub fn command_as(&self, user: Option<u32>) -> Command {
        let mut command = self.program_as(&self.weir, user);
        command.stdin(Stdio::null());
        command
    }

    /// Any program in the scene's environment, as that user, or as this process's.
    pub fn program_as(&self, program: impl AsRef<OsStr>, user: Option<u32>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.directory)
            .env("XDG_CONFIG_HOME", self.directory.join("config"))
            .env("XDG_STATE_HOME", self.directory.join("state"))
            .env_remove("XDG_RUNTIME_DIR")
            .env("HOME", &self.directory);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs the command.
    pub fn weir<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// `weir mount` of SOURCE at MOUNTPOINT, with more arguments.
    pub fn try_mount(&self, arguments: &[&str]) -> Output {
        let mut command = self.command();
        command.arg("mount").args([&self.source, &self.mountpoint]);
        command.args(arguments).output().unwrap()
    }

    /// As [`Scene::try_mount`], which must succeed without output.
    pub fn mount(&self, arguments: &[&str]) {
        let output = self.try_mount(arguments);
        assert_silent_success(&output);
    }

    /// `weir umount` of MOUNTPOINT.
    pub fn umount(&self, arguments: &[&str]) -> Output {
        self.command().arg("umount").arg(&self.mountpoint).args(arguments).output().unwrap()
    }

    /// `weir status --json` of MOUNTPOINT.
    pub fn status(&self) -> serde_json::Value {
        let output =
            self.command().args(["status", "--json"]).arg(&self.mountpoint).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The daemon's process.
    pub fn daemon(&self) -> Pid {
        let pid = self.status()["pid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    /// The scene's configuration file, which sets the log.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("config/weir/config.toml")
    }

    /// The daemon's log.
    pub fn log(&self) -> PathBuf {
        self.directory.join("weir.log")
    }

    /// Whether a Weir mount is at MOUNTPOINT.
    pub fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let place = self.mountpoint.to_str().unwrap().replace(' ', "\\040");
        table.lines().any(|line| line.split(' ').nth(4) == Some(place.as_str()))
    }

    /// The content of `file` in SOURCE.
    pub fn at_home(&self) -> String {
        fs::read_to_string(self.source.join("file")).unwrap()
    }

    /// Whether the lock and its directory are gone from SOURCE.
    pub fn is_unlocked(&self) -> bool {
        !self.source.join(".weir").exists()
    }

    /// Everything that a failed command could have changed: names, kinds, sizes, modes, times.
    pub fn snapshot(&self) -> Vec<String> {
        let mut found = Vec::new();
        survey(&self.directory, &mut found);
        // A running daemon may write to its log.
        let log = self.log().display().to_string();
        found.retain(|line| !line.starts_with(&log));
        found.sort();
        found
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        while self.is_mounted() {
            // Root can remove an ordinary user's files, too.
            let mut command = self.command_as(None);
            let _ = command.args(["umount", "--force"]).arg(&self.mountpoint).output();
            let detached = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
            if detached.is_err() && self.is_mounted() {
                eprintln!("left behind: {}", self.mountpoint.display());
                return;
            }
        }
        if thread::panicking() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            eprintln!("log of the daemon:\n{log}");
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn survey(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let data = fs::symlink_metadata(&path).unwrap();
        let (seconds, nanos) = (data.mtime(), data.mtime_nsec());
        let (mode, size) = (data.mode(), data.size());
        found.push(format!("{} {mode:o} {size} {seconds}.{nanos}", path.display()));
        if data.is_dir() && !data.permissions().readonly() {
            survey(&path, found);
        }
    }
}

/// Success without output, except the advice about FUSE over io_uring where it is turned off.
pub fn assert_silent_success(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!((complaints(&said), output.stdout.len()), (vec![], 0));
}

/// The lines that a command wrote to standard error, without the advice of `weir mount` about FUSE over
/// io_uring.
pub fn complaints(said: &str) -> Vec<&str> {
    let is_advice = |line: &&str| line.starts_with("weir: FUSE over io_uring is off; ");
    said.lines().filter(|line| !is_advice(line)).collect()
}

/// A proper failure: this status, one line that begins with `weir: ` and has all of `parts`, nothing on
/// standard output.
pub fn assert_refused(output: &Output, status: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(output.stdout, b"", "{said}");
    assert!(said.starts_with("weir: ") && said.ends_with('\n'), "{said:?}");
    assert_eq!(said.lines().count(), 1, "{said:?}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said:?}");
    }
}

/// Waits for something that should happen soon.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain for a minute: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub fn signal(process: Pid, signal: Signal) {
    rustix::process::kill_process(process, signal).unwrap();
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub fn runs(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    fs::read_to_string(path)
        .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z')))
}
