//! A SOURCE that is a bucket, `s3://BUCKET/PREFIX`: a program of its own, `weir-bucket`, serves it as a directory that only this user
//! reaches, and that directory is served as any other on another machine (decision 0034).
//!
//! Owns that process while the mount lives: it ends when everything pending is in the bucket. If the daemon dies, the kernel tells it to
//! end in the same way.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

use crate::control::place;
use crate::control::protocol::BucketReport;
use crate::holder;
use crate::local_log;
use crate::log::one_name;
use crate::quantity::{QuantityError, Size};

/// What an address of a bucket begins with.
const SCHEME: &str = "s3://";
/// The program that serves it.
const PROGRAM: &str = "weir-bucket";
/// What it says first when it serves.
const SERVING: &str = "serving ";
/// How long a former one may take until all is in the bucket, before a mount gives up; and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(50);
/// The least `--cache-size`.
const CACHE_SIZE_MIN: Size = Size(64 << 20);

/// When what is synced is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durable {
    /// In the redo log on this machine.
    Log,
    /// In the bucket.
    Store,
}

/// How the store is reached, and what is asked of it. Every option is one of the program's.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Buckets (SOURCE is s3://BUCKET/PREFIX)")]
pub struct BucketOptions {
    /// Address of a store that is not AWS's, such as http://127.0.0.1:9000
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region, if not the one that AWS tools use
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Profile of the AWS configuration files
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Name the bucket in the path of requests, not in the host's name; implied by --endpoint
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub path_style: Option<bool>,
    /// Take no lease on the prefix, for stores without conditional writes
    ///
    /// Two mounts of the prefix would then overwrite each other's files.
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub unfenced: Option<bool>,
    /// Size of the parts in which large files are uploaded, MiB, 5 to 1024; 8 by default
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(5..=1024))]
    pub part_size: Option<u64>,
    /// The most requests a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub requests_per_second: Option<u32>,
    /// Where what is synced is when fsync returns: in the redo log on this machine (log, the default), or in the bucket (store)
    ///
    /// store: there is no redo log, and names are made, renamed and removed one by one. An fsync waits for an upload; what it has
    /// acknowledged outlives the loss of this machine.
    #[arg(long, value_name = "WHERE", value_enum)]
    pub durable: Option<Durable>,
    /// How long listings are believed where others write to the prefix, seconds; 60 by default
    #[arg(long, value_name = "SECONDS")]
    pub listing_ttl: Option<u64>,
    /// Keep what was fetched in this directory of this machine, so that it is not fetched again, also after a restart
    ///
    /// Each prefix has a directory of its own in it, which only this user can read.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// The most that the prefix takes in the --cache directory, such as 500M; 10G by default, at least 64M
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub cache_size: Option<Size>,
}

/// Reads a `--cache-size`.
fn cache_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: QuantityError| error.to_string())?;
    match size < CACHE_SIZE_MIN {
        true => Err(format!("a cache needs at least {CACHE_SIZE_MIN}")),
        false => Ok(size),
    }
}

impl BucketOptions {
    /// These, and those of `below` where there is none.
    pub fn over(self, below: BucketOptions) -> BucketOptions {
        BucketOptions {
            endpoint: self.endpoint.or(below.endpoint),
            region: self.region.or(below.region),
            profile: self.profile.or(below.profile),
            path_style: self.path_style.or(below.path_style),
            unfenced: self.unfenced.or(below.unfenced),
            part_size: self.part_size.or(below.part_size),
            requests_per_second: self.requests_per_second.or(below.requests_per_second),
            listing_ttl: self.listing_ttl.or(below.listing_ttl),
            durable: self.durable.or(below.durable),
            cache: self.cache.or(below.cache),
            cache_size: self.cache_size.or(below.cache_size),
        }
    }

