//! The command line of `weir-bench run nbw`.

use std::path::PathBuf;

use clap::Args;

use crate::disk::Model;
use crate::error::Result;
use crate::mount::weir_program;
use crate::nbw::plan::Filter;
use crate::nbw::profile::Form;
use crate::nbw::{self, Options};

/// What a run on emulated disks runs on.
#[derive(Args)]
pub struct Place {
    /// Only these disks.
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    pub disk: Vec<Model>,
    /// The weir program; by default the one beside this program, or on PATH.
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Where to work. A directory of its own is made in it and removed at the end.
    #[arg(long, value_name = "WORKDIR", default_value = ".")]
    pub dir: PathBuf,
}

/// NBW's evaluation on emulated disks: ext4 by the kernel and Weir, in the same memory, on the same
/// disk, in turn. Needs root. Ends with zero only if every byte was found right.
#[derive(Args)]
pub struct Arguments {
    /// A look at every part, in at most eight minutes; the default.
    #[arg(long, conflicts_with = "paper")]
    quick: bool,
    /// The whole of the paper's evaluation; takes an hour and more.
    #[arg(long)]
    paper: bool,
    /// Only cases whose name contains one of these, such as 'random-write/128' or 'file-server'.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Keep the results here, case by case as they come. If it holds a part of the same run, only
    /// the rest is run.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        nbw::run(Options {
            form: if self.paper { Form::Paper } else { Form::Quick },
            filter: Filter { disks: self.place.disk, names: self.only },
            weir: weir_program(self.place.weir)?,
            dir: self.place.dir,
            json: self.json,
        })
    }
}
