//! `weir doctor`: what the machine, SOURCE and MOUNTPOINT have and lack for a mount.
//!
//! Owns the order of the checks, and what is said of each. Does not own the decisions: they are asked of the modules that a mount
//! asks (`fuse_access`, `source`, `mountpoint`, `daemon::log_plan`, `log_place`, `local_log`), so that both say the same.
//!
//! Invariants: nothing is changed, and no lock is taken that a mount would wait for. A *problem* is what makes a mount fail, and
//! nothing else is one.

mod bucket;
mod finding;
mod machine;
mod mounts;
mod place;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::bucket::Bucket;
use crate::cli::DoctorArguments;
use crate::config_file;
use crate::failure::Failure;
use crate::mounts::{MountTable, absolute};
use crate::settings::{Layer, Settings};

use finding::{Findings, Level};

/// Looks at everything and says what it found.
pub fn run(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let mut findings = Findings::default();
    let settings = configuration(arguments.mountpoint.as_deref(), &mut findings);
    let table = MountTable::read().unwrap_or_default();
    machine::check(&settings, &mut findings);
    let options = arguments.bucket.clone().over(settings.bucket.clone());
    let is_bucket = arguments.source.as_deref().and_then(|named| Bucket::named(named, &options));
    if let Some(found) = &is_bucket {
        bucket::check(found, &mut findings);
    } else if let Some(source) = &arguments.source {
        place::check(source, arguments.mountpoint.as_deref(), &settings, &table, &mut findings);
    }
    mounts::check(arguments.source.as_deref(), &table, &mut findings);
    let shown = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map(|path| path.to_string_lossy().into_owned())
    };
    let text = match arguments.json {
        true => findings.json(shown(&arguments.source), shown(&arguments.mountpoint)),
        false => findings.text(),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::Refused(format!("cannot write to standard output: {error}")));
        }
        _ => {}
    }
    match &findings.of(Level::Problem)[..] {
        [] => Ok(ExitCode::SUCCESS),
        problems => Err(Failure::Refused(format!(
            "what stands in the way of a mount: {}",
            problems.join(", ")
        ))),
    }
}

/// The settings that a mount would have by the configuration files alone.
fn configuration(mountpoint: Option<&Path>, findings: &mut Findings) -> Settings {
    const CHECK: &str = "configuration";
    let clean = mountpoint.and_then(|path| absolute(path).ok());
    // No mount point is called so.
    let name = clean.as_deref().unwrap_or(Path::new("//"));
    let layer = config_file::load(None, name).unwrap_or_else(|error| {
        findings.problem(CHECK, error.to_string(), Some("correct that line".to_owned()));
        Layer::default()
    });
    let resolved = layer.clone().resolve();
    match &resolved {
        Err(error) => {
            let mend = Some("change the configuration file".to_owned());
            findings.problem(CHECK, error.to_string(), mend);
        }
        Ok(_) if layer == Layer::default() => {
            findings.ok(CHECK, "no configuration file sets anything for this mount");
        }
        Ok(_) => findings.ok(CHECK, "the configuration files are valid, and set options"),
    }
    resolved.unwrap_or_else(|_| Layer::default().resolve().expect("the defaults are valid"))
}