    /// Takes an option of `-o` or of a configuration file: with `_` or `-` in its name, and without a value where it is a switch.
    ///
    /// # Errors
    /// What is wrong with the value. `Ok(false)` if there is no such option.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let number = |least: u64, most: u64| {
            let number = value.and_then(|value| value.parse().ok());
            number
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| format!("give a number from {least} to {most}"))
        };
        let text = || match value {
            Some(text) if !text.is_empty() => Ok(Some(text.to_owned())),
            _ => Err("it needs a value".to_owned()),
        };
        let switch = || match value {
            None | Some("true" | "on") => Ok(Some(true)),
            Some("false" | "off") => Ok(Some(false)),
            Some(_) => Err("give true or false".to_owned()),
        };
        match name.replace('_', "-").as_str() {
            "endpoint" => self.endpoint = text()?,
            "region" => self.region = text()?,
            "profile" => self.profile = text()?,
            "path-style" => self.path_style = switch()?,
            "unfenced" => self.unfenced = switch()?,
            "part-size" => self.part_size = Some(number(5, 1024)?),
            "requests-per-second" => {
                self.requests_per_second = Some(number(1, u64::from(u32::MAX))? as u32);
            }
            "listing-ttl" => self.listing_ttl = Some(number(0, u64::MAX)?),
            "cache" => match text()?.filter(|path| path.starts_with('/')) {
                Some(path) => self.cache = Some(path.into()),
                None => return Err("give an absolute path".to_owned()),
            },
            "cache-size" => self.cache_size = Some(cache_size(&text()?.unwrap_or_default())?),
            "durable" => {
                let durable = Durable::from_str(&text()?.unwrap_or_default(), false);
                self.durable = Some(durable.map_err(|_| "give log or store".to_owned())?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How the store is reached.
    fn connection(&self) -> Vec<String> {
        let mut words = Vec::new();
        let named =
            [("endpoint", &self.endpoint), ("region", &self.region), ("profile", &self.profile)];
        for (name, value) in named {
            words.extend(value.as_ref().map(|value| format!("--{name}={value}")));
        }
        words.extend((self.path_style == Some(true)).then(|| "--path-style".to_owned()));
        words
    }

    /// What is asked of a mount.
    fn of_mount(&self) -> Vec<OsString> {
        let mut words = self.connection();
        words.extend((self.unfenced == Some(true)).then(|| "--unfenced".to_owned()));
        words.extend(self.part_size.map(|size| format!("--part-size={size}")));
        words.extend(self.requests_per_second.map(|n| format!("--requests-per-second={n}")));
        words.extend(self.listing_ttl.map(|seconds| format!("--listing-ttl={seconds}")));
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        if let Some(directory) = &self.cache {
            words.extend(["--cache".into(), directory.into()]);
            words.extend(self.cache_size.map(|size| format!("--cache-size={}", size.0).into()));
        }
        words
    }
}

/// Why a bucket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The program is not installed.
    #[error("there is no {PROGRAM} beside weir or on PATH, which serves {0}: install it as well")]
    NoProgram(String),
    /// It said why not.
    #[error("cannot serve {address}: {why}")]
    Refused {
        /// The bucket.
        address: String,
        /// What the program said last.
        why: String,
    },
    /// Another process serves it here.
    #[error("{address} is mounted on this machine already ({}): 'weir umount' it first", at.display())]
    Served {
        /// The bucket.
        address: String,
        /// Where its directory is.
        at: PathBuf,
    },
    /// It ended before everything was in the bucket.
    #[error(
        "not everything is in {address}: {why}; what is missing is in {}, and the next mount brings it there", state.display()
    )]
    NotAll {
        /// The bucket.
        address: String,
        /// How it ended.
        why: String,
        /// Where the rest is.
        state: PathBuf,
    },
    /// Something of this machine.
    #[error("cannot {doing} for {address}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The bucket.
        address: String,
        /// Why it failed.
        error: io::Error,
    },
}

/// A bucket, or a part of one, that is to be SOURCE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    address: String,
    options: BucketOptions,
}

/// Whether SOURCE is named as a bucket is.
pub fn is_address(source: &str) -> bool {
    source.starts_with(SCHEME)
}

