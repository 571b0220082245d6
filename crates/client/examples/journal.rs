//! A journal on a Weir mount: appends lines, makes all of them durable at once by one promise, and says how far the file is on its way home.
//!
//! `journal FILE LINES` ends with `home` when SOURCE has everything; on a mount without `--order all` the lines are synced instead.
//! tests/e2e/client.sh runs it on a real mount.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args().collect::<Vec<_>>();
    let [_, path, lines] = &arguments[..] else {
        eprintln!("usage: journal FILE LINES");
        return ExitCode::from(2);
    };
    let lines = lines.parse().unwrap_or(1);
    match journal(path, lines) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("journal: {error}");
            ExitCode::FAILURE
        }
    }
}

fn journal(path: &str, lines: u32) -> Result<(), Box<dyn Error>> {
    let mut file = File::options().create(true).append(true).open(path)?;
    for line in 0..lines {
        writeln!(file, "line {line}")?;
    }
    println!("written: {:?}", weir::state(path)?);
    match weir::promise(&file) {
        Ok(promise) => promise.wait()?,
        Err(weir::Error::Unordered { .. }) => weir::sync(path)?,
        Err(error) => return Err(error.into()),
    }
    println!("durable: {:?}", weir::state(path)?);

    let mount = weir::Mount::of(path)?;
    let status = mount.status()?;
    println!("weir {} by process {}, order {:?}", status.version, status.process, status.order);
    if let Some(log) = status.log {
        println!("log: {} of {} bytes", log.used_bytes, log.capacity_bytes);
    }
    mount.sync()?;
    println!("synced: {:?}", weir::state(path)?);
    println!("dirty: {} bytes", mount.status()?.dirty_bytes);
    Ok(())
}
