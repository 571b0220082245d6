//! `weir-bucket`: serves a bucket as a file system, checks one, shows what a served one was asked.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use weir_bucket::address::Address;
use weir_bucket::cache::{self, Cache, CacheError, Place};
use weir_bucket::check::check;
use weir_bucket::fs::{FileSystem, ROOT, Settings};
use weir_bucket::lease::{Lease, Renewal, VALID};
use weir_bucket::metadata::Defaults;
use weir_bucket::owner::owner;
use weir_bucket::plan::Limits;
use weir_bucket::serve;
use weir_bucket::store::{Connection, Fence, Metered, S3, Store};

/// A bucket as a file system: what `weir mount s3://…` puts Weir in front of.
#[derive(Parser)]
#[command(name = "weir-bucket", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve s3://BUCKET/PREFIX on MOUNTPOINT until it is unmounted.
    ///
    /// Says "serving" on its standard output when the mount is there. After an unmount, or SIGTERM, it brings what is
    /// pending into the bucket, and ends with status 0 when all is there.
    Mount(Mount),
    /// Look whether s3://BUCKET/PREFIX can be used: credentials, conditional writes, copies of parts, the clock.
    Check {
        /// s3://BUCKET or s3://BUCKET/PREFIX.
        address: Address,
        #[command(flatten)]
        connection: ConnectionOptions,
    },
    /// Show the requests that a mount made, as JSON.
    Stat {
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
}

#[derive(Args)]
struct Mount {
    /// s3://BUCKET or s3://BUCKET/PREFIX.
    address: Address,
    /// Where to mount it.
    mountpoint: PathBuf,
    /// A directory of this machine, for what is not in the bucket yet. Each prefix needs its own.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    #[command(flatten)]
    connection: ConnectionOptions,
    /// Take no lease on the prefix: for stores without conditional writes, if nobody else writes there.
    #[arg(long)]
    unfenced: bool,
    /// Size of uploaded parts, MiB. Files of up to two are written by one request.
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(5..=1024))]
    part_size: u64,
    /// The most requests a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_second: Option<u32>,
    /// How long listings and sizes are believed, seconds, where other tools write to the prefix.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    listing_ttl: u64,
    /// A directory of this machine, for what was fetched, so that it is not fetched again. Each prefix has a directory of its
    /// own in it; what is there may be removed while nothing is mounted.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The most that this prefix takes in the cache directory, such as 500M; 10G by default, at least 64M.
    #[arg(long, value_name = "SIZE", requires = "cache", value_parser = cache::parse_size)]
    cache_size: Option<u64>,
    /// Let all users of this machine use the mount.
    #[arg(long)]
    allow_other: bool,
    /// End as after an unmount when process PID, which has started this one, ends or sends SIGUSR1, and not by SIGTERM, SIGINT or SIGHUP: who
    /// stops all processes of a service or a login sends them to this one, too, and its parent still needs it.
    #[arg(long, value_name = "PID")]
    end_with_parent: Option<u32>,
    /// Print what 'stat' prints as a line on standard output, in each second in which it has changed.
    #[arg(long)]
    print_counts: bool,
}

#[derive(Args)]
struct ConnectionOptions {
    /// Address of a store that is not AWS's.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region, if not the one that AWS tools use.
    #[arg(long)]
    region: Option<String>,
    /// Profile of the AWS configuration files.
    #[arg(long)]
    profile: Option<String>,
    /// Name the bucket in the path of requests, not in the host's name. Implied by --endpoint.
    #[arg(long)]
    path_style: bool,
}

impl ConnectionOptions {
    fn connect(&self, address: &Address, fence: Arc<Fence>) -> std::io::Result<S3> {
        let connection = Connection {
            bucket: address.bucket.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            profile: self.profile.clone(),
            path_style: self.path_style || self.endpoint.is_some(),
        };
        S3::connect(&connection, fence)
    }
}