impl Bucket {
    /// The bucket that `source` names; `None` if it is a path.
    pub fn named(source: &Path, options: &BucketOptions) -> Option<Bucket> {
        let address = source.to_str().filter(|source| is_address(source))?;
        let address = address.trim_end_matches('/').to_owned();
        let mut options = options.clone();
        // The daemon changes directory.
        let cache = options.cache.take();
        options.cache = cache.map(|path| std::path::absolute(&path).unwrap_or(path));
        Some(Bucket { address, options })
    }

    /// The name of its directories on this machine: one for each store and prefix.
    fn name(&self) -> PathBuf {
        let store = self.options.endpoint.as_deref().unwrap_or_default();
        let address = &self.address[SCHEME.len()..];
        let check = crc32c::crc32c(format!("{store} {address}").as_bytes());
        let mut name = OsString::from(format!("bucket-{check:08x}-"));
        name.push(one_name(Path::new(address), 200));
        name.into()
    }

    /// Where it is served: a directory that only this user reaches.
    ///
    /// # Errors
    /// There is no place for such directories.
    pub fn directory(&self) -> Result<PathBuf, BucketError> {
        let runtime = place::directory();
        let runtime = runtime.map_err(|error| self.system("make a directory", error))?;
        Ok(runtime.join(self.name()))
    }

    /// Where what is not in the bucket yet is kept.
    fn state(&self) -> Result<PathBuf, BucketError> {
        let directory = local_log::directory().ok_or(io::ErrorKind::NotFound.into());
        let directory =
            directory.map_err(|error| self.system("find a place for its state", error))?;
        Ok(directory.join(self.name()))
    }

    fn system(&self, doing: &'static str, error: io::Error) -> BucketError {
        BucketError::System { doing, address: self.address.clone(), error }
    }

    fn refused(&self, why: impl Into<String>) -> BucketError {
        BucketError::Refused { address: self.address.clone(), why: why.into() }
    }

    fn command(&self) -> Result<Command, BucketError> {
        let program = program().ok_or_else(|| BucketError::NoProgram(self.address.clone()))?;
        let mut command = Command::new(program);
        // mount(8) and service managers do not say where the credentials of AWS tools are: in the user's home.
        if std::env::var_os("HOME").is_none()
            && let Some(home) = std::env::home_dir()
        {
            command.env("HOME", home);
        }
        Ok(command)
    }

    /// Looks whether it can be used, and changes nothing for good: `weir-bucket check`.
    ///
    /// # Errors
    /// The program is missing or cannot be run.
    pub fn check(&self) -> Result<Output, BucketError> {
        let mut command = self.command()?;
        command.arg("check").arg(&self.address).args(self.options.connection());
        command.stdin(Stdio::null()).output().map_err(|error| self.system("run weir-bucket", error))
    }

    /// Has it served until what is returned goes. Waits for a former process that still brings something into the bucket.
    ///
    /// Call it on the thread that lives as long as the mount. It starts no thread: that is for [`Served::listen`].
    ///
    /// # Errors
    /// See [`BucketError`].
    pub fn start(&self) -> Result<Served, BucketError> {
        let mut command = self.command()?;
        let (directory, state) = (self.directory()?, self.state()?);
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        make(&state).map_err(|error| self.system("make its state directory", error))?;
        self.wait_for_former(&state, &directory)?;
        take_away_dead(&directory);
        make(&directory).map_err(|error| self.system("make a directory", error))?;
        command.args(["mount", &self.address]).arg(&directory).arg("--state").arg(&state);
        command.arg("--end-with-parent").arg(std::process::id().to_string());
        command.arg("--print-counts").args(self.options.of_mount());
        if rustix::process::geteuid().is_root() {
            // The daemon makes files as the program that asked.
            command.arg("--allow-other");
        }
        // A group of its own: Ctrl-C is for the daemon, which ends it when all is home.
        let spawned = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let child = spawned.map_err(|error| self.system("run weir-bucket", error))?;
        let bucket = self.clone();
        let (said, ends) = Default::default();
        let mut served = Served { bucket, child, directory, state, said, ends, output: None };
        served.wait_until_it_serves()?;
        Ok(served)
    }

