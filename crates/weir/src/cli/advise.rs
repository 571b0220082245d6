//! Arguments of `weir advise`, and of the process in which it does calls again.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The forms of recorded traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Of strace -f -y -ttt -T.
    Strace,
    /// Of MobiBench.
    Mobibench,
    /// Of --save-trace.
    Weir,
}

/// Arguments of `weir advise`.
#[derive(Debug, Args)]
pub struct AdviseArguments {
    /// The directory to advise about; by default the one whose files CMD changes most
    ///
    /// With --trace: a directory of this machine on the disk that the advice is about, by default the current one, unless the
    /// trace is of this machine.
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// Where the page goes; weir-advise.html by default
    ///
    /// One file of HTML, with its charts, that needs no network. A former page is replaced, any other file is not, and no
    /// symbolic link is followed.
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
    /// Write everything that was found to FILE, as JSON; a regular file is replaced
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Read what was recorded before, instead of running a program
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub trace: Option<PathBuf>,
    /// The form of --trace: strace, mobibench or weir; told from its first line by default
    #[arg(long, value_name = "FORM", requires = "trace")]
    pub format: Option<TraceFormat>,
    /// Keep what was recorded in FILE, in Weir's form, for --trace
    #[arg(long, value_name = "FILE")]
    pub save_trace: Option<PathBuf>,
    /// Only analyse: do not try the disk and Weir
    ///
    /// Nothing is written into the directory. What Weir would cost is then estimated.
    #[arg(long)]
    pub no_probe: bool,
    /// The program, and its arguments
    #[arg(value_name = "CMD", required_unless_present = "trace", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Arguments of the process that does a plan's calls; for `weir advise` alone.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The plan.
    pub plan: PathBuf,
    /// The directory in which it is done.
    pub directory: PathBuf,
    /// Where the costs go.
    pub result: PathBuf,
    /// Most steps.
    #[arg(long, default_value_t = usize::MAX)]
    pub steps: usize,
    /// When to stop, milliseconds.
    #[arg(long, default_value_t = 1000)]
    pub milliseconds: u64,
    /// How many programs are started.
    #[arg(long, default_value_t = 0)]
    pub starts: u32,
}
