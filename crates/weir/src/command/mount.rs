//! `weir mount`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_engine::Order;

use super::remount;
use crate::bucket::{Bucket, BucketOptions, Durable};
use crate::cli::MountArguments;
use crate::daemon::service::ServiceManager;
use crate::daemon::{self, Checked, DaemonError, Locked, MountRequest};
use crate::daemonize::{self, Report, Side};
use crate::failure::{Failure, one_line};
use crate::former;
use crate::log;
use crate::mounts::{self, MountTable};
use crate::settings::{Layer, LogChoice};

/// Mounts. Returns when the mount has ended (in the foreground) or answers (in the background).
pub fn run(arguments: &MountArguments) -> Result<ExitCode, Failure> {
    if arguments.is_remount() {
        return remount::run(arguments, &arguments.layer()?);
    }
    let request = request(arguments)?;
    if arguments.helper.fake {
        daemon::check(request)?;
        return Ok(ExitCode::SUCCESS);
    }
    former::wait_for_end(&request.source)?;
    if arguments.foreground {
        // Before the program that serves a bucket is started.
        let manager = ServiceManager::take();
        let locked = daemon::check(request)?.lock()?;
        let settings = locked.settings();
        match &settings.log_file {
            Some(path) => log::to_file(path, settings.log_level).map_err(DaemonError::from)?,
            None => log::to_terminal(settings.log_level),
        }
        let manager = manager.unwrap_or_else(|error| {
            tracing::warn!("cannot tell the service manager anything: NOTIFY_SOCKET: {error}");
            None
        });
        locked.serve(manager, || Ok(()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = request.settings.clone();
    match daemonize::fork()? {
        Side::Command(outcome) => {
            if let Some(warning) = outcome.wait()? {
                eprintln!("weir: warning: {}", one_line(&warning));
            }
            if let Some(advice) = daemon::faster_transport(&settings) {
                eprintln!("weir: {advice}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Side::Daemon(report) => Ok(in_background(request, report)),
    }
}

/// The daemon's process. Its messages go to its report, and after that to the log.
fn in_background(request: MountRequest, report: Report) -> ExitCode {
    let mut report = Some(report);
    let served = daemon::check(request).and_then(Checked::lock).and_then(|locked| {
        let warning = begin_log(&locked)?;
        locked.serve(None, || match report.take() {
            Some(report) => report.ready(warning.as_deref()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        })
    });
    let Err(error) = served else { return ExitCode::SUCCESS };
    let failure = Failure::from(error);
    tracing::error!("{failure}");
    if let Some(report) = report {
        report.failed(failure.exit_status(), &failure.to_string());
    }
    ExitCode::from(failure.exit_status())
}

/// Opens the log. A log given by option must be writable; if the default log is not, there is a
/// warning.
fn begin_log(locked: &Locked) -> Result<Option<String>, DaemonError> {
    let settings = locked.settings();
    if let Some(path) = &settings.log_file {
        log::to_file(path, settings.log_level)?;
        return Ok(None);
    }
    let Some(path) = log::default_path(locked.mountpoint()) else {
        return Ok(Some("nothing is logged: neither XDG_STATE_HOME nor HOME is set".to_owned()));
    };
    let opened = log::to_file(&path, settings.log_level);
    Ok(opened.err().map(|error| format!("nothing is logged: {error}; use --log-file")))
}

/// Everything the daemon needs to know, with absolute paths, since it changes directory.
fn request(arguments: &MountArguments) -> Result<MountRequest, Failure> {
    let absolute = |name: &str, path: &Path| {
        std::path::absolute(path).map_err(|_| {
            Failure::Usage(format!("{name} is empty: name a directory; see 'weir mount --help'"))
        })
    };
    let mountpoint = absolute("MOUNTPOINT", &arguments.mountpoint)?;
    let from_command_line = arguments.layer()?;
    let configured = arguments.configured(&configured_name(&mountpoint))?;
    let named = arguments.source.as_ref().or(configured.source.as_ref());
    let options = from_command_line.bucket.clone().over(configured.bucket.clone());
    let bucket = named.and_then(|named| Bucket::named(named, &options));
    if bucket.is_none() && from_command_line.bucket != BucketOptions::default() {
        return Err(Failure::Usage(
            "--endpoint and the other options of buckets need a SOURCE s3://BUCKET/PREFIX".into(),
        ));
    }
    if from_command_line.bucket.cache_size.is_some() && options.cache.is_none() {
        return Err(Failure::Usage("--cache-size needs --cache, which says where".into()));
    }
    let source = match (&arguments.source, &configured.source) {
        _ if let Some(bucket) = &bucket => bucket.directory().map_err(DaemonError::from)?,
        (Some(named), _) => absolute("SOURCE", named)?,
        (None, Some(configured)) => configured.clone(),
        (None, None) => {
            return Err(Failure::Usage(format!(
                "SOURCE is missing: give <SOURCE> <MOUNTPOINT>, or in /etc/weir.toml the 'source' of [mount.\"{}\"]; \
                 see 'weir mount --help'",
                mountpoint.display()
            )));
        }
    };
    let mut layer = from_command_line.over(configured);
    if bucket.is_some() && options.durable == Some(Durable::Store) {
        without_log(&mut layer)?;
    }
    let mut settings = layer.resolve()?;
    for (name, path) in [("--log-file", &mut settings.log_file), ("--record", &mut settings.record)]
    {
        if let Some(path) = path {
            *path = absolute(name, path)?;
        }
    }
    Ok(MountRequest { source, bucket, mountpoint, settings })
}

/// `--durable store`: what is synced is in the bucket, and so a log has nothing to keep.
fn without_log(layer: &mut Layer) -> Result<(), Failure> {
    let has_log = layer.log.as_ref().is_some_and(|log| *log != LogChoice::None);
    if has_log || layer.order == Some(Order::All) {
        return Err(Failure::Usage(
            "--durable store is without a redo log: leave out --log and --order all, or give --durable log".into(),
        ));
    }
    layer.log = Some(LogChoice::None);
    Ok(())
}

/// The name of a mount point in a configuration file: canonical, unless it is a FUSE mount already,
/// which may not answer.
fn configured_name(mountpoint: &Path) -> PathBuf {
    let clean = mounts::absolute(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    let table = MountTable::read().unwrap_or_default();
    if table.at(&clean).is_some_and(|mount| mount.fs_type.starts_with("fuse")) {
        return clean;
    }
    mountpoint.canonicalize().unwrap_or(clean)
}
