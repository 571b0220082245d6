//! The arguments of `weir documents`, which packages are built with.

use std::path::PathBuf;

use clap::{Arg, Args, Command};

use super::manual;

/// Arguments of `weir documents`.
#[derive(Debug, Args)]
pub struct DocumentsArguments {
    /// The directory that gets man/ and completions/; it is made
    pub directory: PathBuf,
}

/// The command line by which mount(8) starts its helper, and its manual. `weir mount` reads it (`invocation`): this is for people.
pub fn mount_helper() -> Command {
    // The parts of the manual of 'weir mount' that are about mount(8).
    let after = manual::MOUNT_AFTER
        .find("\nCONFIGURATION FILES:")
        .map_or(manual::MOUNT_AFTER, |end| &manual::MOUNT_AFTER[..end]);
    Command::new("mount.fuse.weir")
        .about("mount(8)'s helper for the type fuse.weir")
        .long_about(
            "mount(8) runs it for 'mount -t fuse.weir', and for lines of /etc/fstab with the type fuse.weir. It does the same as \
             'weir mount' with the options of -o. weir-mount(1) is the manual of all options.",
        )
        .after_long_help(after)
        .disable_help_flag(true)
        .args([
            Arg::new("source").value_name("SOURCE").required(true).help("The directory to serve"),
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .required(true)
                .help("The empty directory it appears at"),
            Arg::new("options")
                .short('o')
                .value_name("OPT[,OPT...]")
                .help("Mount options, comma-separated"),
            flag("sloppy", 's', "Ignore unknown options"),
            flag("fake", 'f', "Check everything, but do not mount"),
            flag("read-only", 'r', "The same as -o ro"),
            flag("no-mtab", 'n', "Accepted: there is no /etc/mtab to write"),
            flag("verbose", 'v', "Accepted"),
            flag("writable", 'w', "Accepted"),
        ])
}

fn flag(name: &'static str, letter: char, help: &'static str) -> Arg {
    Arg::new(name).short(letter).num_args(0).help(help)
}
