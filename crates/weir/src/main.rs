//! The `weir` command and its daemon.
//!
//! The steps of a mount: [`invocation`] reads the command line as [`cli`] describes it; [`config_file`] and
//! [`options`] give layers that [`settings`] merges; [`daemonize`] goes into the background; [`daemon`] checks
//! SOURCE and MOUNTPOINT, connects shard and front end, and brings everything home at the end. The other
//! commands find a daemon and ask it over [`control`]; [`run`] is for programs under 'weir run'.
//!
//! Invariants: no input causes a panic; every failure is one line on standard error and an exit status
//! from [`failure`]; unsafe code is in `allocator`, `daemonize`, `control::server`, `daemon::guard`, `daemon::service`,
//! `signals`, `run::external`, `run::forward` and `run::ignored` alone.

#![deny(unsafe_code)]

mod allocator;
mod bucket;
mod cli;
mod command;
mod config_file;
mod connection;
mod control;
mod daemon;
mod daemonize;
mod failure;
mod former;
mod fuse_access;
mod holder;
mod http;
mod invocation;
mod lane_users;
mod local_log;
mod log;
mod log_place;
mod machine;
mod metrics;
mod mountpoint;
mod nesting;
mod options;
mod own_directory;
mod quantity;
mod run;
mod settings;
mod shell_word;
mod signals;
mod source;
mod status;
mod unmount;

use std::process::ExitCode;

use weir_control::{mounts, namespaces};

fn main() -> ExitCode {
    run::ignored::await_children();
    let cli = match invocation::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refusal) => return refusal.report(),
    };
    match command::run(cli) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}