/// By this signal a parent, or the kernel when it has ended, has this process end.
const PARENT_ENDS: rustix::process::Signal = rustix::process::Signal::USR1;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Mount(mount) => serve_mount(&mount),
        Command::Check { address, connection } => check_bucket(&address, &connection),
        Command::Stat { mountpoint } => show(&mountpoint),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("weir-bucket: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_mount(mount: &Mount) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(parent) = mount.end_with_parent {
        end_with_parent(parent)?;
    }
    std::fs::create_dir_all(&mount.state)
        .map_err(|error| format!("state directory {}: {error}", mount.state.display()))?;
    let lock = std::fs::File::create(mount.state.join("lock"))?;
    if lock.try_lock().is_err() {
        return Err(format!(
            "state directory {} is in use by another weir-bucket",
            mount.state.display()
        )
        .into());
    }
    belongs_to(&mount.state, &mount.address)?;
    let fence = Arc::<Fence>::default();
    let store = mount.connection.connect(&mount.address, fence.clone())?;
    let cache = open_cache(mount, store.identity())?;
    let store: Arc<dyn Store> = Arc::new(store);
    let metered = Arc::new(Metered::new(store.clone(), mount.requests_per_second, fence));
    let prefix = &mount.address.prefix;
    // The first request tells whether the bucket is there at all.
    store.list(prefix, true, None)?;
    let renewal = match mount.unfenced {
        true => None,
        false => {
            let lease = Lease::take(&*store, prefix, &owner(&mount.state)?, VALID)?;
            Some(Renewal::start(lease, metered.clone(), VALID))
        }
    };
    let settings = Settings {
        prefix: prefix.clone(),
        state: mount.state.clone(),
        limits: Limits::s3(mount.part_size << 20),
        listing_ttl: Duration::from_secs(mount.listing_ttl),
        quiet: Duration::from_secs(2),
        stream_after: Duration::from_secs(2),
        seen_within: Duration::from_secs(60),
        pending_bytes_max: 256 << 20,
        pending_nodes_max: 16 << 10,
        parallel: 16,
        defaults: Defaults {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        },
    };
    let system = FileSystem::open_prefix(metered, settings, cache)?;
    let source = mount.address.to_string();
    let mut session = serve::mount(system.clone(), &mount.mountpoint, &source, mount.allow_other)
        .map_err(|error| {
        format!("{} cannot be mounted: {error}", mount.mountpoint.display())
    })?;
    let mut unmounter = session.unmount_callable();
    let ending: &[i32] = match mount.end_with_parent {
        Some(_) => &[PARENT_ENDS.as_raw()],
        None => &[libc::SIGTERM, libc::SIGINT],
    };
    let mut signals = signal_hook::iterator::Signals::new(ending)?;
    let (ends, ended) = mpsc::channel();
    let (flushing, mountpoint, detached) = (system.clone(), mount.mountpoint.clone(), ends.clone());
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // What fails is said at the end, when it is tried again.
            let _ = flushing.sync_below(ROOT);
            if unmounter.unmount().is_err() {
                detach(&mountpoint);
            }
            // Weir's daemon has files open here until it ends, and waits for this program: it does not wait for them. An ordinary
            // user's unmount succeeds at once though they are open.
            let _ = detached.send(Ok(()));
        }
    });
    let flushing = system.clone();
    std::thread::spawn(move || flushing.run_flusher());
    let streaming = system.clone();
    std::thread::spawn(move || streaming.run_streamer());
    println!("serving {source} on {}", mount.mountpoint.display());
    std::io::stdout().flush()?;
    if mount.print_counts {
        let counting = system.clone();
        std::thread::spawn(move || print_counts(&counting));
    }
    std::thread::spawn(move || ends.send(session.run()));
    ended.recv()??;
    let stopped = system.stop();
    if let Some(renewal) = renewal {
        renewal.end();
    }
    system.end_cache();
    match stopped {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let pending = system.happened().pending_nodes;
            eprintln!(
                "weir-bucket: {pending} files or directories are not in the bucket: {error}. They are kept in {}: \
                 mount again to bring them there",
                mount.state.display()
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The cache on the disk, if one is wanted.
fn open_cache(mount: &Mount, store: &str) -> Result<Option<Arc<Cache>>, CacheError> {
    let Some(directory) = &mount.cache else { return Ok(None) };
    let place = Place { directory, store, address: &mount.address };
    let cache = Cache::open(&place, mount.cache_size.unwrap_or(cache::BYTES_DEFAULT))?;
    Ok(Some(Arc::new(cache)))
}

/// Prints the counts when they have changed, until nobody reads them.
fn print_counts(system: &FileSystem) {
    let mut last = String::new();
    loop {
        let counts = system.counts();
        if counts != last {
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{counts}").and_then(|()| out.flush()).is_err() {
                return;
            }
            last = counts;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Has the kernel send a signal when the thread that started this process ends, and lets the others pass that end processes.
fn end_with_parent(parent: u32) -> Result<(), Box<dyn Error>> {
    rustix::process::set_parent_process_death_signal(Some(PARENT_ENDS))?;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // Whether it came is nobody's business.
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // One that had ended before sends no signal. In a container it may be process 1.
    match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err("the process that started this one has ended".into()),
    }
}

/// Takes the mount away, though files are open there.
fn detach(mountpoint: &Path) {
    use rustix::mount::UnmountFlags;
    if rustix::mount::unmount(mountpoint, UnmountFlags::DETACH).is_err() {
        let _ = Process::new("fusermount3").args(["-u", "-z"]).arg(mountpoint).output();
    }
}

/// A state directory is for one prefix: another's names must not go there.
fn belongs_to(state: &Path, address: &Address) -> Result<(), Box<dyn Error>> {
    let path = state.join("address");
    match std::fs::read_to_string(&path) {
        Ok(own) if own.trim() == address.to_string() => Ok(()),
        Ok(own) => Err(format!(
            "state directory {} belongs to {}: give {address} another",
            state.display(),
            own.trim()
        )
        .into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(std::fs::write(path, address.to_string())?)
        }
        Err(error) => Err(error.into()),
    }
}

fn check_bucket(
    address: &Address,
    connection: &ConnectionOptions,
) -> Result<ExitCode, Box<dyn Error>> {
    let store = connection.connect(address, Arc::default())?;
    let mut status = ExitCode::SUCCESS;
    for finding in check(&store, &address.prefix) {
        match finding.fault {
            None => println!("ok      {}", finding.what),
            Some(fault) => {
                println!("FAILED  {}: {fault}", finding.what);
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

fn show(mountpoint: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut bytes = vec![0; 1 << 16];
    let length = rustix::fs::getxattr(mountpoint, serve::COUNTS, &mut bytes)
        .map_err(|error| format!("{} is no mount of weir-bucket: {error}", mountpoint.display()))?;
    println!("{}", String::from_utf8_lossy(&bytes[..length]));
    Ok(ExitCode::SUCCESS)
}