    /// Waits until no other process has the state directory.
    fn wait_for_former(&self, state: &Path, directory: &Path) -> Result<(), BucketError> {
        let lock = File::create(state.join("lock"))
            .map_err(|error| self.system("lock its state directory", error))?;
        let start = Instant::now();
        let mut told = false;
        while lock.try_lock().is_err() {
            let holder = holder::holder(directory);
            if holder.is_some() || start.elapsed() > PATIENCE {
                let at = holder.map_or_else(|| directory.to_owned(), |holder| holder.mountpoint);
                return Err(BucketError::Served { address: self.address.clone(), at });
            }
            if !std::mem::replace(&mut told, true) {
                tracing::info!(
                    "waiting for a former process that brings files into {}",
                    self.address
                );
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// A bucket that is served as a directory.
#[derive(Debug)]
pub struct Served {
    bucket: Bucket,
    child: Child,
    directory: PathBuf,
    state: PathBuf,
    said: Said,
    /// It was told to end.
    ends: Arc<AtomicBool>,
    /// What it prints, until [`Served::listen`].
    output: Option<(BufReader<ChildStdout>, ChildStderr)>,
}

/// What the program said last of its requests and files; nothing when it has ended.
#[derive(Clone, Debug, Default)]
pub struct Said(Arc<Mutex<Option<BucketReport>>>);

impl Said {
    /// That.
    pub fn report(&self) -> Option<BucketReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, report: Option<BucketReport>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

impl Served {
    /// What it says of its requests and files, from now on.
    pub fn said(&self) -> Said {
        self.said.clone()
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `s3://BUCKET/PREFIX`.
    pub fn address(&self) -> &str {
        &self.bucket.address
    }

    fn wait_until_it_serves(&mut self) -> Result<(), BucketError> {
        let stdout = self.child.stdout.take().expect("asked for a pipe");
        let mut stderr = self.child.stderr.take().expect("asked for a pipe");
        let mut stdout = BufReader::new(stdout);
        let mut said = String::new();
        let is_served = stdout.read_line(&mut said).is_ok() && said.starts_with(SERVING);
        if !is_served {
            let mut why = String::new();
            let _ = stderr.read_to_string(&mut why);
            let why = why.trim().lines().last().unwrap_or("weir-bucket ended").to_owned();
            let why = why.strip_prefix("weir-bucket: ").unwrap_or(&why).to_owned();
            return Err(self.bucket.refused(why));
        }
        self.output = Some((stdout, stderr));
        Ok(())
    }

    /// Starts the threads that note what it says of its requests and files, and log what it warns of. Call it once, when the signals are
    /// blocked and no child is forked any more.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn listen(&mut self) -> Result<(), BucketError> {
        let Some((stdout, stderr)) = self.output.take() else { return Ok(()) };
        let (address, said) = (self.bucket.address.clone(), self.said.clone());
        let (named, ends) = (address.clone(), self.ends.clone());
        let warn = move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                tracing::warn!("{address}: {line}");
            }
        };
        let note = move || {
            for line in stdout.lines().map_while(Result::ok) {
                said.note(serde_json::from_str(&line).ok());
            }
            said.note(None);
            if !ends.load(Relaxed) {
                tracing::error!(
                    "{named}: weir-bucket has ended: nothing can be read from the bucket or brought there any more. What was synced is not \
                     lost: end this mount by 'weir umount --force' and mount again"
                );
            }
        };
        let start = |name: &str, act: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(act).map(drop)
        };
        start("bucket", Box::new(warn))
            .and_then(|()| start("bucket counts", Box::new(note)))
            .map_err(|error| self.bucket.system("start a thread", error))
    }

    /// Ends it when everything is in the bucket. Blocks.
    ///
    /// # Errors
    /// [`BucketError::NotAll`].
    pub fn end(mut self) -> Result<(), BucketError> {
        self.tell_to_end();
        let ended = self.child.wait();
        take_away_dead(&self.directory);
        let _ = fs::remove_dir(&self.directory);
        let why = match ended {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let (address, state) = (self.bucket.address.clone(), self.state.clone());
        Err(BucketError::NotAll { address, why, state })
    }

    fn tell_to_end(&self) {
        self.ends.store(true, Relaxed);
        if let Ok(pid) = i32::try_from(self.child.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // SIGTERM may come from anybody who stops this daemon and all beside it.
            let _ = rustix::process::kill_process(pid, Signal::USR1);
        }
    }
}

impl Drop for Served {
    /// Where a mount failed: nobody waits for what is pending.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.tell_to_end();
        }
    }
}

/// Beside this program, or on PATH.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM));
    beside.into_iter().chain(on_path).find(|program| program.is_file())
}

