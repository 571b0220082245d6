//! The sides that are compared, and the place where they run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use strum::{IntoStaticStr, VariantArray};

use super::home::Home;
use super::plan::Cell;
use crate::error::{Doing, Result};
use crate::mount::require_program;
use crate::stage::{Run, Served, load_by};
use crate::workload::tree::{clear, sync};
use crate::workload::{Outcome, Workload, command_under, postgres_owner};

/// How long one load may take.
const LIMIT: Duration = Duration::from_secs(300);

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Side {
    /// Straight on home, with the programs' own syncs.
    Ext4,
    /// The same without syncs: nothing is safe, and nothing can be faster.
    Eatmydata,
    /// By FUSE through a mount that keeps everything in one order.
    Fuse,
    /// Through the same mount in a session: with `--sync external`, unless the case says otherwise.
    External,
}

impl Side {
    /// As it is called in results.
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn is_weir(self) -> bool {
        matches!(self, Side::Fuse | Side::External)
    }
}

/// The sides that this machine can have.
pub fn those_here(left_out: &mut Vec<String>) -> Vec<Side> {
    let mut sides = Side::VARIANTS.to_vec();
    if let Err(why) = require_program("eatmydata", "eatmydata") {
        left_out.push(format!("{}: {why}", Side::Eatmydata.name()));
        sides.retain(|side| *side != Side::Eatmydata);
    }
    sides
}

/// Where the sides of a home work, and what Weir is.
pub struct Stand<'a> {
    run: &'a Run,
    home: &'a Home,
    weir: &'a Path,
    transport: &'a str,
    /// Where Weir's mounts and their logs are.
    work: PathBuf,
    own: PathBuf,
}

impl<'a> Stand<'a> {
    /// One whose mounts are in `work`.
    pub fn new(
        run: &'a Run,
        home: &'a Home,
        weir: &'a Path,
        transport: &'a str,
        work: PathBuf,
    ) -> Result<Stand<'a>> {
        // By its name: in a session /proc/self/exe is another program's.
        let own = std::env::current_exe().doing("find", Path::new("this program"))?;
        let stand = Stand { run, home, weir, transport, work, own };
        fs::create_dir(stand.files()).doing("create", &stand.files())?;
        Ok(stand)
    }

    /// The files at home.
    pub fn files(&self) -> PathBuf {
        self.home.directory().join("files")
    }

    /// Removes what a case left.
    pub fn clear(&self) -> Result<()> {
        clear(&self.files())
    }

    /// One turn of one side, from nothing in memory, on prepared files that are as before afterwards. Only the load, and bringing home what it
    /// left, are at the home's pace: what it measured, and the seconds from its end until all was home.
    pub fn turn(&self, side: Side, cell: &Cell) -> Result<(Outcome, f64)> {
        let workload = &cell.workload;
        self.home.make_cold()?;
        let files = self.files();
        let measured = if side.is_weir() {
            let weir = self.mount(workload)?;
            let pace = self.home.pace()?;
            let outcome = self.load(side, weir.mount().path(), cell)?;
            let start = Instant::now();
            weir.mount().sync()?;
            let after_seconds = start.elapsed().as_secs_f64();
            drop(pace);
            weir.unmount()?;
            (outcome, after_seconds)
        } else {
            let _pace = self.home.pace()?;
            let outcome = self.load(side, &files, cell)?;
            let start = Instant::now();
            sync(&files)?;
            (outcome, start.elapsed().as_secs_f64())
        };
        self.home.make_cold()?;
        workload.verify(&files, &measured.0)?;
        workload.reset(&files, &measured.0)?;
        Ok(measured)
    }

    fn mount(&self, workload: &Workload) -> Result<Served> {
        let log = format!("--log-file={}", self.work.join("weir.log").display());
        let user = match workload.is_of_another_user() {
            true => Some(postgres_owner()?.to_string()),
            false => None,
        };
        let mut options = vec!["--transport", self.transport, &log, "--order", "all"];
        if let Some(user) = &user {
            options.extend(["--allow-other", "--lane-users", user]);
        }
        let mountpoint = self.work.join("mount");
        Served::start(
            self.run.ledger(),
            self.weir,
            &self.files(),
            &mountpoint,
            &options,
            |_| Ok(()),
        )
    }

    fn load(&self, side: Side, directory: &Path, cell: &Cell) -> Result<Outcome> {
        let weir = self.weir.to_string_lossy();
        let under: &[&str] = match side {
            Side::Ext4 | Side::Fuse => &[],
            Side::Eatmydata => &["eatmydata"],
            Side::External => &[&weir, "run", "--sync", cell.setup.sync, "--"],
        };
        let under: Vec<String> = under.iter().map(|&word| word.to_owned()).collect();
        let server_under =
            cell.setup.clients_outside.then(|| cell.workload.with_server_under(&under)).flatten();
        let (mut command, workload) = match &server_under {
            Some(workload) => (Command::new(&self.own), workload),
            None => (command_under(&under, &self.own), &cell.workload),
        };
        load_by(command.arg("load").arg(directory), workload, LIMIT)
    }
}