/// Takes a mount away whose server has ended.
fn take_away_dead(directory: &Path) {
    if matches!(rustix::fs::statfs(directory), Err(Errno::NOTCONN))
        && rustix::mount::unmount(directory, UnmountFlags::DETACH).is_err()
    {
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(directory).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_from_a_path() {
        let options = BucketOptions::default();
        let named = |source: &str| Bucket::named(Path::new(source), &options);
        assert_eq!(named("s3://bucket/a/b/").unwrap().address, "s3://bucket/a/b");
        for path in ["/srv/data", "s3:/bucket", "./s3://bucket"] {
            assert_eq!(named(path), None, "{path}");
        }
    }

    #[test]
    fn every_store_and_prefix_has_directories_of_its_own() {
        let name = |address: &str, endpoint: Option<&str>| {
            let endpoint = endpoint.map(str::to_owned);
            let options = BucketOptions { endpoint, ..BucketOptions::default() };
            let bucket = Bucket::named(Path::new(address), &options).unwrap();
            bucket.name().to_str().unwrap().to_owned()
        };
        let names = [
            name("s3://bucket/a-b", None),
            name("s3://bucket/a/b", None),
            name("s3://bucket/a-b", Some("http://127.0.0.1:9000")),
            name(&format!("s3://bucket/{}", "x".repeat(1000)), None),
            name(&format!("s3://bucket/y{}", "x".repeat(1000)), None),
        ];
        for (index, one) in names.iter().enumerate() {
            assert!(one.len() <= 255 && one.starts_with("bucket-"), "{one}");
            assert!(!names[index + 1..].contains(one), "{one}");
        }
    }

    #[test]
    fn options_are_taken_in_every_form() {
        let mut options = BucketOptions::default();
        assert_eq!(options.set("endpoint", Some("http://localhost:1")), Ok(true));
        assert_eq!(options.set("path_style", None), Ok(true));
        assert_eq!(options.set("requests-per-second", Some("100")), Ok(true));
        assert_eq!(options.set("part_size", Some("16")), Ok(true));
        assert_eq!(options.set("memory", Some("1G")), Ok(false));
        assert_eq!(options.set("durable", Some("store")), Ok(true));
        assert_eq!(options.durable, Some(Durable::Store));
        assert_eq!(options.set("cache_size", Some("1G")), Ok(true));
        let wrong = [
            ("part-size", "4"),
            ("part-size", "x"),
            ("unfenced", "perhaps"),
            ("durable", "disk"),
            ("cache", "here"),
            ("cache-size", "63M"),
            ("cache-size", "1X"),
        ];
        for (name, value) in wrong {
            assert!(options.set(name, Some(value)).is_err(), "{name}={value}");
        }
        assert!(options.set("region", None).is_err());
        let below = BucketOptions { region: Some("r".into()), ..BucketOptions::default() };
        assert_eq!(
            options.over(below).of_mount(),
            [
                "--endpoint=http://localhost:1",
                "--region=r",
                "--path-style",
                "--part-size=16",
                "--requests-per-second=100"
            ]
        );
        let mut options = BucketOptions::default();
        assert_eq!(options.set("cache-size", Some("1G")), Ok(true));
        assert!(options.of_mount().is_empty(), "without a cache it has no size");
        assert_eq!(options.set("cache", Some("/var/cache/weir")), Ok(true));
        assert_eq!(options.of_mount(), ["--cache", "/var/cache/weir", "--cache-size=1073741824"]);
    }
}
